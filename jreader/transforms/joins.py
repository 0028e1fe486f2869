"""Several readers as one: side by side, one after another, or in turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

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
from jreader.readers.compounds import Members, beside, end_to_end
from jreader.readers.plain_functions import epoch_of_caller, in_epoch
from jreader.readers.planes import ENDLESS, Indices, Plane, flattened, indexed
from jreader.transforms.maps import close, positions, shortest, started

T = TypeVar("T")


@op
class compose(Node[tuple[Any, ...]]):
    """The samples of several readers side by side, as one flat tuple.

    Samples that are tuples are flattened into it, one level deep; others (lists too) stay whole.

    >>> list(compose(lambda: [(1, 2), (3, 4)], lambda: "ab")())
    [(1, 2, 'a'), (3, 4, 'b')]

    Cost: all readers are open at once, and one row is in memory. Resuming resumes each of them.

    Args:
        *readers: Any readers.
        check_alignment: Whether to raise an error after the last full row if readers have unequal
            lengths. With False, it ends with the shortest; needed if one of them never ends.

    Raises:
        ComposeNotAligned: One reader ended before the others (while iterating).
    """

    readers: tuple[Reader[Any], ...]
    check_alignment: bool = True
    joins_lanes = True

    def __init__(self, *readers: Reader[Any], check_alignment: bool = True) -> None:
        _take(self, readers)
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
            "shortest."
        )

    def length(self) -> int | None:
        """The length of the shortest reader."""
        return shortest(self.readers)

    def plane(self) -> Plane | None:
        """The planes side by side; None if they are not aligned, which is an error at the end."""
        planes = _planes(self.readers)
        unequal = len({plane.length for plane in planes}) > 1
        return None if not planes or (unequal and self.check_alignment) else beside(planes)


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

    Cost: one reader is open at a time, and it keeps no samples. Resuming opens only the reader that
    the position is in, and those after it.

    Args:
        *readers: Any readers.
    """

    readers: tuple[Reader[T], ...]
    joins_lanes = True

    def __init__(self, *readers: Reader[T]) -> None:
        _take(self, readers)

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
        return _total(self.readers)

    def plane(self) -> Plane | None:
        """The planes end to end, if their columns are alike."""
        planes = _planes(self.readers)
        return end_to_end(planes) if planes else None


@op
class interleave(Node[T]):
    """One sample of each reader in turn, until all have ended.

    A reader that has ended is left out of the turns from then on, so no sample is lost. For
    sources in other proportions than one to one there is `mix`.

    >>> list(interleave(lambda: "abc", lambda: "x", lambda: [1, 2])())
    ['a', 'x', 1, 'b', 2, 'c']

    Cost: all readers are open at once, and it keeps no samples. Resuming resumes each of them.

    Args:
        *readers: Any readers.
    """

    readers: tuple[Reader[T], ...]
    joins_lanes = True

    def __init__(self, *readers: Reader[T]) -> None:
        _take(self, readers)

    def start(self, at: Position) -> Pass[T]:
        """Begins a pass; its position is (whose turn it is, positions of all readers)."""
        turn, inner = checked_position(at, (0, None))
        if turn and turn >= len(self.readers):
            raise foreign(at, (0, None))
        ups = started(self.readers, inner)
        going = [*range(turn, len(ups)), *range(turn)]
        _, count = counted(())

        def rounds() -> Iterator[Iterator[T]]:
            nonlocal going, count
            while going:
                turns = itertools.cycle([ups[number].items for number in going])
                items, count = counted(map(next, turns))  # which ends with the first that ends
                yield items
                ended = count() % len(going)
                going, (_, count) = going[ended + 1 :] + going[:ended], counted(())

        def position() -> Position:
            return going[count() % len(going)] if going else 0, positions(ups)

        return Pass(itertools.chain.from_iterable(rounds()), position, lambda: close(ups))

    def length(self) -> int | None:
        """The sum of all lengths, if all are known."""
        return _total(self.readers)

    def plane(self) -> Plane | None:
        """The planes in turn, if their columns are alike."""
        planes = _planes(self.readers)
        members = Members.of(planes) if planes else None
        if members is None:
            return None
        lengths = [plane.length for plane in planes]
        return Plane(members.columns, min(sum(lengths), ENDLESS), _turns(members))


def _take(node: Node[Any], readers: tuple[Reader[Any], ...]) -> None:
    """Sets the field `readers` of an op that takes them as `*readers`.

    Raises:
        TypeError: One of them cannot be called.
    """
    for reader in readers:
        errors.check_reader(f"{type(node).__name__}(*readers)", reader)
    object.__setattr__(node, "readers", readers)


def _planes(readers: tuple[Reader[Any], ...]) -> list[Plane]:
    """Their planes, if all of them are indexed; else none."""
    planes = [plane for plane in map(indexed, readers) if plane]
    return planes if len(planes) == len(readers) else []


def _total(readers: tuple[Reader[Any], ...]) -> int | None:
    """The sum of all lengths, if all are known."""
    known = [length(reader) for reader in readers]
    return None if None in known else sum(n for n in known if n is not None)


def _turns(members: Members) -> Callable[[Indices], list[Indices]]:
    """The route of samples in turn: round r has sample r of each reader that is so long.

    Between the lengths at which readers end, rounds have one size, so that a division finds the
    round of a sample.
    """
    lengths = [plane.length for plane in members.planes]
    rounds = sorted({0, *lengths})[:-1] or [0]  # before these, a reader has ended
    firsts = [sum(min(length, before) for length in lengths) for before in rounds]
    going = [[n for n, length in enumerate(lengths) if length > before] for before in rounds]
    sizes, table = np.array(list(map(len, going))), np.array([*itertools.chain(*going)], int)
    offsets = np.cumsum(sizes) - sizes

    def route(indices: Indices) -> list[Indices]:
        namespace = indices.__array_namespace__()
        first, before, size, offset, numbers = map(
            namespace.asarray, (firsts, rounds, sizes, offsets, table)
        )
        stage = namespace.searchsorted(first[1:], indices, side="right")
        since = indices - first[stage]
        which = numbers[offset[stage] + since % size[stage]]
        return members.rows(which, before[stage] + since // size[stage])

    return route
