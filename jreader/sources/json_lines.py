"""`jsonl`: read JSON Lines by number from plain files, or streamed from gzip.

Several threads scan for newlines to find the lines. A value is parsed in place, without cutting it
out of the bytes read; only if its end is not the end of the line is the line parsed again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from json import JSONDecoder
from typing import Any

import numpy as np

from jreader.readers import Pass, Plane, Position, op
from jreader.readers.columns import Array
from jreader.sources.file_checks import damaged
from jreader.sources.files.block_store import Store
from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.files.file_readers import Paths, written
from jreader.sources.files.index_cache import in_threads
from jreader.sources.files.records import Parse, RecordFiles
from jreader.sources.text_files import LineFiles, empty_file_error

_EXPECTED = "a file for jsonl"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CHUNK = 1 << 24  # bytes that a thread scans at a time
_IN_A_ROW = 1 << 31  # bytes after which all threads synchronize
_NEWLINE = 10
_SPACES = np.zeros(256, bool)
_SPACES[list(b" \t\n\r\x0b\x0c")] = True


@op
class jsonl(LineFiles[Any], RecordFiles[Any]):
    r"""Read JSON Lines files, one after another: each line holds one JSON value.

    Each sample is the value of a line, as `json.loads` returns it; blank lines are skipped, and all
    lines may be blank. The reader is indexed: it finds lines by number, so you can shuffle it as a
    whole, shard it, and resume at any line, and it parses only the lines that a pass needs.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "reviews.jsonl")
    ...     _ = path.write_text('{"stars": 5, "words": ["so", "good"]}\n\nnull')
    ...     len(jsonl(path)), list(jsonl(path)())
    (2, [{'stars': 5, 'words': ['so', 'good']}, None])

    The first pass scans the files for line starts, on several threads. For files of 16 MB or more,
    it caches this index in `jreader/lines` of `$XDG_CACHE_HOME` or `~/.cache`, until the files
    change.

    If a file is compressed (its name ends in `.gz`), lines are streamed instead. A pass can still
    resume at any line, but has to unpack the file up to there; and `shuffle` needs a size. Unpack
    the files to avoid this.

    Args:
        *paths: At least one file in UTF-8, or a folder (its `.jsonl` files), or a pattern such as
            `"data/*.jsonl"`, or a list of these. The files of a folder or pattern are sorted by
            name. Or one part of a file, as `files(paths, parts=n)` yields it, which is streamed.
        store: Caches blocks of remote files on disk (`Store`).
        block: The size of the blocks that `shuffle(blocks=)` reads, such as "4MB"; None for none.

    Raises:
        TypeError: A path is neither a str nor an `os.PathLike`, or the store is not a `Store`.
        FileNotFoundError: A file does not exist, or a pattern or folder matches no file.
        ValueError: A file is compressed although `block` is given; or `block` is not a size.
        DamagedData: During a pass: a line is not JSON; a file is empty or has changed; or a gzip
            file is truncated, or the checksum at its end does not match.
    """

    shown_call = "jsonl(*paths)"
    suffixes = (".jsonl", ".jsonl.gz")
    kind = "lines"

    def __init__(
        self, *paths: Paths, store: Store | None = None, block: int | str | None = None
    ) -> None:
        self.keep(paths, store=store, block=block)
        if self.block is not None and self._streamed:
            raise ValueError(
                f"{self.shown_call} reads compressed files and parts of files line by line, and "
                f"cannot read {written(self.paths, self.part)} in blocks: unpack the files, or "
                "leave block out."
            )

    @property
    def _packed(self) -> bool:
        return any(path.endswith(".gz") for path in self.paths)

    @property
    def _streamed(self) -> bool:
        return self.part is not None or self._packed

    @property
    def lazy_length(self) -> bool:
        """True if line starts have not been found yet."""
        return not self._streamed and "columns" not in vars(self)

    def length(self) -> int | None:
        """Return the number of lines that are not blank; None for compressed files."""
        return None if self._streamed else len(self.columns)

    def plane(self) -> Plane | None:  # type: ignore[override]  # compressed files have none
        """Return the index plane, where sample i is line i; None for compressed files."""
        return None if self._streamed else RecordFiles.plane(self)

    def start(self, at: Position) -> Pass[Any]:
        """Start a pass; its position is the number of lines, or that of `text` if compressed."""
        return self.stream(at) if self._streamed else RecordFiles.start(self, at)

    def find(self, file: ByteFile) -> Array:
        """Return where the non-blank lines begin, and the size of the file."""
        if not file.size:
            raise empty_file_error(file.path, _EXPECTED)
        begins = list[Array]()
        for first in range(0, file.size, _IN_A_ROW):  # a server may claim any size
            end = min(first + _IN_A_ROW, file.size)
            parts = [range(low, min(low + _CHUNK, end)) for low in range(first, end, _CHUNK)]
            begins += in_threads(lambda part: _begins(file, part), parts)
        return np.concatenate([*begins, [file.size]]).astype(np.int64)

    def parser(self) -> Parse[Any]:
        """Return the function that parses lines in place."""
        return _values

    def parsed(self, line: bytes) -> Any:
        """Return the JSON value of a line of a compressed file."""
        return _value(line)


def _begins(file: ByteFile, part: range) -> Array:
    """Return where the non-blank lines begin that start in a part of a file."""
    before = min(part.start, 1)
    data = file.read(part.start - before, len(part) + before)
    read = np.frombuffer(data, np.uint8)
    begins = np.flatnonzero(read[:-1] == _NEWLINE) + 1
    if not before:
        begins = np.concatenate([[0], begins])
    first = read[begins]
    doubtful = np.flatnonzero(_SPACES[first] & (first != _NEWLINE))
    good = first != _NEWLINE
    for at in doubtful.tolist():
        good[at] = not _is_blank(file, data, part.start - before, int(begins[at]))
    kept: Array = begins[good] + (part.start - before)
    return kept


def _is_blank(file: ByteFile, data: bytes, first: int, begin: int) -> bool:
    """Return whether a line is blank; it may continue beyond these bytes."""
    end = data.find(b"\n", begin)
    line = data[begin : end if end >= 0 else len(data)]
    place = first + len(data)
    while not line.strip() and end < 0 and place < file.size:
        line = file.read(place, min(_CHUNK, file.size - place))
        place, end = place + len(line), line.find(b"\n")
        line = line[: end if end >= 0 else len(line)]
    return not line.strip()


def _values(
    file: ByteFile, offset: int, data: bytes, begins: list[int], ends: list[int]
) -> Iterator[Any]:
    """Yield the values of lines, each with the blank lines after it."""
    decode = _DECODER.raw_decode
    sparse = 2 * (sum(ends) - sum(begins)) < len(data)  # most bytes lie between the lines
    whole = data.decode("ascii") if not sparse and data.isascii() else None
    for begin, end in zip(begins, ends, strict=True):
        try:
            if whole is None:
                text = data[begin:end].decode()
                value, ended = decode(text)
                clean = len(text) - ended < 2
            else:
                value, ended = decode(whole, begin)
                clean = ended == end - 1 or ended == end
        except (ValueError, RecursionError):
            clean = False
        yield value if clean else _looked_at(file, offset + begin, data[begin:end])


def _looked_at(file: ByteFile, place: int, record: bytes) -> Any:
    line = record.partition(b"\n")[0]
    try:
        return _value(line)
    except (ValueError, RecursionError) as error:
        array = " (for one array in a file, type source(json.load(file)))" if line == b"[" else ""
        where = f"the line at byte {place} cannot be read, {error}{array}"
        raise damaged(file.path, _EXPECTED, where) from error


def _value(line: bytes) -> Any:
    return json.loads(line.removeprefix(_BYTE_ORDER_MARK).decode())


_DECODER = JSONDecoder()
