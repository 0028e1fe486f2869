"""`huggingface`: read Hugging Face data sets by their Arrow columns, not row by row.

They store media as structs of bytes and a path. A data set of local files, as `imagefolder` makes
it, has only paths: these files are read on demand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np

from jreader.errors import DamagedData
from jreader.readers import Plane, argument, op, set_fields
from jreader.readers.columns import Array
from jreader.readers.declarations import convert_fields
from jreader.readers.excerpts import spread
from jreader.readers.hashing import text_hash
from jreader.readers.messages import described
from jreader.sources.columns import Table
from jreader.sources.file_checks import changed
from jreader.sources.files.file_readers import typed_arguments, typed_call
from jreader.sources.files.stored_files import open_file
from jreader.sources.tables.arrow_columns import Nulls, over_fields, over_values, pyarrow
from jreader.sources.tables.column_names import check_fills, checked_names, checked_nulls
from jreader.sources.tables.table_files import columns_in

_MEDIA = ("Image", "Audio", "Video", "Pdf")  # features whose values are bytes and a path
_LOOKED_AT = 16  # rows to hash
_COMMIT = re.compile(r"^hf://datasets/([^@\n]+@[0-9a-f]{40})/", re.MULTILINE)


def with_media(column: Any, feature: Any) -> Any:
    """Replace media in a column by their bytes, at any depth of lists and dicts.

    >>> import pyarrow as pa
    >>> class Image:
    ...     pass
    >>> kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    >>> column = pa.chunked_array([[{"bytes": b"pixels", "path": None}]], kind)
    >>> with_media(column, Image()).to_pylist()
    [b'pixels']

    Args:
        column: A `pyarrow.ChunkedArray`.
        feature: The feature of the data set that describes the column.
    """
    if not _has_media(feature):
        return column
    pa = pyarrow()
    chunks = column.chunks or [pa.nulls(0, column.type)]
    if _is_media(feature) and pa.types.is_struct(column.type):
        chunks = _media_bytes(chunks) or list(map(_media_files, chunks))
    else:
        chunks = [_inside(chunk, feature) for chunk in chunks]
    return pa.chunked_array(chunks)


def _is_media(feature: Any) -> bool:
    return type(feature).__name__ in _MEDIA


def _inner(feature: Any) -> Any:
    """Return the feature of a list's items; None if it is not a list."""
    return feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)


def _has_media(feature: Any) -> bool:
    if isinstance(feature, dict):
        return any(map(_has_media, feature.values()))
    inner = _inner(feature)
    return _is_media(feature) if inner is None else _has_media(inner)


def _media_bytes(chunks: list[Any]) -> list[Any] | None:
    """Return the bytes of media; None if some are in files."""
    at = chunks[0].type.get_field_index("bytes")
    found = [chunk.flatten()[at] for chunk in chunks] if at >= 0 else []
    lacking = [
        part.null_count > chunk.null_count for part, chunk in zip(found, chunks, strict=False)
    ]
    return None if any(lacking) or not found else found


def _inside(array: Any, feature: Any) -> Any:
    pa = pyarrow()
    if _is_media(feature):
        return _media_files(array)
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.large_list(array.type.value_field))
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return over_values(array, lambda values: _inside(values, _inner(feature)))
    if pa.types.is_struct(array.type):
        if not isinstance(feature, dict):  # a list of dicts, stored as a dict of lists
            feature = {name: [part] for name, part in _inner(feature).items()}
        parts = feature
        return over_fields(
            array,
            lambda field, name: _inside(field, parts[name]) if _has_media(parts[name]) else field,
        )
    return array


def _media_files(array: Any) -> Any:
    """Return media whose bytes are read from files if they are not stored."""
    pa, kind = pyarrow(), array.type
    if not pa.types.is_struct(kind):
        return array
    parts = dict(zip((field.name for field in kind), array.flatten(), strict=True))
    stored = media_type().storage_type
    fields = [
        parts[field.name].cast(field.type)
        if field.name in parts
        else pa.nulls(len(array), field.type)
        for field in stored
    ]
    mask = array.is_null() if array.null_count else None
    structs = pa.StructArray.from_arrays(fields, [field.name for field in stored], mask=mask)
    return pa.ExtensionArray.from_storage(media_type(), structs)


@cache
def media_type() -> Any:
    """Return the Arrow type of media, which are bytes in Python, read from a file if necessary."""
    pa = pyarrow()

    class Value(pa.ExtensionScalar):  # type: ignore[name-defined, misc]  # pyarrow has no types
        def as_py(self, **options: Any) -> Any:
            stored = super().as_py(**options)
            return None if stored is None else _content(stored)

    class Media(pa.ExtensionType):  # type: ignore[name-defined, misc]  # pyarrow has no stubs
        read_as_it_is = True

        def __init__(self) -> None:
            stored = pa.struct([("bytes", pa.large_binary()), ("path", pa.large_string())])
            super().__init__(stored, "jreader.media")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

        def __arrow_ext_scalar_class__(self) -> type[Value]:
            return Value

    return Media()


def _content(stored: dict[str, Any]) -> bytes:
    data, path = stored["bytes"], stored["path"]
    if data is not None:
        return bytes(data)
    if path is None:
        raise DamagedData("a value of an image, or of other media, has neither bytes nor a path.")
    try:
        file = open_file(path)
        return file.read(0, file.size)
    except FileNotFoundError:
        raise changed(path, "cannot be found any more") from None


class DatasetTable:
    """The table of a data set, and the order of its rows.

    Cursors and hashes treat it as an array: they use its length, and some rows.

    Args:
        dataset: A `datasets.Dataset`.
    """

    dtype, nbytes = "Dataset", 0

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Hash some rows."""
        table, order = self.table, self.order
        places = list(spread(len(self), _LOOKED_AT))
        rows = places if order is None else order[places].tolist()
        values = [repr(table.slice(row, 1).to_pylist()) for row in rows]
        return np.array([text_hash(self.shape, str(table.schema), *values)])

    @property
    def shape(self) -> tuple[int]:
        """The number of rows."""
        return (len(self.dataset),)

    @cached_property
    def table(self) -> Any:
        """The Arrow table, with the columns that the format of the data set selects."""
        table, features = self.dataset.data.table, self.dataset.features or {}
        left = (self.dataset.format or {}).get("columns") or table.column_names
        columns = {name: table.column(name) for name in table.column_names if name in left}
        return pyarrow().table(
            {name: with_media(column, features.get(name)) for name, column in columns.items()}
        )

    @cached_property
    def order(self) -> Array | None:
        """The table row of each row of the data set; None if they are the same."""
        mapping = getattr(self.dataset, "_indices", None)  # there is no public way
        if mapping is None:
            return None
        order: Array = mapping.table.column(0).combine_chunks().to_numpy().view(np.int64)
        return order

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the data set; one in files is pickled as their names."""
        return DatasetTable, (self.dataset,)


def _checked_dataset(call: str, dataset: Any) -> DatasetTable:
    """Return the table of a data set.

    Raises:
        TypeError: It is not one data set.
        ValueError: A function is applied to its rows.
    """
    if isinstance(dataset, DatasetTable):
        return dataset
    if isinstance(dataset, Mapping):
        names = ", ".join(map(repr, dataset))
        raise TypeError(f"{call} needs one data set, not several: choose a split of {names}.")
    if not hasattr(dataset, "features") or not hasattr(getattr(dataset, "data", None), "table"):
        stream = hasattr(dataset, "features") and hasattr(dataset, "__iter__")
        hint = (
            "a stream is a reader as it is, Pipeline(lambda: dataset)"
            if stream
            else "give what datasets.load_dataset(name, split='train') returns"
        )
        raise TypeError(f"{call} needs a datasets.Dataset, not {described(dataset)}: {hint}.")
    if (dataset.format or {}).get("type") == "custom":
        raise ValueError(
            f"{call} reads the columns as they are stored, and this data set has a function that "
            f"is applied to rows when they are read: give dataset.with_format(None), and the "
            f"function to map, or use source(dataset)."
        )
    return DatasetTable(dataset)


@op
class huggingface(Table[Any]):
    """Read the rows of a Hugging Face data set from its Arrow columns.

    Nothing is copied or decoded row by row: numbers are gathered from the data set's memory or
    mapped files, as in `arrow`. Images and other media stay encoded bytes: as stored, or read from
    their files where the data set has only paths, as `imagefolder` does. The order of a shuffled,
    sorted or filtered data set is kept.

    >>> from datasets import Dataset
    >>> from jreader import batch
    >>> digits = Dataset.from_dict({"image": [[0.5, 0.0], [0.0, 1.0]], "label": [5, 0]})
    >>> rows = huggingface(digits, columns=["label"])
    >>> rows, next(iter(batch(rows, 2)())).columns
    (huggingface(Dataset[2], columns=['label']), {'label': array([5, 0])})

    Args:
        dataset: A `datasets.Dataset`. Of its format, only the choice of columns is applied.
        columns: The columns to read, in the order of the samples' fields; for a struct, also single
            fields (`"answer.text"`). None for all columns. A single str gives bare values instead
            of dicts.
        nulls: Replacements for nulls, by column: `{"age": -1}`, `{"ids[]": 0}` for the values of
            lists, `{"messages[].name": None}` for an optional key of dicts in a list (None keeps
            nulls as None, there and inside). Without it, a null is an error.

    Raises:
        TypeError: It is not a `datasets.Dataset`: choose a split of a `DatasetDict`; for an
            `IterableDataset`, type `Pipeline(lambda: dataset)`.
        ValueError: A function is applied to its rows when they are read (`set_transform`); or, when
            a pass begins, there is no such column, or it has nulls.
    """

    shown_call = "huggingface(dataset, columns, nulls)"
    dataset: Any = argument(_checked_dataset)
    names: tuple[str, ...] | str | None = argument(checked_names, default=None)
    nulls: Mapping[str, Any] | None = argument(checked_nulls, default=None)

    def __init__(
        self,
        dataset: Any,
        columns: Sequence[str] | str | None = None,
        nulls: Mapping[str, Any] | None = None,
    ) -> None:
        pyarrow()
        set_fields(self, dataset=dataset, names=columns, nulls=nulls)
        convert_fields(self)

    @cached_property
    def columns(self) -> Any:
        """The columns of the table, over its own memory."""
        table, nulls = self.dataset.table, self.nulls or {}
        check_fills(nulls, self.names or table.column_names)
        return columns_in(table, self.names, Nulls("the data set", 0, nulls, as_stored=True))

    def plane(self) -> Plane:
        """Return the index plane: the table rows, in the order of the data set."""
        plane, order = super().plane(), self.dataset.order
        if order is None:
            return plane
        return plane.reordered(
            len(order), lambda indices: indices.__array_namespace__().asarray(order)[indices]
        )

    def length(self) -> int:
        """Return the number of rows."""
        return len(self.dataset)

    def file_paths(self) -> list[str]:
        """Return the files that the data set is mapped from; [] if it is in memory."""
        return [each["filename"] for each in self.dataset.dataset.cache_files]

    def revision(self) -> str:
        """Return its name, configuration, version and split, and its repositories' revisions."""
        data = self.dataset.dataset
        known = (data.info.dataset_name, data.info.config_name, data.info.version, data.split)
        commits = _COMMIT.findall("\n".join(data.info.download_checksums or ()))
        return " ".join([*map(str, filter(None, known)), *sorted({*commits})])

    def __repr__(self) -> str:
        """Return the call that makes this reader."""
        return typed_call(self, f"Dataset[{len(self.dataset)}]", typed_arguments(self))
