"""`DataLoader`: its public API. `Loading` holds what it loads, `Run` what its passes share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

import jax

from jreader import errors, hints
from jreader.batches import batch, batching
from jreader.devices import where_written
from jreader.feeds import FeedList, Feeds
from jreader.feeds.classes import check_takes
from jreader.linting import Fed, warn_of_plan
from jreader.loaders.arguments import (
    CAPACITY,
    Fixed,
    capacity_of,
    check_order,
    checked_workers,
    names_given,
)
from jreader.loaders.checkpoints.cursors import beginning, checked, sealed, with_plan
from jreader.loaders.checkpoints.positions import EVERY, Place, Wanted, next_epoch
from jreader.loaders.device_programs.resident import Resident
from jreader.loaders.device_programs.stages import Feed, Randomness, Stage, Stages
from jreader.loaders.iterators import FeedIterator
from jreader.loaders.loading import Loading
from jreader.loaders.map_style import DatasetArguments
from jreader.loaders.multihost.agreement import TIMEOUT
from jreader.loaders.prefetching import finisher, first_item, spec_of
from jreader.loaders.queries.asked_rows import AskedRows
from jreader.loaders.queries.notebook_table import picture
from jreader.loaders.queries.occurrences import Epochs, Occurrences, checked_epochs, occurrences_of
from jreader.loaders.queries.provenance import Samples, samples_of
from jreader.loaders.queries.removal import loading_without
from jreader.loaders.queries.shapes import shapes_of
from jreader.loaders.queries.stats import Stats, stats_of
from jreader.loaders.queries.warm_up import Warming
from jreader.loaders.remainders import Last, Remainder
from jreader.loaders.run import Run
from jreader.loaders.source import Options, Source
from jreader.loaders.tuning import Tuned, tuning
from jreader.readers import Cursor, Reader
from jreader.readers.growing import without_writing
from jreader.readers.plan_lines import Line, table

T = TypeVar("T")


class DataLoader(Generic[Feed]):
    """An iterable of feeds, prefetched to the devices before your training step asks for them.

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

    Each `for feed in loader` is the next epoch, reshuffled. Passes that run at the same time are
    independent of each other. A `with` block closes open passes when it exits.

    You can read the arguments (`loader.batch_size`), but not set them: running passes would not
    notice.
    """

    dataset, batch_size, shuffle, drop_last = Fixed(), Fixed(), Fixed(), Fixed()
    sampler, batch_sampler, collate_fn, seed = Fixed(), Fixed(), Fixed(), Fixed()
    num_workers, timeout, worker_init_fn = Fixed(), Fixed(), Fixed()
    peer_timeout = Fixed()
    persistent_workers, prefetch_factor, capacity, sharding = Fixed(), Fixed(), Fixed(), Fixed()
    places, feed_list, return_list, last, tune = Fixed(), Fixed(), Fixed(), Fixed(), Fixed()

    def __init__(
        self: DataLoader[Any],
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        drop_last: bool | None = None,
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
        *,
        last: Last | None = None,
        sampler: Any = None,
        prefetch_factor: int | None = None,
        capacity: int = CAPACITY,
        tune: bool | Mapping[str, int] = False,
        sharding: Any = None,
        **foreign: Any,
    ) -> None:
        """Load batches of a data set.

        >>> [feed.tolist() for feed in DataLoader(range(5), batch_size=2)]
        [[0, 1], [2, 3], [4]]

        Args:
            dataset: A data set from any library with `__getitem__` and `__len__`, or a list;
                `__getitems__` is used where it exists. Or an `IterableDataset`.
            batch_size: Samples per batch; each of D places gets a batch. None feeds single samples.
            shuffle: Whether to reshuffle the samples in every epoch.
            drop_last: Whether to drop a short last batch. By default one place gets it as it is;
                several places need batches of equal size, and drop those left over, with a warning.
                True drops them without a warning; False pads them with zeros, and every feed
                carries a `mask`.
            batch_sampler: A `BatchSampler`, or another iterable of lists of indices that can be
                iterated again in every epoch. Replaces `batch_size`, `shuffle` and `drop_last`.
            collate_fn: Takes the list of samples of a batch (with `batch_size=None`, a sample), and
                returns a feed, whose arrays go to the devices. None for `jreader.datasets.collate`.
            num_workers: The number of worker processes that fetch and collate batches; 0 uses the
                loader's threads. The stream is the same for any number. Workers run neither the
                main script nor jax, and return large arrays through shared memory. A single worker
                reads an `IterableDataset`.
            timeout: Seconds to wait for a batch from a worker; 0 for no limit.
            worker_init_fn: Called in each worker with its number, from 0, before its first batch;
                `jreader.get_worker_info()` returns its data set there.
            persistent_workers: Whether workers keep their copy of the data set across epochs.
                Otherwise it is sent again if it has changed. The processes live as long as the
                loader, either way.
            places: The devices, as in `set_sample_generator`.
            feed_list: The fields: a list of names or of `jreader.data` objects, or a mapping from
                either to indices or keys of a sample. Without it, feeds have the same tree
                structure as the samples: arrays on the device, strings on the host.
            return_list: Whether feeds have lists instead of tuples, and, with a `feed_list`, are
                lists instead of dicts.
            seed: An int, or a jax key, fixes the order of `shuffle`. None draws a new order for
                each pass, which can be resumed all the same. It also seeds the global generators of
                NumPy and Python in workers, for each batch, unless `worker_init_fn` seeds them.
            last: What to do with short batches, instead of `drop_last`, as in `from_generator`.
            sampler: A sampler, or another iterable of indices that can be iterated again in every
                epoch. Replaces `shuffle`.
            prefetch_factor: Batches to request ahead from each worker; None for 2, or more if
                batches are quick to make.
            capacity: Feeds to prefetch to the devices; 0 for none. Paddle's `reader_buffer_size` is
                the same, and its `use_buffer_reader=False` means 0.
            tune: Whether to autotune `capacity` and the number of map threads while training, as in
                `Pipeline.load`; `num_workers` is not tuned.
            sharding: Where feeds go, as in `Pipeline.load`: a Mesh, a Sharding, a Device, "host",
                or a tree of these by field. `batch_size` is then the size of the global batch, of
                which each process fetches its own rows. Replaces `places`.
            **foreign: Other arguments of PyTorch and Paddle, with values that change nothing here
                (`pin_memory=False`).

        Raises:
            TypeError: An argument is of the wrong kind, or one of PyTorch or Paddle has a value
                that has no meaning here; the error says why.
            ValueError: Arguments contradict each other, or a number is too small.
            BatchNotDivisible: The batch cannot be split evenly over the devices of `sharding`.
        """
        given = {name: value for name, value in locals().items() if name in names_given(DataLoader)}
        check_order(batch_size, shuffle, drop_last)
        asked = DatasetArguments(**given)
        asked.capacity = capacity_of(capacity, foreign, [*given])
        if last is None and drop_last is None and getattr(batch_sampler, "drop_last", False):
            drop_last = True
        remainder, ceilings = Remainder.checked(drop_last, last), tuning(tune, asked.capacity)
        asked.shuffle = False if shuffle is None else shuffle  # as torch has it
        asked.drop_last = bool(given["drop_last"])
        self._begin(Options(feed_list, asked.capacity, remainder=remainder, tune=ceilings))
        rows = batch_size if collate_fn is None and batch_sampler is None else None
        batches, places = asked.batches(), asked.placed()
        self._set(Source(batches, "collated", places, batch_per_place=True, rows=rows))
        self._given |= vars(asked)

    @classmethod
    def from_generator(
        cls,
        feed_list: FeedList | None = None,
        capacity: int = 2,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        use_multiprocess: bool = False,
        drop_last: bool | None = None,
        last: Last | None = None,
        steps_per_epoch: int | None = None,
        peer_timeout: float = TIMEOUT,
        tune: bool | Mapping[str, int] = False,
        into: Callable[..., Feed] | None = None,
    ) -> DataLoader[Feed]:
        """Make a loader as Paddle does: set its source with one of its `set_*` methods.

        >>> loader = DataLoader.from_generator({"number": 0}, capacity=2)
        >>> loader = loader.set_sample_generator(lambda: [(1,), (2,), (3,), (4,)], batch_size=2)
        >>> [feed["number"].tolist() for feed in loader]
        [[1, 2], [3, 4]]

        Args:
            feed_list: The fields: a list of names or of `jreader.data` objects, or a mapping from
                either to indices or keys of a sample. Without it, feeds have the same tree
                structure as the samples.
            capacity: Feeds to prefetch to the devices; 0 for none.
            use_double_buffer: Whether to prefetch to the devices. False prefetches on the host, and
                puts a feed on the devices when the loop asks for it.
            iterable: Whether to iterate the loader. False is for `start()`, `next()`, `reset()` and
                `EOFException`.
            return_list: Whether a feed is a list in the order of the `feed_list`, not a dict.
            use_multiprocess: Only False; accepted as Paddle's sixth argument. To read in processes,
                use `multiprocess_reader([reader])`, or `map(fn, processes=2)`.
            drop_last: Whether several places drop groups with too few batches, or with batches of
                unequal sizes. False pads them with zeros, and every feed carries a `mask` (bool;
                the last item of a list). None drops them with a warning. One place gets every batch
                as it is.
            last: What to do with short batches, instead of `drop_last`, so that all steps have the
                same size, even on one place: "drop" them, "pad" them with zeros, "wrap" (fill them
                up with the first samples of the epoch) or raise an "error"; or "keep" them as they
                are, on one place.
            steps_per_epoch: Feeds per epoch; None for all. Surplus feeds are dropped; too few are
                an error, or with `last="wrap"` the epoch starts over. A possibly endless stream
                continues where the previous epoch ended; `firstn(reader, n)` restarts it in each
                epoch.
            peer_timeout: Seconds to wait for the other processes of `jax.distributed`, if each of
                them reads a stream; 0 for no limit.
            tune: Whether to autotune map threads and `capacity` while training, as in
                `Pipeline.load`.
            into: A class or function that takes the fields of each feed by keyword, as in
                `Pipeline.load`.

        Raises:
            TypeError: `feed_list`, `capacity` or `tune` is of the wrong kind.
            ValueError: Two fields have the same name, `capacity` is negative, `last` is not one of
                its five values or contradicts `drop_last`, or `use_multiprocess` is True.
        """
        if errors.check_flag("use_multiprocess of from_generator", use_multiprocess):
            raise ValueError(
                "from_generator(use_multiprocess=True) has no effect here: the reader decides "
                "what runs in processes: leave it out, and use multiprocess_reader([reader]), or "
                "map(fn, processes=2) for slow functions. (The sixth argument is Paddle's "
                "use_multiprocess; drop_last is given by its name.)"
            )
        options = Options(
            feed_list,
            errors.check_number("capacity of a loader", capacity),
            bool(use_double_buffer),
            bool(return_list),
            Remainder.checked(drop_last, last, steps_per_epoch),
            errors.check_seconds("peer_timeout of a loader", peer_timeout),
            tune=tuning(tune, capacity),
            stages=Stages(into=into),
        )
        loader = object.__new__(cls)
        loader._begin(options, iterable=bool(iterable))
        return loader

    @classmethod
    def over(
        cls, batches: Reader[Any], feed_list: FeedList | None = None, **options: Any
    ) -> DataLoader[Feed]:
        """`Pipeline(batches).load(...)` by an older name, which warns.

        >>> from jreader import Pipeline, arrays
        >>> [feed.tolist() for feed in Pipeline(arrays([0, 1, 2, 3])).batch(2).load()]
        [[0, 1], [2, 3]]
        """
        errors.warn(
            "DataLoader.over(batches, ...) is now Pipeline(batches).load(...)",
            kind=DeprecationWarning,
        )
        return cls._over(batches, feed_list, **options)

    @classmethod
    def _over(
        cls,
        batches: Reader[Any],
        feed_list: FeedList | None = None,
        *,
        sharding: Any = None,
        pmap: Any = None,
        resident: bool = False,
        workers: Any = None,
        share: str | None = None,
        lock: tuple[str, ...] = (),
        **options: Any,
    ) -> DataLoader[Feed]:
        """Return the loader of `Pipeline.load`; `options` are those of `from_generator`."""
        loader = cls.from_generator(feed_list, **options)
        rows = batching(batches).rows
        source = Source(batches, "sample lists", sharding, pmap=pmap, rows=rows, lock=lock)
        return loader._set(source, resident=resident, workers=workers, share=share)  # noqa: SLF001  # its own class

    def set_sample_generator(
        self,
        reader: Reader[Any],
        batch_size: int | Mapping[int, int],
        drop_last: bool = True,
        places: Any = None,
    ) -> Self:
        """Set a reader of samples as the source; each place gets `batch_size` samples per feed.

        >>> loader = DataLoader.from_generator({"number": 0})
        >>> loader = loader.set_sample_generator(lambda: [(1,), (2,), (3,)], batch_size=2)
        >>> [feed["number"].tolist() for feed in loader]
        [[1, 2]]

        Args:
            reader: Yields samples: tuples or lists of fields in the order of the `feed_list`, or
                dicts of fields by name.
            batch_size: Samples per batch (B); on D places a feed has D batches.
            drop_last: Whether to drop a last batch with fewer samples; it has no effect if
                `from_generator` got `last="pad"`, "wrap", "error" or "keep".
            places: The devices: None for the default one, or a device (feeds of [B, ...]); a list
                of D devices ([D, B, ...], as pmap takes it); or a Sharding of the global array.

        Returns:
            This loader.
        """
        drops = errors.check_flag("drop_last of set_sample_generator", drop_last)
        keeps = self._options.remainder.last in ("pad", "wrap", "error", "keep")
        batches = batch(reader, batch_size, None if keeps else drops)
        rows = batching(batches).rows
        return self._set(Source(batches, "samples", places, batch_per_place=True, rows=rows))

    def set_sample_list_generator(self, reader: Reader[Any], places: Any = None) -> Self:
        """Set a reader of lists of samples as the source; each sample is a tuple or a dict.

        >>> loader = DataLoader.from_generator({"image": 0, "label": 1})
        >>> loader = loader.set_sample_list_generator(lambda: [[([0.5, 1.5], 3), ([2.5, 3.5], 4)]])
        >>> [(feed["image"].shape, feed["label"].tolist()) for feed in loader]
        [((2, 2), [3, 4])]

        Args:
            reader: Yields lists of samples, as `batch` does.
            places: The devices, as in `set_sample_generator`.

        Returns:
            This loader.
        """
        errors.check_reader("set_sample_list_generator(reader)", reader)
        rows = batching(reader).rows
        return self._set(Source(reader, "sample lists", places, batch_per_place=True, rows=rows))

    def set_batch_generator(self, reader: Reader[Any], places: Any = None) -> Self:
        """Set a reader of batches as the source: tuples, lists or dicts of stacked arrays.

        >>> import numpy as np
        >>> loader = DataLoader.from_generator()
        >>> loader = loader.set_batch_generator(lambda: [{"x": np.arange(3)}, {"x": np.arange(2)}])
        >>> [feed["x"].tolist() for feed in loader]
        [[0, 1, 2], [0, 1]]

        Args:
            reader: Yields batches of any size, each a tree of arrays with a row for each sample.
            places: The devices, as in `set_sample_generator`.

        Returns:
            This loader.
        """
        errors.check_reader("set_batch_generator(reader)", reader)
        return self._set(Source(reader, "arrays", places, batch_per_place=True))

    @overload
    def on_device(
        self, fn: Callable[[Feed], T], rng: None = None, *, seed: Any = 0
    ) -> DataLoader[T]: ...
    @overload
    def on_device(
        self, fn: Callable[[Feed, jax.Array], T], rng: Literal["batch", "sample"], *, seed: Any = 0
    ) -> DataLoader[T]: ...
    def on_device(
        self, fn: Callable[..., Any], rng: Randomness = None, *, seed: Any = 0
    ) -> DataLoader[Any]:
        """Return a loader that applies `fn` to every feed, jitted, on the devices.

        Use it to send small data, such as uint8 images, and convert them on the devices.

        >>> import numpy as np
        >>> from jreader import Pipeline, arrays
        >>> loader = Pipeline(arrays(x=np.arange(4, dtype=np.uint8))).batch(2).load()
        >>> scaled = loader.on_device(lambda feed: {"x": feed["x"] / 255})
        >>> [feed["x"].dtype.name for feed in scaled]
        ['float32', 'float32']

        Args:
            fn: Takes a feed, and returns any tree of arrays; jax must be able to trace it.
            rng: "batch" calls `fn(feed, key)`; "sample" calls `fn(feed, keys)`, with a key for each
                sample, made from the seed, the epoch and the number of the sample in it, never from
                devices. None calls `fn(feed)`.
            seed: For `rng`: an int, or a jax key.

        Raises:
            TypeError: `fn` cannot be called, or `seed` is neither an int nor a jax key.
            ValueError: `rng` has another value, or the feeds stay on the host.
        """
        stage = Stage(fn, rng, seed)
        if self._loading and self._loading.placement.hosts:
            raise ValueError(
                "on_device(fn) needs feeds on a device, and these, or some of their fields, stay "
                'on the host: load without sharding="host", or map them with map_batches(fn).'
            )
        before = self._options.stages
        return self._with(stages=Stages(*before.stages, stage, into=before.into))

    def chunk(self, k: int) -> Self:
        """Return a loader whose feeds hold `k` steps: [k, B, ...], as `lax.scan` takes them.

        With several places, or pmap, feeds are [D, k, n, ...]. If fewer than `k` steps are left at
        the end of an epoch, they are dropped or padded, as a short batch is.

        >>> import numpy as np
        >>> from jreader import Pipeline, arrays
        >>> loader = Pipeline(arrays(x=np.arange(8.0))).batch(2).load().chunk(2)
        >>> [feed["x"].tolist() for feed in loader]
        [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0], [6.0, 7.0]]]

        Args:
            k: Steps per feed, at least 1.

        Raises:
            ValueError: `k` is less than 1, or the loader is resident.
        """
        steps = errors.check_number("loader.chunk(k)", k, 1)
        if self._loading and self._loading.resident:
            raise ValueError(
                "chunk(k) is for streamed feeds, and this loader is resident: use jax.lax.scan "
                "with jreader.as_function(pipeline), or load without resident=True."
            )
        return self._with(chunk=steps)

    def _begin(self, options: Options, *, iterable: bool = True) -> None:
        if options.feed_list is not None:
            Feeds(options.feed_list)  # raises the error of a wrong one where the user wrote it
        self._options = replace(options, made_at=errors.place_of_caller())
        self._iterable = iterable
        self._given: dict[str, Any] = {
            "dataset": None,
            "feed_list": options.feed_list,
            "capacity": options.capacity,
            "return_list": options.return_list,
            "drop_last": options.remainder.drop_last,
            "peer_timeout": options.timeout,
            "places": None,
        }
        self._loading: Loading | None = None
        self._run = Run(options.tune)
        self._started: FeedIterator[Feed] | None = None
        self._removed: tuple[AskedRows, ...] = ()

    def _set(
        self,
        source: Source,
        *,
        resident: bool = False,
        workers: Any = None,
        share: str | None = None,
    ) -> Self:
        if workers is not None or share is not None:
            batch_workers = checked_workers(workers, source.batches, resident=resident, share=share)
            self._options = replace(self._options, workers=batch_workers)
        source = replace(source, places=where_written(source.places))
        loading = Loading.of(source, self._options)
        warn_of_plan(source.batches, shared=loading.placement.spans)
        if resident:
            loading.check()
            loading.remainder.check_kept(equal=True)
            fields, placement = self._options.feed_list, loading.here.placement
            batches, masked = loading.of_epoch().batches, loading.masked
            there = Resident(batches, fields, placement, axes=loading.axes, masked=masked)
            loading = replace(loading, resident=there)
        given = self._run.counters.given
        self._load(loading)
        self._run.counters.given = given
        if into := self._options.stages.into:
            check_takes(into, loading.names)
        self._given = {**self._given, "places": source.places}
        return self

    def _load(self, loading: Loading | None) -> None:
        """Set what is loaded; its first pass is the one that comes next in the run before."""
        self._loading, before = loading, self._run
        self._run = Run(self._options.tune, before.resumed, before.next_epoch)
        self._started = None

    @property
    def _loaded(self) -> Loading:
        """The loading of the source.

        Raises:
            RuntimeError: The loader has no source.
        """
        if self._loading is None:
            raise RuntimeError(
                "this loader has no source: call set_sample_generator(reader, batch_size), "
                "set_sample_list_generator(reader) or set_batch_generator(reader) first"
            )
        return self._loading

    def _with(self, loading: Loading | None = None, *removed: AskedRows, **changed: Any) -> Self:
        """Return a copy of this loader with other options or batches, and its own passes."""
        loader = object.__new__(type(self))
        vars(loader).update(vars(self))
        loader._options = replace(self._options, **changed)
        loader._removed = (*self._removed, *removed)
        old = loading or self._loading
        loader._load(old and Loading.of(old.source, loader._options, old.resident))
        return loader

    def __copy__(self) -> Self:
        """Return a loader of the same, with its own passes."""
        return self._with()

    def _fed(self) -> Fed:
        """Return what the linter needs of a loader."""
        loading = replace(self._loaded)  # its cached values hold only while nothing is written

        def first_on_host() -> Any:
            first = first_item(loading, self._next_cursor())
            return first[0] if loading.numbered else first

        return Fed(
            loading.source.batches,
            loading.axes,
            loading.remainder.warns_if_same,
            loading.remainder.last == "keep",
            first_on_host,
            lambda: shapes_of(loading, self._next_cursor()),
            shared=loading.placement.spans,
        )

    @property
    def next_epoch(self) -> int:
        """The number of the epoch that the next `iter(loader)` starts; you can set it.

        >>> from jreader import Pipeline, arrays
        >>> loader = Pipeline(arrays([0, 1, 2, 3])).batch(2).load()
        >>> loader.next_epoch, iter(loader).epoch, loader.next_epoch
        (0, 0, 1)
        """
        return self._run.next_epoch

    @next_epoch.setter
    def next_epoch(self, epoch: int) -> None:
        self._run.next_epoch = errors.check_number("loader.next_epoch", epoch)

    def __call__(self) -> FeedIterator[Feed]:
        """Start the next epoch, as `iter(loader)` does."""
        return iter(self)

    def __iter__(self) -> FeedIterator[Feed]:
        """Start the next epoch, as an independent pass."""
        if not self._iterable:
            raise TypeError(
                "this loader is not iterable (iterable=False): call start(), then next() until "
                "EOFException, then reset(); or make it with iterable=True"
            )
        return self._next_pass()

    def _next_pass(self) -> FeedIterator[Feed]:
        """Begin the next epoch, or the rest of a resumed one."""
        run = self._run
        resumed, run.resumed = run.resumed, None
        cursor = resumed or self._next_cursor()
        run.next_epoch = cursor["epoch"] + 1
        if resumed and resumed["plan"]["ops"]:
            self._loaded.check_plan(resumed)
        feeds = self._feeds(cursor)
        run.in_order = run.place
        return feeds

    def _feeds(
        self, cursor: Cursor, skip_steps: range | None = None, wanted: Wanted = EVERY
    ) -> FeedIterator[Feed]:
        loading = self._loaded
        return FeedIterator(loading, self._run, loading.skipping(cursor, skip_steps), wanted)

    def _next_cursor(self) -> Cursor:
        """Return the cursor of the next epoch; if epochs continue a stream, the last pass's."""
        run, remainder = self._run, self._loaded.remainder
        cursor = beginning(run.next_epoch)
        if run.in_order is None or not run.next_epoch:
            return cursor
        after = next_epoch(Place(*run.in_order[0]).cursor, continues=True)
        cursor["plan"] = after["plan"]  # keep changed weights
        if not remainder.continues:
            return cursor
        return {**cursor, "position": after["position"], "digest": after["digest"]}

    def _first(self, epoch: int, at: Mapping[str, object] | None, start: int) -> Cursor:
        """Return the cursor that a pass begins at."""
        if at is not None and start:
            raise ValueError(
                f"a pass begins at a cursor or at a step: give at=cursor or start={start}, not both"
            )
        return beginning(epoch) if at is None else self._loaded.checked(at)

    def epoch(
        self,
        epoch: int,
        at: Mapping[str, object] | None = None,
        *,
        start: int = 0,
        skip_steps: range | None = None,
    ) -> FeedIterator[Feed]:
        """Iterate one epoch: all of it, the rest after a cursor, or from a given step on.

        >>> from jreader import Pipeline, arrays
        >>> loader = Pipeline(arrays([0, 1, 2, 3, 4, 5])).shuffle(seed=1).batch(2).load()
        >>> [feed.tolist() for feed in loader.epoch(0)]
        [[4, 2], [5, 0], [1, 3]]
        >>> [feed.tolist() for feed in loader.epoch(7, start=1)]
        [[5, 3], [4, 2]]

        Args:
            epoch: The number of the epoch, from 0.
            at: A cursor of this epoch to resume.
            start: The first step, instead of a cursor. An indexed plan jumps there; otherwise all
                samples before it are read and dropped.
            skip_steps: Steps to skip, such as range(300, 310): their feeds do not go to the
                devices, `feeds.step` counts them, and cursors remember them.

        Raises:
            TypeError: `skip_steps` is not a range of steps.
            ValueError: The cursor is damaged, or of another epoch; or the epoch has fewer than
                `start` steps.
            NotResumable: The cursor comes from a different pipeline or release.
        """
        number = errors.check_number("loader.epoch(epoch)", epoch)
        begun = errors.check_number("start of loader.epoch(epoch)", start)
        cursor = self._first(number, at, begun)
        if cursor["epoch"] != number:
            raise ValueError(
                f"the cursor is of epoch {cursor['epoch']}, not {number}: use "
                f"loader.epoch({cursor['epoch']}, at=cursor), or loader.steps(at=cursor)"
            )
        return self._feeds(cursor, skip_steps, Wanted(begun))

    def steps(
        self,
        n: int | None = None,
        at: Mapping[str, object] | None = None,
        *,
        start: int = 0,
        skip_steps: range | None = None,
    ) -> FeedIterator[Feed]:
        """Iterate epoch after epoch, up to step `n` of the run.

        Steps are counted from the beginning of the run: with a cursor saved at step 300,
        `steps(1000, at=cursor)` gives the remaining 700. So does `steps(1000, start=300)`, if you
        saved only the number of the step.

        >>> from jreader import Pipeline, arrays
        >>> loader = Pipeline(arrays([0, 1, 2, 3])).batch(2).load()
        >>> feeds = loader.steps(5)
        >>> [next(feeds).tolist() for _ in range(3)]  # an epoch has two steps
        [[0, 1], [2, 3], [0, 1]]
        >>> [feed.tolist() for feed in loader.steps(5, at=feeds.cursor)]
        [[2, 3], [0, 1]]

        The first batches of an epoch are prefetched during the last steps of the previous one. If
        you change data between epochs, use `capacity=0`, or `for feed in loader`, which starts an
        epoch when you ask for it.

        Args:
            n: The number of steps of the run; None for no end.
            at: A cursor to resume from.
            start: The first step, instead of a cursor, as in `epoch`.
            skip_steps: Steps of the run to skip, as in `epoch`.

        Raises:
            TypeError: `skip_steps` is not a range of steps.
            ValueError: The cursor is damaged.
            NotResumable: The cursor comes from a different pipeline or release.
            ReaderError: An epoch has no feed (while iterating).
        """
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
        return self._feeds(cursor, skip_steps, Wanted(begun, until, endless=True))

    def for_keras(
        self, inputs: Any = 0, targets: Any = 1, sample_weight: Any = None, epoch: int | None = None
    ) -> Any:
        """Return the feeds as a `keras.utils.PyDataset` for `fit`, `evaluate` and `predict`.

        Each epoch of `fit` is the next epoch of the loader, whatever its `shuffle=` says, and with
        `steps_per_epoch` the next steps. After `load_state_dict`, the first one is the rest of that
        epoch. Keras must run on jax.

        >>> import keras
        >>> from jreader import Pipeline, arrays
        >>> rows = Pipeline(arrays(x=[[0.5], [1.5], [2.5]], y=[1.0, 3.0, 5.0])).shuffle(seed=0)
        >>> data = rows.batch(1).load().for_keras("x", "y")
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> history = model.fit(data, epochs=3, callbacks=[data.callback], verbose=0)
        >>> len(history.history["loss"]), data.step
        (3, 9)

        Keras does not get rows padded by `last="pad"` or removed by `without`: it would count them
        in its losses and metrics. So the last batch may be shorter. Where devices must split it
        evenly, give `sample_weight="mask"`, and your metrics as `weighted_metrics`, which are then
        exact; other metrics, and the loss, count padded rows.

        `data.callback` moves the data to the optimizer's position when a `fit` starts: to the step
        after those that it has counted, which `BackupAndRestore` stores with the weights, or to
        `initial_epoch` if it has counted none. Without it, a `fit` continues after the feeds that
        Keras has taken from `data`.

        Args:
            inputs: The name of the model's input field, its index where feeds are tuples, or a list
                or a dict of these.
            targets: The field of the targets; None for feeds without.
            sample_weight: The field of sample weights, "mask" for the mask of padded rows, or None.
            epoch: The epoch with which each `fit`, `evaluate` and `predict` starts, such as 0 for
                validation data. None continues with the next one.

        Raises:
            ModuleNotFoundError: Keras is not installed.
            RuntimeError: Keras runs on a backend other than jax.
            TypeError: The length of the loader is not known: load with `steps_per_epoch`.
            ValueError: An epoch has no feed; feeds have an axis of devices or steps; or the state
                given to `load_state_dict` comes from a run with steps of a different size.
        """
        from jreader.integrations.keras import keras_feeds  # noqa: PLC0415  # only with Keras

        at = self._run.resumed if epoch is None else None
        names = inputs, targets, sample_weight
        return keras_feeds(self, names, epoch, self._loaded, at and sealed(at))

    def samples(self, step: int, epoch: int | None = None) -> Samples:
        """Return which samples a past or future step of an indexed plan sees; reads nothing.

        Maps do not matter: the samples are the inputs of their functions.

        >>> import numpy as np
        >>> from jreader import Pipeline, arrays
        >>> loader = Pipeline(arrays(x=np.arange(6) * 10)).shuffle(seed=1).batch(2).load()
        >>> loader.samples(1), [feed["x"].tolist() for feed in loader.epoch(0)][1]
        (Samples(epoch=0, step=1, rows={'x': array([5, 0])}), [50, 0])

        Args:
            step: The number of the step: `feeds.step` before `next(feeds)` returns its feed.
            epoch: The epoch, whose steps count from 0. None for the epoch of the latest pass, with
                steps as that pass counts them.

        Raises:
            TypeError: The plan is not indexed.
            ValueError: The epoch has no such step; it is unseeded and not the running one; or the
                length of the data has changed since it started.
        """
        number = errors.check_number("loader.samples(step)", step)
        if epoch is not None:
            epoch = errors.check_number("epoch of loader.samples(step)", epoch)
        return samples_of(self._loaded, Place(*self._run.place[0]), number, epoch)

    def where(
        self,
        indices: Any,
        epochs: Iterable[int] | None = None,
        *,
        source: str | int | None = None,
        field: str | int | None = None,
        since: Cursor | None = None,
        until: Cursor | None = None,
    ) -> Occurrences:
        """Return the steps, and rows, of an indexed plan that hold some samples; reads nothing.

        It computes the inverse of `samples`, so it needs no log of batches. Samples are numbered as
        in their source, before the plan reorders, repeats or batches them; for windows and packs,
        they are the documents. Maps do not matter.

        >>> import numpy as np
        >>> from jreader import Pipeline, arrays
        >>> loader = Pipeline(arrays(x=np.arange(6) * 10)).shuffle(seed=1).batch(2).load()
        >>> for sample, epoch, step, row in loader.where(5, epochs=range(2)):
        ...     print(sample, epoch, step, row, loader.samples(step, epoch).rows["x"][row])
        5 0 1 0 5
        5 1 2 1 5

        Args:
            indices: The numbers of samples: an int, a list or an array; or a `Where`, or a list of
                these, as `loader.samples(step).files` has them.
            epochs: The epochs to search, such as `range(3)`. None for all up to that of `until`, or
                else of the latest pass.
            source: The source whose samples are numbered, where the plan has several: the name or
                number of a reader of `mix`, `chain` or `interleave`, or the path of a file. None
                numbers through all of them, in order.
            field: The field whose source is meant, where a `compose` has several; None for the
                first.
            since: A cursor: steps before it do not count.
            until: A cursor: steps after it do not count.

        Raises:
            TypeError: The plan is not indexed, or the indices or epochs are not ints.
            IndexError: There is no sample of that number.
            ValueError: There is no such source, field or file; an epoch is unseeded and not the
                running one; or it is endless, and `until` is not given.
            NotResumable: A cursor is of another plan.
        """
        cursors = [each and self._loaded.checked(each) for each in (since, until)]
        return occurrences_of(
            self._loaded,
            Place(*self._run.place[0]),
            AskedRows(indices, source, field),
            Epochs(checked_epochs(epochs), *cursors),
        )

    def without(
        self, indices: Any, *, source: str | int | None = None, field: str | int | None = None
    ) -> Self:
        """Return a loader of the same run without some samples: a mask hides their rows.

        Every feed carries a `mask`, as with `last="pad"`. Rows of removed samples are zeros, and
        the mask is False there; rows of `pack` stay, with segment id 0 and padding in place of
        removed documents. Nothing else moves: a step without removed samples is unchanged. Removed
        samples are not read, and no function gets them.

        >>> import numpy as np
        >>> from jreader import Pipeline, arrays
        >>> loader = Pipeline(arrays(x=np.arange(6) * 10)).shuffle(seed=1).batch(2).load()
        >>> for feed in loader.without([5]):
        ...     print(feed["x"].tolist(), feed["mask"].tolist())
        [40, 20] [True, True]
        [0, 0] [False, True]
        [10, 30] [True, True]

        It resumes cursors of the original run. Its own cursors name the removed samples, and you
        get a warning if you resume one with other samples removed.

        Args:
            indices: The samples, as in `where`. In packed rows, padding takes the place of removed
                documents; windows that hold a part of one are hidden whole.
            source: The source whose samples are numbered, as in `where`.
            field: The field whose source is meant, as in `where`.

        Raises:
            TypeError: Samples are not found by their index, batches come from buckets, the loader
                is resident, or the indices are not ints.
            IndexError: There is no sample of that number.
            ValueError: There is no such source, field or file.
        """
        asked = AskedRows(indices, source, field, "loader.without(indices)")
        return self._with(loading_without(self._loaded, asked), asked)

    def affected(
        self, epochs: Iterable[int] | None = None, *, until: Cursor | None = None
    ) -> list[tuple[int, int]]:
        """Return which steps differ from those of the run with all samples; reads nothing.

        >>> import numpy as np
        >>> from jreader import Pipeline, arrays
        >>> loader = Pipeline(arrays(x=np.arange(6) * 10)).shuffle(seed=1).batch(2).load()
        >>> loader.affected(range(2)), loader.without([5]).affected(range(2))
        ([], [(0, 1), (1, 2)])

        Args:
            epochs: The epochs to search, as in `where`.
            until: A cursor, as in `where`.

        Returns:
            The (epoch, step) of each, in the order of the run; steps count from 0 in each epoch.

        Raises:
            ValueError: An epoch is unseeded and not the running one; or it is endless, and `until`
                is not given.
        """
        wanted, steps = checked_epochs(epochs), set[tuple[int, int]]()
        for each in self._removed:
            where: Any = {"source": each.source, "field": each.field, "until": until}
            steps |= {found[1:3] for found in self.where(each.indices, wanted, **where)}
        return sorted(steps)

    def state_dict(self) -> dict[str, Any]:
        """Return the cursor of the latest pass, a dict that JSON and orbax can store.

        >>> import json
        >>> from jreader import Pipeline, arrays
        >>> loader = Pipeline(arrays([0, 1, 2, 3, 4, 5])).batch(2).load()
        >>> first = next(iter(loader))
        >>> saved = json.dumps(loader.state_dict())
        >>> loader.load_state_dict(json.loads(saved))
        >>> [feed.tolist() for feed in loader]  # the rest of that epoch
        [[2, 3], [4, 5]]

        Raises:
            NotResumable: The pass has no position that can be stored.
        """
        cursor = Place(*self._run.place[0]).cursor
        if not cursor["plan"]["ops"] and self._loading:  # no pass has begun: use the present plan
            cursor = {**cursor, "plan": self._loading.plan()}
        return dict(sealed(cursor))

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Resume from a cursor, as `state_dict` returns it, with the next `iter(loader)`.

        >>> from jreader import Pipeline, arrays
        >>> rows = Pipeline(arrays([0, 1, 2, 3])).shuffle(seed=1).batch(2)
        >>> feeds = iter(rows.load())
        >>> first = next(feeds)
        >>> other = rows.load()  # in another process, say
        >>> other.load_state_dict(feeds.cursor)
        >>> [feed.tolist() for feed in other] == [feed.tolist() for feed in feeds]
        True

        Raises:
            ValueError: The cursor is damaged.
            NotResumable: The cursor comes from a different pipeline or release.
        """
        loading, run = self._loading, self._run
        cursor = loading.checked(state) if loading else checked(state)
        if loading:  # with the present plan, so that a change warns only once
            cursor = loading.skipping(with_plan(cursor, loading.plan(cursor)))
        run.resumed, run.place, run.next_epoch = cursor, [Place.of(cursor)], cursor["epoch"]

    def peek(self) -> Feed:
        """Return the first feed of the next epoch without starting it; no pass moves.

        >>> from jreader import Pipeline, arrays
        >>> loader = Pipeline(arrays([0, 1, 2, 3])).batch(2).load()
        >>> loader.peek().tolist(), loader.next_epoch
        ([0, 1], 0)

        Raises:
            ValueError: The epoch has no full batch.
        """
        loading = self._loaded
        feed: Feed = finisher(loading.here)(first_item(loading, self._next_cursor()))
        return feed

    @property
    def element_spec(self) -> Any:
        """The shapes, dtypes and shardings of a feed: a tree of `jax.ShapeDtypeStruct`.

        >>> from jreader import Pipeline, arrays
        >>> Pipeline(arrays(x=[0.5, 1.5, 2.5])).batch(2).load().element_spec["x"]
        ShapeDtypeStruct(shape=(2,), dtype=float32)
        """
        with without_writing():
            loading = replace(self._loaded)
            spec = spec_of(loading, first_item(loading, self._next_cursor()))
        return loading.options.stages.as_instance(spec)

    def shapes(self) -> list[Any]:
        """Return the distinct shapes, dtypes and shardings of the feeds of the next epoch.

        >>> import numpy as np
        >>> from jreader import Pipeline, ragged
        >>> documents = Pipeline(ragged(np.arange(9), [0, 1, 3, 7, 9]))
        >>> loader = documents.bucket([2, 4], tokens=4, seed=0).load()
        >>> [feed["tokens"].shape for feed in loader.shapes()]
        [(2, 2), (1, 4)]

        Buckets have the same shapes in every epoch. Where lengths are known, it reads no sample.
        Otherwise it reads the first one, which shows the dtypes, and lists all shapes that may
        occur.

        Returns:
            A list of trees of `jax.ShapeDtypeStruct`, one per shape, each like `element_spec`.

        Raises:
            TypeError: Batches are padded to their longest row, and lengths are not known.
            ValueError: The source gives no batch.
        """
        return shapes_of(self._loaded, self._next_cursor())

    def stats(self) -> Stats:
        """Return the time of each stage for the last feeds, and how full the queues were.

        Counting is always on; one in eight fast feeds is timed, and later one in 32. The counters
        cover the last 256 feeds, of the latest pass and those before it.

        >>> import numpy as np
        >>> from jreader import Pipeline, arrays
        >>> loader = Pipeline(arrays(x=np.arange(64.0))).batch(8).load()
        >>> for feed in loader:
        ...     pass
        >>> stats = loader.stats()
        >>> [stage.name for stage in stats.stages], len(stats.waits_ns)
        (['read', 'collate', 'transfer', 'step'], 7)
        >>> 0 < stats.waiting < 1, all(stage.items for stage in stats.stages)
        (True, True)
        """
        loading = self._loading
        return stats_of(
            self._run.counters,
            on_device=bool(self._options.stages.stages) or bool(loading and loading.resident),
            capacity=self.tuned.capacity if self.tuned else self._options.capacity,
            equal=not (loading and loading.source.batching.sizes),
        )

    @property
    def tuned(self) -> Tuned | None:
        """The number of threads and the capacity that `tune=True` has found; None without it.

        >>> from jreader import Pipeline, arrays
        >>> plan = Pipeline(arrays([1.0, 2.0, 3.0, 4.0])).map(abs, threads=2).batch(2)
        >>> loader = plan.load(tune=True)
        >>> for feed in loader:  # too few feeds to see a gain
        ...     pass
        >>> loader.tuned.capacity, [(each.function, each.threads) for each in loader.tuned.maps]
        (2, [('abs', 2)])

        Printed, it shows the arguments that give the same without `tune`.
        """
        tuner = self._run.tuner
        return tuner.tuned(self._options.capacity) if tuner else None

    def warm(self, step: Callable[..., Any], *state: Any) -> None:
        """Compile a jitted `step(*state, feed)` for all `shapes()`, while the first feed is read.

        >>> import jax, numpy as np
        >>> from jreader import Pipeline, ragged
        >>> documents = Pipeline(ragged(np.arange(7), [0, 2, 3, 7]))
        >>> loader = documents.bucket([2, 4], tokens=4, seed=0).load()
        >>> step = jax.jit(lambda total, feed: total + feed["tokens"].sum())
        >>> total = jax.numpy.zeros((), int)
        >>> loader.warm(step, total)
        >>> for feed in loader:  # compiles nothing
        ...     total = step(total, feed)
        >>> int(total), step._cache_size()
        (21, 2)

        The step is traced here, so its errors are raised here, and compiled on threads. The next
        pass returns its first feed once everything is compiled. The step is never run: the state
        does not change, even if the step donates it.

        Args:
            step: What `jax.jit` returned.
            *state: The other arguments of the step, before the feed, as in your loop. On several
                devices, place them first, as `loader.replicate(state)` does; otherwise the second
                step compiles again, for the state that the first one returned.

        Raises:
            TypeError: The step is not jitted, or the shapes are not known.
            ValueError: The source gives no batch.
        """
        self._run.warming.append(Warming(step, state, self.shapes()))

    def replicate(self, tree: T, axis_name: str = "data") -> T:
        """Copy a tree of arrays, such as parameters, to all devices of the feeds.

        A step called with these parameters and the feeds compiles only once.

        >>> import jax
        >>> from jreader import Pipeline, arrays
        >>> devices = jax.sharding.Mesh(jax.devices(), ("data",))
        >>> rows = Pipeline(arrays(x=[0.0] * len(jax.devices()))).batch(len(jax.devices()))
        >>> weights = rows.load(sharding=devices).replicate({"w": [1.0]})
        >>> weights["w"][0].sharding.is_fully_replicated
        True

        Args:
            tree: The arrays.
            axis_name: The `axis_name` of your pmap, which needs `in_axes=(None, 0)` and
                `out_axes=None`. If it is another name, the second step is compiled again.
        """
        copies: T = self._loaded.here.placement.replicated(tree, axis_name)
        return copies

    @property
    def batch_axes(self) -> int:
        """The number of leading axes before the sample's; more than 1 with pmap or chunks.

        >>> from jreader import Pipeline, arrays
        >>> loader = Pipeline(arrays([0, 1, 2, 3])).batch(2).load()
        >>> loader.batch_axes, loader.chunk(2).batch_axes
        (1, 2)
        """
        return self._loaded.axes

    def _repr_html_(self) -> str:
        """Return a table of the plan, the fields and their devices, for a notebook."""
        return table(self._drawn())

    def _drawn(self) -> list[Line]:
        """Return the lines of that table."""
        return picture(self._loading, self._options.capacity)

    def __repr__(self) -> str:
        """Show the reader of the batches, and the capacity."""
        loading = self._loading
        reads = repr(loading.source.batches) if loading else "no source"
        return f"{type(self).__name__}({reads}, capacity={self._options.capacity})"

    def __bool__(self) -> bool:
        """Always true, even if the length is 0 or unknown."""
        return True

    def __len__(self) -> int:
        """Return the number of feeds per epoch.

        Raises:
            TypeError: It is unknown before the source is read.
        """
        known = self._loaded.count()
        if known is None:
            raise TypeError(
                f"the length of {self!r} is not known before it is read: its reader has none. "
                "Readers such as jreader.arrays(...), and data sets with indices, have a length; "
                "an IterableDataset has none. Use one with a length, or give steps_per_epoch."
            )
        return known

    if not TYPE_CHECKING:  # otherwise type checkers accept any name

        def __getattr__(self, name: str) -> Any:
            """Raise an error that says where ops, a cursor or a step belong."""
            if hasattr(type(self), name):  # a property that raised: show its own error
                object.__getattribute__(self, name)
            raise AttributeError(
                hints.missing_attribute(type(self), name, "loader"), name=name, obj=self
            )

    def __enter__(self) -> Self:
        """Return the loader; the end of the block closes its passes."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the passes that are still open."""
        self._run.close()
        self._started = None

    def start(self) -> None:
        """Start the next epoch of a loader with `iterable=False`.

        >>> from jreader import EOFException
        >>> loader = DataLoader.from_generator(iterable=False)
        >>> loader = loader.set_sample_generator(lambda: range(4), batch_size=2)
        >>> loader.start()
        >>> loader.next().tolist(), loader.next().tolist()
        ([0, 1], [2, 3])
        >>> try:
        ...     loader.next()
        ... except EOFException:
        ...     loader.reset()

        Raises:
            RuntimeError: An epoch is under way.
            TypeError: The loader is iterable.
        """
        self._not_iterable("start")
        if self._started:
            raise RuntimeError("this loader was started already: call reset() before start()")
        self._started = self._next_pass()

    def next(self) -> Feed:
        """Return the next feed of a loader with `iterable=False`.

        Raises:
            EOFException: The epoch has ended: `reset()`, then `start()` the next one.
            RuntimeError: No epoch is under way.
            TypeError: The loader is iterable.
        """
        self._not_iterable("next")
        if not self._started:
            raise RuntimeError("this loader was not started: call start() before next()")
        try:
            return next(self._started)
        except StopIteration:
            over = "there is no next feed: reset() the loader, then start() it"
            raise errors.EOFException(over) from None

    def reset(self) -> None:
        """End the running epoch of a loader with `iterable=False`.

        Raises:
            RuntimeError: No epoch is under way.
            TypeError: The loader is iterable.
        """
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
