"""`Pass`: one iteration over a reader, with its position and a way to close it.

Counting at a leaf must not cost a Python frame per sample: `counted` counts in C (`compress` over a
`repeat`, whose length hint is the count). So the verbs are as fast as bare generators; a counting
generator would take 1.5 to 2.3 times as long.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import compress, islice, repeat
from operator import length_hint
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from jreader.errors import NotResumable
from jreader.readers.messages import described
from jreader.readers.refills import watched

if TYPE_CHECKING:
    from jreader.readers.nodes import Node

T = TypeVar("T")
U = TypeVar("U")

Position: TypeAlias = Any
"""Where a pass is: ints, None, and tuples of positions (lists, once they went through JSON)."""

_NOTHING = nullcontext()  # stateless, so all passes share it
_FURTHEST = 1 << 62  # no pass gets so far; products with it stay in 64 bits


class Pass(NamedTuple, Generic[T]):
    """One pass over a reader: its items, its position, and a way to end it early.

    Attributes:
        items: An iterator of the samples that are left.
        position: Returns the position after the last item that was handed over (see `start`).
        close: Ends the pass, and the threads, processes and files that it holds.
    """

    items: Iterator[T]
    position: Callable[[], Position]
    close: Callable[[], object]

    def mapped(
        self, fn: Callable[[T], U], within: AbstractContextManager[Any] = _NOTHING
    ) -> Pass[U]:
        """Return the pass with `fn` applied to each item, within a context that sees its errors."""

        def deal() -> Iterator[U]:
            # not `map`: it continues after an error, and ends at a StopIteration of `fn`
            with within:
                for item in self.items:
                    held = [item]
                    del item  # so that its memory is free while the next one is drawn
                    yield fn(held.pop())

        return Pass(deal(), self.position, self.close)

    def watched(self, node: Node[Any], held: int) -> Pass[T]:
        """Make the pass warn if its source refills one sample while `node` holds several."""
        return self._replace(items=watched(self.items, held, type(node).__name__, node.made_at))

    def in_runs(
        self, size: int, within: AbstractContextManager[Any] = _NOTHING
    ) -> Pass[Sequence[T]]:
        """Return the pass in lists of `size` items, as `mapped`; the last list may be shorter."""

        def deal() -> Iterator[Sequence[T]]:
            # no local keeps a run that was handed over: the next one reuses its memory
            with within:
                yield from iter(lambda: list(islice(self.items, size)), [])

        return Pass(deal(), self.position, self.close)


def itself(item: T) -> T:
    """Return the item: a function that does nothing."""
    return item


def counted(items: Iterable[T], before: int = 0) -> tuple[Iterator[T], Callable[[], int]]:
    """Return an iterator of the items, and a function that counts those handed over.

    >>> items, count = counted("abc", before=10)
    >>> next(items), count()
    ('a', 11)
    """
    ticks = repeat(True, sys.maxsize)  # noqa: FBT003  # C compares it by identity: 1 is slower
    return compress(items, ticks), lambda: before + sys.maxsize - length_hint(ticks)


def checked_position(at: Position, first: Position) -> Any:
    """Return the position at which a pass begins: `at`, or `first` if that is None.

    An op calls it before it unpacks a position.

    >>> checked_position(None, (0, None)), checked_position([3, [7, None]], (0, None))
    ((0, None), [3, [7, None]])
    >>> checked_position("7", (0, None))
    Traceback (most recent call last):
    jreader.errors.NotResumable: '7' is not a position of this pipeline, or a part of one, such \
as (0, None). It was changed, or another pipeline wrote it. Give an earlier position, or cursor, \
as it was written, or start over, without at=.

    Args:
        at: A position, perhaps of another op; None for the beginning.
        first: The position at the beginning: an int where `at` has a count, a bool where it has
            one, a tuple where it has as many parts. None allows anything, such as a reader's
            position, which is checked when that reader starts.

    Raises:
        NotResumable: No pass has such a position.
    """
    if at is None:
        return first
    if not _fits(at, first):
        raise bad_position(at, first)
    return at


def _fits(at: Position, first: Position) -> bool:
    if first is None:
        return True
    if type(first) is tuple:
        whole = isinstance(at, (list, tuple)) and len(at) == len(first)
        return whole and all(map(_fits, at, first))
    return type(at) is type(first) and (type(at) is not int or 0 <= at <= _FURTHEST)


def bad_position(at: Position, first: Position) -> NotResumable:
    """Return the error for a value that is no position like `first`, or part of one."""
    return NotResumable(
        f"{described(at)} is not a position of this pipeline, or a part of one, such as {first!r}. "
        "It was changed, or another pipeline wrote it. Give an earlier position, or cursor, as it "
        "was written, or start over, without at=."
    )
