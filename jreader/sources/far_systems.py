"""Files that lie elsewhere, through fsspec: what they are now, ranges of them, and their names.

Whatever fails for a moment is tried again: a connection that was dropped, half of an answer, a
server that is busy. All tries of one process run on fsspec's thread, as coroutines, so that many
ranges are on their way at the same time, and each has a clock. What a try may cost is bounded, and
the last failure is an error that names the file.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

_TRIES = 6  # the pauses between them add up to some 10 s
_CLOCK = 60.0  # seconds for one try
_PAUSE, _LONGEST = 0.3, 8.0  # seconds before the second try, which doubles, and the longest one
_FRESH = 30.0  # seconds for which a file is not looked at again: a pass begins with a look at all
_AT_ONCE = 32  # looks at files that are on their way at the same time

_FAR = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*(::[^:/]+)*://")
_STATES = ("ETag", "etag", "generation", "md5Hash", "content_md5", "blob_id", "sha256", "checksum")
_TIMES = ("mtime", "LastModified", "last_modified", "Last-Modified", "updated", "modified")
_BUSY = {408, 425, 429, 500, 502, 503, 504, 509, 520, 521, 522, 523, 524}
_OF_NETWORKS = ("aiohttp", "botocore", "urllib3", "requests", "httpx", "httpcore", "http", "ssl")
_FOR_GOOD = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


class FarState(NamedTuple):
    """What a far file is now; `os.stat` says the same of files that are here.

    Attributes:
        size: How many bytes it has.
        stamp: What tells this state from others: a hash of its size, its ETag, and when it was
            written, as far as the file system says so.
        etag: Its ETag, if a server can be asked for this one only; else "".
    """

    size: int
    stamp: str
    etag: str = ""

    @property
    def st_size(self) -> int:
        """Its size."""
        return self.size

    @property
    def st_ino(self) -> int:
        """The stamp, as a number."""
        return int(self.stamp, 16)

    @property
    def st_mtime_ns(self) -> int:
        """Likewise."""
        return self.st_ino


class ShortAnswer(OSError):
    """A server sent fewer bytes than were asked for."""


def is_far(path: str) -> bool:
    """Whether a path is that of a file elsewhere: it begins with a protocol.

    >>> is_far("s3://bucket/part-0.jsonl"), is_far("data/part-0.jsonl"), is_far("C:/data")
    (True, False, False)
    """
    return _FAR.match(path) is not None


def system_of(path: str) -> tuple[Any, str]:
    """The file system of a path, and the name that the file has in it.

    Raises:
        ModuleNotFoundError: fsspec, or what it needs for this protocol, is not installed.
        ValueError: There is no such protocol.
    """
    try:
        import fsspec  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        error.add_note(f"{path!r} needs fsspec: python -m pip install 'jreader[far]'")
        raise
    where = path if "::" in path else "/".join(path.split("/", 3)[:3])
    with _LOCK:
        system = _SYSTEMS.get(where)
        if system is None:
            try:
                system, name = fsspec.core.url_to_fs(path)
            except ImportError as error:
                error.add_note(f"{path!r} needs one more package for fsspec: see the line above")
                raise
            except ValueError as error:
                if "rotocol" not in str(error):
                    raise
                raise ValueError(
                    f"{path!r} begins with a protocol that fsspec does not know ({error}): it "
                    f"knows http, https, s3, gs, hf, memory and others."
                ) from None
            _SYSTEMS[where] = system
            return system, name
    return system, fsspec.core.url_to_fs(path)[1] if "::" in path else system._strip_protocol(path)  # noqa: SLF001  # fsspec's own way


def far_state(path: str) -> FarState:
    """What a far file is now, or was a moment ago.

    Raises:
        FileNotFoundError: There is no such file.
        OSError: It cannot be reached.
    """
    return far_states([path])[0]  # type: ignore[return-value]  # not None: it is required


def far_states(paths: Sequence[str], *, required: bool = True) -> list[FarState | None]:
    """What far files are now, or were a moment ago; they are looked at many at a time.

    Args:
        paths: The files.
        required: Whether one that is not there is an error; else it is None.

    Raises:
        FileNotFoundError: There is no such file.
        OSError: One cannot be reached.
    """
    now = time.monotonic()
    old = [path for path in dict.fromkeys(paths) if now - _SEEN.get(path, _NEVER)[0] > _FRESH]
    looks = [partial(_look, path, *system_of(path)) for path in old]
    for path, state in zip(old, all_of(looks, _AT_ONCE), strict=True):
        _SEEN[path] = now, state
    states = [_SEEN[path][1] for path in paths]
    if required:
        for path, seen in zip(paths, states, strict=True):
            if seen is None:
                raise FileNotFoundError(f"{path} cannot be found")
    return states


def forget(path: str) -> None:
    """Has the file looked at again when it is next asked for."""
    _SEEN.pop(path, None)


def far_matches(path: str, suffixes: tuple[str, ...]) -> list[str] | None:
    """The files of a far folder or pattern, unordered; None if the path is that of a file.

    A folder is a path that ends in a slash, or that the file system calls one.

    Raises:
        OSError: It cannot be reached.
    """
    system, name = system_of(path)
    web = path.startswith("http")  # where a question mark begins what a server is asked
    if "*" in path or (not web and any(mark in path for mark in "?[")):
        found = one_of(lambda: _called(system, "glob", _of(path), name, detail=True))
        infos = list(found.values())
    elif path.endswith("/") or (not web and _is_folder(system, path, name)):
        infos = one_of(lambda: _called(system, "ls", _of(path), name, detail=True))
    else:
        return None
    if "*" not in path:
        infos = [info for info in infos if info["name"].endswith(suffixes)]
    begin = path[: path.index("://")] if "::" in path else ""
    return [
        f"{begin}://{info['name']}" if begin else system.unstrip_protocol(info["name"])
        for info in infos
        if info.get("type") != "directory"
    ]


def one_of(call: Callable[[], Awaitable[T]]) -> T:
    """What a coroutine returns, run on fsspec's thread; Ctrl-C ends it."""
    return all_of([call], 1)[0]


def all_of(calls: Sequence[Callable[[], Awaitable[T]]], at_once: int) -> list[T]:
    """What coroutines return, so many of them on their way at the same time.

    The first error ends the others.
    """
    if not calls:
        return []
    from fsspec.asyn import get_loop  # noqa: PLC0415  # an extra

    async def every() -> list[T]:
        gate = asyncio.Semaphore(at_once)

        async def one(call: Callable[[], Awaitable[T]]) -> T:
            async with gate:
                return await call()

        tasks = [asyncio.ensure_future(one(call)) for call in calls]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    coming = asyncio.run_coroutine_threadsafe(every(), get_loop())
    try:
        return coming.result()
    except BaseException:
        coming.cancel()
        raise


async def range_of(path: str, offset: int, size: int, etag: str = "") -> bytes:
    """A range of a far file, tried again where that may help.

    Raises:
        TimeoutError: The last try was not over in time.
        OSError: The range cannot be had, for another reason; the message says which.
    """
    system, name = system_of(path)
    options: dict[str, Any] = {}
    if path.startswith(("http://", "https://")):
        given = getattr(system, "kwargs", {}).get("headers", {})
        options = {"headers": {**given, "Accept-Encoding": "identity"}}
        if etag.startswith('"'):  # a strong one
            options["headers"]["If-Match"] = etag

    async def attempt() -> bytes:
        data = await _once(system, "cat_file", name, start=offset, end=offset + size, **options)
        if len(data) < size:
            raise ShortAnswer(f"{len(data):,} of {size:,} bytes came")
        if len(data) > size:
            raise OSError(
                f"{path} is served without ranges: {size:,} bytes were asked for, and {len(data):,}"
                f" came. Copy the file to this machine, or to a server that gives ranges."
            )
        return bytes(data)

    return await tried(f"bytes {offset:,} to {offset + size:,} of {path}", attempt)


async def tried(what: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """What the attempt returns, tried again where that may help.

    Raises:
        TimeoutError: The last try was not over in time.
        OSError: It failed for another reason; or PermissionError, FileNotFoundError.
    """
    for number in range(1, _TRIES + 1):
        try:
            return await asyncio.wait_for(attempt(), _CLOCK)
        except Exception as error:
            last = number == _TRIES
            if not last and may_pass(error):
                await asyncio.sleep(_pause(number))
                continue
            raise _failure(what, number, error) from error
    raise AssertionError  # the last try returns or raises


def may_pass(error: BaseException) -> bool:
    """Whether what failed may succeed when it is tried again.

    >>> may_pass(ConnectionResetError()), may_pass(PermissionError()), may_pass(KeyError())
    (True, False, False)
    """
    status = _status(error)
    if status is not None:
        return status in _BUSY
    if isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
        return may_pass(error.__cause__)  # fsspec says so of any answer but the good one
    if isinstance(error, (*_FOR_GOOD, ImportError)) or "Credential" in type(error).__name__:
        return False
    if type(error) is OSError and error.errno is None and "without ranges" in str(error):
        return False
    room = type(error).__module__.partition(".")[0]
    return isinstance(error, (OSError, EOFError, TimeoutError)) or room in _OF_NETWORKS


def _failure(what: str, tries: int, error: Exception) -> Exception:
    """The error for the last failure."""
    of = f"{tries} {'try' if tries == 1 else 'tries'}"
    if isinstance(error, TimeoutError):
        return TimeoutError(
            f"{what}: no whole answer came within {_CLOCK:g} s, in the last of {of}. Is the server "
            f"there, and the network?"
        )
    said = f"{type(error).__name__}: {error}".rstrip(": .")
    text = f"{what} could not be read in {of}; the last one failed with {said}."
    if isinstance(error, FileNotFoundError) and may_pass(error):
        return OSError(text)
    if isinstance(error, _FOR_GOOD):
        return type(error)(text)
    return OSError(text)


def _status(error: BaseException) -> int | None:
    """The status with which a server has answered, if that is what failed."""
    if isinstance(error, OSError) and type(error).__module__ == "builtins":
        return None
    for name in ("status", "status_code", "code"):
        status = getattr(error, name, None)
        if isinstance(status, int):
            return status
    answer = getattr(error, "response", None)  # botocore's is a dict, that of others an object
    if isinstance(answer, dict):
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        status = getattr(answer, "status_code", None)
    return status if isinstance(status, int) else None


def _pause(number: int) -> float:
    longest = min(_PAUSE * 2.0 ** (number - 1), _LONGEST)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  # so that many do not come back at once


async def _once(system: Any, method: str, *args: Any, **options: Any) -> Any:
    """What a method of a file system returns; one that waits does so on a thread of its own."""
    coroutine = getattr(system, f"_{method}", None)
    if getattr(system, "async_impl", False) and inspect.iscoroutinefunction(coroutine):
        return await coroutine(*args, **options)
    loop = asyncio.get_running_loop()
    given: asyncio.Future[Any] = loop.create_future()

    def put(value: Any, error: BaseException | None) -> None:
        if not given.done():
            given.set_result(value) if error is None else given.set_exception(error)

    def run() -> None:
        value, failed = None, None
        try:
            value = getattr(system, method)(*args, **options)
        except BaseException as error:
            failed = error
        loop.call_soon_threadsafe(put, value, failed)

    # a daemon, unlike those of an executor: one that hangs must not keep the program from its end
    threading.Thread(target=run, name="jreader far", daemon=True).start()
    return await given


async def _called(system: Any, method: str, what: str, *args: Any, **options: Any) -> Any:
    return await tried(what, partial(_once, system, method, *args, **options))


def _of(path: str) -> str:
    return f"the list of files of {path}"


def _is_folder(system: Any, path: str, name: str) -> bool:
    try:
        info = one_of(lambda: _called(system, "info", f"what is known of {path}", name))
    except FileNotFoundError:
        return False
    return bool(info.get("type") == "directory")


async def _look(path: str, system: Any, name: str) -> FarState | None:
    """What a file is now; None if there is none."""
    system.invalidate_cache()
    try:
        info = await _called(system, "info", f"the size of {path}", name)
    except FileNotFoundError:
        return None
    if info.get("type") == "directory":
        return None
    size = info.get("size")
    if size is None:
        raise OSError(
            f"{path}: the server does not say how many bytes it has, so no range of it can be read."
            f" Copy the file to this machine."
        )
    known: Iterable[Any] = (info.get(key) for key in (*_STATES, *_TIMES))
    facts = [str(each) for each in known if each is not None]
    if not facts:  # of memory://, say
        facts = [str(info.get("created", ""))]
    text = "\n".join([str(size), *facts])
    stamp = blake2b(text.encode(), digest_size=8).hexdigest()
    return FarState(int(size), stamp, str(info.get("ETag") or ""))


_LOCK = threading.Lock()
_SYSTEMS: dict[str, Any] = {}  # fsspec's own cache has one for each thread
_SEEN: dict[str, tuple[float, FarState | None]] = {}
_NEVER = (float("-inf"), None)


def _forked() -> None:
    """Begins anew in a forked process: connections and locks belong to the other one."""
    global _LOCK  # noqa: PLW0603  # it may be held by a thread that is not here
    _LOCK = threading.Lock()
    _SYSTEMS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
