"""Files elsewhere that are read by ranges, several of them on their way at the same time.

A long range is asked for in parts: a server gives more to several connections than to one, and a
part that fails is a small loss.
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

_PART = 1 << 25  # bytes that are asked for at once: less costs more than it gains on a near server
_CHUNK = 16  # parts that are on their way at the same time
_AHEAD = 1 << 26  # bytes of ranges that are on their way before those before them were taken
_RANGES_AHEAD = 256  # short ranges in flight


class RemoteFile(ByteFile):
    """A file elsewhere, of which ranges are read through fsspec.

    >>> import fsspec
    >>> with fsspec.open("memory://letters", "wb") as out:
    ...     _ = out.write(b"abcdef")
    >>> file = RemoteFile("memory://letters")
    >>> file, file.read(2, 3), list(file.read_many([(0, 1), (4, 2)]))
    (memory://letters (6 bytes), b'cde', [b'a', b'ef'])

    Args:
        path: Its name, which begins with a protocol.
        seen: What it was when it was first looked at; None to ask now.

    Raises:
        DamagedData: There is no such file (any more).
        OSError: It cannot be reached.
    """

    is_remote = True

    def __init__(self, path: str, seen: RemoteState | None = None) -> None:
        """Asks what the file is now, if that is not known."""
        self.url = path
        (found,) = remote_states([path]) if seen is None else [seen]
        if found is None:
            raise changed(path, "cannot be found any more")
        self.state: RemoteState = found
        stamp = self.state.stamp_of(path)
        near = 1 << 18  # what comes in the time that a server takes to answer
        super().__init__(masked(path), self.state.st_size, stamp, near)

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """The bytes of each range (offset and size), in that order; several come at a time.

        The next ones are on their way while those that came are taken.

        Raises:
            DamagedData: The file has changed since it was found, or is gone.
            OSError: They could not be had.
        """
        if not is_web(self.url):
            self._check_state()
        begin, ahead = starter(_CHUNK), 0
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
        """The first of the ranges that are on their way, when it has come."""
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
        """Raises DamagedData if the file is another one now, or was when it was looked at last."""
        with suppress(OSError):  # it cannot be reached: the ranges may come
            check_state(self.path, self.state, *remote_states([self.url]))


def _cut(offset: int, size: int) -> list[tuple[int, int]]:
    """A range in parts; none of an empty one."""
    end = offset + size
    return [(low, min(_PART, end - low)) for low in range(offset, end, _PART)]
