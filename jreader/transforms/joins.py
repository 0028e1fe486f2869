"""Combine readers: side by side (zip), one after another (concatenate), or in turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from jreader import errors
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    argument,
    bad_position,
    checked_position,
    counted,
    described,
    length,
    op,
    set_fields,
    start,
)
from jreader.readers.columns import Array, Indices
from jreader.readers.compounds import MemberPlanes, concat_planes, zip_planes
from jreader.readers.declarations import check_choice
from jreader.readers.joined_columns import ENDLESS
from jreader.readers.nodes import unwrapped
from jreader.readers.plain_functions import epoch_of_caller, in_epoch
from jreader.readers.planes import Plane, flattened, indexed
from jreader.transforms.maps import close, positions, shortest, started
from jreader.transforms.selections import int_array

T = TypeVar("T")

_Turn: TypeAlias = Callable[[Indices], tuple[Indices, Indices]]
_Place: TypeAlias = Callable[[int, Array], Array]
_NESTED = 32  # deeper nested chains are flattened: Python's stack is limited


@op
class compose(Node[tuple[Any, ...]]):
    """Zip the samples of several readers into flat tuples.

    Samples that are tuples are flattened, one level deep; others (lists too) stay whole.

    >>> list(compose(lambda: [(1, 2), (3, 4)], lambda: "ab")())
    [(1, 2, 'a'), (3, 4, 'b')]

    Cost: opens all readers at once, and keeps one row in memory. Resuming resumes each reader.

    Args:
        *readers: Any readers.
        check_alignment: Whether to raise after the last full row if the readers' lengths differ.
            False ends with the shortest reader; use it if one of them never ends.

    Raises:
        ComposeNotAligned: One reader ended before the others (while iterating).
    """

    readers: tuple[Reader[Any], ...]
    check_alignment: bool = True

    def __init__(self, *readers: Reader[Any], check_alignment: bool = True) -> None:
        set_fields(
            self, readers=_checked_readers(self, readers), check_alignment=bool(check_alignment)
        )

    def start(self, at: Position) -> Pass[tuple[Any, ...]]:
        """Start a pass; its position is those of all readers."""
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
                # zip draws from the left: readers that are a sample ahead did not end first
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
        """Return the length of the shortest reader."""
        return shortest(self.readers)

    def may_be_endless(self) -> Callable[[list[bool]], bool]:
        """Return `all`: it ends with the first reader that does."""
        return all

    def plane(self) -> Plane | None:
        """Return the planes side by side; None if they are not aligned, which raises at the end."""
        planes = _planes(self.readers)
        unequal = len({plane.length for plane in planes}) > 1
        return None if not planes or (unequal and self.check_alignment) else zip_planes(planes)


def _unfinished(inputs: list[tuple[Iterator[Any], Any]], first: int) -> Iterator[int]:
    """Yield the numbers of the readers, from `first` on, that still have a sample."""
    for number, (items, _) in enumerate(inputs[first:], first):
        for _sample in items:
            yield number
            break


@op
class chain(Node[T]):
    """Concatenate several readers: all samples of the first, then all of the second, and so on.

    >>> list(chain(lambda: "ab", lambda: "c")())
    ['a', 'b', 'c']

    Cost: opens one reader at a time, and keeps no samples. Resuming opens only the reader that the
    position is in, and those after it.

    Args:
        *readers: Any readers.
    """

    readers: tuple[Reader[T], ...]

    def __init__(self, *readers: Reader[T]) -> None:
        set_fields(self, readers=_checked_readers(self, readers))

    def start(self, at: Position) -> Pass[T]:
        """Start a pass; its position is (which reader, position inside it).

        For deeply nested chains, it also has their total number of readers.
        """
        readers, many = self._members()
        which, inner = _nested_position(self, at) if many else checked_position(at, (0, None))
        if which > len(readers):
            raise bad_position(at, (len(readers), None))
        epoch = epoch_of_caller()

        def opened(which: int, inner: Position) -> Pass[T] | None:
            return start(readers[which], inner) if which < len(readers) else None

        up = opened(which, inner)

        def turns() -> Iterator[Iterator[T]]:
            nonlocal which, up
            while up:
                yield up.items
                up.close()
                which += 1
                with in_epoch(epoch):
                    up = opened(which, None)

        return Pass(
            itertools.chain.from_iterable(turns()),
            lambda: (which, up.position() if up else None, *many),
            lambda: up and up.close(),
        )

    def _members(self) -> tuple[Sequence[Reader[T]], tuple[int, ...]]:
        """Return its readers; for deeply nested chains, the flattened readers and their number."""
        flat, depth = self.flat
        return (flat, (len(flat),)) if depth > _NESTED else (self.readers, ())

    @cached_property
    def flat(self) -> tuple[list[Reader[T]], int]:
        """Its readers, with nested chains flattened, and the depth of nesting."""
        readers, depth = list[Reader[T]](), 0
        left = [(reader, 1) for reader in reversed(self.readers)]
        while left:
            reader, inside = left.pop()
            inner = unwrapped(reader)
            if type(inner) is chain:
                depth = max(depth, inside)
                left += [(each, inside + 1) for each in reversed(inner.readers)]
            else:
                readers.append(reader)
        return readers, depth

    def length(self) -> int | None:
        """Return the sum of all lengths, if all are known."""
        return _total(self._members()[0])

    def plane(self) -> Plane | None:
        """Return the concatenated planes, if their columns are alike."""
        planes = _planes(self._members()[0])
        return concat_planes(planes) if planes else None


def _nested_position(node: chain[Any], at: Position) -> tuple[int, Position]:
    """Find the reader of a position among flattened chains; the position may be nested too."""
    if at is None or (isinstance(at, (list, tuple)) and len(at) == 3):
        which, inner, _ = checked_position(at, (0, None, 0))
        return which, inner
    before = 0
    while True:
        which, inner = checked_position(at, (0, None))
        if which > len(node.readers):
            raise bad_position(at, (len(node.readers), None))
        for reader in map(unwrapped, node.readers[:which]):
            before += len(reader.flat[0]) if type(reader) is chain else 1
        below = unwrapped(node.readers[which]) if which < len(node.readers) else None
        if type(below) is not chain:
            return before, inner
        node, at = below, inner


@op
class interleave(Node[T]):
    """Take one sample of each reader in turn, or in an order of your own, until all have ended.

    A reader that has ended is skipped from then on, so no sample is lost. To restart it, interleave
    `epochs(reader)`. For random turns in proportion to weights, use `mix`.

    >>> list(interleave(lambda: "abc", lambda: "x", lambda: [1, 2])())
    ['a', 'x', 1, 'b', 2, 'c']
    >>> list(interleave(lambda: "abcdef", lambda: [1, 2], order=[0, 0, 1], stop="first")())
    ['a', 'b', 1, 'c', 'd', 2, 'e', 'f']

    Cost: opens all readers at once, and keeps no samples. Resuming resumes each reader.

    Args:
        *readers: Any readers.
        stop: When to end. "once": when all readers have ended. "first": at the turn of a reader
            that has no sample left.
        order: The order of turns, as numbers of readers from 0, repeated: [0, 0, 1] for two of the
            first reader and one of the second. None for each in turn.

    Raises:
        ValueError: `stop` has another value, or `order` leaves out a reader.
        TypeError: `order` is not a list of ints.
    """

    readers: tuple[Reader[T], ...]
    stop: Literal["once", "first"] = argument(default="once", cursor="never")  # see `cursor_extra`
    order: tuple[int, ...] | None = argument(default=None, cursor="never")  # in `cursor_extra` too

    def __init__(
        self,
        *readers: Reader[T],
        stop: Literal["once", "first"] = "once",
        order: Sequence[int] | None = None,
    ) -> None:
        check_choice(("once", "first"), "stop of interleave", stop)
        if order is not None:
            order = tuple(int_array("order of interleave", order).tolist())
            if {*order} != {*range(len(readers))}:
                raise ValueError(
                    f"order of interleave needs the number of each of the {len(readers)} readers, "
                    f"from 0 to {len(readers) - 1}, and no other, not {list(order)}."
                )
        set_fields(self, readers=_checked_readers(self, readers), stop=stop, order=order)

    @property
    def _order(self) -> Sequence[int]:
        return range(len(self.readers)) if self.order is None else self.order

    def cursor_extra(self) -> str:
        """Return its order, unless it is the default, which older cursors do not write."""
        plain = self.stop == "once" and self.order is None
        return "" if plain else f"{self.stop}, {list(self._order)}"

    def start(self, at: Position) -> Pass[T]:
        """Start a pass; its position is (whose turn it is, positions of all readers)."""
        turn, inner = checked_position(at, (0, None))
        order = self._order
        if turn and turn >= len(order):
            raise bad_position(at, (0, None))
        ups = started(self.readers, inner)
        going = [*range(turn, len(order)), *range(turn)]
        _, count = counted(())

        def rounds() -> Iterator[Iterator[T]]:
            nonlocal going, count
            while going:
                turns = itertools.cycle([ups[order[place]].items for place in going])
                items, count = counted(map(next, turns))  # ends with the first that ends
                yield items
                if self.stop == "first":
                    return
                ended = count() % len(going)
                later = going[ended + 1 :] + going[:ended]
                going = [place for place in later if order[place] != order[going[ended]]]
                _, count = counted(())

        def position() -> Position:
            return going[count() % len(going)] if going else 0, positions(ups)

        return Pass(itertools.chain.from_iterable(rounds()), position, lambda: close(ups))

    def length(self) -> int | None:
        """Return the sum of the lengths, if known; with stop="first", the turns until one ends."""
        if self.stop == "once":
            return _total(self.readers)
        known = list(map(length, self.readers))
        return None if None in known else self._first_end([n for n in known if n is not None])

    def _first_end(self, lengths: Sequence[int]) -> int:
        """Return the first turn at which a reader has no sample left."""
        ends = []
        for which, many in enumerate(lengths):
            places = [place for place, each in enumerate(self._order) if each == which]
            rounds, rest = divmod(many, len(places))
            ends.append(rounds * len(self._order) + places[rest])
        return min(ends, default=0)

    def plane(self) -> Plane | None:
        """Return the planes in turn, if their columns match and no reader drops out of rounds."""
        planes = _planes(self.readers)
        members = MemberPlanes.of(planes) if planes else None
        if members is None or (self.order and self.stop == "once"):
            return None
        lengths = [plane.length for plane in planes]
        if self.stop == "first":
            known, (turn, place) = self._first_end(lengths), _in_rounds(self._order)
        else:
            known, (turn, place) = sum(lengths), _in_turn(lengths)
        return Plane(
            members.columns,
            min(known, ENDLESS),
            lambda indices: members.rows(*turn(indices)),
            held=lambda column, rows, end: members.held(column, rows, [end] * len(planes), place),
        )


def _checked_readers(node: Node[Any], readers: tuple[Reader[Any], ...]) -> tuple[Reader[Any], ...]:
    """Check the readers of an op that takes them as `*readers`.

    Raises:
        TypeError: One of them cannot be called.
    """
    for reader in readers:
        errors.check_reader(f"{type(node).__name__}(*readers)", reader)
    return readers


def _planes(readers: Sequence[Reader[Any]]) -> list[Plane]:
    """Return their planes if all are indexed; else []."""
    planes = list[Plane]()
    for reader in readers:
        plane = indexed(reader)
        if plane is None:
            return []
        planes.append(plane)
    return planes


def _total(readers: Sequence[Reader[Any]]) -> int | None:
    """Return the sum of all lengths, if all are known."""
    known = [length(reader) for reader in readers]
    return None if None in known else sum(n for n in known if n is not None)


def _in_rounds(order: Sequence[int]) -> tuple[_Turn, _Place]:
    """Map samples to readers and back, in rounds of a fixed order."""
    given = [order[:place].count(which) for place, which in enumerate(order)]
    each = [order.count(which) for which in order]

    def turn(indices: Indices) -> tuple[Indices, Indices]:
        namespace = indices.__array_namespace__()
        which, before, many = map(namespace.asarray, (list(order), given, each))
        place = indices % len(order)
        return which[place], indices // len(order) * many[place] + before[place]

    def place(which: int, local: Array) -> Array:
        places = np.flatnonzero(np.array(order) == which)
        found: Array = local // len(places) * len(order) + places[local % len(places)]
        return found

    return turn, place


def _in_turn(lengths: Sequence[int]) -> tuple[_Turn, _Place]:
    """Map samples to readers and back, if round r has sample r of each reader that is long enough.

    Between the lengths at which readers end, rounds have one size, so a division finds the round of
    a sample.
    """
    rounds = sorted({0, *lengths})[:-1] or [0]  # rounds before which a reader has ended
    firsts = [sum(min(length, before) for length in lengths) for before in rounds]
    going = [[n for n, length in enumerate(lengths) if length > before] for before in rounds]
    sizes, table = np.array(list(map(len, going))), np.array([*itertools.chain(*going)], int)
    offsets = np.cumsum(sizes) - sizes

    def turn(indices: Indices) -> tuple[Indices, Indices]:
        namespace = indices.__array_namespace__()
        first, before, size, offset, numbers = map(
            namespace.asarray, (firsts, rounds, sizes, offsets, table)
        )
        stage = namespace.searchsorted(first[1:], indices, side="right")
        since = indices - first[stage]
        return numbers[offset[stage] + since % size[stage]], before[stage] + since // size[stage]

    def place(which: int, local: Array) -> Array:
        stage = np.searchsorted(rounds[1:], local, side="right")
        before_it = np.array([sum(n < which for n in numbers) for numbers in going])
        since = (local - np.array(rounds)[stage]) * sizes[stage] + before_it[stage]
        found: Array = np.array(firsts)[stage] + since
        return found

    return turn, place
