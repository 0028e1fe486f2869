"""Remote files (S3, GCS, HTTP) through fsspec: their state, byte ranges, and names.

`retries.py` sends the requests. fsspec returns only the body of a response, but its headers say
which file and which bytes it holds. A web server may not support `If-Match`, or may send a
different range, and the file may have been replaced since it was found.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any

from jreader.extras import extra
from jreader.readers.credentials import masked
from jreader.sources.retries import (
    FileReplaced,
    RangesUnsupported,
    TruncatedResponse,
    request,
    request_once,
    retried,
    run_all,
    run_one,
)

_FRESH = 30.0  # seconds until a file is checked again: each pass begins by checking all
_MAX_PENDING = 32  # files to check at the same time

_SPAN = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*(::[^:/]+)*://")
_STATES = ("ETag", "etag", "generation", "md5Hash", "content_md5", "blob_id", "sha256", "checksum")
_TIMES = ("mtime", "LastModified", "last_modified", "Last-Modified", "updated", "modified")


@dataclass(frozen=True)
class RemoteState:
    """The state of a remote file, with attributes as in `os.stat_result`.

    Attributes:
        st_size: The size in bytes.
        stamp: Identifies this state: a hash of its size, ETag and modification time, as far as the
            file system knows them.
        etag: The ETag, or "".
        date: The modification date that a web server sent, or "".
        known: True if the stamp depends on more than the size.
    """

    st_size: int
    stamp: str
    etag: str = ""
    date: str = ""
    known: bool = True

    @property
    def st_ino(self) -> str:
        """The stamp."""
        return self.stamp

    st_mtime_ns = st_ino

    def stamp_of(self, path: str) -> str:
        """Return a stamp that identifies this state of the file at a path.

        The stamp includes the URL if a web server sends no ETag and the query may select the file.
        If nothing distinguishes states, it is a new text each time.
        """
        if not self.known:
            return secrets.token_hex(8)
        if self.etag or "?" not in path:
            return self.stamp
        of = f"{self.stamp}\n{path}".encode(errors="surrogateescape")
        return blake2b(of, digest_size=8).hexdigest()


def is_remote(path: str) -> bool:
    """Return whether a path is remote: it begins with a protocol.

    >>> is_remote("s3://bucket/part-0.jsonl"), is_remote("data/part-0.jsonl"), is_remote("C:/data")
    (True, False, False)
    """
    return "://" in path and _REMOTE.match(path) is not None


def remote_among(paths: Sequence[str]) -> list[int]:
    """Return the indices of the remote paths.

    >>> remote_among(["a.jsonl", "s3://bucket/a.jsonl"])
    [1]
    """
    return [at for at, path in enumerate(paths) if "://" in path and is_remote(path)]


def system_of(path: str) -> tuple[Any, str]:
    """Return the file system of a path, and the file's name in it.

    Raises:
        ModuleNotFoundError: fsspec, or a package that it needs for this protocol, is not installed.
        ValueError: The protocol is unknown.
    """
    core = extra("fsspec", "far", f"{masked(path)!r} needs fsspec").core
    where = path if "::" in path else "/".join(path.split("/", 3)[:3])
    system = _SYSTEMS.get((os.getpid(), where))
    if system is not None:
        return system, core.url_to_fs(path)[1] if "::" in path else core.strip_protocol(path)
    try:
        system, name = core.url_to_fs(path)
    except ImportError as error:
        error.add_note(f"{masked(path)!r} needs one more package for fsspec: see the line above")
        raise
    except ValueError as error:
        if "rotocol" not in str(error):
            raise
        raise ValueError(
            f"{masked(path)!r} begins with a protocol that fsspec does not know ({error}): it "
            "knows http, https, s3, gs, hf, memory and others."
        ) from None
    return _SYSTEMS.setdefault((os.getpid(), where), system), name


def remote_states(paths: Sequence[str]) -> list[RemoteState | None]:
    """Return the states of remote files, at most seconds old; None for missing files.

    Files are checked in parallel.

    Raises:
        OSError: A file cannot be reached.
    """
    now = time.monotonic()
    old = [path for path in dict.fromkeys(paths) if now - _SEEN.get(path, _NEVER)[0] > _FRESH]
    looks = [partial(_look, path, *system_of(path)) for path in old]
    for path, state in zip(old, run_all(looks, _MAX_PENDING), strict=True):
        _SEEN[path] = now, state
    return [_SEEN[path][1] for path in paths]


def forget(path: str) -> None:
    """Drop the cached state of a file."""
    _SEEN.pop(path, None)


def remote_matches(path: str, suffixes: tuple[str, ...]) -> list[str] | None:
    """Return the files of a remote folder or pattern, unordered; None if the path is a file.

    A folder is a path that ends in a slash, or one that the file system calls a folder.

    Raises:
        OSError: It cannot be reached.
    """
    infos = _remote_infos(path, *system_of(path))
    if infos is None:
        return None
    if "*" not in path:
        infos = [info for info in infos if info["name"].endswith(suffixes)]
    names = [info["name"] for info in infos if not _is_dir(info)]
    if "::" in path:
        begin = path[: path.index("://")]
        return [f"{begin}://{name}" for name in names]
    unstrip = system_of(path)[0].unstrip_protocol
    return [unstrip(name) for name in names]


def remote_entries(path: str, *, deep: bool = False) -> dict[str, bool]:
    """List a remote folder as {name: whether it is a folder}; {} if the path is not a folder.

    Args:
        path: The folder.
        deep: Whether to list all files below instead, at any depth.

    Raises:
        OSError: It cannot be reached.
    """
    system, name = system_of(path)
    system.invalidate_cache()
    what, method = f"the list of files of {masked(path)}", "find" if deep else "ls"
    inside = f"{name.rstrip('/')}/"
    try:
        found = run_one(partial(request, system, method, what, inside, detail=True))
    except FileNotFoundError:
        return {}
    infos = found.values() if isinstance(found, dict) else found
    named = {info["name"].rstrip("/"): _is_dir(info) for info in infos if "name" in info}
    return {name.removeprefix(inside): named[name] for name in named if name.startswith(inside)}


def _remote_infos(path: str, system: Any, name: str) -> list[dict[str, Any]] | None:
    """Return the entries of a folder, or the matches of a pattern; None for a file."""
    web = path.startswith("http")  # in a URL, a question mark begins the query
    what = f"the list of files of {masked(path)}"
    system.invalidate_cache()
    if any(mark in path for mark in ("*" if web else "*?[")):
        return [*run_one(partial(request, system, "glob", what, name, detail=True)).values()]
    info = partial(_info, path, system, name)
    if path.endswith("/") or (not web and _is_dir(run_one(info))):
        return list(run_one(partial(request, system, "ls", what, name, detail=True)))
    return None


async def range_of(path: str, offset: int, size: int, state: RemoteState) -> bytes:
    """Read a range of a remote file, with retries.

    Args:
        path: The file.
        offset: The first byte.
        size: The number of bytes.
        state: The state of the file when it was found.

    Raises:
        OtherFile: The web server has a different file now.
        TimeoutError: The last try timed out.
        OSError: The range cannot be read for another reason, which the message says.
    """
    system, name = system_of(path)

    async def attempt() -> bytes:
        if is_web(path) and hasattr(system, "set_session"):
            return await web_range(system, name, offset, size, state)
        data = await request_once(system, "cat_file", name, start=offset, end=offset + size)
        return exact_bytes(bytes(data), size)

    try:
        return await retried(f"bytes {offset:,} to {offset + size:,} of {masked(path)}", attempt)
    except RangesUnsupported as error:
        raise OSError(
            f"{masked(path)} is served without ranges: {error}. Copy the file to this machine, or "
            f"to a server that gives ranges."
        ) from None


async def web_range(system: Any, url: str, offset: int, size: int, state: RemoteState) -> bytes:
    """Request a range of a file from a web server once.

    Raises:
        OtherFile: The size, ETag or date differs from when the file was found.
        ShortAnswer: Too few bytes were sent, or others.
        NoRanges: The server does not support ranges.
        FileNotFoundError: The file does not exist (any more).
    """
    options = dict(system.kwargs)
    headers = {
        **options.pop("headers", {}),
        "Accept-Encoding": "identity",
        "Range": f"bytes={offset}-{offset + size - 1}",
    }
    if state.etag.startswith('"'):  # a strong ETag
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
    """Return the bytes if their number is right.

    Raises:
        ShortAnswer: There are fewer.
        NoRanges: There are more.
    """
    if len(data) < size:
        raise TruncatedResponse(f"{len(data):,} of {size:,} bytes came")
    if len(data) > size:
        raise RangesUnsupported(f"{size:,} bytes were asked for, and more came")
    return data


def _check_state(headers: Any, state: RemoteState) -> None:
    """Compare the states by ETag; without one, by date, which is exact to a second."""
    etag, date = headers.get("ETag", ""), headers.get("Last-Modified", "")
    if etag and state.etag:
        same = etag.removeprefix("W/") == state.etag.removeprefix("W/")
    else:
        same = not date or not state.date or date == state.date
    if not same:
        raise FileReplaced("the server has another file now")


def _check_span(answer: Any, offset: int, size: int, state: RemoteState) -> None:
    if answer.status != 206:
        if offset or size != state.st_size or answer.content_length not in (None, size):
            raise RangesUnsupported(f"{size:,} bytes were asked for, and the whole file came")
        return
    said = answer.headers.get("Content-Range", "nothing")
    span = _SPAN.fullmatch(said.strip())
    if span is None or (int(span[1]), int(span[2])) != (offset, offset + size - 1):
        raise TruncatedResponse(
            f"bytes {offset}-{offset + size - 1} were asked for, and the answer says: {said}"
        )
    if span[3] not in ("*", str(state.st_size)):
        raise FileReplaced(f"the file had {state.st_size:,} bytes, and has {int(span[3]):,} now")


def is_web(path: str) -> bool:
    """Return whether a web server has the file; its responses identify the file."""
    return path.startswith(("http://", "https://"))


async def _info(path: str, system: Any, name: str) -> dict[str, Any]:
    """Return the file system's info on a file or folder; {} if it does not exist."""
    try:
        return dict(await request(system, "info", f"the size of {masked(path)}", name))
    except FileNotFoundError:
        return {}


def _is_dir(info: dict[str, Any]) -> bool:
    return info.get("type") == "directory"


async def _look(path: str, system: Any, name: str) -> RemoteState | None:
    """Return the current state of a file; None if it does not exist."""
    system.invalidate_cache()
    info = await _info(path, system, name)
    if not info or _is_dir(info):
        return None
    size = info.get("size")
    if size is None:
        raise OSError(
            f"{masked(path)}: the server does not say how many bytes it has, so no range of it can "
            f"be read. Copy the file to this machine."
        )
    facts = [str(info[key]) for key in (*_STATES, *_TIMES) if info.get(key) is not None]
    if not facts and info.get("created"):  # such as memory://
        facts = [str(info["created"])]
    text = "\n".join([str(size), *facts])
    stamp = blake2b(text.encode(), digest_size=8).hexdigest()
    etag, date = (str(info.get(key) or "") for key in ("ETag", "Last-Modified"))
    return RemoteState(int(size), stamp, etag, date, bool(facts))


_SYSTEMS = dict[tuple[int, str], Any]()
"""The file systems, one per process and server; fsspec has one per thread."""

_SEEN: dict[str, tuple[float, RemoteState | None]] = {}
_NEVER = (float("-inf"), None)
