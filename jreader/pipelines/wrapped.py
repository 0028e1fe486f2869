"""What a pipeline is before it has methods: a reader around another one, that can be looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from jreader import hints
from jreader.errors import newer_name
from jreader.pipelines.methods import Room, methods_of
from jreader.readers import (
    Node,
    Pass,
    Plane,
    Position,
    Reader,
    described,
    indexed,
    length,
    lookup_of,
    op,
    origin,
    start,
)
from jreader.readers.growing import only_looking
from jreader.readers.nodes import arguments, below_keys
from jreader.readers.starting import in_batches, native

if TYPE_CHECKING:
    from jreader import transforms
    from jreader.pipelines import specs
else:
    transforms, specs = Room("jreader.transforms"), Room("jreader.pipelines.specs")

T = TypeVar("T")


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
    moves = "samples"

    def within(self) -> Reader[T]:
        """Its reader."""
        return self.reader

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

    def peek(self) -> T:
        """Returns the first sample, or batch; no pass is affected.

        >>> from jreader import Pipeline
        >>> Pipeline(lambda: "abc").skip(1).peek()
        'b'

        Raises:
            ValueError: There is none.
        """
        first = start(transforms.firstn(self.reader, 1))
        try:
            for sample in first.items:
                return sample
        finally:
            first.close()
        raise ValueError(f"{self!r} is empty: there is no first sample to look at")

    @property
    def fill(self) -> float | None:
        """The share of tokens in the rows of `pack`; None where it is not known before a pass.

        >>> from jreader import Pipeline, ragged
        >>> Pipeline(ragged([11, 12, 13, 21, 31, 32], [0, 3, 4, 6])).pack(4).shuffle(seed=0).fill
        0.75
        """
        made = origin(self.reader, "all")
        return getattr(made, "fill", None) if isinstance(made, Node) else None

    @property
    def element_spec(self) -> Any:
        """The shapes and dtypes of a sample, or of a batch as arrays: a tree of `ArraySpec`.

        They are taken from the first one, which is read for it; no pass is affected. The first
        axis of a batch is None if the last batch may be shorter. A field that is None stays None,
        here as in feeds. `jax.eval_shape` takes
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
        with only_looking():
            return specs.element_spec_of(self, self.peek())

    def __repr__(self) -> str:
        """The plan as it was written: what is printed can be typed."""
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
        """What a user calls, without what the author of an op defines (`Node`)."""
        defined = {name for name in (*dir(Node), *Node.__annotations__) if name[0] != "_"}
        return sorted(set(super().__dir__()) - defined)

    if not TYPE_CHECKING:  # or every name would be one

        def __getattr__(self, name: str) -> Any:
            """Finds a method by its older name, or says what to type for other libraries' words."""
            if hasattr(type(self), name):  # a property, whose own error this is
                object.__getattribute__(self, name)
            if newer := newer_name(type(self).__name__, name):
                return getattr(self, newer)
            raise AttributeError(hints.missing_method(type(self), name), name=name, obj=self)


def _chained(op: Node[Any]) -> tuple[Wrapped[Any] | None, str]:
    """The pipeline that an op reads, and the op as a method of it; None where it is none."""
    ups = [below_keys(up) for up in op.input_readers]
    if not ups or not isinstance(ups[0], Wrapped) or getattr(op, "names", None):
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
