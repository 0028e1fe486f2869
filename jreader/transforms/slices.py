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
from jreader.readers.declarations import declared_names
from jreader.readers.joined_columns import ENDLESS
from jreader.readers.planes import Plane
from jreader.transforms.leaking_parts import note_part

T = TypeVar("T")


class _Slice(Node[T]):
    """`reader[first:stop:step]`: an op that says which slice it is, and by which numbers."""

    reader: Reader[T]
    from_reader = "some"
    moves = "rows"

    def cut(self) -> tuple[int, int | None, int]:
        """The first sample, that at which it stops, and the step."""
        raise NotImplementedError

    def check_arguments(self) -> dict[str, Any]:
        """Notes which part of the reader this is."""
        note_part(self)
        return {}

    def chosen_places(self, below: Any) -> Any:
        """Which of a range or array of places its samples have."""
        return below[slice(*self.cut())]

    def start(self, at: Position) -> Pass[T]:
        """Begins a pass; its position is (samples handed over, position of `reader`, arguments).

        Where the slice has no stop, it only says whether any were handed over.
        """
        first, stop, step = self.cut()
        numbers = tuple(getattr(self, name) for name in declared_names(self)[1:])
        beginning = (False if stop is None else 0, None, numbers)
        done, inner, of = checked_position(at, beginning)
        if tuple(of) != numbers:
            raise self._of_another_part(tuple(of), numbers)
        if stop is not None and done > stop:
            raise foreign(at, (stop, None, numbers))
        up, as_given = start(self.reader, inner), type(done)
        left = islice(up.items, step - 1 if done else first, stop and stop - done, step)
        items, count = counted(left, done)
        return Pass(items, lambda: (as_given(count()), up.position(), numbers), up.close)

    def length(self) -> int | None:
        """As many as the slice has of `reader`; `stop` where that has no end."""
        known = length(self.reader)
        if known is None and self.cut()[1] is not None and (up := indexed(self.reader)):
            known = up.length
        return None if known is None else self._share(known)

    def lookup(self) -> Callable[[int], T] | None:
        """Sample i is sample `first + i * step` of `reader`."""
        find, (first, _, step) = lookup_of(self.reader), self.cut()
        return find and (lambda index: find(first + index * step))

    def plane(self) -> Plane | None:
        """Sample i is sample `first + i * step` of `reader`."""
        up, (first, _, step) = indexed(self.reader), self.cut()
        if up is None:
            return None
        share = self._share(up.length)
        if step == 1:
            return up.part(first, share)
        return up.reordered(share, lambda indices: indices * step + first)

    def _share(self, known: int) -> int:
        first, stop, step = self.cut()
        if known >= ENDLESS and stop is None:
            return known
        return len(range(*slice(first, stop, step).indices(known)))

    def _of_another_part(self, of: tuple[Any, ...], numbers: tuple[int, ...]) -> NotResumable:
        """The error of a position that would repeat or lose samples."""
        kind = type(self).__name__
        return NotResumable(
            f"this position is of {kind}{of}, and here it is {kind}{numbers}, made at "
            f"{self.made_at}: go on with the numbers it had, or start at the beginning (at=None)."
        )


@op
class firstn(_Slice[T]):
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

    def cut(self) -> tuple[int, int | None, int]:
        """The samples before `n`."""
        return 0, self.n, 1


@op
class skip(_Slice[T]):
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

    def cut(self) -> tuple[int, int | None, int]:
        """The samples from `n` on."""
        return self.n, None, 1


@op
class shard(_Slice[T]):
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

    def check_arguments(self) -> dict[str, Any]:
        """Checks that there is such a shard, and notes which part of the reader this is."""
        if self.index >= self.num_shards:
            raise ValueError(
                f"shard(reader, num_shards, index) needs an index below num_shards, not "
                f"{self.index} of {self.num_shards}: shards count from 0 to {self.num_shards - 1}."
            )
        return super().check_arguments()

    def cut(self) -> tuple[int, int | None, int]:
        """Every sample of this part."""
        return self.index, None, self.num_shards
