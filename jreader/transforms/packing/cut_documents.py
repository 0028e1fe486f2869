"""`split="always"`: concatenate documents, and cut the rows out of the stream.

Documents are assigned to groups round-robin, so that a group has documents from all over the data.
The groups keep their order, so the start of each is known in every variant. Within a group,
documents are in random order, so finding a row only takes sums over the lengths of the groups that
it touches. A group makes at least sixteen rows, since documents that share a row come from one or
two groups. (Permuting the groups too would take sums over all of them for each variant, and change
little, since rows are shuffled.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from jreader.orders.arithmetic import NARROW, mixed
from jreader.readers.columns import Array, offsets_of
from jreader.readers.holders import Held
from jreader.readers.joined_columns import by_part
from jreader.readers.windowed import Cut
from jreader.transforms.packing.document_fields import Documents
from jreader.transforms.packing.whole_documents import DocumentPieces, in_parts, key_of_range

_LEAST, _ROWS = 64, 16  # documents per group, and rows that it makes, at least
MOST = 1 << 16  # limit of `shuffled`


class CutDocuments:
    """Finds the pieces of documents in each row.

    Args:
        documents: The documents.
        size: Tokens per row.

    Attributes:
        packed: The documents.
        rows: The number of rows.
        tokens: The number of tokens in them.
        places: The number of documents.
        tables: The lookup tables of `pieces`.
    """

    def __init__(self, documents: Documents, size: int) -> None:
        self.packed, self._size, self.places = documents, size, documents.count
        self.tokens = sum(int(lengths.sum()) for _, lengths in _document_lengths(documents))
        self.rows = -(-self.tokens // size)
        many = max(documents.count, 1)
        wanted = -(-_ROWS * size * many // max(self.tokens, 1))
        self._groups = -(-many // min(max(wanted, _LEAST), MOST))
        self._each = -(-many // self._groups)
        flat = np.zeros(self._each * self._groups, np.int32)
        for low, lengths in _document_lengths(documents):
            flat[low : low + len(lengths)] = lengths
        table = flat.reshape(self._each, self._groups)
        self.tables: Mapping[str, Array] = {
            "first token": offsets_of(table.sum(0, dtype=np.int64)),
            "length": np.ascontiguousarray(table.T),
        }
        self._widest = self._width(np.arange(self.rows))

    def documents(self, places: Array) -> tuple[Array, Array | int]:
        """Return the documents at these places, and the token where each of these pieces begins."""
        return places, 0

    def pieces_in(self, variant: Array, row: Array) -> DocumentPieces:
        """Return the pieces in some rows, from left to right."""
        place, begins, length = self._pieces(self.tables, variant, row, self._width(row))
        there = length > 0
        return DocumentPieces(there.sum(1), place[there], begins[there], length[there])

    def holding(self, documents: Held, variant: Any) -> Held:
        """Return the rows that hold these documents: the inverse of `pieces_in`."""
        local, group = np.divmod(documents.index, self._groups)
        spans = np.zeros((2, len(local)), np.int64)
        for number, here in by_part(group):
            order = shuffled(self._each, variant, np.array([number], np.uint32))[0]
            ends = (
                offsets_of(self.tables["length"][number, order])
                + self.tables["first token"][number]
            )
            place = order.argsort()[local[here]]
            spans[:, here] = ends[place], ends[place + 1]
        begin, end = spans
        return Cut(self._size, self._size, self.rows).holding(
            replace(documents, begin=begin, end=end)
        )

    def pieces(self, tables: Any, variant: Any, row: Any) -> tuple[Any, Any, Any]:
        """Return the pieces in some rows, from left to right, in a trace.

        Args:
            tables: `tables`, on a device.
            variant: The order to use for each row: 32-bit words.
            row: The row numbers.

        Returns:
            The places of the documents, the token where each piece begins, and its length (0 if it
            is not in the row); each of shape [rows, documents in the groups of a row].
        """
        return self._pieces(tables, variant, row, self._widest)

    def _width(self, row: Array) -> int:
        """Return the most groups that any of these rows touches."""
        first = row * self._size
        last = np.minimum(first + self._size, self.tokens) - 1
        groups = self._group(self.tables, last) - self._group(self.tables, first)
        return int(groups.max(initial=0)) + 1

    def _pieces(self, tables: Any, variant: Any, row: Any, width: int) -> tuple[Any, Any, Any]:
        namespace = row.__array_namespace__()
        token = row * self._size
        first = self._group(tables, token)
        group = first[:, None] + np.arange(width, dtype=np.int32)
        there = group < self._groups
        group = namespace.where(there, group, 0)
        local = shuffled(self._each, variant[:, None], group.astype(np.uint32))
        group = group[..., None]
        length = namespace.where(there[..., None], tables["length"][group, local], 0)
        length = length.reshape(len(row), -1)
        ends = namespace.cumsum(length, 1) - (token - tables["first token"][first])[:, None]
        begins = ends - length
        inside = namespace.clip(ends, 0, self._size) - namespace.clip(begins, 0, self._size)
        place = (local.astype(row.dtype) * self._groups + group).reshape(length.shape)
        return place, namespace.maximum(-begins, 0), inside

    def _group(self, tables: Any, token: Any) -> Any:
        namespace = token.__array_namespace__()
        return namespace.searchsorted(tables["first token"], token, side="right") - 1


def _document_lengths(documents: Documents) -> Iterator[tuple[int, Array]]:
    for low, high in in_parts(documents):
        yield low, documents.lengths(low, high)


def shuffled(n: int, variant: Any, number: Any) -> Any:
    """Shuffle the numbers below n, for each variant and number, along a new axis.

    >>> shuffled(5, *(np.array([word], np.uint32) for word in (0, 7)))
    array([[3, 4, 2, 1, 0]], dtype=uint32)

    Args:
        n: At most 2**16.
        variant: Selects the order, together with the number.
        number: A number, of the same shape.
    """
    namespace = number.__array_namespace__()
    indices, low = np.arange(n, dtype=np.uint32), np.uint32(MOST - 1)
    words = mixed(key_of_range(variant, number)[..., None] + indices * NARROW.tweaks[0])
    # the lower half of each word is an index: all words differ, and sorting carries it along
    return namespace.sort(words & ~low | indices, axis=-1) & low
