"""Retry requests for remote files after transient errors, a bounded number of times.

Transient failures are retried: dropped connections, truncated responses, busy servers. All tries of
a process run on fsspec's thread, as coroutines, so many ranges are in flight at once, each with a
timeout. The number of tries is bounded, and the last failure raises an error that names the file.
"""

from __future__ import annotations

import inspect
import os
import secrets
import selectors
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, as_completed
from functools import partial
from importlib import import_module
from traceback import format_exception
from typing import Any, TypeVar, cast
from weakref import WeakSet

from jreader.extras import extra
from jreader.readers.credentials import masked
from jreader.readers.exits_and_forks import run_daemon

T = TypeVar("T")

_TRIES = 6  # the pauses between them add up to some 10 s
_TIMEOUT = 60.0  # seconds for one try
_PAUSE, _LONGEST = 0.3, 8.0  # seconds before the second try, then doubled, and the maximum
_TRANSIENT_STATUS = {408, 425, 429, 500, 502, 503, 504, 509, 520, 521, 522, 523, 524}
_STATUS_NAMES = ("status", "status_code", "code")
_NETWORKS = ("aiohttp", "botocore", "urllib3", "requests", "httpx", "httpcore", "http", "ssl")


class FileReplaced(OSError):
    """A response belongs to a different file than the one that was found."""


class TruncatedResponse(OSError):
    """A server sent fewer bytes than requested, or different ones."""


class RangesUnsupported(OSError):
    """A server does not support ranges; a retry does not help."""


_PERMANENT = (
    *(FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError),
    *(FileReplaced, RangesUnsupported),
)


def run_one(call: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine on fsspec's thread and return its result; Ctrl-C cancels it."""
    return run_all([call], 1)[0]


def run_all(calls: Sequence[Callable[[], Awaitable[T]]], at_once: int) -> list[T]:
    """Run coroutines, `at_once` of them at the same time; return their results.

    The first error cancels the others.
    """
    futures = starter(at_once)(calls) if calls else []
    try:
        for each in as_completed(futures):
            each.result()
        return [each.result() for each in futures]
    finally:
        for each in futures:
            each.cancel()


def starter(
    at_once: int,
) -> Callable[[Sequence[Callable[[], Awaitable[T]]]], list[Future[T]]]:
    """Return a function that starts coroutines, `at_once` of them at the same time.

    It returns a future for each; cancelling one cancels its request.
    """
    asyncio, fsspec = _asyncio(), extra("fsspec.asyn", "far", "this needs fsspec")
    loop, gate = fsspec.get_loop(), asyncio.Semaphore(at_once)
    _LOOPS.add(loop)

    async def one(call: Callable[[], Awaitable[T]]) -> T:
        async with gate:
            return await call()

    return lambda calls: [asyncio.run_coroutine_threadsafe(one(call), loop) for call in calls]


async def retried(what: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Await an attempt, with retries after transient errors; return its result.

    Raises:
        TimeoutError: The last try timed out.
        OSError: It failed for another reason; or PermissionError, FileNotFoundError.
    """
    asyncio, number = _asyncio(), 0
    while True:
        number += 1
        try:
            return cast("T", await asyncio.wait_for(attempt(), _TIMEOUT))
        except (FileReplaced, RangesUnsupported):
            raise
        except Exception as error:
            if number == _TRIES or not is_transient(error):
                failure, said = _last_failure(what, number, error), "".join(format_exception(error))
                raise failure from (error if masked(said) == said else None)
        await asyncio.sleep(_pause(number))


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may succeed after this error.

    >>> is_transient(ConnectionResetError()), is_transient(PermissionError())
    (True, False)
    """
    status = _status(error)
    if status is not None:
        return status in _TRANSIENT_STATUS
    if isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
        return is_transient(error.__cause__)  # fsspec raises it for every bad status
    if isinstance(error, (*_PERMANENT, ImportError)) or "Credential" in type(error).__name__:
        return False
    room = type(error).__module__.partition(".")[0]
    return isinstance(error, (OSError, EOFError, TimeoutError)) or room in _NETWORKS


def _last_failure(what: str, tries: int, error: Exception) -> Exception:
    """Return the error to raise after the last try."""
    of = f"{tries} {'try' if tries == 1 else 'tries'}"
    if isinstance(error, TimeoutError):
        return TimeoutError(
            f"{what}: no complete answer came within {_TIMEOUT:g} s, in the last of {of}. Is the "
            "server there, and the network?"
        )
    said = masked(f"{type(error).__name__}: {error}").rstrip(": .")
    text = f"{what} could not be read in {of}; the last one failed with {said}."
    if isinstance(error, FileNotFoundError) and is_transient(error):
        return OSError(text)
    if isinstance(error, _PERMANENT):
        return type(error)(text)
    return OSError(text)


def _status(error: BaseException) -> int | None:
    """Return the HTTP status of a failed request; None for other errors."""
    if isinstance(error, OSError) and type(error).__module__ == "builtins":
        return None
    answer = getattr(error, "response", None)
    if isinstance(answer, dict):  # of botocore
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return status if isinstance(status, int) else None
    names = [(each, name) for each in (error, answer) for name in _STATUS_NAMES]
    found = (getattr(each, name, None) for each, name in names)  # lazily: some attributes warn
    return next((status for status in found if isinstance(status, int)), None)


def _pause(number: int) -> float:
    longest = min(_PAUSE * 2.0 ** (number - 1), _LONGEST)
    return longest * secrets.SystemRandom().uniform(0.5, 1.0)  # jitter spreads clients out


def _asyncio() -> Any:
    """Import asyncio; its import takes as long as all readers of files."""
    return import_module("asyncio")


async def request_once(system: Any, method: str, *args: Any, **options: Any) -> Any:
    """Call a method of a file system; run a blocking one on its own thread."""
    coroutine = getattr(system, f"_{method}", None)
    if getattr(system, "async_impl", False) and inspect.iscoroutinefunction(coroutine):
        return await coroutine(*args, **options)
    call = partial(getattr(system, method), *args, **options)
    return await _asyncio().wrap_future(run_daemon("jreader far", call))


async def request(system: Any, method: str, what: str, *args: Any, **options: Any) -> Any:
    """Call a method of a file system, with retries; errors quote `what`."""
    return await retried(what, partial(request_once, system, method, *args, **options))


_LOOPS: WeakSet[Any] = WeakSet()


def _forked() -> None:
    """Detach a forked child from the parent's selectors, so that it can close connections.

    On Linux, a child shares the parent's epoll selector. If the child closed a connection, the
    parent would no longer be notified of it.
    """
    for loop in _LOOPS:
        if hasattr(loop, "_selector"):
            loop._selector = selectors.SelectSelector()  # noqa: SLF001  # there is no other way
    _LOOPS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
