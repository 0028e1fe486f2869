"""`Pipeline`: every op as a method, so that a plan reads from left to right."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import field
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    SupportsIndex,
    TypeVar,
    cast,
    overload,
)

import numpy as np

from jreader import hints, readers
from jreader.errors import check_reader, newer_name, warn
from jreader.pipelines.methods import LazyModule, Method, like, methods_of
from jreader.readers import (
    Node,
    Pass,
    Plane,
    Position,
    Reader,
    argument,
    described,
    indexed,
    lookup_of,
    origin,
    set_fields,
    start,
)
from jreader.readers.growing import without_writing
from jreader.readers.nodes import arguments, below_keys
from jreader.readers.starting import native
from jreader.readers.torch_loaders import is_torch_loader

if TYPE_CHECKING:
    from jreader import batches, chats, sinks, transforms, workers
    from jreader.feeds import FeedList
    from jreader.loaders import DataLoader
    from jreader.loaders.device_programs.stages import Feed
    from jreader.loaders.remainders import Last
    from jreader.pipelines import locking, of_grain, parts, preparing, specs
    from jreader.transforms.mixture_schedules import Stop
else:  # each is imported when one of its ops is first used
    batches, sinks = LazyModule("jreader.batches"), LazyModule("jreader.sinks")
    chats = LazyModule("jreader.chats")
    transforms, workers = LazyModule("jreader.transforms"), LazyModule("jreader.workers")
    parts, specs = LazyModule("jreader.pipelines.parts"), LazyModule("jreader.pipelines.specs")
    preparing = LazyModule("jreader.pipelines.preparing")
    locking = LazyModule("jreader.pipelines.locking")
    of_grain = LazyModule("jreader.pipelines.of_grain")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S")
U = TypeVar("U")
P = ParamSpec("P")


def method(
    op: Callable[Concatenate[Reader[U], P], Reader[S]],
) -> Callable[Concatenate[Pipeline[U], P], Pipeline[S]]:
    """Make an op a method, which takes the arguments after the reader (`methods.py`)."""
    made: Callable[Concatenate[Pipeline[U], P], Pipeline[S]] = Method.made(op, chains=True)
    return made


def result(fn: Callable[Concatenate[Reader[U], P], S]) -> Callable[Concatenate[Pipeline[U], P], S]:
    """Make a function of a reader a method, which returns the function's result."""
    made: Callable[Concatenate[Pipeline[U], P], S] = Method.made(fn)
    return made


def _checked(call: str, reader: Any) -> Any:
    """Return the reader; make one from a loader of torch, or from Grain's data."""
    if not callable(reader):
        reader = reader.__iter__ if is_torch_loader(reader) else of_grain.as_reader(reader)
    check_reader(call, reader)
    return reader


class _GrainData(Protocol[T_co]):
    """A MapDataset or an IterDataset."""

    def __iter__(self) -> Iterator[T_co]: ...
    def seed(self, seed: int, /) -> Any: ...


class _TorchLoader(Protocol[T_co]):
    """A DataLoader of torch."""

    num_workers: int

    def __iter__(self) -> Iterator[T_co]: ...


if TYPE_CHECKING:

    class _Base(Generic[T]):
        """Hides methods for authors of ops, so that completion lists what users call."""

        def __call__(self) -> Iterator[T]: ...
        def __iter__(self) -> Iterator[T]: ...
        def __len__(self) -> int: ...
else:
    _Base = Node


@readers.op
class Pipeline(_Base[T]):
    """A reader that has the ops as methods, for chains that read from left to right.

    A pipeline never changes: each method returns a new one. It is a reader itself, so you can
    iterate over it, and pass it to the functions that its methods are named after.

    >>> words = Pipeline(lambda: ["a", "bb", "ccc"])
    >>> list(words.map(len).filter(lambda n: n > 1).batch(2))
    [[2, 3]]
    >>> print(words.map(len).batch(2))
    Pipeline(<lambda>).map(len).batch(batch_size=2)

    Args:
        reader: Any reader; or a `MapDataset`, an `IterDataset`, a data source or a `DataLoader`
            from Grain; or a PyTorch `DataLoader`.
    """

    reader: Reader[T] = argument(_checked)
    _piped: str = field(default="", init=False)
    """How it was written, if `pipe` got an op that nothing else records."""

    if TYPE_CHECKING:

        def __init__(self, reader: Reader[T] | _GrainData[T] | _TorchLoader[T]) -> None: ...
    else:  # as an op, its reader
        from_reader = "all"
        in_cursor = "never"
        moves = "samples"

        def wrapped(self) -> Reader[T]:
            """Return its reader."""
            return self.reader

        def __iter__(self) -> Iterator[T]:
            """Begin a pass."""
            return native(self)

        def start(self, at: Position) -> Pass[T]:
            """Begin a pass, with the positions of `reader`."""
            return start(self.reader, at)

        def plane(self) -> Plane | None:
            """Return the plane of `reader`."""
            return indexed(self.reader)

        def lookup(self) -> Callable[[int], T] | None:
            """Return the lookup of `reader`."""
            return lookup_of(self.reader)

    def peek(self) -> T:
        """Return the first sample, or batch; no pass is affected.

        >>> from jreader import Pipeline
        >>> Pipeline(lambda: "abc").skip(1).peek()
        'b'

        Raises:
            ValueError: There is no sample.
        """
        with closing(start(transforms.firstn(self.reader, 1))) as first:
            for sample in first.items:
                return sample
        raise ValueError(f"{self!r} is empty: there is no first sample to look at")

    @property
    def fill(self) -> float | None:
        """The fraction of the slots in rows of `pack` that hold tokens; None if not known yet.

        >>> from jreader import Pipeline, ragged
        >>> Pipeline(ragged([11, 12, 13, 21, 31, 32], [0, 3, 4, 6])).pack(4).shuffle(seed=0).fill
        0.75
        """
        made = origin(self.reader, "all")
        return getattr(made, "fill", None) if isinstance(made, Node) else None

    @property
    def element_spec(self) -> Any:
        """The shapes and dtypes of a sample, or of a batch as arrays: a tree of `ArraySpec`.

        Reads the first one; no pass is affected. The first axis of a batch is None if the last
        batch may be shorter. A field that is None stays None, here as in feeds. `jax.eval_shape`
        takes such a tree; `loader.element_spec` describes the feeds on the devices.

        >>> import numpy as np
        >>> from jreader import Pipeline, arrays
        >>> rows = Pipeline(arrays(image=np.zeros((10, 28, 28), np.uint8), label=np.arange(10)))
        >>> rows.element_spec["image"]
        ArraySpec(shape=(28, 28), dtype=uint8)
        >>> rows.batch(4).element_spec["image"]
        ArraySpec(shape=(None, 28, 28), dtype=uint8)
        >>> rows.batch(4, drop_last=True).element_spec["label"]
        ArraySpec(shape=(4,), dtype=int64)

        Raises:
            ValueError: There is no sample.
            FeedMismatch: The samples of a batch cannot be stacked.
        """
        with without_writing():
            return specs.element_spec_of(self, self.peek())

    def __repr__(self) -> str:
        """Return the plan as it was written: what is printed can be typed."""
        first, calls = self, list[str]()
        while not first._piped:  # not by recursion: there may be a thousand ops
            before, call = _chained(first.reader) if isinstance(first.reader, Node) else (None, "")
            if before is None:
                calls.append(f"{type(first).__name__}({described(first.reader)})")
                break
            calls.append(call)
            first = before
        return "".join([first._piped, *reversed(calls)])  # noqa: SLF001  # one of this class

    def __dir__(self) -> list[str]:
        """List what users call, without what authors of ops define (`Node`)."""
        defined = {name for name in (*dir(Node), *Node.__annotations__) if name[0] != "_"}
        return sorted(set(super().__dir__()) - defined)

    if not TYPE_CHECKING:  # or every name would be one

        def __getattr__(self, name: str) -> Any:
            """Find a method by its older name, or raise what to type for other libraries' words."""
            if hasattr(type(self), name):  # a property, whose own error this is
                object.__getattribute__(self, name)
            if newer := newer_name(type(self).__name__, name):
                return getattr(self, newer)
            raise AttributeError(hints.missing_attribute(type(self), name), name=name, obj=self)

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
    @like(workers.map_samples, transforms.map_readers)
    def map(self, fn: Callable[..., S], **options: Any) -> Pipeline[S]:
        """Apply `fn` to each sample, in order: here, or on threads, processes or a cluster."""
        if batches.gives_batches(self):
            raise TypeError(
                f"{self!r}.map(...) would map whole batches: use .map_batches(fn), where fn takes "
                f"and returns stacked columns, or .map(fn) before .batch(...)."
            )
        op = workers.map_samples(fn, self, **options)
        engaged = op.threads or op.processes or op.executor is not None or op.timeout
        if engaged or op.rng or op.on_error == "skip":
            return Pipeline(op)
        return Pipeline(transforms.map_readers(fn, self))  # the same, as the simplest map

    @like(transforms.filter)
    def filter(
        self, fn: Callable[[T], object], keep: str | os.PathLike[str] | None = None
    ) -> Pipeline[T]:
        """Keep the samples for which `fn` is true."""
        return Pipeline(transforms.filter(fn, self, keep))

    @like(transforms.flat_map)
    def flat_map(self, fn: Callable[[T], Iterable[S] | Node[S]]) -> Pipeline[S]:
        """Replace each sample by the samples of the iterable that `fn` returns for it."""
        return Pipeline(transforms.flat_map(fn, self))

    @like(transforms.read)
    def read(self, fn: Callable[[T], Iterable[S] | Node[S]], lanes: int = 1) -> Pipeline[S]:
        """Read the samples that `fn` yields for each file, reading `lanes` files side by side."""
        return Pipeline(transforms.read(fn, self, lanes))

    @like(workers.xmap_readers)
    def xmap(
        self, mapper: Callable[[T], S], process_num: int, buffer_size: int, order: bool = False
    ) -> Pipeline[S]:
        """Apply `mapper` to each sample, on `process_num` threads (threads, as in Paddle)."""
        return Pipeline(workers.xmap_readers(mapper, self, process_num, buffer_size, order))

    @like(batches.map_batches)
    def map_batches(
        self,
        fn: Callable[[Any], Any],
        stacked: bool = True,
        threads: int = 0,
        processes: int = 0,
    ) -> Pipeline[Sequence[Any]]:
        """Apply `fn` to the stacked columns of each batch: one call for a whole batch, in NumPy."""
        made_of: Reader[Any] = self  # of sequences of samples, which its type need not say
        return Pipeline(batches.map_batches(fn, made_of, stacked, threads, processes))

    @like(batches.group_by)
    def group_by(self, fn: Callable[[T], Any]) -> Pipeline[Any]:
        """Stack consecutive samples for which `fn` returns the same value into one sample."""
        return Pipeline(batches.group_by(fn, self))

    firstn = method(transforms.firstn)
    skip = method(transforms.skip)
    shard = method(transforms.shard)
    shuffle = method(transforms.shuffle)
    chain = method(transforms.chain)
    compose = method(transforms.compose)
    interleave = method(transforms.interleave)
    cache = method(transforms.cache)
    pack = method(transforms.pack)
    windows = method(transforms.windows)
    epochs = method(readers.epochs)
    prefetch = method(workers.buffered)
    chat = method(chats.chat)
    bucket = method(batches.bucket)
    padded_batch = method(batches.padded_batch)
    unbatch = method(batches.unbatch)
    sliding_window = method(batches.sliding_window)
    write = result(sinks.write)
    prepare = result(preparing.prepare)
    lock = result(locking.lock)
    check_lock = result(locking.check_lock)
    split = result(parts.split)
    folds = result(parts.folds)

    @like(transforms.mix)
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
        """Mix these samples with those of other readers in proportion, evenly spread.

        This reader comes first in `weights` and in `at`, and is number 0 in the field `source`. To
        name the readers, type `Pipeline(jreader.mix({"web": web, "code": code}, weights={...}))`.
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

    @like(batches.batch)
    def batch(
        self, batch_size: int | Mapping[int, int], drop_last: bool | None = None
    ) -> Pipeline[Sequence[T]]:
        """Group the samples into batches of `batch_size`: lists, or `Columns` of stacked arrays.

        Batching batches warns: type `.rebatch(n)` to change the size of batches.
        """
        if batches.gives_batches(self):
            warn(
                f"{self!r}.batch({batch_size}) makes lists of {batch_size} batches. For batches of "
                f"{batch_size} samples type .rebatch({batch_size}), or leave one batch out; for "
                f"lists of batches, .pipe(jreader.batch, {batch_size})."
            )
        return Pipeline(batches.batch(self, batch_size, drop_last))

    @like(batches.rebatch)
    def rebatch(self, batch_size: int, drop_last: bool | None = None) -> Pipeline[Sequence[Any]]:
        """Regroup the samples of these batches into batches of a different size."""
        return self.unbatch().batch(batch_size, drop_last)

    @like()
    def pipe(
        self,
        op: Callable[Concatenate[Pipeline[T], P], Reader[S]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Pipeline[S]:
        """Apply an op that has no method here, such as your own: `op(self, *args, **kwargs)`.

        >>> def doubled(reader, times):
        ...     return lambda: (sample for sample in reader() for _ in range(times))
        >>> plan = Pipeline(lambda: "ab").pipe(doubled, 2).firstn(3)
        >>> print(list(plan), plan)
        ['a', 'a', 'b'] Pipeline(<lambda>).pipe(doubled, 2).firstn(n=3)

        Args:
            op: Takes this pipeline and the other arguments, and returns a reader. Or a Grain
                transform, which the corresponding op replaces: `.map(fn)`, `.map(fn, rng=True)`,
                `.filter`, `.flat_map` or `.batch`; all but `.batch` take the keyword arguments.
            *args: Passed to `op`.
            **kwargs: Passed to `op`.

        Raises:
            TypeError: `op` is neither callable nor a Grain transform, or does not return a reader.
        """
        made = op(self, *args, **kwargs) if callable(op) else of_grain.through(self, op, kwargs)
        if isinstance(made, Pipeline):
            return made
        pipeline = Pipeline(made)
        if not isinstance(made, Node):  # nodes record how they were written
            given = [*map(described, args), *(f"{k}={described(v)}" for k, v in kwargs.items())]
            written = f"{self!r}.pipe({', '.join([described(op), *given])})"
            set_fields(pipeline, _piped=written)
        return pipeline

    @overload
    def __getitem__(
        self, index: slice | Sequence[int] | np.ndarray[tuple[int], np.dtype[np.integer[Any]]]
    ) -> Pipeline[T]: ...
    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    def __getitem__(self, index: Any) -> T | Pipeline[T]:
        """Return the sample (or batch) at an index, or a pipeline of a slice or a list of indices.

        Nothing before it is read. The order is that of the first epoch, so shuffles need a seed.

        >>> from jreader import arrays
        >>> squares = Pipeline(arrays([0, 1, 2, 3])).map(lambda n: n * n)
        >>> int(squares[-1]), list(squares[1:3].batch(2)), len(squares[::2])
        (9, [[np.int64(1), np.int64(4)]], 2)
        >>> list(map(int, squares[[3, 0, 0]]))
        [9, 0, 0]

        Raises:
            TypeError: The pipeline is a stream, or `index` is neither an int, a slice nor a list of
                ints.
            IndexError: There is no such sample.
            ValueError: The slice goes backwards, or counts from the end of an endless pipeline.
        """
        if isinstance(index, slice):
            part = parts.sliced(self, index)
        elif isinstance(index, (list, range)) or getattr(index, "ndim", 0) == 1:
            part = parts.listed(self, index)
        else:
            return parts.sample_at(self, index)
        return part if isinstance(part, Pipeline) else Pipeline(part)

    @overload
    def load(
        self, feed_list: Any = None, *, sharding: Literal["host"], into: None = None, **options: Any
    ) -> DataLoader[dict[str, np.ndarray[Any, Any]]]: ...
    @overload
    def load(
        self,
        feed_list: FeedList | None = None,
        *,
        into: Callable[..., Feed] | None = None,
        capacity: int = 2,
        sharding: Any = None,
        pmap: Any = None,
        drop_last: bool | None = None,
        last: Last | None = None,
        steps_per_epoch: int | None = None,
        peer_timeout: float = 300,
        resident: bool = False,
        tune: bool | Mapping[str, int] = False,
        workers: Any = None,
        share: str | None = None,
        lock: str | os.PathLike[str] | None = None,
    ) -> DataLoader[Feed]: ...
    @like()
    def load(self, feed_list: Any = None, *, lock: Any = None, **_options: Any) -> DataLoader[Any]:
        """Load these batches onto devices, before your step asks for them.

        >>> import numpy as np
        >>> from jreader import arrays
        >>> loader = Pipeline(arrays(x=np.arange(10.0))).batch(5).load()
        >>> [feed["x"].shape for feed in loader], len(loader)
        ([(5,), (5,)], 2)
        >>> plan = Pipeline(arrays([1, 4, 9])).map(np.sqrt, threads=2).batch(3)
        >>> [feed.tolist() for feed in plan.load(tune=True)]  # threads and capacity are tuned
        [[1.0, 2.0, 3.0]]

        Args:
            feed_list: The fields: a list of names or of `jreader.data` objects, or a mapping from
                either to indices or keys of a sample. Without it, feeds have the same tree
                structure as the samples.
            into: A class or function that takes the fields by keyword, such as a NamedTuple or a
                dataclass (register it with jax, or decorate it with `flax.struct.dataclass`). Each
                feed is `into(**fields)`. None leaves feeds as they are.
            capacity: Feeds to prefetch to the devices; 0 for none.
            sharding: A Sharding, a Mesh (its only axis, or the one called "data" or "batch"), a
                PartitionSpec over the mesh of `jax.set_mesh`, a Device, or a tree of them for the
                fields. None for the default device; "host" for NumPy feeds, or in a tree for fields
                that stay NumPy arrays, such as strings. Wrap the sharding in
                `jreader.devices.ContextParallel` to split sequences so that causal attention gives
                all devices equal work.
            pmap: True (the local devices) or a list of D devices, for feeds of shape [D, n / D,
                ...], where n is the batch size.
            drop_last: Whether to drop a short last batch. False pads it with zeros, and every feed
                carries a `mask`. None drops it, unless `.batch(n, drop_last=False)` made it.
            last: Use instead of `drop_last`. What to do with a short last batch: "drop" or "pad"
                it, "wrap" (fill it up with the first samples of the epoch), raise an "error", or
                "keep" it short, on one device or the host.
            steps_per_epoch: Feeds per epoch; None for all. Surplus feeds are dropped; too few are
                an error, or with `last="wrap"` the epoch starts over. A possibly endless stream
                continues where the previous epoch ended; `.firstn(n)` restarts it in each epoch.
            peer_timeout: Seconds to wait for the other processes of `jax.distributed`, if each of
                them reads a stream; 0 for no limit.
            resident: Whether to put all data on the devices once, and gather feeds there, like
                `as_function`: for data that fit there, if copies from the host are slow.
            tune: Whether to autotune the threads of maps with `threads=2` or more, and `capacity`,
                while the loop runs; the stream stays the same. A dict sets upper limits; True means
                `tune={"threads": 32, "capacity": 16, "bytes": 2**30}`. `loader.tuned` has the
                values that it chose.
            workers: Where to make whole batches: `Processes(n)`, another executor of
                `concurrent.futures`, `jreader.workers.clusters.ray_executor()`, or a Dask client.
                The workers open the sources; feeds, their order and cursors stay the same. The plan
                must be indexed, or its samples must come in lanes (`read(fn, lanes=8)`). None makes
                batches in this process.
            share: A name. Jobs on one Dask cluster that give the same name to the same plan share
                batches: each is made only once, if the jobs are at most 64 batches apart. None: no
                sharing.
            lock: The file that `pipeline.lock(path)` wrote; cursors record its name. The names and
                sizes of the data files must match it; `pipeline.check_lock(path)` also hashes them.
                None: no check.

        Raises:
            BatchNotDivisible: The batch cannot be split evenly over the devices.
            ValueError: `drop_last` or `last` contradicts `drop_last=False` of `batch`, or
                `capacity=0` leaves nothing to `tune`; or `lock` belongs to a different pipeline, or
                to different files.
            FeedMismatch: The samples are not in batches or do not fit the feed_list, or a batch
                before the last one is short (while iterating).
            ShortEpoch: The last batch is short, with `last="error"`, or an epoch has fewer steps
                than `steps_per_epoch`.
        """
        # jax is loaded when feeds are made, not before
        from jreader.loaders import DataLoader  # noqa: PLC0415  # as above

        held = () if lock is None else locking.held(self, lock)
        return DataLoader._over(self, feed_list, lock=held, **_options)  # noqa: SLF001  # its own constructor


def _chained(op: Node[Any]) -> tuple[Pipeline[Any] | None, str]:
    """Return the pipeline that an op reads, and the op as its method; None if it is none."""
    ups = [below_keys(up) for up in op.input_readers]
    if not ups or not isinstance(ups[0], Pipeline) or getattr(op, "names", None):
        return None, ""
    before, kind = ups[0], cast("Any", type(ups[0]))
    name = methods_of(kind).get(type(op), "pipe")
    written = list(op.written(before))
    if name == "pipe":
        if arguments(op)[0][1] is not before:
            return None, ""
        written.insert(0, type(op).__name__)
    elif name == "map" and len(ups) > 1:  # of samples side by side
        return None, ""
    return before, f".{name}({', '.join(written)})"
