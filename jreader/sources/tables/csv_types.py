"""The types of the columns of CSV: as the user says, or such that all values of all files fit.

CSV has no types. What pyarrow takes the values of one block for is one of a few kinds, and a column
is of the least kind that has the values of all its blocks. So a number in the first thousand rows
does not make a column of numbers of one whose last row is text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jreader.sources.tables.arrow_columns import pyarrow

NULLS = ["", "NA", "N/A", "n/a", "#N/A", "NULL", "null", "None", "none"]
"""What stands for a null in columns that are not text."""

_UNKNOWN, _TEXT = 0, 10
_NAMES = [
    *("null", "bool", "int64", "float64", "date32[day]", "time32[s]"),
    *("timestamp[s]", "timestamp[ns]", "timestamp[s, tz=UTC]", "timestamp[ns, tz=UTC]", "string"),
]  # in an index that is kept, a kind is the place of its name
_WIDER = [("int64", "float64"), ("date32[day]", "timestamp[s]", "timestamp[ns]")]
_WIDER += [("timestamp[s, tz=UTC]", "timestamp[ns, tz=UTC]")]


def checked_types(call: str, types: Any) -> dict[str, Any] | None:
    """The types of columns as they were given, as those of Arrow.

    >>> checked_types("csv(paths, types)", {"n": np.int32, "name": str, "day": "datetime64[s]"})
    {'n': DataType(int32), 'name': DataType(string), 'day': TimestampType(timestamp[s])}

    Raises:
        TypeError: They are no dict, or there is no such type, or none that CSV can be read as.
    """
    if types is None:
        return None
    if not isinstance(types, Mapping) or not all(isinstance(name, str) for name in types):
        raise TypeError(
            f"{call} needs a dict of the types of columns, such as types={{'label': np.int32, "
            f"'name': str}}, not {types!r}: leave it out to have them found."
        )
    return {name: _checked(call, name, given) for name, given in types.items()}


def kind_of_type(kind: Any) -> int | None:
    """The kind that a type is which pyarrow found; None if it is none (bytes that are no text).

    >>> import pyarrow as pa
    >>> kind_of_type(pa.int64()), kind_of_type(pa.binary())
    (2, None)
    """
    name = "float64" if kind == pyarrow().float64() else str(kind)
    return _NAMES.index(name) if name in _NAMES else None


def type_of_kind(kind: int) -> Any:
    """The type of a column of that kind; one without any value is text.

    >>> type_of_kind(2), type_of_kind(0)
    (DataType(int64), DataType(string))
    """
    pa, name = pyarrow(), _NAMES[kind if kind != _UNKNOWN else _TEXT]
    unit = "ns" if "[ns" in name else "s"
    return pa.timestamp(unit, "UTC") if "tz=" in name else pa.type_for_alias(name)


def joint_kind(kinds: Iterable[int]) -> int:
    """The least kind that has the values of all: text, where no other has.

    >>> joint_kind([2, 0, 3]), joint_kind([1, 2])
    (3, 10)
    """
    found = {*kinds} - {_UNKNOWN}
    if len(found) < 2:
        return max(found, default=_UNKNOWN)
    for wider in _WIDER:
        places = [_NAMES.index(name) for name in wider]
        if found <= {*places}:
            return max(found)
    return _TEXT


def _checked(call: str, name: str, given: Any) -> Any:
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
    from pyarrow import csv  # noqa: PLC0415  # an extra

    options = csv.ConvertOptions(column_types={"x": kind})
    csv.read_csv(pyarrow().BufferReader(b"x\n1\n"), convert_options=options)
