"""The fluent spelling: every op once more as a method, bound, not defined again."""

from __future__ import annotations

import copy
import inspect
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Literal,
    ParamSpec,
    SupportsIndex,
    TypeVar,
    overload,
)

from jreader import errors, transforms
from jreader.batches import batch, map_batches
from jreader.readers import (
    Node,
    Pass,
    Plane,
    Position,
    Reader,
    described,
    epochs,
    indexed,
    length,
    lookup_of,
    origin,
    start,
)
from jreader.readers.nodes import children, drawn
from jreader.readers.plan_tables import Line
from jreader.readers.seeds import waits
from jreader.readers.starting import in_batches, native
from jreader.transforms import cache, firstn, map_readers, shard, shuffle, skip
from jreader.transforms.sample_rng import keyed
from jreader.workers import buffered, map_samples, xmap_readers

if TYPE_CHECKING:
    from jreader.feeds import FeedList
    from jreader.loaders import DataLoader
    from jreader.loaders.remainders import Last

T = TypeVar("T")
S = TypeVar("S")
F = TypeVar("F")
P = ParamSpec("P")


def _bound(
    op: Callable[Concatenate[Reader[T], P], Node[S]],
) -> Callable[Concatenate[Pipeline[T], P], Pipeline[S]]:
    """An op of `(reader, ...)` as a method of `(...)`."""

    @wraps(op, updated=())
    def method(self: Pipeline[T], /, *args: P.args, **kwargs: P.kwargs) -> Pipeline[S]:
        return Pipeline(op(self, *args, **kwargs))

    return method


def _bound_fn(
    op: Callable[Concatenate[F, Reader[T], P], Node[S]],
) -> Callable[Concatenate[Pipeline[T], F, P], Pipeline[S]]:
    """An op of `(fn, reader, ...)` as a method of `(fn, ...)`."""

    @wraps(op, updated=())
    def method(self: Pipeline[T], fn: F, /, *args: P.args, **kwargs: P.kwargs) -> Pipeline[S]:
        if op is map_samples and _gives_batches(self):
            raise TypeError(
                f"{self!r}.map(...) would map whole batches: use .map_batches(fn), where fn takes "
                f"and gives stacked columns, or .map(fn) before .batch(...)."
            )
        if op is map_samples and not args and not kwargs:  # the same, and the least that a map is
            return Pipeline(map_readers(fn, self))  # type: ignore[arg-type]  # F is its function
        return Pipeline(op(fn, self, *args, **kwargs))

    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    first, *others = inspect.signature(op).parameters.values()
    rest = [parameter for parameter in others if parameter.name != "reader"]
    parameters = [itself, first.replace(kind=inspect.Parameter.POSITIONAL_ONLY), *rest]
    method.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # PEP 362
    return method


_METHODS: dict[type, str] = {map_readers: "map", map_samples: "map", xmap_readers: "xmap"}


def _why_not(reader: Reader[Any]) -> str:
    """Why nothing finds its samples by place, and what to write instead."""
    if waits(reader):
        return (
            "is another sample in every pass, because a seed is missing: type shuffle(seed=0), "
            "or map(fn, rng=True, seed=0)."
        )
    return (
        "has to be read to find its samples: type .skip(n).peek() for one, .skip(n).firstn(m) for "
        "some; or begin with arrays(...), npy or source, and filter, flat_map and read streams "
        "before they become arrays."
    )


def sliced(reader: Reader[Any], index: slice) -> Reader[Any]:
    """The samples of a slice, found where those of `reader` are.

    >>> from jreader import arrays
    >>> sliced(Pipeline(arrays(range(9))).batch(2), slice(1, 3))
    Pipeline(arrays(int64[9])).skip(n=2).firstn(n=4).batch(batch_size=2)
    """
    step, known = 1 if index.step is None else operator.index(index.step), length(reader)
    if step < 1:
        raise ValueError(
            f"a pipeline is not read backwards, as in [::{step}]: type reversed(pipeline), or sort "
            f"the arrays that it begins with."
        )
    if known is None:
        first, last = (
            None if at is None else operator.index(at) for at in (index.start, index.stop)
        )
        if min(first or 0, last or 0) < 0:
            raise ValueError(
                f"{described(reader)} has no end to count from: type .skip(n) and .firstn(n)."
            )
        return _part(reader, first or 0, last, step)
    first, last, _ = slice(index.start, index.stop).indices(known)
    return _part(reader, first, None if last == known else max(first, last), step)


def _part(reader: Reader[Any], first: int, last: int | None, step: int) -> Reader[Any]:
    """From `first` on, up to `last`, pushed below what is one for one, so that it is not done."""
    if first == 0 and last is None and step == 1:
        return reader
    if type(reader) is batch and step == 1:
        size = reader.batch_size
        samples = _part(reader.reader, first * size, None if last is None else last * size, 1)
        return batch(samples, size, reader.drop_last)
    if indexed(reader) is None and type(reader) in {Pipeline, map_batches, map_samples, buffered}:
        op = copy.copy(reader)
        below = _part(reader.reader, first, last, step)  # type: ignore[attr-defined]  # these have one
        object.__setattr__(op, "reader", below)
        return op
    if type(reader) is map_readers and len(reader.readers) == 1:
        return map_readers(reader.func, _part(reader.readers[0], first, last, step))
    part: Pipeline[Any] = reader if isinstance(reader, Pipeline) else Pipeline(reader)
    part = part.skip(first) if first else part
    part = part if last is None else part.firstn(last - first)
    return part if step == 1 else part.shard(step, 0)


def _gives_batches(reader: Reader[Any]) -> bool:
    """Whether what a reader gives are batches: made by `batch`, and handed on whole since."""
    return isinstance(origin(reader, "all", "some"), (batch, map_batches))


@dataclass(frozen=True, eq=False, repr=False)
class Pipeline(Node[T]):
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

    reader: Reader[T]
    from_reader: ClassVar[Literal["", "all", "some", "each"]] = "all"
    in_cursor: ClassVar[Literal["always", "counted", "never"]] = "never"

    def __post_init__(self) -> None:
        """Refuses what is no reader."""
        errors.check_reader("Pipeline(reader)", self.reader)

    def __iter__(self) -> Iterator[T]:
        """Begins a pass."""
        return native(self)

    def start(self, at: Position) -> Pass[T]:
        """The position of `reader`."""
        return start(self.reader, at)

    def length(self) -> int | None:
        """That of `reader`."""
        return length(self.reader)

    def plane(self) -> Plane | None:
        """That of `reader`."""
        return indexed(self.reader)

    def batches(self, size: int, at: Position) -> Pass[Sequence[T]] | None:
        """Those of `reader`."""
        return in_batches(self.reader, size, at)

    def lookup(self) -> Callable[[int], T] | None:
        """That of `reader`."""
        return lookup_of(self.reader)

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Pipeline[T]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> T | Pipeline[T]:
        """The sample (or batch) at a place, or the pipeline of some, found without a pass.

        It is that of a pass as the plan is written, so shuffles need a seed.

        >>> from jreader import arrays
        >>> squares = Pipeline(arrays([0, 1, 2, 3])).map(lambda n: n * n)
        >>> int(squares[-1]), list(squares[1:3].batch(2)), len(squares[::2])
        (9, [[np.int64(1), np.int64(4)]], 2)

        Raises:
            TypeError: Samples have to be read to be found, or `index` is no int and no slice.
            IndexError: There is no such place.
            ValueError: The slice goes backwards, or counts from an end that is not there.
        """
        find = lookup_of(self)
        if find is None:
            raise TypeError(f"{self!r}[...] {_why_not(self)}")
        if isinstance(index, slice):
            part = sliced(self, index)
            return part if isinstance(part, Pipeline) else Pipeline(part)
        try:
            place, known = operator.index(index), length(self)
        except TypeError:
            raise TypeError(
                f"{self!r}[...] needs an int or a slice, not {described(index)}: for several "
                f"places type [pipeline[place] for place in places]."
            ) from None
        if place < 0 and known is not None:
            place += known
        if place < 0 or (known is not None and place >= known):
            seen = "has no end to count from" if known is None else f"has {known:,} {self._gives}"
            raise IndexError(f"{self!r}[{index}]: the pipeline {seen}.")
        return find(place)

    @property
    def _gives(self) -> str:
        return getattr(origin(self, "all", "some"), "unit", "samples")

    def peek(self) -> T:
        """The first sample; nothing that iterates notices.

        >>> Pipeline(lambda: "abc").skip(1).peek()
        'b'

        Raises:
            ValueError: There is none.
        """
        first = start(firstn(self.reader, 1))
        try:
            for sample in first.items:
                return sample
        finally:
            first.close()
        raise ValueError(f"{self!r} is empty: there is no first sample to look at")

    def pipe(
        self,
        op: Callable[Concatenate[Pipeline[T], P], Reader[S]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Pipeline[S]:
        """An op that is no method here, an own one say: `op(self, *args, **kwargs)`.

        >>> def doubled(reader, times):
        ...     return lambda: (sample for sample in reader() for _ in range(times))
        >>> list(Pipeline(lambda: "ab").pipe(doubled, 2).firstn(3))
        ['a', 'a', 'b']

        Args:
            op: Takes this pipeline, and what follows; gives a reader.
            args: Handed on.
            kwargs: Handed on.

        Raises:
            TypeError: `op` cannot be called, or gives no reader.
        """
        if not callable(op):
            raise TypeError(
                f"pipe(op, ...) needs an op, a function from a reader to a reader, not {op!r}."
            )
        return Pipeline(op(self, *args, **kwargs))

    def drawn(self) -> list[Line]:
        """Those of `reader`."""
        return drawn(self.reader)

    def __repr__(self) -> str:
        """The plan as it was written."""
        op = self.reader
        if isinstance(op, Node):
            inputs = [part.reader if isinstance(part, keyed) else part for part in children(op)]
            before = next((part for part in inputs if isinstance(part, Pipeline)), None)
            if before:
                name, arguments = _METHODS.get(type(op), type(op).__name__), op.written(before)
                if not hasattr(Pipeline, name):
                    return f"{before!r}.pipe({', '.join([name, *arguments])})"
                return f"{before!r}.{name}({', '.join(arguments)})"
        return f"Pipeline({described(op)})"

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
        timeout: float = 300,
        resident: bool = False,
    ) -> DataLoader:
        """A loader of feeds on devices, from a pipeline of batches (`DataLoader.over`).

        >>> import numpy as np
        >>> from jreader import arrays
        >>> loader = Pipeline(arrays(x=np.arange(10.0))).batch(4).load()
        >>> [feed["x"].shape for feed in loader], len(loader)
        ([(4,), (4,)], 2)

        Args:
            feed_list: The fields, as `data`; a mapping from names to places; None for feeds with
                the tree of the samples.
            capacity: How many feeds are on the devices before they are asked for; 0 for none.
            sharding: A Sharding, a Mesh (its only axis, or the one called "data" or "batch"), a
                PartitionSpec over the mesh of `jax.set_mesh`, a Device, a tree of them for the
                fields; None for the default device; "host" for NumPy feeds.
            pmap: True (the local devices) or a list of D devices, for feeds of [D, n / D, ...].
            drop_last: Whether a short last batch is left out, as it is where nothing is said, here
                or in `batch(n, drop_last=False)`. Otherwise it is padded with zeros, and every feed
                carries a `mask`.
            last: In other words: "drop", "pad"; or "wrap", which fills up with the first samples of
                the epoch, in their order; or "error".
            steps_per_epoch: How many feeds an epoch has, where the pipeline does not say. What is
                behind them is left out; where there are fewer, that is an error, or with
                `last="wrap"` begun again. A stream that may have no end goes on where it was:
                `.firstn(n)` begins it anew in each epoch.
            timeout: Seconds that other processes of `jax.distributed` are waited for, where each
                reads a stream; 0 for any.
            resident: Whether the data go to the devices once, as a whole, and feeds are gathered
                there (`as_function`): for what fits, on devices that are far from the host.

        Raises:
            BatchNotDivisible: The devices cannot divide the batch; it says which sizes they can.
            ValueError: `batch` says `drop_last=False`, and `last` or `drop_last` contradict that.
            FeedMismatch: While iterating: a short batch comes, and it is not the last.
            ShortEpoch: While iterating: an epoch ends as `last`, or `steps_per_epoch`, forbids.
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
            timeout=timeout,
            resident=resident,
        )

    map = _bound_fn(map_samples)
    filter = _bound_fn(transforms.filter)
    flat_map = _bound_fn(transforms.flat_map)
    shuffle = _bound(shuffle)
    firstn = _bound(firstn)
    skip = _bound(skip)
    shard = _bound(shard)
    chain = _bound(transforms.chain)
    compose = _bound(transforms.compose)
    cache = _bound(cache)
    epochs = _bound(epochs)
    buffered = _bound(buffered)
    xmap = _bound_fn(xmap_readers)
    batch = _bound(batch)
    map_batches = _bound_fn(map_batches)
