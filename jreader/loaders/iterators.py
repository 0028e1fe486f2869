"""`FeedIterator`: the object that a loop iterates: its feeds, its step and its cursor."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from threading import get_ident
from typing import Any, Self

from jax.profiler import StepTraceAnnotation, TraceAnnotation

from jreader.errors import check_number, warn
from jreader.loaders.checkpoints.cursors import State, sealed, weights_line, with_plan
from jreader.loaders.checkpoints.positions import EVERY, SKIPPED, Place, Wanted, next_epoch
from jreader.loaders.device_programs.stages import Feed
from jreader.loaders.loading import Loading
from jreader.loaders.prefetching import device_feeds
from jreader.loaders.queries.seeking import cursor_of_step, too_few
from jreader.loaders.run import Run
from jreader.loaders.steering import last_change
from jreader.profiling import profiler
from jreader.readers import Cursor, Pass, described
from jreader.readers.located import located, located_errors

_records = TraceAnnotation.is_enabled
profiler.annotation = TraceAnnotation


class FeedIterator(Iterator[Feed], AbstractContextManager["FeedIterator[Feed]"]):
    """An iterator of feeds, whose `cursor` you can save and resume after any of them.

    It stops its thread when it is exhausted, closed or garbage-collected, and at the end of a
    `with` block.

    >>> import numpy as np
    >>> from jreader import Pipeline, arrays
    >>> feeds = iter(Pipeline(arrays(x=np.arange(6.0))).batch(2).load())
    >>> next(feeds)["x"].tolist(), feeds.step
    ([0.0, 1.0], 1)
    >>> feeds.cursor["epoch"], feeds.cursor["step"]
    (0, 1)

    Attributes:
        waited: Seconds that the loop has waited for feeds.
        annotates_steps: Whether each step is a `StepTraceAnnotation` while a profiler records, from
            one `next(feeds)` to the next one; the last one of an epoch finds its end. Set it to
            False where your own encloses `next(feeds)`, since steps of a trace must not overlap.
    """

    def __init__(self, loading: Loading, run: Run, cursor: Cursor, wanted: Wanted = EVERY) -> None:
        """Begin at a position.

        Args:
            loading: What the loader loads.
            run: The state that the loader's passes share.
            cursor: The cursor to begin at.
            wanted: The steps to give.
        """
        self.waited, self.annotates_steps = 0.0, True
        self._thread = 0  # the thread that got the last feed
        self._step: Any = None
        self._wait: Any = None
        self._loading, self._run, self._wanted, self._first = loading, run, wanted, cursor
        if wanted.first and (there := self._cursor_at(wanted.first)):
            cursor = {**there, "skipped": cursor["skipped"]}
        self._first = with_plan(cursor, loading.plan(cursor))
        self._place = run.place = [Place.of(self._first)]  # another thread may ask at once
        self._tuner = run.tuner
        self._pass: Pass[Feed] | None = None
        self._enter(self._first)
        run.passes.add(self)

    def __iter__(self) -> Self:
        """Return the iterator; warn if it has given all of its feeds."""
        if self._pass is None:
            warn(
                "this iterator of feeds is exhausted: loop over the loader, "
                "`for feed in loader`, which starts the next epoch."
            )
        return self

    @property
    def cursor(self) -> Cursor:
        """The position after the last feed that you received: a small dict to save as JSON."""
        return sealed(self._now)

    @property
    def _now(self) -> Cursor:
        return Place(*self._place[0]).cursor

    def get_state(self) -> State:
        """Return the cursor as JSON text, as Grain's iterators return their state.

        >>> from jreader import Pipeline, arrays
        >>> feeds = Pipeline(arrays([0, 1, 2, 3])).batch(2).load().epoch(0)
        >>> state, first = feeds.get_state(), next(feeds)
        >>> feeds.set_state(state)
        >>> next(feeds).tolist() == first.tolist()
        True

        `grain.checkpoint.CheckpointSave(feeds)` saves it with orbax.

        Raises:
            NotResumable: The pass has no position that can be stored.
        """
        return State(json.dumps(self.cursor))

    def set_state(self, state: State | str | bytes | Mapping[str, object]) -> None:
        """Go to a state of feeds of the same plan, in any epoch; no feed is lost.

        Prefetched feeds are dropped, and made again in their turn. If these are the feeds of `for
        feed in loader`, its next epoch is the one after that of the state. With several processes,
        call it on all after the same step.

        Args:
            state: What `get_state` returned, also as bytes; or a cursor.

        Raises:
            ValueError: The state is damaged.
            NotResumable: It is of another pipeline or release.
        """
        loading, run = self._loading, self._run
        if isinstance(state, (str, bytes)):
            with suppress(ValueError):  # `checked` explains what is wrong with it
                state = json.loads(state)
        cursor = loading.skipping(loading.checked(state))
        self.close()
        run.stream.close()
        self._wanted = self._wanted._replace(first=0)
        self._first = with_plan(cursor, loading.plan(cursor))
        self._enter(self._first)
        if run.in_order is self._place:
            run.next_epoch = cursor["epoch"] + 1

    def start_prefetch(self) -> None:
        """Do nothing: Grain's checkpoint handler calls it. The first `next(feeds)` prefetches."""

    @property
    def step(self) -> int:
        """The number of feeds received in the run, including those before the cursor.

        Steps skipped by `skip_steps` count as well.
        """
        return self._now["step"]

    @property
    def epoch(self) -> int:
        """The epoch of the last feed; once that epoch has ended, the next one."""
        return self._now["epoch"]

    def __repr__(self) -> str:
        """Show the reader, the epoch and the step."""
        reads = described(self._loading.source.batches)
        return f"FeedIterator({reads}, epoch={self.epoch}, step={self.step})"

    def _enter(self, cursor: Cursor) -> None:
        loading, run = self._loading, self._run
        self._counters = run.counters = run.counters.continued()
        self._counters.steps.append(None)
        self._count_step = self._counters.steps.append
        if self._tuner:
            self._tuner.begin(self._counters)
        with located_errors(loading.source.batches):
            self._pass = device_feeds(loading, cursor, run, self._wanted)
        self._place[0] = self._pass.position()

    def __next__(self) -> Feed:
        """Return the next feed."""
        came, self._thread = time.perf_counter_ns(), get_ident()
        if _records() or profiler.active:
            self._annotate()
        while here := self._pass:
            try:
                feed = next(here.items)
            except StopIteration:
                self._ended(here)
                break
            except BaseException as error:
                located(error, self._loading.source.batches)
                self.close()
                raise
            self._place[0] = here.position()
            if feed is SKIPPED:
                continue
            if self._run.warming:
                self._wait_for_compilation()
            left, given = time.perf_counter_ns(), self._counters.given
            self.waited += 1e-9 * (left - came)
            given[0] += 1
            given[1] += left - came
            self._count_step((came, left))
            if self._wait:
                self._end_wait()
            if self._tuner:
                self._tuner.fed(self._counters, came, left)
            return feed
        raise StopIteration

    def _annotate(self) -> None:
        """End the step that a profiler records, and begin the next one, with its wait."""
        self._end_step()
        profiler.active = _records()
        if not (profiler.active and self._pass):
            return
        if self.annotates_steps:
            self._step = StepTraceAnnotation("jreader step", step_num=self.step)
            self._step.__enter__()
        self._wait = profiler.begin("wait")

    def _end_wait(self) -> None:
        wait, self._wait = self._wait, None
        if wait:
            profiler.end(wait)

    def _end_step(self) -> None:
        self._end_wait()
        step, self._step = self._step, None
        if step:
            profiler.end(step)

    def _wait_for_compilation(self) -> None:
        """Wait for the compilation of `loader.warm`, so that the loop compiles nothing."""
        try:
            while self._run.warming:
                self._run.warming.pop().wait()
        except BaseException:
            self.close()
            raise

    def _ended(self, here: Pass[Feed]) -> None:
        """Move to the next epoch, if the run has one."""
        if here is not self._pass:
            return  # another thread has closed it meanwhile
        ended = self._now
        self.close()
        start, until, endless = self._wanted
        if endless or (until is not None and ended["step"] >= until):
            return
        if ended["step"] < start:
            raise too_few(ended["epoch"], ended["step"], start)
        # skip_steps named steps of this epoch only
        after = next_epoch(ended, continues=self._loading.remainder.continues)
        self._place[0] = Place.of({**after, "skipped": []})

    def seek(self, step: int) -> None:
        """Go to a step, forward or back, as `feeds.step` counts: its feed is the next one.

        An indexed plan jumps there; otherwise everything before it is read and dropped.

        >>> import numpy as np
        >>> from jreader import Pipeline, arrays
        >>> feeds = Pipeline(arrays(x=np.arange(6.0))).batch(2).load().steps()
        >>> feeds.seek(4)
        >>> next(feeds)["x"].tolist(), feeds.step, feeds.epoch
        ([2.0, 3.0], 5, 1)

        Args:
            step: The number of the step, from 0.

        Raises:
            TypeError: `step` is not a whole number.
            ValueError: The step is negative, or beyond the epoch. Or it is earlier, and the plan
                draws a new order for each pass, or the pass began at a cursor of another batch
                size.
        """
        start, first = check_number("feeds.seek(step)", step), self._first
        if weights_line(first["plan"]) != weights_line(self._loading.plan()):
            raise ValueError(
                f"feeds.seek({start}) finds steps of the plan as it was written, and this pass "
                f"has other weights: go to a cursor instead, with loader.steps(at=cursor)."
            )
        try:
            cursor = self._cursor_at(start)
        except ValueError:
            if not self._reaches(start):
                raise
            cursor = None  # this pass continues, with the order that it has drawn
        if cursor is None:
            cursor = self._now if self._reaches(start) else first
            if start < first["step"]:
                raise ValueError(
                    f"feeds.seek({start}) asks for a step before this pass, which began at step "
                    f"{first['step']}, and its source cannot be read backwards: begin a pass with "
                    f"loader.steps(start={start})."
                )
        elif (there := self._cursor_at(first["step"])) and _place_at(there) != _place_at(first):
            raise ValueError(
                f"feeds.seek({start}) counts steps of one size, and those before the cursor that "
                f"this pass began at were of another size: it stands at sample {first['samples']} "
                f"of epoch {first['epoch']} after {first['step']} steps. Begin a pass without at=."
            )
        self.close()
        self._wanted = self._wanted._replace(first=start)
        cursor = {**cursor, "skipped": first["skipped"]}
        self._place[0] = Place.of(cursor)
        self._enter(cursor)

    def set_weights(self, weights: Mapping[str, Any] | Sequence[Any]) -> int:
        """Set new weights of a `mix` from the next feed on; every reader keeps its place.

        Ops that hold samples of a stream (`pack`, `shuffle(n)`) give those first. Later epochs and
        cursors keep the weights. With several processes, call it on all after the same step.

        >>> import numpy as np
        >>> from jreader import Pipeline, arrays, mix
        >>> sources = {"web": arrays(np.zeros(64, int)), "code": arrays(np.ones(64, int))}
        >>> feeds = iter(Pipeline(mix(sources, seed=0)).batch(8).load())
        >>> next(feeds).tolist(), feeds.set_weights({"web": 0, "code": 1})
        ([1, 0, 0, 1, 0, 1, 1, 0], 8)
        >>> next(feeds).tolist()
        [1, 1, 1, 1, 1, 1, 1, 1]

        Args:
            weights: As `mix` takes them; 0 switches a reader off.

        Returns:
            The number of the first sample of the mixture, in this epoch, that they apply to.

        Raises:
            TypeError: The plan has no `mix` whose samples make the batches in their order, or
                `weights` have another form.
            ValueError: A weight is below 0, is for a name that is not there, or missing; or the
                `mix` has `stop="once"`.
            RuntimeError: The pass has ended, or has not reached the step at which it was to begin;
                or another thread draws its feeds.
        """
        if self._thread not in (0, get_ident()):
            raise RuntimeError(
                "set_weights(...) changes the next feed, and another thread draws the feeds of "
                "this pass: call it in that thread, between two feeds."
            )
        if self._pass is None or self.step < self._wanted.first:
            raise RuntimeError(
                "set_weights(...) changes a pass that is under way, and this one has ended, or has "
                "yet to come to its first step: call it between two feeds, or before the first "
                "feed of the next epoch."
            )
        cursor = self._loading.with_weights(self._now, weights)
        self.close()
        self._run.stream.close()
        self._first, self._place[0] = cursor, Place.of(cursor)
        self._enter(cursor)
        return last_change(cursor)

    def _cursor_at(self, step: int) -> Cursor | None:
        """Return the cursor of a step, if it can be found without reading; else None."""
        endless = self._wanted.endless
        epoch = 0 if endless else self._first["epoch"]
        return cursor_of_step(self._loading, epoch, step, endless=endless)

    def _reaches(self, step: int) -> bool:
        """Return whether this pass will reach a later step."""
        return step >= self.step and (self._wanted.endless or self.epoch == self._first["epoch"])

    def close(self) -> None:
        """Stop the thread and drop the prefetched feeds; there are no more feeds."""
        self._end_step()
        if self._pass:
            here, self._pass = self._pass, None
            here.close()

    def __exit__(self, *_error: object) -> None:
        """Close it, also after an error."""
        self.close()


def _place_at(cursor: Cursor) -> tuple[int, int]:
    return cursor["epoch"], cursor["samples"]
