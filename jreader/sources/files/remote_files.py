"""Remote files, read by byte range, with several ranges in flight.

A long range is requested in parts: a server sends more over several connections than over one, and
a failed part is a small loss.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import chain

from jreader.errors import DamagedData
from jreader.readers.credentials import masked
from jreader.sources.file_checks import changed, check_state
from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.remote import RemoteState, forget, is_web, range_of, remote_states
from jreader.sources.retries import FileReplaced, starter

_PART = 1 << 25  # bytes per request: smaller ones cost more than they gain on a nearby server
_MAX_PENDING = 16  # parts in flight
_AHEAD = 1 << 26  # bytes of ranges in flight ahead of the one that is read next
_RANGES_AHEAD = 256  # short ranges in flight


class RemoteFile(ByteFile):
    """A remote file, whose ranges are read through fsspec.

    >>> import fsspec
    >>> with fsspec.open("memory://letters", "wb") as out:
    ...     _ = out.write(b"abcdef")
    >>> file = RemoteFile("memory://letters")
    >>> file, file.read(2, 3), list(file.read_many([(0, 1), (4, 2)]))
    (memory://letters (6 bytes), b'cde', [b'a', b'ef'])

    Args:
        path: Its name, which begins with a protocol.
        seen: The state of the file when first checked; None to check now.

    Raises:
        DamagedData: The file does not exist (any more).
        OSError: It cannot be reached.
    """

    is_remote = True

    def __init__(self, path: str, seen: RemoteState | None = None) -> None:
        """Request the state of the file if unknown."""
        self.url = path
        (found,) = remote_states([path]) if seen is None else [seen]
        if found is None:
            raise changed(path, "cannot be found any more")
        self.state: RemoteState = found
        stamp = self.state.stamp_of(path)
        near = 1 << 18  # bytes that arrive within the latency of a server
        super().__init__(masked(path), self.state.st_size, stamp, near)

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """Yield the bytes of each range (offset and size), in order; several are in flight.

        Later ranges are fetched while the caller uses earlier ones.

        Raises:
            DamagedData: The file has changed since it was found, or is gone.
            OSError: They cannot be read.
        """
        if not is_web(self.url):
            self._check_state()
        begin, ahead = starter(_MAX_PENDING), 0
        in_flight: deque[list[Future[bytes]]] = deque()
        sizes = iter([size for _, size in ranges])
        try:
            for offset, size in ranges:
                self.check_range(offset, size)
                while in_flight and (ahead + size > _AHEAD or len(in_flight) == _RANGES_AHEAD):
                    ahead -= next(sizes)
                    yield self._next_arrived(in_flight)
                parts = _cut(offset, size)
                asked = [partial(range_of, self.url, *part, self.state) for part in parts]
                in_flight.append(begin(asked))
                ahead += size
            while in_flight:
                yield self._next_arrived(in_flight)
        finally:
            for coming in chain.from_iterable(in_flight):
                coming.cancel()

    def _next_arrived(self, in_flight: deque[list[Future[bytes]]]) -> bytes:
        """Wait for the first range in flight, and return it."""
        try:
            data = b"".join([part.result() for part in in_flight[0]])
        except OSError as error:
            forget(self.url)
            try:
                self._check_state()
            except DamagedData as other:
                raise other from error
            if isinstance(error, FileReplaced):
                raise changed(self.path, f"is another file ({error})") from error
            raise
        in_flight.popleft()
        return data

    def _check_state(self) -> None:
        """Raise DamagedData if the file has changed, or had when it was checked last."""
        with suppress(OSError):  # unreachable: the ranges may still arrive
            check_state(self.path, self.state, *remote_states([self.url]))


def _cut(offset: int, size: int) -> list[tuple[int, int]]:
    """Split a range into parts; an empty range has none."""
    end = offset + size
    return [(low, min(_PART, end - low)) for low in range(offset, end, _PART)]
