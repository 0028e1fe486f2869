"""Pass after pass, each in its own order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from jreader import errors
from jreader.readers.columns import Array, Indices
from jreader.readers.compounds import routed_by_member
from jreader.readers.declarations import op, whole
from jreader.readers.holders import Held
from jreader.readers.joined_columns import ENDLESS
from jreader.readers.nodes import Node, Reader, length
from jreader.readers.passes import Pass, Position, bad_position, checked_position, counted
from jreader.readers.plain_functions import in_epoch, note_epoch
from jreader.readers.planes import Plane, indexed
from jreader.readers.rewriting import in_epoch_of, rewritten
from jreader.readers.starting import start
from jreader.readers.trees import leaves

T = TypeVar("T")


def at_epoch(reader: Reader[T], epoch: Any) -> Reader[T]:
    """Return the same plan in the order of another epoch; a plan as you wrote it is in epoch 0.

    Epochs nest: epoch 2 of a plan that is in epoch 1 differs from epochs 1, 2 and 3 of the plan
    itself.

    >>> from jreader import shuffle
    >>> reader = shuffle(lambda: "abcdef", buf_size=6, seed=1)
    >>> list(at_epoch(reader, 0)()) == list(reader())
    True
    >>> list(at_epoch(reader, 1)()) == list(reader())
    False

    Args:
        reader: Any reader.
        epoch: An int; or a jax array, also a traced one, if only the plane of the plan is used.

    Raises:
        ValueError: `epoch` is negative, or beyond 2**64 - 1.
    """
    if isinstance(epoch, (np.generic, np.ndarray)) or not hasattr(epoch, "__array_namespace__"):
        epoch = errors.check_number("at_epoch(reader, epoch)", epoch)
        if epoch >> 64:
            raise ValueError(f"at_epoch(reader, epoch) needs an epoch below 2**64, not {epoch}.")
    return rewritten(reader, partial(in_epoch_of, epoch=epoch))


def iterable_in_epoch(made: Iterable[T], epoch: int) -> Iterable[T]:
    """Return a user function's iterable in an epoch that plans and generators see."""
    if isinstance(made, Node):
        return at_epoch(made, epoch)()
    note_epoch(made, epoch)
    return made


@op
class epochs(Node[T]):
    """Repeat the reader `n` times (forever by default), reshuffling each time.

    >>> from jreader import shuffle
    >>> twice = epochs(shuffle(lambda: "abcd", buf_size=4, seed=1), 2)
    >>> passes = "".join(twice())
    >>> sorted(passes[:4]) == sorted(passes[4:]) == list("abcd"), passes[:4] == passes[4:]
    (True, False)

    Cost: it keeps no samples from one epoch to the next. Resuming jumps to the epoch, without
    reading those before it.

    Args:
        reader: Any reader. Epoch `e` is `at_epoch(reader, e)`.
        n: The number of passes; None for no end.

    Raises:
        ReaderError: An epoch of an endless `epochs` had no samples; it would loop for ever.
    """

    reader: Reader[T]
    n: int | None = whole(default=None)
    from_reader = "some"

    def start(self, at: Position) -> Pass[T]:
        """Begin a pass; its position is (epoch, samples handed over, position of `reader`)."""
        epoch, given, inner = checked_position(at, (0, 0, None))
        if self.n is not None and epoch > self.n:
            raise bad_position(at, (self.n, 0, None))
        up = self._opened(epoch, inner)
        items, count = counted(up.items if up else (), given)

        def turns() -> Iterator[Iterator[T]]:
            nonlocal epoch, up, items, count
            while up:
                yield items
                if self.n is None and not count():
                    raise self._empty_epoch(epoch)
                up.close()
                epoch += 1
                up = self._opened(epoch, None)
                items, count = counted(up.items if up else ())

        return Pass(
            chain.from_iterable(turns()),
            lambda: (epoch, count(), up.position() if up else None),
            lambda: up and up.close(),
        )

    def may_be_endless(self) -> bool | Callable[[list[bool]], bool]:
        """Return True without `n`."""
        return super().may_be_endless() if self.n is not None else True

    def plane(self) -> Plane | None:
        """Return the plane whose sample i is sample i % length of epoch i // length."""
        up = indexed(self.reader)
        if up is None or not up.length or self.n == 0:
            return None
        each, columns = up.length, len(leaves(up.columns))

        def plane_in(epoch: Any) -> Plane:
            plane = indexed(at_epoch(self.reader, epoch))
            if plane is None or plane.length != each:
                raise errors.ReaderError(
                    f"{self.reader!r} had {each} samples when a pass over {self!r} began, and now "
                    f"has {plane.length if plane else 'none'}: data may grow or shrink between "
                    "passes, not within one. Let the loader count epochs: `for feed in loader`, or "
                    "loader.steps(n)."
                )
            return plane

        def member(epoch: Any, indices: Indices) -> list[Indices]:
            return plane_in(epoch).route(indices)

        def route(indices: Indices) -> list[Indices]:
            which, local = indices // each, indices % each
            if isinstance(indices, np.ndarray):
                return routed_by_member(which, local, member, columns)
            return member(which, local)  # in a trace, every index folds its own epoch

        def held(column: int, rows: Array, end: int) -> Held:
            ends = ((e, min(end - e * each, each)) for e in range(-(-end // each)))
            every = [plane_in(e).holding(rows, before, column) for e, before in ends]
            return Held.joined([part.at(part.index + e * each) for e, part in enumerate(every)])

        many = min(each * self.n, ENDLESS) if self.n else ENDLESS
        return Plane(up.columns, many, route, lanes=up.lanes, held=held)

    def _opened(self, epoch: int, inner: Position) -> Pass[T] | None:
        if self.n is not None and epoch >= self.n:
            return None
        with in_epoch(epoch):
            return start(at_epoch(self.reader, epoch), inner)

    def _empty_epoch(self, epoch: int) -> errors.ReaderError:
        return errors.ReaderError(
            f"{self.reader!r} gave no sample in epoch {epoch}, and {self!r}, made at "
            f"{self.made_at}, would never end: give `epochs(reader, n)` an n, or the reader some "
            "data."
        )

    def length(self) -> int | None:
        """Return `n` times the length of `reader`."""
        each = length(self.reader)
        return None if each is None or self.n is None else each * self.n
