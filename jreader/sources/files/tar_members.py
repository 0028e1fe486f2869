"""Parse the members of a tar archive: ustar, pax and GNU headers.

An archive holds a header of 512 bytes for each member, its data, and zeros up to the next multiple
of 512; blocks of zeros end it. Names and sizes that do not fit into a header are stored in members
of their own before it: GNU's "L", and pax's "x" and "g".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

BLOCK = 512
_ZEROS = bytes(BLOCK)
_FILES = (b"0", b"\0", b"7")
_LONG_NAME, _LONG_LINK, _PAX, _PAX_FOR_ALL, _SPARSE = b"L", b"K", b"x", b"g", b"S"
_EMPTY = 10240  # bytes of an empty archive, as tar writes it
_PADDING = 1 << 20  # zeros after the last member: at most the longest record that tar writes
_ZEROED = (
    "a disk that was full, or a copy that broke off, leaves such a file. Cut the zeros off if "
    "nothing is missing"
)
_NAMELESS = "\0"  # treat the zeros as a member, so that they are not part of the last sample
_NO_END = (
    "it does not end in blocks of zeros, as archives do, so the last sample may lack a part: if it "
    "is complete, append 1024 zero bytes"
)


class Member(NamedTuple):
    """A regular file in an archive.

    Attributes:
        name: Its name, with folders.
        header: The byte where its headers begin.
        begin: The byte where its data begin.
        size: The size of its data in bytes.
    """

    name: str
    header: int
    begin: int
    size: int


class DamagedMember(ValueError):
    """Describes the damage in an archive.

    Attributes:
        place: The byte where it is.
        member: The name and first header of the damaged member, if these are intact.
    """

    def __init__(self, place: int, said: str, member: tuple[str, int] | None = None) -> None:
        """Describe the damage and its place."""
        super().__init__(f"{said} (byte {place:,})")
        self.place, self.member = place, member


def members(
    get: Callable[[int, int], bytes], at: int, end: int, size: int
) -> Iterator[Member | None]:
    """Yield the regular files whose headers begin in a part of an archive; None for an end.

    Args:
        get: Returns bytes of the archive, given where they begin, and how many.
        at: The byte where a member begins.
        end: Where to stop.
        size: The size of the archive in bytes.

    Raises:
        DamagedMember: There is no valid header, or the archive ends before the data.
    """
    header, long_name, pax, ended = at, "", dict[str, str](), False
    while at < end:
        block = _block(get, at, size)
        ended = block == _ZEROS
        if ended:
            yield None
            at = header = _end_of_zeros(get, at, end, size)
            continue
        _check_sum(block, at)
        kind, member = block[156:157], _described(block, at, header, pax, long_name)
        _check_readable(kind, pax, member, size)
        at = member.begin + (member.size + BLOCK - 1) // BLOCK * BLOCK
        if kind == _LONG_NAME:
            long_name = _text(get(member.begin, member.size))
        elif kind == _PAX:
            pax = _pax_records(get(member.begin, member.size), member.begin)
        elif kind not in (_LONG_LINK, _PAX_FOR_ALL):
            if kind in _FILES and not member.name.endswith("/"):
                yield member
            header, long_name, pax = at, "", {}
    if at >= size and not ended:
        raise DamagedMember(size, _NO_END)


def _block(get: Callable[[int, int], bytes], at: int, size: int) -> bytes:
    if at + BLOCK > size:
        raise DamagedMember(at, f"it ends in a header of {BLOCK} bytes")
    return get(at, BLOCK)


def _end_of_zeros(get: Callable[[int, int], bytes], at: int, end: int, size: int) -> int:
    """Return where the blocks of zeros end that begin here."""
    place, most = at, _PADDING if at else _EMPTY
    while place < end and _block(get, place, size) == _ZEROS:
        place += BLOCK
        if place - at > most:
            said = f"more than {most:,} zeros stand where members may: {_ZEROED}"
            raise DamagedMember(place - BLOCK, said, (_NAMELESS, at))
    return place


def _described(block: bytes, at: int, header: int, pax: dict[str, str], long_name: str) -> Member:
    """Combine a header with the earlier ones that describe the same member."""
    name = pax.get("path") or long_name or _name(block)
    many = int(pax.get("size", 0)) or _number(block[124:136], at)
    return Member(name, header, at + BLOCK, many)


def _check_readable(kind: bytes, pax: dict[str, str], member: Member, size: int) -> None:
    """Raise DamagedMember if the archive ends before the data, or the file is sparse."""
    most, said = size - member.begin, ""
    if not 0 <= member.size <= most:
        said = f"a member has {member.size:,} bytes, and {most:,} follow"
    elif kind == _SPARSE or any(name.startswith("GNU.sparse") for name in pax):
        said = "a member is a sparse file, which cannot be read"
    if said:
        where = (member.name, member.header) if kind in _FILES else None
        raise DamagedMember(member.begin - BLOCK, said, where)


def _check_sum(block: bytes, at: int) -> None:
    """Verify the sum of all header bytes, counting those of the sum itself as spaces."""
    said = _number(block[148:156], at)
    given = sum(block) - sum(block[148:156]) + 8 * 32
    if said != given and said != given - 256 * sum(byte > 127 for byte in block):
        raise DamagedMember(at, f"no member begins there, or its checksum is not {said:,}")


def _number(field: bytes, at: int) -> int:
    """Parse a number: octal digits, or bytes if it is large."""
    if field[0] in (0o200, 0o377):
        return int.from_bytes(field[1:], signed=field[0] == 0o377)
    try:
        return int(field.partition(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        raise DamagedMember(at, "no member begins there") from None


def _name(block: bytes) -> str:
    name, prefix = _text(block[:100]), block[257:263] == b"ustar\0" and _text(block[345:500])
    return f"{prefix}/{name}" if prefix else name


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(errors="surrogateescape")


def _pax_records(content: bytes, at: int) -> dict[str, str]:
    """Parse the lines of a pax header, each a length, a name and a value."""
    records, place = dict[str, str](), 0
    try:
        while place < len(content) and content[place]:
            name, value, place = _pax_record(content, place)
            records[name] = value
        int(records.get("size", 0))
    except ValueError:
        raise DamagedMember(at + place, "a pax header cannot be read") from None
    return records


def _pax_record(content: bytes, place: int) -> tuple[str, str, int]:
    """Parse the line that begins here: return its name, its value, and where it ends."""
    space = content.index(b" ", place)
    after = place + int(content[place:space])
    name, equals, value = content[space + 1 : after - 1].partition(b"=")
    if after <= space or not equals or content[after - 1 : after] != b"\n":
        raise ValueError(name)
    return name.decode(), value.decode(errors="surrogateescape"), after
