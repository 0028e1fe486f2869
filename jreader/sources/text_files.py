"""Read the lines of text files, plain or gzip: `text`, and the gzip files of `jsonl`.

The position of a pass is a byte offset, so a resumed pass seeks there and reads nothing before it
(a gzip file has to be unpacked up to there). To keep the offset exact, files are split into lines
as bytes, and each line is decoded separately.
"""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from jreader.errors import DamagedData, NotResumable
from jreader.readers import Pass, Position, argument, bad_position, checked_position, op
from jreader.readers.credentials import masked
from jreader.sources.file_checks import changed, check_unpacked, damaged, most_unpacked, reading
from jreader.sources.files.block_store import Store, checked_block, checked_store
from jreader.sources.files.byte_ranges import FileObject
from jreader.sources.files.file_parts import FilePart, Which
from jreader.sources.files.file_readers import FileReader, Paths
from jreader.sources.remote import is_remote

T = TypeVar("T")

_CHUNK = 1 << 22  # bytes of a remote file to fetch at a time


class LineFiles(FileReader[T]):
    """Read files line by line; a subclass turns a line into a sample.

    Attributes:
        blank: Whether blank lines are samples; a file may then have no lines.
        block: The bytes of a remote file to fetch at a time; None for 4 MB.
    """

    block: int | None
    blank: ClassVar[bool] = False

    def parsed(self, line: bytes) -> T:
        """Return the sample of a line."""
        raise NotImplementedError(f"{type(self).__name__} must define parsed(self, line)")

    def stream(self, at: Position) -> Pass[T]:
        """Start a pass; its position is (index of the file, byte offset in the unpacked file)."""
        self.check_files()
        index, offset = checked_position(at, (0, 0))
        if index > len(self.paths):
            raise bad_position(at, (len(self.paths), 0))
        file: io.BufferedReader | None = None

        def deal() -> Iterator[T]:
            nonlocal index, offset, file
            while index < len(self.paths):
                with self._opened(index) as (opened, size):
                    file = opened
                    try:
                        yield from self._samples(masked(self.paths[index]), opened, size, offset)
                    finally:
                        offset, file = opened.tell(), None
                index, offset = index + 1, 0

        items = cast("Any", deal())  # a generator, so it can be closed
        return Pass(items, lambda: (index, file.tell() if file else offset), items.close)

    @contextmanager
    def _opened(self, index: int) -> Iterator[tuple[Any, int]]:
        """Open a file, unpacked; yield it (it splits lines in C) and its size as stored."""
        path, block = self.paths[index], self.block or _CHUNK
        remote = FileObject(self.files[index]) if is_remote(path) else None
        with io.BufferedReader(remote, block) if remote else Path(path).open("rb") as file:
            size = remote.file.size if remote else os.fstat(file.fileno()).st_size
            yield _unpacked(masked(path), file, size) if path.endswith(".gz") else file, size

    def _samples(self, path: str, file: io.BufferedReader, size: int, offset: int) -> Iterator[T]:
        parsed, expected = self.parsed, f"a file for {type(self).__name__}"
        part = self._part_of(path, size, expected)
        with reading(path, expected):
            if offset:
                _go_to(path, file, offset)
            elif not _go_to_part(part, file):
                return
            lines = file if self.part is None else _lines_before(part.end, file)
            for line in lines if self.blank else filter(bytes.strip, lines):
                try:
                    sample = parsed(line)
                except (ValueError, RecursionError) as error:
                    where = f"the line at byte {file.tell() - len(line)} cannot be read, {error}"
                    raise damaged(path, expected, where) from error
                yield sample
        if file.tell() < part.end:
            raise changed(path, f"had {part.size:,} bytes, and ended at byte {file.tell():,}")

    def _part_of(self, path: str, size: int, expected: str) -> FilePart:
        """Return the part of a file to read; the end of a compressed file is unknown."""
        packed = path.endswith(".gz")
        if not size and (packed or not self.blank):
            raise empty_file_error(path, "a gzip file" if packed else expected)
        whole = 0 if packed else size
        part = FilePart(path, *(self.part or (0, 1, whole)))
        part.check_size(whole)
        return part


def _checked_encoding(_call: str, encoding: Any) -> str:
    if not isinstance(encoding, str):
        raise TypeError(
            f"text(*paths, encoding='utf-8') needs the name of an encoding, a str such as 'utf-8', "
            f"'latin-1' or 'gb18030', not {encoding!r}."
        )
    try:
        newline = b"\n".decode(encoding)
    except (LookupError, ValueError):
        newline = ""
    if newline != "\n":
        raise ValueError(
            f"text(*paths, encoding='utf-8') needs an encoding whose lines end in the byte \\n, "
            f"such as 'utf-8', 'latin-1' or 'gb18030', not {encoding!r}."
        )
    return encoding


@op
class text(LineFiles[str]):
    r"""Read the lines of text files, one file after another.

    Each sample is a line, as a str without the `\n` or `\r\n` at its end. A file may have no lines.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "poem.txt")
    ...     _ = path.write_bytes(b"Die Luft ist blau,\r\n\ndas Tal ist gr\xc3\xbcn")
    ...     list(text(path)())
    ['Die Luft ist blau,', '', 'das Tal ist grün']

    Args:
        *paths: At least one file, or a folder (its `.txt` files), or a pattern such as
            `"data/*.txt"`, or a list of these. The files of a folder or pattern are sorted by name.
            A file whose name ends in `.gz` is unpacked. Or one part of a file, as `files(paths,
            parts=n)` yields it.
        encoding: The encoding of the files. Its lines have to end in the single byte `\n`, so
            UTF-16 and UTF-32 cannot be read.
        store: Caches blocks of remote files on disk (`Store`).
        block: Bytes of a remote file to fetch at once, such as "16MB"; None for 4 MB.

    Raises:
        TypeError: A path is neither a str nor an `os.PathLike`, `encoding` is not a str, or the
            store is not a `Store`.
        FileNotFoundError: A file does not exist, or a pattern or folder matches no file.
        ValueError: `encoding` is unknown, or its lines do not end in the byte `\n`; or `block` is
            not a size.
        DamagedData: During a pass: a line has another encoding; or a gzip file is empty or
            truncated, or its checksum does not match. The checksum is at the end of the file, so
            earlier lines may be wrong.
    """

    shown_call = "text(*paths)"
    suffixes = (".txt", ".txt.gz")
    blank = True
    paths: tuple[str, ...]
    part: Which | None = argument(default=None, cursor="if given")
    encoding: str = argument(_checked_encoding, default="utf-8")
    store: Store | None = argument(checked_store, default=None, cursor="never")
    block: int | None = argument(checked_block, default=None, named=True, cursor="never")

    def __init__(
        self,
        *paths: Paths,
        encoding: str = "utf-8",
        store: Store | None = None,
        block: int | str | None = None,
    ) -> None:
        self.keep(paths, encoding=encoding, store=store, block=block)

    def start(self, at: Position) -> Pass[str]:
        """Start a pass; its position is (index of the file, byte offset in the unpacked file)."""
        return self.stream(at)

    def parsed(self, line: bytes) -> str:
        """Return the line as a str, without its line ending."""
        bare = line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n")
        return bare.decode(self.encoding)


def empty_file_error(path: str, expected: str) -> DamagedData:
    """Return the error for an empty file."""
    said = "it is empty; leave it out of the paths if its writer had no lines for it"
    return damaged(path, expected, said)


def _unpacked(path: str, file: Any, packed: int) -> io.BufferedReader:
    return io.BufferedReader(cast("io.RawIOBase", _BoundedLines(path, file, packed)))


class _BoundedLines(gzip.GzipFile):
    """A gzip file unpacked in chunks, with a limit on the length of lines."""

    def __init__(self, path: str, file: Any, packed: int) -> None:
        """Unpack a file of `packed` bytes."""
        super().__init__(path, "rb", fileobj=file)
        self._path, self._packed = path, packed
        self._line, self._most = 0, most_unpacked(packed)

    def readinto(self, buffer: Any, /) -> int:
        """Read the next bytes; raise if no line ends within the limit."""
        size = super().readinto(buffer)
        newline = bytes(buffer[:size]).rfind(b"\n")
        self._line = self._line + size if newline < 0 else size - newline - 1
        if self._line > self._most:
            check_unpacked(self._path, self._line, self._packed)
        return size


def _go_to_part(part: FilePart, file: io.BufferedReader) -> bool:
    """Seek to the first line that begins in a part; return whether there is one."""
    if part.begin:
        file.seek(part.begin - 1)
        before = file.readline(part.end - part.begin + 1)
        return before.endswith(b"\n") and file.tell() < part.end
    return True


def _lines_before(end: int, file: io.BufferedReader) -> Iterator[bytes]:
    """Yield the lines that begin before a byte; count bytes, as file.tell() is slow."""
    place = file.tell()
    if place < end:
        for line in file:
            yield line
            place += len(line)
            if place >= end:
                return


def _go_to(path: str, file: io.BufferedReader, offset: int) -> None:
    """Seek to an offset; raise NotResumable unless a line begins there."""
    file.seek(offset - 1)
    before = file.read(1)
    if not before or (before != b"\n" and file.peek(1)):
        raise NotResumable(
            f"cannot resume at byte {offset} of {path}: no line begins there, so the file has "
            f"changed. Start at the beginning (at=None), or give it the file it had."
        )
