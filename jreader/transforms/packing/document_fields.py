"""The documents to pack: fields side by side, with known lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jreader.errors import FeedMismatch
from jreader.readers import Plane, described, leaves
from jreader.readers.columns import Array, ArrayColumn, Dense, column_of, offsets_of
from jreader.readers.holders import Held
from jreader.readers.made_rows import MadeRows
from jreader.readers.ragged import Ragged

SEGMENT_IDS, POSITIONS = "segment_ids", "positions"

_CALL = "pack(reader, size)"
_BARE = "tokens"


class Packed(NamedTuple):
    """The fields of documents to pack; or the columns of these fields, by name.

    Attributes:
        tokens: The fields with a value per token; None for all that are not in `beside`.
        beside: The fields with one value per document.
        apart: Whether each field of tokens has its own lengths.
    """

    tokens: Any = None
    beside: Any = ()
    apart: bool = False

    def names(self, tree: Mapping[str, Any]) -> list[str]:
        """Return the token fields of a document.

        Raises:
            FeedMismatch: A field is missing, or has a name that packed rows use themselves.
        """
        for name in (*(self.tokens or ()), *self.beside):
            if name not in tree:
                raise FeedMismatch(
                    f"{_CALL} was given the field {name!r}, and the documents have "
                    f"{', '.join(map(repr, tree))}: name some of these."
                )
        wanted = {*(tree if self.tokens is None else self.tokens)}.difference(self.beside)
        names = [name for name in tree if name in wanted]
        own = {above + each for above in self.above(names) for each in (SEGMENT_IDS, POSITIONS)}
        if taken := own.intersection((*names, *self.beside)):
            raise FeedMismatch(
                f"{_CALL} gives rows with a field {min(taken)!r} of its own, and the documents "
                f"have one too: rename theirs, or leave it out with fields=[...]."
            )
        return names

    def above(self, names: Iterable[str]) -> list[str]:
        """Return the prefixes of the names of segment ids and positions."""
        return [f"{name}_" for name in names] if self.apart else [""]


class Documents:
    """Documents whose fields have one value, or one array, per token.

    Args:
        fields: The columns of fields, by their names in packed rows.
        count: The number of documents.
        route: Maps an array of document numbers to the rows of each column.
        first: The number of the first document in the data, for errors.
        holding: Maps rows of the first column to document numbers.
    """

    def __init__(
        self,
        fields: Packed,
        count: int,
        route: Callable[[Array], list[Array]],
        first: int = 0,
        holding: Callable[[Array], Held] = Held.of,
    ) -> None:
        self.columns: Mapping[str, Ragged] = fields.tokens
        self.beside: Mapping[str, ArrayColumn] = fields.beside
        self.apart, self.above = fields.apart, fields.above(self.columns)
        self.count, self.route, self.first, self.holding = count, route, first, holding

    @classmethod
    def of_plane(cls, plane: Plane, chosen: Packed) -> Documents | None:
        """Return the documents of a plane; None if a field's column has another type."""
        tree, every = plane.columns, leaves(plane.columns)
        if isinstance(tree, Ragged):
            tree = {_BARE: tree}
        if type(tree) is not dict or len(tree) != len(every):
            return None
        names = chosen.names(tree), chosen.beside
        columns, beside = ({name: column_of(tree[name]) for name in each} for each in names)
        kinds = [*[Ragged] * len(columns), *[ArrayColumn] * len(beside)]
        if not all(map(isinstance, [*columns.values(), *beside.values()], kinds)):
            return None
        picked = [list(tree).index(name) for name in (*columns, *beside)]

        def route(documents: Array) -> list[Array]:
            rows = plane.rows(documents)
            return [rows[place] for place in picked]

        holding = partial(plane.holding, column=picked[0])
        return cls(Packed(columns, beside, chosen.apart), plane.length, route, holding=holding)

    @classmethod
    def of_samples(cls, samples: Sequence[Any], chosen: Packed, first: int) -> Documents:
        """Return the documents in samples that were read, at least one.

        Raises:
            FeedMismatch: They are not documents.
        """
        trees = [_named(sample) for sample in samples]
        columns = {
            name: _joined_rows(name, [_field(tree, name) for tree in trees])
            for name in chosen.names(trees[0])
        }
        beside = {
            name: Dense(_joined_rows(name, [_field(tree, name, 0)[None] for tree in trees]).values)
            for name in chosen.beside
        }
        many = len(columns) + len(beside)
        fields = Packed(columns, beside, chosen.apart)
        return cls(fields, len(samples), lambda rows: [rows] * many, first)

    def lengths(self, low: int, high: int) -> Array:
        """Return the number of tokens of documents `low` to `high - 1`, as `lengths_of` does.

        Raises:
            FeedMismatch: The fields of a document differ in length, but must not.
        """
        if self.apart:
            return self.lengths_of(np.arange(low, high))
        routed = self.route(np.arange(low, high))
        fields = [c.lengths(rows) for c, rows in zip(self.columns.values(), routed, strict=False)]
        names = list(self.columns)
        for name, other in zip(names[1:], fields[1:], strict=True):
            if (wrong := other != fields[0]).any():
                at = int(wrong.argmax())
                raise FeedMismatch(
                    f"{_CALL} needs fields with one value for each token, and document "
                    f"{self.first + low + at:,} has {fields[0][at]} of {names[0]!r} and "
                    f"{other[at]} of {name!r}: leave one out, with fields=[{names[0]!r}], or give "
                    f"each a length, as in pack({{{names[0]!r}: 512, {name!r}: 128}})."
                )
        return fields[0].astype(np.int64, copy=False)

    def lengths_of(self, documents: Array) -> Array:
        """Return the number of tokens of these documents; [documents, fields] if fields differ."""
        each = zip(self.columns.values(), self.route(documents), strict=False)
        if not self.apart:
            column, rows = next(each)
            return column.lengths(rows).astype(np.int64, copy=False)
        return np.stack([column.lengths(rows) for column, rows in each], 1).astype(np.int64)

    def by_field(self, lengths: Any) -> Any:
        """Return lengths by field name, if each field has its own."""
        return dict(zip(self.columns, lengths.tolist(), strict=True)) if self.apart else lengths

    def begins(self, documents: Array, names: Sequence[str]) -> list[Array]:
        """Return where these documents begin in the values of the named fields, in field order."""
        routed = self.route(documents.astype(np.int64, copy=False))
        each = zip(self.columns.items(), routed, strict=False)
        return [column.offsets[rows] for (name, column), rows in each if name in names]

    def values(self, documents: Array) -> Iterator[tuple[str, Array]]:
        """Yield the name and values of each field that has one value per document."""
        routed = self.route(documents.astype(np.int64, copy=False))[len(self.columns) :]
        for (name, column), rows in zip(self.beside.items(), routed, strict=True):
            yield name, column.gather(rows)


def _named(sample: Any) -> Mapping[str, Any]:
    """Return the fields of a sample by name."""
    if isinstance(sample, tuple):
        raise FeedMismatch(
            f"{_CALL} needs documents, or dicts of them, and got {described(sample)}: name the "
            f"fields, with arrays(tokens=..., ...), or with .map(lambda sample: "
            f'{{"tokens": sample[0], ...}}).'
        )
    return sample if isinstance(sample, Mapping) else {_BARE: sample}


def _field(tree: Mapping[str, Any], name: str, axes: int = 1) -> Any:
    """Return a document's field, as an array or column; by default it needs an axis of tokens."""
    if isinstance(made := tree.get(name), ArrayColumn) and axes:
        return made
    try:
        values = np.asarray(tree[name])
    except (KeyError, ValueError):  # the field is missing, or has rows of several lengths
        values = np.asarray(None)
    if values.ndim < axes or values.dtype.kind in "OUST":
        given = f"{name!r}: {described(tree[name])}" if name in tree else f"no {name!r}"
        needed = "arrays of tokens" if axes else f"numbers in per_document=[{name!r}]"
        raise FeedMismatch(
            f"{_CALL} needs {needed}, and got a document with {given}: turn texts into numbers, "
            "with .map(tokenize); a field of one value for each document goes into "
            "per_document=[...], with documents=n; leave out all others, with fields=[...]."
        )
    return values


def _joined_rows(name: str, rows: Sequence[Any]) -> Ragged:
    """Join rows that were read to a column; empty rows may have any dtype, as `[]` has."""
    full = [row for row in rows if len(row)] or rows[:1]
    if len(kinds := {(str(row.dtype), row.shape[1:]) for row in full}) > 1:
        seen = " and ".join(f"{dtype}[..., {shape}]" for dtype, shape in sorted(kinds)[:2])
        raise FeedMismatch(
            f"{_CALL} needs documents of one dtype and shape, and {name!r} has {seen}: make them "
            f"alike, with .map(...)."
        )
    there = all(isinstance(row, np.ndarray) for row in full)
    whole = np.concatenate(full) if there else MadeRows.concat([*map(MadeRows.of, full)])
    return Ragged(whole, offsets_of(list(map(len, rows))))
