"""`Run`: where a loader is: its passes, the position of the latest one, and the next epoch.

What is loaded is frozen (`loading.Loading`). All that changes while a loader is used is here.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from jreader import errors
from jreader.counters import Counters
from jreader.loaders.checkpoints.cursors import (
    beginning,
    check_plan,
    checked,
    kept_lines,
    sealed,
    skipping,
    with_plan,
)
from jreader.loaders.checkpoints.positions import EVERY, Wanted, cursor_at, next_epoch
from jreader.loaders.iterators import FeedIterator
from jreader.loaders.loading import Loading
from jreader.loaders.queries.provenance import Samples, samples_of
from jreader.loaders.queries.seeking import cursor_of_step
from jreader.loaders.shared_state import SharedState
from jreader.loaders.tuning import Ceilings, Tuner
from jreader.readers import Cursor


class Run:
    """The state of a run of what a loader loads.

    Attributes:
        loading: What is loaded; None while the loader has no source.
        next_epoch: The number of the epoch that the next `next_pass()` begins.
        noted: Holds the place of the latest pass (`cursor_at`), also when its iterator is gone.
        counters: What the stages of the latest pass count.
        shared: What the passes share.
        tuner: What moves threads and capacity; None for nothing.
    """

    def __init__(
        self,
        loading: Loading | None,
        tune: Ceilings | None,
        resumed: Cursor | None = None,
        next_epoch: int = 0,
    ) -> None:
        """A run that has no pass yet.

        Args:
            loading: What is loaded, or None.
            tune: What threads and capacity may grow to; None to leave them alone.
            resumed: The cursor that the next pass goes on from; None for the next epoch.
            next_epoch: The number of that.
        """
        self.loading, self.next_epoch = loading, next_epoch
        self._tune, self._resumed = tune, resumed
        self.tuner = Tuner(tune) if tune else None
        self.counters = Counters(self.tuner.tunables if self.tuner else None)
        self.shared = SharedState()
        self.noted: list[Any] = [resumed or beginning(0)]
        self._latest: list[Any] | None = None  # that of the latest `next_pass()`
        self._passes: WeakSet[FeedIterator] = WeakSet()

    def of(self, loading: Loading | None) -> Run:
        """A run of something else, whose first pass is what the next one of this would be."""
        return Run(loading, self._tune, self._resumed, self.next_epoch)

    @property
    def loaded(self) -> Loading:
        """What is loaded.

        Raises:
            RuntimeError: The loader has no source.
        """
        if self.loading is None:
            raise RuntimeError(
                "this loader has no source: call set_sample_generator(reader, batch_size), "
                "set_sample_list_generator(reader) or set_batch_generator(reader) first"
            )
        return self.loading

    def next_pass(self) -> FeedIterator:
        """Begins the next epoch, or what is left of the one that a cursor is of."""
        cursor, self._resumed = self._resumed or self.next_cursor(), None
        self.next_epoch = cursor["epoch"] + 1
        if cursor["plan"]["ops"]:
            check_plan(cursor["plan"], self.loaded.plan(), grows=self.loaded.grows)
        feeds = self._pass(self._skipping(cursor))
        self._latest = self.noted
        return feeds

    def next_cursor(self) -> Cursor:
        """The cursor of the next epoch; if epochs continue a stream, where the last pass is."""
        cursor, remainder = beginning(self.next_epoch), self.loaded.remainder
        if self._latest is None or not self.next_epoch or not remainder.continues:
            return cursor
        after = next_epoch(cursor_at(self._latest[0]), continues=True)
        return {**cursor, "position": after["position"], "digest": after["digest"]}

    def epoch(
        self, epoch: int, at: Cursor | None, start: int, skip_steps: range | None
    ) -> FeedIterator:
        """Begins an epoch, as `DataLoader.epoch` says."""
        number = errors.check_number("loader.epoch(epoch)", epoch)
        begun = errors.check_number("start of loader.epoch(epoch)", start)
        cursor = self._first(number, at, begun)
        if cursor["epoch"] != number:
            raise ValueError(
                f"the cursor is of epoch {cursor['epoch']}, not {number}: use "
                f"loader.epoch({cursor['epoch']}, at=cursor), or loader.steps(at=cursor)"
            )
        return self._pass(self._skipping(cursor, skip_steps), Wanted(begun))

    def steps(
        self, n: int | None, at: Cursor | None, start: int, skip_steps: range | None
    ) -> FeedIterator:
        """Begins epoch after epoch, as `DataLoader.steps` says."""
        until = None if n is None else errors.check_number("loader.steps(n)", n)
        begun = errors.check_number("start of loader.steps(n)", start)
        cursor = self._first(0, at, begun)
        done = max(begun, cursor["step"])
        if until and done > until:
            errors.warn(
                f"loader.steps({until}) ends a run at step {until}, and this one has done {done}, "
                f"so it gives no feed: steps are counted from the beginning of the run. For "
                f"{until} more, type loader.steps({done + until}, ...)."
            )
        return self._pass(self._skipping(cursor, skip_steps), Wanted(begun, until, endless=True))

    def samples(self, step: int, epoch: int | None) -> Samples:
        """The samples of a step, as `DataLoader.samples` says."""
        number = errors.check_number("loader.samples(step)", step)
        loading, noted = self.loaded, self.noted[0]
        cursor = cursor_at(noted)
        began: Cursor = cursor if isinstance(noted, dict) else noted[0]
        known = kept_lines(cursor["plan"])
        if epoch is None and known and known != kept_lines(loading.plan()):
            raise ValueError(
                f"the data have grown or shrunk since epoch {cursor['epoch']} began, and its order "
                f"is that of the data as they were: ask for a later epoch, as in "
                f"loader.samples({number}, epoch={cursor['epoch'] + 1})."
            )
        loading.check()
        if epoch is not None:
            began = beginning(errors.check_number("epoch of loader.samples(step)", epoch))
        return samples_of(loading, began, cursor, number, other=epoch is not None)

    def _first(self, epoch: int, at: Cursor | None, start: int) -> Cursor:
        """The cursor that a pass begins at."""
        if at is not None and start:
            raise ValueError(
                f"a pass begins at a cursor or at a step: give at=cursor or start={start}, not both"
            )
        return beginning(epoch) if at is None else self._checked(at)

    def _checked(self, cursor: Cursor) -> Cursor:
        """The cursor, once it is known to be one of what is loaded."""
        whole = checked(cursor)
        check_plan(whole["plan"], self.loaded.plan(), grows=self.loaded.grows)
        return whole

    def _skipping(self, cursor: Cursor, steps: range | None = None) -> Cursor:
        """The cursor with `steps` left out, too.

        Raises:
            NotResumable: It leaves out steps of another size, which would be other samples here.
        """
        if steps is None and not cursor["skipped"]:
            return cursor
        return skipping(cursor, steps, self.loaded.step_size())

    def _pass(self, cursor: Cursor, wanted: Wanted = EVERY) -> FeedIterator:
        loading, (first, _, endless) = self.loaded, wanted
        if first and (there := cursor_of_step(loading, cursor["epoch"], first, endless=endless)):
            cursor = {**there, "skipped": cursor["skipped"]}
        self.noted = [with_plan(cursor, loading.plan(cursor))]
        self.counters = self.counters.continued()
        feeds = FeedIterator(
            *(loading, self.shared, self.noted, wanted), counters=self.counters, tuner=self.tuner
        )
        self._passes.add(feeds)
        return feeds

    def cursor(self) -> Cursor:
        """The cursor of the latest pass.

        Raises:
            NotResumable: The pass has no position that can be stored.
        """
        cursor = cursor_at(self.noted[0])
        if not cursor["plan"]["ops"] and self.loading:  # no pass has begun: the plan as it is now
            cursor = {**cursor, "plan": self.loading.plan()}
        return sealed(cursor)

    def resume(self, state: Any) -> None:
        """Makes the next `next_pass()` go on from a cursor.

        Raises:
            ValueError: The cursor is damaged.
            NotResumable: The cursor is of another pipeline or release.
        """
        cursor = self._checked(state) if self.loading else checked(state)
        if self.loading:  # with the present plan, so that nobody is warned twice of a changed one
            cursor = self._skipping(with_plan(cursor, self.loading.plan(cursor)))
        self._resumed, self.noted = cursor, [cursor]
        self.next_epoch = cursor["epoch"]

    def close(self) -> None:
        """Closes the passes that are still open."""
        for feeds in list(self._passes):
            feeds.close()
        self.shared.stream.close()
