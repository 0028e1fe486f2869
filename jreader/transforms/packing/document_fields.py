"""What is packed: the fields of documents side by side, whose lengths are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from jreader.errors import FeedMismatch
from jreader.readers import Plane, described, leaves
from jreader.readers.columns import Array, offsets_of
from jreader.readers.holders import Held
from jreader.readers.ragged import Ragged

SEGMENT_IDS, POSITIONS = "segment_ids", "positions"

_CALL = "pack(reader, size)"
_BARE = "tokens"


class Documents:
    """Documents whose fields have one value, or one array, for each token.

    Args:
        columns: The column of each field, by its name in packed rows.
        count: The number of documents.
        route: Gives, for an array of numbers of documents, the rows of each column.
        first: The number of the first one in the data, which errors name.
        holding: Gives, for rows of the first column, the numbers of the documents.

    Raises:
        FeedMismatch: A name is one that packed rows use themselves.
    """

    def __init__(
        self,
        columns: Mapping[str, Ragged],
        count: int,
        route: Callable[[Array], list[Array]],
        first: int = 0,
        holding: Callable[[Array], Held] = Held.of,
    ) -> None:
        for name in (SEGMENT_IDS, POSITIONS):
            if name in columns:
                raise FeedMismatch(
                    f"{_CALL} gives rows with a field {name!r} of its own, and the documents have "
                    f"one too: rename theirs, or leave it out with fields=[...]."
                )
        self.columns, self.count, self.route, self.first = columns, count, route, first
        self.holding = holding

    @classmethod
    def of_plane(cls, plane: Plane, chosen: Sequence[str] | None) -> Documents | None:
        """The documents of a plane; None if not all fields are ragged columns."""
        tree, every = plane.columns, leaves(plane.columns)
        if isinstance(tree, Ragged):
            tree = {_BARE: tree}
        if type(tree) is not dict or len(tree) != len(every):
            return None
        _check_names(tree, chosen)
        columns = {name: tree[name] for name in tree if chosen is None or name in chosen}
        if not all(isinstance(column, Ragged) for column in columns.values()):
            return None
        picked = [list(tree).index(name) for name in columns]

        def route(documents: Array) -> list[Array]:
            rows = plane.rows(documents)
            return [rows[place] for place in picked]

        holding = partial(plane.holding, column=picked[0])
        return cls(columns, plane.length, route, holding=holding)

    @classmethod
    def of_samples(
        cls, samples: Sequence[Any], chosen: Sequence[str] | None, first: int
    ) -> Documents:
        """The documents of samples that were read, at least one.

        Raises:
            FeedMismatch: They are no documents.
        """
        trees = [_named(sample) for sample in samples]
        _check_names(trees[0], chosen)
        columns = {}
        for name in trees[0]:
            if chosen is None or name in chosen:
                columns[name] = _joined_rows(name, [_field(tree, name) for tree in trees])
        return cls(columns, len(samples), lambda rows: [rows] * len(columns), first)

    def lengths(self, low: int, high: int) -> Array:
        """The number of tokens of documents `low` to `high - 1`.

        Raises:
            FeedMismatch: The fields of a document differ in length.
        """
        routed = self.route(np.arange(low, high))
        fields = [c.lengths(rows) for c, rows in zip(self.columns.values(), routed, strict=True)]
        names = list(self.columns)
        for name, other in zip(names[1:], fields[1:], strict=True):
            if (wrong := other != fields[0]).any():
                at = int(wrong.argmax())
                raise FeedMismatch(
                    f"{_CALL} needs fields with one value for each token, and document "
                    f"{self.first + low + at:,} has {fields[0][at]} of {names[0]!r} and "
                    f"{other[at]} of {name!r}: leave one out, with fields=[{names[0]!r}]."
                )
        return fields[0].astype(np.int64, copy=False)

    def lengths_of(self, documents: Array) -> Array:
        """The number of tokens of these documents."""
        column, rows = next(iter(self.columns.values())), self.route(documents)[0]
        return column.lengths(rows).astype(np.int64, copy=False)

    def begins(self, documents: Array) -> list[Array]:
        """Where these documents begin in the values of each field."""
        routed = self.route(documents.astype(np.int64, copy=False))
        return [c.offsets[rows] for c, rows in zip(self.columns.values(), routed, strict=True)]


def _check_names(tree: Mapping[str, Any], chosen: Sequence[str] | None) -> None:
    for name in chosen or ():
        if name not in tree:
            raise FeedMismatch(
                f"{_CALL} was given fields={list(chosen or ())!r}, and the documents have "
                f"{', '.join(map(repr, tree))}: name some of these."
            )


def _named(sample: Any) -> Mapping[str, Any]:
    """The fields of a sample by name."""
    if isinstance(sample, tuple):
        raise FeedMismatch(
            f"{_CALL} needs documents, or dicts of them, and got {described(sample)}: name the "
            f"fields, with arrays(tokens=..., ...), or with .map(lambda sample: "
            f'{{"tokens": sample[0], ...}}).'
        )
    return sample if isinstance(sample, Mapping) else {_BARE: sample}


def _field(tree: Mapping[str, Any], name: str) -> Array:
    """A field of a document, as an array with an axis of tokens."""
    try:
        values = np.asarray(tree[name])
    except (KeyError, ValueError):  # it has no such field, or rows of several lengths
        values = np.asarray(None)
    if not values.ndim or values.dtype.kind in "OUST":
        given = f"{name!r}: {described(tree[name])}" if name in tree else f"no {name!r}"
        raise FeedMismatch(
            f"{_CALL} needs arrays of tokens, and got a document with {given}: turn texts into "
            "numbers, with .map(tokenize), and leave out fields that do not have one value for "
            "each token, with fields=[...]."
        )
    return values


def _joined_rows(name: str, rows: Sequence[Array]) -> Ragged:
    """A column of rows that were read; empty ones may be of any dtype, as `[]` is."""
    full = [row for row in rows if len(row)] or rows[:1]
    if len(kinds := {(str(row.dtype), row.shape[1:]) for row in full}) > 1:
        told = " and ".join(f"{dtype}[..., {shape}]" for dtype, shape in sorted(kinds)[:2])
        raise FeedMismatch(
            f"{_CALL} needs documents of one dtype and shape, and {name!r} has {told}: make them "
            f"alike, with .map(...)."
        )
    return Ragged(np.concatenate(full), offsets_of(list(map(len, rows))))
