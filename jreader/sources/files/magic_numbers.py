"""What a file is, by the bytes that it begins with."""

from __future__ import annotations

_KINDS = {
    b"\x1f\x8b": "a gzip file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ\0": "an xz file",
    b"PK\x03\x04": "a zip file",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"\x89HDF": "an HDF5 file",
    b"\x93NUMPY": "a .npy file",
    b"MMIDIDX\0\0": "the .idx of a .bin file",
}
_UNPACKED = {"gzip": "gunzip", "zstd": "unzstd", "bzip2": "bunzip2", "xz": "unxz"}


def known_format(head: bytes) -> str | None:
    """What a file is that begins so; None if its bytes do not say.

    >>> known_format(b"PAR1..."), known_format(b"{}")
    ('a Parquet file', None)
    """
    return next((kind for begin, kind in _KINDS.items() if head.startswith(begin)), None)


def first_bytes(head: bytes) -> str:
    """What errors say of the first bytes of a file that is not of the expected format.

    >>> first_bytes(b"PAR1..."), first_bytes(b"abc")
    ('its first bytes are those of a Parquet file', 'it begins with the bytes [61 62 63]')
    >>> first_bytes(bytes([0x1f, 0x8b, 8]))
    'its first bytes are those of a gzip file, in which no sample can be found by its number: unpack
    it (gunzip)'
    """
    kind = known_format(head)
    if kind is None:
        return f"it begins with the bytes [{head[:16].hex(' ')}]"
    said = f"its first bytes are those of {kind}"
    command = _UNPACKED.get(kind.split()[1])
    if command is None:
        return said
    return f"{said}, in which no sample can be found by its number: unpack it ({command})"
