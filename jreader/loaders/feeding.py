"""What a loader does with its source: passes of feeds, ahead of the step, and their places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

import jax

from jreader import errors
from jreader.batches import sized
from jreader.devices import placeable, where_written
from jreader.feeds import FeedList, Feeds
from jreader.loaders.assembling import Grouping
from jreader.loaders.cursors import beginning, check_plan, checked, sealed, skipping
from jreader.loaders.html import picture
from jreader.loaders.iterators import SKIPPED, FeedIterator, Place
from jreader.loaders.map_style import Collating
from jreader.loaders.multihost.agreement import TIMEOUT, Agreement
from jreader.loaders.multihost.board import Board
from jreader.loaders.multihost.shards import dealt_to, found_by_place
from jreader.loaders.on_device import Stages
from jreader.loaders.provenance import Samples, samples_of
from jreader.loaders.remainders import Ends
from jreader.loaders.resident import Resident
from jreader.loaders.seeking import found
from jreader.loaders.sources import (
    Kept,
    Source,
    feeds_of,
    foresee,
    hosted,
    step_size,
    steps_done,
    turned,
)
from jreader.readers import Cursor, Pass, Plan, fingerprint, itself, leaves, length, rebuilt
from jreader.readers.plan_tables import table
from jreader.readers.seeds import waits
from jreader.workers import lookahead


class Feeding:
    """Passes of feeds over a source, which `DataLoader` sets; `with` closes those still open.

    Attributes:
        next_epoch: The epoch that the next `iter(loader)` gives.
    """

    def _configure(
        self,
        feed_list: FeedList | None,
        capacity: int = 2,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        ends: Ends | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        Feeds(feed_list)  # refuses a wrong one here, where it was written
        self._feed_list = feed_list
        self._capacity = errors.check_number("from_generator(feed_list, capacity)", capacity)
        self._double = bool(use_double_buffer)
        self._iterable = bool(iterable)
        self._return_list = bool(return_list)
        self._ends = ends or Ends()
        self._timeout = errors.check_seconds("timeout of a loader", timeout)
        self._board: Board | None = None
        self._made_at = errors.place_of_caller()
        self._given: dict[str, Any] = {
            "dataset": None,
            "feed_list": feed_list,
            "capacity": self._capacity,
            "return_list": self._return_list,
            "drop_last": self._ends.drop_last,
            "timeout": self._timeout,
            "places": None,
        }
        self._source: Source | None = None
        self._resident: Resident | None = None
        self._stages = Stages()
        self._chunk: int | None = None
        self._started: FeedIterator | None = None
        self._passes: WeakSet[FeedIterator] = WeakSet()
        self._place = Place(beginning(0))
        self._resumed: Cursor | None = None
        self._known: tuple[int | None, Plan] | None = None
        self._stream = Kept()
        self._going: Place | None = None
        self.next_epoch = 0

    def _set(self, source: Source) -> Self:
        placement = source.placement()
        if source.rows and not (source.beside and placement.parts):
            placement.check(source.rows)
        self._source = replace(source, places=where_written(source.places))
        self._known, self._going, self._stream = None, None, Kept()
        self._given = {**self._given, "places": source.places}
        self._ended(self._source)  # refuses words that contradict one another
        return self

    def _ended(self, source: Source) -> Ends:
        """What was said of the end of an epoch, as it is meant for this source."""
        if source.beside:
            cut = source.placement().splits or self._chunk is not None
            return self._ends.of_places(source.batches, equal=cut)
        return self._ends.of_batches(source.batches)

    def _plan(self) -> Plan:
        """What a cursor says of the source."""
        source, grouping = self._grouping()
        op = sized(source.batches)
        samples = length(op.reader if op else source.batches)  # data sets grow and shrink
        if self._known is None or self._known[0] != samples:
            made = list(self._made(source, grouping))
            self._known = samples, fingerprint(source.batches, made)
        return self._known[1]

    def _made(self, source: Source, grouping: Grouping) -> Iterator[str]:
        """What a cursor says of how feeds are made."""
        mapper = getattr(source.batches, "mapper", None)
        fields = self._feed_list or getattr(mapper, "feed_list", None)
        if fields is not None:
            yield f"fields {Feeds(fields).places}"
        yield from map(str, self._stages.stages)
        if self._chunk:
            yield f"chunk({self._chunk})"
        if (side_by_side := grouping.batches // (self._chunk or 1)) > 1:
            yield f"{side_by_side} places, a batch each"

    def __call__(self) -> FeedIterator:
        """The next epoch, as `iter(loader)`."""
        return iter(self)

    def __iter__(self) -> FeedIterator:
        """The next epoch: an independent pass."""
        if not self._iterable:
            raise TypeError(
                "this loader is not iterable (iterable=False): call start(), then next() until "
                "EOFException, then reset(); or make it with iterable=True"
            )
        return self._next_pass()

    def _next_pass(self) -> FeedIterator:
        cursor, self._resumed = self._resumed or self._next(), None
        self.next_epoch = cursor["epoch"] + 1
        if cursor["plan"]["ops"]:
            check_plan(cursor["plan"], self._plan())
        feeds = self._pass(self._skipping(cursor))
        self._going = self._place
        return feeds

    def _next(self) -> Cursor:
        """The beginning of the next epoch: of a stream that goes on, where the one before is."""
        cursor = beginning(self.next_epoch)
        if self._going is None or self._source is None or not self.next_epoch:
            return cursor
        at = turned(self._going.cursor["position"], self._ended(self._source))
        return {**cursor, "position": at, "digest": self._going.cursor["digest"]} if at else cursor

    def epoch(
        self,
        epoch: int,
        at: Cursor | None = None,
        *,
        start: int = 0,
        skip_steps: range | None = None,
    ) -> FeedIterator:
        """The feeds of one epoch, or what is left of it after a cursor, or from a step on.

        Args:
            epoch: The number of the epoch.
            at: A cursor of it.
            start: The step to begin with, without a cursor: at once where the plan is indexed, else
                what lies before it is read, and dropped.
            skip_steps: Steps that are left out, as range(300, 310): their feeds are not placed, and
                `step` counts them. Cursors remember them.

        Raises:
            ValueError: The cursor is damaged, or of another epoch; the epoch has fewer steps.
            NotResumable: It is of another pipeline or release.
        """
        number = errors.check_number("loader.epoch(epoch)", epoch)
        begun = errors.check_number("start of loader.epoch(epoch)", start)
        cursor = self._first(number, at, begun)
        if cursor["epoch"] != number:
            raise ValueError(
                f"the cursor is of epoch {cursor['epoch']}, not {number}: use "
                f"loader.epoch({cursor['epoch']}, at=cursor), or loader.steps(at=cursor)"
            )
        return self._pass(self._skipping(cursor, skip_steps), None, begun, epoch=number)

    def steps(
        self,
        n: int | None = None,
        at: Cursor | None = None,
        *,
        start: int = 0,
        skip_steps: range | None = None,
    ) -> FeedIterator:
        """Feeds of epoch after epoch, until step `n` of the run; without `n`, for ever.

        Steps count from the beginning of the run: after a restart at a cursor of step 300,
        `steps(1000, at=cursor)` gives the 700 that are left, and so does `steps(1000, start=300)`,
        where only the step was kept. `start` and `skip_steps` are those of `epoch`, in steps of the
        run.
        """
        limit = None if n is None else errors.check_number("loader.steps(n)", n)
        begun = errors.check_number("start of loader.steps(n)", start)
        cursor = self._first(0, at, begun)
        return self._pass(self._skipping(cursor, skip_steps), limit, begun, epoch=0, endless=True)

    def _skipping(self, cursor: Cursor, steps: range | None = None) -> Cursor:
        """The cursor with steps that are left out; refused where they would be other ones here."""
        if steps is None and not cursor["skipped"]:
            return cursor
        return skipping(cursor, steps, step_size(*self._grouping()))

    def _first(self, epoch: int, at: Cursor | None, start: int) -> Cursor:
        """Where a pass begins."""
        if at is not None and start:
            raise ValueError(
                f"a pass begins at a cursor or at a step: give at=cursor or start={start}, not both"
            )
        return beginning(epoch) if at is None else self._checked(at)

    def _pass(
        self,
        cursor: Cursor,
        steps: int | None = None,
        start: int = 0,
        *,
        epoch: int = 0,
        endless: bool = False,
    ) -> FeedIterator:
        cursor = self._named(cursor)
        if start and (there := self._found(epoch, start, endless=endless)):
            cursor = {**there, "skipped": cursor["skipped"]}
        self._place = Place(cursor)
        ends = self._ended(self._source) if self._source else self._ends
        feeds = FeedIterator(
            self._begin,
            self._place,
            steps,
            lambda at: turned(at, ends),
            endless=endless,
            start=start,
            find=partial(self._found, epoch, endless=endless),
        )
        self._passes.add(feeds)
        return feeds

    def _found(self, epoch: int, start: int, *, endless: bool) -> Cursor | None:
        """The cursor of a step, where the plan is indexed."""
        source, grouping = self._grouping()
        foresee(source, grouping)
        first = self._named(beginning(epoch))
        return found(source, grouping, first, start, endless=endless)

    def state_dict(self) -> dict[str, Any]:
        """The cursor of the latest pass; json and orbax keep it."""
        cursor = self._place.cursor
        known = cursor["plan"]["ops"] or not self._source  # that of when its epoch began
        return dict(sealed(cursor if known else self._named(cursor)))

    def samples(self, step: int, epoch: int | None = None) -> Samples:
        """Which samples a step sees, past or to come, where the plan is indexed; nothing is read.

        >>> import numpy as np
        >>> from jreader import Pipeline, arrays
        >>> loader = Pipeline(arrays(x=np.arange(6) * 10)).shuffle(seed=1).batch(2).load()
        >>> loader.samples(1), [feed["x"].tolist() for feed in loader.epoch(0)][1]
        (Samples(epoch=0, step=1, rows={'x': array([5, 0])}), [50, 0])

        Args:
            step: What `feeds.step` is when the feed is asked for.
            epoch: An epoch, whose steps count from 0; None for that of the latest pass, whose steps
                count as that pass counts them.

        Raises:
            TypeError: The plan is not indexed.
            ValueError: The epoch has no such step, or draws anew; or the data have another length
                than when it began.
        """
        number = errors.check_number("loader.samples(step)", step)
        cursor, began = self._place.cursor, self._place.began
        known = cursor["plan"]["ops"]
        if epoch is None and known and known != self._plan()["ops"]:
            raise ValueError(
                f"the data have grown or shrunk since epoch {cursor['epoch']} began, and the order "
                f"that it is read in was that of before: ask for one to come, as in "
                f"loader.samples({number}, epoch={cursor['epoch'] + 1})."
            )
        source, grouping = self._grouping(cursor if epoch is None else None)
        foresee(source, grouping)
        if epoch is not None:
            began = beginning(errors.check_number("epoch of loader.samples(step)", epoch))
        elif began is None or began["epoch"] != cursor["epoch"]:
            began = cursor
        return samples_of(source, grouping, began, cursor, number)

    def _checked(self, cursor: Cursor) -> Cursor:
        """A cursor of this loader; others are refused."""
        whole = checked(cursor)
        check_plan(whole["plan"], self._plan())
        return whole

    def _named(self, cursor: Cursor) -> Cursor:
        """The cursor with the plan of this loader; a checked one may have older functions."""
        return {**cursor, "plan": self._plan()}

    def load_state_dict(self, state: Cursor) -> None:
        """Has the next `iter(loader)` go on where a cursor says."""
        self._resumed = self._checked(state) if self._source else checked(state)
        if self._source:
            self._resumed = self._skipping(
                self._named(self._resumed)
            )  # whoever was warned, is not warned again
        self._place = Place(self._resumed)
        self.next_epoch = self._resumed["epoch"]

    def _grouping(self, cursor: Cursor | None = None) -> tuple[Source, Grouping]:
        """What is read, and what makes feeds of it, from a place of an epoch on."""
        if self._source is None:
            raise RuntimeError(
                "this loader has no source: call set_sample_generator(reader, batch_size), "
                "set_sample_list_generator(reader) or set_batch_generator(reader) first"
            )
        source, placement = self._source, self._source.placement()
        ends = self._ended(source)
        kind = Collating if source.kind == "collated" else Grouping
        grouping = kind(
            Feeds(self._feed_list, placement.canonical),
            source.kind,
            placement,
            beside=source.beside and placement.parts is not None,
            ends=ends,
            size=source.size,
            rows=source.rows,
            return_list=self._return_list,
            chunk=self._chunk,
            strict=ends.strict(source.batches),
        )
        done = (cursor["samples"], steps_done(cursor)) if cursor else (0, 0)
        source = replace(source, batches=ends.of(source.batches, grouping.batches, *done))
        share = placement.here(source.rows) if source.rows else None
        if share and dealt_to(source.batches, share):
            grouping.share = share
        return source, grouping

    def _begin(self, cursor: Cursor, passed: int) -> Pass[Any]:
        """What is left of an epoch, prepared, placed and looked ahead for."""
        source, grouping = self._grouping(cursor)
        if not cursor["samples"]:
            cursor["plan"] = self._plan()  # its data sets may have grown since the last epoch
            foresee(source, grouping)
        if grouping.placement.spans and waits(source.batches):
            raise ValueError(
                f"{source.batches!r} draws anew for each pass, and each process would draw another "
                f"order: give its shuffles and random maps a seed, the same on all processes."
            )
        here = self._resident
        host = (
            here.steps(cursor) if here else hosted(source, grouping, cursor, self._stream, passed)
        )
        place = self._placing(grouping, cursor["epoch"])
        if cursor["skipped"] or passed:
            place = _unless_skipped(place)
        if not grouping.placement.spans:
            return self._ahead(host, place)
        if self._board is None:
            self._board = Board(grouping.placement.processes, self._made_at)
        about = f"feeds of {grouping.batches} batches of {source.rows} samples", f"{grouping.ends}"
        agreement = Agreement(self._board, cursor, self._timeout, about)
        if here or found_by_place(source.batches):
            return agreement.heeding(self._ahead(host, place), streamed=False)
        told = agreement.telling(host, max(self._capacity, 1))
        return agreement.heeding(self._ahead(told, place))

    def _ahead(self, host: Pass[Any], place: Callable[[Any], Any]) -> Pass[Any]:
        """Host feeds placed, and looked ahead for."""
        if self._double:
            return lookahead(host, self._capacity, place)
        return lookahead(host, self._capacity, itself).mapped(place)

    def _placing(self, grouping: Grouping, epoch: int) -> Callable[[Any], Any]:
        """What makes a feed of (a host feed, the number of its first sample)."""
        if self._resident:
            return self._resident.placing(self._stages, epoch)
        if not self._stages.stages:
            put = grouping.placed.put
            return lambda numbered: put(numbered[0])
        staged = self._stages.on(grouping.placed, grouping.layout)
        return lambda numbered: staged(numbered[0], epoch, numbered[1])

    def _peeked(self) -> tuple[Any, Grouping]:
        source, grouping = self._grouping()
        host = hosted(source, grouping, self._next())
        try:
            for numbered in host.items:
                return numbered, grouping
        finally:
            host.close()
        raise ValueError("the source of this loader gives no full batch: there is no feed to see")

    def peek(self) -> Any:
        """The first feed of the next epoch; nothing that iterates notices."""
        numbered, grouping = self._peeked()
        return self._placing(grouping, self.next_epoch)(numbered)

    @property
    def element_spec(self) -> Any:
        """The feeds' tree of `jax.ShapeDtypeStruct`, sharded: what `jax.eval_shape` takes."""
        if self._stages.stages:
            feed = self.peek()
            return jax.tree.map(_spec, feed)
        (feed, _), grouping = self._peeked()
        placement = grouping.placed
        specs = [
            jax.ShapeDtypeStruct(
                placement.shape(array.shape), placement.canonical(array.dtype), sharding=sharding
            )
            if placeable(array)
            else array
            for array, sharding in zip(leaves(feed), placement.shardings(feed), strict=True)
        ]
        return rebuilt(feed, iter(specs))

    def replicate(self, tree: Any, axis_name: str = "data") -> Any:
        """A tree (parameters, say) on every device of the feeds, so that a step compiles once.

        Args:
            tree: Arrays.
            axis_name: That of your pmap, which needs `in_axes=(None, 0)` and `out_axes=None`: with
                another one than here, the second step is compiled again.
        """
        return self._grouping()[1].placement.replicated(tree, axis_name)

    @property
    def batch_axes(self) -> int:
        """How many leading axes of a feed count samples: more than 1 for devices and chunks."""
        return self._grouping()[1].axes

    def _repr_html_(self) -> str:
        """The plan, the fields and where they go, as a notebook shows them."""
        reads = self._grouping() if self._source else None
        return table(picture(reads, self._capacity, self.__len__))

    def __repr__(self) -> str:
        """What it reads."""
        reads = repr(self._source.batches) if self._source else "no source"
        return f"{type(self).__name__}({reads}, capacity={self._capacity})"

    def __bool__(self) -> bool:
        """A loader is true, also one whose length is not known, or nothing."""
        return True

    def __len__(self) -> int:
        """The number of feeds of an epoch, where it is known."""
        known = feeds_of(*self._grouping())
        if known is None:
            raise TypeError(
                f"the length of {self!r} is not known before it is read: what it reads does not "
                f"tell it. Readers with a length, as jreader.arrays(...), do, and data sets with "
                f"indices; an IterableDataset has none. Or give steps_per_epoch."
            )
        return known

    def __enter__(self) -> Self:
        """Is closed when the block is left."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the passes that are still open."""
        for feeds in list(self._passes):
            feeds.close()
        self._stream.close()
        self._started = None

    def start(self) -> None:
        """Begins an epoch of a loader with `iterable=False`."""
        self._not_iterable("start")
        if self._started:
            raise RuntimeError("this loader was started already: call reset() before start()")
        self._started = self._next_pass()

    def next(self) -> Any:
        """The next feed of a loader with `iterable=False`.

        Raises:
            EOFException: There is none: `reset()`, then `start()` the next epoch.
        """
        self._not_iterable("next")
        if not self._started:
            raise RuntimeError("this loader was not started: call start() before next()")
        for feed in self._started:
            return feed
        raise errors.EOFException("there is no next feed: reset() the loader, then start() it")

    def reset(self) -> None:
        """Ends the epoch of a loader with `iterable=False`, wherever it is."""
        self._not_iterable("reset")
        if not self._started:
            raise RuntimeError("this loader was not started: reset() follows start()")
        self._started.close()
        self._started = None

    def _not_iterable(self, verb: str) -> None:
        if self._iterable:
            raise TypeError(
                f"{verb}() is for loaders with iterable=False: iterate this one (`for feed in "
                f"loader`), or make it with from_generator(..., iterable=False)"
            )


def _unless_skipped(place: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda numbered: numbered if numbered is SKIPPED else place(numbered)


def _spec(array: jax.Array) -> jax.ShapeDtypeStruct:
    sharding = array.sharding if len(array.sharding.device_set) > 1 else None
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)
