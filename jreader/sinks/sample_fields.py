"""Find the fields that all written samples share, and the samples that differ.

A field is a leaf of the tree of a sample; its name is the path to it, such as `point.x`. The first
samples define each field, and every later one is checked against them: a file has one type for all
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jreader.errors import FeedMismatch
from jreader.readers import Columns, branches, described, leaves
from jreader.readers.trees import named_leaves, same_structure
from jreader.sources.stored_rows import NUMBERS, Kind, common, kind_of


@dataclass(frozen=True)
class Field:
    """One leaf of every sample.

    Attributes:
        name: The path to it, with dots; "" if samples are bare values.
        kind: Its kind in every sample; "object" if it has no dtype.
    """

    name: str
    kind: Kind


@dataclass(frozen=True)
class SampleFields:
    """The fields of samples, defined by the first ones.

    >>> fields = SampleFields.of("npy", [{"x": np.zeros(2), "label": 5}])
    >>> [(field.name, field.kind.shape) for field in fields.fields]
    [('x', (2,)), ('label', ())]
    >>> fields.columns([{"label": 7, "x": np.ones(2)}], first=1)
    [array([[1., 1.]]), array([7])]
    >>> fields.columns([{"label": 7.5, "x": np.ones(2)}], first=1)
    Traceback (most recent call last):
    jreader.errors.FeedMismatch: sample 1 cannot be written as 'npy': field 'label' is 7.5, and in \
the samples before it int64[]. Make them alike in a .map(fn) before.

    Attributes:
        format: The format to write.
        tree: The first sample, whose structure all samples have.
        fields: Its leaves.
    """

    format: str
    tree: Any
    fields: tuple[Field, ...]

    @classmethod
    def of(
        cls, form: str, samples: Sequence[Any], ragged: Sequence[str] | None = None
    ) -> SampleFields:
        """Define the fields by the first samples.

        Args:
            form: The format to write.
            samples: The first samples, at least one.
            ragged: Fields whose arrays may differ in their first axis, in addition to those that do
                so in these samples or are empty there; None to allow no ragged fields.

        Raises:
            FeedMismatch: A field in `ragged` is missing, or cannot be ragged.
        """
        tree = samples[0]
        if not leaves(tree):
            raise cannot_write(form, 0, "it has no fields.")
        kinds = [*map(field_kind, leaves(tree))]
        names = [name for name, _ in named_leaves(tree)]
        made = cls(form, tree, tuple(map(Field, names, kinds)))
        if ragged is None:
            return made
        if unknown := [name for name in ragged if name not in names]:
            said = f"ragged={list(ragged)!r} names {unknown[0]!r}, and the samples have the fields"
            raise FeedMismatch(f"{said} {', '.join(map(repr, names))}.")
        kinds = _kinds_with_ragged(tree, kinds, samples)
        fields = [made.as_ragged(Field(*each), ragged) for each in zip(names, kinds, strict=True)]
        return cls(form, tree, tuple(fields))

    def as_ragged(self, field: Field, ragged: Sequence[str]) -> Field:
        """Return the field as ragged, if the user says so, or it is empty so far."""
        kind, asked = field.kind, field.name in ragged
        if kind.how == "array" and kind.shape and (asked or not kind.shape[0]):
            return Field(field.name, Kind("ragged", kind.dtype, kind.shape[1:]))
        if asked and kind.how != "ragged":
            raise self.refused(field, "ragged= is for arrays with at least one axis")
        return field

    def columns(self, batch: Sequence[Any], first: int) -> list[Any]:
        """Return a column per field: an array, or a list if lengths differ or there is no dtype.

        Args:
            batch: Samples.
            first: The number of the first one, for errors.

        Raises:
            FeedMismatch: A sample has other fields, or a field of another type or shape.
        """
        if isinstance(batch, Columns) and all(type(each) is np.ndarray for each in batch.arrays):
            return self._gathered(batch, first)
        if branches(self.tree) is None:
            return self._columns([[sample] for sample in batch], first)
        if (columns := self._flat(batch)) is not None:
            return self._checked(columns, first)
        table: list[list[Any]] = []
        for number, sample in enumerate(batch):
            if not same_structure(self.tree, sample):
                self._columns(table, first)  # raises earlier mistakes first
                raise self._other_fields(sample, first + number)
            table.append(_ordered_leaves(self.tree, sample))
        return self._columns(table, first)

    def _gathered(self, batch: Columns[Any], first: int) -> list[Any]:
        """Return the arrays of a batch, one per field."""
        if not same_structure(self.tree, batch.columns):
            raise self._other_fields(batch[0], first)
        parts = _ordered_leaves(self.tree, batch.columns)
        for place, (field, part) in enumerate(zip(self.fields, parts, strict=True)):
            if part.ndim == 1 and not part.dtype.isnative:  # single numbers are native too
                parts[place] = part.astype(part.dtype.newbyteorder("="))
            elif not _is_of_kind(Kind("array", part.dtype, part.shape[1:]), field.kind):
                raise self._differs(field, part[0], first)
        return parts

    def _flat(self, batch: Sequence[Any]) -> list[list[Any]] | None:
        """Transpose dicts of leaves into values per field, quickly; None for other samples."""
        tree = self.tree
        if type(tree) is not dict or any(branches(part) is not None for part in tree.values()):
            return None
        names = tree.keys()
        if not all(type(sample) is dict and sample.keys() == names for sample in batch):
            return None
        return [[sample[name] for sample in batch] for name in names]

    def _columns(self, table: list[list[Any]], first: int) -> list[Any]:
        return self._checked([list(column) for column in zip(*table, strict=True)], first)

    def _checked(self, values: list[list[Any]], first: int) -> list[Any]:
        kinds = [field.kind for field in self.fields]
        columns = [*map(_as_column, values, kinds)]
        unsure = [place for place, column in enumerate(columns) if column is None]
        wrong = [
            (number, place)
            for place in unsure
            for number, value in enumerate(values[place])
            if not _is_of_kind(field_kind(value), kinds[place])
        ]
        if wrong:
            number, place = min(wrong)
            raise self._differs(self.fields[place], values[place][number], first + number)
        for place in unsure:
            stacked, dtype = kinds[place].how == "array", kinds[place].dtype
            columns[place] = np.array(values[place], dtype) if stacked else values[place]
        return columns

    def refused(self, field: Field, why: str) -> FeedMismatch:
        """Return the error for a field that the format cannot hold in any sample."""
        names = [each.name for each in self.fields]
        value = leaves(self.tree)[names.index(field.name)]
        return cannot_write(self.format, 0, f"{_name_of(field)} is {_shown(value)}, and {why}.")

    def _differs(self, field: Field, value: Any, number: int) -> FeedMismatch:
        before = _kind_in_words(field.kind)
        said = f"{_name_of(field)} is {_shown(value)}, and in the samples before it {before}"
        how = "make them alike in a .map(fn) before"
        if common(field_kind(value), field.kind).how == "ragged":
            how += ', or write as "parquet"'
            if self.format in ("arrow", "parquet"):
                how = f"type ragged={[field.name]!r}, which says that its length differs"
        return cannot_write(self.format, number, f"{said}. {how[0].upper() + how[1:]}.")

    def _other_fields(self, sample: Any, number: int) -> FeedMismatch:
        names = ", ".join(repr(field.name) for field in self.fields)
        said = f"it is {described(sample)}, and the samples before it have the fields {names}"
        return cannot_write(self.format, number, f"{said}. Make them alike in a .map(fn) before.")


def cannot_write(form: str, number: int, why: str) -> FeedMismatch:
    """Return the error for a sample that a format cannot hold."""
    return FeedMismatch(f"sample {number:,} cannot be written as {form!r}: {why}")


def _kinds_with_ragged(tree: Any, kinds: list[Kind], samples: Sequence[Any]) -> list[Kind]:
    """Make kinds of leaves ragged where the samples' arrays are."""
    for sample in samples:
        if not same_structure(tree, sample):
            break  # raised when it is written
        both = map(common, kinds, map(field_kind, _ordered_leaves(tree, sample)))
        kinds = [new if new.how == "ragged" else old for old, new in zip(kinds, both, strict=True)]
    return kinds


def field_kind(leaf: Any) -> Kind:
    """Return the kind of a leaf; an array without axes counts as a number.

    >>> field_kind(3), field_kind(np.array(2, np.int8)).dtype
    (Kind(how='array', dtype=dtype('int64'), shape=()), dtype('int8'))
    """
    bare = type(leaf) is np.ndarray and not leaf.ndim
    return kind_of(leaf[()] if bare else leaf)


def _is_of_kind(found: Kind, kind: Kind) -> bool:
    return found == kind or (kind.how == "ragged" and common(kind, found) == kind)


def _as_column(values: list[Any], kind: Kind) -> Any:
    """Convert values to a column, if a quick check shows that all fit the kind; else None."""
    types, dtype, shape = {*map(type, values)}, kind.dtype, kind.shape
    if kind.how != "array":
        return values if types == {{"text": str, "bytes": bytes}.get(kind.how)} else None
    if shape:
        same = types == {np.ndarray} and all(
            value.dtype == dtype and value.shape == shape for value in values
        )
        return np.stack(values, dtype=dtype) if same else None
    return _as_numbers(values, dtype, *types) if len(types) == 1 else None


def _as_numbers(values: list[Any], dtype: np.dtype[Any], one: type) -> Any:
    """Convert values of one type to an array, if the type matches the dtype; else None."""
    if dtype.kind not in "biuf" or not (one is dtype.type or NUMBERS.get(one) == dtype):
        return None
    try:
        return np.array(values, dtype)
    except OverflowError:  # an int is too large
        return None


def _ordered_leaves(tree: Any, sample: Any) -> list[Any]:
    """Return the leaves of a sample, ordered as in a tree of the same structure."""
    if type(tree) is dict and list(tree) != list(sample):
        sample = {key: sample[key] for key in tree}
    if type(tree) is dict and any(branches(part) is not None for part in tree.values()):
        return [leaf for key, part in tree.items() for leaf in _ordered_leaves(part, sample[key])]
    return leaves(sample)


def _name_of(field: Field) -> str:
    return f"field {field.name!r}" if field.name else "it"


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, bytes) else described(value)


def _kind_in_words(kind: Kind) -> str:
    if kind.how == "ragged":
        return f"{kind.dtype}[...{''.join(f', {size}' for size in kind.shape)}]"
    if kind.how == "array":
        return f"{kind.dtype}[{', '.join(map(str, kind.shape))}]"
    return {"text": "a str", "bytes": "bytes"}.get(kind.how, "an object")
