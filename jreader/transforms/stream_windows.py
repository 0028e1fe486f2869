"""Process streams in windows: read `size` samples at a time, and yield the items made from them.

The position of such a pass is (position before a window, its number, items of it yielded): resuming
inside a window reads it again; after its last item, it need not be read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, TypeAlias, TypeVar

from jreader.readers import Pass, Position, Reader, bad_position, checked_position, counted, start
from jreader.readers.located import located_errors

S = TypeVar("S")
T = TypeVar("T")

Made: TypeAlias = tuple[int, Callable[[int], Iterable[T]]]
"""The number of items in a window, and a function that returns those from a number on."""


def in_windows(
    op: Any,
    reader: Reader[S],
    at: Position,
    size: int,
    made: Callable[[list[S], int], Made[T]],
    nothing: Callable[[], Exception] | None = None,
) -> Pass[T]:
    """Start a pass over the items that an op makes from each window of a stream.

    Args:
        op: The op, for errors.
        reader: The stream.
        at: The position to start at.
        size: Samples per window; the last window may have fewer.
        made: Takes the samples of a window, and its number; returns its items.
        nothing: The error if all windows were read, from the first on, and none had an item.
    """
    origin, window, done = checked_position(at, (None, 0, 0))
    up = start(reader, origin).watched(op, size)
    origin, first = up.position(), not (window or done)
    before, many = -done, 0  # items of earlier windows in this pass, and of this window

    def dealt() -> Iterator[Iterable[T]]:
        nonlocal origin, window, before, many
        skipped, read = done, False
        with located_errors(op):
            while samples := list(islice(up.items, size)):
                many, items = made(samples, window)
                del samples
                if skipped > many:
                    raise bad_position(at, (None, 0, 0))
                yield items(skipped)
                origin, window, before, many = up.position(), window + 1, count(), 0
                skipped, read = 0, True
        if nothing and read and first and not count():
            raise nothing()

    def position() -> Position:
        given = count() - before
        if given and given == many:
            return up.position(), window + 1, 0
        return origin, window, given

    items, count = counted(chain.from_iterable(dealt()))
    return Pass(items, position, up.close)
