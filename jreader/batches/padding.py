"""Pad samples of different lengths to arrays of one length, with masks of the real values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain, repeat
from operator import attrgetter, getitem, itemgetter
from typing import Any, TypeAlias

import numpy as np

from jreader import errors
from jreader.batches.stacked import all_none, refuse_none, stack, stack_field
from jreader.readers import Reader, branches, described, indexed, itself, joined, leaves, rebuilt
from jreader.readers.columns import Array, in_dtype
from jreader.readers.joined_columns import ConcatArray
from jreader.readers.ragged import Ragged
from jreader.readers.seeds import seeded

BARE = "tokens"
"""The field name that bare samples (one array each) get."""

Fields = tuple[Any, ...]
Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Padding:
    """Pads the fields of samples to one length, with a mask for each.

    >>> padding = Padding("padded_batch(...)", ("tokens",))
    >>> padded = padding.columns([np.array([7, 8, 9]), np.array([4])], lambda name, longest: (4,))
    >>> padded["tokens"].tolist(), padded["tokens_mask"].astype(int).tolist()
    ([[7, 8, 9, 0], [4, 0, 0, 0]], [[1, 1, 1, 0], [1, 0, 0, 0]])

    Attributes:
        call: The name that errors use for the op.
        names: The fields that differ in length; None to infer them from the first sample.
        pad: The fill value: a number, or a dict of numbers by field.
        truncates: Whether to cut longer rows instead of raising.
        side: Where to pad: "right" of the values, or "left"; or a dict of these by field.
        axes: How many leading axes of a field to pad: a number, or a dict of numbers by field.
        alike: Whether to pad all fields to the longest row of any.
    """

    call: str
    names: Fields | None = None
    pad: Any = 0
    truncates: bool = False
    side: Any = "right"
    axes: Any = 1
    alike: bool = False

    def chosen(self, sample: Any) -> Fields:
        """Return the names of the fields of a sample to pad.

        Raises:
            TypeError: No field is a list or an array.
            ValueError: Several are, and it is unclear which to pad; a named field does not exist;
                or `pad`, `axes` or `side` names a field that is not padded.
        """
        names = self._names_in(fields_of(sample), sample)
        by_field = {"pad": self.pad, "axes": self.axes, "padding_side": self.side}
        for argument, given in by_field.items():
            for name in given if isinstance(given, Mapping) else ():
                if name not in names:
                    raise ValueError(
                        f"{argument} of {self.call} names {name!r}, and the fields that are padded "
                        f"are {list(names)}: name one of these."
                    )
        return names

    def _names_in(self, every: Mapping[Any, Any], sample: Any) -> Fields:
        if self.names is not None:
            if lacking := [name for name in self.names if name not in every]:
                raise ValueError(
                    f"{self.call}: the samples have no field {lacking[0]!r}: their fields are "
                    f"{list(every)}. Give fields=[...] with the names of those that differ in "
                    "length."
                )
            return self.names
        there = [name for name, value in every.items() if _is_sequence(value)]
        if not there:
            refuse_none([sample])
            raise TypeError(
                f"{self.call} pads samples that differ in length, and {described(sample)} has no "
                f"list or array to pad: give documents as arrays, alone or in dicts, or use "
                f".batch(n)."
            )
        if len(there) > 1:
            raise ValueError(
                f"{self.call}: the fields {there} are lists or arrays, and only those that differ "
                f"in length are to be padded: name them, for example fields=[{there[0]!r}]."
            )
        return tuple(there)

    def columns(self, samples: Sequence[Any], length: Callable[[Any, Shape], Shape]) -> Any:
        """Return the tree of arrays: fields padded to `length(name, longest)`, and masks.

        Raises:
            FeedMismatch: The samples differ in structure, or rows in more than their length.
            ValueError: A row is too long, or `pad` does not fit its dtype.
        """
        first = samples[0]
        names = self.chosen(first)
        columns: dict[Any, Any] = {}
        masks: dict[Any, Any] = {}
        _check_keys(samples)
        fields = _values_by_field(samples)
        if self.alike:
            length = partial(_of_one_length, length, self._longest(fields, names))
        for name, values in fields.items():
            if name in names:
                columns[name], masks[name] = self._padded(values, name, length)
            else:
                columns[name] = stack_field(values, name)
        if type(first) is tuple:
            return *columns.values(), *masks.values()
        masks = {f"{name}_mask": mask for name, mask in masks.items()}
        if taken := masks.keys() & columns.keys():
            raise errors.FeedMismatch(
                f"{self.call}: the samples have a field {min(taken)!r}, and the mask that it adds "
                "has that name: rename the field."
            )
        if not isinstance(first, Mapping):
            return columns | masks
        paths = _paths(first)
        beside = {f"{name}_mask": (*paths[name][:-1], f"{paths[name][-1]}_mask") for name in names}
        return _nested(columns | masks, paths | beside)

    def _longest(self, fields: Mapping[Any, Sequence[Any]], names: Fields) -> int:
        """Return the length of the longest row of these fields, along any padded axis."""
        sizes = (
            np.shape(row)[: by_name(self.axes, name, 1)] for name in names for row in fields[name]
        )
        return max(chain.from_iterable(sizes), default=0)

    def _padded(
        self, values: list[Any], name: Any, length: Callable[[Any, Shape], Shape]
    ) -> tuple[Array, Array]:
        rows = list(map(np.asarray, values))
        axes = by_name(self.axes, name, 1)
        shapes = [row.shape[:axes] for row in rows]
        if (least := min(map(len, shapes))) < axes:
            raise self._too_few_axes(values, name, axes, least)
        sizes: Array = np.array(shapes)
        long = length(name, tuple(sizes.max(0).tolist()))
        if (over := (sizes > long).any(1)).any():
            if not self.truncates:
                raise ValueError(
                    f"{self.call}: a row of {name!r} has {_times(shapes[int(over.argmax())])} "
                    f"values, more than {_times(long)}: give a longer length, or "
                    "longer='truncate'."
                )
            rows = [row[tuple(map(slice, long))] for row in rows]
            sizes = np.minimum(sizes, long)
        array = self._blank(rows, name, axes, long)
        slices: list[list[slice]] = []
        mask: Array = np.ones(len(rows), bool)
        for axis, size in enumerate(long):
            numbers, filled = np.arange(size), sizes[:, axis]
            if by_name(self.side, name, "right") == "left":
                slices.append([*map(slice, (size - filled).tolist(), repeat(size))])
                inside = numbers >= (size - filled)[:, None]
            else:
                slices.append([*map(slice, filled.tolist())])
                inside = numbers < filled[:, None]
            mask = (
                mask[..., None] & inside.reshape(len(rows), *[1] * axis, size) if axis else inside
            )
        for into, row, there in zip(array, rows, zip(*slices, strict=True), strict=True):
            into[there] = row
        return array, mask

    def _too_few_axes(
        self, values: list[Any], name: Any, axes: int, least: int
    ) -> errors.FeedMismatch:
        if all_none(values, f"a sample[{name!r}]"):
            return errors.FeedMismatch(
                f"{self.call}: the field {name!r} is None, and is to be padded: name the fields "
                "that differ in length, as fields=[...], or give it a value in .map(fn)."
            )
        return errors.FeedMismatch(
            f"{self.call}: axes={axes} of {name!r} are padded, and a row has {least}: give rows of "
            f"{axes} axes or more, or axes={max(least, 1)}."
        )

    def _blank(self, rows: list[Array], name: Any, axes: int, long: Shape) -> Array:
        """Return an array full of padding, for rows that differ only in their first axes."""
        kinds = {row.dtype for row in rows if row.size} or {row.dtype for row in rows}
        dtype = kinds.pop() if len(kinds) == 1 else np.result_type(*kinds)
        inner = {row.shape[axes:] for row in rows}
        if len(inner) > 1:
            only = "the first axis is" if axes == 1 else f"the first {axes} axes are"
            raise errors.FeedMismatch(
                f"{self.call}: rows of {name!r} differ in more than their length (behind it, they "
                f"have the shapes {', '.join(map(str, sorted(inner)))}): only {only} padded."
            )
        array = np.zeros((len(rows), *long, *inner.pop()), dtype)
        if (pad := self.pad_of(name, dtype)) != 0:
            array[:] = pad
        return array

    def pad_of(self, name: Any, dtype: np.dtype[Any]) -> Any:
        """Return the fill value of a field, in its dtype.

        Raises:
            ValueError: The dtype cannot hold it.
        """
        pad = by_name(self.pad, name, 0)
        if type(pad) is int and pad == 0:
            return 0
        try:
            return in_dtype(pad, dtype)
        except ValueError:
            raise ValueError(
                f"{self.call}: pad={pad!r} does not fit the dtype of field {name!r}, {dtype}: give "
                "another value, or cast the field to a wider dtype before."
            ) from None


def fields_of(sample: Any) -> dict[Any, Any]:
    """Return the fields by name: indices for tuples, `tokens` for a bare array or list.

    >>> fields_of({"text": [1]}), fields_of((1, 2)), fields_of([7, 8])
    ({'text': [1]}, {0: 1, 1: 2}, {'tokens': [7, 8]})
    >>> fields_of({"question": {"text": [1], "id": 2}})
    {'question.text': [1], 'question.id': 2}
    """
    return {name: field(sample) for name, field in field_getters(sample).items()}


def field_getters(first: Any) -> dict[Any, Callable[[Any], Any]]:
    """Return a getter for each field of samples that are structured like the first one.

    >>> field_getters({"text": [1]})["text"]({"text": [2, 3]})
    [2, 3]
    """
    if isinstance(first, Mapping):
        paths = _paths(first).items()
        return {
            name: itemgetter(name) if len(path) == 1 else partial(reduce, getitem, path)
            for name, path in paths
        }
    if isinstance(first, tuple) and not hasattr(first, "_fields"):
        return {place: itemgetter(place) for place in range(len(first))}
    if isinstance(first, list) or (parts := branches(first)) is None:
        return {BARE: itself}
    return {name: attrgetter(name) for name in getattr(first, "_fields", parts)}


def _values_by_field(samples: Sequence[Any]) -> dict[Any, list[Any]]:
    """Return the values of each field, by name."""
    fields = {}
    for name, field in field_getters(samples[0]).items():
        try:
            fields[name] = list(map(field, samples))
        except (AttributeError, IndexError, KeyError, TypeError):
            stack(samples)  # raises the error that names the sample
            raise
    return fields


def _of_one_length(
    length: Callable[[Any, Shape], Shape], longest: int, name: Any, shape: Shape
) -> Shape:
    """Return the length of a field in a batch whose fields all share one."""
    return length(name, (longest,) * len(shape))


def by_name(given: Any, name: Any, otherwise: Any) -> Any:
    """Return an argument's value for a field: one value for all, or a dict of values by field.

    >>> by_name(5, "text", 0), by_name({"text": 5}, "text", 0), by_name({"text": 5}, "label", 0)
    (5, 5, 0)
    """
    return given.get(name, otherwise) if isinstance(given, Mapping) else given


def _paths(sample: Mapping[Any, Any], above: tuple[Any, ...] = ()) -> dict[Any, tuple[Any, ...]]:
    """Return the keys that lead to each field; fields of nested dicts have dotted names."""
    paths: dict[Any, tuple[Any, ...]] = {}
    for key, part in sample.items():
        path = (*above, key)
        name = ".".join(map(str, path)) if above else key
        found = _paths(part, path) if type(part) is dict and part else {name: path}
        if taken := paths.keys() & found.keys():
            raise errors.FeedMismatch(
                f"two fields of a sample are named {min(taken)!r}, one of them in a dict "
                "inside a dict: rename one."
            )
        paths |= found
    return paths


def _nested(values: Mapping[Any, Any], paths: Mapping[Any, tuple[Any, ...]]) -> dict[Any, Any]:
    """Turn values by name into nested dicts, following their keys."""
    made: dict[Any, Any] = {}
    for name, value in values.items():
        *above, last = paths[name]
        inside = made
        for key in above:
            inside = inside.setdefault(key, {})
        inside[last] = value
    return made


def _check_keys(samples: Sequence[Any]) -> None:
    """Raise an error if a sample has fields that the first one lacks."""
    first = samples[0]
    if not isinstance(first, Mapping):
        return
    for above in {path[:-1] for path in _paths(first).values()}:
        try:
            same = len({len(reduce(getitem, above, sample)) for sample in samples}) == 1
        except (IndexError, KeyError, TypeError):
            same = False
        if not same:
            stack(samples)  # raises the error that names the sample


def _times(shape: Shape) -> str:
    return " x ".join(map(str, shape))


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim > 0)


def ragged_fields(reader: Reader[Any], names: Fields | None) -> Fields | None:
    """Return the fields that differ in length; None if only reading samples shows them.

    >>> from jreader import arrays, ragged
    >>> rows = arrays(text=ragged(np.arange(3), [0, 1, 3]), label=[0, 1])
    >>> ragged_fields(rows, None), ragged_fields(rows, ("label",)), ragged_fields(lambda: [], None)
    (('text',), None, None)
    """
    plane = indexed(seeded(reader, 0))
    if plane is None:
        return None
    parts = fields_of(plane.columns)
    found = tuple(name for name, column in parts.items() if isinstance(column, Ragged))
    if names is None:
        return found or None
    return names if set(names) <= set(found) else None


def blank(columns: Any) -> Any | None:
    """Return a zero sample with rows of one value, as the columns show it; None if they do not.

    >>> from jreader import arrays, ragged
    >>> blank(arrays(text=ragged(np.arange(3), [0, 1, 3]), image=np.ones((2, 2))).columns)
    {'text': array([0]), 'image': array([0., 0.])}
    """
    zeros = []
    for column in leaves(columns):
        if isinstance(column, Ragged):
            zeros.append(np.zeros((1, *column.shape[2:]), column.dtype))
        elif isinstance(column, (np.ndarray, ConcatArray)):
            zeros.append(np.zeros(column.shape[1:], column.dtype)[()])
        else:
            return None
    return rebuilt(columns, iter(zeros))


def example(sample: Any, shapes: Mapping[Any, Shape]) -> Any:
    """Return a sample like another, with its fields resized to other lengths.

    >>> example({"text": [1, 2], "label": 5}, {"text": (3,)})
    {'text': array([1, 2, 1]), 'label': 5}
    """
    parts = fields_of(sample)
    for name, shape in shapes.items():
        value = np.asarray(parts[name])
        parts = {**parts, name: np.resize(value, (*shape, *value.shape[len(shape) :]))}
    if isinstance(sample, Mapping):
        return _nested(parts, _paths(sample))
    bare = isinstance(sample, list) or branches(sample) is None
    return parts[BARE] if bare else joined(sample, parts)


def checked_fields(call: str, names: Any) -> Fields | None:
    """Return the argument `fields` as a tuple of names."""
    if names is None:
        return None
    if isinstance(names, (str, int)):
        return (names,)
    if not isinstance(names, Sequence) or not names:
        raise TypeError(
            f"fields of {call} needs a list of names, such as fields=['tokens'], not {names!r}."
        )
    return tuple(names)


def checked_lengths(call: str, name: str, lengths: Any) -> tuple[int, ...]:
    """Check increasing lengths; return them as a tuple.

    >>> checked_lengths("bucket(reader, bounds)", "bounds", [256, 128])
    Traceback (most recent call last):
    ValueError: bounds of bucket(reader, bounds) needs increasing lengths, not [256, 128]: type \
bounds=[128, 256].

    Raises:
        TypeError: They are not a sequence of whole numbers.
        ValueError: There are none, one is less than 1, or they do not increase.
    """
    if not isinstance(lengths, (Sequence, np.ndarray)) or isinstance(lengths, str):
        raise TypeError(
            f"{name} of {call} needs a list of lengths, such as {name}=[128, 256, 512], not "
            f"{lengths!r}."
        )
    numbers = [errors.check_number(f"{name} of {call}", each, 1) for each in lengths]
    if not numbers:
        raise ValueError(
            f"{name} of {call} is empty: type lengths, for example {name}=[128, 256, 512]."
        )
    if numbers != sorted(set(numbers)):
        raise ValueError(
            f"{name} of {call} needs increasing lengths, not {numbers}: type "
            f"{name}={sorted(set(numbers))}."
        )
    return tuple(numbers)
