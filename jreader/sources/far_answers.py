"""Ranges that a web server is asked for, and whether what it answers is what was asked.

fsspec hands over the bytes of an answer alone. What says which file and which bytes they are stands
in its head: a server may not know `If-Match`, may give another range, or the file may have been
replaced since it was found.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jreader.sources.far_systems import FarState

_SPAN = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class OtherFile(OSError):
    """An answer is of another file than the one that was found."""


class ShortAnswer(OSError):
    """A server sent fewer bytes than were asked for, or others."""


class NoRanges(OSError):
    """A server does not give ranges; to ask again does not help."""


async def web_range(system: Any, url: str, offset: int, size: int, state: FarState) -> bytes:
    """Those bytes of a file of a web server, which is asked once.

    Raises:
        OtherFile: It has another size, ETag or date than when it was found.
        ShortAnswer: Other bytes came, or too few.
        NoRanges: The server does not give ranges.
        FileNotFoundError: There is no such file (any more).
    """
    options = dict(system.kwargs)
    headers = {
        **options.pop("headers", {}),
        "Accept-Encoding": "identity",
        "Range": f"bytes={offset}-{offset + size - 1}",
    }
    if state.etag.startswith('"'):  # a strong one
        headers["If-Match"] = state.etag
    session = await system.set_session()
    async with session.get(system.encode_url(url), headers=headers, **options) as answer:
        if answer.status == 404:
            raise FileNotFoundError(url)
        answer.raise_for_status()
        _check_state(answer.headers, state)
        _check_span(answer, offset, size, state)
        parts, left = [], size
        while left >= 0 and (part := await answer.content.readany()):
            parts.append(part)
            left -= len(part)
    return exact_bytes(b"".join(parts), size)


def exact_bytes(data: bytes, size: int) -> bytes:
    """The bytes, if there are so many.

    Raises:
        ShortAnswer: There are fewer.
        NoRanges: There are more.
    """
    if len(data) < size:
        raise ShortAnswer(f"{len(data):,} of {size:,} bytes came")
    if len(data) > size:
        raise NoRanges(f"{size:,} bytes were asked for, and more came")
    return data


def _check_state(headers: Any, state: FarState) -> None:
    """An ETag tells states apart; without one, the date does, to the second."""
    etag, date = headers.get("ETag", ""), headers.get("Last-Modified", "")
    if etag and state.etag:
        same = etag.removeprefix("W/") == state.etag.removeprefix("W/")
    else:
        same = not date or not state.date or date == state.date
    if not same:
        raise OtherFile("the server has another file now")


def _check_span(answer: Any, offset: int, size: int, state: FarState) -> None:
    if answer.status != 206:
        if offset or size != state.st_size or answer.content_length not in (None, size):
            raise NoRanges(f"{size:,} bytes were asked for, and the whole file came")
        return
    said = answer.headers.get("Content-Range", "nothing")
    span = _SPAN.fullmatch(said.strip())
    if span is None or (int(span[1]), int(span[2])) != (offset, offset + size - 1):
        raise ShortAnswer(
            f"bytes {offset}-{offset + size - 1} were asked for, and the answer says: {said}"
        )
    if span[3] not in ("*", str(state.st_size)):
        raise OtherFile(f"the file had {state.st_size:,} bytes, and has {int(span[3]):,} now")
