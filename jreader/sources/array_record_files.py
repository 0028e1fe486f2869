"""`arrayrecord`: read byte records by number, in the format of Grain and MaxText."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from jreader.extras import extra
from jreader.readers import argument, op
from jreader.readers.columns import Array, Objects, gathered_in_order
from jreader.readers.joined_columns import begins, locate
from jreader.sources.columns import FileTable
from jreader.sources.file_checks import changed, damaged
from jreader.sources.files.block_store import Store, checked_store
from jreader.sources.files.copies import local_copy
from jreader.sources.files.file_readers import FileReader, Paths
from jreader.sources.files.index_cache import in_threads
from jreader.sources.files.magic_numbers import first_bytes
from jreader.sources.files.stored_files import open_file

_EXPECTED = "an ArrayRecord file"
_OPTIONS = (
    "readahead_buffer_size:0,max_parallelism:0"  # a single record in 4 us instead of 13 or 2000
)
_OPEN = 256  # files that a thread keeps open


def array_record() -> Any:
    """Import the module of the package array_record that reads files.

    Raises:
        ModuleNotFoundError: It is not installed.
    """
    module = "array_record.python.array_record_module"
    return extra(module, "arrayrecord", "this needs array-record")


@op
class arrayrecord(FileReader[bytes], FileTable[bytes]):
    """Read the records of ArrayRecord files by number; samples are bytes.

    >>> from tempfile import TemporaryDirectory
    >>> from array_record.python.array_record_module import ArrayRecordWriter
    >>> with TemporaryDirectory() as folder:
    ...     writer = ArrayRecordWriter(f"{folder}/train.arrayrecord", "group_size:1")
    ...     _ = [writer.write(record) for record in (b"zero", b"one", b"two")]
    ...     writer.close()
    ...     list(arrayrecord(f"{folder}/*.arrayrecord")())
    [b'zero', b'one', b'two']

    Map a function that decodes the records: `Pipeline(arrayrecord(paths)).map(parse)`. For reading
    in random order, write files with `group_size:1`: to read one record of a larger group, all of
    its records are unpacked.

    Args:
        paths: A file, a folder (its `.arrayrecord` and `.array_record` files), a pattern such as
            `"data/*.arrayrecord*"`, or a list of these: one sequence, in that order. The files of a
            folder or pattern are sorted by name. When the first pass begins, remote files (such as
            `s3://`) are copied into temporary folders.
        store: Caches blocks of remote files on disk (`Store`).

    Raises:
        ModuleNotFoundError: array-record is not installed:
            `python -m pip install 'jreader[arrayrecord]'`.
        TypeError: A path is neither a str nor an `os.PathLike`.
        FileNotFoundError: A file does not exist, or a pattern or folder matches no file.
        DamagedData: When a pass begins, or reaches the record: a file is truncated, of another
            format, or has changed since it was first read, or a checksum does not match.
    """

    shown_call = "arrayrecord(paths)"
    suffixes = (".arrayrecord", ".array_record")
    paths: tuple[str, ...]
    store: Store | None = argument(checked_store, default=None, cursor="never")

    def __init__(self, paths: Paths, *, store: Store | None = None) -> None:
        array_record()
        self.keep(paths, store=store)

    def opened(self) -> Objects:
        """Return a column of the records; this reads the indices of the files."""
        paths = in_threads(partial(local_copy, store=self.store), self.paths)
        counts = in_threads(_count, paths)
        files = list(zip(paths, counts, strict=True))
        make = partial(_records, _OpenReaders(), files, np.array(begins(counts)))
        return _Records(sum(counts), make, name="bytes")


class _Records(Objects):
    """Records of several files, gathered file by file to open each file once."""

    def gather(self, rows: Array) -> list[bytes]:
        """Return those records as a list."""
        return gathered_in_order(rows, self.each)


class _OpenReaders(threading.local):
    """The open readers of one thread; array_record does not let other threads use them."""

    def __init__(self) -> None:
        self.readers = dict[str, Any]()

    def of(self, path: str, many: int) -> Any:
        """Return the reader of a file that has `many` records."""
        reader = self.readers.get(path)
        if reader is None:
            while len(self.readers) >= _OPEN:
                self.readers.pop(next(iter(self.readers)))  # closes once its last read ends
            reader = _record_reader(path)
            if (now := reader.num_records()) != many:
                raise changed(path, f"had {many:,} records, and has {now:,} now")
            self.readers[path] = reader
        return reader


def _records(
    readers: _OpenReaders, files: Sequence[tuple[str, int]], starts: Array, rows: Array
) -> Iterator[bytes]:
    """Yield those records.

    Raises:
        DamagedData: A record cannot be read; earlier ones were yielded.
    """
    which, local = locate(starts, rows)
    reader: Any = None
    latest = -1
    for file, record in zip(which.tolist(), local.tolist(), strict=True):
        if file != latest:
            latest, reader = file, readers.of(*files[file])
        try:
            reader.seek(record)  # for one record, faster than `read([record])`
            yield reader.read()
        except (RuntimeError, ValueError, IndexError) as error:
            raise damaged(files[file][0], _EXPECTED, f"record {record:,}: {error}") from error


def _count(path: str) -> int:
    """Return the number of records in a file.

    Raises:
        DamagedData: It is not an ArrayRecord file.
    """
    reader = _record_reader(path)
    many = int(reader.num_records())
    reader.close()
    return many


def _record_reader(path: str) -> Any:
    reader = array_record().ArrayRecordReader(os.fsencode(path), _OPTIONS)
    if reader.ok():
        return reader
    file = open_file(path)
    head = file.read(0, min(file.size, 16))
    seen = "it is empty" if not head else first_bytes(head)
    raise damaged(path, _EXPECTED, f"its index cannot be read, and {seen}")
