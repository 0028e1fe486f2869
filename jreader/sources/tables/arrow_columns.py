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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain
from operator import is_
from typing import Any

import numpy as np

from jreader.errors import DamagedData
from jreader.extras import extra
from jreader.readers.joined_columns import Joined, found, share_starts
from jreader.readers.planes import Array
from jreader.readers.ragged import Ragged, ragged_end_to_end
from jreader.readers.trees import leaves
from jreader.sources.file_checks import damaged

_DECODED = ("dictionary", "run_end", "list_view", "extension")  # types that `_unwrapped` decodes
_AT_ONCE = 64  # rows that are made at once where they are wanted one by one


def pyarrow(part: str = "compute") -> Any:
    """The package pyarrow, of which a part was imported, too.

    >>> import pyarrow as pa
    >>> pyarrow("csv") is pa
    True

    Raises:
        ModuleNotFoundError: It is not installed.
    """
    pa = extra("pyarrow", "arrow", "this needs pyarrow")
    import_module(f"pyarrow.{part}")
    return pa


@dataclass(frozen=True)
class Nulls:
    """What stands for nulls, and what is said of one for which nothing does.

    Attributes:
        where: What has the rows: a path, as a rule.
        first: The number there of the first row.
        instead: For each column (`"label"`, a field `"point.x"` of a struct, the values `"ids[]"`
            of lists, the field `"messages[].name"` of structs in lists), what stands for a null;
            None for text and other objects, where it also stands for nulls inside of them.
        hint: What the user may type to fill them.
        as_stored: Whether the arrays lie in memory as a file has them: their offsets may lie
            anywhere then, and to follow one crashes a program.
    """

    where: str
    first: int = 0
    instead: Mapping[str, Any] = field(default_factory=dict)
    hint: str = "nulls={{{name!r}: {value}}}"
    as_stored: bool = False

    def checked(self, array: Any, name: str, *, full: bool = True) -> Any:
        """The array, once all that it refers to is known to lie in it, if that is in doubt.

        Args:
            array: An array of Arrow.
            name: The column.
            full: Whether to look at all values; else, at the sizes of its parts.

        Raises:
            DamagedData: Something in it is wrong.
        """
        if self.as_stored:
            try:
                array.validate(full=full)
            except pyarrow().ArrowException as error:
                raise _unreadable(self.where, name, error) from error
        return array

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
        self.checked(array, name)
        pa = pyarrow()
        missing = array.is_null().to_numpy(zero_copy_only=False)
        if name not in self.instead and not (objects and self._is_inside_none(name)):
            row = self.first + row_of(int(missing.argmax()))
            shown = "None" if objects else "0" if pa.types.is_primitive(array.type) else "..."
            raise ValueError(
                f"column {name!r} of {self.where} is null in row {row:,}, as are "
                f"{array.null_count:,} of {len(array):,} values there: say what stands for a null, "
                f"with {self.hint.format(name=name, value=shown)}, or leave the column out."
            )
        value = self.instead.get(name)
        try:
            one = pa.array([value], array.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise _unfit_fill(name, value, array.type) from error
        if value is None and not objects:
            raise _unfit_fill(name, value, array.type)
        # `fill_null` knows no lists
        rows = np.where(missing, len(array), np.arange(len(array)))
        return pa.concat_arrays([array, one]).take(pa.array(rows))

    def _is_inside_none(self, name: str) -> bool:
        """Whether None stands for nulls of what this is a part of, and so for its own."""
        while name:
            name = name[:-2] if name.endswith("[]") else name.rpartition(".")[0]
            if self.instead.get(name, 0) is None:
                return True
        return False


def _unreadable(where: str, name: str, error: Exception) -> DamagedData:
    return damaged(where, "a table whose values can be read", f"column {name!r}: {error}")


def _unfit_fill(name: str, value: Any, kind: Any) -> TypeError:
    return TypeError(
        f"nulls={{{name!r}: {value!r}}} is not a value of the column, whose values are {kind}: "
        "give one of that type (None only for text and other objects)."
    )


def checked_schema(schema: Any) -> Any:
    """The schema, or the type of a struct, if all names in it are texts.

    Raises:
        UnicodeDecodeError: One is not in UTF-8.
    """
    for kind in [each.type for each in schema if each.name is not None]:  # the name raises
        checked_schema([kind.field(number) for number in range(kind.num_fields)])
    return schema


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
    """A column of Arrow as one of jreader: an array, `Ragged`, `ArrowObjects`, or a dict of these.

    Args:
        column: A `pyarrow.Array` or `pyarrow.ChunkedArray`.
        name: What the user calls it.
        nulls: What stands for nulls.

    Raises:
        ValueError: There is a null that nothing stands for.
    """
    chunks = [chunk for chunk in getattr(column, "chunks", [column]) if len(chunk)]
    return _joined_chunks(chunks or [pyarrow().nulls(0, column.type)], name, nulls)


class ArrowObjects:
    """A column whose rows are Python's objects: text, bytes, and what else has no dtype.

    They are made of Arrow's values when they are asked for.

    Args:
        chunks: The values, end to end.
    """

    stacks = False
    """Whether its rows can be stacked: batches of it are lists of samples."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.chunks = list(chunks)
        self.starts = np.cumsum([0, *map(len, self.chunks)])[:-1]

    def __len__(self) -> int:
        return int(self.starts[-1]) + len(self.chunks[-1])

    def __repr__(self) -> str:
        return f"{self.chunks[0].array.type}[{len(self)}]"

    def gather(self, rows: Array) -> list[Any]:
        """These rows as a list.

        Raises:
            DamagedData: A text is not in UTF-8, or a value lies outside of the file.
        """
        if len(self.chunks) == 1:
            return self.chunks[0].take(rows)
        which, local = found(self.starts, rows)
        pairs = zip(which.tolist(), local.tolist(), strict=True)
        return [self.chunks[chunk].one(row) for chunk, row in pairs]

    def each(self, rows: Array) -> Iterator[Any]:
        """These rows one by one; an error comes after the good ones."""
        for low in range(0, len(rows), _AT_ONCE):
            some = rows[low : low + _AT_ONCE]
            try:
                values: Iterable[Any] = self.gather(some)
            except DamagedData:
                values = chain.from_iterable(
                    self.gather(some[at : at + 1]) for at in range(len(some))
                )
            yield from values


class Chunk:
    """Arrow's values of some rows, which become Python's; they are checked at the first use.

    Args:
        array: Of Arrow.
        name: The column.
        nulls: What has the rows.
    """

    def __init__(self, array: Any, name: str, nulls: Nulls) -> None:
        self.array, self._name, self._nulls = array, name, nulls
        self._in_doubt = nulls.as_stored

    def __len__(self) -> int:
        return len(self.array)

    def take(self, rows: Array) -> list[Any]:
        """The values of these rows."""
        if self._in_doubt:
            self._check()
        try:
            values: list[Any] = self.array.take(pyarrow().array(rows)).to_pylist()
        except UnicodeDecodeError as error:
            raise _unreadable(self._nulls.where, self._name, error) from error
        return values

    def one(self, row: int) -> Any:
        """The value of a row."""
        if self._in_doubt:
            self._check()
        try:
            return self.array[row].as_py()
        except UnicodeDecodeError as error:
            raise _unreadable(self._nulls.where, self._name, error) from error

    def _check(self) -> None:
        self._nulls.checked(self.array, self._name)
        self._in_doubt = False


def _joined_chunks(chunks: list[Any], name: str, nulls: Nulls) -> Any:
    """The column of several arrays of one type."""
    begins = np.cumsum([0, *map(len, chunks)]).tolist()
    if nulls.as_stored:
        full = not _is_looked_at_late(chunks[0].type)
        for chunk in chunks:
            nulls.checked(chunk, name, full=full)

    def each_chunk(made: Callable[[Any, Callable[[int], int]], Any]) -> list[Any]:
        return [made(chunk, first.__add__) for chunk, first in zip(chunks, begins, strict=False)]

    if shape := _shape_of(chunks[0].type):
        chunks = each_chunk(lambda chunk, row_of: nulls.filled(chunk.storage, name, row_of))
        chunks = [_shaped(chunk, shape, name, nulls) for chunk in chunks]
    chunks = [_unwrapped(chunk) for chunk in chunks]
    kind, types = chunks[0].type, pyarrow().types
    if types.is_struct(kind):
        return _struct_columns(chunks, name, nulls)
    if _is_dense(kind):
        arrays = each_chunk(lambda chunk, row_of: _dense(chunk, name, nulls, row_of))
        return arrays[0] if len(arrays) == 1 else Joined(arrays)
    if _is_ragged(kind):
        lists = each_chunk(lambda chunk, row_of: _ragged(chunk, name, nulls, row_of))
        return lists[0] if len(lists) == 1 else ragged_end_to_end(lists)
    objects = each_chunk(lambda chunk, row_of: _object_array(chunk, name, nulls, row_of))
    return ArrowObjects([Chunk(each, name, nulls) for each in objects])


def _struct_columns(chunks: list[Any], name: str, nulls: Nulls) -> dict[str, Any]:
    """The columns of the fields of structs."""
    names = [field.name for field in chunks[0].type]
    if not names or len({*names}) < len(names):
        raise ValueError(
            f"column {name!r} of {nulls.where} is a struct with the fields {names}: it needs "
            f"some, of different names. Leave the column out."
        )
    fields = zip(*(chunk.flatten() for chunk in chunks), strict=True)
    return {
        each: _joined_chunks(list(parts), f"{name}.{each}", nulls)
        for each, parts in zip(names, fields, strict=True)
    }


def _is_looked_at_late(kind: Any) -> bool:
    """Whether nothing follows an offset of such arrays before their rows are asked for.

    Texts may be as long as the file; fields of structs are columns of their own.
    """
    if pyarrow().types.is_struct(kind):
        return True
    dense = _is_dense(kind) or _is_ragged(kind)
    return not dense and not any(word in str(kind) for word in _DECODED)


def _unwrapped(array: Any) -> Any:
    """The array without a dictionary, runs, or an extension type; lists as offsets and values."""
    pa = pyarrow()
    while True:
        kind = array.type
        if isinstance(kind, pa.BaseExtensionType) and not hasattr(kind, "read_as_it_is"):
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
    """The type of what `_unwrapped` makes of an array of this type."""
    return _unwrapped(pyarrow().nulls(0, kind)).type


def _is_list(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind))


def _is_ragged(kind: Any) -> bool:
    return _is_list(kind) and _is_dense(_stored_type(kind.value_type))


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
    array = nulls.filled(_unwrapped(array), name, row_of)
    kind, types = array.type, pyarrow().types
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        inner = _dense(array.flatten(), f"{name}[]", nulls, lambda value: row_of(value // size))
        return inner.reshape(len(array), size, *inner.shape[1:])
    if not types.is_temporal(kind):
        dense: Array = array.to_numpy(zero_copy_only=not types.is_boolean(kind))
        return dense
    unit = "D" if types.is_date32(kind) else "ms" if types.is_date64(kind) else kind.unit
    code = "M8" if types.is_timestamp(kind) or types.is_date(kind) else "m8"
    ints = array.view(f"int{kind.bit_width}").to_numpy().astype(np.int64, copy=False)
    times: Array = ints.view(f"{code}[{unit}]")
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


def _object_array(array: Any, name: str, nulls: Nulls, row_of: Callable[[int], int]) -> Any:
    """The array, with nothing null in it, however deep, but what None stands for."""
    array = nulls.filled(_unwrapped(array), name, row_of, objects=True)
    types = pyarrow().types
    if types.is_struct(array.type):
        return _struct(array, name, nulls, row_of)
    if types.is_fixed_size_list(array.type):
        array = array.cast(pyarrow().large_list(array.type.value_field))
    if _is_list(array.type) or types.is_map(array.type):
        return _list(array, name, nulls, row_of)
    return array


def _struct(array: Any, name: str, nulls: Nulls, row_of: Callable[[int], int]) -> Any:
    names, fields = [field.name for field in array.type], array.flatten()
    filled = [
        _object_array(field, f"{name}.{each}", nulls, row_of)
        for each, field in zip(names, fields, strict=True)
    ]
    if all(map(is_, filled, fields)):
        return array
    return pyarrow().StructArray.from_arrays(filled, names, mask=_missing(array))


def _list(array: Any, name: str, nulls: Nulls, row_of: Callable[[int], int]) -> Any:
    offsets = array.offsets.to_numpy()

    def row_of_value(value: int) -> int:
        return row_of(int(np.searchsorted(offsets, value + int(offsets[0]), "right")) - 1)

    return over_values(
        array, lambda values: _object_array(values, f"{name}[]", nulls, row_of_value)
    )


def over_values(array: Any, fn: Callable[[Any], Any]) -> Any:
    """The lists, or maps, of what `fn` makes of the array of all their values, as many as before.

    >>> import pyarrow as pa
    >>> over_values(pa.array([[1, 2], None, [3]])[1:], lambda values: values.cast(pa.string()))[1]
    <pyarrow.ListScalar: ['3']>
    """
    is_map = pyarrow().types.is_map(array.type)
    offsets = array.offsets.to_numpy()
    first, size = int(offsets[0]), int(offsets[-1] - offsets[0])
    values = (array.items if is_map else array.values).slice(first, size)
    made = fn(values)
    if made is values:
        return array
    parts = [array.keys.slice(first, size), made] if is_map else [made]
    begins = pyarrow().array(offsets - first, array.offsets.type)
    return type(array).from_arrays(begins, *parts, mask=_missing(array))


def _missing(array: Any) -> Any:
    return array.is_null() if array.null_count else None
