"""The remainder of an epoch: the last samples, which fill no step, and what happens to them.

One rule holds for all loaders. The arguments `last` and `drop_last` decide, if the user gave them.
Otherwise it depends on the feed:

* A feed that is one batch for one place has any size: the loader passes it on unchanged.
* A feed that is split, or made from several batches, needs equal parts. The loader drops batches
  that make none, and warns.
* `Pipeline.load`, whose steps have one size, drops a short last batch; if the plan says
  `batch(..., drop_last=False)`, it pads the batch.

The batches of a `bucket` have a size per bucket, and each bucket has its own remainder, which is
treated like a short last batch: `bucket` itself drops it, or the loader pads it, so that steps have
only the shapes of full batches. It cannot be filled up with samples of another bucket, so there is
no "wrap".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from jreader import errors
from jreader.batches import Batching, batch, batching, bucket
from jreader.batches.batch_sizes import BatchSizes
from jreader.readers import Node, Reader, described, length
from jreader.readers.joined_columns import ENDLESS
from jreader.readers.nodes import may_not_end
from jreader.readers.rewriting import rewritten
from jreader.transforms import exactly
from jreader.transforms.slices import Short

_SHORT: dict[str, Short] = {"wrap": "wrap", "pad": "pad", "keep": "pad"}

Last: TypeAlias = Literal["drop", "pad", "wrap", "error", "keep"]


@dataclass(frozen=True)
class Remainder:
    """What to do with the remainder of an epoch, and how many steps an epoch has.

    Attributes:
        last: What to do with last samples that fill no step: "drop" drops them, "pad" adds zeros
            and a mask, "wrap" adds the first samples of the epoch, "error" raises an error, "keep"
            passes batches on unchanged. None if the user did not say.
        steps: The number of steps in an epoch; None for as many as its samples fill.
        drop_last: The argument `drop_last` of the loader; None if the user did not give it.
        any_size: Whether steps may differ in size, also before the end of an epoch.
        warns: Whether to warn of what each epoch drops, since the user did not ask for it.
        warns_if_same: Whether to warn, once, only if every epoch drops the same samples.
        continues: Whether an epoch begins where the previous one ended: `steps` of a possibly
            endless stream.
    """

    last: Last | None = None
    steps: int | None = None
    drop_last: bool | None = None
    any_size: bool = False
    warns: bool = False
    warns_if_same: bool = False
    continues: bool = False

    def __str__(self) -> str:
        """Return the part that must be equal on all processes."""
        return f"Remainder(last={self.last!r}, steps={self.steps})"

    @classmethod
    def checked(
        cls,
        drop_last: bool | None = None,
        last: Last | None = None,
        steps_per_epoch: int | None = None,
    ) -> Remainder:
        """Return a `Remainder` of the arguments of a loader, checked.

        >>> Remainder.checked(last="pad").last, Remainder.checked(drop_last=False).drop_last
        ('pad', False)

        Raises:
            TypeError: `drop_last` is neither a bool nor None.
            ValueError: `last` is not one of its five values, `drop_last` contradicts it, or
                `steps_per_epoch` is less than 1.
        """
        if last is not None and last not in get_args(Last):
            raise ValueError(
                f"last={last!r} does not say what to do with the last samples of an epoch: give "
                f"'drop', 'pad', 'wrap', 'error' or 'keep', or leave it out and use drop_last."
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

    def of_batches(self, batches: Reader[Any], *, equal: bool = True) -> Remainder:
        """Return the same, resolved for steps of one size (`Pipeline.load`).

        >>> Remainder().of_batches(batch(lambda: "abc", 2)).last
        'drop'
        >>> Remainder().of_batches(batch(lambda: "abc", 2, drop_last=False)).last
        'pad'

        Args:
            batches: The batches.
            equal: Whether a feed needs equal parts (see `of_places`), or steps need one shape.

        Raises:
            ValueError: `batch` keeps a short last batch, and the loader drops it; or the loader
                keeps it, and steps need one shape.
        """
        self.check_kept(equal=equal)
        found = batching(batches)
        kept = self._kept(found)
        drops = not kept if self.drop_last is None else self.drop_last
        given = kept or self.last is not None or self.drop_last is not None
        last = self.last or ("drop" if drops else "pad")
        same = not given and self.steps is None
        return self._meant(batches, found, last=last, any_size=last == "keep", warns_if_same=same)

    def of_places(self, batches: Reader[Any], *, equal: bool) -> Remainder:
        """Return the same, resolved for a batch per place (Paddle's loaders, loaders of data sets).

        >>> Remainder().of_places(batch(lambda: "abc", 2), equal=False).last
        'keep'
        >>> Remainder().of_places(batch(lambda: "abc", 2), equal=True).warns
        True

        Args:
            batches: The batches.
            equal: Whether a feed needs equal parts: it goes to several places, is split, or is a
                chunk of several steps.

        Raises:
            ValueError: `batch` keeps a short last batch, and the loader drops it.
        """
        self.check_kept(equal=equal)
        found = batching(batches)
        if self.last is not None:
            self._kept(found)
            return self._meant(batches, found, any_size=self.last in ("pad", "keep"))
        last: Last = "keep" if not equal else "pad" if self.drop_last is False else "drop"
        warns = last == "drop" and self.drop_last is None
        return self._meant(batches, found, last=last, any_size=True, warns=warns)

    def check_kept(self, *, equal: bool) -> None:
        """Raise ValueError if the loader must keep a short batch, and feeds need equal parts."""
        if equal and self.last == "keep":
            raise ValueError(
                "last='keep' hands on a short last batch as it is, which several devices, chunks, "
                "resident data and compiled epochs cannot take: give last='pad'."
            )

    def _meant(self, batches: Reader[Any], found: Batching, **given: Any) -> Remainder:
        read = batches if found.counted is None else found.counted.reader
        return replace(self, continues=self.steps is not None and may_not_end(read), **given)

    def _kept(self, found: Batching) -> bool:
        """Return whether `batch` was made with `drop_last=False`.

        Raises:
            ValueError: The loader's own `last` or `drop_last` drops the short batch.
        """
        op = found.op or found.buckets
        kept = isinstance(op, (batch, bucket)) and op.drop_last is False
        if kept and (self.last == "drop" or (self.last is None and self.drop_last)):
            word = "last='drop'" if self.last else "drop_last=True"
            raise ValueError(
                f"{type(op).__name__}(..., drop_last=False) keeps a short last batch, and the "
                f"loader's {word} leaves it out: leave one of them out."
            )
        return kept

    def strict(self, found: Batching) -> bool:
        """Return whether a short step is an error.

        It is with `last="error"`, and with `steps_per_epoch`, which needs whole steps. If `exactly`
        counts samples, it raises that error itself, and a step is short only after a resume with
        batches of another size.
        """
        if self.steps is None:
            return self.last == "error"
        return self.last not in ("pad", "keep") and found.counted is None

    def of(
        self, batches: Reader[Any], per_step: int, samples: int = 0, steps: int = 0
    ) -> Reader[Any]:
        """Return the reader of an epoch's batches, cut, filled up or repeated accordingly.

        >>> wrapped = Remainder("wrap").of(batch(lambda: "abc", 2), per_step=1)
        >>> list(wrapped())
        [['a', 'b'], ['c', 'a']]

        Args:
            batches: The batches.
            per_step: The number of batches per feed.
            samples: The number of finished samples of the epoch, in steps of any size.
            steps: The number of steps that they took.

        Raises:
            ValueError: `last="wrap"`, and the batches do not come from `jreader.batch`.
        """
        found = batching(batches)
        if found.buckets is not None:
            batches = self._of_full_buckets(batches, found.buckets)
        op = found.counted
        if op is not None and found.lanes:
            again = "wrap" if self.steps is None else "go round"
            return _with(batches, op, _wraps=again) if self.last == "wrap" else batches
        if self._passes_on:
            return batches
        if op is not None:
            rows = self._of_samples(op, per_step, samples, steps)
            return _with(batches, op, reader=rows, drop_last=None)
        if self.last == "wrap":
            raise ValueError(
                f"last='wrap' fills up the last batch, and {described(batches)} gives batches to "
                f"which no sample can be added: make them with jreader.batch."
            )
        return (
            batches if self.steps is None else exactly(batches, per_step, self.steps, self._short)
        )

    @property
    def _passes_on(self) -> bool:
        """True if an epoch has all batches unchanged, without a required number of steps."""
        if self.continues:
            return self.last != "wrap"
        return self.steps is None and self.last in ("drop", "pad", "keep")

    @property
    def _short(self) -> Short:
        """What `exactly` does if samples, or batches, end too soon."""
        return _SHORT.get(str(self.last), "error")

    def _of_samples(self, op: batch[Any], per_step: int, samples: int, steps: int) -> Reader[Any]:
        """Return the samples of an epoch that its steps need, after those that are done."""
        short: Short = self._short
        if op.drop_last and short == "pad":
            short = "error"  # `batch` itself drops a short one
        sizes = op.sizes.times(per_step)
        if self.continues:
            return exactly(op.reader, sizes.at(samples), ENDLESS // sizes.at(samples), short)
        if self.steps is None:
            return self._filled(op, sizes, samples) if short == "wrap" else op.reader
        left = max(self.steps - steps, 0)
        size, end = sizes.at(sizes.after(samples, max(left, 1) - 1)), sizes.after(samples, left)
        return exactly(op.reader, size, end // size, short, end)

    def _filled(self, op: batch[Any], sizes: BatchSizes, samples: int) -> Reader[Any]:
        """Return the samples of an epoch, then the first ones again until the last step is full.

        Raises:
            ValueError: The size of that step depends on the number of samples.
        """
        known = length(op.reader)
        if known is None and sizes.vary:
            raise ValueError(
                f"last='wrap' fills up the last batch, whose size depends on the number of "
                f"samples, and {described(op.reader)} does not know that: give last='pad'."
            )
        if known is not None and known < samples:  # it is full
            return exactly(op.reader, samples, 1, "wrap")
        origin = sizes.full(samples, samples if known is None else known)[1]
        return exactly(op.reader, sizes.at(origin), None, "wrap", origin)

    def _of_full_buckets(self, batches: Reader[Any], op: bucket[Any]) -> Reader[Any]:
        """Return the same batches, without making short ones that are dropped, if these are known.

        Raises:
            ValueError: They are to be filled up with other samples.
        """
        if self.last == "wrap":
            raise ValueError(
                f"last='wrap' fills up the last batch with the first samples, and those of "
                f"{described(batches)} belong to other buckets: give last='pad' or 'drop'."
            )
        if self.last != "drop" or length(op) is None:
            return batches
        return _with(batches, op, drop_last=True)


def _with(batches: Reader[Any], op: Node[Any], **fields: Any) -> Reader[Any]:
    """Return the plan of batches with other fields of the op that makes them."""
    made = op.changed(fields)
    return rewritten(batches, lambda node: made if node is op else {})
