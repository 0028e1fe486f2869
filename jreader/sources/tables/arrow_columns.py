"""Convert Arrow arrays to columns, for Parquet, IPC files, CSV and Hugging Face data sets.

Rows of one shape become an array, over Arrow's own memory wherever NumPy can read it: numbers,
times, and fixed-size lists. Lists of these become `Ragged`, structs become dicts, and everything
else (text, bytes, decimals, lists of text, maps) becomes Python objects, made on demand.
Dictionaries and run-length encodings are decoded, and extension types are read as their storage
types.

Arrow columns may have nulls, for which NumPy has no value. None is invented here: a null is an
error that names its column and row, unless the user gives a replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import accumulate
from operator import is_
from typing import Any

import numpy as np

from jreader.errors import DamagedData
from jreader.extras import extra
from jreader.readers.columns import Array, Column
from jreader.readers.joined_columns import by_part, concat_columns, locate, merged, share_starts
from jreader.readers.ragged import Ragged
from jreader.readers.trees import leaves
from jreader.sources.file_checks import damaged

_DECODED = ("dictionary", "run_end", "list_view", "extension")  # types that `_unwrapped` decodes


@cache
def pyarrow(part: str = "compute") -> Any:
    """Import pyarrow and one of its modules.

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
    """The replacements for the nulls of some rows, and where these rows are.

    Attributes:
        where: The container of the rows, usually a path.
        first: The number of the first row in it.
        instead: The replacement for nulls by column (`"label"`, a field `"point.x"` of a struct,
            the values `"ids[]"` of lists, the field `"messages[].name"` of structs in lists). None,
            allowed for text and other objects, also keeps nulls inside of them.
        as_stored: True if the arrays are as a file has them: offsets may then point anywhere, and
            following one could crash the program.
    """

    where: str
    first: int = 0
    instead: Mapping[str, Any] = field(default_factory=dict)
    as_stored: bool = False

    def fills(self, name: str, *, objects: bool) -> bool:
        """Return whether nulls of a column have a replacement, perhaps from an enclosing column."""
        return name in self.instead or (objects and self._is_inside_none(name))

    def _is_inside_none(self, name: str) -> bool:
        """Return whether None replaces the nulls of an enclosing column, and so of this part."""
        while name:
            name = name[:-2] if name.endswith("[]") else name.rpartition(".")[0]
            if self.instead.get(name, 0) is None:
                return True
        return False


@dataclass(frozen=True)
class Part:
    """A column, or fields or values inside of one, held by an Arrow array.

    Attributes:
        nulls: The replacements for its nulls.
        name: Its name for users: `"label"`, `"point.x"`, `"ids[]"`.
        row_of: Maps a value of the array to its row of the column.
    """

    nulls: Nulls
    name: str
    row_of: Callable[[int], int]

    def field(self, name: str) -> Part:
        """Return the part for a field of a struct."""
        return Part(self.nulls, f"{self.name}.{name}", self.row_of)

    def values(self, list_of: Callable[[int], int]) -> Part:
        """Return the part for the values of lists; `list_of` maps a value to its list."""
        return Part(self.nulls, f"{self.name}[]", lambda value: self.row_of(list_of(value)))

    def checked(self, array: Any, *, full: bool = True) -> Any:
        """Validate an array from a file: all that it refers to must lie in it.

        Args:
            array: An Arrow array.
            full: Whether to check all values, or only the sizes of its buffers.

        Raises:
            DamagedData: It is invalid.
        """
        if self.nulls.as_stored:
            try:
                array.validate(full=full)
            except pyarrow().ArrowException as error:
                raise _unreadable(self, error) from error
        return array

    def filled(self, array: Any, *, objects: bool = False) -> Any:
        """Replace the nulls of an array; if rows are `objects`, None is allowed.

        Raises:
            ValueError: It has nulls without a replacement.
            TypeError: The replacement is not a value of this type.
        """
        if not array.null_count:
            return array
        self.checked(array)
        pa = pyarrow()
        missing = array.is_null().to_numpy(zero_copy_only=False)
        if not self.nulls.fills(self.name, objects=objects):
            raise self._null(array, int(missing.argmax()), objects=objects)
        value, error = self.nulls.instead.get(self.name), None
        try:
            one = pa.array([value], array.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as unfit:
            error = unfit
        if error or (value is None and not objects):
            raise TypeError(
                f"nulls={{{self.name!r}: {value!r}}} is not a value of the column, whose values "
                f"are {array.type}: give one of that type (None only for text and other objects)."
            ) from error
        # `fill_null` does not support lists
        rows = np.where(missing, len(array), np.arange(len(array)))
        return pa.concat_arrays([array, one]).take(pa.array(rows))

    def _null(self, array: Any, at: int, *, objects: bool) -> ValueError:
        row = self.nulls.first + self.row_of(at)
        number = "0" if pyarrow().types.is_primitive(array.type) else "..."
        value = "None" if objects else number
        return ValueError(
            f"column {self.name!r} of {self.nulls.where} is null in row {row:,}, as are "
            f"{array.null_count:,} of {len(array):,} values there: say what stands for a null, "
            f"with nulls={{{self.name!r}: {value}}}, or leave the column out."
        )


def _unreadable(part: Part, error: Exception) -> DamagedData:
    expected = "a table whose values can be read"
    return damaged(part.nulls.where, expected, f"column {part.name!r}: {error}")


def checked_schema(schema: Any) -> Any:
    """Return a schema, or a struct type, after checking that all names in it are text.

    Raises:
        UnicodeDecodeError: A name is not in UTF-8.
    """
    for kind in [each.type for each in schema if each.name is not None]:  # reading the name raises
        checked_schema([kind.field(number) for number in range(kind.num_fields)])
    return schema


def columns_of(table: Any, nulls: Nulls) -> dict[str, Any]:
    """Convert the columns of a table or record batch; return them by name.

    >>> import pyarrow as pa
    >>> columns_of(pa.table({"x": [1, 2], "ids": [[5], []]}), Nulls("x"))
    {'x': array([1, 2]), 'ids': int64[2, ...]}

    Args:
        table: A `pyarrow.Table` or `pyarrow.RecordBatch`.
        nulls: The replacements for nulls.

    Raises:
        ValueError: There is a null without a replacement, or two columns have one name.
    """
    names = table.column_names
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(
            f"{nulls.where} has several columns of the name {twice[0]!r}: samples are dicts, so "
            f"write it with one name for each column."
        )
    columns = {name: arrow_column(table.column(name), name, nulls) for name in names}
    share_starts(leaves(columns))
    return columns


def arrow_column(column: Any, name: str, nulls: Nulls) -> Any:
    """Convert an Arrow column to an array, `Ragged`, `ArrowObjects`, or a dict of these.

    Args:
        column: A `pyarrow.Array` or `pyarrow.ChunkedArray`.
        name: Its name for users.
        nulls: The replacements for nulls.

    Raises:
        ValueError: There is a null without a replacement.
    """
    chunks = [chunk for chunk in getattr(column, "chunks", [column]) if len(chunk)]
    chunks = chunks or [pyarrow().nulls(0, column.type)]
    begins = accumulate(map(len, chunks), initial=0)
    parts = [Part(nulls, name, begin.__add__) for begin, _ in zip(begins, chunks, strict=False)]
    return columns_end_to_end(list(map(_column_of_array, chunks, parts)))


def columns_end_to_end(trees: Sequence[Any]) -> Any:
    """Concatenate the columns of several tables with the same structure.

    >>> columns_end_to_end([{"x": np.array([1])}, {"x": np.array([2, 3])}])["x"][:]
    array([1, 2, 3])
    """
    first = trees[0]
    if len(trees) == 1:
        return first
    if isinstance(first, dict):
        return {name: columns_end_to_end([tree[name] for tree in trees]) for name in first}
    return concat_columns(trees)


class ArrowObjects(Column):
    """A column of Python objects: text, bytes, and other values without a dtype.

    They are made from Arrow values on demand.

    Args:
        chunks: The values, in consecutive chunks.
    """

    stacks = False

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.chunks = list(chunks)
        self.starts = np.cumsum([0, *map(len, self.chunks)])[:-1]

    def __len__(self) -> int:
        return int(self.starts[-1]) + len(self.chunks[-1])

    def __repr__(self) -> str:
        return f"{self.chunks[0].array.type}[{len(self)}]"

    @staticmethod
    def concat(columns: Sequence[ArrowObjects]) -> ArrowObjects:
        """Concatenate the values of several columns."""
        return ArrowObjects([chunk for column in columns for chunk in column.chunks])

    def gather(self, rows: Array) -> list[Any]:
        """Return these rows as a list.

        Raises:
            DamagedData: A text is not in UTF-8, or a value lies outside of the file.
        """
        if len(self.chunks) == 1:
            return self.chunks[0].take(rows)
        which, local = locate(self.starts, rows)
        if len(self.chunks) * 4 <= len(rows):  # few chunks: one call for each
            taken = [(here, self.chunks[chunk].take(local[here])) for chunk, here in by_part(which)]
            return list(merged(taken, len(rows)))
        pairs = zip(which.tolist(), local.tolist(), strict=True)
        return [self.chunks[chunk].one(row) for chunk, row in pairs]


class Chunk:
    """Arrow values of some rows, converted to Python on demand; validated at the first use.

    Args:
        array: The Arrow array.
        part: The column, or the part of it.
    """

    def __init__(self, array: Any, part: Part) -> None:
        self.array, self.part = array, part
        self._unchecked = part.nulls.as_stored

    def __len__(self) -> int:
        return len(self.array)

    def take(self, rows: Array) -> list[Any]:
        """Return the values of these rows."""
        self._check()
        try:
            return [*self.array.take(pyarrow().array(rows)).to_pylist()]
        except UnicodeDecodeError as error:
            raise _unreadable(self.part, error) from error

    def one(self, row: int) -> Any:
        """Return the value of a row."""
        if self._unchecked:
            self._check()
        try:
            return self.array[row].as_py()
        except UnicodeDecodeError as error:
            raise _unreadable(self.part, error) from error

    def _check(self) -> None:
        if self._unchecked:
            self.part.checked(self.array)
            self._unchecked = False


def _column_of_array(array: Any, part: Part) -> Any:
    """Return the column of one array."""
    part.checked(array, full=not _is_looked_at_late(array.type))
    if shape := _shape_of(array.type):
        array = _shaped(part.filled(array.storage), shape, part)
    array = _unwrapped(array)
    return _maker_of(array.type)(array, part)


def _maker_of(kind: Any) -> Callable[[Any, Part], Any]:
    """Return the function that converts an unwrapped array of this type."""
    if pyarrow().types.is_struct(kind):
        return _struct_columns
    return _dense if _is_dense(kind) else _ragged if _is_ragged(kind) else _objects


def _objects(array: Any, part: Part) -> ArrowObjects:
    return ArrowObjects([Chunk(_object_array(array, part), part)])


def _struct_columns(array: Any, part: Part) -> dict[str, Any]:
    """Return the columns of the fields of structs."""
    names = [field.name for field in array.type]
    if not names or len({*names}) < len(names):
        raise ValueError(
            f"column {part.name!r} of {part.nulls.where} is a struct with the fields {names}: it "
            f"needs some, of different names. Leave the column out."
        )
    fields = zip(names, array.flatten(), strict=True)
    return {name: _column_of_array(field, part.field(name)) for name, field in fields}


def _is_looked_at_late(kind: Any) -> bool:
    """Return whether no offset of such arrays is followed before their rows are requested.

    Texts may be as long as the file; fields of structs are separate columns.
    """
    if pyarrow().types.is_struct(kind):
        return True
    dense = _is_dense(kind) or _is_ragged(kind)
    return not dense and not any(word in str(kind) for word in _DECODED)


def _unwrapped(array: Any) -> Any:
    """Decode dictionaries, runs and extension types; convert list views to offsets and values."""
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
    """Convert list views to consecutive lists; Arrow's cast is wrong for those with nulls."""
    pa = pyarrow()
    sizes = pa.compute.fill_null(pa.compute.list_value_length(array), 0).to_numpy()
    offsets = pa.array(np.cumsum([0, *sizes]), pa.int64())
    kind = pa.large_list(array.type.value_field)
    missing = array.is_null() if array.null_count else None
    return pa.LargeListArray.from_arrays(offsets, array.flatten(), type=kind, mask=missing)


def _shape_of(kind: Any) -> tuple[int, ...]:
    """Return the row shape of a tensor extension type; () for other types."""
    shape = getattr(kind, "shape", ())
    if not isinstance(shape, (list, tuple)) or not all(isinstance(size, int) for size in shape):
        return ()
    turned = getattr(kind, "permutation", None) not in (None, [*range(len(shape))])
    return () if turned or 0 in shape else tuple(shape)


def _shaped(array: Any, shape: tuple[int, ...], part: Part) -> Any:
    """Convert nested or flat lists to nested lists of fixed sizes."""
    pa, values = pyarrow(), array
    while _is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        values = values.flatten()
    if len(values) != len(array) * int(np.prod(shape)):
        raise DamagedData(
            f"column {part.name!r} of {part.nulls.where} says that its rows have the shape "
            f"{shape}, and has {len(values):,} values in {len(array):,} rows."
        )
    for size in reversed(shape):
        values = pa.FixedSizeListArray.from_arrays(values, size)
    return values


def _stored_type(kind: Any) -> Any:
    """Return the type of an array of this type after `_unwrapped`."""
    return _unwrapped(pyarrow().nulls(0, kind)).type


def _is_list(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind))


def _is_ragged(kind: Any) -> bool:
    return _is_list(kind) and _is_dense(_stored_type(kind.value_type))


def _is_dense(kind: Any) -> bool:
    """Return whether NumPy has a dtype for the values."""
    types = pyarrow().types
    if types.is_fixed_size_list(kind):
        return kind.list_size > 0 and _is_dense(_stored_type(kind.value_type))
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or (types.is_temporal(kind) and not types.is_interval(kind))
    )


def _dense(array: Any, part: Part) -> Array:
    """Return a NumPy array, over Arrow's memory unless it has nulls or bits."""
    array = part.filled(_unwrapped(array))
    kind, types = array.type, pyarrow().types
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        inner = _dense(array.flatten(), part.values(lambda value: value // size))
        return inner.reshape(len(array), size, *inner.shape[1:])
    if not types.is_temporal(kind):
        dense: Array = array.to_numpy(zero_copy_only=not types.is_boolean(kind))
        return dense
    unit = "D" if types.is_date32(kind) else "ms" if types.is_date64(kind) else kind.unit
    code = "M8" if types.is_timestamp(kind) or types.is_date(kind) else "m8"
    ints = array.view(f"int{kind.bit_width}").to_numpy().astype(np.int64, copy=False)
    times: Array = ints.view(f"{code}[{unit}]")
    return times


def _ragged(array: Any, part: Part) -> Ragged:
    array = part.filled(array)
    offsets = _list_offsets(array)
    values = array.values.slice(int(array.offsets[0].as_py()), int(offsets[-1]))
    return Ragged(_dense(values, part.values(_list_among(offsets))), offsets)


def _list_offsets(array: Any) -> Array:
    """Return where lists begin among all values, and where the last one ends."""
    offsets: Array = array.offsets.to_numpy()
    return offsets - offsets[0] if offsets[0] else offsets


def _list_among(offsets: Array) -> Callable[[int], int]:
    return lambda value: int(np.searchsorted(offsets, value, "right")) - 1


def _object_array(array: Any, part: Part) -> Any:
    """Replace nulls at any depth, except where None stands for them."""
    array = part.filled(_unwrapped(array), objects=True)
    types = pyarrow().types
    if types.is_struct(array.type):
        return over_fields(array, lambda field, name: _object_array(field, part.field(name)))
    if types.is_fixed_size_list(array.type):
        array = array.cast(pyarrow().large_list(array.type.value_field))
    if _is_list(array.type) or types.is_map(array.type):
        inside = part.values(_list_among(_list_offsets(array)))
        return over_values(array, lambda values: _object_array(values, inside))
    return array


def over_fields(array: Any, fn: Callable[[Any, str], Any]) -> Any:
    """Apply `fn` to the arrays of fields (with their names); return structs of the results.

    >>> import pyarrow as pa
    >>> over_fields(pa.array([{"x": 1}]), lambda field, name: field.cast(pa.string()))[0]
    <pyarrow.StructScalar: [('x', '1')]>
    """
    names, fields = [field.name for field in array.type], array.flatten()
    made = list(map(fn, fields, names))
    if all(map(is_, made, fields)):
        return array
    return pyarrow().StructArray.from_arrays(made, names, mask=_missing(array))


def over_values(array: Any, fn: Callable[[Any], Any]) -> Any:
    """Apply `fn` to the array of all values of lists or maps; return lists of the results.

    >>> import pyarrow as pa
    >>> over_values(pa.array([[1, 2], None, [3]])[1:], lambda values: values.cast(pa.string()))[1]
    <pyarrow.ListScalar: ['3']>
    """
    is_map, offsets = pyarrow().types.is_map(array.type), _list_offsets(array)
    first, size = int(array.offsets[0].as_py()), int(offsets[-1])
    values = (array.items if is_map else array.values).slice(first, size)
    made = fn(values)
    if made is values:
        return array
    parts = [array.keys.slice(first, size), made] if is_map else [made]
    begins = pyarrow().array(offsets, array.offsets.type)
    return type(array).from_arrays(begins, *parts, mask=_missing(array))


def _missing(array: Any) -> Any:
    return array.is_null() if array.null_count else None
