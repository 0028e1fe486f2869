"""The feeds of an epoch on the host, or of epoch after epoch, with the position after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import count, islice, repeat
from typing import Any

from jreader.counters import QUICK, Counters, counting, skips_after
from jreader.errors import ReaderError, ShortEpoch
from jreader.linting import tell_of_fields
from jreader.loaders.assembling import Assembler, BucketAssembler, FeedShape
from jreader.loaders.cursors import EpochPosition, Progress
from jreader.loaders.left_out import Lost, warn_of_lanes
from jreader.loaders.map_style import CollatedAssembler
from jreader.loaders.multihost.lane_places import Spare
from jreader.loaders.remainders import Remainder
from jreader.loaders.shared import Shared
from jreader.loaders.source import Opened, Source
from jreader.orders import STREAM_VERSION
from jreader.profiling import profiler
from jreader.readers import (
    Columns,
    Cursor,
    Pass,
    described,
    leaves,
)
from jreader.readers.hashing import text_hash

SKIPPED: Any = object()
"""It stands for the feed of a step that is left out, since its position counts all the same."""


class Trail:
    """The digest of the samples that a pass has given of its epoch.

    Samples that follow one another are one run, whatever batches they came in. The digest has a
    hash of where runs begin, and where the last one ends. So it does not depend on batch sizes,
    hosts or devices, and costs one comparison per step.

    >>> from jreader.loaders.cursors import beginning
    >>> small, large = (Trail(beginning(0), drawn=None) for _ in range(2))
    >>> small.add(32), small.add(32), large.add(64)
    (None, None, None)
    >>> small.digest == large.digest, small.samples
    (True, 64)

    Attributes:
        samples: How many samples of the epoch are done.
        runs: The hash of where runs begin.
        end: The index in the epoch at which the last run ends.
    """

    def __init__(self, cursor: Cursor, drawn: int | None) -> None:
        """Goes on at a cursor; `drawn` is the seed that an unseeded plan drew for this epoch."""
        self.samples = cursor["samples"]
        runs, _, end = cursor["digest"].rpartition(":")
        self.runs, self.end = runs or text_hash(STREAM_VERSION, cursor["plan"]["ops"]), int(end)
        self._about = (cursor["epoch"], drawn)
        if cursor["position"] is None or (not self.samples and self.end >= 0):
            self.runs, self.end = text_hash(self.runs, self.end), -1

    @property
    def digest(self) -> str:
        """The hash of the runs, a colon, and where the last one ends."""
        return f"{self.runs}:{self.end}"

    def add(self, count: int) -> None:
        """Counts the next `count` samples, which the pass gives."""
        if self.samples != self.end:
            self.runs = text_hash(self.runs, self.end, *self._about, self.samples)
        self.samples += count
        self.end = self.samples

    def leave_out(self, count: int) -> None:
        """Counts the next `count` samples, which the pass leaves out."""
        self.samples += count


def host_feeds(
    source: Source,
    shape: FeedShape,
    cursor: Cursor,
    shared: Shared | None = None,
    first: int = 0,
    until: int | None = None,
    finish: Callable[[Any], Any] | None = None,
    *,
    numbered: bool = True,
    counters: Counters | None = None,
) -> Pass[Any]:
    """A pass over the host feeds of an epoch, from a cursor to its end.

    The position of the pass has the fields of a `Progress`, as a plain tuple, since each feed makes
    one.

    Args:
        source: The source of the loader.
        shape: How batches become feeds.
        cursor: The cursor to begin at.
        shared: What the passes of the loader share; None for a pass by itself.
        first: The number of the first step to give, as the cursor counts; steps before it are
            read, and `SKIPPED` stands for each.
        until: The number of the step to stop before; None for the end of the epoch.
        finish: A function of each item; the pass gives its results. None for the items themselves.
        numbered: Whether items are (host feed, number of its first row in the epoch, epoch), not
            host feeds alone.
        counters: The counters of the loader; None for none.

    Raises:
        NotResumable: The cursor is not of this source.
    """
    counters = counters or Counters()
    shared = shared or Shared(unseen=False)
    here = _Epoch(source, shape, cursor, shared, first, until, counters)
    return Pass(here.feeds(finish, numbered=numbered), here.progress, here.close)


class _Epoch:
    """The pass of `host_feeds`: the rest of an epoch."""

    def __init__(
        self,
        source: Source,
        shape: FeedShape,
        cursor: Cursor,
        shared: Shared,
        first: int,
        until: int | None,
        counters: Counters,
    ) -> None:
        self.source, self.shape, self.cursor, self.shared = source, shape, cursor, shared
        self.counters = counters
        position = EpochPosition.of(cursor["position"])
        at = position.batches if position else None
        with counting(counters):
            self.opened = opened = Opened(source, shape, cursor, shared.kept.taken(at))
        self.up = opened.up
        known = position and opened.size is None and shape.size is None
        kind = CollatedAssembler if shape.kind == "collated" else Assembler
        kind = BucketAssembler if shape.buckets else kind
        self.assembler = kind(shape, position.rows if position and known else None)
        self.trail, self.lost = Trail(cursor, opened.drawn), Lost()
        self.steps = EpochPosition.steps_of(cursor)
        ahead = self.steps - cursor["step"]  # a cursor counts the steps of a run
        self.first, self.end = first + ahead, None if until is None else until + ahead
        self.lanes = source.batching.lanes
        self.stays = False

    def feeds(  # noqa: C901, PLR0912, PLR0915  # each function is one more call a feed
        self, finish: Callable[[Any], Any] | None, *, numbered: bool
    ) -> Generator[Any, None, None]:
        """Yields the feeds; it keeps no reference to one, so that its memory is free sooner."""
        shape, assembler, opened, trail = self.shape, self.assembler, self.opened, self.trail
        alone, epoch, skips = shape.per_feed == 1, self.cursor["epoch"], steps_left_out(self.cursor)
        named = partial(shape.feeds.from_samples, lists=shape.kind == "samples")
        assembled, placed = self.counters.assembled, self.counters.placed
        clock, most = time.perf_counter_ns, self.counters.most_skips
        began = stacked = clock()
        read = untimed = skips_clock = 0
        span = profiler.begin("read") if profiler.active else None
        for group in self._groups():
            if span:
                profiler.end(span)
                span = profiler.begin("collate")
            if began:
                read = clock()
            usual = type(group) is Columns and group.made_of is None
            if usual and len(group.arrays[0]) == assembler.usual:
                made = [named(group)]
            else:
                made = [assembler.feed([group] if alone else group)]
                if self.counters.feed_bytes is None and made[0] is not None:
                    self._look(made[0])
            if span:
                profiler.end(span)
                span = None
            if opened.unchecked:
                opened.check_sizes(self.source, self.cursor["samples"], assembler.fed)
            if made[0] is None and self.lanes:
                self.lost.add(1, 0)
                break  # the epoch ends with the first lane
            if made[0] is None:
                self.lost.add(1 if alone else len(group), assembler.fed)
                began = began and clock()
                continue
            self.steps += 1
            row, skipped = trail.samples * assembler.spread, next(skips)
            if skipped:
                trail.leave_out(assembler.fed)
            else:
                trail.add(assembler.fed)
            if skipped or self.steps <= self.first:
                made = [SKIPPED]
            spare = self.lanes > 0 and not self._fresh(group)
            del group
            made.append((made.pop(), row, epoch) if numbered else made.pop())
            if began:
                before, stacked = stacked, clock()
                quick = stacked - before < QUICK * (skips_clock + 1)
                untimed = skips_clock = skips_after(skips_clock, most) if quick else 0
                assembled.append((began, read, stacked, untimed + 1))
            if finish:
                made.append(finish(made.pop()))
                if began:
                    placed.append(clock() - stacked)
            yield Spare(made.pop()) if spare else made.pop()
            if self.steps == self.end:
                return
            if untimed:
                untimed, began = untimed - 1, 0
            else:
                began = clock()
            if profiler.active:
                span = profiler.begin("read")
        if span:
            profiler.end(span)
            span = None
        self._ended()

    def _look(self, feed: Any) -> None:
        """Counts the bytes of the first feed, and has the linter see it."""
        self.counters.feed_bytes = _bytes(feed)
        if self.shared.unseen:
            self.shared.unseen = False
            tell_of_fields(self.source.batches, feed, self.shape.axes)

    def _fresh(self, group: Any) -> bool:
        """Whether this process has samples in its lanes for a feed of this epoch."""
        if not self.shape.share:
            return True
        return any(part.fresh for part in ([group] if self.shape.per_feed == 1 else group))

    def _groups(self) -> Iterator[Any]:
        """The batches, or groups of them; of a stream, as many as the epoch has steps."""
        if self.end is not None and self.steps >= self.end:
            return iter(())
        remainder = self.shape.remainder
        if not remainder.continues and not (self.lanes and remainder.steps):
            return self.up.items
        return islice(self.up.items, (remainder.steps or 0) - self.steps)

    def _ended(self) -> None:
        """Warns of what was left out; the next epoch goes on with the rest of a stream."""
        remainder = self.shape.remainder
        if self.end is not None and self.steps >= self.end:
            return
        if (remainder.continues or self.lanes) and self.steps < (remainder.steps or 0):
            samples = self.trail.samples + self.lost.samples
            raise _too_short(self.source, self.shape, self.cursor["epoch"], samples)
        self.stays = remainder.continues
        empty = self.steps == 0
        if self.lanes:
            if self.lost.batches and (empty or remainder.warns_if_same):
                warn_of_lanes(self.source.batches, self.cursor["epoch"], self.steps, self.shared)
            return
        self.lost.warn(self.source.batches, remainder, self.cursor, self.shared, empty=empty)

    def progress(self) -> tuple[Any, ...]:
        """The fields of a `Progress`."""
        trail = self.trail
        return (
            *(self.cursor, trail.samples, trail.runs, trail.end),
            *(self.assembler.rows, self.opened.size, self.up.position(), self.steps),
        )

    def close(self) -> None:
        """Closes the pass, or keeps it for the next epoch of the stream."""
        if self.stays:
            self.stays = False  # whoever closes it once more closes it
            self.shared.kept.keep(self.up)
        else:
            self.up.close()


def epoch_after_epoch(
    begin: Callable[[Cursor], Pass[Any]],
    cursor: Cursor,
    remainder: Remainder,
    until: int | None,
) -> Pass[Any]:
    """A pass over the feeds of a run: those of an epoch, of the next one, and so on.

    So a look-ahead goes on across the end of an epoch: the first feed of the next one is ready when
    the loop has used the last one of this.

    Args:
        begin: Begins a pass over an epoch, at a cursor.
        cursor: The cursor that the run begins at.
        remainder: How epochs end.
        until: The number of the step to stop before; None for no end.

    Raises:
        ReaderError: An epoch has no feed, so the run would never end (while iterating).
    """
    here = begin(cursor)

    def deal() -> Generator[Any, None, None]:
        nonlocal here
        while True:
            yield from here.items
            ended = Progress(*here.position()).cursor()
            if until is not None and ended["step"] >= until:
                return
            check_fed(ended)
            here.close()
            here = begin({**next_epoch(ended, remainder), "step": ended["step"]})

    return Pass(deal(), lambda: here.position(), lambda: here.close())  # noqa: PLW0108  # that of then


def check_fed(ended: Cursor) -> None:
    """Checks that an epoch that has ended had a feed: otherwise a run would go on for ever.

    Raises:
        ReaderError: It had none.
    """
    if not EpochPosition.steps_of(ended):
        raise ReaderError(
            f"epoch {ended['epoch']} gave no feed, so steps(...) would never end: give data for at "
            "least one full batch, a smaller batch, or last='pad'"
        )


def next_epoch(ended: Cursor, remainder: Remainder) -> Cursor:
    """The cursor of the next epoch, made from that at the end of one; its steps begin at 0."""
    position = EpochPosition.of(ended["position"]) if remainder.continues else None
    return {
        **ended,
        "epoch": ended["epoch"] + 1,
        "step": 0,
        "samples": 0,
        "position": position and tuple(position._replace(steps=0)),
    }


def steps_left_out(cursor: Cursor) -> Iterator[bool]:
    """Yields for each step from the cursor on whether it is left out."""
    spans, step = cursor["skipped"], cursor["step"]
    if not spans:
        return repeat(False)  # noqa: FBT003  # what is repeated
    return (any(low <= each < high for low, high, _ in spans) for each in count(step))


def _bytes(feed: Any) -> int:
    return sum(getattr(leaf, "nbytes", 0) for leaf in leaves(feed))


def _too_short(source: Source, shape: FeedShape, epoch: int, samples: int) -> ShortEpoch:
    steps, size = shape.remainder.steps or 0, (shape.size or shape.rows or 0) * shape.per_feed
    if lanes := source.batching.lanes:
        return ShortEpoch(
            f"epoch {epoch} of {described(source.batches)} has {samples // size} full steps until "
            f"the first of its {lanes} lanes ends, and needs {steps}. Give a steps_per_epoch that "
            f"it can fill; or .epochs() below the batches, so that lanes begin their next epoch; "
            f"or last='wrap', which begins this one again."
        )
    needs = f"{steps * size}: {steps} steps of {size}" if size else f"{steps} steps"
    return ShortEpoch(
        f"{described(source.batches)} ended after {samples}, and epoch {epoch}, which goes on "
        f"where the one before ended, needs {needs}. Give a steps_per_epoch that it can fill; or, "
        f"below the batches, .epochs() to go round, .firstn(n) to begin anew in each epoch; or "
        f"last='wrap', which begins it again."
    )
