"""`exactly`: as many samples as a number of whole steps needs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Literal, TypeVar, get_args

from jreader import errors
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    argument,
    checked_position,
    choice,
    counted,
    described,
    epochs,
    indexed,
    length,
    op,
    start,
    whole,
)
from jreader.readers.joined_columns import ENDLESS
from jreader.readers.nodes import unrolled
from jreader.readers.planes import Plane
from jreader.transforms.joins import compose
from jreader.transforms.mixtures import mix
from jreader.transforms.slices import firstn

T = TypeVar("T")
Short = Literal["wrap", "pad", "error"]


@op
class exactly(Node[T]):
    """As many samples of `reader` as `steps` batches need; it begins again if there are fewer.

    A cursor resumes with other numbers, because the length of an epoch does not change the order.

    >>> "".join(exactly(lambda: "abcde", 2)()), "".join(exactly(lambda: "abcde", 2, steps=2)())
    ('abcdea', 'abcd')

    Args:
        reader: Any reader.
        batch_size: Samples of a step.
        steps: The number of steps; None for as many as the samples of `reader` begin.
        short: What to do if `reader` ends too soon: "wrap" begins it again, in the same order;
            "pad" leaves the last step short, if only that one is; "error" raises.
        origin: The index of a sample with which a step begins: after a resume with another size,
            that of the first one.

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
        """Begins a pass; its position is (samples before this round, in it, that of `reader`)."""
        before, done, inner = checked_position(at, (0, 0, None))
        up = start(self.reader, inner)

        def part() -> tuple[Iterator[T], Position]:
            # a second round is begun where the first one has said how many samples are wanted
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

        return Pass(
            chain.from_iterable(rounds()),
            lambda: (before, count(), up.position()),
            lambda: up.close(),  # noqa: PLW0108  # that of the round it is in then
        )

    def check(self) -> None:
        """Checks the length of the reader, if it is known.

        Raises:
            ShortEpoch: It ends too soon.
        """
        known = None if self.short == "wrap" else length(self.reader)
        if known is not None and known < self._least(known):
            raise self._too_short(known)

    def _wanted(self, given: int) -> int:
        """How many samples are needed if `reader` ends after `given`."""
        wanted = given if self.steps is None else self.steps * self.batch_size
        return self.origin - (self.origin - wanted) // self.batch_size * self.batch_size

    def _least(self, given: int) -> int:
        """How many samples there must be."""
        wanted = self._wanted(given)
        return max(wanted - self.batch_size + 1, 0) if self.short == "pad" else wanted

    def _too_short(self, given: int) -> errors.ShortEpoch:
        ended = "gave nothing" if self.short == "wrap" else f"ended after {given}"
        wanted = self._wanted(given)
        return errors.ShortEpoch(
            f"{described(self.reader)} {ended}, and an epoch needs {wanted}: "
            f"{wanted // self.batch_size} steps of {self.batch_size}. Give a steps_per_epoch that "
            f"it can fill, or, where jreader.batch makes the batches, last='wrap', which begins it "
            f"again."
        )

    def length(self) -> int | None:
        """As many as the steps need, if their number or that of the samples is known."""
        known = length(self.reader)
        if self.short == "pad":
            return None if known is None else min(known, self._wanted(known))
        if known is None:
            return None if self.steps is None else self._wanted(0)
        return self._wanted(known)

    def plane(self) -> Plane | None:
        """Sample i is sample i of the first round, or of a later one."""
        up = indexed(self.reader)
        if up is None:
            return None
        known, wanted = up.length, min(self._wanted(up.length), ENDLESS)
        if wanted > known and self.short == "pad" and known >= self._least(known):
            wanted = known
        if wanted > known and not (self.short == "wrap" and known):
            return None
        again = up.reordered(wanted, lambda indices: indices % known if wanted > known else indices)
        return _Elastic(again.columns, again.length, again.route)


class _Elastic(Plane):
    """A plane of as many samples as steps need; a position may be of a longer pass."""

    @property
    def furthest(self) -> int:
        """No limit: a position beyond the end is the end."""
        return ENDLESS

    @property
    def extent(self) -> str:
        """The same for all numbers of steps, so that a cursor resumes with another one."""
        return "as many as steps need"


def may_not_end(reader: Reader[Any]) -> bool:
    """Whether a pass may never end: no reader below has a length, and no op cuts it off.

    >>> may_not_end(lambda: "abc"), may_not_end(firstn(lambda: "abc", 2)), may_not_end(range(3))
    (True, False, False)
    """
    return unrolled(_may_not_end, reader)


def _may_not_end(reader: Reader[Any]) -> Generator[Sequence[Reader[Any]], list[bool], bool]:
    if not isinstance(reader, Node) or not reader.input_readers:
        return length(reader) is None
    rule = _rule_of_end(reader)
    if isinstance(rule, bool):
        return rule
    below = yield reader.input_readers
    return rule(below)


def _rule_of_end(op: Node[Any]) -> bool | Callable[[list[bool]], bool]:
    """Whether an op may never end; or whether it does if any, or all, of its readers may not."""
    if isinstance(op, epochs) and op.n is None:
        return True
    if isinstance(op, firstn) or (isinstance(op, exactly) and op.steps is not None):
        return False
    if isinstance(op, mix):
        return op.stop == "repeat" or (all if op.stop == "first" else any)
    return all if isinstance(op, compose) else any
