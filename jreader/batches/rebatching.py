"""`unbatch` and `rebatch`: the samples of batches, and batches of another size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

from jreader.batches.batching import batching
from jreader.batches.plain_batches import batch
from jreader.batches.stacked import concatenated
from jreader.errors import FeedMismatch, NotResumable, check_number, check_reader
from jreader.readers import (
    Columns,
    Node,
    Pass,
    Plane,
    Position,
    Reader,
    checked_position,
    counted,
    described,
    indexed,
    leaves,
    length,
    lookup_of,
    op,
    start,
)
from jreader.readers.joined_columns import ENDLESS
from jreader.readers.lanes import owners_of
from jreader.readers.ragged import lengths_hash
from jreader.transforms import firstn

T = TypeVar("T")

_VALUES = (str, bytes, bytearray, memoryview)  # sequences that are single values


@op
class unbatch(Node[Any]):
    """Take batches apart into their samples: the inverse of `batch`.

    >>> list(unbatch(lambda: [["a", "b"], ["c"]])())
    ['a', 'b', 'c']

    A batch is a list or another sequence of samples, but not a tuple; or a tree of arrays (such as
    a tuple or dict) with one row per sample. It may be empty.

    >>> import numpy as np
    >>> list(unbatch(lambda: [{"id": np.array([1, 2])}])())
    [{'id': np.int64(1)}, {'id': np.int64(2)}]

    Over `batch` of an indexed reader it is indexed too, and makes no batches.

    Cost: keeps one batch in memory. Resuming reads the current batch again.

    Args:
        reader: A reader of batches.

    Raises:
        FeedMismatch: An item of `reader` is not a batch, or its arrays differ in length (while
            iterating).
    """

    reader: Reader[Any]

    def start(self, at: Position) -> Pass[T]:
        """Start a pass; its position is (the position before the batch, samples of it done)."""
        up, before, done = self._begin(at)
        held, (_, count) = 0, counted((), done)

        def deal() -> Iterator[Iterator[Any]]:
            nonlocal before, held, count
            skipped = done
            for made in up.items:
                samples = self._samples(made, skipped)
                items, count = counted(islice(samples, skipped, None), skipped)
                held = len(samples)
                yield items
                before, skipped = up.position(), 0
                held, (_, count) = 0, counted(())

        def position() -> Position:
            # once a batch is done, it need not be read again
            return (up.position(), 0) if count() == held > 0 else (before, count())

        return Pass(chain.from_iterable(deal()), position, up.close)

    def batches(self, size: int, at: Position) -> Pass[Sequence[Any]]:
        """Yield runs of `size`, cut from the batches where these are stacked."""
        gathered = super().batches(size, at)
        if gathered is not None:
            return gathered
        up, before, done = self._begin(at)

        def deal() -> Iterator[Sequence[Any]]:
            nonlocal before, done
            here, low, left = before, done, size
            cut: list[Sequence[Any]] = []
            for made in up.items:
                samples = self._samples(made, low)
                while low < len(samples):
                    cut.append(samples[low : low + left])
                    low, left = low + len(cut[-1]), left - len(cut[-1])
                    if not left:
                        before, done = (here, low) if low < len(samples) else (up.position(), 0)
                        left = size
                        yield _as_one_batch(cut)
                here, low = up.position(), 0
            if cut:
                before, done = here, 0
                yield _as_one_batch(cut)

        return Pass(deal(), lambda: (before, done), up.close)

    def _begin(self, at: Position) -> tuple[Pass[Any], Position, int]:
        """Return a pass over the batches, the position before the first, and samples of it done."""
        before, done = checked_position(at, (None, 0))
        up = start(self.reader, before)
        return up, up.position(), done

    def _samples(self, made: Any, done: int) -> Sequence[Any]:
        """Return the samples of a batch, of which `done` were yielded before."""
        samples = _samples_of(made)
        if samples is None:
            raise FeedMismatch(
                f"unbatch(reader), made at {self.made_at}, needs batches, sequences of samples or "
                f"trees of arrays with equally many rows, not {described(made)}: make them with "
                f".batch(n); or for the samples of items of your own, type .flat_map(fn)."
            )
        if done > len(samples):
            raise NotResumable(
                f"unbatch(reader), made at {self.made_at}, cannot resume after sample {done} of a "
                f"batch that has {len(samples)}: give it the batches that it had, or start at the "
                f"beginning (at=None)."
            )
        return samples

    def length(self) -> int | None:
        """Return the number of samples in the batches, if `batch` makes them."""
        below = self._below()
        return None if below is None else length(below)

    def layout(self) -> str:
        """Hash the lengths of all batches, as far as they are known before reading."""
        return lengths_hash(self.reader)

    def lookup(self) -> Callable[[int], Any] | None:
        """Find samples as the reader below `batch` does."""
        below = self._below()
        return None if below is None else lookup_of(below)

    def plane(self) -> Plane | None:
        """Return the plane below `batch`, without the samples that it drops."""
        below = self._below()
        return None if below is None else indexed(below)

    def _below(self) -> Reader[Any] | None:
        """Return the samples before `batch`, if all of its batches come through unchanged."""
        found = batching(self.reader)
        made_by = found.op if found.by_sample and found.whole and not found.functions else None
        if made_by is None or owners_of(made_by.reader) > 1:  # lanes reorder its rows
            return None
        if not made_by.drop_last:
            return made_by.reader
        known, plane = length(made_by.reader), indexed(made_by.reader)
        if plane is not None and plane.length >= ENDLESS:
            return made_by.reader
        return None if known is None else firstn(made_by.reader, made_by.sizes.full(0, known)[1])


def rebatch(reader: Reader[Any], batch_size: int, drop_last: bool | None = None) -> batch[Any]:
    """Regroup the samples of batches into batches of another size.

    >>> list(rebatch(lambda: [[1, 2, 3], [4], [5, 6]], 2)())
    [[1, 2], [3, 4], [5, 6]]

    Batches of arrays are cut and joined without touching single samples:

    >>> import numpy as np
    >>> rows = rebatch(lambda: [np.arange(3), np.arange(3, 8)], 4)
    >>> [samples.columns.tolist() for samples in rows()]
    [[0, 1, 2, 3], [4, 5, 6, 7]]

    Args:
        reader: A reader of batches, as `unbatch` takes them.
        batch_size: Samples per batch.
        drop_last: Whether to drop an incomplete last batch, as in `batch`.

    Raises:
        FeedMismatch: An item of `reader` is not a batch (while iterating).
    """
    call = "rebatch(reader, batch_size, drop_last)"
    check_reader(call, reader)
    size = check_number(f"batch_size of {call}", batch_size, 1)
    return batch(unbatch(reader), size, drop_last)


def _samples_of(made: Any) -> Sequence[Any] | None:
    """Return the samples of a batch; None if it is not one."""
    if isinstance(made, (Columns, list)):
        return made
    if isinstance(made, Sequence) and not isinstance(made, (tuple, *_VALUES)):
        return list(made)
    columns = [column for column in leaves(made) if column is not None]
    shapes: list[tuple[int, ...]] = [getattr(column, "shape", ()) for column in columns]
    if not all(shapes) or len({shape[0] for shape in shapes}) != 1:
        return None
    return Columns(made)


def _as_one_batch(cut: list[Sequence[T]]) -> Sequence[T]:
    """Join parts of batches into one batch; empty `cut`, so that it holds no reference."""
    parts = cut[:]
    cut.clear()
    return parts[0] if len(parts) == 1 else concatenated(parts)
