"""The types of the columns of CSV: as the user says, or such that all values of all files fit.

CSV has no types. What pyarrow takes the values of one block for is one of a few kinds, and a column
is of the least kind that has the values of all its blocks. So a number in the first thousand rows
does not make a column of numbers of one whose last row is text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from jreader.sources.tables.arrow_columns import pyarrow

NULLS = ["", "NA", "N/A", "n/a", "#N/A", "NULL", "null", "None", "none"]
"""What stands for a null in columns that are not text."""

_UNKNOWN = 0
_NAMES = [
    *("null", "bool", "int64", "float64", "date32[day]", "time32[s]"),
    *("timestamp[s]", "timestamp[ns]", "timestamp[s, tz=UTC]", "timestamp[ns, tz=UTC]", "string"),
    *("positive", "uint64", "digits"),
]  # in an index that is kept, a kind is the place of its name
_WIDER = [
    ("positive", "int64", "uint64", "digits", "float64"),
    ("date32[day]", "timestamp[s]", "timestamp[ns]"),
    ("timestamp[s, tz=UTC]", "timestamp[ns, tz=UTC]"),
]
_STORED = {"positive": "int64", "digits": "string"}  # others by their own names
TEXT = _NAMES.index("string")
"""The kind of text, which has the values of all others."""

_BEYOND = 2.0**63  # no int64


def checked_types(call: str, types: Any) -> dict[str, Any]:
    """The types of columns as they were given, as those of Arrow.

    >>> checked_types("csv(paths, types)", {"n": np.int32, "name": str, "day": "datetime64[s]"})
    {'n': DataType(int32), 'name': DataType(string), 'day': TimestampType(timestamp[s])}

    Raises:
        TypeError: They are no dict, or there is no such type, or none that CSV can be read as.
    """
    if not isinstance(types, Mapping) or not all(isinstance(name, str) for name in types):
        raise TypeError(
            f"{call} needs a dict of the types of columns, such as types={{'label': np.int32, "
            f"'name': str}}, not {types!r}: leave it out to have them found."
        )
    return {name: _checked_type(call, name, given) for name, given in types.items()}


def kind_of_type(kind: Any) -> int | None:
    """The kind that a type is which pyarrow found; None if it is none (bytes that are no text).

    >>> import pyarrow as pa
    >>> kind_of_type(pa.int64()), kind_of_type(pa.binary())
    (2, None)
    """
    name = "float64" if kind == pyarrow().float64() else str(kind)
    return _NAMES.index(name) if name in _NAMES else None


def kind_of_values(column: Any, as_text: Callable[[], Any]) -> int:
    """The kind of a column: of whole numbers also whether an int64 or a uint64 holds all of them.

    Pyarrow takes whole numbers that no int64 holds for floats.

    >>> import pyarrow as pa
    >>> [_NAMES[kind_of_values(pa.array([n]), lambda: pa.array([str(n)]))] for n in (7, -7)]
    ['positive', 'int64']
    >>> def found(*numbers):
    ...     text = pa.array(map(str, numbers))
    ...     return _NAMES[kind_of_values(text.cast(pa.float64()), lambda: text)]
    >>> found(0.5), found(1e30), found(2**63), found(2**64), found(2**63, -1)
    ('float64', 'float64', 'uint64', 'digits', 'digits')

    Args:
        column: Its values, as pyarrow reads them.
        as_text: Returns its values as they are written.
    """
    pa = pyarrow()
    if not (pa.types.is_int64(column.type) or pa.types.is_float64(column.type)):
        return kind_of_type(column.type) or _UNKNOWN
    ends = pa.compute.min_max(column).as_py()
    low, high = ends["min"] or 0, ends["max"] or 0
    if pa.types.is_int64(column.type):
        return _NAMES.index("int64" if low < 0 else "positive")
    if max(-low, high) < _BEYOND:
        return _NAMES.index("float64")
    written = pa.compute.utf8_trim_whitespace(as_text())
    whole = pa.compute.match_substring_regex(written, r"^[+-]?\d+$")
    null = pa.compute.is_in(written, pa.array(NULLS))
    if not pa.compute.all(pa.compute.or_(whole, null)).as_py():
        return _NAMES.index("float64")
    try:
        written.filter(whole).cast(pa.uint64())
    except pa.ArrowInvalid:
        return _NAMES.index("digits")
    return _NAMES.index("uint64")


def type_of_kind(kind: int) -> Any:
    """The type of a column of that kind.

    >>> type_of_kind(2), type_of_kind(TEXT)
    (DataType(int64), DataType(string))
    """
    pa, name = pyarrow(), _STORED.get(_NAMES[kind], _NAMES[kind])
    unit = "ns" if "[ns" in name else "s"
    return pa.timestamp(unit, "UTC") if "tz=" in name else pa.type_for_alias(name)


def joint_kind(kinds: Iterable[int]) -> int:
    """The least kind that has the values of all: text, where no other has.

    >>> joint_kind([2, 0, 3]), joint_kind([1, 2])
    (3, 10)
    """
    found = {_NAMES[kind] for kind in kinds} - {"null"}
    if len(found) < 2:
        return _NAMES.index(max(found, default="null"))
    if found >= {"int64", "uint64"}:
        found.add("digits")
    for wider in _WIDER:
        if found <= {*wider}:
            return _NAMES.index(max(found, key=wider.index))
    return TEXT


def of_types(table: Any, schema: Any) -> Any:
    """The table with the types of a schema; None if only the text of the file has the values.

    >>> import pyarrow as pa
    >>> numbers = pa.table({"x": [7]})
    >>> of_types(numbers, pa.schema({"x": pa.float64()}))["x"].to_pylist()
    [7.0]
    >>> of_types(numbers, pa.schema({"x": pa.string()})) is None  # it may have been 007
    True
    """
    pa = pyarrow()
    for found, wanted in zip(table.schema.types, schema.types, strict=True):
        if found != wanted and (wanted == pa.string() or found == pa.float64()):
            return None
    try:
        return table.cast(schema)
    except pa.ArrowInvalid:  # a number of 64 bits that no float has, say
        return None


def _checked_type(call: str, name: str, given: Any) -> Any:
    pa = pyarrow()
    kind = _type_of(given)
    if kind is not None:
        try:
            _read_one(kind)
        except pa.ArrowNotImplementedError:
            kind = None
        except pa.ArrowInvalid:  # a number is no value of it
            pass
    if kind is None:
        raise TypeError(
            f"{call} cannot read column {name!r} as {given!r}: give a dtype such as np.int32, "
            f"np.float32, bool or 'datetime64[s]', or str, bytes, or a type of pyarrow."
        )
    return kind


def _type_of(given: Any) -> Any:
    pa = pyarrow()
    if isinstance(given, pa.DataType):
        return given
    if given in (str, bytes):
        return pa.string() if given is str else pa.binary()
    if given is None:
        return None
    try:
        dtype = np.dtype(given)
        return pa.from_numpy_dtype(dtype) if dtype.kind not in "OSUV" else None
    except (TypeError, pa.ArrowException):
        pass
    try:
        return pa.type_for_alias(given)
    except (AttributeError, TypeError, ValueError):
        return None


def _read_one(kind: Any) -> None:
    csv = pyarrow("csv").csv
    options = csv.ConvertOptions(column_types={"x": kind})
    csv.read_csv(pyarrow().BufferReader(b"x\n1\n"), convert_options=options)
