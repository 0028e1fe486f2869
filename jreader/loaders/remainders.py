"""How epochs end: what becomes of samples that fill no step, and how many steps there are.

One rule for all doors. What is said wins: `last`, and `drop_last` where it means one of its words.
Where nothing is said, a feed that is one batch for one place comes as it is, of any size; one that
is cut, or made of several batches, needs equal parts: what makes none is left out, and told. Only
`Pipeline.load`, whose steps have one size, leaves out a short last batch, unless its `batch` says
`drop_last=False`; then it is padded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from jreader import errors
from jreader.batches import batch
from jreader.batching import batching
from jreader.readers import Node, Reader, described
from jreader.readers.planes import ENDLESS
from jreader.readers.rewriting import rewritten
from jreader.transforms import exactly
from jreader.transforms.lengths import Short, may_not_end

_SHORT: dict[str, Short] = {"wrap": "wrap", "pad": "pad", "keep": "pad"}

Last: TypeAlias = Literal["drop", "pad", "wrap", "error"]


@dataclass(frozen=True)
class Remainder:
    """How epochs end.

    Attributes:
        last: What becomes of the last samples where they fill no step: "drop" leaves them out,
            "pad" adds zeros under a mask, "wrap" adds the first samples of the epoch, "error"
            raises; "keep" hands batches over as they come. None: that is not said.
        steps: How many steps an epoch has; None for as many as its samples fill.
        drop_last: What was said in other words; None for nothing.
        varies: Whether steps may differ in size, wherever they come.
        tells: Whether what is left out is told: nobody asked for it.
        quiet: Whether it is told only where it is the same in each epoch: a short last batch, which
            `load` leaves out where nothing is said.
        onward: Whether an epoch begins where the one before ended: `steps` of a stream that may
            have no end.
    """

    last: Last | Literal["keep"] | None = None
    steps: int | None = None
    drop_last: bool | None = None
    varies: bool = False
    tells: bool = False
    quiet: bool = False
    onward: bool = False

    def __str__(self) -> str:
        """What processes have to agree on."""
        return f"Remainder(last={self.last!r}, steps={self.steps})"

    @classmethod
    def checked(
        cls,
        drop_last: bool | None = None,
        last: Last | None = None,
        steps_per_epoch: int | None = None,
    ) -> Remainder:
        """What the arguments of a loader say.

        >>> Remainder.checked(last="pad").last, Remainder.checked(drop_last=False).drop_last
        ('pad', False)

        Raises:
            TypeError: `drop_last` is neither a bool nor None.
            ValueError: `last` is no policy, or `drop_last` says another one; there are no steps.
        """
        if last is not None and last not in get_args(Last):
            raise ValueError(
                f"last={last!r} says nothing of the last samples of an epoch: give 'drop', 'pad', "
                f"'wrap' or 'error', or leave it out, for what drop_last says."
            )
        if drop_last is not None:
            drop_last = errors.check_flag("drop_last of a loader", drop_last)
        means = {None: last, True: "drop", False: "pad"}[drop_last]
        if last not in (None, means):
            raise ValueError(
                f"drop_last={drop_last} means last={means!r}, and last={last!r} was given: leave "
                f"one out."
            )
        if steps_per_epoch is not None:
            steps_per_epoch = errors.check_number("steps_per_epoch", steps_per_epoch, 1)
        return cls(last, steps_per_epoch, drop_last)

    def of_batches(self, batches: Reader[Any]) -> Remainder:
        """What they mean for steps of one size, each of the same number of batches.

        >>> Remainder().of_batches(batch(lambda: "abc", 2)).last
        'drop'
        >>> Remainder().of_batches(batch(lambda: "abc", 2, drop_last=False)).last
        'pad'

        Raises:
            ValueError: `batch` keeps a short last batch, and the loader leaves it out.
        """
        kept = self._kept(batches)
        drops = not kept if self.drop_last is None else self.drop_last
        said = kept or self.last is not None or self.drop_last is not None
        last = self.last or ("drop" if drops else "pad")
        return self._meant(batches, last=last, quiet=not said and self.steps is None)

    def of_places(self, batches: Reader[Any], *, equal: bool) -> Remainder:
        """What they mean where each place gets a batch, as it comes.

        >>> Remainder().of_places(batch(lambda: "abc", 2), equal=False).last
        'keep'
        >>> Remainder().of_places(batch(lambda: "abc", 2), equal=True).tells
        True

        Args:
            batches: The batches.
            equal: Whether a feed needs equal parts: several places, a cut batch, or a chunk.

        Raises:
            ValueError: `batch` keeps a short last batch, and the loader leaves it out.
        """
        if self.last is not None:
            self._kept(batches)
            return self._meant(batches, varies=self.last == "pad")
        if not equal:
            return self._meant(batches, last="keep", varies=True)
        if self.drop_last is False:
            return self._meant(batches, last="pad", varies=True)
        return self._meant(batches, last="drop", varies=True, tells=self.drop_last is None)

    def _meant(self, batches: Reader[Any], **said: Any) -> Remainder:
        op = batching(batches).counted
        endless = may_not_end(op.reader if op else batches)
        return replace(self, onward=self.steps is not None and endless, **said)

    def _kept(self, batches: Reader[Any]) -> bool:
        """Whether `batch` says that it keeps a short one; refused where that is contradicted."""
        op = batching(batches).op
        kept = type(op) is batch and op.drop_last is False
        if kept and (self.last == "drop" or (self.last is None and self.drop_last)):
            word = "last='drop'" if self.last else "drop_last=True"
            raise ValueError(
                f"batch(..., drop_last=False) keeps a short last batch, and the loader's {word} "
                f"leaves it out: leave one of them out."
            )
        return kept

    def strict(self, batches: Reader[Any]) -> bool:
        """Whether a short step is an error: as was asked for, or since a whole one is missing.

        Where `exactly` counts samples, it sees to that; a step is short there only after a resume
        with batches of another size.
        """
        if self.steps is None:
            return self.last == "error"
        return self.last not in ("pad", "keep") and batching(batches).counted is None

    def of(
        self, batches: Reader[Any], per_step: int, samples: int = 0, steps: int = 0
    ) -> Reader[Any]:
        """The batches of epochs that end so.

        >>> wrapped = Remainder("wrap").of(batch(lambda: "abc", 2), per_step=1)
        >>> list(wrapped())
        [['a', 'b'], ['c', 'a']]

        Args:
            batches: The batches.
            per_step: How many of them make a feed.
            samples: How many samples of the epoch are done, of steps of any size.
            steps: In how many steps.

        Raises:
            ValueError: There are batches to fill up whose samples are not known.
        """
        if self.steps is None and self.last in ("drop", "pad", "keep"):
            return batches
        op = batching(batches).counted
        if self.last == "wrap" and op is None:
            raise ValueError(
                f"last='wrap' fills up the last batch, and {described(batches)} gives batches to "
                f"which no sample can be added: make them with jreader.batch."
            )
        if self.onward and self.last != "wrap":
            return batches
        short = _SHORT.get(str(self.last), "error")
        if op is None:
            return batches if self.steps is None else exactly(batches, per_step, self.steps, short)
        if op.drop_last and short == "pad":
            short = "error"  # it leaves out itself what would be short
        rows, size = op.reader, op.batch_size * per_step
        left = None if self.steps is None else max(self.steps - steps, 0)
        if self.onward:
            rows = exactly(rows, size, ENDLESS // size, short)
        elif short == "wrap" or left is not None:
            whole = None if left is None else left + samples // size
            rows = exactly(rows, size, whole, short, samples % size)
        made = batch(rows, op.batch_size)
        return rewritten(batches, lambda node: _instead(node, op, made))


def _instead(node: Node[Any], op: Node[Any], other: Node[Any]) -> Mapping[str, Any] | Node[Any]:
    return other if node is op else {}
