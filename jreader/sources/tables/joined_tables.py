"""Several tables as one: the columns asked for, of the same kind in all of them, end to end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from jreader.readers.joined_columns import Joined
from jreader.readers.ragged import Ragged, ragged_end_to_end
from jreader.sources.tables.arrow_columns import ArrowObjects, pyarrow


def selected(table: Any, names: Sequence[str] | None, where: str) -> Any:
    """The table of some columns, and of structs some fields, in the order of their names.

    >>> import pyarrow as pa
    >>> table = pa.table({"a": [1], "b": [{"x": 2, "y": 3}]})
    >>> selected(table, ["b.y", "a"], "a.arrow").to_pylist()
    [{'b': {'y': 3}, 'a': 1}]

    Args:
        table: A `pyarrow.Table`.
        names: The names; a field of a struct is named behind a point. None for all columns.
        where: What errors call the table.

    Raises:
        ValueError: There is no such column.
    """
    if names is None:
        return table
    if {*table.column_names}.issuperset(names):  # to look for fields is quadratic in the columns
        return table.select(list(names))
    pa, inside = pyarrow(), dict[str, list[str]]()
    for name in names:
        top = top_of(name, table.schema, where)
        inside.setdefault(top, []).append(name.removeprefix(f"{top}."))
    columns = {}
    for top, inner in inside.items():
        columns[top] = column = table.column(top)
        if top not in inner:
            chunks = column.chunks or [pa.nulls(0, column.type)]
            columns[top] = pa.chunked_array([_struct_of(chunk, inner) for chunk in chunks])
    return pa.table(columns)


def bare_values(columns: dict[str, Any], name: Any) -> Any:
    """The values of the only column, where its name was given as a single str.

    >>> bare_values({"b": {"y": [3]}}, "b.y"), bare_values({"b": [3]}, ["b"])
    ([3], {'b': [3]})
    """
    if not isinstance(name, str):
        return columns
    part: Any = columns
    while name:
        (top,) = part
        part, name = part[top], name[len(top) + 1 :]
    return part


def top_of(name: str, schema: Any, where: str) -> str:
    """The column that a name means, or a field of which.

    Raises:
        ValueError: There is none.
    """
    found = [top for top in schema.names if name == top or name.startswith(f"{top}.")]
    for top in sorted(found, key=len, reverse=True):
        kind = schema.field(top).type
        if name == top or _has(kind, name.removeprefix(f"{top}.")):
            return str(top)
    raise ValueError(
        f"{where} has no column {name!r}; its columns are {', '.join(map(repr, schema.names))}."
    )


def _has(kind: Any, name: str) -> bool:
    """Whether a struct has a field of that name, or of a struct in it."""
    if not pyarrow().types.is_struct(kind):
        return False
    return any(
        name == field.name
        or (name.startswith(f"{field.name}.") and _has(field.type, name[len(field.name) + 1 :]))
        for field in kind
    )


def _struct_of(array: Any, names: Iterable[str]) -> Any:
    """The struct of some fields of a struct."""
    below: dict[str, list[str]] = {}
    for name in names:
        first, _, rest = name.partition(".")
        below.setdefault(first, []).extend([rest] if rest else [])
    parts = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    some = [_struct_of(parts[name], rest) if rest else parts[name] for name, rest in below.items()]
    return pyarrow().StructArray.from_arrays(some, list(below))


def columns_end_to_end(trees: Sequence[Any]) -> Any:
    """The columns of several tables of one kind as those of one.

    >>> import numpy as np
    >>> columns_end_to_end([{"x": np.array([1])}, {"x": np.array([2, 3])}])["x"][:]
    array([1, 2, 3])
    """
    first = trees[0]
    if len(trees) == 1:
        return first
    if isinstance(first, dict):
        return {name: columns_end_to_end([tree[name] for tree in trees]) for name in first}
    if isinstance(first, ArrowObjects):
        return ArrowObjects([chunk for tree in trees for chunk in tree.chunks])
    return ragged_end_to_end(trees) if isinstance(first, Ragged) else Joined(trees)


def refuse_another(columns: Any, path: str, first_columns: Any, first_path: str) -> None:
    """Raises ValueError if columns of two files do not make one table."""
    kinds, first_kinds = _kinds(columns), _kinds(first_columns)
    differ = [
        f"{name or 'it'} is {kinds.get(name, 'missing')}, not {first_kinds.get(name, 'there')}"
        for name in dict.fromkeys([*first_kinds, *kinds])
        if kinds.get(name) != first_kinds.get(name)
    ]
    if differ:
        raise ValueError(
            f"{path} has other columns than {first_path}: {', '.join(differ)}. Name those that all "
            f"files have, with columns=[...], or write the files alike."
        )


def _kinds(columns: Any, name: str = "") -> dict[str, str]:
    """For each column, what its rows are, as far as samples show it."""
    if isinstance(columns, dict):
        parts = [_kinds(part, f"{name}.{key}" if name else key) for key, part in columns.items()]
        return {key: kind for part in parts for key, kind in part.items()}
    if isinstance(columns, ArrowObjects):
        return {name: str(columns.chunks[0].array.type).replace("large_", "")}
    inside = ", ".join("..." if size is None else str(size) for size in columns.shape[1:])
    return {name: f"{columns.dtype}[{inside}]" if inside else str(columns.dtype)}
