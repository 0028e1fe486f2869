"""Read the rows of arrays that are in memory, or mapped into it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np

from jreader.readers import (
    Columns,
    Node,
    Pass,
    Plane,
    Position,
    branches,
    described,
    leaves,
    map_tree,
    op,
    set_fields,
)
from jreader.readers.columns import Array, Column, Dense, Indices, set_block_starts
from jreader.readers.protected import read_only, read_only_columns
from jreader.readers.ragged import Ragged
from jreader.readers.trees import joined
from jreader.sources.file_checks import FileNode, check_map

T = TypeVar("T")

_LOOKED_AT = 1 << 20  # offsets to compare at a time


class Table(Node[T]):
    """Read the rows of its `columns`; a subclass defines only these.

    Attributes:
        columns: A tree of arrays with the same number of rows (the length of their first axis).
            Sample i is the same tree with row i of each array; a row that is an array is a
            read-only view.
    """

    columns: Any

    def start(self, at: Position) -> Pass[T]:
        """Start a pass; its position is the number of rows yielded."""
        return self.plane().samples(at)

    def plane(self) -> Plane:
        """Return the index plane, where sample i is row i."""
        self.check_files()
        tree = read_only_columns(self.columns)
        columns = leaves(tree)
        for column in columns:
            check_map(column)
        blocks: Array | None = None
        for column in reversed(columns):
            if isinstance(column, Column) and column.block_starts is not None:
                blocks = column.block_starts
        route = identity_route(len(columns))
        return Plane(tree, len(columns[0]), route, straight=True, blocks=blocks)

    def check_files(self) -> None:
        """Raise DamagedData if the columns come from files that have changed."""

    @property
    def lazy_length(self) -> bool:
        """True if the columns have not been read from their files yet."""
        return "columns" not in vars(self)

    def length(self) -> int | None:
        """Return the number of rows."""
        return len(leaves(self.columns)[0])


class FileTable(FileNode[T], Table[T]):
    """Read the rows of columns in files; a format defines only `opened`.

    Attributes:
        block: The bytes per block for an order by blocks; a format whose columns can be cut
            (`Column.cuts`) declares it as a field. None for no blocks.
    """

    block: int | None = None

    def opened(self) -> Any:
        """Open the files and return the columns.

        `columns` calls it once, and checks the files before and after.

        Raises:
            DamagedData: A file has another format, or is incomplete.
        """
        raise NotImplementedError(f"{type(self).__name__} must define opened(self)")

    def __init_subclass__(cls) -> None:
        """Give each format its own cached property: in Python 3.11 a shared one shares a lock."""
        super().__init_subclass__()
        if "columns" not in vars(cls):
            cls.columns = kept = cached_property(_opened_between_looks)
            kept.__set_name__(cls, "columns")


def _opened_between_looks(table: FileTable[Any]) -> Any:
    """Open the files at the first use; return the columns."""
    table.check_files()
    columns = table.opened()
    table.check_files()  # in case files changed meanwhile
    if table.block is not None:
        columns = map_tree(
            lambda leaf: Dense(read_only(leaf)) if isinstance(leaf, np.ndarray) else leaf, columns
        )
        set_block_starts(leaves(columns), table.block)
    return columns


@lru_cache(64)
def identity_route(columns: int) -> Callable[[Indices], list[Indices]]:
    """Return the route for columns in which sample i is row i."""
    return lambda indices: [indices] * columns


@op
class arrays(Table[Any]):
    """Read the rows of arrays, side by side.

    Samples are tuples if you pass positional arguments, and dicts if you pass keyword arguments. A
    single array gives bare rows; a single dict, tuple, named tuple or dataclass of arrays gives
    samples of the same form. Nothing is copied: rows are read-only views of the arrays. Copy a row
    before you write to it.

    >>> list(arrays([[1, 2], [3, 4]], ["a", "b"])())
    [(array([1, 2]), np.str_('a')), (array([3, 4]), np.str_('b'))]
    >>> reader = arrays(image=np.zeros((3, 28, 28), np.uint8), label=[5, 0, 4])
    >>> reader, [int(sample["label"]) for sample in reader()]
    (arrays(image=uint8[3, 28, 28], label=int64[3]), [5, 0, 4])

    Args:
        *columns: Arrays, or anything that `np.asarray` takes (lists, memory maps, jax arrays), or
            trees of these, or `ragged(...)`. All need the same number of rows. A table of pandas,
            polars or Arrow is a dict of its columns.
        **named: The same, as keyword arguments: the names are the keys of the samples.

    Raises:
        TypeError: There are no columns, or both positional and keyword ones, or one is a reader.
        ValueError: The columns differ in length, or one has no rows (such as a number); or a column
            of a table has nulls, or a name that is not unique.
    """

    columns: Any

    def __init__(self, /, *columns: Any, **named: Any) -> None:
        if bool(columns) == bool(named):
            seen = "both" if columns else "neither"
            raise TypeError(
                f"arrays(...) takes positional or named columns, not {seen}: arrays(image, label) "
                f"gives tuples, arrays(image=image, label=label) gives dicts."
            )
        for column in (*columns, *named.values()):
            if isinstance(column, Node) and not isinstance(column, ragged):
                raise TypeError(
                    f"arrays(...) takes columns, and {described(column)} is a reader already: use "
                    f"it as it is, or give stack(list(reader())) for arrays of its samples."
                )
        given = named or (columns[0] if len(columns) == 1 else columns)
        tree = _as_columns(given)
        if wrong := mismatch(tree):
            raise ValueError(f"arrays(...) {wrong}")
        set_fields(self, columns=tree)

    def __repr__(self) -> str:
        """Return the dtypes and shapes of the columns."""
        tree = map_tree(_Shape, self.columns)
        if isinstance(tree, dict) and all(str(name).isidentifier() for name in tree):
            return f"arrays({', '.join(f'{name}={shape!r}' for name, shape in tree.items())})"
        if type(tree) is tuple and len(tree) > 1:
            return f"arrays{tree!r}"
        return f"arrays({tree!r})"


class _Shape:
    """Shows the dtype and shape of an array in the repr of a tree."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.text = described(array)

    def __repr__(self) -> str:
        return self.text


@op
class ragged(Table[Array]):
    """Read rows of different lengths: row i is `values[offsets[i]:offsets[i + 1]]`.

    Nothing is copied: rows are read-only views of `values`, which may be mapped from a file.

    >>> documents = ragged([7, 8, 9, 4, 5], [0, 3, 3, 5])
    >>> documents, list(documents())
    (ragged(int64[3, ...]), [array([7, 8, 9]), array([], dtype=int64), array([4, 5])])

    To read it beside other columns, pass it to `arrays`:

    >>> rows = arrays(text=documents, label=[1, 0, 1])
    >>> [(sample["text"].tolist(), int(sample["label"])) for sample in rows()]
    [([7, 8, 9], 1), ([], 0), ([4, 5], 1)]

    `batch` gives a list of such samples, which cannot be stacked; `pack`, `windows`,
    `padded_batch` and `bucket` make arrays of them.

    Args:
        values: The values of all rows, concatenated along the first axis.
        offsets: Where each row begins in `values`, and where the last one ends: non-decreasing
            whole numbers, one more than there are rows.

    Raises:
        TypeError: The offsets are not whole numbers, or the values are several arrays.
        ValueError: The offsets decrease, are negative, exceed the values, or are empty.
    """

    columns: Any

    def __init__(self, values: Any, offsets: Any) -> None:
        try:
            every, at = np.asanyarray(values), np.asanyarray(offsets)
        except ValueError:  # a list of rows that differ in length
            every, at = np.asanyarray(None), np.zeros(1, int)
        if wrong := _unfit_offsets(every, at):
            raise wrong
        set_fields(self, columns=Ragged(every, at))

    def __repr__(self) -> str:
        """Return the dtype and the number of rows."""
        return f"ragged({self.columns!r})"


def _unfit_offsets(values: Array, offsets: Array) -> Exception | None:
    """Return the error for values and offsets that do not make rows; None if they do."""
    call = "ragged(values, offsets)"
    if not values.ndim or values.dtype.hasobject:
        return TypeError(
            f"{call} needs the values of all rows end to end in one array: for a list of rows, "
            "give np.concatenate(rows), and as offsets np.cumsum([0, *map(len, rows)])."
        )
    if offsets.ndim != 1 or not len(offsets) or offsets.dtype.kind not in "iu":
        return TypeError(
            f"{call} needs offsets with one axis of whole numbers, one more than there are rows, "
            f"not {described(offsets)}: for lengths, give np.cumsum([0, *lengths])."
        )
    if len(low := offsets[:1][offsets[:1] < 0]):
        return ValueError(f"{call} needs offsets of at least 0, not {low[0]} for row 0.")
    for first in range(0, len(offsets) - 1, _LOOKED_AT):  # in chunks: they may lie in a file
        some = offsets[first : first + _LOOKED_AT + 1]
        if (bad := some[1:] < some[:-1]).any():
            row = int(bad.argmax())
            return ValueError(
                f"{call} needs offsets that do not decrease, and row {first + row} begins at "
                f"{some[row]} and ends at {some[row + 1]}: for lengths, give np.cumsum([0, "
                "*lengths])."
            )
    if offsets[-1] > len(values):
        return ValueError(
            f"{call} has offsets up to {offsets[-1]}, and only {len(values)} values: give all "
            f"values, or the offsets of the rows that they have."
        )
    return None


def _as_columns(tree: Any) -> Any:
    """Convert each leaf to an array; a list is one leaf, as in NumPy."""
    if isinstance(tree, ragged):
        return tree.columns
    if names := table_names(tree):
        return {name: _as_columns(tree[name]) for name in names}
    parts = None if isinstance(tree, list) else branches(tree)
    if parts is not None:
        return joined(tree, {key: _as_columns(part) for key, part in parts.items()})
    return tree if isinstance(tree, Ragged) else _as_array(tree)


def _as_array(tree: Any) -> Any:
    nulls = getattr(tree, "null_count", 0)
    if nulls := nulls() if callable(nulls) else nulls:
        raise ValueError(
            f"a column of arrays(table) has {nulls} nulls, which no array holds: fill them "
            f"(fill_null in Arrow and polars), or drop their rows, before."
        )
    try:
        return read_only(np.asarray(tree))
    except ValueError as error:
        raise ValueError(
            f"arrays(...) needs rows of one shape ({error}): type ragged(values, offsets), or "
            "source(rows) for samples of any kind."
        ) from None


def table_names(value: Any) -> list[str]:
    """Return the column names of a table of pandas, polars or Arrow; [] for anything else.

    A data frame whose columns are numbered, not named, is a matrix.

    Raises:
        ValueError: Two columns have one name.
    """
    names: Any = getattr(value, "column_names", getattr(value, "columns", None))
    if callable(names) or not hasattr(names, "__iter__") or isinstance(value, (Mapping, Columns)):
        return []
    named = list(names)
    if not all(isinstance(name, str) for name in named) or not hasattr(value, "__getitem__"):
        return []
    if twice := [name for name, times in Counter(named).items() if times > 1]:
        raise ValueError(
            f"{type(value).__name__} has several columns of the name {twice[0]!r}: rename them, or "
            f"leave some out."
        )
    return named


def mismatch(columns: Any) -> str | None:
    """Return why arrays cannot be read side by side; None if they can.

    >>> mismatch((np.zeros(3), np.zeros((3, 2)))) is None
    True
    >>> mismatch((np.zeros(3), np.zeros(4)))
    'needs columns of one length, not float64[3] and float64[4]: cut the longer ones to 3 rows.'
    """
    arrays = leaves(columns)
    if not arrays:
        return f"needs at least one column, not the empty {columns!r}: give an array or a list."
    for array in arrays:
        if not getattr(array, "ndim", 1):
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
