"""`split="never"`: each document lies in one row, with those that best fit beside it.

Best-fit decreasing over the histogram of lengths says how many rows there are of which lengths: the
work grows with the number of *different* lengths, not with that of documents, since all documents
of one length are placed at once (Krell et al. 2021, "Efficient Sequence Packing without
Cross-contamination"). Documents of one length are dealt to their slots in a keyed order: that of
many small ranges at once, each element in a range of its own, in words of 32 bits, the same under
NumPy and jax.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from jreader.errors import FeedMismatch
from jreader.orders.arithmetic import NARROW, mixed
from jreader.progress import Bar
from jreader.readers.columns import Array, offsets_of
from jreader.readers.holders import Held
from jreader.readers.joined_columns import by_part
from jreader.transforms.packing.document_fields import Documents

Longer: TypeAlias = Literal["error", "split", "truncate", "drop"]
Side: TypeAlias = Literal["right", "left"]

Runs: TypeAlias = "tuple[Runs, int, int] | None"
"""What a row holds: what it held before, and a length with how often it came on top."""

_ROUNDS, _HALF = 8, np.uint32(1 << 31)
_CHUNK = 1 << 20  # documents that are looked at in one go
_KEPT = 1 << 20  # documents: of so many, the whole deal of a variant is kept
_IN_CACHE = 1 << 14  # documents that are dealt in one go for it


class DocumentPieces(NamedTuple):
    """Pieces of documents, from left to right, row after row.

    Attributes:
        many: How many pieces each row has.
        documents: The document of each.
        begins: The token of the document with which each begins.
        lengths: How many tokens each has; of each field, where these differ.
    """

    many: Array
    documents: Array
    begins: Array | int
    lengths: Array

    def of(self, which: Any) -> DocumentPieces:
        """The same pieces with the lengths of some fields; all (...) where these do not differ."""
        if which is ...:
            return self
        begins = self.begins if isinstance(self.begins, int) else self.begins[which]
        return self._replace(begins=begins, lengths=self.lengths[which])


class WholeDocuments:
    """Deals documents to the slots of rows, by their lengths.

    Slots of one length are numbered, and so are the documents of that length: in each variant, a
    keyed map says which document has which slot.

    Args:
        documents: What is packed.
        size: Tokens of a row.
        longer: What becomes of longer documents.
        cut: On which side they are truncated.

    Attributes:
        packed: The documents.
        rows: The number of rows.
        tokens: How many tokens lie in them.
        tables: What `pieces` looks things up in.

    Raises:
        FeedMismatch: A document is too long for a row, and `longer` is "error".
    """

    _parts: Array | None = None
    _kept: tuple[int, Array] | None = None

    def __init__(self, documents: Documents, size: int, longer: Longer, *, cut: Side) -> None:
        self.packed, self._size, self._longer = documents, size, longer
        self._fronts = longer == "truncate" and cut == "left"
        histogram = np.zeros(size + 1, np.int64)
        split = False
        for _, lengths, parts in pieces_of(documents, size, longer):
            histogram += np.bincount(lengths, minlength=size + 1)
            split |= bool(parts.any())
        histogram[0] = 0
        kinds, occurring = best_fit(histogram), np.flatnonzero(histogram)
        kinds = kinds._replace(lengths=np.searchsorted(occurring, kinds.lengths))
        self._deal(kinds, occurring, histogram[occurring])
        many = int(histogram.sum())
        self._sorted = np.empty(many, np.uint32)
        if split:
            self._parts = np.empty(many, np.uint32)
        self._sort(documents, longer, offsets_of(histogram)[:-1])

    def _deal(self, kinds: Strategies, lengths: Array, counts: Array) -> None:
        """Makes the tables of rows; `kinds` has the number of each slot's length among these."""
        self.rows = int(kinds.rows.sum())
        self.tokens = int((counts * lengths.T).sum())
        self._widest = int(kinds.slots.max(initial=1))
        rows_of = np.repeat(kinds.rows, kinds.slots)
        self.tables: Mapping[str, Array] = {
            "first row": offsets_of(kinds.rows),
            "first slot": offsets_of(kinds.slots),
            "length of slot": kinds.lengths.astype(np.int32),
            "rank of slot": _ranks(kinds.lengths, rows_of).astype(np.uint32),
            "length": lengths.astype(np.int32),
            "count": counts.astype(np.uint32),
            "first document": offsets_of(counts)[:-1].astype(np.uint32),
        }

    def _sort(self, documents: Documents, longer: Longer, next_of: Array) -> None:
        """Sorts documents by length, a part of them at a time: it takes little memory."""
        narrow = np.uint16 if self._size < 1 << 16 else np.uint32
        for numbers, lengths, parts in pieces_of(documents, self._size, longer):
            order = np.argsort(lengths.astype(narrow), kind="stable")[
                np.count_nonzero(lengths == 0) :
            ]
            counts = np.bincount(lengths, minlength=self._size + 1)
            counts[0] = 0
            to = np.repeat(next_of - offsets_of(counts)[:-1], counts) + np.arange(len(order))
            self._sorted[to] = numbers[order]
            if self._parts is not None:
                self._parts[to] = parts[order]
            next_of += counts

    def documents(self, places: Array) -> tuple[Array, Array | int]:
        """The documents at these places, and the token with which each of these pieces begins."""
        documents = self._sorted[places]
        if self._fronts:
            return documents, np.maximum(self.packed.lengths_of(documents) - self._size, 0)
        parts = 0 if self._parts is None else self._parts[places].astype(np.int64) * self._size
        return documents, parts

    @property
    def places(self) -> int:
        """How many pieces of documents there are."""
        return len(self._sorted)

    def pieces_in(self, variant: Array, row: Array) -> DocumentPieces:
        """What lies in some rows, as `pieces` says."""
        tables = self.tables
        kind = np.searchsorted(tables["first row"], row, "right") - 1
        first = tables["first slot"][kind]
        many = tables["first slot"][kind + 1] - first
        slot = np.arange(many.sum()) + np.repeat(first - offsets_of(many)[:-1], many)
        nth = np.repeat((row - tables["first row"][kind]).astype(np.uint32), many)
        length, rank = tables["length of slot"][slot], tables["rank of slot"][slot] + nth
        if len(self._sorted) <= _KEPT and (variant[0] == variant).all():
            place = self._order(int(variant[0]))[tables["first document"][length] + rank]
        else:
            place = self._dealt(np.repeat(variant, many), length, rank)
        documents, begins = self.documents(place)
        return DocumentPieces(many, documents, begins, tables["length"][length])

    def holding(self, documents: Held, variant: Any) -> Held:
        """The rows that hold these documents: the inverse of `found`."""
        tables = self.tables
        pieces, length, place = self._placed(documents)
        first = tables["first document"][length].astype(np.int64)
        words = place.astype(np.uint32), tables["count"][length], variant, length.astype(np.uint32)
        rank = first + dealt(*words, inverse=True)
        firsts = tables["first document"][tables["length of slot"]] + tables["rank of slot"]
        order = firsts.argsort()  # of slots, by the rank of their first document among all
        slot = order[firsts.searchsorted(rank, "right", order) - 1]
        kind = tables["first slot"].searchsorted(slot, "right") - 1
        lengths = tables["length"].reshape(len(tables["length"]), -1)[:, 0]  # of the first field
        before = offsets_of(lengths[tables["length of slot"]])
        begin = before[slot] - before[tables["first slot"][kind]]
        row = tables["first row"][kind] + rank - firsts[slot]
        return replace(pieces, index=row, begin=begin, end=begin + lengths[length])

    def _placed(self, documents: Held) -> tuple[Held, Array, Array]:
        """The pieces of documents, the number of the length of each, and its place among those."""
        tables, pieces = self.tables, self._pieces_of(documents)
        length = tables["length"].searchsorted(pieces.end)
        place = np.empty(len(length), np.int64)
        for number, here in by_part(length):
            low, many = int(tables["first document"][number]), int(tables["count"][number])
            place[here] = self._sorted[low : low + many].searchsorted(
                pieces.index[here].astype(np.uint32)
            )
        place += np.where(pieces.end == self._size, pieces.begin, 0)  # all parts but the last one
        return pieces, length, place

    def _pieces_of(self, documents: Held) -> Held:
        """The pieces that documents become, with the number of each, and its length as its end."""
        size, lengths = self._size, self.packed.lengths_of(documents.index)
        many = (lengths > 0).astype(np.int64)
        if self._longer == "split":
            many = -(-lengths // size)
        elif self._longer == "drop":
            many[lengths > size] = 0
        whole = replace(documents, begin=documents.index, index=lengths * 0, end=lengths)
        parts = whole.repeated(many)
        left = np.minimum(parts.end - parts.index * size, size)
        return replace(parts, index=parts.begin, begin=parts.index, end=left)

    def _dealt(self, variant: Array, length: Array, rank: Array) -> Array:
        """The document numbers for each (length, rank)."""
        places: Array = self.tables["first document"][length] + dealt(
            rank, self.tables["count"][length], variant, length.astype(np.uint32)
        )
        return places

    def _order(self, variant: int) -> Array:
        """Which document has each rank, for all of them: of few documents, it is kept."""
        known = self._kept
        if known is None or known[0] != variant:
            order = np.empty(len(self._sorted), np.uint32)
            counts = self.tables["count"]
            length = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
            for low in range(0, len(order), _IN_CACHE):
                here = slice(low, low + _IN_CACHE)
                rank = np.arange(low, low + len(length[here]), dtype=np.uint32)
                rank -= self.tables["first document"][length[here]]
                order[here] = self._dealt(np.array([variant], np.uint32), length[here], rank)
            known = self._kept = variant, order
        return known[1]

    def pieces(self, tables: Any, variant: Any, row: Any) -> tuple[Any, Any, Any]:
        """What lies in some rows, from left to right, in a trace.

        Args:
            tables: `tables`, on a device.
            variant: Which deal, for each row: words of 32 bits.
            row: The numbers of the rows.

        Returns:
            The places of the documents, by which token each begins, and their lengths, 0 for none;
            each of shape [rows, most documents of a row].
        """
        namespace = row.__array_namespace__()
        kind = namespace.searchsorted(tables["first row"], row, side="right") - 1
        nth = (row - tables["first row"][kind]).astype(np.uint32)[:, None]
        slot = tables["first slot"][kind][:, None] + np.arange(self._widest, dtype=np.int32)
        there = slot < tables["first slot"][kind + 1][:, None]
        slot = namespace.where(there, slot, 0)
        length = tables["length of slot"][slot]
        rank = namespace.where(there, tables["rank of slot"][slot] + nth, np.uint32(0))
        number = length.astype(np.uint32)
        place = dealt(rank, tables["count"][length], variant[:, None], number)
        place = tables["first document"][length] + place
        lengths = tables["length"][length]
        there = there.reshape(*there.shape, *[1] * (lengths.ndim - 2))
        return place, 0, namespace.where(there, lengths, 0)


def pieces_of(
    documents: Documents, size: Any, longer: Longer
) -> Iterator[tuple[Array, Array, Array]]:
    """The pieces that documents become: of which document, their lengths, the number in it."""
    for low, high in in_parts(documents):
        lengths, numbers = documents.lengths(low, high), np.arange(low, high, dtype=np.uint32)
        parts = np.zeros(1, np.uint32)
        if (long := lengths > size).any():
            if longer == "error":
                raise _too_long(documents, size, low, lengths)
            if longer == "split":
                many = np.maximum(-(-lengths // size), 1)
                last = np.cumsum(many)
                parts = np.arange(last[-1]) - np.repeat(last - many, many)
                lengths = np.minimum(np.repeat(lengths, many) - parts * size, size)
                numbers = np.repeat(numbers, many)
            elif longer == "truncate":
                lengths = np.minimum(lengths, size)
            else:
                lengths[long if long.ndim == 1 else long.any(1)] = 0
        yield numbers, lengths, np.broadcast_to(parts, numbers.shape)


def _too_long(documents: Documents, size: Any, low: int, lengths: Array) -> FeedMismatch:
    """The error for documents of these lengths, from document `low` on."""
    first, *field = np.argwhere(lengths > size)[0].tolist()
    of = f" of {[*documents.columns][field[0]]!r}" if field else ""
    return FeedMismatch(
        f"pack(reader, size={documents.by_field(size)}): document "
        f"{documents.first + low + first:,} has {lengths[(first, *field)]:,} tokens, more than a "
        f"row{of}: give longer='truncate' or 'drop', or a larger size; for rows of one length also "
        "longer='split', or split='always'."
    )


def in_parts(documents: Documents) -> Iterator[tuple[int, int]]:
    """Where parts begin and end that are looked at in one go; a bar shows how far that is."""
    with Bar("planning packs", documents.count, " documents") as bar:
        for low in range(0, documents.count, _CHUNK):
            high = min(low + _CHUNK, documents.count)
            yield low, high
            bar.add(high - low)


def _ranks(kinds: Array, counts: Array) -> Array:
    """How many of its kind come before each, where it stands for several."""
    order = np.argsort(kinds, kind="stable")
    before = offsets_of(counts[order])[:-1]
    begins = np.flatnonzero(np.diff(kinds[order], prepend=-1))
    ranks = np.empty_like(before)
    ranks[order] = before - np.repeat(before[begins], np.diff([*begins, len(order)]))
    return ranks


class Strategies(NamedTuple):
    """Kinds of rows, by the lengths that they hold.

    Attributes:
        rows: The number of rows of each strategy.
        slots: The number of slots in a row of each strategy.
        lengths: The length of each slot, strategy after strategy.
    """

    rows: Array
    slots: Array
    lengths: Array


def best_fit(histogram: Array) -> Strategies:
    """Packs as many documents of each length as the histogram says, long ones first.

    >>> found = best_fit(np.array([0, 3, 0, 2, 1]))  # 1, 1, 1, 3, 3 and 4 tokens, in rows of 4
    >>> found.rows.tolist(), found.slots.tolist(), found.lengths.tolist()
    ([1, 2, 1], [1, 2, 1], [4, 3, 1, 1])

    Args:
        histogram: The number of documents of each length, from 0 to the size of a row.
    """
    size = len(histogram) - 1
    open_rows: dict[int, list[tuple[int, Runs]]] = {}  # by room that is left
    rooms: list[int] = []  # in which rows are open, sorted

    def put(room: int, rows: int, runs: Runs) -> None:
        if not open_rows.setdefault(room, []):
            insort(rooms, room)
        open_rows[room].append((rows, runs))

    for length in np.flatnonzero(histogram)[::-1].tolist():
        left = int(histogram[length]) if length else 0
        while left:
            found = bisect_left(rooms, length)
            if found < len(rooms):
                room = rooms[found]
                rows, runs = open_rows[room].pop()
                if not open_rows[room]:
                    del rooms[found]
            else:
                room, rows, runs = size, left, None  # new rows, as many as are needed
            each = min(room // length, left)
            taken = min(rows, left // each)
            put(room - each * length, taken, (runs, length, each))
            if rows > taken and room < size:
                put(room, rows - taken, runs)
            left -= taken * each
    return strategies_of([kind for room in sorted(open_rows) for kind in open_rows[room]])


def strategies_of(kinds: list[tuple[int, Runs]]) -> Strategies:
    """Strategies as arrays; the lengths of a row are in the order in which they came."""
    lengths: list[int] = []
    times: list[int] = []
    slots: list[int] = []
    for _, runs in kinds:
        begun, left = len(times), runs
        while left:
            left, length, each = left
            lengths.append(length)
            times.append(each)
        lengths[begun:], times[begun:] = lengths[begun:][::-1], times[begun:][::-1]
        slots.append(sum(times[begun:]))
    return Strategies(
        np.array([rows for rows, _ in kinds], np.int64),
        np.array(slots, np.int64),
        np.repeat(np.array(lengths, np.int64), np.array(times, np.int64)),
    )


def dealt(rank: Any, n: Any, variant: Any, number: Any, *, inverse: bool = False) -> Any:
    """Where each rank comes in the order of its range.

    A "swap or not" shuffle: in each round, a rank and its mirror image around a keyed centre change
    places, or do not, as a keyed bit of the two says (Hoang, Morris and Rogaway 2012, "An
    Enciphering Scheme Based on a Card Shuffle"). After eight rounds, one pair of ranks in 256 has
    the distance that it had.

    >>> words = [np.array([word], np.uint32) for word in (0, 7)]
    >>> dealt(np.arange(5, dtype=np.uint32), np.uint32(5), *words)
    array([2, 0, 3, 1, 4], dtype=uint32)

    Args:
        rank: From 0 to n - 1.
        n: The length of its range, at most 2**31.
        variant: Chooses the order, together with the number of the range.
        number: The number of the range.
        inverse: Whether to give the rank of a place instead: each round undoes itself.
    """
    namespace = rank.__array_namespace__()
    chosen = key_of_range(variant, number)
    keys = mixed(chosen + NARROW.tweaks[:_ROUNDS].reshape(-1, *[1] * chosen.ndim))
    centres = keys % n
    for turn in reversed(range(_ROUNDS)) if inverse else range(_ROUNDS):
        mirrored = centres[turn] - rank  # below 0 it wraps around, and n brings it back
        mirrored = namespace.minimum(mirrored, mirrored + n)
        bits = (namespace.maximum(rank, mirrored) + keys[turn]) * NARROW.first
        bits = (bits ^ bits >> NARROW.shift) * NARROW.second
        rank = namespace.where(bits < _HALF, mirrored, rank)
    return rank


def key_of_range(variant: Any, number: Any) -> Any:
    """What makes the order of a range: a word of 32 bits of its variant and its number."""
    return mixed(mixed(variant + NARROW.tweaks[0]) + number)
