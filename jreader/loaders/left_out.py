"""What an epoch leaves out at its end, since it makes no whole feed, and the warnings of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jreader.batches import batching
from jreader.errors import warn
from jreader.linting import is_shuffled, same_left_out, tell
from jreader.loaders.remainders import Remainder
from jreader.loaders.run import Run
from jreader.readers import Cursor, Reader, described, start


@dataclass
class Lost:
    """The batches of an epoch that are left out, since they make no whole feed.

    Attributes:
        batches: The number of batches.
        samples: The number of samples in them.
    """

    batches: int = 0
    samples: int = 0

    def add(self, batches: int, samples: int) -> None:
        """Counts more batches that are left out."""
        self.batches += batches
        self.samples += samples

    def warn(
        self,
        reader: Reader[Any],
        remainder: Remainder,
        cursor: Cursor,
        shared: Run,
        *,
        empty: bool,
    ) -> None:
        """Warns, once per epoch, if the user did not ask for it, or if the epoch has no feed.

        An epoch that was resumed tells nothing of others: its batches may have another size.
        """
        made_at = getattr(reader, "made_at", "")
        nothing = empty and not self.batches and not cursor["samples"]
        empty = empty and (self.batches > 0 or _has_short_batch_only(reader))
        some = f"{self.batches} batch{'es' * (self.batches > 1)} ({self.samples} samples)"
        if empty or (remainder.warns and self.batches):
            begins = "this epoch is empty: " if empty else f"epoch {cursor['epoch']}: "
            warn(
                f"{begins}{some if self.batches else 'all'} left out, since they make no whole "
                "feed of equal parts. last='pad' (or drop_last=False) fills them up with zeros, "
                "under a mask; drop_last=True leaves them out without this warning; with a "
                "smaller batch size or fewer places, none may be left out.",
                made_at,
            )
        elif nothing:
            warn(
                f"epoch {cursor['epoch']} is empty: {described(reader)} gave no batch. Look for an "
                "empty folder, a filter that keeps nothing, or an iterator that was read before.",
                made_at,
            )
        elif remainder.warns_if_same and self.batches and not cursor["samples"]:
            warn_if_same(reader, self.samples, shared)


def warn_if_same(reader: Reader[Any], samples: int, shared: Run) -> None:
    """Warns, once per loader, if every epoch leaves out the same samples.

    Args:
        reader: The reader of batches; if it shuffles, each epoch leaves out other samples.
        samples: How many samples this epoch has left out.
        shared: What the passes of the loader share.
    """
    if not shared.warned and not is_shuffled(reader):
        shared.warned = True
        tell(same_left_out(reader, samples))


def warn_of_lanes(reader: Reader[Any], epoch: int, steps: int, shared: Run) -> None:
    """Warns, once per loader, that an epoch has ended with the first lane that did."""
    if shared.warned:
        return
    shared.warned = True
    when = f"after {steps} steps" if steps else "before its first step: it is empty"
    warn(
        f"epoch {epoch} ended {when}, since a lane had too few samples for its rows, and what the "
        "other lanes still had is left out. last='pad' goes on until all have ended, with zeros, "
        "under a mask, in the rows of those that have; last='wrap' begins these again; "
        "drop_last=True leaves it out without this warning; files of equal sizes, or fewer lanes, "
        "leave out less.",
        getattr(reader, "made_at", ""),
    )


def _has_short_batch_only(reader: Reader[Any]) -> bool:
    """Whether the only batch of a reader is a short one, which `drop_last=True` leaves out."""
    found = batching(reader)
    if not found.whole or found.op is None or not found.op.drop_last:
        return False
    samples = start(found.op.reader)
    try:
        return any(True for _ in samples.items)
    finally:
        samples.close()
