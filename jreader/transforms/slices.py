"""`firstn`, `skip` and `shard`: some of the samples, by their index alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, TypeVar

from jreader.errors import NotResumable
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    checked_position,
    counted,
    foreign,
    indexed,
    length,
    lookup_of,
    op,
    start,
    whole,
)
from jreader.readers.planes import ENDLESS, Plane
from jreader.transforms.leaking_parts import note_part

T = TypeVar("T")


@op
class firstn(Node[T]):
    """The first `n` samples; it pulls exactly `n`, and never waits for one more.

    >>> list(firstn(lambda: "abcdef", 2)())
    ['a', 'b']

    Cost: it keeps no samples and does not read ahead. Resuming costs what it costs in `reader`.

    Args:
        reader: Any reader, also one without an end.
        n: How many samples; fewer if the reader ends before.
    """

    reader: Reader[T]
    n: int = whole()
    from_reader = "some"
    moves = "rows"
    joins_lanes = True

    def check_arguments(self) -> dict[str, Any]:
        """Notes which part of the reader this is."""
        note_part(self)
        return {}

    def chosen_places(self, below: Any) -> Any:
        """Which of a range or array of places its samples have."""
        return below[: self.n]

    def start(self, at: Position) -> Pass[T]:
        """Begins a pass; its position is (samples handed over, position of `reader`, (n,))."""
        done, inner, of = checked_position(at, (0, None, (self.n,)))
        _check_same_part(self, of, (self.n,))
        if done > self.n:
            raise foreign(at, (self.n, None, (self.n,)))
        up = start(self.reader, inner)
        items, count = counted(islice(up.items, max(self.n - done, 0)), done)
        return Pass(items, lambda: (count(), up.position(), (self.n,)), up.close)

    def length(self) -> int | None:
        """`n`, or the length of `reader` if that is less; `n` where that has no end."""
        known = length(self.reader)
        if known is None and (up := indexed(self.reader)):
            known = up.length
        return None if known is None else min(self.n, known)

    def lookup(self) -> Callable[[int], T] | None:
        """Finds samples as `reader` does."""
        return lookup_of(self.reader)

    def plane(self) -> Plane | None:
        """The plane of `reader`, up to `n`."""
        up = indexed(self.reader)
        return up and up.part(0, min(self.n, up.length))


@op
class skip(Node[T]):
    """The samples after the first `n`.

    >>> list(skip(lambda: "abcdef", 4)())
    ['e', 'f']

    Cost: an indexed reader goes to sample `n` at once; a stream reads the first `n` samples and
    drops them. Resuming costs what it costs in `reader`.

    Args:
        reader: Any reader.
        n: How many samples to leave out.
    """

    reader: Reader[T]
    n: int = whole()
    from_reader = "some"
    moves = "rows"
    joins_lanes = True

    def check_arguments(self) -> dict[str, Any]:
        """Notes which part of the reader this is."""
        note_part(self)
        return {}

    def chosen_places(self, below: Any) -> Any:
        """Which of a range or array of places its samples have."""
        return below[self.n :]

    def start(self, at: Position) -> Pass[T]:
        """Begins a pass; its position is (whether it has begun, position of `reader`, (n,))."""
        return _every_nth(self, at, (self.n,), first=self.n, step=1)

    def length(self) -> int | None:
        """The length of `reader` less `n`, but at least 0."""
        known = length(self.reader)
        return None if known is None else max(known - self.n, 0)

    def lookup(self) -> Callable[[int], T] | None:
        """Sample i is sample i + n of `reader`."""
        find = lookup_of(self.reader)
        return find and (lambda index: find(index + self.n))

    def plane(self) -> Plane | None:
        """Sample i is sample i + n of `reader`."""
        up = indexed(self.reader)
        if up is None:
            return None
        left = up.length if up.length >= ENDLESS else max(up.length - self.n, 0)
        return up.part(self.n, left)


@op
class shard(Node[T]):
    """Every `num_shards`-th sample from sample `index` on: one part of a partition.

    One sample of each shard in turn gives the samples of `reader` again.

    >>> [list(shard(lambda: "abcde", 2, index)()) for index in range(2)]
    [['a', 'c', 'e'], ['b', 'd']]

    Cost: of an indexed reader, only this part is read. Of a stream, every shard reads all samples,
    and drops those of the others. Resuming costs what it costs in `reader`.

    Args:
        reader: Any reader; the same samples in the same order for every shard.
        num_shards: How many parts there are.
        index: Which part this is, from 0.

    Raises:
        ValueError: `index` is not below `num_shards`.
    """

    reader: Reader[T]
    num_shards: int = whole(least=1)
    index: int = whole()
    from_reader = "some"
    moves = "rows"
    joins_lanes = True

    def check_arguments(self) -> dict[str, Any]:
        """Checks that there is such a shard, and notes which part of the reader this is."""
        if self.index >= self.num_shards:
            raise ValueError(
                f"shard(reader, num_shards, index) needs an index below num_shards, not "
                f"{self.index} of {self.num_shards}: shards count from 0 to {self.num_shards - 1}."
            )
        note_part(self)
        return {}

    def chosen_places(self, below: Any) -> Any:
        """Which of a range or array of places its samples have."""
        return below[self.index :: self.num_shards]

    def start(self, at: Position) -> Pass[T]:
        """Begins a pass; its position is as that of `skip`, with (num_shards, index)."""
        of = (self.num_shards, self.index)
        return _every_nth(self, at, of, first=self.index, step=self.num_shards)

    def length(self) -> int | None:
        """The number of samples of this part."""
        known = length(self.reader)
        return None if known is None else self._share(known)

    def lookup(self) -> Callable[[int], T] | None:
        """Sample i is sample i * num_shards + index of `reader`."""
        find = lookup_of(self.reader)
        return find and (lambda index: find(index * self.num_shards + self.index))

    def plane(self) -> Plane | None:
        """Sample i is sample i * num_shards + index of `reader`."""
        up, step, first = indexed(self.reader), self.num_shards, self.index
        return up and up.reordered(self._share(up.length), lambda indices: indices * step + first)

    def _share(self, known: int) -> int:
        return known if known >= ENDLESS else len(range(self.index, known, self.num_shards))


def _every_nth(
    node: skip[T] | shard[T], at: Position, numbers: tuple[int, ...], first: int, step: int
) -> Pass[T]:
    """`reader[first::step]`, where the first sample is counted differently from those after it."""
    begun, inner, of = checked_position(at, (False, None, numbers))
    _check_same_part(node, of, numbers)
    up = start(node.reader, inner)
    items, count = counted(islice(up.items, step - 1 if begun else first, None, step))
    return Pass(items, lambda: (begun or count() > 0, up.position(), numbers), up.close)


def _check_same_part(node: Node[Any], of: Any, numbers: tuple[int, ...]) -> None:
    """Raises NotResumable for a position of another part, which would repeat or lose samples."""
    if tuple(of) != numbers:
        kind = type(node).__name__
        raise NotResumable(
            f"this position is of {kind}{tuple(of)}, and here it is {kind}{numbers}, made at "
            f"{node.made_at}: go on with the numbers it had, or start at the beginning (at=None)."
        )
