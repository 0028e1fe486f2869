"""Several readers as one: side by side, or one after another."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, TypeVar

from jreader import errors
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    checked_position,
    counted,
    described,
    foreign,
    length,
    op,
    start,
)
from jreader.readers.compounds import beside, end_to_end
from jreader.readers.plain_functions import epoch_of_caller, in_epoch
from jreader.readers.planes import Plane, flattened, indexed
from jreader.transforms.maps import close, positions, shortest, started

T = TypeVar("T")


@op
class compose(Node[tuple[Any, ...]]):
    """The samples of several readers side by side, as one flat tuple.

    Samples that are tuples are flattened into it, one level deep; others (lists too) stay whole.

    >>> list(compose(lambda: [(1, 2), (3, 4)], lambda: "ab")())
    [(1, 2, 'a'), (3, 4, 'b')]

    Args:
        *readers: Any readers.
        check_alignment: Whether to raise an error after the last full row if readers have unequal
            lengths. With False, it ends with the shortest; needed if one of them never ends.

    Raises:
        ComposeNotAligned: One reader ended before the others (while iterating).
    """

    readers: tuple[Reader[Any], ...]
    check_alignment: bool = True

    def __init__(self, *readers: Reader[Any], check_alignment: bool = True) -> None:
        """Raises TypeError if a reader cannot be called."""
        for reader in readers:
            errors.check_reader("compose(*readers)", reader)
        object.__setattr__(self, "readers", readers)
        object.__setattr__(self, "check_alignment", bool(check_alignment))

    def start(self, at: Position) -> Pass[tuple[Any, ...]]:
        """Begins a pass; its position is those of all readers."""
        ups = started(self.readers, at)

        def deal() -> Iterator[tuple[Any, ...]]:
            inputs = [counted(up.items) for up in ups]
            rows, row_count = counted(zip(*(items for items, _ in inputs), strict=False))
            for row in rows:
                for sample in row:
                    if isinstance(sample, tuple):
                        yield flattened(row)
                        break
                else:
                    yield row
            if self.check_alignment and inputs:
                # zip draws from the left: whoever is a sample ahead of it was not the first to end
                ended = sum(count() > row_count() for _, count in inputs)
                longer = [*range(ended), *_unfinished(inputs, ended + 1)]
                if longer:
                    raise self._not_aligned(ended, longer[0], row_count())

        return Pass(deal(), lambda: positions(ups), lambda: close(ups))

    def _not_aligned(self, ended: int, longer: int, rows: int) -> errors.ComposeNotAligned:
        names = [described(reader) for reader in self.readers]
        return errors.ComposeNotAligned(
            f"readers of compose, made at {self.made_at}, are not aligned: reader {ended} "
            f"({names[ended]}) ended after row {rows} of this pass, reader {longer} "
            f"({names[longer]}) goes on. Use compose(..., check_alignment=False) to end with the "
            f"shortest."
        )

    def length(self) -> int | None:
        """The length of the shortest reader."""
        return shortest(self.readers)

    def plane(self) -> Plane | None:
        """The planes side by side; None if they are not aligned, which is an error at the end."""
        planes = [plane for plane in map(indexed, self.readers) if plane]
        unequal = len({plane.length for plane in planes}) != 1
        if len(planes) < len(self.readers) or (unequal and self.check_alignment) or not planes:
            return None
        return beside(planes)


def _unfinished(inputs: list[tuple[Iterator[Any], Any]], first: int) -> Iterator[int]:
    """The numbers of the readers, from `first` on, that still have a sample."""
    for number, (items, _) in enumerate(inputs[first:], first):
        for _sample in items:
            yield number
            break


@op
class chain(Node[T]):
    """The samples of several readers, one reader after another; each pass starts in its turn.

    >>> list(chain(lambda: "ab", lambda: "c")())
    ['a', 'b', 'c']

    Args:
        *readers: Any readers.
    """

    readers: tuple[Reader[T], ...]

    def __init__(self, *readers: Reader[T]) -> None:
        """Raises TypeError if a reader cannot be called."""
        for reader in readers:
            errors.check_reader("chain(*readers)", reader)
        object.__setattr__(self, "readers", readers)

    def start(self, at: Position) -> Pass[T]:
        """Begins a pass; its position is (which reader, position inside it)."""
        which, inner = checked_position(at, (0, None))
        if which > len(self.readers):
            raise foreign(at, (len(self.readers), None))
        epoch = epoch_of_caller()
        up = self._opened(which, inner)

        def turns() -> Iterator[Iterator[T]]:
            nonlocal which, up
            while up:
                yield up.items
                up.close()
                which += 1
                with in_epoch(epoch):
                    up = self._opened(which, None)

        return Pass(
            itertools.chain.from_iterable(turns()),
            lambda: (which, up.position() if up else None),
            lambda: up and up.close(),
        )

    def _opened(self, which: int, inner: Position) -> Pass[T] | None:
        return start(self.readers[which], inner) if which < len(self.readers) else None

    def length(self) -> int | None:
        """The sum of all lengths, if all are known."""
        known = [length(reader) for reader in self.readers]
        return None if None in known else sum(n for n in known if n is not None)

    def plane(self) -> Plane | None:
        """The planes end to end, if their columns are alike."""
        planes = [plane for plane in map(indexed, self.readers) if plane]
        if len(planes) < len(self.readers) or not planes:
            return None
        return end_to_end(planes)
