"""As many samples as whole steps need, whatever there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import ClassVar, Literal, TypeVar

from jreader import errors
from jreader.readers import Node, Pass, Position, Reader, counted, described, indexed, length, start
from jreader.readers.planes import ENDLESS, Plane

T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False)
class exactly(Node[T]):
    """The samples of `steps` batches, begun again from the first one where there are fewer.

    A cursor goes on with other numbers: how long an epoch is orders nothing.

    >>> "".join(exactly(lambda: "abcde", 2)()), "".join(exactly(lambda: "abcde", 2, steps=2)())
    ('abcdea', 'abcd')

    Args:
        reader: Any reader.
        batch_size: Samples of a step.
        steps: The number of steps; None for as many as `reader` begins.
        wrap: Whether `reader` is begun again, in the same order, where it ends too soon.
        unit: What it gives, as errors say it.

    Raises:
        ShortEpoch: It ends too soon, and may not be begun again, or gives nothing.
    """

    reader: Reader[T]
    batch_size: int
    steps: int | None = None
    wrap: bool = True
    unit: str = "samples"
    hands_on: ClassVar[Literal["", "all", "some"]] = "some"
    unplanned: ClassVar[tuple[str, ...]] = ("batch_size", "steps", "unit")

    def __post_init__(self) -> None:
        """Refuses what is no reader, and no whole numbers."""
        call = "exactly(reader, batch_size, steps)"
        errors.check_reader(call, self.reader)
        object.__setattr__(self, "batch_size", errors.check_number(call, self.batch_size, 1))
        if self.steps is not None:
            object.__setattr__(self, "steps", errors.check_number(call, self.steps))
        object.__setattr__(self, "wrap", bool(self.wrap))

    def start(self, at: Position) -> Pass[T]:
        """The position is (samples of the rounds before, of this one, position of `reader`)."""
        before, done, inner = at or (0, 0, None)
        up = start(self.reader, inner)

        def part() -> tuple[Iterator[T], Position]:
            # a second round is begun where the first one has said how many samples are wanted
            known = before or self.steps is not None
            left = max(self._wanted(before) - before - done, 0) if known else None
            return counted(islice(up.items, left), done)

        items, count = part()

        def rounds() -> Iterator[Iterator[T]]:
            nonlocal before, done, up, items, count
            known = None if self.wrap else length(self.reader)
            if known is not None and known < self._wanted(known):
                raise self._short(known)
            while True:
                yield items
                given = before + count()
                if given >= self._wanted(given):
                    return
                if not (self.wrap and count()):
                    raise self._short(given)
                up.close()
                before, done, up = given, 0, start(self.reader)
                items, count = part()

        return Pass(
            chain.from_iterable(rounds()),
            lambda: (before, count(), up.position()),
            lambda: up.close(),  # noqa: PLW0108  # that of the round it is in then
        )

    def _wanted(self, given: int) -> int:
        """How many samples there have to be, if `reader` ends after so many."""
        steps = -(-given // self.batch_size) if self.steps is None else self.steps
        return self.batch_size * steps

    def _short(self, given: int) -> errors.ShortEpoch:
        again = "gave nothing" if self.wrap else f"ended after {given} {self.unit}"
        or_wrap = ", or last='wrap', which begins it again" if self.unit == "samples" else ""
        return errors.ShortEpoch(
            f"{described(self.reader)} {again}, and an epoch needs {self._wanted(given)}: "
            f"{self._wanted(given) // self.batch_size} steps of {self.batch_size}. Give a "
            f"steps_per_epoch that it can fill{or_wrap}."
        )

    def length(self) -> int | None:
        """What the steps need, where their number or that of the samples is known."""
        known = length(self.reader)
        if known is None:
            return None if self.steps is None else self._wanted(0)
        return self._wanted(known)

    def plane(self) -> Plane | None:
        """Place i is place i of the first round, or of a later one."""
        up = indexed(self.reader)
        if up is None:
            return None
        known, wanted = up.length, min(self._wanted(up.length), ENDLESS)
        if wanted > known and not (self.wrap and known):
            return None
        again = up.reordered(wanted, lambda places: places % known if wanted > known else places)
        return replace(again, elastic=True)
