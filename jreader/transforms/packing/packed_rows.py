"""Packed rows as a column: each row is gathered from the values of documents on demand.

A column knows neither seeds nor epochs, so it contains the rows of every *variant*: row i of
variant v is row `v * rows + i`, and a route selects the variant by a hash of seed and epoch. Row
numbers stay below 2**31, so a 32-bit trace computes them exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jreader.errors import FeedMismatch
from jreader.readers import described
from jreader.readers.columns import Array, Column, Indices, array_column, in_dtype, offsets_of
from jreader.staging import lease
from jreader.transforms.packing.cut_documents import CutDocuments
from jreader.transforms.packing.document_fields import POSITIONS, SEGMENT_IDS
from jreader.transforms.packing.whole_documents import DocumentPieces, WholeDocuments

_VARIANTS = 1 << 16
_END = (1 << 31) - 1
_CHUNK = 1 << 16  # tokens to gather at a time when rows are requested one by one
_BYTES_AT_ONCE = 1 << 24

DealtDocuments: TypeAlias = WholeDocuments | CutDocuments


class Row(NamedTuple):
    """The layout of a row, apart from its documents.

    Attributes:
        size: Its tokens; an array by field, if fields have their own lengths.
        pads: The padding after the last document, by field.
        slots: The most documents in a row; 0 for no limit.
        leads: The token at its beginning, by field, for fields that have one. Of fields packed
            together, all have one, or none.
    """

    size: Any
    pads: Mapping[str, Any]
    slots: int = 0
    leads: Mapping[str, Any] = MappingProxyType({})


class Group(NamedTuple):
    """Fields of a row that are packed together, with their own segment ids and positions.

    Attributes:
        names: The fields.
        size: How many of their tokens are for documents.
        led: Whether there is one more token before these.
        above: The prefix of the names of segment ids and positions.
        which: The index of their lengths among those of documents.
    """

    names: Sequence[str]
    size: int
    led: bool
    above: str
    which: Any


class PackedRows(Column):
    """A column of packed rows, in every variant.

    Args:
        dealt: The documents, and the assignment to rows.
        row: The layout of a row.
        gone: The numbers of documents to replace by padding.
    """

    def __init__(self, dealt: DealtDocuments, row: Row, gone: Any = ()) -> None:
        self._documents, self._dealt, self._row = dealt.packed, dealt, row
        self._gone = gone
        columns, apart = dealt.packed.columns, dealt.packed.apart
        self._groups = []
        for at, above in enumerate(dealt.packed.above):
            names, which = ([[*columns][at]], (..., at)) if apart else ([*columns], ...)
            led = not row.leads.keys().isdisjoint(names)
            size = int(np.ravel(row.size)[at]) - led
            self._groups.append(Group(names, size, led, above, which))
        each = sum(prod(column.shape[2:]) * column.dtype.itemsize for column in columns.values())
        self.at_once = max(min(_CHUNK, _BYTES_AT_ONCE // each) // int(np.sum(row.size)), 1)
        self.late = any(column.late for column in dealt.packed.columns.values())
        self.variants = max(min(_VARIANTS, _END // max(dealt.rows, 1)), 1)
        dtypes = {name: column.values.dtype for name, column in columns.items()}
        beside = {name: column.dtype for name, column in dealt.packed.beside.items()}
        self._pads = _in_dtypes("pad", row.pads, dtypes | beside)
        self._leads = _in_dtypes("begin", {**row.pads, **row.leads}, dtypes)

    def __len__(self) -> int:
        return self._dealt.rows * self.variants

    @property
    def source(self) -> Column:
        """The documents, as the column of the first field has them."""
        return next(iter(self._documents.columns.values())).source

    def without(self, documents: Array) -> PackedRows:
        """Return the rows with padding in place of these documents, which are not read."""
        gone = self._documents.holding(documents).index
        return PackedRows(self._dealt, self._row, gone)

    def gather(self, rows: Array) -> dict[str, Array]:
        """Return these rows: for each field, segment ids and positions, an array [rows, size]."""
        if not len(rows):
            return {name: column[:0] for name, column in self.gather(np.zeros(1, int)).items()}
        variant, row = np.divmod(rows, self._dealt.rows)
        found = self._dealt.pieces_in(variant.astype(np.uint32), row)
        gone = np.zeros(len(found.documents), bool)
        if len(self._gone):
            gone = np.isin(found.documents, self._gone)
        out = self._packed(self._groups[0], found.of(self._groups[0].which), gone)
        for group in self._groups[1:]:
            out |= self._packed(group, found.of(group.which), gone)
        return out | self._document_values(found, gone) if self._documents.beside else out

    def _packed(self, group: Group, found: DocumentPieces, gone: Array) -> dict[str, Array]:
        """Pack the fields of a group, and add their segment ids and positions."""
        size, last = group.size, np.cumsum(found.many)
        first = last - found.many
        room = size - np.add.reduceat(found.lengths, first)
        ids, runs = np.arange(1, last[-1] + 1) - np.repeat(first, found.many), found.lengths
        if len(self._gone):
            ids[gone] = 0
        if len(short := np.flatnonzero(room)):
            ids = np.insert(ids, last[short], 0)
            runs = np.insert(runs, last[short], room[short])
        begins = np.cumsum(runs, dtype=np.int32) - runs.astype(np.int32)
        segments, positions = (lease((len(room), size), np.dtype(np.int32)) for _ in range(2))
        segments.reshape(-1)[:] = np.repeat(ids.astype(np.int32), runs)
        np.subtract(_numbers(positions.size), np.repeat(begins, runs), out=positions.reshape(-1))
        out = self._tokens(group, found, gone, last[short].tolist(), room[short].tolist())
        out |= {group.above + SEGMENT_IDS: segments, group.above + POSITIONS: positions}
        if gone.any():
            positions[segments == 0] = 0
        for at in short.tolist():
            positions[at, size - room[at] :] = 0
        return self._with_begin_tokens(group, out) if group.led else out

    def _tokens(
        self, group: Group, found: DocumentPieces, gone: Array, ends: list[int], rooms: list[int]
    ) -> dict[str, Array]:
        """Concatenate the values of documents, with padding after the last ones of short rows."""
        out = {}
        starts = self._documents.begins(found.documents, group.names)
        widest = group.size if ends or gone.any() else 0
        for name, start in zip(group.names, starts, strict=True):
            values = self._documents.columns[name].values
            if isinstance(values, np.ndarray):
                values = np.asarray(values)  # slicing a memory map costs more
            begins = (start + found.begins)[~gone]
            pieces = [*array_column(values).spans(begins, begins + found.lengths[~gone])]
            inner, dtype = values.shape[1:], values.dtype
            padding = np.full((widest, *inner), self._pads[name], dtype)
            for at in np.flatnonzero(gone).tolist():
                pieces.insert(at, padding[: found.lengths[at]])
            for end, room in zip(reversed(ends), reversed(rooms), strict=True):
                pieces.insert(end, padding[:room])
            out[name] = lease((len(found.many), group.size, *inner), dtype)
            np.concatenate(pieces, out=out[name].reshape(-1, *inner))
        return out

    def _with_begin_tokens(self, group: Group, made: dict[str, Any]) -> dict[str, Any]:
        """Prepend a token to fields, in the segment of the document that follows; traceable."""
        ids, places = group.above + SEGMENT_IDS, group.above + POSITIONS
        segments = made[ids]
        namespace, first = segments.__array_namespace__(), segments[:, :1]
        made[places] = made[places] + ((segments == first) & (first > 0))
        fronts = {ids: first, places: first * 0}
        for name in group.names:
            inner = made[name].shape[2:]
            there = (first > 0).reshape(len(first), 1, *[1] * len(inner))
            front = namespace.where(there, self._leads[name], self._pads[name])
            fronts[name] = namespace.broadcast_to(front, (len(first), 1, *inner))
        return {
            name: namespace.concatenate([fronts[name], column], 1) for name, column in made.items()
        }

    def _document_values(self, found: DocumentPieces, gone: Array) -> dict[str, Array]:
        """Return the values per document, each in the slot of its document."""
        row = np.repeat(np.arange(len(found.many)), found.many)[~gone]
        slot = np.arange(len(gone)) - np.repeat(offsets_of(found.many)[:-1], found.many)
        out = {}
        for name, values in self._documents.values(found.documents[~gone]):
            shape = len(found.many), self._row.slots, *values.shape[1:]
            out[name] = np.full(shape, self._pads[name], values.dtype)
            out[name][row, slot[~gone]] = values
        return out

    def placed(self) -> tuple[Any, Callable[[Any, Indices], Any]]:
        """Return the data for the devices, and a function that gathers rows there like `gather`."""
        dealt, columns = self._dealt, self._documents.columns
        size = int(np.sum(self._row.size))
        if dealt.rows * size > _END:
            raise ValueError(
                f"{dealt.rows:,} packed rows of {size:,} tokens are more than the 2**31 "
                f"tokens that as_function counts: use .load(...)."
            )
        documents, skipped = dealt.documents(np.arange(dealt.places))
        values, begins = {}, {}
        for group in self._groups:
            firsts = self._documents.begins(documents, group.names)
            skip = skipped if isinstance(skipped, int) else skipped[group.which]
            for name, first in zip(group.names, firsts, strict=True):
                low, high = (int(columns[name].offsets[end]) for end in (0, -1))
                values[name] = np.asarray(columns[name].values[low:high])
                begins[name] = first + skip - low
        data = {"values": values, "begins": begins, "tables": dict(dealt.tables)}
        return data | {"beside": dict(self._documents.values(documents))}, self._traced

    def _traced(self, data: Any, rows: Any) -> dict[str, Any]:
        """Gather rows in a trace."""
        dealt = self._dealt
        namespace = rows.__array_namespace__()
        variant, row = (rows // dealt.rows).astype(np.uint32), rows % dealt.rows
        pieces = place, _, lengths = dealt.pieces(data["tables"], variant, row)
        there = (lengths > 0).reshape(*place.shape, -1).any(-1)
        ids = namespace.cumsum(there, 1)
        out: dict[str, Any] = {}
        for group in self._groups:
            made = self._traced_group(data, group, pieces, ids)
            out |= self._with_begin_tokens(group, made) if group.led else made
        for name, values in data["beside"].items():
            pad = values.dtype.type(self._pads[name])
            shape = len(rows), self._row.slots, *values.shape[1:]
            inside = there.reshape(*there.shape, *[1] * (values.ndim - 1))
            taken = namespace.where(inside, values[place], pad)
            out[name] = namespace.full(shape, pad).at[:, : place.shape[1]].set(taken)
        return out

    def _traced_group(self, data: Any, group: Group, pieces: Any, ids: Any) -> dict[str, Any]:
        """Gather the fields of a group in a trace."""
        (place, skip, lengths), size = pieces, group.size
        namespace, length = place.__array_namespace__(), lengths[group.which]
        ends = namespace.cumsum(length, 1)
        begins, number = ends - length, namespace.arange(len(place))[:, None]
        # count the pieces that have begun; those without tokens begin where the next one does
        marks = namespace.zeros((len(place), size + 1), np.int32).at[number, begins].add(1)
        nth = namespace.cumsum(marks[:, :size], 1) - 1
        token = namespace.arange(size)[None]
        there = token < ends[:, -1:]
        positions = token - begins[number, nth]
        out = {}
        for name in group.names:
            values = data["values"][name]
            source = (data["begins"][name][place] + skip)[number, nth] + positions
            inside = there.reshape(*there.shape, *[1] * (values.ndim - 1))
            taken = values[namespace.where(there, source, 0)]
            out[name] = namespace.where(inside, taken, values.dtype.type(self._pads[name]))
        segments = namespace.where(there, ids[number, nth], 0).astype(np.int32)
        positions = namespace.where(there, positions, 0).astype(np.int32)
        return out | {group.above + SEGMENT_IDS: segments, group.above + POSITIONS: positions}


@lru_cache(8)
def _numbers(count: int) -> Array:
    """Return the numbers below count; all batches of one size share them."""
    numbers = np.arange(count, dtype=np.int32)
    numbers.flags.writeable = False
    return numbers


def _in_dtypes(word: str, given: Mapping[str, Any], dtypes: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the number of each field to its dtype; `word` names the argument, for errors."""
    made = {}
    for name, dtype in dtypes.items():
        number = given.get(name, 0)
        try:
            made[name] = in_dtype(number, dtype)
        except ValueError:
            raise FeedMismatch(
                f"pack(reader, size, {word}={described(number)}) cannot "
                f"{word.replace('begin', 'lead')} {name!r}, which is {dtype}: give one number that "
                f"fits {dtype}, or {word}={{{name!r}: number}} for that field alone."
            ) from None
    return made
