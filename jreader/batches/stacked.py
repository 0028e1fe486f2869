"""`stack` and `collate`: stack the samples of a batch into one tree of arrays."""

from __future__ import annotations

from array import array as machine_array
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from jreader import errors
from jreader._worker.stacking import stacked_in_shared_memory
from jreader.readers import Columns, branches, described, joined, map_tree, same_structure
from jreader.readers.joined_columns import alike

T = TypeVar("T")

_VALUES = frozenset({np.ndarray, int, float, bool})  # common leaves, skipped early
_TEXTS: dict[str, set[type]] = {"U": {str, np.str_}, "S": {bytes, np.bytes_}}  # by dtype kind
_BUFFERS = (str, bytes, bytearray, memoryview, machine_array)


def stack(samples: Sequence[Any]) -> Any:
    """Stack samples of one structure into one tree of arrays.

    >>> stack([(0, [1.0, 2.0]), (1, [3.0, 4.0])])[0]
    array([0, 1])
    >>> stack([{"id": 1}, {"id": 2}])
    {'id': array([1, 2])}

    A field that is None in all samples stays None.

    >>> stack([{"id": 1, "note": None}, {"id": 2, "note": None}])
    {'id': array([1, 2]), 'note': None}

    Raises:
        FeedMismatch: The samples differ in structure or shape, a field is None in only some of
            them, a sample is None, or there are no samples.
    """
    if isinstance(samples, Columns) and samples.stacked:
        return samples.columns
    return _of_samples(samples, _column, "stacked")


def collate(samples: Sequence[Any]) -> Any:
    """Stack samples of one structure into one tree, as `stack` does, but keep strings in lists.

    >>> image, name = collate([(np.zeros(4), "a"), (np.ones(4), "b")])
    >>> image.shape, name
    ((2, 4), ['a', 'b'])

    As in torch, other sequences are lists of fields too; the result is a list.

    >>> collate([range(0, 2), range(5, 7)])
    [array([0, 5]), array([1, 6])]

    Raises:
        FeedMismatch: The samples differ in structure or shape, a field is None in only some of them
            or mixes strings with numbers, a sample is None, or there are no samples.
    """
    if isinstance(samples, Columns) and samples.stacked:
        return map_tree(_texts_or_array, samples.columns)
    return _of_samples(samples, texts_or_column, "collated")


def _of_samples(samples: Sequence[Any], column: Callable[..., Any], made: str) -> Any:
    """Stack samples into one tree; `column` makes its leaves, and errors use the verb `made`."""
    if len(samples) == 0:  # an array has no truth value
        raise errors.FeedMismatch(f"an empty batch cannot be {made}: give at least one sample")
    try:
        tree = _stacked_tree(list(samples), "a sample", column)
    except errors.FeedMismatch:
        refuse_none(samples)
        raise
    if tree is None:
        refuse_none(samples)
    return tree


def stack_field(values: Sequence[Any], name: Any) -> Any:
    """Stack the values of a field into one tree of arrays; return None if all are None.

    Raises:
        FeedMismatch: The values differ in structure or shape, or some are None.
    """
    return _stacked_tree(values, f"a sample[{name!r}]", _column)


def concatenated(parts: Sequence[Sequence[T]]) -> Sequence[T]:
    """Concatenate batches: their columns if all are stacked alike, else a list of samples.

    >>> concatenated([Columns(np.arange(2)), Columns(np.arange(3))]).columns
    array([0, 1, 0, 1, 2])
    >>> concatenated([Columns(np.arange(2)), ["a"]])
    [np.int64(0), np.int64(1), 'a']
    """
    columns = [part for part in parts if type(part) is Columns]
    trees = [part.columns for part in columns]
    same = len(columns) == len(parts) and alike(trees)
    if not same or any(part.numbers != columns[0].numbers for part in columns):
        return [sample for part in parts for sample in part]
    made: Columns[T] = Columns(map_tree(lambda *every: np.concatenate(every), *trees))
    made.numbers = columns[0].numbers
    return made


def refuse_none(samples: Sequence[Any]) -> None:
    """Raise FeedMismatch if a sample of a batch that cannot be stacked is None.

    >>> refuse_none([5, None])
    Traceback (most recent call last):
    jreader.errors.FeedMismatch: sample 1 of a batch is None: does the function that makes it lack \
a return? To leave samples out, type .filter(fn).
    """
    for at, sample in enumerate(samples):
        if sample is None:
            raise errors.FeedMismatch(
                f"sample {at} of a batch is None: does the function that makes it lack a return? "
                "To leave samples out, type .filter(fn)."
            )


def checked_result(fn: Callable[..., Any], made: Any) -> Any:
    """Return what a function made from a batch or feed; raise if it is None.

    >>> checked_result(print, None)
    Traceback (most recent call last):
    jreader.errors.FeedMismatch: print returned None: does it lack a return? Type return before \
what it makes.
    """
    if made is None:
        raise errors.FeedMismatch(
            f"{described(fn)} returned None: does it lack a return? Type return before what it "
            "makes."
        )
    return made


def not_stackable_error(values: Any, name: str, error: Exception) -> errors.FeedMismatch:
    """Return the error for values that NumPy cannot make an array of, mostly ragged ones.

    >>> not_stackable_error([[1, 2], [3]], "field 'x'", ValueError())
    FeedMismatch("field 'x' is ragged: sample 0 has shape (2,), sample 1 of its batch has shape \
(1,). Type .padded_batch(n), .bucket(bounds, n) or .pack(n) for rows of several lengths, or give \
all of them one shape in .map(fn).")
    """
    shapes = list(map(_shape_of_value, values)) if isinstance(values, (list, tuple)) else []
    odd = first_unequal(shapes)
    if odd is None:
        return errors.FeedMismatch(f"{name} cannot become an array: {error}")
    return errors.FeedMismatch(
        f"{name} is ragged: sample 0 has {shapes[0]}, sample {odd} of its batch has {shapes[odd]}. "
        "Type .padded_batch(n), .bucket(bounds, n) or .pack(n) for rows of several lengths, or "
        "give all of them one shape in .map(fn)."
    )


def first_unequal(values: Sequence[Any]) -> int | None:
    """Return the index of the first value that differs from values[0]; None if all are equal.

    >>> first_unequal([4, 4, 5, 6]), first_unequal([])
    (2, None)
    """
    return next((index for index, value in enumerate(values) if value != values[0]), None)


def _shape_of_value(value: Any) -> str:
    try:
        return f"shape {np.shape(value)}"
    except (TypeError, ValueError):
        return "no shape"


def _stacked_tree(
    values: Sequence[Any], name: str, column: Callable[[Sequence[Any], str], Any]
) -> Any:
    """Stack column by column: a Python call per sample would cost more than the stacking."""
    first = values[0]
    parts = branches(first)
    if parts is None:
        return column(values, name)
    rows: Any = values if type(first) in {dict, tuple, list} else _as_dicts(values)
    alike = len(set(map(type, rows))) == 1 and len(set(map(len, rows))) == 1
    if type(first) is dict:
        alike = alike and all(map(first.keys().__eq__, map(dict.keys, values)))
    if not alike:
        all_none(values, name)
        odd = first_unequal([same_structure(first, value) for value in values])
        raise _mixed(values, name, odd or 0)
    return joined(
        first,
        {
            key: _stacked_tree(list(map(itemgetter(key), rows)), f"{name}[{key!r}]", column)
            for key in parts
        },
    )


def _as_dicts(values: Sequence[Any]) -> Sequence[Any]:
    """Convert trees of any kind to dicts of their branches; () if they differ in structure."""
    alike = all(same_structure(values[0], value) for value in values)
    return [branches(value) for value in values] if alike else ()


def _mixed(values: Sequence[Any], name: str, odd: int) -> errors.FeedMismatch:
    path = name.removeprefix("a sample")
    return errors.FeedMismatch(
        f"samples of one batch need one structure, but sample 0{path} is {described(values[0])} "
        f"and sample {odd}{path} is {described(values[odd])}: map them to the same fields first"
    )


def _column(values: Sequence[Any], name: str) -> Any:
    """Make one array of the values of one leaf; batches among them count as lists."""
    if isinstance(values[0], Columns):
        return _stacked_tree(list(map(list, values)), name, _column)
    there = stacked_in_shared_memory(values)
    if there is not None:
        return there
    try:
        array = np.asarray(values)
    except ValueError as error:
        all_none(values, name)
        raise not_stackable_error(values, name, error) from None
    if array.dtype.kind in _TEXTS:
        _check_texts(values, name, array.dtype.kind)
    if array.dtype == object:
        if all_none(values, name):
            return None
        numbers = (int, float, complex, np.generic, np.ndarray)
        odd = next((at for at, value in enumerate(values) if not isinstance(value, numbers)), 0)
        raise errors.FeedMismatch(
            f"{name} is {described(values[odd])} in sample {odd} of a batch, which no array can "
            "hold. Map it to numbers first."
        )
    return array


def all_none(values: Sequence[Any], name: str) -> bool:
    """Return whether all values of a field are None.

    Raises:
        FeedMismatch: Only some are None.
    """
    nothing = [value is None for value in values]
    if any(nothing) and not all(nothing):
        there = nothing.index(False)
        raise errors.FeedMismatch(
            f"{name} is None in sample {nothing.index(True)} of a batch, and "
            f"{described(values[there])} in sample {there}: a field is None in all samples or in "
            "none. Give it a value in .map(fn), or leave such samples out with .filter(fn)."
        )
    return all(nothing)


def _check_texts(values: Sequence[Any], name: str, kind: str) -> None:
    """Raise FeedMismatch if NumPy would convert numbers to text, or bytes to strings."""
    if _TEXTS[kind].issuperset(map(type, values)):
        return
    odd = first_unequal([np.asarray(value).dtype.kind for value in values])
    if odd is not None:
        raise _several_kinds(name, values[odd], odd, values[0])


def _several_kinds(name: str, value: Any, at: int, other: Any) -> errors.FeedMismatch:
    return errors.FeedMismatch(
        f"{name} is {described(value)} in sample {at} of a batch, and {described(other)} in "
        "another: map all to strings, or all to numbers."
    )


def texts_or_column(values: Sequence[Any], name: str) -> Any:
    """Collate the values of one leaf: a list of strings, or one array, also of foreign tensors."""
    kinds = set(map(type, values))
    if type(None) in kinds and all_none(values, name):
        return None
    if all(map(_is_fields, kinds)):
        rows = list(map(list, values))
        if (odd := first_unequal(list(map(len, rows)))) is not None:
            raise _mixed(values, name, odd)
        return _stacked_tree(rows, name, texts_or_column)
    if _all_texts(values, kinds, name, str) or _all_texts(values, kinds, name, bytes):
        return list(values)
    if any(map(_is_foreign, kinds)):
        values = [np.asarray(value) for value in values]
    return _column(values, name)


def _all_texts(values: Sequence[Any], kinds: Iterable[type], name: str, text: type) -> bool:
    """Return whether all values are of a text type; raise FeedMismatch if only some are."""
    texts = [issubclass(kind, text) for kind in kinds]
    if any(texts) and not all(texts):
        odd = next(at for at, value in enumerate(values) if not isinstance(value, text))
        other = next(value for value in values if isinstance(value, text))
        raise _several_kinds(name, values[odd], odd, other)
    return all(texts)


def _is_fields(kind: type) -> bool:
    """Return whether a type is a sequence of fields, rather than one value."""
    if kind in _VALUES or not issubclass(kind, Sequence):
        return False
    return not (issubclass(kind, (*_BUFFERS, Columns)) or _is_foreign(kind))


def _is_foreign(kind: type) -> bool:
    """Return whether to convert each value first: NumPy would take minutes, item by item."""
    if issubclass(kind, (np.ndarray, np.generic)):
        return False
    return hasattr(kind, "__array__") or hasattr(kind, "__array_interface__")


def _texts_or_array(column: np.ndarray[Any, Any]) -> Any:
    return column.tolist() if column.dtype.kind in "US" else column
