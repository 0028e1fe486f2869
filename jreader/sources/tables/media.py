"""Media of Hugging Face's data sets: their bytes, or files that are read when a row is asked for.

They are stored as structs of bytes and a path. A data set of local files, as `imagefolder` makes
it, has only paths.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from jreader.errors import DamagedData
from jreader.sources.file_checks import changed
from jreader.sources.files.opening import open_file
from jreader.sources.tables.arrow_columns import over_fields, over_values, pyarrow

_MEDIA = ("Image", "Audio", "Video", "Pdf")  # features whose values are bytes, and a path


def with_media(column: Any, feature: Any) -> Any:
    """The column with bytes for its media, however deep in lists and dicts; others as they are.

    >>> import pyarrow as pa
    >>> class Image:
    ...     pass
    >>> kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    >>> column = pa.chunked_array([[{"bytes": b"pixels", "path": None}]], kind)
    >>> with_media(column, Image()).to_pylist()
    [b'pixels']

    Args:
        column: A `pyarrow.ChunkedArray`.
        feature: What Hugging Face says of it.
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
    """What the items of a list are; None for what is no list."""
    return feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)


def _has_media(feature: Any) -> bool:
    if isinstance(feature, dict):
        return any(map(_has_media, feature.values()))
    inner = _inner(feature)
    return _is_media(feature) if inner is None else _has_media(inner)


def _media_bytes(chunks: list[Any]) -> list[Any] | None:
    """The bytes of media; None if some lie in files."""
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
        if not isinstance(feature, dict):  # a list of dicts, which is stored as a dict of lists
            feature = {name: [part] for name, part in _inner(feature).items()}
        parts = feature
        return over_fields(
            array,
            lambda field, name: _inside(field, parts[name]) if _has_media(parts[name]) else field,
        )
    return array


def _media_files(array: Any) -> Any:
    """Media whose bytes are read from their files where they are not stored."""
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
    """The type of media whose values are bytes to Python, read from a file where need be."""
    pa = pyarrow()

    class Value(pa.ExtensionScalar):  # type: ignore[name-defined, misc]  # pyarrow has no types
        def as_py(self, **options: Any) -> Any:
            stored = super().as_py(**options)
            return None if stored is None else _content(stored)

    class Media(pa.ExtensionType):  # type: ignore[name-defined, misc]  # likewise
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
