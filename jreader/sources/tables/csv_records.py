"""Where the records of CSV end: at the newlines (LF, CR LF or CR) that stand in no quotes.

A quote opens where a field begins, and nowhere else; two in quotes stand for one. So whether a
newline ends a record depends on all that stands before it, and parts of a file are cut one after
another, each where a record ends. The expression that finds these places passes from quote to
quote, and what has no quote is not looked at byte by byte.
"""

from __future__ import annotations

import gzip
import re
import sys
import zlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.files.file_objects import FileObject
from jreader.sources.unpacked_sizes import check_unpacked

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
OPEN = "a quote is open in it, and never closed"
_BLOCK = 1 << 20  # bytes of the records that are decoded at once
_AT_ONCE = 1 << 24  # bytes that are read at once
_LONGEST = 1 << 28  # bytes of a record: more are one whose quote is not closed


class Block(NamedTuple):
    """Records that lie together, or one that cannot be read.

    Attributes:
        begin: The byte at which they begin, counted in the unpacked file.
        data: Their bytes.
        wrong: What is wrong with it, of one that is known not to be readable.
    """

    begin: int
    data: bytes
    wrong: str = ""


@lru_cache(32)
def record(delimiter: str) -> re.Pattern[bytes]:
    r"""What matches one record, with the newline that ends it.

    >>> record(",").match(b'1,"two\nlines, ""2"" "\n3,4\n').group()
    b'1,"two\nlines, ""2"" "\n'
    """
    return re.compile(_record(delimiter))


def end_of_records(data: bytes, low: int, high: int, delimiter: str, *, last: bool) -> int:
    r"""The byte at which the last of some records ends; `low` if none does.

    >>> end_of_records(b'1\n"2\n', 0, 5, ",", last=False)
    2
    >>> end_of_records(b"1\n2", 0, 3, ",", last=True)
    3

    Args:
        data: Records; one begins at `low`.
        low: Where to begin.
        high: Where to stop.
        delimiter: What stands between fields.
        last: Whether the file ends there, and the last record may lack its newline.
    """
    if data.find(b'"', low, high) < 0:
        newline = data.rfind(b"\n", low, high)
        newline = data.rfind(b"\r", low, high) if newline < 0 else newline
        return high if last else max(newline + 1, low)
    if not last or data.endswith((b"\n", b"\r"), low, high):
        found = _records_pattern(delimiter).match(data, low, high)
        return found.end() if found else low
    found = _records_pattern(delimiter).match(data[low:high] + b"\n")
    return min(low + found.end(), high) if found else low


def blocks(file: ByteFile, begin: int, delimiter: str, *, packed: bool) -> Iterator[list[Block]]:
    """The records of a file from a byte on, in blocks of about a megabyte, several at a time.

    A packed file is one block. The last block may be a record that is wrong.
    """
    if packed:
        yield _unpacked_block(file, begin, delimiter)
        return
    at, data = begin, b""
    while at + len(data) < file.size:
        here = at + len(data)
        more = max(_AT_ONCE, len(data))  # as much again: a record may be long, or a quote open
        data += file.read(here, min(more, file.size - here))
        last = at + len(data) == file.size
        cuts = [0, *_cuts(data, delimiter, last=last)]
        some = [Block(at + low, data[low:high]) for low, high in pairwise(cuts)]
        at, data = at + cuts[-1], data[cuts[-1] :]
        if data and (last or len(data) > _LONGEST):
            yield [*some, Block(at, data, OPEN)]
            return
        yield some


def unpacked(file: ByteFile, most: int | None = None) -> tuple[bytes, str]:
    """The bytes of a gzip file, as many as can be unpacked, and what is wrong with the next one.

    Args:
        file: The file.
        most: How many are wanted; None for all.

    Raises:
        DamagedData: They are too many for the memory (`check_unpacked`).
    """
    source = FileObject(file)
    parts, wrong, left = list[bytes](), "", sys.maxsize if most is None else most
    size = 0
    with gzip.GzipFile(fileobj=source, mode="rb") as opened:
        try:
            while left and (part := opened.read1(min(left, _BLOCK))):
                parts.append(part)
                left, size = left - len(part), size + len(part)
                check_unpacked(file.path, size, file.size)
        except (EOFError, OSError, zlib.error) as error:
            if source.error is not None:  # of our own: the file has changed, or cannot be reached
                raise source.error from None
            wrong = f"it cannot be unpacked from there on, {error}"
    return b"".join(parts), wrong


def _record(delimiter: str) -> bytes:
    one = re.escape(delimiter.encode())
    opening = rb'(?<![^%s\r\n])"' % one
    quoted = opening + rb'[^"]*+(?:""[^"]*+)*+"'
    literal = rb'(?<=[^%s\r\n])"' % one
    return rb'[^"\r\n]*+(?:(?:%s|%s)[^"\r\n]*+)*+(?:\r\n?|\n)' % (quoted, literal)


@lru_cache(32)
def _records_pattern(delimiter: str) -> re.Pattern[bytes]:
    return re.compile(rb"(?:%s)*+" % _record(delimiter))


def _cuts(data: bytes, delimiter: str, *, last: bool) -> Iterator[int]:
    """Where blocks end in some bytes; what is left over goes on behind them, or is not whole."""
    low = 0
    while low < len(data):
        end, high = low, low
        while end == low and high < len(data):
            high = min(max(2 * high - low, low + _BLOCK), len(data))
            at_end = high == len(data)
            if at_end and not last and low:
                return  # it goes on
            end = end_of_records(data, low, high, delimiter, last=last and at_end)
        if end == low:
            return
        yield end
        low = end


def _unpacked_block(file: ByteFile, begin: int, delimiter: str) -> list[Block]:
    data, wrong = unpacked(file)
    end = end_of_records(data, begin, len(data), delimiter, last=not wrong)
    found = [Block(begin, data[begin:end])] if end > begin else []
    if wrong or end < len(data):
        found.append(Block(end, data[end:], wrong or OPEN))
    return found
