"""Samples that are the rows of columns, in memory or mapped into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from jreader.readers import Node, Pass, Plane, Position, described, leaves, map_tree
from jreader.readers.planes import Indices
from jreader.sources.changed_files import check_map

T = TypeVar("T")


class Table(Node[T]):
    """A reader of the rows of its `columns`: what has columns needs to define nothing else.

    Attributes:
        columns: A tree of arrays of equal length along their first axis. Each sample is the same
            tree of one row each, a view where rows are arrays.
    """

    columns: Any

    def start(self, at: Position) -> Pass[T]:
        """The position is the number of rows that are done."""
        return self.plane().samples(at)

    def plane(self) -> Plane:
        """Sample i is row i."""
        self.check_files()
        columns = leaves(self.columns)
        for column in columns:
            check_map(column)
        return Plane(self.columns, len(columns[0]), _straight(len(columns)), straight=True)

    def check_files(self) -> None:
        """Refuses data that are not what they were, where that can be seen at once."""

    @property
    def unread(self) -> bool:  # type: ignore[override]  # a flag elsewhere
        """Whether the columns are still in their files."""
        return "columns" not in vars(self)

    def length(self) -> int | None:
        """The number of rows."""
        return len(leaves(self.columns)[0])


def _straight(columns: int) -> Callable[[Indices], list[Indices]]:
    return lambda indices: [indices] * columns


@dataclass(frozen=True, eq=False, repr=False, init=False)
class arrays(Table[Any]):
    """The rows of arrays side by side: tuples of columns given by place, dicts of those by name.

    One column alone gives bare rows, and one tree of columns (a dict, tuple, named tuple or
    dataclass) samples of that tree. Nothing is copied: rows are views of what was given.

    >>> list(arrays([[1, 2], [3, 4]], ["a", "b"])())
    [(array([1, 2]), np.str_('a')), (array([3, 4]), np.str_('b'))]
    >>> reader = arrays(image=np.zeros((3, 28, 28), np.uint8), label=[5, 0, 4])
    >>> reader, [int(sample["label"]) for sample in reader()]
    (arrays(image=uint8[3, 28, 28], label=int64[3]), [5, 0, 4])

    Args:
        *columns: What `np.asarray` takes (lists, memory maps, jax arrays), or trees of it.
        **named: The same, by the names of the fields.

    Raises:
        TypeError: There are no columns, or some by place and some by name.
        ValueError: Columns differ in length, or one has no rows to give (a number, say).
    """

    columns: Any

    def __init__(self, /, *columns: Any, **named: Any) -> None:
        """Refuses what has no rows, or not the same number of them."""
        if bool(columns) == bool(named):
            seen = "both" if columns else "neither"
            raise TypeError(
                f"arrays(...) takes columns by place or by name, not {seen}: arrays(image, label) "
                f"gives tuples, arrays(image=image, label=label) gives dicts."
            )
        for column in (*columns, *named.values()):
            if isinstance(column, Node):
                raise TypeError(
                    f"arrays(...) takes columns, and {described(column)} is a reader already: use "
                    f"it as it is, or give stack(list(reader())) for arrays of its samples."
                )
        given = named or (columns[0] if len(columns) == 1 else columns)
        tree = _as_columns(given)
        if wrong := mismatch(tree):
            raise ValueError(f"arrays(...) {wrong}")
        object.__setattr__(self, "columns", tree)

    def __repr__(self) -> str:
        """The columns as shapes."""
        tree = map_tree(_Shape, self.columns)
        if isinstance(tree, dict) and all(str(name).isidentifier() for name in tree):
            return f"arrays({', '.join(f'{name}={shape!r}' for name, shape in tree.items())})"
        if type(tree) is tuple and len(tree) > 1:
            return f"arrays{tree!r}"
        return f"arrays({tree!r})"


class _Shape:
    """Stands for an array when a tree of them is shown."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.text = described(array)

    def __repr__(self) -> str:
        return self.text


def _as_columns(tree: Any) -> Any:
    """The tree with arrays for leaves; a list is a leaf, as everywhere in NumPy."""
    if isinstance(tree, Mapping):
        return {name: _as_columns(part) for name, part in tree.items()}
    if isinstance(tree, tuple):
        parts = map(_as_columns, tree)
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    if is_dataclass(tree) and not isinstance(tree, type):
        named = {field.name: _as_columns(getattr(tree, field.name)) for field in fields(tree)}
        return type(tree)(**named)
    return np.asarray(tree)


def mismatch(columns: Any) -> str | None:
    """Why these arrays cannot stand side by side; None if they can.

    >>> mismatch((np.zeros(3), np.zeros((3, 2)))) is None
    True
    >>> mismatch((np.zeros(3), np.zeros(4)))
    'needs columns of one length, not float64[3] and float64[4]: cut the longer ones to 3 rows.'
    """
    arrays = leaves(columns)
    if not arrays:
        return f"needs at least one column, not the empty {columns!r}: give an array or a list."
    for array in arrays:
        if not array.ndim:
            return (
                f"needs columns with an axis of rows, not {described(array.item())}: give an array "
                f"or a list; a tuple is read as several columns."
            )
    if len({len(array) for array in arrays}) > 1:
        return (
            f"needs columns of one length, not {' and '.join(map(described, arrays))}: cut the "
            f"longer ones to {min(map(len, arrays))} rows."
        )
    return None
