"""The feeds of an epoch on the host, with the position after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

from jreader.counters import Counters, Sampling, counting
from jreader.errors import NotResumable
from jreader.linting import warn_of_fields
from jreader.loaders.assembling import Assembler
from jreader.loaders.checkpoints.positions import EVERY, SKIPPED, EpochPosition, Tally, Wanted
from jreader.loaders.device_programs.as_function import BatchAt
from jreader.loaders.ends import EpochEnd, warn_if_same
from jreader.loaders.epoch_batches import batches_from
from jreader.loaders.loading import Loading
from jreader.loaders.multihost.lane_places import Filler
from jreader.loaders.run import Run
from jreader.loaders.source import Source
from jreader.profiling import profiler
from jreader.readers import Cursor, Pass, itself, leaves

Fn: TypeAlias = Callable[[Any], Any]


class _FeedTimer:
    """Times feeds, and annotates them while a profiler records; it skips most quick feeds.

    Attributes:
        on: Whether it times the current feed.
        sampling: The number of feeds still to skip.
    """

    def __init__(self, counters: Counters, finish: Fn | None, look: Fn) -> None:
        """Begin a feed.

        Args:
            counters: The counters.
            finish: A function of finished items.
            look: A function of the first feed that the counters count.
        """
        self._counters, self._finish, self._lint_first = counters, finish or itself, look
        self.sampling = Sampling()
        self._stacked, self._feeds_per_time = time.perf_counter_ns(), 1
        self._span: AbstractContextManager[Any] | None = None
        self.next()

    def next(self) -> None:
        """Begin another feed; untimed ones are annotated all the same."""
        self.on, self._timed = True, not self.sampling.left
        self.sampling.left -= not self._timed
        self._began = time.perf_counter_ns()
        if profiler.active:
            self.annotate("read")

    def assembled(self, make: Fn, group: Any) -> Any | None:
        """Make a feed from its batches, and time that; None if they make no feed."""
        read = time.perf_counter_ns()
        if self._span:
            self.annotate("collate")
        feed = make(group)
        if feed is None:
            return None
        if self._span:
            self.annotate("")
        if self._counters.feed_bytes is None:
            self._counters.feed_bytes = sum(getattr(leaf, "nbytes", 0) for leaf in leaves(feed))
            self._lint_first(feed)
        if self._timed:
            before, self._stacked = self._stacked, time.perf_counter_ns()
            each = (self._stacked - before) // self._feeds_per_time
            self._feeds_per_time = self.sampling.timed(each, self._counters.most_skips)
            times = self._began, read, self._stacked, self._feeds_per_time
            self._counters.assembled.append(times)
        return feed

    def finish(self, item: Any) -> Any:
        """Finish an item, as the pass puts it on the devices, and time that."""
        finished = self._finish(item)
        if self._timed:
            self._counters.placed.append(time.perf_counter_ns() - self._stacked)
        return finished

    def annotate(self, stage: str) -> None:
        """End the annotation of the previous stage, and begin that of another one, if not ""."""
        if self._span:
            profiler.end(self._span)
        self._span = profiler.begin(stage) if stage else None


class HostFeeds:
    """A pass over the host feeds of an epoch, from a cursor to its end.

    Attributes:
        numbered: Whether items are (host feed, number of its first row in the epoch, epoch), or
            only host feeds.
    """

    def __init__(
        self,
        loading: Loading,
        source: Source,
        cursor: Cursor,
        run: Run | None = None,
        wanted: Wanted = EVERY,
        counters: Counters | None = None,
    ) -> None:
        """Begin the pass.

        Args:
            loading: What the loader loads, here (`Loading.here`).
            source: The source in this epoch (`Loading.of_epoch`).
            cursor: The cursor to begin at.
            run: The state that the loader's passes share; None for a separate pass.
            wanted: The steps to give.
            counters: The counters of the loader; None for none.

        Raises:
            NotResumable: The cursor belongs to another source.
        """
        run, counters = run or Run(unseen=False), counters or Counters()
        self.loading, self.source, self.run, self.counters = loading, source, run, counters
        self.numbered = loading.numbered
        at, self.epoch, self.size = EpochPosition.of(cursor), cursor["epoch"], source.size
        with counting(counters):
            kept = run.stream.taken(at.batches)
            self.up, drawn = batches_from(loading, source, cursor, kept)
        known = self.size is None and source.batching.size is None
        self.assembler = Assembler(loading, at.rows if known else None)
        self.tally = Tally(cursor, drawn, wanted)
        self.end = EpochEnd(loading, source, cursor, run)
        self.shares_lanes = source.batching.lanes > 0 and loading.share is not None
        self.keep_open = False
        self._note_place()

    def begun(self, finish: Fn | None = None) -> Pass[Any]:
        """Return the pass, whose position has the fields of a `Place`, as a plain tuple.

        Args:
            finish: A function of each item, whose results the pass gives; None for the items.
        """
        feeds = islice(self._feeds(finish), self.tally.left)
        return Pass(feeds, partial(getattr, self.tally, "place"), self.close)

    def _feeds(self, finish: Fn | None) -> Generator[Any, None, None]:
        """Yield the feeds, and keep no reference to them, so that their memory is free sooner.

        An untimed feed makes no calls but those of its work: each would cost a percent.
        """
        assembler, tally, size, position = self.assembler, self.tally, self.size, self.up.position
        has_item = self.numbered or self.shares_lanes
        timer = _FeedTimer(self.counters, finish, self._lint_first)
        sampling = timer.sampling
        for group in self.end.cut(self.up.items, tally.steps):
            feed = assembler.feed
            made = [timer.assembled(feed, group) if timer.on else feed(group)]
            if made[0] is None:
                if self.end.leave_out(group, assembler.fed):
                    break
                timer.next()
                continue
            row = tally.samples * assembler.spread
            if not tally.gives(assembler.fed, assembler.rows, size, position()):
                made = [SKIPPED]
            if has_item:
                made = [self._item(made.pop(), row, group)]
            del group
            if finish:
                made.append((timer.finish if timer.on else finish)(made.pop()))
            yield made.pop()
            if sampling.left and not profiler.active:
                sampling.left -= 1
                timer.on = False
            else:
                timer.next()
        timer.annotate("")
        self._end_epoch()

    def _lint_first(self, feed: Any) -> None:
        """Show the linter the first feed."""
        if self.run.unseen:
            self.run.unseen = False
            warn_of_fields(self.source.batches, feed, self.loading.axes)

    def _item(self, feed: Any, row: int, group: Any) -> Any:
        """Return a feed; with the number of its first row and its epoch, if `numbered`.

        It is a `Filler` if this process has no samples in its lanes for a feed of this epoch.
        """
        item = (feed, row, self.epoch) if self.numbered else feed
        batches = group if self.loading.per_feed > 1 else [group]
        filler = self.shares_lanes and not any(batch.fresh for batch in batches)
        return Filler(item) if filler else item

    def _end_epoch(self) -> None:
        """Warn of leftovers; the next epoch continues a stream."""
        self._note_place()
        self.end.check(self.tally.steps, self.tally.samples)
        self.keep_open = self.loading.remainder.continues
        self.end.warn(self.tally.steps)

    def _note_place(self) -> None:
        self.tally.note_place(self.assembler.rows, self.size, self.up.position())

    def close(self) -> None:
        """Close the pass, or keep it for the next epoch of the stream."""
        if self.keep_open:
            self.keep_open = False  # a second close closes it
            self.run.stream.keep(self.up)
        else:
            self.up.close()


def resident_feeds(
    loading: Loading, there: BatchAt, cursor: Cursor, run: Run, wanted: Wanted, finish: Fn | None
) -> Pass[Any]:
    """Return the pass of a loader whose data are on the devices, with None for each feed."""
    epoch, batches = cursor["epoch"], loading.of_epoch()
    if epoch >> 32:
        raise ValueError(
            f"load(resident=True) counts epochs in 32 bits, and {epoch} has more: leave "
            f"resident=True out, or begin at an epoch below 2**32."
        )
    size, end, least = there.batch_size, there.samples, 1 if there.masked else there.batch_size
    done, tally = _resident_samples_done(cursor), Tally(cursor, wanted=wanted)

    def deal() -> Iterator[Any]:
        nonlocal done
        while done + least <= end and tally.left != 0:
            row, many = done, min(size, end - done)
            done += many
            item = None if tally.gives(many, size, size, done) else SKIPPED, row, epoch
            yield finish(item) if finish else item
        left_out = (batches.batching.samples or 0) - end
        whole = not cursor["samples"] and done + least > end
        if left_out and loading.remainder.warns_if_same and whole:
            warn_if_same(batches.batches, left_out, run)

    tally.note_place(size, size, done)
    return Pass(deal(), partial(getattr, tally, "place"), lambda: None)


def _resident_samples_done(cursor: Cursor) -> int:
    done = EpochPosition.of(cursor).batches if cursor["position"] else 0
    if not isinstance(done, int):
        raise NotResumable(
            f"this cursor, of position {cursor['position']!r}, is of a loader that is not "
            f"resident, over an unseeded plan or one that is not indexed: resume it with such a "
            f"loader."
        )
    return done
