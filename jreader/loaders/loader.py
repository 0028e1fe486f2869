"""`DataLoader`: a source of batches, a place for feeds, and passes over both."""

from __future__ import annotations

from types import TracebackType
from typing import Any
from weakref import WeakSet

import jax

from jreader import errors
from jreader.batches import batch
from jreader.devices import Placement
from jreader.feeds import FeedList, Feeds
from jreader.loaders.groups import Grouping, Source, batches_of, hosted, rows_of
from jreader.loaders.passes import FeedPass, Place, beginning, checked
from jreader.readers import Cursor, Pass, Position, Reader, leaves, rebuilt
from jreader.workers import lookahead


class DataLoader:
    """Feeds on devices, prepared ahead of the step.

    >>> import numpy as np
    >>> from jreader import data
    >>> def digits():
    ...     for label in range(7):
    ...         yield np.full(4, label), label
    >>> feed_list = [data("image", [None, 4]), data("label", [None, 1], "int32")]
    >>> loader = DataLoader.from_generator(feed_list, capacity=2)
    >>> loader = loader.set_sample_generator(digits, batch_size=3)
    >>> for feed in loader():
    ...     print(feed["image"].shape, feed["label"].ravel())
    (3, 4) [0 1 2]
    (3, 4) [3 4 5]

    `for feed in loader` is the next epoch: it takes `next_epoch` and counts it up. Two passes at
    once are independent. It works in a `with` block, which closes the passes that are still open.

    Attributes:
        next_epoch: The epoch that the next `iter(loader)` gives.
    """

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        """Is reserved for data sets."""
        raise NotImplementedError(
            "DataLoader(dataset, ...) is not there yet: use DataLoader.from_generator(feed_list, "
            "capacity), or Pipeline(reader).batch(n).load()."
        )

    @classmethod
    def from_generator(
        cls,
        feed_list: FeedList | None = None,
        capacity: int = 2,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        drop_last: bool = True,
    ) -> DataLoader:
        """A loader without a source: give it one with `set_sample_generator` or its siblings.

        Args:
            feed_list: The fields, as `data`; a mapping from names to places; None for feeds with
                the tree of the samples.
            capacity: How many feeds are on the devices before they are asked for; 0 for none.
            use_double_buffer: False prepares them on the host ahead, and places them when asked.
            iterable: False for `start()`, `next()`, `reset()` and `EOFException`.
            return_list: Whether a feed is a list in the order of the feed_list, not a dict.
            drop_last: Whether short batches, and groups that lack some, are left out. Otherwise
                they are padded with zeros, and every feed carries a `mask` (bool; last in a list).

        Raises:
            TypeError: `feed_list` or `capacity` are of the wrong kind.
            ValueError: A name is there twice, or `capacity` is negative.
        """
        loader = object.__new__(cls)
        loader._configure(feed_list, capacity, use_double_buffer, iterable, return_list, drop_last)
        return loader

    @classmethod
    def over(
        cls,
        batches: Reader[Any],
        feed_list: FeedList | None = None,
        *,
        capacity: int = 2,
        sharding: Any = None,
        pmap: Any = None,
        drop_last: bool = True,
    ) -> DataLoader:
        """A loader whose batches are each split over the devices: what `Pipeline.load` gives."""
        loader = cls.from_generator(feed_list, capacity, drop_last=drop_last)
        rows = rows_of(batches)
        source = Source(batches, "sample lists", sharding, beside=False, pmap=pmap, rows=rows)
        return loader._set(source)  # noqa: SLF001  # its own class

    def _configure(
        self,
        feed_list: FeedList | None,
        capacity: int,
        use_double_buffer: bool,
        iterable: bool,
        return_list: bool,
        drop_last: bool,
    ) -> None:
        Feeds(feed_list)  # refuses a wrong one here, where it was written
        self._feed_list = feed_list
        self._capacity = errors.check_number("from_generator(feed_list, capacity)", capacity)
        self._double = bool(use_double_buffer)
        self._iterable = bool(iterable)
        self._return_list = bool(return_list)
        self._drop_last = bool(drop_last)
        self._source: Source | None = None
        self._started: FeedPass | None = None
        self._passes: WeakSet[FeedPass] = WeakSet()
        self._place = Place(beginning(0))
        self._resumed: Cursor | None = None
        self.next_epoch = 0

    def set_sample_generator(
        self, reader: Reader[Any], batch_size: int, drop_last: bool = True, places: Any = None
    ) -> DataLoader:
        """Feeds from a reader of samples, `batch_size` of them for each place.

        Args:
            reader: Yields samples: tuples or lists of fields by place, dicts by name.
            batch_size: Samples of a batch; with D places a feed has D batches.
            drop_last: Whether a last batch with fewer samples is left out already here.
            places: None (the default device, [B, ...]); a device; a list of D devices ([D, B, ...],
                as pmap takes it); a Sharding (the global array).
        """
        batches = batch(reader, batch_size, drop_last)
        return self._set(Source(batches, "samples", places, beside=True, rows=batches.batch_size))

    def set_sample_list_generator(self, reader: Reader[Any], places: Any = None) -> DataLoader:
        """Feeds from a reader of batches: lists of samples, each sample a tuple or a dict."""
        errors.check_reader("set_sample_list_generator(reader)", reader)
        return self._set(Source(reader, "sample lists", places, beside=True, rows=rows_of(reader)))

    def set_batch_generator(self, reader: Reader[Any], places: Any = None) -> DataLoader:
        """Feeds from a reader of batches that are arrays already: a tuple, list or dict of them."""
        errors.check_reader("set_batch_generator(reader)", reader)
        return self._set(Source(reader, "arrays", places, beside=True))

    def _set(self, source: Source) -> DataLoader:
        placement = source.placement()
        if source.rows and not (source.beside and placement.parts):
            placement.check(source.rows)
        self._source = source
        return self

    def __call__(self) -> FeedPass:
        """The next epoch, as `iter(loader)`."""
        return iter(self)

    def __iter__(self) -> FeedPass:
        """The next epoch: an independent pass."""
        if not self._iterable:
            raise TypeError(
                "this loader is not iterable (iterable=False): call start(), then next() until "
                "EOFException, then reset(); or make it with iterable=True"
            )
        return self._next_pass()

    def _next_pass(self) -> FeedPass:
        cursor, self._resumed = self._resumed or beginning(self.next_epoch), None
        self.next_epoch = cursor["epoch"] + 1
        return self._pass(cursor)

    def epoch(self, epoch: int, at: Cursor | None = None) -> FeedPass:
        """The feeds of one epoch, or what is left of it after a cursor.

        Raises:
            ValueError: The cursor is of another epoch.
        """
        number = errors.check_number("loader.epoch(epoch)", epoch)
        cursor = beginning(number) if at is None else checked(at)
        if cursor["epoch"] != number:
            raise ValueError(
                f"the cursor is of epoch {cursor['epoch']}, not {number}: use "
                f"loader.epoch({cursor['epoch']}, at=cursor), or loader.steps(at=cursor)"
            )
        return self._pass(cursor)

    def steps(self, n: int | None = None, at: Cursor | None = None) -> FeedPass:
        """Feeds of epoch after epoch, until step `n` of the run; without `n`, for ever.

        Steps count from the beginning of the run: after a restart at a cursor of step 300,
        `steps(1000, at=cursor)` gives the 700 that are left.
        """
        limit = None if n is None else errors.check_number("loader.steps(n)", n)
        return self._pass(beginning(0) if at is None else checked(at), limit, endless=True)

    def _pass(self, cursor: Cursor, steps: int | None = None, *, endless: bool = False) -> FeedPass:
        self._place = Place(cursor)
        feeds = FeedPass(self._begin, self._place, steps, endless=endless)
        self._passes.add(feeds)
        return feeds

    def state_dict(self) -> dict[str, Any]:
        """The cursor of the latest pass; json and orbax keep it."""
        return dict(self._place.cursor)

    def load_state_dict(self, state: Cursor) -> None:
        """Has the next `iter(loader)` go on where a cursor says."""
        self._resumed = checked(state)
        self._place = Place(self._resumed)
        self.next_epoch = self._resumed["epoch"]

    def _grouping(self) -> tuple[Source, Grouping]:
        if self._source is None:
            raise RuntimeError(
                "this loader has no source: call set_sample_generator(reader, batch_size), "
                "set_sample_list_generator(reader) or set_batch_generator(reader) first"
            )
        source, placement = self._source, self._source.placement()
        feeds = Feeds(self._feed_list, placement.canonical)
        beside = source.beside and placement.parts is not None
        return source, Grouping(
            feeds, source.kind, placement, beside, self._drop_last, source.rows, self._return_list
        )

    def _begin(self, epoch: int, at: Position) -> Pass[Any]:
        """What is left of an epoch, prepared, placed and looked ahead for."""
        source, grouping = self._grouping()
        placement = grouping.placement
        if not self._drop_last:
            placement = placement.with_mask()
        host = hosted(source, grouping, epoch, at)
        if self._double:
            placed = (placement.put(feed) for feed in host.items)
            return lookahead(Pass(placed, host.position, host.close), self._capacity)
        ahead = lookahead(host, self._capacity)
        placed = (placement.put(feed) for feed in ahead.items)
        return Pass(placed, ahead.position, ahead.close)

    def _peeked(self) -> tuple[Any, Placement]:
        source, grouping = self._grouping()
        host = hosted(source, grouping, self.next_epoch, None)
        try:
            for feed in host.items:
                placement = grouping.placement
                return feed, placement if self._drop_last else placement.with_mask()
        finally:
            host.close()
        raise ValueError("the source of this loader gives no full batch: there is no feed to see")

    def peek(self) -> Any:
        """The first feed of the next epoch; nothing that iterates notices."""
        feed, placement = self._peeked()
        return placement.put(feed)

    @property
    def element_spec(self) -> Any:
        """The feeds' tree of `jax.ShapeDtypeStruct`, sharded: what `jax.eval_shape` takes."""
        feed, placement = self._peeked()
        specs = [
            jax.ShapeDtypeStruct(array.shape, placement.canonical(array.dtype), sharding=sharding)
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
        """How many leading axes of a feed count samples: 2 where the first one counts devices."""
        return 1 if self._grouping()[1].placement.parts is None else 2

    def __bool__(self) -> bool:
        """A loader is true, also one whose length is not known, or nothing."""
        return True

    def __len__(self) -> int:
        """The number of feeds of an epoch, where it is known."""
        source, grouping = self._grouping()
        parts = (grouping.placement.parts or 1) if grouping.beside else 1
        full, short = batches_of(source.batches)
        if full is None or (short is None and self._drop_last):
            raise TypeError(
                f"the length of this loader is not known before it is read: {source.batches!r} "
                f"does not tell it. Readers with a length, as jreader.arrays(...), do."
            )
        return full // parts if self._drop_last else -(-(full + bool(short)) // parts)

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

    def __enter__(self) -> DataLoader:
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
        self._started = None


class PyReader(DataLoader):
    """Paddle's older spelling of `DataLoader.from_generator`, with `decorate_*` for `set_*`.

    >>> loader = PyReader(feed_list=None, capacity=2)
    >>> loader.decorate_sample_generator(lambda: range(4), batch_size=2)
    >>> [feed.tolist() for feed in loader()]
    [[0, 1], [2, 3]]
    """

    def __init__(
        self,
        feed_list: FeedList | None = None,
        capacity: int = 2,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
    ) -> None:
        """Takes what `from_generator` takes."""
        self._configure(
            feed_list, capacity, use_double_buffer, iterable, return_list, drop_last=True
        )

    def decorate_sample_generator(
        self,
        sample_generator: Reader[Any],
        batch_size: int,
        drop_last: bool = True,
        places: Any = None,
    ) -> None:
        """As `set_sample_generator`."""
        self.set_sample_generator(sample_generator, batch_size, drop_last, places)

    def decorate_sample_list_generator(self, reader: Reader[Any], places: Any = None) -> None:
        """As `set_sample_list_generator`."""
        self.set_sample_list_generator(reader, places)

    def decorate_batch_generator(self, reader: Reader[Any], places: Any = None) -> None:
        """As `set_batch_generator`."""
        self.set_batch_generator(reader, places)
