"""Samples that are lines of text files, plain or gzip.

Lines are split as bytes, and decoded one by one, because only bytes can be counted and found again:
the position is a byte offset, and reading goes on there without reading what lies before (a gzip
file has to be unpacked up to there).
"""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from jreader.errors import NotResumable
from jreader.readers import Pass, Position
from jreader.sources.array_files import called, check_paths, damaged, reading
from jreader.sources.changed_files import Filed, changed

T = TypeVar("T")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, eq=False, repr=False, init=False)
class _Lines(Filed[T]):
    """One sample per line; the op says which lines, and what becomes of one."""

    paths: tuple[str, ...]

    def __init__(self, *paths: str | os.PathLike[str]) -> None:
        """Refuses what is no file."""
        object.__setattr__(self, "paths", check_paths(f"{type(self).__name__}(*paths)", paths))

    def __repr__(self) -> str:
        """The paths."""
        return called(self, *self.paths)

    def lines(self, file: Iterator[bytes]) -> Iterator[bytes]:
        """The lines that are samples."""
        return file

    def parsed(self, line: bytes) -> T:
        """The sample of a line."""
        raise NotImplementedError(f"{type(self).__name__} must define parsed(self, line)")

    def start(self, at: Position) -> Pass[T]:
        """The position is (which file, byte offset in it, unpacked)."""
        self.check_files()
        index, offset = at or (0, 0)
        file: io.BufferedReader | None = None

        def deal() -> Iterator[T]:
            nonlocal index, offset, file
            while index < len(self.paths):
                with _opened(self.paths[index]) as opened:
                    file = opened
                    try:
                        yield from self._samples(self.paths[index], opened, offset)
                    finally:
                        offset, file = opened.tell(), None
                index, offset = index + 1, 0

        items = cast("Any", deal())  # a generator, and so it can be closed
        return Pass(items, lambda: (index, file.tell() if file else offset), items.close)

    def _samples(self, path: str, file: io.BufferedReader, offset: int) -> Iterator[T]:
        parsed, expected = self.parsed, f"a file for {type(self).__name__}"
        whole = 0 if path.endswith(".gz") else os.fstat(file.fileno()).st_size
        with reading(path, expected):
            _go_to(path, file, offset)
            for line in self.lines(file):
                try:
                    sample = parsed(line)
                except (ValueError, RecursionError) as error:
                    where = f"the line at byte {file.tell() - len(line)} cannot be read, {error}"
                    raise damaged(path, expected, where) from error
                yield sample
        if file.tell() < whole:
            raise changed(path, f"had {whole:,} bytes, and ended at byte {file.tell():,}")


@dataclass(frozen=True, eq=False, repr=False, init=False)
class text(_Lines[str]):
    r"""The lines of text files, one file after another, without their ends (`\n` or `\r\n`).

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "poem.txt")
    ...     _ = path.write_bytes(b"Die Luft ist blau,\r\n\ndas Tal ist gr\xc3\xbcn")
    ...     list(text(path)())
    ['Die Luft ist blau,', '', 'das Tal ist grün']

    Args:
        *paths: At least one file; those that end in `.gz` are unpacked.
        encoding: Any encoding that writes the end of a line as the one byte `\n`.

    Raises:
        FileNotFoundError: A file is not there.
        ValueError: Lines of `encoding` do not end in the byte `\n` (UTF-16), or it is unknown.
        DamagedData: When read: a line is not of this encoding, or a gzip file is truncated.
    """

    encoding: str = "utf-8"

    def __init__(self, *paths: str | os.PathLike[str], encoding: str = "utf-8") -> None:
        """Refuses what is no file, and encodings whose lines cannot be told apart as bytes."""
        super().__init__(*paths)
        try:
            newline = b"\n".decode(encoding)
        except (LookupError, UnicodeDecodeError):
            newline = ""
        if newline != "\n":
            raise ValueError(
                f"text(*paths, encoding='utf-8') needs an encoding whose lines end in the byte "
                f"\\n, such as 'utf-8', 'latin-1' or 'gb18030', not {encoding!r}."
            )
        object.__setattr__(self, "encoding", encoding)

    def parsed(self, line: bytes) -> str:
        """The text without its end."""
        bare = line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n")
        return bare.decode(self.encoding)

    def __repr__(self) -> str:
        """The paths, and the encoding where it is not the usual one."""
        plain = called(self, *self.paths)
        return plain if self.encoding == "utf-8" else f"{plain[:-1]}, encoding={self.encoding!r})"


@dataclass(frozen=True, eq=False, repr=False, init=False)
class jsonl(_Lines[Any]):
    r"""The values of files of JSON lines, one file after another; blank lines are left out.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "reviews.jsonl")
    ...     _ = path.write_text('{"stars": 5, "words": ["so", "good"]}\n\nnull')
    ...     list(jsonl(path)())
    [{'stars': 5, 'words': ['so', 'good']}, None]

    Args:
        *paths: At least one file, in UTF-8; those that end in `.gz` are unpacked.

    Raises:
        FileNotFoundError: A file is not there.
        DamagedData: When read: a line is not JSON, or a gzip file is truncated.
    """

    def lines(self, file: Iterator[bytes]) -> Iterator[bytes]:
        """Those that hold more than white space."""
        return filter(bytes.strip, file)

    def parsed(self, line: bytes) -> Any:
        """The value."""
        return json.loads(line.removeprefix(_BYTE_ORDER_MARK).decode())


def _opened(path: str) -> io.BufferedReader:
    if not path.endswith(".gz"):
        return Path(path).open("rb")
    # lines are cut in C like this; closing it closes all that lies below
    return io.BufferedReader(cast("io.RawIOBase", gzip.open(path)))


def _go_to(path: str, file: io.BufferedReader, offset: int) -> None:
    """Moves to where a line begins; the byte before shows whether one does."""
    if not offset:
        return
    file.seek(offset - 1)
    before = file.read(1)
    if not before or (before != b"\n" and file.peek(1)):
        raise NotResumable(
            f"cannot go on at byte {offset} of {path}: no line begins there, so the file has "
            f"changed. Start at the beginning (at=None), or give it the file it had."
        )
