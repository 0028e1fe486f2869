"""Packed rows as a column: each is gathered from the values of documents when it is asked for.

A column knows neither seeds nor epochs, so it has the rows of every *variant* one after another:
row i of variant v is row `v * rows + i`, and a route chooses the variant by a hash of seed and
epoch. So rows are numbers below 2**31, which a trace in 32 bits computes exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from jreader.errors import FeedMismatch
from jreader.readers import described
from jreader.readers.columns import Array, Column, Indices, array_column, in_dtype
from jreader.staging import lease
from jreader.transforms.packing.cut_documents import CutDocuments
from jreader.transforms.packing.document_fields import POSITIONS, SEGMENT_IDS
from jreader.transforms.packing.whole_documents import Found, WholeDocuments

_VARIANTS = 1 << 16
_END = (1 << 31) - 1
_AT_ONCE = 1 << 16  # tokens that are gathered for a pass that takes rows one by one

DealtDocuments: TypeAlias = WholeDocuments | CutDocuments


class PackedRows(Column):
    """A column of packed rows, in every variant.

    Args:
        dealt: What is packed, and which documents lie in which row.
        size: Tokens of a row.
        pads: What stands behind the last document of a row, for each field.
        gone: The numbers of documents in whose place padding stands.
    """

    def __init__(
        self, dealt: DealtDocuments, size: int, pads: Mapping[str, Any], gone: Any = ()
    ) -> None:
        self._documents, self._dealt, self._size = dealt.packed, dealt, size
        self._gone = gone
        self.at_once = max(_AT_ONCE // size, 1)
        self.late = any(column.late for column in dealt.packed.columns.values())
        self.variants = max(min(_VARIANTS, _END // max(dealt.rows, 1)), 1)
        self._pads = {
            name: _pad(name, pads.get(name, 0), column.values.dtype)
            for name, column in dealt.packed.columns.items()
        }

    def __len__(self) -> int:
        return self._dealt.rows * self.variants

    @property
    def source(self) -> Column:
        """The documents, as their first field has them."""
        return next(iter(self._documents.columns.values())).source

    def without(self, documents: Array) -> PackedRows:
        """The same rows, with padding in place of these documents, which are not read."""
        gone = self._documents.holding(documents).index
        return PackedRows(self._dealt, self._size, self._pads, gone)

    def gather(self, rows: Array) -> dict[str, Array]:
        """These rows: for each field, and for segment ids and positions, an array [rows, size]."""
        if not len(rows):
            return {name: column[:0] for name, column in self.gather(np.zeros(1, int)).items()}
        size = self._size
        variant, row = np.divmod(rows, self._dealt.rows)
        found = self._dealt.found(variant.astype(np.uint32), row)
        last = np.cumsum(found.many)
        first = last - found.many
        room = size - np.add.reduceat(found.lengths, first)
        ids, runs = np.arange(1, last[-1] + 1) - np.repeat(first, found.many), found.lengths
        gone = np.zeros(len(ids), bool)
        if len(self._gone):
            gone = np.isin(found.documents, self._gone)
            ids[gone] = 0
        if len(short := np.flatnonzero(room)):
            ids = np.insert(ids, last[short], 0)
            runs = np.insert(runs, last[short], room[short])
        begins = np.cumsum(runs, dtype=np.int32) - runs.astype(np.int32)
        segments, positions = (lease((len(rows), size), np.dtype(np.int32)) for _ in range(2))
        segments.reshape(-1)[:] = np.repeat(ids.astype(np.int32), runs)
        np.subtract(_numbers(positions.size), np.repeat(begins, runs), out=positions.reshape(-1))
        out = self._tokens(found, gone, last, short.tolist(), room)
        out |= {SEGMENT_IDS: segments, POSITIONS: positions}
        if gone.any():
            positions[segments == 0] = 0
        for at in short.tolist():
            positions[at, size - room[at] :] = 0
        return out

    def _tokens(
        self, found: Found, gone: Array, last: Array, short: list[int], room: Array
    ) -> dict[str, Array]:
        """The values of documents end to end, with padding behind the last one of a short row."""
        out = {}
        columns = self._documents.columns.items()
        starts = self._documents.begins(found.documents)
        widest = self._size if short or gone.any() else 0
        for (name, column), start in zip(columns, starts, strict=True):
            values = column.values
            if isinstance(values, np.ndarray):
                values = np.asarray(values)  # to slice a memory map costs more
            begins = (start + found.begins)[~gone]
            pieces = [*array_column(values).spans(begins, begins + found.lengths[~gone])]
            inner, dtype = values.shape[1:], values.dtype
            padding = np.full((widest, *inner), self._pads[name], dtype)
            for at in np.flatnonzero(gone).tolist():
                pieces.insert(at, padding[: found.lengths[at]])
            for at in reversed(short):
                pieces.insert(last[at], padding[: room[at]])
            out[name] = lease((len(room), self._size, *inner), dtype)
            np.concatenate(pieces, out=out[name].reshape(-1, *inner))
        return out

    def placed(self) -> tuple[Any, Callable[[Any, Indices], Any]]:
        """What goes to the devices, and how rows are gathered there, as `gather` does."""
        dealt, columns = self._dealt, self._documents.columns
        if dealt.rows * self._size > _END:
            raise ValueError(
                f"{dealt.rows:,} packed rows of {self._size:,} tokens are more than the 2**31 "
                f"tokens that as_function counts: use .load(...)."
            )
        documents, parts = dealt.documents(np.arange(dealt.places))
        values, begins = {}, {}
        for (name, column), first in zip(
            columns.items(), self._documents.begins(documents), strict=True
        ):
            low, high = int(column.offsets[0]), int(column.offsets[-1])
            values[name] = np.asarray(column.values[low:high])
            begins[name] = first + parts - low
        return {"values": values, "begins": begins, "tables": dict(dealt.tables)}, self._traced

    def _traced(self, data: Any, rows: Any) -> dict[str, Any]:
        """What `gather` gives, in a trace."""
        dealt, size = self._dealt, self._size
        namespace = rows.__array_namespace__()
        variant, row = (rows // dealt.rows).astype(np.uint32), rows % dealt.rows
        place, skip, length = dealt.pieces(data["tables"], variant, row)
        ends = namespace.cumsum(length, 1)
        begins, number = ends - length, namespace.arange(len(rows))[:, None]
        # how many pieces have begun; those without tokens begin where the next one does
        marks = namespace.zeros((len(rows), size + 1), np.int32).at[number, begins].add(1)
        nth = namespace.cumsum(marks[:, :size], 1) - 1
        token = namespace.arange(size)[None]
        there = token < ends[:, -1:]
        ids = namespace.cumsum(length > 0, 1)
        positions = token - begins[number, nth]
        out = {}
        for name in self._documents.columns:
            values = data["values"][name]
            source = (data["begins"][name][place] + skip)[number, nth] + positions
            inside = there.reshape(*there.shape, *[1] * (values.ndim - 1))
            taken = values[namespace.where(there, source, 0)]
            out[name] = namespace.where(inside, taken, values.dtype.type(self._pads[name]))
        out[SEGMENT_IDS] = namespace.where(there, ids[number, nth], 0).astype(np.int32)
        out[POSITIONS] = namespace.where(there, positions, 0).astype(np.int32)
        return out


@lru_cache(8)
def _numbers(count: int) -> Array:
    """The numbers below count, which all batches of one size share."""
    numbers = np.arange(count, dtype=np.int32)
    numbers.flags.writeable = False
    return numbers


def _pad(name: str, pad: Any, dtype: Any) -> Any:
    """The padding of a field, in its dtype."""
    try:
        return in_dtype(pad, dtype)
    except ValueError:
        raise FeedMismatch(
            f"pack(reader, size, pad={described(pad)}) cannot pad {name!r}, which is {dtype}: give "
            f"one number that fits {dtype}, or pad={{{name!r}: number}} for that field alone."
        ) from None
