"""`split="always"`: documents lie end to end, and rows are cut out of what they make.

Documents are dealt to groups, one to each in turn, so that a group has documents from all over the
data. The groups keep their order, so it is known where each begins, in every variant. Inside a
group documents are in random order, so only the lengths of the groups that a row touches have to be
added up to find it. A group makes at least sixteen rows, since those that share a row come from one
group, or two. (To permute the groups too would take sums over all of them for each variant, and
change little, since rows are shuffled.)
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

_LEAST, _ROWS = 64, 16  # documents of a group, and rows that it makes
MOST = 1 << 16  # of what `shuffled` orders


class CutDocuments:
    """Finds the pieces of documents that lie in rows.

    Args:
        documents: What is packed.
        size: Tokens of a row.

    Attributes:
        packed: The documents.
        rows: The number of rows.
        tokens: How many tokens lie in them.
        places: How many documents there are.
        tables: What `pieces` looks things up in.
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
        """The documents at these places, and the token with which each of these pieces begins."""
        return places, 0

    def pieces_in(self, variant: Array, row: Array) -> DocumentPieces:
        """What lies in some rows, from left to right."""
        place, begins, length = self._pieces(self.tables, variant, row, self._width(row))
        there = length > 0
        return DocumentPieces(there.sum(1), place[there], begins[there], length[there])

    def holding(self, documents: Held, variant: Any) -> Held:
        """The rows that hold these documents: the inverse of `found`."""
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
        """What lies in some rows, from left to right, in a trace.

        Args:
            tables: `tables`, on a device.
            variant: Which order, for each row: words of 32 bits.
            row: The numbers of the rows.

        Returns:
            The places of the documents, by which token each piece begins, and its length, 0 for
            what lies elsewhere; each of shape [rows, documents of the groups of a row].
        """
        return self._pieces(tables, variant, row, self._widest)

    def _width(self, row: Array) -> int:
        """The most groups that one of these rows touches."""
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
    """The numbers below n in random order, for each variant and number: one axis more.

    >>> shuffled(5, *(np.array([word], np.uint32) for word in (0, 7)))
    array([[3, 4, 2, 1, 0]], dtype=uint32)

    Args:
        n: At most 2**16.
        variant: Chooses the order, together with the number.
        number: A number, of the same shape.
    """
    namespace = number.__array_namespace__()
    indices, low = np.arange(n, dtype=np.uint32), np.uint32(MOST - 1)
    words = mixed(key_of_range(variant, number)[..., None] + indices * NARROW.tweaks[0])
    # an index in the lower half of each word: no two are equal, and sorting takes it along
    return namespace.sort(words & ~low | indices, axis=-1) & low
