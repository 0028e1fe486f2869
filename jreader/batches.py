"""Samples to batches.

What `batch` yields is a sequence of samples: a `list`. `stack` turns one into arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from jreader import errors
from jreader.readers import (
    Columns,
    Node,
    Pass,
    Position,
    Reader,
    described,
    explain,
    leaves,
    length,
    rebuilt,
    same_structure,
    start,
)

T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False)
class batch(Node[Sequence[T]]):
    """Lists of `batch_size` samples.

    >>> list(batch(lambda: "abcde", 2)())
    [['a', 'b'], ['c', 'd'], ['e']]

    Args:
        reader: Any reader.
        batch_size: Samples per batch.
        drop_last: Whether a last batch with fewer samples is left out.
    """

    reader: Reader[T]
    batch_size: int
    drop_last: bool = False

    def __post_init__(self) -> None:
        """Refuses what is no reader, and no positive number."""
        call = "batch(reader, batch_size)"
        errors.check_reader(call, self.reader)
        object.__setattr__(self, "batch_size", errors.check_number(call, self.batch_size, 1))
        object.__setattr__(self, "drop_last", bool(self.drop_last))

    def start(self, at: Position) -> Pass[Sequence[T]]:
        """The position of `reader`."""
        up = start(self.reader, at)

        def deal() -> Iterator[Sequence[T]]:
            samples, size, least = up.items, self.batch_size, self.batch_size * self.drop_last
            while held := list(islice(samples, size)):
                if len(held) >= least:
                    yield held

        return Pass(deal(), up.position, up.close)

    def length(self) -> int | None:
        """The number of batches."""
        known = length(self.reader)
        if known is None:
            return None
        return known // self.batch_size if self.drop_last else -(-known // self.batch_size)


@dataclass(frozen=True, eq=False, repr=False)
class map_batches(Node[Sequence[Any]]):
    """`fn` of the stacked columns of each batch: one call for a whole batch, in NumPy.

    `fn` takes the tree of the samples with a leading batch axis (a tuple of arrays for tuple
    samples, a dict for dict samples), and gives such a tree. What comes out still reads as a
    sequence of samples.

    >>> from jreader import arrays
    >>> pixels = batch(arrays(image=np.arange(4, dtype=np.uint8)), 2)
    >>> scaled = map_batches(lambda columns: {"image": columns["image"] / 2}, pixels)
    >>> [samples.columns["image"].tolist() for samples in scaled()]
    [[0.0, 0.5], [1.0, 1.5]]

    Args:
        fn: Takes and gives a tree of arrays of equal length.
        reader: A batch reader.
    """

    fn: Callable[[Any], Any]
    reader: Reader[Sequence[Any]]

    def __post_init__(self) -> None:
        """Refuses what cannot be called."""
        errors.check_function("map_batches(fn, reader)", self.fn)
        errors.check_reader("map_batches(fn, reader)", self.reader)

    def start(self, at: Position) -> Pass[Sequence[Any]]:
        """The position of `reader`."""
        up = start(self.reader, at)

        def deal() -> Iterator[Sequence[Any]]:
            for samples in up.items:
                columns = stack(samples)
                try:
                    mapped: Columns[Any] = Columns(self.fn(columns))
                except Exception as error:
                    explain(error, self, self.fn, columns)
                    raise
                yield mapped

        return Pass(deal(), up.position, up.close)

    def length(self) -> int | None:
        """That of `reader`."""
        return length(self.reader)


def stack(samples: Sequence[Any]) -> Any:
    """One tree of arrays for a sequence of samples of one structure.

    >>> stack([(0, [1.0, 2.0]), (1, [3.0, 4.0])])[0]
    array([0, 1])
    >>> stack([{"id": 1}, {"id": 2}])
    {'id': array([1, 2])}

    Raises:
        FeedMismatch: The samples differ in structure or shape, or there are none.
    """
    if isinstance(samples, Columns):
        return samples.columns
    if not samples:
        raise errors.FeedMismatch("an empty batch cannot be stacked: give at least one sample")
    first = samples[0]
    for place, sample in enumerate(samples):
        if not same_structure(first, sample):
            raise errors.FeedMismatch(
                f"samples of one batch need one structure, but sample 0 is {described(first)} and "
                f"sample {place} is {described(sample)}: map them to the same fields first"
            )
    columns = zip(*map(leaves, samples), strict=True)
    return rebuilt(first, (stacked(column, f"leaf {n}") for n, column in enumerate(columns)))


def stacked(column: Sequence[Any], name: str) -> np.ndarray[Any, Any]:
    """One array for the values of one field; `name` is how an error calls the field."""
    try:
        array = np.asarray(column)
    except ValueError:
        shapes = [np.shape(value) for value in column]
        odd = next(place for place, shape in enumerate(shapes) if shape != shapes[0])
        raise errors.FeedMismatch(
            f"{name} is ragged: sample 0 has shape {shapes[0]}, sample {odd} of its batch has "
            f"{shapes[odd]}. Pad or crop them to one shape first."
        ) from None
    if array.dtype == object:
        raise errors.FeedMismatch(
            f"{name} is not numeric: sample 0 of its batch holds {described(column[0])}. Map it to "
            f"a number or an array first."
        )
    return array
