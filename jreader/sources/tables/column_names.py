"""Check the column names that a user gives; find them in tables, and inside structs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from jreader.sources.tables.arrow_columns import pyarrow

Names: TypeAlias = "Sequence[str] | str | None"
"""Column names; a single str for bare values, None for all."""


def checked_names(call: str, columns: Any) -> tuple[str, ...] | str:
    """Check that `columns` is a column name or a sequence of them; return it.

    >>> checked_names("parquet(paths, columns)", ["x", "y"])
    ('x', 'y')

    Raises:
        TypeError: They are not names.
        ValueError: There are none, or one occurs twice.
    """
    if isinstance(columns, str):
        return columns
    is_some = isinstance(columns, Iterable) and not isinstance(columns, Mapping)
    names = tuple(columns) if is_some else ()
    if not names or not all(isinstance(name, str) for name in names):
        kind = ValueError if columns in ([], ()) else TypeError
        raise kind(
            f"{call} needs names of columns, such as columns=['image', 'label'] (or one str for "
            f"bare values), not {columns!r}: leave it out for all columns."
        )
    most = max(names, key=names.count)
    if names.count(most) > 1:
        raise ValueError(f"{call} was given the column {most!r} twice: name it once.")
    return names


def checked_nulls(call: str, nulls: Any) -> dict[str, Any]:
    """Check that the replacements for nulls are a dict from names to values; return it.

    >>> checked_nulls("parquet(paths, nulls)", {"age": -1})
    {'age': -1}

    Raises:
        TypeError: They are not.
    """
    if not isinstance(nulls, Mapping) or not all(isinstance(name, str) for name in nulls):
        raise TypeError(
            f"{call} needs a dict of columns and what stands for a null in each, such as "
            f"nulls={{'age': -1}}, not {nulls!r}."
        )
    return dict(nulls)


def check_fills(nulls: Mapping[str, Any], names: Sequence[str] | str) -> None:
    """Raise ValueError if there is a replacement for nulls of a column that is not read.

    >>> check_fills({"point.x": 0.0, "ids[]": 0}, ["point", "ids"])
    >>> check_fills({"point": None}, ["point.x"])
    """
    names = [names] if isinstance(names, str) else names
    for name in nulls:
        inside = any(f"{name}.".startswith((f"{each}.", f"{each}[")) for each in names)
        if not inside and not any(each.startswith(f"{name}.") for each in names):
            raise ValueError(
                f"nulls={{{name!r}: ...}} names no column that is read: these are "
                f"{', '.join(map(repr, names))}."
            )


def top_of(name: str, schema: Any, where: str) -> str:
    """Return the column that a name means, perhaps by one of its fields.

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
    """Return whether a struct has a field of that name, at any depth."""
    if not pyarrow().types.is_struct(kind):
        return False
    return any(
        name == field.name
        or (name.startswith(f"{field.name}.") and _has(field.type, name[len(field.name) + 1 :]))
        for field in kind
    )


def selected(table: Any, names: Sequence[str] | None, where: str) -> Any:
    """Select columns, and fields of structs, in the order of their names.

    >>> import pyarrow as pa
    >>> table = pa.table({"a": [1], "b": [{"x": 2, "y": 3}]})
    >>> selected(table, ["b.y", "a"], "a.arrow").to_pylist()
    [{'b': {'y': 3}, 'a': 1}]

    Args:
        table: A `pyarrow.Table`.
        names: The names; a field of a struct follows a dot. None for all columns.
        where: The table's name for errors.

    Raises:
        ValueError: There is no such column.
    """
    if names is None:
        return table
    if {*table.column_names}.issuperset(names):  # searching fields is quadratic in the columns
        return table.select(list(names))
    inside = dict[str, list[str]]()
    for name in names:
        top = top_of(name, table.schema, where)
        inside.setdefault(top, []).append(name[len(top) + 1 :])
    columns = {top: _fields_of(table.column(top), inner) for top, inner in inside.items()}
    return pyarrow().table(columns)


def _fields_of(column: Any, names: Sequence[str]) -> Any:
    """Select fields of structs; return the column unchanged if one of the names is ""."""
    if "" in names:
        return column
    compute, below = pyarrow().compute, dict[str, list[str]]()
    for name in names:
        first, _, rest = name.partition(".")
        below.setdefault(first, []).append(rest)
    fields = [_fields_of(compute.struct_field(column, [name]), below[name]) for name in below]
    return compute.make_struct(*fields, field_names=list(below))


def bare_values(columns: dict[str, Any], name: Any) -> Any:
    """Return the values of the only column if its name was given as a single str.

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
