"""Streams in windows: so many samples are read at a time, and what is made of them is handed over.

The position of such a pass is (that before a window, its number, items of it handed over): who
resumes inside a window reads it again. After its last item, what lies before need not be read.
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
"""How many items a window has, and a function that gives those from a number on."""


def in_windows(
    op: Any,
    reader: Reader[S],
    at: Position,
    size: int,
    made: Callable[[list[S], int], Made[T]],
    nothing: Callable[[], Exception] | None = None,
) -> Pass[T]:
    """A pass over what an op makes of each window of a stream.

    Args:
        op: The op, which errors name.
        reader: The stream.
        at: The position to begin at.
        size: How many samples a window has; the last one has what is left.
        made: Takes the samples of a window, and its number.
        nothing: The error if windows were read, the first one too, and none had an item.
    """
    origin, window, done = checked_position(at, (None, 0, 0))
    up = start(reader, origin).watched(op, size)
    origin, first = up.position(), not (window or done)
    before, many = -done, 0  # items of earlier windows in this pass, and those of this window

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
