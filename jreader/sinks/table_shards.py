"""Shards of Parquet and Arrow: a row group, or a record batch, per block of samples.

Numbers and times keep their dtype. Arrays of one shape become fixed-size lists, those that differ
in their first axis lists, and nested dicts structs. Arrays of several axes become nested lists in
Arrow, which Hugging Face reads, and fixed-shape tensors in Parquet. Parquet pages have checksums,
which the reader verifies; Arrow files are not compressed, so that they can be mapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from jreader.errors import FeedMismatch
from jreader.readers import branches, rebuilt
from jreader.readers.columns import offsets_of
from jreader.sinks.sample_fields import Field, SampleFields, cannot_write
from jreader.sinks.shard_writers import Append, Format
from jreader.sources.tables.arrow_columns import pyarrow

_TYPES = [
    *map(np.dtype, ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")),
    *map(np.dtype, ("M8[D]", "M8[s]", "M8[ms]", "M8[us]", "M8[ns]")),
    *map(np.dtype, ("m8[s]", "m8[ms]", "m8[us]", "m8[ns]")),
]


def table_shards(
    form: str, samples: Sequence[Any], name: str, ragged: Sequence[str] = ()
) -> Format:
    """Return the format that writes samples like these to table files.

    Args:
        form: "arrow" or "parquet".
        samples: The first samples, at least one.
        name: The file name.
        ragged: The names of fields whose arrays differ in their first axis, even if these do not.

    Raises:
        FeedMismatch: The format cannot hold such samples.
    """
    fields = SampleFields.of(form, samples, ragged=ragged)
    tree = fields.tree
    if not isinstance(tree, dict):
        said = f"it is a {type(tree).__name__}, and {form.title()} has named columns"
        how = ".map(lambda sample: {'image': sample[0], 'label': sample[1]})"
        raise cannot_write(form, 0, f"{said}. Make dicts in a .map(fn) before, as in {how}.")
    types = [_type(fields, field) for field in fields.fields]
    if said := _wrong_columns(tree, ""):
        raise cannot_write(form, 0, said)
    schema = pyarrow().schema(_arrow_fields(rebuilt(tree, iter(types))))
    return Format((name,), partial(_table_shard, fields, types, schema))


@contextmanager
def _table_shard(
    fields: SampleFields, types: Sequence[Any], schema: Any, paths: Sequence[Path]
) -> Iterator[Append]:
    """Open one file, with a row group or record batch per batch, and a footer at the end."""
    begun, options = pyarrow().ipc.new_file, {}
    if fields.format == "parquet":
        begun = import_module("pyarrow.parquet").ParquetWriter
        repeated = [path for path in map(_repeated, fields.fields) if path]
        options = {"use_dictionary": repeated, "write_page_checksum": True}
    with begun(str(paths[0]), schema, **options) as writer:

        def append(batch: Sequence[Any], first: int) -> None:
            columns = zip(fields.fields, fields.columns(batch, first), types, strict=True)
            made = [_array(fields.format, *column, first) for column in columns]
            arrays = [_arrow_array(part) for part in rebuilt(fields.tree, iter(made)).values()]
            table = pyarrow().Table.from_arrays(arrays, schema=schema)
            writer.write_table(table, max(len(batch), 1))

        yield append


def _repeated(field: Field) -> str:
    """Return the field's Parquet column, if its values are likely to repeat; else ""."""
    kind = field.kind
    if kind.how not in ("text", "bytes") and kind.dtype.kind not in "iu":
        return ""
    lists = 1 + len(kind.shape) if kind.how == "ragged" else min(len(kind.shape), 1)
    return field.name + ".list.element" * lists


def _wrong_columns(tree: Any, before: str) -> str:
    """Describe what is wrong in a sample: a name is not text, or a part is no dict or empty."""
    parts = branches(tree)
    if parts is None:
        return ""
    if type(tree) is not dict:
        how = "an array, as in np.asarray(...), or a dict; for texts of any number, json.dumps(...)"
        return f"field {before!r} is a {type(tree).__name__}. Make it {how}."
    wrong = (f"the name {key!r}" for key in parts if not isinstance(key, str))
    if seen := next(wrong, "" if parts else "no field"):
        return f"{before or 'it'} has {seen}, and columns need names that are texts."
    names = (f"{before}.{key}" if before else key for key in parts)
    return next(filter(None, map(_wrong_columns, parts.values(), names)), "")


def _type(fields: SampleFields, field: Field) -> Any:
    """Return the Arrow type of a field, which the reader converts back to the same kind."""
    pa, kind, form = pyarrow(), field.kind, fields.format.title()
    if plain := {"text": pa.string, "bytes": pa.binary}.get(kind.how):
        return plain()
    if kind.how == "object":
        said = f"{form} holds numbers, texts, bytes and arrays of numbers"
        how = "leave such samples or fields out, or give a value that stands for it"
        raise fields.refused(field, f"{said}: {how}, in a .map(fn) before")
    dtype = kind.dtype
    if dtype not in _TYPES or (form, dtype) == ("Parquet", np.dtype("M8[s]")):
        raise fields.refused(field, f"{form} has no type for {dtype}: {_cast_hint(dtype)}")
    if 0 in kind.shape:
        raise fields.refused(field, f"{form} has no arrays without values of a fixed shape")
    value = pa.from_numpy_dtype(dtype) if dtype != "M8[D]" else pa.date32()
    if (form, kind.how, len(kind.shape) > 1) == ("Parquet", "array", True):
        return pa.fixed_shape_tensor(value, kind.shape)
    for size in reversed(kind.shape):
        value = pa.list_(value, size)
    return pa.list_(value) if kind.how == "ragged" else value


def _cast_hint(dtype: np.dtype[Any]) -> str:
    """Return what to type for a dtype that Arrow lacks, or returns as another one."""
    if not dtype.isnative:
        return f"type .astype({dtype.newbyteorder('=').str!r}) in a .map(fn) before"
    if dtype.kind in "US":
        return "give a str, or bytes, in a .map(fn) before"
    if other := {"M": "M8[ms]", "m": "m8[ms]", "f": "float64"}.get(dtype.kind):
        return f"type .astype({other!r}) in a .map(fn) before"
    return "give its parts as fields of numbers, in a .map(fn) before"


def _array(form: str, field: Field, column: Any, kind: Any, first: int) -> Any:
    """Convert the rows of a field to an Arrow array."""
    pa, how, shape = pyarrow(), field.kind.how, field.kind.shape
    if how in ("text", "bytes"):
        return _texts(form, field, column, kind, first)
    rows = [len(row) for row in column] if how == "ragged" else None
    values = column if rows is None else np.concatenate(column)
    flat = np.ascontiguousarray(values).reshape(-1)
    _check_times(form, field, flat, flat.size // max(len(values), 1), rows, first)
    array = pa.array(flat)
    if isinstance(kind, pa.FixedShapeTensorType):
        stored = pa.FixedSizeListArray.from_arrays(array, int(np.prod(shape)))
        return pa.ExtensionArray.from_storage(kind, stored)
    for size in reversed(shape):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array if rows is None else _list_array(field, array, rows, first)


def _texts(form: str, field: Field, column: Any, kind: Any, first: int) -> Any:
    try:
        return pyarrow().array(column, kind)
    except UnicodeEncodeError as error:
        number = first + next(n for n, text in enumerate(column) if text == error.object)
        said = f"field {field.name!r} is a text that UTF-8 cannot encode ({error})"
        raise cannot_write(form, number, f"{said}. Mend it, or give bytes.") from error


def _check_times(
    form: str, field: Field, flat: Any, each: int, rows: Sequence[int] | None, first: int
) -> None:
    """Raise FeedMismatch for a NaT; each row has `each` values in `flat`, or `rows` lengths."""
    if flat.dtype.kind not in "Mm" or not (gaps := np.isnat(flat)).any():
        return
    place = int(gaps.argmax()) // each
    number = first + (place if rows is None else int(np.cumsum(rows).searchsorted(place, "right")))
    said = f"field {field.name!r} has a NaT, which would be a null"
    raise cannot_write(form, number, f"{said}. Give a time instead, in a .map(fn) before.")


def _list_array(field: Field, array: Any, rows: Sequence[int], first: int) -> Any:
    """Convert the values of rows of several lengths to lists."""
    pa = pyarrow()
    offsets = offsets_of(rows)
    if offsets[-1] > np.iinfo(np.int32).max:
        raise FeedMismatch(
            f"samples {first:,} to {first + len(rows) - 1:,} have {offsets[-1]:,} values in field "
            f"{field.name!r}, and a list of Arrow holds {np.iinfo(np.int32).max:,}: type a "
            f"smaller samples_per_shard."
        )
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), array)


def _arrow_fields(types: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the names and types of columns; a dict of types is a struct."""
    return [
        (name, pyarrow().struct(_arrow_fields(part)) if isinstance(part, dict) else part)
        for name, part in types.items()
    ]


def _arrow_array(part: Any) -> Any:
    """Return an Arrow array; a dict of arrays becomes one of structs."""
    if not isinstance(part, dict):
        return part
    return pyarrow().StructArray.from_arrays([*map(_arrow_array, part.values())], [*part])
