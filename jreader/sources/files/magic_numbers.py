"""Recognize file formats by their first bytes, and flat files of numbers by more evidence.

A file of numbers may contain any bytes. So a magic number of two or three bytes is not enough
there, since it may be a token; suffixes, lengths that fit the file, and text throughout are
evidence too.
"""

from __future__ import annotations

import struct
from importlib import import_module
from itertools import islice
from pathlib import Path

from jreader.sources.files.byte_ranges import ByteFile, FetchedRanges

_HEAD = 4096  # bytes to check
_TEXT = 32  # bytes at least: fewer could be numbers
_LINES = b"\t\n\r\f"
_ENOUGH = 4  # bytes of a magic number: fewer could be a number

_KINDS = {  # the format, and advice to append
    b"\x1f\x8b": ("a gzip file", ": unpack it (gunzip)"),
    b"\x28\xb5\x2f\xfd": ("a zstd file", ": unpack it (unzstd)"),
    b"BZh": ("a bzip2 file", ": unpack it (bunzip2)"),
    b"\xfd7zXZ\0": ("an xz file", ": unpack it (unxz)"),
    b"PK\x03\x04": ("a zip file", ", such as .npz or PyTorch's: read .npz with npz(path)"),
    b"PAR1": ("a Parquet file", ": type parquet(path)"),
    b"ARROW1": ("an Arrow file", ": type arrow(path)"),
    b"\x89HDF": ("an HDF5 file", ": give its data set to source(data, batched=True)"),
    b"\x93NUMPY": ("a .npy file", ": type npy(path)"),
    b"MMIDIDX\0\0": ("the .idx of a .bin file", ""),
}
_GZIP = (b"\x1f\x8b\x08\x00", b"\x1f\x8b\x08\x08")  # deflated, without a file name and with one
_ARROW, _PARQUET = map("".join, (_KINDS[b"ARROW1"], _KINDS[b"PAR1"]))
_TENSORS = "a safetensors file: load it, and give its arrays to arrays(...)"
_PICKLE = "a pickle: load it, and give its arrays to arrays(...) or ragged(...)"
_TEXT_FILE = "text: read it with text(path), and turn it into tokens in a map"
_ENDS = {
    ".safetensors": _TENSORS,
    ".arrow": _ARROW,
    ".feather": _ARROW,
    ".parquet": _PARQUET,
    **dict.fromkeys((".pkl", ".pickle", ".pt", ".pth"), _PICKLE),
}
_ENDS_OF_TEXT = {
    ".txt": _TEXT_FILE,
    ".jsonl": "JSON Lines: type jsonl(path)",
    ".csv": "a CSV file: type csv(path)",
}


def known_format(head: bytes) -> str | None:
    """Return the format of a file that begins so; None if its bytes do not show it.

    >>> known_format(b"PAR1..."), known_format(b"{}")
    ('a Parquet file', None)
    """
    return next((kind for begin, (kind, _) in _KINDS.items() if head.startswith(begin)), None)


def first_bytes(head: bytes) -> str:
    """Describe, for errors, the first bytes of a file in an unexpected format.

    >>> first_bytes(b"PAR1..."), first_bytes(b"abc")
    ('its first bytes are those of a Parquet file', 'it begins with the bytes [61 62 63]')
    >>> first_bytes(bytes([0x1f, 0x8b, 8]))
    'its first bytes are those of a gzip file, in which no sample can be found by its number: unpack
    it (gunzip)'
    """
    found = [said for begin, said in _KINDS.items() if head.startswith(begin)]
    if not found:
        return f"it begins with the bytes [{head[:16].hex(' ')}]"
    ((kind, more),) = found
    packed = f", in which no sample can be found by its number{more}" if "unpack" in more else ""
    return f"its first bytes are those of {kind}{packed}"


def foreign_format(file: ByteFile, itemsize: int) -> str | None:
    """Return the format and what to type if a file does not hold flat numbers; else None.

    >>> from tempfile import TemporaryDirectory
    >>> from jreader.sources.files import open_file
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.bin").write_text("no tokens " * 10)
    ...     file = open_file(f"{folder}/a.bin")
    ...     foreign_format(file, 2), foreign_format(file, 1)
    ('text: read it with text(path), and turn it into tokens in a map', None)

    Args:
        file: The file.
        itemsize: The bytes per number; single bytes may be letters.
    """
    ends = _ENDS | _ENDS_OF_TEXT if itemsize > 1 else _ENDS
    return ends.get(Path(file.path).suffix.lower()) or _format_by_bytes(file, itemsize)


def _format_by_bytes(file: ByteFile, itemsize: int) -> str | None:
    head, last = file.read_many(_ends_of(file))
    seen = [
        *("".join(said) for begin, said in _KINDS.items() if _begins_with(head, begin)),
        _TENSORS if _is_safetensors(head, file.size) else None,
        _PICKLE if last == b"." and _is_pickle(head) else None,
        _ARROW if _is_arrow_stream(head, file.size) else None,
        _TEXT_FILE if itemsize > 1 and _is_text(head) else None,
    ]
    return next(filter(None, seen), None)


def _begins_with(head: bytes, magic: bytes) -> bool:
    return head.startswith(magic) and (len(magic) >= _ENOUGH or head.startswith(_GZIP))


def both_ends_read(file: ByteFile) -> ByteFile:
    """Return the file with its first bytes and its last one in memory."""
    return FetchedRanges(file, _ends_of(file))


def _ends_of(file: ByteFile) -> list[tuple[int, int]]:
    return [(0, min(file.size, _HEAD)), (max(file.size - 1, 0), min(file.size, 1))]


def _is_safetensors(head: bytes, size: int) -> bool:
    """Return whether the file begins with the length of a JSON object, and that object."""
    return head[8:10] == b'{"' and bool(struct.unpack_from("<Q", head)[0] <= size - 8)


def _is_pickle(head: bytes) -> bool:
    """Return whether a pickle of protocol 2 or later begins so: its first opcodes are valid."""
    if head[:1] != b"\x80" or not 2 <= head[1] <= 5:
        return False
    if head[1] >= 4:  # with frames
        return head.startswith(b"\x95", 2)
    pickletools = import_module("pickletools")  # takes milliseconds to import
    try:
        return len([*islice(pickletools.genops(head), 8)]) > 1
    except ValueError:
        return False


def _is_arrow_stream(head: bytes, size: int) -> bool:
    """Return whether the length of a message, a multiple of 8, and its root table follow."""
    if len(head) < 12 or not head.startswith(b"\xff\xff\xff\xff"):
        return False
    length, root = struct.unpack_from("<iI", head, 4)
    return bool(0 < length <= size and length % 8 == 0 and root < length and root % 4 == 0)


def _is_text(head: bytes) -> bool:
    """Return whether it is UTF-8 without control characters; the last one may be cut off."""
    if len(head) < _TEXT:
        return False
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:
            return False
        text = head[: error.start].decode()
    return all(each.isprintable() or each in _LINES.decode() for each in text)
