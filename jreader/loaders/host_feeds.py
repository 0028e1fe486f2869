"""The feeds of an epoch on the host, with the position after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import islice
from typing import Any

from jreader.counters import QUICK, Counters, counting, skips_after
from jreader.errors import ShortEpoch
from jreader.linting import tell_of_fields
from jreader.loaders.assembling import Assembler, FeedShape
from jreader.loaders.checkpoints.positions import SKIPPED, Place, Tally
from jreader.loaders.left_out import Lost, warn_of_lanes
from jreader.loaders.multihost.lane_places import Spare
from jreader.loaders.shared_state import SharedState
from jreader.loaders.source import Opened, Source
from jreader.profiling import profiler
from jreader.readers import (
    Columns,
    Cursor,
    Pass,
    described,
    leaves,
)


def host_feeds(
    source: Source,
    shape: FeedShape,
    cursor: Cursor,
    shared: SharedState | None = None,
    first: int = 0,
    until: int | None = None,
    finish: Callable[[Any], Any] | None = None,
    *,
    numbered: bool = True,
    counters: Counters | None = None,
) -> Pass[Any]:
    """A pass over the host feeds of an epoch, from a cursor to its end.

    The position of the pass has the fields of a `Place`, as a plain tuple.

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
    shared = shared or SharedState(unseen=False)
    here = _Epoch(source, shape, cursor, shared, first, until, counters)
    return Pass(here.feeds(finish, numbered=numbered), here.progress, here.close)


class _Epoch:
    """The pass of `host_feeds`: the rest of an epoch."""

    def __init__(
        self,
        source: Source,
        shape: FeedShape,
        cursor: Cursor,
        shared: SharedState,
        first: int,
        until: int | None,
        counters: Counters,
    ) -> None:
        self.source, self.shape, self.cursor, self.shared = source, shape, cursor, shared
        self.counters = counters
        place = Place.of(cursor)
        with counting(counters):
            kept = shared.stream.taken(place.batches)
            self.opened = opened = Opened(source, shape, cursor, kept)
        self.up = opened.up
        known = opened.size is None and shape.size is None
        self.assembler = Assembler(shape, place.rows if known else None)
        self.tally, self.lost = Tally(cursor, opened.drawn, first, until), Lost()
        self.lanes = source.batching.lanes
        self.stays = False

    def feeds(  # noqa: C901, PLR0912, PLR0915  # each function is one more call a feed
        self, finish: Callable[[Any], Any] | None, *, numbered: bool
    ) -> Generator[Any, None, None]:
        """Yields the feeds; it keeps no reference to one, so that its memory is free sooner."""
        shape, assembler, opened, tally = self.shape, self.assembler, self.opened, self.tally
        alone, epoch = shape.per_feed == 1, self.cursor["epoch"]
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
            row = tally.samples * assembler.spread
            if not tally.gives(assembler.fed):
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
            if tally.steps == tally.last:
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
        if self.tally.is_done:
            return iter(())
        remainder = self.shape.remainder
        if not remainder.continues and not (self.lanes and remainder.steps):
            return self.up.items
        return islice(self.up.items, max((remainder.steps or 0) - self.tally.steps, 0))

    def _ended(self) -> None:
        """Warns of what was left out; the next epoch goes on with the rest of a stream."""
        remainder = self.shape.remainder
        if self.tally.is_done:
            return
        if (remainder.continues or self.lanes) and self.tally.steps < (remainder.steps or 0):
            samples = self.tally.samples + self.lost.samples
            raise _too_short(self.source, self.shape, self.cursor["epoch"], samples)
        self.stays = remainder.continues
        empty = self.tally.steps == 0
        if self.lanes:
            if self.lost.batches and (empty or remainder.warns_if_same):
                warn_of_lanes(
                    self.source.batches, self.cursor["epoch"], self.tally.steps, self.shared
                )
            return
        self.lost.warn(self.source.batches, remainder, self.cursor, self.shared, empty=empty)

    def progress(self) -> tuple[Any, ...]:
        """The fields of a `Place`, as `Tally.place` has them; a call a feed less."""
        tally, rows, size = self.tally, self.assembler.rows, self.opened.size
        runs = tally.began, tally.samples, tally.runs, tally.end
        return *runs, rows, size, self.up.position(), tally.steps

    def close(self) -> None:
        """Closes the pass, or keeps it for the next epoch of the stream."""
        if self.stays:
            self.stays = False  # whoever closes it once more closes it
            self.shared.stream.keep(self.up)
        else:
            self.up.close()


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
