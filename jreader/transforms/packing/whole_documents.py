"""`split="never"`: put each document in one row, with those that fit best beside it.

Best-fit decreasing over the histogram of lengths determines how many rows there are with which
lengths. The work grows with the number of *different* lengths, not of documents, since all
documents of one length are placed together (Krell et al. 2021, "Efficient Sequence Packing without
Cross-contamination"). Documents of one length are assigned to their slots in a keyed order: a
permutation of many small ranges at once, each element within its own range, in 32-bit words, the
same under NumPy and jax.
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
"""The contents of a row as a linked list: (earlier contents, a length, how often it was added)."""

_ROUNDS, _HALF = 8, np.uint32(1 << 31)
_CHUNK = 1 << 20  # documents to process at a time
_KEPT = 1 << 20  # documents: up to so many, the whole order of a variant is cached
_IN_CACHE = 1 << 14  # documents to assign at a time for it


class DocumentPieces(NamedTuple):
    """Pieces of documents, from left to right, row by row.

    Attributes:
        many: The number of pieces in each row.
        documents: The document of each piece.
        begins: The token of the document where each piece begins.
        lengths: The number of tokens in each piece; by field, if these differ.
    """

    many: Array
    documents: Array
    begins: Array | int
    lengths: Array

    def of(self, which: Any) -> DocumentPieces:
        """Select the lengths of some fields; all (...) if fields do not differ."""
        if which is ...:
            return self
        begins = self.begins if isinstance(self.begins, int) else self.begins[which]
        return self._replace(begins=begins, lengths=self.lengths[which])


class WholeDocuments:
    """Assigns documents to the slots of rows, by their lengths.

    Slots of one length are numbered, and so are the documents of that length: in each variant, a
    keyed permutation maps slots to documents.

    Args:
        documents: The documents.
        size: Tokens per row.
        longer: What to do with longer documents.
        cut: On which side to truncate them.

    Attributes:
        packed: The documents.
        rows: The number of rows.
        tokens: The number of tokens in them.
        tables: The lookup tables of `pieces`.

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
        """Build the tables of rows; `kinds` has, for each slot, the index of its length."""
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
        """Sort documents by length, a chunk at a time, to save memory."""
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
        """Return the documents at these places, and the token where each of these pieces begins."""
        documents = self._sorted[places]
        if self._fronts:
            return documents, np.maximum(self.packed.lengths_of(documents) - self._size, 0)
        parts = 0 if self._parts is None else self._parts[places].astype(np.int64) * self._size
        return documents, parts

    @property
    def places(self) -> int:
        """The number of pieces of documents."""
        return len(self._sorted)

    def pieces_in(self, variant: Array, row: Array) -> DocumentPieces:
        """Return the pieces in some rows, as `pieces` does."""
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
        """Return the rows that hold these documents: the inverse of `pieces_in`."""
        tables = self.tables
        pieces, length, place = self._placed(documents)
        first = tables["first document"][length].astype(np.int64)
        words = place.astype(np.uint32), tables["count"][length], variant, length.astype(np.uint32)
        rank = first + dealt(*words, inverse=True)
        firsts = tables["first document"][tables["length of slot"]] + tables["rank of slot"]
        order = firsts.argsort()  # slots, by the rank of their first document
        slot = order[firsts.searchsorted(rank, "right", order) - 1]
        kind = tables["first slot"].searchsorted(slot, "right") - 1
        lengths = tables["length"].reshape(len(tables["length"]), -1)[:, 0]  # of the first field
        before = offsets_of(lengths[tables["length of slot"]])
        begin = before[slot] - before[tables["first slot"][kind]]
        row = tables["first row"][kind] + rank - firsts[slot]
        return replace(pieces, index=row, begin=begin, end=begin + lengths[length])

    def _placed(self, documents: Held) -> tuple[Held, Array, Array]:
        """Return the pieces, the index of each one's length, and its place among its equals."""
        tables, pieces = self.tables, self._pieces_of(documents)
        length = tables["length"].searchsorted(pieces.end)
        place = np.empty(len(length), np.int64)
        for number, here in by_part(length):
            low, many = int(tables["first document"][number]), int(tables["count"][number])
            place[here] = self._sorted[low : low + many].searchsorted(
                pieces.index[here].astype(np.uint32)
            )
        place += np.where(pieces.end == self._size, pieces.begin, 0)  # all parts but the last
        return pieces, length, place

    def _pieces_of(self, documents: Held) -> Held:
        """Split documents into pieces: `begin` is the part's number, `end` its length."""
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
        """Return the place of each rank, cached for the latest variant; for few documents only."""
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
        """Return the pieces in some rows, from left to right, in a trace.

        Args:
            tables: `tables`, on a device.
            variant: The assignment to use for each row: 32-bit words.
            row: The row numbers.

        Returns:
            The places of the documents, the token where each begins, and their lengths (0 for
            none); each of shape [rows, most documents in a row].
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
    """Yield the pieces of documents, in chunks: document numbers, lengths, and part numbers."""
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
    """Return the error for too long documents among those from `low` on."""
    first, *field = np.argwhere(lengths > size)[0].tolist()
    of = f" of {[*documents.columns][field[0]]!r}" if field else ""
    return FeedMismatch(
        f"pack(reader, size={documents.by_field(size)}): document "
        f"{documents.first + low + first:,} has {lengths[(first, *field)]:,} tokens, more than a "
        f"row{of}: give longer='truncate' or 'drop', or a larger size; for rows of one length also "
        "longer='split', or split='always'."
    )


def in_parts(documents: Documents) -> Iterator[tuple[int, int]]:
    """Yield the bounds of chunks of documents to process, with a progress bar."""
    with Bar("planning packs", documents.count, " documents") as bar:
        for low in range(0, documents.count, _CHUNK):
            high = min(low + _CHUNK, documents.count)
            yield low, high
            bar.add(high - low)


def _ranks(kinds: Array, counts: Array) -> Array:
    """Count the earlier elements of the same kind, where each element stands for several."""
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
    """Pack the documents of a histogram of lengths, long ones first.

    >>> found = best_fit(np.array([0, 3, 0, 2, 1]))  # 1, 1, 1, 3, 3 and 4 tokens, in rows of 4
    >>> found.rows.tolist(), found.slots.tolist(), found.lengths.tolist()
    ([1, 2, 1], [1, 2, 1], [4, 3, 1, 1])

    Args:
        histogram: The number of documents of each length, from 0 to the size of a row.
    """
    size = len(histogram) - 1
    open_rows: dict[int, list[tuple[int, Runs]]] = {}  # by room left
    rooms: list[int] = []  # sorted rooms of open rows

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
                room, rows, runs = size, left, None  # as many new rows as needed
            each = min(room // length, left)
            taken = min(rows, left // each)
            put(room - each * length, taken, (runs, length, each))
            if rows > taken and room < size:
                put(room, rows - taken, runs)
            left -= taken * each
    return strategies_of([kind for room in sorted(open_rows) for kind in open_rows[room]])


def strategies_of(kinds: list[tuple[int, Runs]]) -> Strategies:
    """Convert strategies to arrays; a row's lengths are in the order they were added."""
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
    """Permute ranks within their ranges.

    A "swap or not" shuffle: in each round, a rank and its mirror image around a keyed centre are
    swapped or not, depending on a keyed bit of the two (Hoang, Morris and Rogaway 2012, "An
    Enciphering Scheme Based on a Card Shuffle"). After eight rounds, one pair of ranks in 256 has
    kept its distance.

    >>> words = [np.array([word], np.uint32) for word in (0, 7)]
    >>> dealt(np.arange(5, dtype=np.uint32), np.uint32(5), *words)
    array([2, 0, 3, 1, 4], dtype=uint32)

    Args:
        rank: From 0 to n - 1.
        n: The length of the range, at most 2**31.
        variant: Selects the order, together with the number of the range.
        number: The number of the range.
        inverse: Whether to return the rank of a place instead: each round is its own inverse.
    """
    namespace = rank.__array_namespace__()
    chosen = key_of_range(variant, number)
    keys = mixed(chosen + NARROW.tweaks[:_ROUNDS].reshape(-1, *[1] * chosen.ndim))
    centres = keys % n
    for turn in reversed(range(_ROUNDS)) if inverse else range(_ROUNDS):
        mirrored = centres[turn] - rank  # negative values wrap around, and n corrects them
        mirrored = namespace.minimum(mirrored, mirrored + n)
        bits = (namespace.maximum(rank, mirrored) + keys[turn]) * NARROW.first
        bits = (bits ^ bits >> NARROW.shift) * NARROW.second
        rank = namespace.where(bits < _HALF, mirrored, rank)
    return rank


def key_of_range(variant: Any, number: Any) -> Any:
    """Return the key of a range's order: a 32-bit word of its variant and number."""
    return mixed(mixed(variant + NARROW.tweaks[0]) + number)
