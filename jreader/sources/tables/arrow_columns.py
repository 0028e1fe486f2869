"""Arrow's arrays as columns: what Parquet, IPC files, CSV and data sets of Hugging Face consist of.

What has rows of one shape becomes an array, that of Arrow's own memory wherever NumPy can read it:
numbers, times, and lists of a fixed size. Lists of these become `Ragged`, structs become dicts, and
everything else (text, bytes, decimals, lists of text, maps) becomes Python's objects, made when a
row is asked for. Dictionaries and runs are decoded, and extension types are read as what they are
stored as.

Arrow's columns may have nulls, for which NumPy has no value. None is made up here: a null is an
error that names its column and row, unless the user says what stands for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jreader.errors import DamagedData
from jreader.readers.joined_columns import Joined, found, share_starts
from jreader.readers.planes import Array
from jreader.readers.ragged import Ragged, ragged_end_to_end
from jreader.readers.trees import leaves

_AT_ONCE = 64  # rows that are made at once where they are wanted one by one


def pyarrow() -> Any:
    """The package pyarrow.

    >>> import pyarrow as pa
    >>> pyarrow() is pa
    True

    Raises:
        ModuleNotFoundError: It is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415  # an extra
        import pyarrow.compute  # noqa: PLC0415  # likewise
    except ModuleNotFoundError as error:
        error.add_note("this needs pyarrow: python -m pip install 'jreader[arrow]'")
        raise
    return pa


@dataclass(frozen=True)
class Nulls:
    """What stands for nulls, and what is said of one for which nothing does.

    Attributes:
        where: What has the rows: a path, as a rule.
        first: The number there of the first row.
        instead: For each column (`"label"`, a field `"point.x"` of a struct, the values `"ids[]"`
            of lists), what stands for a null.
        hint: What the user may type to fill them.
    """

    where: str
    first: int = 0
    instead: Mapping[str, Any] = field(default_factory=dict)
    hint: str = "nulls={{{name!r}: {value}}}"

    def filled(
        self, array: Any, name: str, row_of: Callable[[int], int], *, objects: bool = False
    ) -> Any:
        """The array with its nulls replaced; where rows are `objects`, None may stand for them.

        Raises:
            ValueError: It has nulls, and nothing stands for them.
            TypeError: What stands for them is no value of this type.
        """
        if not array.null_count:
            return array
        pa = pyarrow()
        missing = array.is_null().to_numpy(zero_copy_only=False)
        if name not in self.instead:
            row = self.first + row_of(int(missing.argmax()))
            shown = "0" if pa.types.is_primitive(array.type) else "..."
            raise ValueError(
                f"column {name!r} of {self.where} is null in row {row:,}, as are "
                f"{array.null_count:,} of {len(array):,} values there: say what stands for a null, "
                f"with {self.hint.format(name=name, value=shown)}, or leave the column out."
            )
        value = self.instead[name]
        try:
            one = pa.array([value], array.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise _unfit(name, value, array.type) from error
        if value is None and not objects:
            raise _unfit(name, value, array.type)
        # `fill_null` knows no lists
        rows = np.where(missing, len(array), np.arange(len(array)))
        return pa.concat_arrays([array, one]).take(pa.array(rows))


def _unfit(name: str, value: Any, kind: Any) -> TypeError:
    return TypeError(
        f"nulls={{{name!r}: {value!r}}} is not a value of the column, whose values are {kind}: "
        "give one of that type (None only for text and other objects)."
    )


def columns_of(table: Any, nulls: Nulls) -> dict[str, Any]:
    """The columns of a table, or of a record batch, by name.

    >>> import pyarrow as pa
    >>> columns_of(pa.table({"x": [1, 2], "ids": [[5], []]}), Nulls("x"))
    {'x': array([1, 2]), 'ids': int64[2, ...]}

    Args:
        table: A `pyarrow.Table` or `pyarrow.RecordBatch`.
        nulls: What stands for nulls.

    Raises:
        ValueError: There is a null that nothing stands for, or two columns have one name.
    """
    names = table.column_names
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(
            f"{nulls.where} has several columns of the name {twice[0]!r}: samples are dicts, so "
            f"write it with one name for each column."
        )
    columns = {name: column_of(table.column(name), name, nulls) for name in names}
    share_starts(leaves(columns))
    return columns


def column_of(column: Any, name: str, nulls: Nulls) -> Any:
    """A column of Arrow as one of jreader: an array, a `Ragged`, `Objects`, or a dict of these.

    Args:
        column: A `pyarrow.Array` or `pyarrow.ChunkedArray`.
        name: What the user calls it.
        nulls: What stands for nulls.

    Raises:
        ValueError: There is a null that nothing stands for.
    """
    chunks = [chunk for chunk in getattr(column, "chunks", [column]) if len(chunk)]
    return _end_to_end(chunks or [pyarrow().nulls(0, column.type)], name, nulls)


class Objects:
    """A column whose rows are Python's objects: text, bytes, and what else has no dtype.

    They are made of Arrow's values when they are asked for.

    Args:
        chunks: Arrow's arrays, end to end.
    """

    stacks = False
    """Whether its rows can be stacked: batches of it are lists of samples."""

    def __init__(self, chunks: Sequence[Any]) -> None:
        self.chunks = list(chunks)
        self.starts = np.cumsum([0, *map(len, self.chunks)])[:-1]

    def __len__(self) -> int:
        return int(self.starts[-1]) + len(self.chunks[-1])

    def __repr__(self) -> str:
        return f"{self.chunks[0].type}[{len(self)}]"

    def gather(self, rows: Array) -> list[Any]:
        """These rows as a list."""
        if len(self.chunks) == 1:
            objects: list[Any] = self.chunks[0].take(pyarrow().array(rows)).to_pylist()
            return objects
        which, local = found(self.starts, rows)
        pairs = zip(which.tolist(), local.tolist(), strict=True)
        return [self.chunks[chunk][row].as_py() for chunk, row in pairs]

    def each(self, rows: Array) -> Iterator[Any]:
        """These rows one by one."""
        for low in range(0, len(rows), _AT_ONCE):
            yield from self.gather(rows[low : low + _AT_ONCE])


def _end_to_end(chunks: list[Any], name: str, nulls: Nulls) -> Any:
    """The column of several arrays of one type."""
    begins = np.cumsum([0, *map(len, chunks)]).tolist()

    def each_chunk(made: Callable[[Any, Callable[[int], int]], Any]) -> list[Any]:
        return [made(chunk, first.__add__) for chunk, first in zip(chunks, begins, strict=False)]

    if shape := _shape_of(chunks[0].type):
        chunks = each_chunk(lambda chunk, row_of: nulls.filled(chunk.storage, name, row_of))
        chunks = [_shaped(chunk, shape, name, nulls) for chunk in chunks]
    chunks = [_plain(chunk) for chunk in chunks]
    kind, types = chunks[0].type, pyarrow().types
    if types.is_struct(kind):
        fields = zip(*(chunk.flatten() for chunk in chunks), strict=True)
        names = [kind.field(number).name for number in range(kind.num_fields)]
        if not names or len({*names}) < len(names):
            raise ValueError(
                f"column {name!r} of {nulls.where} is a struct with the fields {names}: it needs "
                f"some, of different names. Leave the column out."
            )
        parts = zip(names, fields, strict=True)
        return {each: _end_to_end(list(part), f"{name}.{each}", nulls) for each, part in parts}
    if _is_dense(kind):
        arrays = each_chunk(lambda chunk, row_of: _dense(chunk, name, nulls, row_of))
        return arrays[0] if len(arrays) == 1 else Joined(arrays)
    if _is_list(kind) and _is_dense(_stored_type(kind.value_type)):
        lists = each_chunk(lambda chunk, row_of: _ragged(chunk, name, nulls, row_of))
        return lists[0] if len(lists) == 1 else ragged_end_to_end(lists)
    return Objects(each_chunk(lambda chunk, row_of: _objects(chunk, name, nulls, row_of)))


def _plain(array: Any) -> Any:
    """The array without a dictionary, runs, or an extension type; lists as offsets and values."""
    pa = pyarrow()
    while True:
        kind = array.type
        if isinstance(kind, pa.BaseExtensionType):
            array = array.storage
        elif pa.types.is_dictionary(kind):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(kind):
            array = pa.compute.run_end_decode(array)
        elif pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
            array = _lists_of_views(array)
        else:
            return array


def _lists_of_views(array: Any) -> Any:
    """Lists that lie anywhere, as lists one behind another; a cast of those with nulls is wrong."""
    pa = pyarrow()
    sizes = pa.compute.fill_null(pa.compute.list_value_length(array), 0).to_numpy()
    offsets = pa.array(np.cumsum([0, *sizes]), pa.int64())
    kind = pa.large_list(array.type.value_field)
    missing = array.is_null() if array.null_count else None
    return pa.LargeListArray.from_arrays(offsets, array.flatten(), type=kind, mask=missing)


def _shape_of(kind: Any) -> tuple[int, ...]:
    """The shape of the rows of an extension type of tensors; () for other types."""
    shape = getattr(kind, "shape", ())
    if not isinstance(shape, (list, tuple)) or not all(isinstance(size, int) for size in shape):
        return ()
    turned = getattr(kind, "permutation", None) not in (None, [*range(len(shape))])
    return () if turned or 0 in shape else tuple(shape)


def _shaped(array: Any, shape: tuple[int, ...], name: str, nulls: Nulls) -> Any:
    """Lists of lists, or flat ones, as lists of a fixed size inside one another."""
    pa, values = pyarrow(), array
    while _is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        values = values.flatten()
    if len(values) != len(array) * int(np.prod(shape)):
        raise DamagedData(
            f"column {name!r} of {nulls.where} says that its rows have the shape {shape}, and has "
            f"{len(values):,} values in {len(array):,} rows."
        )
    for size in reversed(shape):
        values = pa.FixedSizeListArray.from_arrays(values, size)
    return values


def _stored_type(kind: Any) -> Any:
    """The type of what `_plain` makes of an array of this type."""
    return _plain(pyarrow().nulls(0, kind)).type


def _is_list(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind))


def _is_dense(kind: Any) -> bool:
    """Whether NumPy has a dtype for the values."""
    types = pyarrow().types
    if types.is_fixed_size_list(kind):
        return kind.list_size > 0 and _is_dense(_stored_type(kind.value_type))
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or (types.is_temporal(kind) and not types.is_interval(kind))
    )


def _dense(array: Any, name: str, nulls: Nulls, row_of: Callable[[int], int]) -> Array:
    """An array of NumPy, over Arrow's memory if it has no nulls and is none of bits."""
    array = nulls.filled(_plain(array), name, row_of)
    kind, types = array.type, pyarrow().types
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        inner = _dense(array.flatten(), f"{name}[]", nulls, lambda value: row_of(value // size))
        return inner.reshape(len(array), size, *inner.shape[1:])
    if not types.is_temporal(kind):
        dense: Array = array.to_numpy(zero_copy_only=not types.is_boolean(kind))
        return dense
    if types.is_date32(kind):
        days: Array = array.view(pyarrow().int32()).to_numpy().astype("M8[D]")
        return days
    if types.is_time32(kind):
        short: Array = array.view(pyarrow().int32()).to_numpy().astype(f"m8[{kind.unit}]")
        return short
    unit = "ms" if types.is_date64(kind) else kind.unit
    code = "M8" if types.is_timestamp(kind) or types.is_date64(kind) else "m8"
    times: Array = array.view(pyarrow().int64()).to_numpy().view(f"{code}[{unit}]")
    return times


def _ragged(array: Any, name: str, nulls: Nulls, row_of: Callable[[int], int]) -> Ragged:
    array = nulls.filled(array, name, row_of)
    offsets = array.offsets.to_numpy()
    first = int(offsets[0])
    offsets = offsets if not first else offsets - first
    values = array.values.slice(first, int(offsets[-1]))

    def row_of_value(value: int) -> int:
        return row_of(int(np.searchsorted(offsets, value, "right")) - 1)

    return Ragged(_dense(values, f"{name}[]", nulls, row_of_value), offsets)


def _objects(array: Any, name: str, nulls: Nulls, row_of: Callable[[int], int]) -> Any:
    """The array, of which no row is null, or has a null in it."""
    array = nulls.filled(array, name, row_of, objects=True)
    if f"{name}[]" in nulls.instead:  # whatever is inside stays as it is, None for a null
        return array
    _check_inside(array, f"{name}[]", nulls, row_of)
    return array


def _check_inside(array: Any, name: str, nulls: Nulls, row_of: Callable[[int], int]) -> None:
    array, types = _plain(array), pyarrow().types
    if _is_list(array.type) or types.is_map(array.type):
        offsets = array.offsets.to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])

        def row_of_value(value: int) -> int:
            return row_of(int(np.searchsorted(offsets, value + first, "right")) - 1)

        inside = array.items if types.is_map(array.type) else array.values
        part = inside.slice(first, last - first)
        _check_value(part, name, nulls, row_of_value)
    elif types.is_fixed_size_list(array.type):
        size = array.type.list_size
        _check_value(array.flatten(), name, nulls, lambda value: row_of(value // max(size, 1)))
    elif types.is_struct(array.type):
        for part in array.flatten():
            _check_value(part, name, nulls, row_of)


def _check_value(array: Any, name: str, nulls: Nulls, row_of: Callable[[int], int]) -> None:
    array = nulls.filled(_plain(array), name, row_of)
    _check_inside(array, name, nulls, row_of)
