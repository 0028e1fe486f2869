"""`firstn`, `skip`, `shard` and `exactly`: choose samples by index alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, Literal, TypeVar, get_args

from jreader.errors import NotResumable, ShortEpoch
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    argument,
    bad_position,
    checked_position,
    choice,
    counted,
    described,
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
Short = Literal["wrap", "pad", "error"]


class _Slice(Node[T]):
    """Read `reader[first:stop:step]`; an op defines its slice, and the numbers for positions."""

    reader: Reader[T]
    from_reader = "some"
    moves = "rows"

    def cut(self) -> tuple[int, int | None, int]:
        """Return the first sample, where to stop, and the step."""
        raise NotImplementedError

    def check_arguments(self) -> dict[str, Any]:
        """Note which part of the reader this is."""
        note_part(self)
        return {}

    def chosen_places(self, below: Any) -> Any:
        """Select the places of its samples from a range or array of places."""
        return below[slice(*self.cut())]

    def start(self, at: Position) -> Pass[T]:
        """Start a pass; its position is (samples yielded, position of `reader`, arguments).

        If the slice has no stop, the position only says whether any samples were yielded.
        """
        first, stop, step = self.cut()
        numbers = tuple(getattr(self, name) for name in declared_names(self)[1:])
        beginning = (False if stop is None else 0, None, numbers)
        done, inner, of = checked_position(at, beginning)
        if tuple(of) != numbers:
            raise self._of_another_part(tuple(of), numbers)
        if stop is not None and done > stop:
            raise bad_position(at, (stop, None, numbers))
        up, as_given = start(self.reader, inner), type(done)
        left = islice(up.items, step - 1 if done else first, stop and stop - done, step)
        items, count = counted(left, done)
        return Pass(items, lambda: (as_given(count()), up.position(), numbers), up.close)

    def length(self) -> int | None:
        """Return the length of the slice; `stop` if `reader` is endless."""
        known = length(self.reader)
        if known is None and self.cut()[1] is not None and (up := indexed(self.reader)):
            known = up.length
        return None if known is None else self._share(known)

    def lookup(self) -> Callable[[int], T] | None:
        """Map sample i to sample `first + i * step` of `reader`."""
        find, (first, _, step) = lookup_of(self.reader), self.cut()
        return find and (lambda index: find(first + index * step))

    def plane(self) -> Plane | None:
        """Map sample i to sample `first + i * step` of `reader`."""
        up, (first, _, step) = indexed(self.reader), self.cut()
        if up is None:
            return None
        share = self._share(up.length)
        if step == 1:
            return up.part(first, share)
        return up.reordered(
            share,
            lambda indices: indices * step + first,
            lambda held: held.strided(first, step),
            lambda end: end * step + first,
        )

    def _share(self, known: int) -> int:
        first, stop, step = self.cut()
        if known >= ENDLESS and stop is None:
            return known
        return len(range(*slice(first, stop, step).indices(known)))

    def _of_another_part(self, of: tuple[Any, ...], numbers: tuple[int, ...]) -> NotResumable:
        """Return the error for a position that would repeat or lose samples."""
        kind = type(self).__name__
        return NotResumable(
            f"this position is of {kind}{of}, and here it is {kind}{numbers}, made at "
            f"{self.made_at}: go on with the numbers it had, or start at the beginning (at=None)."
        )


@op
class firstn(_Slice[T]):
    """Keep the first `n` samples; read exactly `n`, and never wait for one more.

    >>> list(firstn(lambda: "abcdef", 2)())
    ['a', 'b']

    Cost: keeps no samples and does not read ahead. Resuming costs as much as resuming `reader`.

    Args:
        reader: Any reader, even an endless one.
        n: The number of samples; fewer if the reader ends sooner.
    """

    reader: Reader[T]
    n: int = whole()

    def cut(self) -> tuple[int, int | None, int]:
        """Select the samples before `n`."""
        return 0, self.n, 1

    def may_be_endless(self) -> bool:
        """Return False: it ends after `n` samples."""
        return False


@op
class skip(_Slice[T]):
    """Skip the first `n` samples.

    >>> list(skip(lambda: "abcdef", 4)())
    ['e', 'f']

    Cost: an indexed reader goes to sample `n` directly; a stream reads the first `n` samples and
    drops them. Resuming costs as much as resuming `reader`.

    Args:
        reader: Any reader.
        n: The number of samples to skip.
    """

    reader: Reader[T]
    n: int = whole()

    def cut(self) -> tuple[int, int | None, int]:
        """Select the samples from `n` on."""
        return self.n, None, 1


@op
class shard(_Slice[T]):
    """Keep every `num_shards`-th sample, starting with sample `index`: one shard of the data.

    Taking one sample of each shard in turn restores the order of `reader`.

    >>> [list(shard(lambda: "abcde", 2, index)()) for index in range(2)]
    [['a', 'c', 'e'], ['b', 'd']]

    Cost: an indexed reader reads only this part. For a stream, every shard reads all samples, and
    drops those of the others. Resuming costs as much as resuming `reader`.

    Args:
        reader: Any reader; the same samples in the same order for every shard.
        num_shards: The number of shards.
        index: The number of this shard, from 0.

    Raises:
        ValueError: `index` is not below `num_shards`.
    """

    reader: Reader[T]
    num_shards: int = whole(least=1)
    index: int = whole()

    def check_arguments(self) -> dict[str, Any]:
        """Check the index, and note which part of the reader this is."""
        if self.index >= self.num_shards:
            raise ValueError(
                f"shard(reader, num_shards, index) needs an index below num_shards, not "
                f"{self.index} of {self.num_shards}: shards count from 0 to {self.num_shards - 1}."
            )
        return super().check_arguments()

    def cut(self) -> tuple[int, int | None, int]:
        """Select every `num_shards`-th sample from `index` on."""
        return self.index, None, self.num_shards


@op
class exactly(Node[T]):
    """Yield as many samples of `reader` as `steps` batches need, restarting it if necessary.

    A cursor may resume with other numbers, because the length of an epoch does not affect the
    order.

    >>> "".join(exactly(lambda: "abcde", 2)()), "".join(exactly(lambda: "abcde", 2, steps=2)())
    ('abcdea', 'abcd')

    Args:
        reader: Any reader.
        batch_size: Samples per step.
        steps: The number of steps; None for as many as the samples of `reader` begin.
        short: What to do if `reader` ends too soon: "wrap" restarts it, in the same order; "pad"
            leaves the last step short, if only that one is; "error" raises.
        origin: The index of a sample that begins a step: after resuming with another size, that of
            the first one.

    Raises:
        ShortEpoch: `reader` ends too soon, or has no samples (while iterating).
    """

    reader: Reader[T]
    batch_size: int = whole(least=1, cursor="never")
    steps: int | None = whole(default=None, cursor="never")
    short: Short = choice(*get_args(Short), default="wrap")
    origin: int = argument(default=0, cursor="never")
    from_reader = "some"
    moves = "rows"
    in_cursor = "in place"

    def start(self, at: Position) -> Pass[T]:
        """Start a pass; its position is (samples before this round, in it, that of `reader`)."""
        before, done, inner = checked_position(at, (0, 0, None))
        up = start(self.reader, inner)

        def part() -> tuple[Iterator[T], Position]:
            # a second round starts only once the first has determined how many samples are needed
            known = before or self.steps is not None
            left = max(self._wanted(before) - before - done, 0) if known else None
            return counted(islice(up.items, left), done)

        items, count = part()

        def rounds() -> Iterator[Iterator[T]]:
            nonlocal before, done, up, items, count
            self.check()
            while True:
                yield items
                given = before + count()
                if given >= self._least(given):
                    return
                if self.short != "wrap" or not count():
                    raise self._too_short(given)
                up.close()
                before, done, up = given, 0, start(self.reader)
                items, count = part()

        def close() -> None:
            up.close()  # whichever round is current by then

        items_left = chain.from_iterable(rounds())
        return Pass(items_left, lambda: (before, count(), up.position()), close)

    def check(self) -> None:
        """Check the length of the reader, if it is known.

        Raises:
            ShortEpoch: It ends too soon.
        """
        known = None if self.short == "wrap" else length(self.reader)
        if known is not None and known < self._least(known):
            raise self._too_short(known)

    def _wanted(self, given: int) -> int:
        """Return how many samples are needed if `reader` ends after `given`."""
        wanted = given if self.steps is None else self.steps * self.batch_size
        return self.origin - (self.origin - wanted) // self.batch_size * self.batch_size

    def _least(self, given: int) -> int:
        """Return how many samples there must be at least."""
        wanted = self._wanted(given)
        return max(wanted - self.batch_size + 1, 0) if self.short == "pad" else wanted

    def _too_short(self, given: int) -> ShortEpoch:
        ended = "gave nothing" if self.short == "wrap" else f"ended after {given}"
        wanted = self._wanted(given)
        return ShortEpoch(
            f"{described(self.reader)} {ended}, and an epoch needs {wanted}: "
            f"{wanted // self.batch_size} steps of {self.batch_size}. Give a steps_per_epoch that "
            f"it can fill, or, where jreader.batch makes the batches, last='wrap', which begins it "
            f"again."
        )

    def length(self) -> int | None:
        """Return the number of samples, if that of steps or of the reader's samples is known."""
        known = length(self.reader)
        if self.short == "pad":
            return None if known is None else min(known, self._wanted(known))
        if known is None:
            return None if self.steps is None else self._wanted(0)
        return self._wanted(known)

    def may_be_endless(self) -> bool | Callable[[list[bool]], bool]:
        """Return False if the number of steps is given."""
        return super().may_be_endless() if self.steps is None else False

    def plane(self) -> Plane | None:
        """Map sample i to sample i of the first round, or of a later one."""
        up = indexed(self.reader)
        if up is None:
            return None
        known, wanted = up.length, min(self._wanted(up.length), ENDLESS)
        if wanted > known and self.short == "pad" and known >= self._least(known):
            wanted = known
        if wanted > known and not (self.short == "wrap" and known):
            return None
        again = up.reordered(
            wanted,
            lambda indices: indices % known if wanted > known else indices,
            lambda held: held.repeated(-(-(wanted - held.index) // known), known),
        )
        return _Elastic(again.columns, again.length, again.route, lanes=up.lanes, held=again.held)


class _Elastic(Plane):
    """A plane whose length depends on the steps; a position may come from a longer pass."""

    @property
    def last_position(self) -> int:
        """No limit: a position beyond the end is the end."""
        return ENDLESS

    @property
    def extent(self) -> str:
        """The same text for all numbers of steps, so that a cursor can resume with another one."""
        return "as many as steps need"
