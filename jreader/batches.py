"""`batch` and `map_batches`: samples in batches, and functions of them.

A batch is a sequence of samples: a `list` from a stream, `Columns` from the index plane
(`readers/planes.py`). `stack` makes arrays of either.
"""

from __future__ import annotations

from array import array as machine_array
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from jreader import errors
from jreader._worker.stacking import stacked_in_shared_memory
from jreader.readers import (
    Columns,
    Node,
    Pass,
    Position,
    Reader,
    branches,
    described,
    explain,
    indexed,
    joined,
    length,
    lookup_of,
    map_tree,
    op,
    same_structure,
    start,
    whole,
)
from jreader.readers.starting import in_batches

T = TypeVar("T")

_VALUES = frozenset({np.ndarray, int, float, bool})  # known at a glance
_BUFFERS = (str, bytes, bytearray, memoryview, machine_array)


@op
class batch(Node[Sequence[T]]):
    """Sequences of `batch_size` samples: lists, or `Columns` over an indexed reader.

    >>> list(batch(lambda: "abcde", 2)())
    [['a', 'b'], ['c', 'd'], ['e']]

    Over arrays, and whatever only moves their rows, no sample is touched: each column is gathered
    once for each batch.

    >>> from jreader import arrays, shuffle
    >>> digits = arrays(np.arange(5))
    >>> [samples.columns.tolist() for samples in batch(shuffle(digits, seed=1), 3)()]
    [[2, 3, 1], [4, 0]]

    Args:
        reader: Any reader.
        batch_size: Samples per batch.
        drop_last: Whether to leave out a last batch with fewer samples. None hands it over too, but
            `load` leaves it out then; with False, `load` pads it.
    """

    reader: Reader[T]
    batch_size: int = whole(least=1)
    drop_last: bool | None = None
    unit = "batches"
    in_cursor = "counted"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.drop_last is not None:
            object.__setattr__(self, "drop_last", bool(self.drop_last))

    def start(self, at: Position) -> Pass[Sequence[T]]:
        """Begins a pass; its position is that of `reader`."""
        whole = in_batches(self.reader, self.batch_size, at)
        size = self.batch_size
        up = whole or start(self.reader, at).watched(self, size).in_runs(size)
        if not self.drop_last:
            return up
        full = (held for held in up.items if len(held) == self.batch_size)
        return Pass(full, up.position, up.close)

    def length(self) -> int | None:
        """The number of batches."""
        known = length(self.reader)
        if known is None:
            return None
        return known // self.batch_size if self.drop_last else -(-known // self.batch_size)

    def lookup(self) -> Callable[[int], Sequence[T]] | None:
        """Finds a batch by the indices of its samples."""
        find, plane, known = lookup_of(self.reader), indexed(self.reader), length(self.reader)
        size = self.batch_size

        def samples(index: int) -> Sequence[T]:
            last = (index + 1) * size
            indices = range(index * size, last if known is None else min(last, known))
            if plane is not None:
                return plane.take(np.array(indices))
            return list(map(find, indices))  # type: ignore[arg-type]  # it was found, as seen below

        return find and samples


@op
class map_batches(Node[Sequence[Any]]):
    """`fn` of the stacked columns of each batch: one call for a whole batch, in NumPy.

    `fn` takes the tree of the samples with a leading batch axis (a tuple of arrays for tuple
    samples, a dict for dict samples), and returns such a tree. The result still reads as a sequence
    of samples.

    >>> from jreader import arrays
    >>> pixels = batch(arrays(image=np.arange(4, dtype=np.uint8)), 2)
    >>> scaled = map_batches(lambda columns: {"image": columns["image"] / 2}, pixels)
    >>> [samples.columns["image"].tolist() for samples in scaled()]
    [[0.0, 0.5], [1.0, 1.5]]

    Samples that differ in shape cannot be stacked: with `stacked=False`, `fn` takes the list of
    them, as a `collate_fn` does, and makes the arrays.

    >>> def pad(samples):
    ...     rows = np.zeros((len(samples), 3), int)
    ...     for row, sample in zip(rows, samples):
    ...         row[: len(sample)] = sample
    ...     return rows
    >>> texts = batch(lambda: [[1], [2, 3], [4, 5, 6]], 2)
    >>> [samples.columns.tolist() for samples in map_batches(pad, texts, stacked=False)()]
    [[[1, 0, 0], [2, 3, 0]], [[4, 5, 6]]]

    Args:
        fn: Returns a tree of arrays of equal length.
        reader: A batch reader.
        stacked: Whether `fn` takes such a tree too; with False, it takes the list of the samples.
    """

    fn: Callable[[Any], Any]
    reader: Reader[Sequence[Any]]
    stacked: bool = True
    unit = "batches"
    from_reader = "each"
    in_cursor = "never"

    def __post_init__(self) -> None:
        super().__post_init__()
        flag = errors.check_flag("stacked of map_batches(fn, reader, stacked)", self.stacked)
        object.__setattr__(self, "stacked", flag)

    def start(self, at: Position) -> Pass[Sequence[Any]]:
        """Begins a pass; its position is that of `reader`."""
        return start(self.reader, at).mapped(self._mapped)

    def _mapped(self, samples: Sequence[Any]) -> Columns[Any]:
        given = self._given(samples)
        try:
            mapped = self.fn(given)
        except Exception as error:
            explain(error, self, self.fn, given)
            raise
        try:
            return Columns(mapped, samples_in(samples))
        except (TypeError, ValueError) as error:
            errors.noted(
                error, f"given by {described(self.fn)} in map_batches, made at {self.made_at}"
            )
            raise

    def _given(self, samples: Sequence[Any]) -> Any:
        if not self.stacked:
            return list(samples)
        try:
            return stack(samples)
        except errors.FeedMismatch as error:
            error.add_note(
                f"or have {described(self.fn)} take the list of the samples, and make the arrays: "
                f"map_batches(fn, stacked=False), made at {self.made_at}"
            )
            raise

    def length(self) -> int | None:
        """The length of `reader`."""
        return length(self.reader)

    def lookup(self) -> Callable[[int], Sequence[Any]] | None:
        """Applies `fn` to the batch that `reader` finds."""
        find = lookup_of(self.reader)
        return find and (lambda index: self._mapped(find(index)))


def samples_in(batch: Any) -> int:
    """How many samples a batch was made of; a function may have changed the number of rows."""
    made_of = getattr(batch, "made_of", None)
    return len(batch) if made_of is None else made_of


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
    if len(samples) == 0:  # an array has no truth of its own
        raise errors.FeedMismatch("an empty batch cannot be stacked: give at least one sample")
    return _stacked(list(samples), "a sample", _column)


def collate(samples: Sequence[Any]) -> Any:
    """One tree for a sequence of samples of one structure: as `stack`, but strings stay lists.

    >>> image, name = collate([(np.zeros(4), "a"), (np.ones(4), "b")])
    >>> image.shape, name
    ((2, 4), ['a', 'b'])

    As in torch, sequences of any other kind are lists of fields too; what they become is a list.

    >>> collate([range(0, 2), range(5, 7)])
    [array([0, 5]), array([1, 6])]

    Raises:
        FeedMismatch: The samples differ in structure or shape, some are None or mix strings with
            numbers, or there are none.
    """
    if isinstance(samples, Columns):
        return map_tree(_texts_or_array, samples.columns)
    if len(samples) == 0:  # an array has no truth of its own
        raise errors.FeedMismatch("an empty batch cannot be collated: give at least one sample")
    return _stacked(list(samples), "a sample", _texts_or_column)


def _stacked(values: Sequence[Any], name: str, column: Callable[[Sequence[Any], str], Any]) -> Any:
    """Stacks column by column: Python calls for each sample would cost more than the stacking."""
    first = values[0]
    parts = branches(first)
    if parts is None:
        return column(values, name)
    if type(first) in {dict, tuple, list}:
        alike = {type(first)} == set(map(type, values)) and len(set(map(len, values))) == 1
        rows = values
    else:
        alike = all(same_structure(first, value) for value in values)
        rows = [branches(value) for value in values] if alike else []
    if isinstance(first, dict):
        alike = alike and all(map(first.keys().__eq__, map(dict.keys, values)))
    if not alike:
        odd = (at for at, each in enumerate(values) if not same_structure(first, each))
        raise _mixed(values, name, next(odd, 0))
    return joined(
        first,
        {
            key: _stacked(list(map(itemgetter(key), rows)), f"{name}[{key!r}]", column)
            for key in parts
        },
    )


def _mixed(values: Sequence[Any], name: str, odd: int) -> errors.FeedMismatch:
    return errors.FeedMismatch(
        f"samples of one batch need one structure, but in sample 0 {name} is "
        f"{described(values[0])}, in sample {odd} {described(values[odd])}: map them to the same "
        f"fields first"
    )


def _column(values: Sequence[Any], name: str) -> np.ndarray[Any, Any]:
    """One array for the values of one leaf."""
    there = stacked_in_shared_memory(values)
    if there is not None:
        return there
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise errors.FeedMismatch(
            f"{name} has another shape in some samples of a batch ({error}). Pad or crop them to "
            f"one shape first."
        ) from None
    if array.dtype == object:
        numbers = (int, float, complex, np.generic, np.ndarray)
        odd = next((at for at, value in enumerate(values) if not isinstance(value, numbers)), 0)
        raise errors.FeedMismatch(
            f"{name} is {described(values[odd])} in sample {odd} of a batch, which no array holds. "
            f"Map it to numbers first."
        )
    return array


def _texts_or_column(values: Sequence[Any], name: str) -> Any:
    """A list of strings, or one array, for the values of one leaf; tensors of any library too."""
    kinds = set(map(type, values))
    if all(map(_is_fields, kinds)):
        rows = list(map(list, values))
        short = next((at for at, row in enumerate(rows) if len(row) != len(rows[0])), None)
        if short is not None:
            raise _mixed(values, name, short)
        return _stacked(rows, name, _texts_or_column)
    for text in (str, bytes):
        texts = [issubclass(kind, text) for kind in kinds]
        if all(texts):
            return list(values)
        if any(texts):
            odd = next(at for at, value in enumerate(values) if not isinstance(value, text))
            other = next(value for value in values if isinstance(value, text))
            raise errors.FeedMismatch(
                f"{name} is {described(values[odd])} in sample {odd} of a batch, and "
                f"{described(other)} in another: map all to strings, or all to numbers."
            )
    if any(map(_is_foreign, kinds)):
        values = [np.asarray(value) for value in values]
    return _column(values, name)


def _is_fields(kind: type) -> bool:
    """Whether a type is a sequence of fields, not of the bytes or numbers of one value."""
    if kind in _VALUES or not issubclass(kind, Sequence):
        return False
    return not (issubclass(kind, (*_BUFFERS, Columns)) or _is_foreign(kind))


def _is_foreign(kind: type) -> bool:
    """Whether to make an array of each value first: NumPy would take minutes, item by item."""
    if issubclass(kind, (np.ndarray, np.generic)):
        return False
    return hasattr(kind, "__array__") or hasattr(kind, "__array_interface__")


def _texts_or_array(column: np.ndarray[Any, Any]) -> Any:
    return column.tolist() if column.dtype.kind in "US" else column
