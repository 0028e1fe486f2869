"""The end of an epoch: leftover samples that fill no feed, and the warnings about them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any

from jreader.batches import batching
from jreader.errors import ShortEpoch, warn
from jreader.linting import is_shuffled, same_left_out, warn_of
from jreader.loaders.loading import Loading
from jreader.loaders.run import Run
from jreader.loaders.source import Source
from jreader.readers import Cursor, Reader, described, start


class EpochEnd:
    """The end of an epoch, as batches come to it.

    Attributes:
        left_out: The number of batches that make no whole feed.
        samples: The number of samples in them.
    """

    def __init__(self, loading: Loading, source: Source, cursor: Cursor, run: Run) -> None:
        """Begin with nothing left out, in the epoch of a cursor."""
        self._batches, self._lanes = source.batches, source.batching.lanes
        self._loading, self._cursor, self._run = loading, cursor, run
        self._remainder = remainder = loading.remainder
        # other batches are cut to the steps of an epoch, or raise if they are too few
        self._needed = remainder.steps if remainder.continues or self._lanes else None
        self.left_out = self.samples = 0

    def cut(self, groups: Iterator[Any], steps: int) -> Iterator[Any]:
        """Return the batches, or groups of them; of a stream, as many as the epoch still needs."""
        return groups if self._needed is None else islice(groups, max(self._needed - steps, 0))

    def leave_out(self, group: Any, samples: int) -> bool:
        """Count batches that make no feed; return whether the epoch ends with them."""
        batches = len(group) if self._loading.per_feed > 1 else 1
        if self._lanes:  # the epoch ends with the first lane
            batches, samples = 1, 0
        self.left_out += batches
        self.samples += samples
        return self._lanes > 0

    def check(self, steps: int, samples: int) -> None:
        """Check that a stream had as many steps as the epoch needs.

        Raises:
            ShortEpoch: It had fewer.
        """
        if self._needed is not None and steps < self._needed:
            raise self._too_short(self._needed, samples + self.samples)

    def warn(self, steps: int) -> None:
        """Warn, once per epoch, of drops that the user did not ask for, or if it has no feed.

        Never warns after a resume: the batches may have another size.
        """
        empty, resumed = not steps, self._cursor["samples"] > 0
        if self._lanes:
            self._warn_of_lanes(steps)
        elif self._is_of_parts(empty=empty):
            self._warn_of_parts(empty=empty)
        elif resumed:
            return
        elif empty:
            warn(
                f"epoch {self._cursor['epoch']} is empty: {described(self._batches)} gave no "
                "batch. Look for an empty folder, a filter that keeps nothing, or an iterator "
                "that was read before.",
                self._made_at,
            )
        elif self._remainder.warns_if_same and self.left_out:
            warn_if_same(self._batches, self.samples, self._run)

    @property
    def _made_at(self) -> str:
        return getattr(self._batches, "made_at", "")

    def _is_of_parts(self, *, empty: bool) -> bool:
        """Return whether to warn of batches that cannot be split into equal parts."""
        if self.left_out:
            return empty or self._remainder.warns
        return empty and _has_short_batch_only(self._batches)

    def _warn_of_parts(self, *, empty: bool) -> None:
        begins = "this epoch is empty:" if empty else f"epoch {self._cursor['epoch']}:"
        some = f"{self.left_out} batch{'es' * (self.left_out > 1)} ({self.samples} samples)"
        many = self._loading.per_feed
        needs = f"{many} batches of one size" if many > 1 else "a full batch, in equal parts"
        warn(
            f"{begins} {some if self.left_out else 'all samples'} left out, since a feed needs "
            f"{needs}. Type last='pad' (or drop_last=False) to pad them with zeros and add a mask, "
            "drop_last=True to drop them without this warning, or give a batch size that fits the "
            "number of samples and of places.",
            self._made_at,
        )

    def _warn_of_lanes(self, steps: int) -> None:
        """Warn, once per loader, that an epoch has ended with its first lane."""
        wanted = self.left_out and (self._remainder.warns_if_same or not steps)
        if self._run.warned or not wanted:
            return
        self._run.warned = True
        when = f"after {steps} steps" if steps else "before its first step: it is empty"
        warn(
            f"epoch {self._cursor['epoch']} ended {when}, since a lane had too few samples for its "
            "rows; the remaining samples of other lanes are dropped. last='pad' continues until "
            "all lanes have ended, with zeros, under a mask, in the rows of ended ones; "
            "last='wrap' restarts these; drop_last=True drops the rest without this warning; files "
            "of equal sizes, or fewer lanes, drop less.",
            self._made_at,
        )

    def _too_short(self, steps: int, samples: int) -> ShortEpoch:
        epoch, reads, given = self._cursor["epoch"], described(self._batches), self._loading.source
        size = (given.batching.size or given.rows or 0) * self._loading.per_feed
        if self._lanes:
            return ShortEpoch(
                f"epoch {epoch} of {reads} has {samples // size} full steps until the first of its "
                f"{self._lanes} lanes ends, and needs {steps}. Give a steps_per_epoch that it can "
                f"fill; or .epochs() below the batches, so that lanes begin their next epoch; or "
                f"last='wrap', which begins this one again."
            )
        needs = f"{steps * size}: {steps} steps of {size}" if size else f"{steps} steps"
        return ShortEpoch(
            f"{reads} ended after {samples}, and epoch {epoch}, which continues where the one "
            f"before ended, needs {needs}. Give a steps_per_epoch that it can fill; or, below the "
            f"batches, .epochs() to repeat the data, .firstn(n) to restart it in each epoch; or "
            f"last='wrap', which starts the epoch over."
        )


def warn_if_same(reader: Reader[Any], samples: int, run: Run) -> None:
    """Warn, once per loader, if every epoch drops the same samples.

    Args:
        reader: The reader of batches; if it shuffles, each epoch drops other samples.
        samples: The number of samples that this epoch has dropped.
        run: The state that the loader's passes share.
    """
    if not run.warned and not is_shuffled(reader):
        run.warned = True
        warn_of(same_left_out(reader, samples))


def _has_short_batch_only(reader: Reader[Any]) -> bool:
    """Return whether a reader's only batch is a short one, which `drop_last=True` drops."""
    found = batching(reader)
    if not found.whole or found.op is None or not found.op.drop_last:
        return False
    with closing(start(found.op.reader)) as samples:
        return any(True for _ in samples.items)
