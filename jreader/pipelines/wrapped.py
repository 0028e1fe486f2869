"""What a pipeline is before it has methods: a reader around another one, that can be looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from jreader import hints, transforms
from jreader.batches import batch, bucket, map_batches, padded_batch, unbatch, window
from jreader.pipelines.specs import spec_of
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
    op,
    start,
)
from jreader.readers.nodes import arguments, drawn, inputs
from jreader.readers.plan_tables import Line
from jreader.readers.starting import in_batches, native
from jreader.transforms import firstn, map_readers
from jreader.transforms.sample_rng import keyed
from jreader.workers import buffered, map_samples, xmap_readers

T = TypeVar("T")

METHODS: dict[type, str] = {
    transforms.cache: "cache",
    transforms.chain: "chain",
    transforms.compose: "compose",
    transforms.filter: "filter",
    transforms.firstn: "firstn",
    transforms.flat_map: "flat_map",
    transforms.interleave: "interleave",
    transforms.mix: "mix",
    transforms.pack: "pack",
    transforms.read: "read",
    transforms.shard: "shard",
    transforms.shuffle: "shuffle",
    transforms.skip: "skip",
    transforms.windows: "windows",
    batch: "batch",
    bucket: "bucket",
    padded_batch: "padded_batch",
    buffered: "prefetch",
    epochs: "epochs",
    map_batches: "map_batches",
    map_readers: "map",
    map_samples: "map",
    unbatch: "unbatch",
    window: "window",
    xmap_readers: "xmap",
}
"""The methods of a pipeline by the op that each one makes."""


@op
class Wrapped(Node[T]):
    """The samples of `reader`, which can be iterated, looked at, and printed as it was written.

    >>> list(Wrapped(lambda: "ab"))
    ['a', 'b']

    Args:
        reader: Any reader.
    """

    reader: Reader[T]
    _piped: str = field(default="", init=False)
    """How it was written, where `pipe` was given an op that nothing else remembers."""
    from_reader = "all"
    in_cursor = "never"

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

    def drawn(self) -> list[Line]:
        """Those of `reader`."""
        return drawn(self.reader)

    def peek(self) -> T:
        """Returns the first sample, or batch; no pass is affected.

        >>> from jreader import Pipeline
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

    @property
    def element_spec(self) -> Any:
        """The shapes and dtypes of a sample, or of a batch as arrays: a tree of `ArraySpec`.

        They are taken from the first one, which is read for it; no pass is affected. The first
        axis of a batch is None if the last batch may be shorter. `jax.eval_shape` takes
        such a tree; `loader.element_spec` has what arrives on the devices.

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
        return spec_of(self, self.peek())

    def __repr__(self) -> str:
        """The plan as it was written: what is printed can be typed."""
        if self._piped:
            return self._piped
        chained = _chained(self.reader) if isinstance(self.reader, Node) else ""
        return chained or f"{type(self).__name__}({described(self.reader)})"

    def __dir__(self) -> list[str]:
        """What a user calls, without what the author of an op defines (`Node`)."""
        defined = {name for name in (*dir(Node), *Node.__annotations__) if name[0] != "_"}
        return sorted(set(super().__dir__()) - defined)

    if not TYPE_CHECKING:  # or every name would be one

        def __getattr__(self, name: str) -> NoReturn:
            """Says what to type instead of what other libraries call a method."""
            if hasattr(type(self), name):  # a property, whose own error this is
                object.__getattribute__(self, name)
            raise AttributeError(hints.missing_method(type(self), name), name=name, obj=self)


def _chained(op: Node[Any]) -> str:
    """An op as a method of the pipeline that it reads; "" where it is none, or reads none."""
    ups = [up.reader if isinstance(up, keyed) else up for up in inputs(op)]
    if not ups or not isinstance(ups[0], Wrapped) or getattr(op, "names", None):
        return ""
    before, name = ups[0], METHODS.get(type(op), "pipe")
    written = list(op.written(before))
    if name == "pipe":
        if next(arguments(op))[1] is not before:
            return ""
        written.insert(0, type(op).__name__)
    elif name == "map" and len(ups) > 1:  # of samples side by side
        return ""
    return f"{before!r}.{name}({', '.join(written)})"
