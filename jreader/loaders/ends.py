"""How epochs end: what becomes of samples that fill no step, and how many steps there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from jreader import errors
from jreader.batches import batch, sized
from jreader.readers import Node, Reader, described
from jreader.readers.nodes import rewritten
from jreader.transforms import exactly

Last: TypeAlias = Literal["drop", "pad", "wrap", "error"]


@dataclass(frozen=True)
class Ends:
    """How epochs end.

    Attributes:
        last: What becomes of the last samples where they fill no step: "drop" leaves them out,
            "pad" adds zeros under a mask, "wrap" adds the first samples of the epoch, "error"
            raises.
        steps: How many steps an epoch has; None for as many as its samples fill.
    """

    last: Last = "drop"
    steps: int | None = None

    @classmethod
    def checked(cls, drop_last: bool, last: Last | None, steps_per_epoch: int | None) -> Ends:
        """What the arguments of a loader say.

        >>> Ends.checked(drop_last=False, last=None, steps_per_epoch=None)
        Ends(last='pad', steps=None)

        Raises:
            ValueError: `last` is no policy, or `drop_last` says another one; there are no steps.
        """
        if last is not None and last not in get_args(Last):
            raise ValueError(
                f"last={last!r} says nothing of the last samples of an epoch: give 'drop', 'pad', "
                f"'wrap' or 'error', or leave it out, for what drop_last says."
            )
        if not drop_last and last not in (None, "pad"):
            raise ValueError(
                f"drop_last=False means last='pad', and last={last!r} was given: leave one out."
            )
        if steps_per_epoch is not None:
            steps_per_epoch = errors.check_number("steps_per_epoch", steps_per_epoch, 1)
        return cls(last or ("drop" if drop_last else "pad"), steps_per_epoch)

    def strict(self, batches: Reader[Any]) -> bool:
        """Whether a short step is an error: as was asked for, or since a whole one is missing.

        Where `exactly` counts samples, it sees to that; a step is short there only after a resume
        with batches of another size.
        """
        if self.steps is None:
            return self.last == "error"
        return self.last != "pad" and sized(batches) is None

    def of(self, batches: Reader[Any], per_step: int, done: int = 0) -> Reader[Any]:
        """The batches of epochs that end so.

        >>> wrapped = Ends("wrap").of(batch(lambda: "abc", 2), per_step=1)
        >>> list(wrapped())
        [['a', 'b'], ['c', 'a']]

        Args:
            batches: The batches.
            per_step: How many of them make a feed.
            done: The number of the sample that steps go on with, if there is one.

        Raises:
            ValueError: There are batches to fill up whose samples are not known.
        """
        if self.steps is None and self.last in ("drop", "pad"):
            return batches
        short = self.last if self.last in ("wrap", "pad") else "error"
        op = sized(batches)
        if op is not None:
            rows, size = op.reader, op.batch_size * per_step
            if short == "wrap" or self.steps is not None:
                rows = exactly(rows, size, self.steps, short, done % size)
            made = batch(rows, op.batch_size)
            return rewritten(batches, lambda node: _instead(node, op, made))
        if short == "wrap":
            raise ValueError(
                f"last='wrap' fills up the last batch, and {described(batches)} gives batches to "
                f"which no sample can be added: make them with jreader.batch."
            )
        return batches if self.steps is None else exactly(batches, per_step, self.steps, short)


def _instead(node: Node[Any], op: Node[Any], other: Node[Any]) -> Mapping[str, Any] | Node[Any]:
    return other if node is op else {}
