"""`DataLoader`: the doors, and what every feed goes through on its way."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from jreader import errors
from jreader.batches import batch, declared
from jreader.datasets.batch_samplers import BatchSampler
from jreader.feeds import FeedList
from jreader.feeds.collations import Collation
from jreader.loaders.arguments import CAPACITY, Given, ahead, check_order, names_given
from jreader.loaders.cursors import beginning
from jreader.loaders.feeding import Feeding
from jreader.loaders.iterators import Place
from jreader.loaders.map_style import in_processes, indices, sampler_of
from jreader.loaders.multihost.agreement import TIMEOUT
from jreader.loaders.on_device import Randomness, Stage, Stages
from jreader.loaders.remainders import Ends, Last
from jreader.loaders.resident import Resident
from jreader.loaders.sources import Kept, Source, foresee
from jreader.readers import Reader


class DataLoader(Feeding):
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

    What it was given can be read, by the names of the arguments: `loader.batch_size`. To write it
    is an error, since passes that are under way would not notice.
    """

    dataset, batch_size, shuffle, drop_last = Given(), Given(), Given(), Given()
    sampler, batch_sampler, collate_fn, seed = Given(), Given(), Given(), Given()
    num_workers, timeout, worker_init_fn = Given(), Given(), Given()
    persistent_workers, prefetch_factor, capacity = Given(), Given(), Given()
    places, feed_list, return_list, last = Given(), Given(), Given(), Given()

    def __init__(
        self,
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
        **elsewhere: Any,
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
            drop_last: Whether a short last batch is left out. Otherwise one place gets it as it is.
                Several places need equal parts: what makes none is left out with a warning, with
                True without one, and with False padded, where every feed carries a `mask`.
            batch_sampler: Lists of indices instead of the four arguments before: a `BatchSampler`,
                a list, what can be iterated in every epoch.
            collate_fn: Takes the list of samples of a batch and gives a feed, whose arrays go to
                the devices; None for `jreader.datasets.collate`. Without batches, takes a sample.
            num_workers: How many processes fetch and collate, in order; 0 for none: the loader's
                threads do. They run neither the main script nor jax, and what is large comes back
                through shared memory. An `IterableDataset` is read by one process. The stream is
                the same for any number.
            timeout: Seconds that a batch may be waited for; 0 for any.
            worker_init_fn: Called in each process with its number, from 0, before its first batch;
                `jreader.get_worker_info()` has the data set.
            persistent_workers: Whether processes keep their copy of the data set from epoch to
                epoch. Otherwise it is sent again where it has changed. They live as long as the
                loader either way.
            places: As in `set_sample_generator`.
            feed_list: The fields, as in `from_generator`; None for feeds with the tree of the
                samples: arrays on the device, strings on the host.
            return_list: Whether tuples become lists, and with a feed_list, dicts too.
            seed: An int, or a jax key, fixes what `shuffle` deals; None draws for each pass. In
                processes, NumPy's and Python's global generators follow it, batch by batch, unless
                `worker_init_fn` seeds them.
            last: As in `from_generator`.
            sampler: Indices instead of `shuffle`: a sampler, a list, what can be iterated in every
                epoch.
            prefetch_factor: How many batches are asked of each process ahead; None for 2, and more
                where they take little time.
            capacity: How many feeds are on the devices before they are asked for; 0 for none. In
                Paddle's words, `reader_buffer_size`, and 0 for `use_buffer_reader=False`.
            **elsewhere: Other arguments of torch and Paddle, with the values that mean nothing
                here (`pin_memory=False`); with others they are refused, with the reason.
        """
        given = {name: value for name, value in locals().items() if name in names_given(DataLoader)}
        check_order(batch_size, shuffle, drop_last)
        capacity = ahead(capacity, elsewhere, [*given])
        shuffle = False if shuffle is None else shuffle  # as torch has it
        said = drop_last
        if last is None and said is None and getattr(batch_sampler, "drop_last", False):
            said = True
        self._configure(feed_list, capacity, ends=Ends.checked(said, last))
        batched = batch_size is not None or batch_sampler is not None
        fetch = Collation(dataset, batched, collate_fn, feed_list, return_list)
        drops = bool(drop_last)
        asked = indices(
            dataset, batch_size, shuffle, drops, sampler, batch_sampler, seed, num_workers
        )
        batches = in_processes(
            fetch,
            asked,
            num_workers,
            timeout,
            worker_init_fn,
            persistent_workers,
            prefetch_factor,
            seed,
        )
        rows = batch_size if collate_fn is None and batch_sampler is None else None
        self._set(Source(batches, "collated", places, beside=True, rows=rows))
        made = {
            "batch_size": None if batch_sampler is not None else batch_size,
            "shuffle": shuffle,
            "drop_last": drops,
            "sampler": sampler_of(asked, dataset) if sampler is None else sampler,
            "batch_sampler": asked if isinstance(asked, BatchSampler) else batch_sampler,
            "capacity": capacity,
        }
        self._given |= {**given, **made}

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
        timeout: float = TIMEOUT,
    ) -> DataLoader:
        """A loader without a source: give it one with `set_sample_generator` or its siblings.

        Args:
            feed_list: The fields, as `data`; a mapping from names to places; None for feeds with
                the tree of the samples.
            capacity: How many feeds are on the devices before they are asked for; 0 for none.
            use_double_buffer: False prepares them on the host ahead, and places them when asked.
            iterable: False for `start()`, `next()`, `reset()` and `EOFException`.
            return_list: Whether a feed is a list in the order of the feed_list, not a dict.
            use_multiprocess: Paddle's, in its place; only False. Here the reader says who reads:
                `multiprocess_reader([reader])`, or `map(fn, processes=2)`.
            drop_last: Whether several places leave out groups of batches that lack some, or have
                unequal ones. Otherwise these are padded with zeros, and every feed carries a `mask`
                (bool; last in a list). Where nothing is said, they are left out with a warning. One
                place gets every batch as it comes.
            last: What becomes of short batches, for steps of one size, also on one place: "drop",
                "pad", "error"; or "wrap", which fills up with the first samples of the epoch, in
                their order.
            steps_per_epoch: How many feeds an epoch has, where the source does not say. What is
                behind them is left out; where there are fewer, that is an error, or with
                `last="wrap"` begun again. A stream that may have no end goes on where it was:
                `firstn(reader, n)` begins it anew in each epoch.
            timeout: Seconds that other processes of `jax.distributed` are waited for, where each
                reads a stream; 0 for any.

        Raises:
            TypeError: `feed_list` or `capacity` are of the wrong kind.
            ValueError: A name is there twice, `capacity` is negative, `last` no such end, or
                `use_multiprocess` True.
        """
        if errors.check_flag("use_multiprocess of from_generator", use_multiprocess):
            raise ValueError(
                "from_generator(use_multiprocess=True) would read in a process, as the reader says "
                "here: leave it out, and give multiprocess_reader([reader]), or map(fn, "
                "processes=2) what takes long. (The sixth argument is Paddle's use_multiprocess; "
                "drop_last is given by its name.)"
            )
        ends = Ends.checked(drop_last, last, steps_per_epoch)
        loader = object.__new__(cls)
        loader._configure(
            feed_list, capacity, use_double_buffer, iterable, return_list, ends, timeout
        )
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
        drop_last: bool | None = None,
        last: Last | None = None,
        steps_per_epoch: int | None = None,
        timeout: float = TIMEOUT,
        resident: bool = False,
    ) -> DataLoader:
        """A loader whose batches are each split over the devices: what `Pipeline.load` gives."""
        loader = cls.from_generator(
            feed_list,
            capacity,
            drop_last=drop_last,
            last=last,
            steps_per_epoch=steps_per_epoch,
            timeout=timeout,
        )
        rows = declared(batches, "all", "some")
        source = Source(
            batches, "sample lists", sharding, beside=False, pmap=pmap, rows=rows, resident=resident
        )
        loader._set(source)  # noqa: SLF001  # its own class
        if resident:
            source, grouping = loader._grouping()  # noqa: SLF001  # likewise
            foresee(source, grouping)
            loader._resident = Resident(source, feed_list, grouping)  # noqa: SLF001  # likewise
        return loader

    def set_sample_generator(
        self, reader: Reader[Any], batch_size: int, drop_last: bool = True, places: Any = None
    ) -> DataLoader:
        """Feeds from a reader of samples, `batch_size` of them for each place.

        Args:
            reader: Yields samples: tuples or lists of fields by place, dicts by name.
            batch_size: Samples of a batch; with D places a feed has D batches.
            drop_last: Whether a last batch with fewer samples is left out already here, unless
                `from_generator` was told `last`, which rules.
            places: None (the default device, [B, ...]); a device; a list of D devices ([D, B, ...],
                as pmap takes it); a Sharding (the global array).
        """
        drops = errors.check_flag("drop_last of set_sample_generator", drop_last)
        keeps = self._ends.last in ("pad", "wrap", "error")
        batches = batch(reader, batch_size, None if keeps else drops)
        return self._set(Source(batches, "samples", places, beside=True, rows=batches.batch_size))

    def set_sample_list_generator(self, reader: Reader[Any], places: Any = None) -> DataLoader:
        """Feeds from a reader of batches: lists of samples, each sample a tuple or a dict."""
        errors.check_reader("set_sample_list_generator(reader)", reader)
        rows = declared(reader, "all", "some")
        return self._set(Source(reader, "sample lists", places, beside=True, rows=rows))

    def set_batch_generator(self, reader: Reader[Any], places: Any = None) -> DataLoader:
        """Feeds from a reader of batches that are arrays already: a tuple, list or dict of them."""
        errors.check_reader("set_batch_generator(reader)", reader)
        return self._set(Source(reader, "arrays", places, beside=True))

    def on_device(
        self, fn: Callable[..., Any], rng: Randomness = None, *, seed: Any = 0
    ) -> DataLoader:
        """The same loader, with `fn` of every feed, jitted once, run where the feed is.

        What takes less room goes to the device (bytes), and becomes what the step wants there.

        >>> import numpy as np
        >>> from jreader import Pipeline, arrays
        >>> loader = Pipeline(arrays(x=np.arange(4, dtype=np.uint8))).batch(2).load()
        >>> scaled = loader.on_device(lambda feed: {"x": feed["x"] / 255})
        >>> [feed["x"].dtype.name for feed in scaled]
        ['float32', 'float32']

        Args:
            fn: Takes a feed, gives any tree of arrays; jax has to be able to trace it.
            rng: "batch" for `fn(feed, key)`; "sample" for `fn(feed, keys)`, a key for each sample,
                which depends on the seed, the epoch and the sample's number in it, not on devices.
            seed: An int, or a jax key.

        Raises:
            ValueError: `rng` is something else, or feeds stay on the host.
        """
        stage = Stage(fn, rng, seed)
        if self._source and self._grouping()[1].placement.target == "host":
            raise ValueError(
                "on_device(fn) needs feeds on a device, and these stay on the host: load without "
                'sharding="host", or map them with map_batches(fn).'
            )
        return self._with(_stages=Stages(*self._stages.stages, stage))

    def chunk(self, k: int) -> DataLoader:
        """The same loader, with `k` steps in each feed: [k, B, ...], as `lax.scan` takes them.

        With several places, or pmap, feeds are [D, k, n, ...]. Where an epoch ends with fewer
        steps, they are left out, or padded under the mask, as short batches are.

        >>> import numpy as np
        >>> from jreader import Pipeline, arrays
        >>> loader = Pipeline(arrays(x=np.arange(9.0))).batch(2).load().chunk(2)
        >>> [feed["x"].tolist() for feed in loader]
        [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0], [6.0, 7.0]]]
        """
        steps = errors.check_number("loader.chunk(k)", k, 1)
        if self._resident:
            raise ValueError(
                "chunk(k) is for streamed feeds, and this loader is resident: scan over "
                "jreader.as_function(pipeline), or load without resident=True."
            )
        return self._with(_chunk=steps)

    def _with(self, **changed: Any) -> DataLoader:
        """A copy with passes of its own."""
        loader = copy.copy(self)
        anew = {"_passes": WeakSet(), "_place": Place(beginning(0)), "_stream": Kept()}
        vars(loader).update(anew, _known=None, _going=None, _started=None, **changed)
        return loader
