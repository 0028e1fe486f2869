"""`DataLoader`: a source of batches, a place for feeds, and passes over both."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any
from weakref import WeakSet

import jax

from jreader import errors
from jreader.batches import batch
from jreader.devices import Placement, placeable
from jreader.feeds import FeedList, Feeds
from jreader.loaders.groups import Grouping, Source, batches_of, hosted, rows_of
from jreader.loaders.mapped import Collated, Collation, indices, on_threads
from jreader.loaders.passes import FeedPass, Place, beginning, checked
from jreader.loaders.pictures import picture
from jreader.loaders.verbs import Verbs
from jreader.readers import Cursor, Pass, Position, Reader, leaves, rebuilt
from jreader.readers.pictures import table
from jreader.workers import lookahead


class DataLoader(Verbs):
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
        dataset: The data set, if there is one.
    """

    dataset: Any = None

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        batch_sampler: Any = None,
        collate_fn: Callable[[Any], Any] | None = None,
        num_workers: int = 0,
        timeout: float = 0,
        worker_init_fn: Callable[[int], object] | None = None,
        persistent_workers: bool = False,
        places: Any = None,
        feed_list: FeedList | None = None,
        return_list: bool = True,
        seed: Any = None,
    ) -> None:
        """A loader over a data set.

        >>> [feed.tolist() for feed in DataLoader(range(5), batch_size=2)]
        [[0, 1], [2, 3], [4]]

        Args:
            dataset: Anything with `__getitem__` and `__len__`, a list or another library's; or an
                `IterableDataset`. Where there is a `__getitems__`, it is used.
            batch_size: Samples of a batch, and with D places of each of D; None for feeds that are
                single samples.
            shuffle: Whether samples are dealt at random, anew in every epoch.
            drop_last: Whether a short last batch (with several places, a group that lacks one) is
                left out. Otherwise it is handed over as it is; cut over several places it is padded
                with zeros, and every feed carries a `mask`.
            batch_sampler: Lists of indices instead of the four arguments before: a `BatchSampler`,
                a list, what can be iterated in every epoch.
            collate_fn: Takes the list of samples of a batch and gives a feed, whose arrays go to
                the devices; None for `jreader.datasets.collate`. Without batches, takes a sample.
            num_workers: How many threads fetch and collate, in order; 0 for none but the loader's.
            timeout: Seconds that a batch may be waited for, on a thread; 0 for any.
            worker_init_fn: Called on each thread with its number, from 0, before its first batch.
            persistent_workers: Changes nothing: threads begin in no time.
            places: As in `set_sample_generator`.
            feed_list: The fields, as in `from_generator`; None for feeds with the tree of the
                samples: arrays on the device, strings on the host.
            return_list: Whether tuples become lists, and with a feed_list, dicts too.
            seed: An int, or a jax key, fixes what `shuffle` deals; None draws for each pass.
        """
        self.dataset = dataset
        drops = drop_last or getattr(batch_sampler, "drop_last", False)
        self._configure(feed_list, drop_last=drops)
        batched = batch_size is not None or batch_sampler is not None
        fetch = Collation(dataset, batched, collate_fn, feed_list, return_list)
        asked = indices(dataset, batch_size, shuffle, drop_last, batch_sampler, seed)
        batches = on_threads(fetch, asked, num_workers, timeout, worker_init_fn, persistent_workers)
        rows = batch_size if collate_fn is None and batch_sampler is None else None
        self._set(Source(batches, "collated", places, beside=True, rows=rows))

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
        capacity: int = 2,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        drop_last: bool = True,
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
        grouping = Collated if source.kind == "collated" else Grouping
        return source, grouping(
            feeds, source.kind, placement, beside, self._drop_last, source.rows, self._return_list
        )

    def _begin(self, epoch: int, at: Position) -> Pass[Any]:
        """What is left of an epoch, prepared, placed and looked ahead for."""
        source, grouping = self._grouping()
        placement = grouping.placement
        if grouping.masked:
            placement = placement.with_mask()
        host = hosted(source, grouping, epoch, at)
        if self._double:
            return lookahead(host, self._capacity, placement.put)
        ahead = lookahead(host, self._capacity, _same)
        return Pass(map(placement.put, ahead.items), ahead.position, ahead.close)

    def _peeked(self) -> tuple[Any, Placement]:
        source, grouping = self._grouping()
        host = hosted(source, grouping, self.next_epoch, None)
        try:
            for feed in host.items:
                placement = grouping.placement
                return feed, placement.with_mask() if grouping.masked else placement
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
        """How many leading axes of a feed count samples: 2 where the first one counts devices."""
        return 1 if self._grouping()[1].placement.parts is None else 2

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
        source, grouping = self._grouping()
        parts = (grouping.placement.parts or 1) if grouping.beside else 1
        full, short = batches_of(source.batches)
        if full is None or (short is None and self._drop_last):
            raise TypeError(
                f"the length of this loader is not known before it is read: {source.batches!r} "
                f"does not tell it. Readers with a length, as jreader.arrays(...), do, and data "
                f"sets with indices; an IterableDataset has none."
            )
        return full // parts if self._drop_last else -(-(full + bool(short)) // parts)

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


def _same(feed: Any) -> Any:
    return feed
