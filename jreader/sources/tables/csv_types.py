"""The column types of CSV: as the user says, or wide enough for all values of all files.

CSV has no types. pyarrow infers one of a few kinds from the values of a block, and a column gets
the narrowest kind that holds the values of all its blocks. So numbers in the first thousand rows do
not make a numeric column if the last row is text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from jreader.sources.tables.arrow_columns import pyarrow

NULLS = ["", "NA", "N/A", "n/a", "#N/A", "NULL", "null", "None", "none"]
"""The texts that mean null, except in text columns."""

UNKNOWN, TEXT = "null", "string"
"""The kinds of a column without values, and of text, which holds the values of all others."""

# A kind is a type by its pyarrow name, or one of these: whole numbers without negative ones; those
# that need an unsigned 64-bit type; and those that exceed 64 bits.
_STORED = {"positive": "int64", "uint64": "uint64", "digits": "string"}
_WIDER = [
    ("positive", "int64", "uint64", "digits", "double"),
    ("date32[day]", "timestamp[s]", "timestamp[ns]"),
    ("timestamp[s, tz=UTC]", "timestamp[ns, tz=UTC]"),
]
_BEYOND = 2.0**63  # first value beyond int64


def checked_types(call: str, types: Any) -> dict[str, Any]:
    """Check the types of columns; return them as Arrow types.

    >>> checked_types("csv(paths, types)", {"n": np.int32, "name": str, "day": "datetime64[s]"})
    {'n': DataType(int32), 'name': DataType(string), 'day': TimestampType(timestamp[s])}

    Raises:
        TypeError: They are not a dict, or a type does not exist, or CSV cannot be read as it.
    """
    if not isinstance(types, Mapping) or not all(isinstance(name, str) for name in types):
        raise TypeError(
            f"{call} needs a dict of the types of columns, such as types={{'label': np.int32, "
            f"'name': str}}, not {types!r}: leave it out to have them found."
        )
    return {name: _checked_type(call, name, given) for name, given in types.items()}


def kind_of_values(column: Any, as_text: Callable[[], Any]) -> str:
    """Return the kind of a column; for whole numbers, also whether int64 or uint64 holds them all.

    pyarrow infers floats from whole numbers beyond int64.

    >>> import pyarrow as pa
    >>> [kind_of_values(pa.array([n]), lambda: pa.array([str(n)])) for n in (7, -7)]
    ['positive', 'int64']
    >>> def found(*numbers):
    ...     text = pa.array(map(str, numbers))
    ...     return kind_of_values(text.cast(pa.float64()), lambda: text)
    >>> found(0.5), found(1e30), found(2**63), found(2**64), found(2**63, -1)
    ('double', 'double', 'uint64', 'digits', 'digits')

    Args:
        column: Its values, as pyarrow reads them.
        as_text: Returns its values as written.
    """
    kind, compute = str(column.type), pyarrow().compute
    if kind not in ("int64", "double"):
        return kind
    if column.null_count or not len(column):
        ends = compute.min_max(column).as_py()
        low, high = ends["min"] or 0, ends["max"] or 0
    else:  # a fifth of the time
        values = column.to_numpy()
        low, high = np.fmin.reduce(values), np.fmax.reduce(values)
    if kind == "int64":
        return kind if low < 0 else "positive"
    return kind if max(-low, high) < _BEYOND else _kind_of_large_numbers(as_text())


def _kind_of_large_numbers(written: Any) -> str:
    pa = pyarrow()
    values = pa.compute.utf8_trim_whitespace(written)
    values = values.filter(pa.compute.invert(pa.compute.is_in(values, pa.array(NULLS))))
    if not pa.compute.all(pa.compute.match_substring_regex(values, r"^[+-]?\d+$")).as_py():
        return "double"
    try:
        values.cast(pa.uint64())
    except pa.ArrowInvalid:
        return "digits"
    return "uint64"


def type_of_kind(kind: str) -> Any:
    """Return the type of a column of this kind.

    >>> type_of_kind("positive"), type_of_kind(TEXT)
    (DataType(int64), DataType(string))
    """
    pa = pyarrow()
    unit = "ns" if "[ns" in kind else "s"
    return (
        pa.timestamp(unit, "UTC") if "tz=" in kind else pa.type_for_alias(_STORED.get(kind, kind))
    )


def joint_kind(kinds: Iterable[str]) -> str:
    """Return the narrowest kind that holds the values of all kinds: text if no other does.

    >>> joint_kind(["int64", "null", "double"]), joint_kind(["bool", "int64"])
    ('double', 'string')
    """
    found = {*kinds} - {UNKNOWN}
    if len(found) < 2:
        return max(found, default=UNKNOWN)
    if found >= {"int64", "uint64"}:
        found.add("digits")
    wider = next((each for each in _WIDER if found <= {*each}), None)
    return TEXT if wider is None else max(found, key=wider.index)


def of_types(table: Any, schema: Any) -> Any:
    """Cast a table to a schema; None if that needs the original text.

    >>> import pyarrow as pa
    >>> numbers = pa.table({"x": [7]})
    >>> of_types(numbers, pa.schema({"x": pa.float64()}))["x"].to_pylist()
    [7.0]
    >>> of_types(numbers, pa.schema({"x": pa.string()})) is None  # it may have been 007
    True
    """
    pa = pyarrow()
    if table.schema == schema:
        return table
    for found, wanted in zip(table.schema.types, schema.types, strict=True):
        if found != wanted and (wanted == pa.string() or found == pa.float64()):
            return None
    try:
        return table.cast(schema)
    except pa.ArrowInvalid:  # such as a 64-bit number that is not a float
        return None


def _checked_type(call: str, name: str, given: Any) -> Any:
    kind = _type_of(given)
    if kind is None or not _can_be_read(kind):
        raise TypeError(
            f"{call} cannot read column {name!r} as {given!r}: give a dtype such as np.int32, "
            f"np.float32, bool or 'datetime64[s]', or str, bytes, or a type of pyarrow."
        )
    return kind


def _type_of(given: Any) -> Any:
    """Return the pyarrow type that a user means; None if there is none."""
    pa = pyarrow()
    if isinstance(given, pa.DataType):
        return given
    if given is None or given in (str, bytes):
        return {str: pa.string(), bytes: pa.binary()}.get(given)
    with suppress(TypeError, pa.ArrowException):
        dtype = np.dtype(given)
        return pa.from_numpy_dtype(dtype) if dtype.kind not in "OSUV" else None
    with suppress(AttributeError, TypeError, ValueError):
        return pa.type_for_alias(given)
    return None


def _can_be_read(kind: Any) -> bool:
    """Return whether pyarrow can read CSV as this type."""
    pa = pyarrow("csv")
    options = pa.csv.ConvertOptions(column_types={"x": kind})
    with suppress(pa.ArrowInvalid):  # the type exists, but a number is not a value of it
        try:
            pa.csv.read_csv(pa.BufferReader(b"x\n1\n"), convert_options=options)
        except pa.ArrowNotImplementedError:
            return False
    return True
