"""What is packed: the fields of documents side by side, whose lengths are known."""

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
    """Fields of documents, or the columns of these fields by their names.

    Attributes:
        tokens: Those with a value for each token; None for all that are not in `beside`.
        beside: Those with one value for each document.
        apart: Whether each field of tokens has lengths of its own.
    """

    tokens: Any = None
    beside: Any = ()
    apart: bool = False

    def names(self, tree: Mapping[str, Any]) -> list[str]:
        """The fields of tokens that a document has.

        Raises:
            FeedMismatch: A field is not there, or has a name that packed rows use themselves.
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
        """What the names of segment ids and positions begin with."""
        return [f"{name}_" for name in names] if self.apart else [""]


class Documents:
    """Documents whose fields have one value, or one array, for each token.

    Args:
        fields: The columns of fields, by their names in packed rows.
        count: The number of documents.
        route: Gives, for an array of numbers of documents, the rows of each column.
        first: The number of the first one in the data, which errors name.
        holding: Gives, for rows of the first column, the numbers of the documents.
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
        """The documents of a plane; None if not all fields are columns of their kind."""
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
        """The documents of samples that were read, at least one.

        Raises:
            FeedMismatch: They are no documents.
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
        """The number of tokens of documents `low` to `high - 1`, as `lengths_of` gives it.

        Raises:
            FeedMismatch: The fields of a document differ in length, and should not.
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
        """The number of tokens of these documents; if they differ by field, [documents, fields]."""
        each = zip(self.columns.values(), self.route(documents), strict=False)
        if not self.apart:
            column, rows = next(each)
            return column.lengths(rows).astype(np.int64, copy=False)
        return np.stack([column.lengths(rows) for column, rows in each], 1).astype(np.int64)

    def by_field(self, lengths: Any) -> Any:
        """Lengths by the names of their fields, where each field has its own."""
        return dict(zip(self.columns, lengths.tolist(), strict=True)) if self.apart else lengths

    def begins(self, documents: Array, names: Sequence[str]) -> list[Array]:
        """Where these documents begin in the values of some fields, in the order of all."""
        routed = self.route(documents.astype(np.int64, copy=False))
        each = zip(self.columns.items(), routed, strict=False)
        return [column.offsets[rows] for (name, column), rows in each if name in names]

    def values(self, documents: Array) -> Iterator[tuple[str, Array]]:
        """The values that these documents have in each field beside the packed ones, by name."""
        routed = self.route(documents.astype(np.int64, copy=False))[len(self.columns) :]
        for (name, column), rows in zip(self.beside.items(), routed, strict=True):
            yield name, column.gather(rows)


def _named(sample: Any) -> Mapping[str, Any]:
    """The fields of a sample by name."""
    if isinstance(sample, tuple):
        raise FeedMismatch(
            f"{_CALL} needs documents, or dicts of them, and got {described(sample)}: name the "
            f"fields, with arrays(tokens=..., ...), or with .map(lambda sample: "
            f'{{"tokens": sample[0], ...}}).'
        )
    return sample if isinstance(sample, Mapping) else {_BARE: sample}


def _field(tree: Mapping[str, Any], name: str, axes: int = 1) -> Any:
    """A field of a document, as an array, or a column; by default one with an axis of tokens."""
    if isinstance(made := tree.get(name), ArrayColumn) and axes:
        return made
    try:
        values = np.asarray(tree[name])
    except (KeyError, ValueError):  # it has no such field, or rows of several lengths
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
    """A column of rows that were read; empty ones may be of any dtype, as `[]` is."""
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
