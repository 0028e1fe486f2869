"""`Pipeline`: every op as a method, so that a plan is read from left to right."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    SupportsIndex,
    TypeVar,
    overload,
)

import numpy as np

from jreader import batches, hints, readers, sinks, transforms, workers
from jreader.batches import gives_batches
from jreader.pipelines.indexing import found, sliced
from jreader.pipelines.lengths import WithLengths
from jreader.readers import Node, Reader, described

if TYPE_CHECKING:
    from jreader.feeds import FeedList
    from jreader.loaders import DataLoader
    from jreader.loaders.remainders import Last
    from jreader.transforms.mixture_schedules import Stop

T = TypeVar("T")
S = TypeVar("S")
P = ParamSpec("P")


@readers.op
class Pipeline(WithLengths[T]):
    """A reader with every op as a method, read from left to right.

    It never changes: each method gives a new one. It is a reader itself, so both spellings mix, and
    it can be iterated.

    >>> words = Pipeline(lambda: ["a", "bb", "ccc"])
    >>> list(words.map(len).filter(lambda n: n > 1).batch(2))
    [[2, 3]]
    >>> print(words.map(len).batch(2))
    Pipeline(<lambda>).map(len).batch(batch_size=2)

    Args:
        reader: Any reader.
    """

    @overload
    def map(
        self,
        fn: Callable[[T, np.random.Generator], S],
        *,
        threads: int = 0,
        processes: int = 0,
        executor: Executor | None = None,
        concurrency: int = 0,
        window: int | None = None,
        timeout: float = 0,
        rng: Literal[True],
        seed: Any = None,
        on_error: Literal["raise", "skip"] = "raise",
        max_errors: int = 100,
    ) -> Pipeline[S]: ...
    @overload
    def map(
        self,
        fn: Callable[[T], S],
        *,
        threads: int = 0,
        processes: int = 0,
        executor: Executor | None = None,
        concurrency: int = 0,
        window: int | None = None,
        timeout: float = 0,
        rng: Literal[False] = False,
        seed: None = None,
        on_error: Literal["raise", "skip"] = "raise",
        max_errors: int = 100,
    ) -> Pipeline[S]: ...
    def map(
        self,
        fn: Callable[..., S],
        *,
        threads: int = 0,
        processes: int = 0,
        executor: Executor | None = None,
        concurrency: int = 0,
        window: int | None = None,
        timeout: float = 0,
        rng: bool = False,
        seed: Any = None,
        on_error: Literal["raise", "skip"] = "raise",
        max_errors: int = 100,
    ) -> Pipeline[S]:
        """`fn` of each sample, in order: on this thread, other threads, processes or a cluster.

        The samples are the same whoever does the work, and so are positions. Threads suit NumPy,
        file and network calls; pure Python code needs processes. `help(jreader.map_samples)` says
        more.

        >>> list(Pipeline(lambda: "abc").map(str.upper, threads=2))
        ['A', 'B', 'C']
        >>> noisy = Pipeline(lambda: [0, 1]).map(lambda n, rng: n + rng.random(), rng=True, seed=7)
        >>> list(noisy) == list(noisy)
        True

        Args:
            fn: Takes a sample, and returns one. Several threads or processes call it at once.
            threads: The number of threads; 0 calls `fn` on the thread that iterates.
            processes: The number of worker processes, instead of threads; the next pass uses the
                same ones.
            executor: An executor of `concurrent.futures`, instead of threads.
            concurrency: How many tasks the executor runs at a time; 0 asks the executor.
            window: How many samples may be ahead of the consumer, in work or waiting. None for 8
                per thread or process, and up to 4096 if samples take next to no time, but at most
                32 MiB of samples and results for each, or 2 samples if they are larger.
            timeout: The seconds to wait for a sample; 0 for no limit.
            rng: Whether to call `fn(sample, rng)`, where `rng` is a `numpy.random.Generator` for
                that sample alone, made from seed, epoch and the sample's number.
            seed: For `rng`: an int, or a jax key; `at_epoch` and `epochs` vary it. None draws anew
                for each pass, which can be resumed all the same.
            on_error: "raise" ends the pass with the error of `fn`. "skip" leaves out samples for
                which `fn` raises, and warns of them when the pass ends.
            max_errors: How many samples "skip" may leave out of a pass: without a limit, a mistake
                in `fn` would be an empty epoch. A resumed pass counts from 0 again.

        Raises:
            TypeError: These are batches: `map_batches` maps them.
            WorkerDied: A sample lost its worker several times (while iterating).
            TimeoutError: A sample took longer than `timeout` (while iterating).
        """
        if gives_batches(self):
            raise TypeError(
                f"{self!r}.map(...) would map whole batches: use .map_batches(fn), where fn takes "
                f"and gives stacked columns, or .map(fn) before .batch(...)."
            )
        op = workers.map_samples(
            fn,
            self,
            threads=threads,
            processes=processes,
            executor=executor,
            concurrency=concurrency,
            window=window,
            timeout=timeout,
            rng=rng,
            seed=seed,
            on_error=on_error,
            max_errors=max_errors,
        )
        engaged = op.threads or op.processes or op.executor is not None or op.timeout
        if engaged or op.rng or op.on_error == "skip":
            return Pipeline(op)
        return Pipeline(transforms.map_readers(fn, self))  # the same, and the least that a map is

    def filter(self, fn: Callable[[T], object]) -> Pipeline[T]:
        """The samples for which `fn` is true.

        >>> list(Pipeline(lambda: range(6)).filter(lambda n: n % 2))
        [1, 3, 5]

        Args:
            fn: Takes a sample, and returns whether to keep it.
        """
        return Pipeline(transforms.filter(fn, self))

    def flat_map(self, fn: Callable[[T], Iterable[S] | Node[S]]) -> Pipeline[S]:
        """The samples of each iterable that `fn` returns, for all samples.

        >>> list(Pipeline(lambda: ["one two", "", "three"]).flat_map(str.split))
        ['one', 'two', 'three']

        Args:
            fn: Takes a sample, and returns an iterable of samples, or a reader. For equal samples
                it has to return equal ones, or a pass cannot be resumed inside them. If it returns
                a plan with a shuffle, each epoch shuffles that anew.
        """
        return Pipeline(transforms.flat_map(fn, self))

    def read(self, fn: Callable[[T], Iterable[S] | Node[S]], lanes: int = 1) -> Pipeline[S]:
        """The samples that `fn` yields for each file of the pipeline; files are dealt to `lanes`.

        Lanes are read side by side, and what follows runs inside each lane, up to `batch(B)`, which
        takes B / lanes rows of each. A process reads only the lanes whose rows it feeds.
        `help(jreader.read)` says more.

        >>> def words(line):
        ...     yield from line.split()
        >>> lines = Pipeline(lambda: ["a b c d", "e f g h", "i j", "k l"])
        >>> list(lines.read(words, lanes=2).map(str.upper).batch(4))
        [['A', 'B', 'E', 'F'], ['C', 'D', 'G', 'H'], ['I', 'J', 'K', 'L']]

        Args:
            fn: Takes a file (a sample of the pipeline), and yields its samples, as a generator
                function does, or returns a reader of them, as `jsonl` does. For equal files it has
                to yield equal samples, or a pass cannot be resumed inside one.
            lanes: How many lanes there are: a multiple of the number of processes that will ever
                share the work.

        Raises:
            ValueError: There are fewer files than lanes.
        """
        return Pipeline(transforms.read(fn, self, lanes))

    def shuffle(
        self, buf_size: int | None = None, seed: Any = None, blocks: int | None = None
    ) -> Pipeline[T]:
        """The samples in random order, within windows of `buf_size` samples.

        In an indexed pipeline only indices are shuffled, so a window of any size costs no memory.
        Of a stream, a window is read whole and handed over before the next one is read. Of files
        that are read in blocks, `blocks=64` deals 64 blocks at a time, and reads each once.

        >>> list(Pipeline(lambda: "abcdef").shuffle(3, seed=7))
        ['a', 'c', 'b', 'e', 'd', 'f']

        Args:
            buf_size: Samples per window; None for the whole reader, whose length must be known. 0
                and 1 keep the order, as in Paddle, and warn.
            seed: An int, or a jax key, fixes the order; `at_epoch` and `epochs` vary it. None draws
                anew for each pass, which can be resumed all the same.
            blocks: How many blocks to mix at a time, of files that are read in blocks.

        Raises:
            ValueError: `buf_size` is negative, or None although the length is unknown; or `blocks`
                is given with it, or for samples that do not lie in blocks.
            TypeError: `buf_size` is not a whole number, or `seed` is neither an int nor a jax key.
        """
        return Pipeline(transforms.shuffle(self, buf_size, seed, blocks))

    def firstn(self, n: int) -> Pipeline[T]:
        """The first `n` samples; it pulls exactly `n`, and never waits for one more.

        >>> list(Pipeline(lambda: "abcdef").firstn(2))
        ['a', 'b']

        Args:
            n: How many samples; fewer if the reader ends before.
        """
        return Pipeline(transforms.firstn(self, n))

    def skip(self, n: int) -> Pipeline[T]:
        """The samples after the first `n`.

        >>> list(Pipeline(lambda: "abcdef").skip(4))
        ['e', 'f']

        Args:
            n: How many samples to leave out.
        """
        return Pipeline(transforms.skip(self, n))

    def shard(self, num_shards: int, index: int) -> Pipeline[T]:
        """Every `num_shards`-th sample from sample `index` on: one part of a partition.

        >>> [list(Pipeline(lambda: "abcde").shard(2, index)) for index in range(2)]
        [['a', 'c', 'e'], ['b', 'd']]

        Args:
            num_shards: How many parts there are.
            index: Which part this is, from 0.

        Raises:
            ValueError: `index` is not below `num_shards`.
        """
        return Pipeline(transforms.shard(self, num_shards, index))

    def chain(self, *readers: Reader[T]) -> Pipeline[T]:
        """These samples, and then those of other readers, each of which starts in its turn.

        >>> list(Pipeline(lambda: "ab").chain(lambda: "c"))
        ['a', 'b', 'c']

        Args:
            *readers: Any readers.
        """
        return Pipeline(transforms.chain(self, *readers))

    def interleave(self, *readers: Reader[T]) -> Pipeline[T]:
        """One of these samples and one of each other reader in turn, until all have ended.

        A reader that has ended is left out of the turns from then on.

        >>> list(Pipeline(lambda: "abc").interleave(lambda: "x", lambda: [1, 2]))
        ['a', 'x', 1, 'b', 2, 'c']

        Args:
            *readers: Any readers.
        """
        return Pipeline(transforms.interleave(self, *readers))

    def compose(
        self, *readers: Reader[Any], check_alignment: bool = True
    ) -> Pipeline[tuple[Any, ...]]:
        """These samples and those of other readers side by side, as one flat tuple.

        >>> list(Pipeline(lambda: [(1, 2), (3, 4)]).compose(lambda: "ab"))
        [(1, 2, 'a'), (3, 4, 'b')]

        Args:
            *readers: Any readers.
            check_alignment: Whether to raise an error after the last full row if readers have
                unequal lengths. With False, it ends with the shortest; needed if one of them never
                ends.

        Raises:
            ComposeNotAligned: One reader ended before the others (while iterating).
        """
        return Pipeline(transforms.compose(self, *readers, check_alignment=check_alignment))

    def mix(
        self,
        *readers: Reader[T],
        weights: Sequence[Any] | None = None,
        temperature: float | None = None,
        seed: Any = None,
        stop: Stop = "first",
        at: Mapping[int, Sequence[Any]] | None = None,
        source: str | None = None,
    ) -> Pipeline[T]:
        """These samples and those of other readers in proportion, evenly spread.

        In every block of turns each reader has its share to within one sample, and gives its
        samples in its own order. For readers with names type
        `Pipeline(jreader.mix({"web": web, "code": code}, weights={"web": 7, "code": 3}))`.

        >>> "".join(Pipeline(lambda: "abcdefgh").mix(lambda: "12345678", weights=[3, 1], seed=0))
        '1abcd2ef3gh'

        Args:
            *readers: Any readers.
            weights: The share of each, of this one first: numbers above 0, which need not sum to 1.
                None for equal shares.
            temperature: Instead of `weights`: shares in proportion to `len(reader) ** (1 /
                temperature)`.
            seed: An int, or a jax key, fixes the order; `at_epoch` and `epochs` vary it. None draws
                anew for each pass, which can be resumed all the same.
            stop: When it ends. "first": at the turn of a reader that has no sample left. "all":
                when every reader has ended once; those that end earlier begin again with their next
                epoch. "repeat": never.
            at: Other weights from some sample of the epoch on, as {10_000: [1, 1]}.
            source: The name of a field that is added to samples that are dicts: the number of the
                reader that it came from, from 0.

        Raises:
            TypeError: An argument has another form.
            ValueError: A weight is not above 0, or they are not as many as the readers; there is no
                such `stop`; or `temperature` is given, and a reader has no known length.
            ReaderError: A reader has no samples (while iterating).
        """
        several: list[Reader[T]] = [self, *readers]
        op = transforms.mix(
            several,
            weights,
            temperature=temperature,
            seed=seed,
            stop=stop,
            at=at,
            source=source,
        )
        return Pipeline(op)

    def cache(self, path: str | os.PathLike[str] | None = None) -> Pipeline[T]:
        """The samples, read once, in the first pass, and kept in memory, or in a folder.

        The kept order stays: epochs and `seed=None` vary nothing before a cache. `jreader.cache`
        says how a folder is written, and what its rows are.

        >>> reads = []
        >>> words = Pipeline(lambda: reads.append("read") or "abc").cache()
        >>> list(words), list(words), reads
        (['a', 'b', 'c'], ['a', 'b', 'c'], ['read'])

        Args:
            path: A folder, which is made if it is not there; None for memory.

        Raises:
            TypeError: The path is neither a str nor a path.
            ValueError: It is a file, or a folder of other files; or, with a path, a shuffle before
                it has no seed.
        """
        return Pipeline(transforms.cache(self, path))

    def epochs(self, n: int | None = None) -> Pipeline[T]:
        """`n` passes, one after another, each shuffled anew; without `n`, endless.

        >>> deals = Pipeline(lambda: "abcd").shuffle(4, seed=1).epochs(2)
        >>> passes = "".join(deals)
        >>> sorted(passes[:4]) == sorted(passes[4:]) == list("abcd"), passes[:4] == passes[4:]
        (True, False)

        Args:
            n: The number of passes; None for no end.

        Raises:
            ReaderError: An epoch of an endless one had no samples (while iterating).
        """
        return Pipeline(readers.epochs(self, n))

    def prefetch(self, size: int) -> Pipeline[T]:
        """The samples, with up to `size` of them read ahead on a thread of their own.

        `load(capacity=n)` does so for whole feeds, so there is no need of it just before `load`. In
        an indexed pipeline nothing is read ahead: `batch` gathers rows at once.

        >>> list(Pipeline(lambda: "abc").prefetch(2))
        ['a', 'b', 'c']

        Args:
            size: How many samples to read ahead; 0 reads none, and needs no thread.
        """
        return Pipeline(workers.buffered(self, size))

    def xmap(
        self,
        mapper: Callable[[T], S],
        process_num: int,
        buffer_size: int,
        order: bool = False,
    ) -> Pipeline[S]:
        """`mapper` of each sample, on `process_num` threads (threads, as in Paddle).

        >>> list(Pipeline(lambda: "abc").xmap(str.upper, 2, 4, order=True))
        ['A', 'B', 'C']

        Args:
            mapper: Takes a sample, and returns one. Several threads call it at once.
            process_num: The number of threads.
            buffer_size: How many finished samples may wait.
            order: Whether samples keep their order. Otherwise they come as soon as they are ready,
                and the pass cannot be resumed.
        """
        return Pipeline(workers.xmap_readers(mapper, self, process_num, buffer_size, order))

    def batch(self, batch_size: int, drop_last: bool | None = None) -> Pipeline[Sequence[T]]:
        """Sequences of `batch_size` samples: lists, or `Columns` where samples are rows of arrays.

        >>> list(Pipeline(lambda: "abcde").batch(2))
        [['a', 'b'], ['c', 'd'], ['e']]

        Args:
            batch_size: Samples per batch.
            drop_last: Whether to leave out a last batch with fewer samples. None hands it over too,
                but `load` leaves it out then; with False, `load` pads it.
        """
        return Pipeline(batches.batch(self, batch_size, drop_last))

    def map_batches(
        self, fn: Callable[[Any], Any], stacked: bool = True
    ) -> Pipeline[Sequence[Any]]:
        """`fn` of the stacked columns of each batch: one call for a whole batch, in NumPy.

        `fn` takes the tree of the samples with a leading batch axis, and returns such a tree.
        Samples that differ in shape cannot be stacked: with `stacked=False`, `fn` takes the list of
        them, as a `collate_fn` does, and makes the arrays.

        >>> pairs = Pipeline(lambda: [(1, 2), (3, 4)]).batch(2)
        >>> [list(batch) for batch in pairs.map_batches(lambda columns: columns[0] + columns[1])]
        [[np.int64(3), np.int64(7)]]

        Args:
            fn: Returns a tree of arrays of equal length.
            stacked: Whether `fn` takes such a tree too; with False, it takes the list of the
                samples.
        """
        made_of: Reader[Any] = self  # of sequences of samples, which its type need not say
        return Pipeline(batches.map_batches(fn, made_of, stacked))

    def unbatch(self) -> Pipeline[Any]:
        """The samples of these batches, one by one.

        In an indexed pipeline no batch is made for it.

        >>> list(Pipeline(lambda: [["a", "b"], ["c"]]).unbatch())
        ['a', 'b', 'c']

        Raises:
            FeedMismatch: An item is not a batch: neither a sequence of samples nor a tree of arrays
                with a row for each sample (while iterating).
        """
        return Pipeline(batches.unbatch(self))

    def rebatch(self, batch_size: int, drop_last: bool | None = None) -> Pipeline[Sequence[Any]]:
        """Batches of another size: `batch` of the samples of these batches.

        >>> list(Pipeline(lambda: [[1, 2, 3], [4], [5, 6]]).rebatch(2))
        [[1, 2], [3, 4], [5, 6]]

        Args:
            batch_size: Samples per batch.
            drop_last: Whether to leave out a last batch with fewer samples, as in `batch`.

        Raises:
            FeedMismatch: An item is not a batch (while iterating).
        """
        return self.unbatch().batch(batch_size, drop_last)

    def window(
        self, size: int, stride: int | None = None, drop_last: bool | None = None
    ) -> Pipeline[Any]:
        """`size` consecutive samples as one sample, stacked along a new first axis.

        In an indexed pipeline a window is a gather of its samples, and none is stored twice.

        >>> list(Pipeline(lambda: [1, 2, 3]).window(2, stride=1))
        [array([1, 2]), array([2, 3])]

        Args:
            size: How many samples a window has.
            stride: How many samples after a window the next one begins; None for `size`, so that
                they do not overlap. With more than `size`, samples between them are left out.
            drop_last: Whether to leave out a last window of fewer samples. None leaves it out and
                warns of it; with False it is given, with fewer rows, and then windows are not
                indexed.

        Raises:
            TypeError: These are batches.
            FeedMismatch: The samples of a window cannot be stacked (while iterating).
        """
        return Pipeline(batches.window(self, size, stride, drop_last))

    def pipe(
        self,
        op: Callable[Concatenate[Pipeline[T], P], Reader[S]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Pipeline[S]:
        """`op(self, *args, **kwargs)`, for an op without a method here: one of your own, say.

        >>> def doubled(reader, times):
        ...     return lambda: (sample for sample in reader() for _ in range(times))
        >>> plan = Pipeline(lambda: "ab").pipe(doubled, 2).firstn(3)
        >>> print(list(plan), plan)
        ['a', 'a', 'b'] Pipeline(<lambda>).pipe(doubled, 2).firstn(n=3)

        Args:
            op: Takes this pipeline and the other arguments, and returns a reader.
            *args: Passed to `op`.
            **kwargs: Passed to `op`.

        Raises:
            TypeError: `op` cannot be called, or does not return a reader.
        """
        if not callable(op):
            raise TypeError(
                f"pipe(op, ...) needs an op, a function from a reader to a reader, not {op!r}."
            )
        made = op(self, *args, **kwargs)
        if isinstance(made, Pipeline):
            return made
        pipeline = Pipeline(made)
        if not isinstance(made, Node):  # which knows how it was written
            given = [*map(described, args), *(f"{k}={described(v)}" for k, v in kwargs.items())]
            written = f"{self!r}.pipe({', '.join([described(op), *given])})"
            object.__setattr__(pipeline, "_piped", written)
        return pipeline

    def write(
        self,
        path: str | os.PathLike[str],
        format: sinks.FormatName,  # noqa: A002  # the field's word
        *,
        shards: int | None = None,
        samples_per_shard: int | None = None,
        ragged: Sequence[str] = (),
        encode: Callable[[T], Any] | None = None,
        overwrite: bool = False,
        threads: int | None = None,
        progress: bool = True,
    ) -> list[str]:
        """Writes the samples as the shards of a data set, in order; returns their paths.

        The folder is there as a whole, or not at all. `help(jreader.write)` says what each format
        holds.

        >>> from tempfile import TemporaryDirectory
        >>> from jreader import arrays, npy
        >>> squares = Pipeline(arrays([0, 1, 2, 3])).map(lambda n: n * n)
        >>> with TemporaryDirectory() as folder:
        ...     paths = squares.write(f"{folder}/squares", "npy", progress=False)
        ...     [int(row) for row in npy(paths)()]
        [0, 1, 4, 9]

        Args:
            path: A folder that is new or empty.
            format: "arrayrecord", "npy", "parquet" or "tar".
            shards: How many shards, where the number of samples is known.
            samples_per_shard: How many samples a shard has, instead; None for as many as have 64
                MB.
            ragged: For "parquet", the fields whose arrays begin to differ in length late.
            encode: A function of a sample, called on the threads: what it returns is written.
            overwrite: Whether to replace the shards that are in the folder, when all is written.
            threads: How many threads write; None for one per core, at most 8.
            progress: Whether to show a progress bar.

        Raises:
            FileExistsError: The folder has files in it.
            FeedMismatch: The format cannot hold a sample, or it is not like those before.
            ValueError: There are no samples, or there is no end to them.
            OSError: The disk is full, or another error of the file system.
        """
        return sinks.write(
            self,
            path,
            format,
            shards=shards,
            samples_per_shard=samples_per_shard,
            ragged=ragged,
            encode=encode,
            overwrite=overwrite,
            threads=threads,
            progress=progress,
        )

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Pipeline[T]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> T | Pipeline[T]:
        """The sample (or batch) at an index, or a pipeline of the samples of a slice.

        Nothing before it is read. The order is that of the first epoch, so shuffles need a seed.

        >>> from jreader import arrays
        >>> squares = Pipeline(arrays([0, 1, 2, 3])).map(lambda n: n * n)
        >>> int(squares[-1]), list(squares[1:3].batch(2)), len(squares[::2])
        (9, [[np.int64(1), np.int64(4)]], 2)

        Raises:
            TypeError: The pipeline is a stream, or `index` is neither an int nor a slice.
            IndexError: There is no such sample.
            ValueError: The slice goes backwards, or counts from the end of an endless pipeline.
        """
        if not isinstance(index, slice):
            return found(self, index)
        part = sliced(self, index)
        return part if isinstance(part, Pipeline) else Pipeline(part)

    def load(
        self,
        feed_list: FeedList | None = None,
        *,
        capacity: int = 2,
        sharding: Any = None,
        pmap: Any = None,
        drop_last: bool | None = None,
        last: Last | None = None,
        steps_per_epoch: int | None = None,
        peer_timeout: float = 300,
        resident: bool = False,
        tune: bool | Mapping[str, int] = False,
    ) -> DataLoader:
        """A loader that puts these batches on devices, ahead of the step.

        >>> import numpy as np
        >>> from jreader import arrays
        >>> loader = Pipeline(arrays(x=np.arange(10.0))).batch(5).load()
        >>> [feed["x"].shape for feed in loader], len(loader)
        ([(5,), (5,)], 2)
        >>> plan = Pipeline(arrays([1, 4, 9])).map(np.sqrt, threads=2).batch(3)
        >>> [feed.tolist() for feed in plan.load(tune=True)]  # threads and capacity find themselves
        [[1.0, 2.0, 3.0]]

        Args:
            feed_list: The fields: a list of names or `data`, or a mapping from them to indices or
                keys of a sample. None for feeds with the tree of the samples.
            capacity: How many feeds to prefetch to the devices; 0 prefetches none.
            sharding: A Sharding, a Mesh (its only axis, or the one called "data" or "batch"), a
                PartitionSpec over the mesh of `jax.set_mesh`, a Device, or a tree of them for the
                fields. None for the default device; "host" for NumPy feeds.
            pmap: True (the local devices) or a list of D devices, for feeds of [D, n / D, ...].
            drop_last: Whether to leave out a short last batch. With False, it is padded with zeros,
                and every feed carries a `mask`. None leaves it out, unless `.batch(n,
                drop_last=False)` made it.
            last: What to do with a short last batch, instead of `drop_last`: "drop" or "pad" it,
                "wrap" (fill it up with the first samples of the epoch) or raise an "error".
            steps_per_epoch: How many feeds an epoch has; None for all. If there are more, they are
                left out; if there are fewer, that is an error, or with `last="wrap"` the epoch
                begins again. A stream that may be endless goes on where the epoch before ended;
                with `.firstn(n)` it begins again in each epoch.
            peer_timeout: The seconds to wait for other processes of `jax.distributed`, where each
                reads a stream; 0 for no limit.
            resident: Whether to put all data on the devices once, and to gather feeds there, as
                `as_function` does: for data that fit, on devices that are far from the host.
            tune: Whether to move the threads of maps with `threads=2` or more, and `capacity`,
                while the loop runs, to what makes feeds come quickest; the stream stays the same. A
                dict has ceilings: `tune={"threads": 32, "capacity": 16, "bytes": 2**30}` are those
                of True. `loader.tuned` tells what it came to.

        Raises:
            BatchNotDivisible: The batch cannot be split evenly over the devices.
            ValueError: `drop_last` or `last` contradicts `drop_last=False` of `batch`, or
                `capacity=0` leaves nothing to `tune`.
            FeedMismatch: The samples are not in batches, do not fit the feed_list, or a short batch
                is not the last one (while iterating).
            ShortEpoch: An epoch has fewer steps than `last` or `steps_per_epoch` allows.
        """
        # jax is loaded where feeds are made, not before
        from jreader.loaders import DataLoader  # noqa: PLC0415  # as said

        return DataLoader.over(
            self,
            feed_list,
            capacity=capacity,
            sharding=sharding,
            pmap=pmap,
            drop_last=drop_last,
            last=last,
            steps_per_epoch=steps_per_epoch,
            peer_timeout=peer_timeout,
            resident=resident,
            tune=tune,
        )


hints.tell_keywords(Pipeline, "Pipeline")
