"""`stack` and `collate`: one tree of arrays for the samples of a batch."""

from __future__ import annotations

from array import array as machine_array
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from jreader import errors
from jreader._worker.stacking import stacked_in_shared_memory
from jreader.readers import Columns, branches, described, joined, map_tree, same_structure

_VALUES = frozenset({np.ndarray, int, float, bool})  # known at a glance
_BUFFERS = (str, bytes, bytearray, memoryview, machine_array)


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


def _column(values: Sequence[Any], name: str) -> Any:
    """One array for the values of one leaf; of batches, as of the lists that they stand for."""
    if isinstance(values[0], Columns):
        return _stacked(list(map(list, values)), name, _column)
    there = stacked_in_shared_memory(values)
    if there is not None:
        return there
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise errors.FeedMismatch(
            f"{name} has another shape in some samples of a batch ({error}). Pad or crop them to "
            f"one shape first, as pack, padded_batch and bucket do."
        ) from None
    if array.dtype == object:
        numbers = (int, float, complex, np.generic, np.ndarray)
        odd = next((at for at, value in enumerate(values) if not isinstance(value, numbers)), 0)
        raise errors.FeedMismatch(
            f"{name} is {described(values[odd])} in sample {odd} of a batch, which no array can "
            "hold. Map it to numbers first."
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
