"""The file of a path, wherever it is, and ranges of several files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from jreader.sources.far_systems import is_far
from jreader.sources.files.block_store import Store
from jreader.sources.files.byte_ranges import ByteFile, LocalFile
from jreader.sources.files.far_files import FarFile
from jreader.sources.files.stored_files import StoredFile


def open_file(path: str, store: Store | None = None) -> ByteFile:
    """The file of that path, to be read by ranges; it is opened when it is first read.

    A path that begins with a protocol (`s3://`, `https://`) is that of a file elsewhere, which is
    read through fsspec; a `store` keeps what was fetched of it.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "letters").write_bytes(b"abcdef")
    ...     file = open_file(f"{folder}/letters")
    ...     file.size, file.read(2, 3)
    (6, b'cde')

    Raises:
        DamagedData: There is no such file (any more).
        OSError: A file elsewhere cannot be reached.
        ModuleNotFoundError: fsspec is not installed: `python -m pip install 'jreader[far]'`.
    """
    if not is_far(path):
        return LocalFile(path)
    return FarFile(path) if store is None else StoredFile(FarFile(path), store)


def read_many(requests: Sequence[tuple[ByteFile, int, int]]) -> Iterator[bytes]:
    """The bytes of many ranges (a file, an offset, a size), in that order.

    Those of files elsewhere are asked for several at a time.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "letters").write_bytes(b"abcdef")
    ...     file = open_file(f"{folder}/letters")
    ...     list(read_many([(file, 4, 2), (file, 0, 1)]))
    [b'ef', b'a']

    Raises:
        DamagedData: A file has changed since it was found, or is gone.
    """
    for file, some in groupby(requests, itemgetter(0)):
        yield from file.read_many([(offset, size) for _, offset, size in some])
