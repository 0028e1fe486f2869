"""`pack`: pack documents of many lengths into rows of one length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal

import numpy as np

from jreader import orders
from jreader.errors import FeedMismatch, check_number
from jreader.orders import random_seed
from jreader.readers import Node, Pass, Position, Reader, argument, choice, indexed, op, whole
from jreader.readers.columns import Array, Indices
from jreader.readers.growing import written_first
from jreader.readers.holders import Held
from jreader.readers.joined_columns import ENDLESS
from jreader.readers.made_rows import made_lazily, may_be_lazy
from jreader.readers.memos import Memo
from jreader.readers.nodes import lazy_length
from jreader.readers.planes import Plane
from jreader.readers.ragged import lengths_hash
from jreader.readers.seeds import seeded_below
from jreader.transforms.joins import chain, interleave
from jreader.transforms.mixtures import mix
from jreader.transforms.packing.bounded_documents import BoundedDocuments
from jreader.transforms.packing.cut_documents import CutDocuments
from jreader.transforms.packing.document_fields import Documents, Packed
from jreader.transforms.packing.packed_rows import DealtDocuments, PackedRows, Row
from jreader.transforms.packing.whole_documents import Side, WholeDocuments
from jreader.transforms.stream_windows import Made, in_windows

_WINDOW = 4096


def _checked_fields(call: str, names: Any) -> tuple[str, ...]:
    several = () if isinstance(names, str) else tuple(names)
    if not several or not all(isinstance(name, str) for name in several):
        raise TypeError(
            f"{call} needs as fields a list of names, such as fields=['tokens'], not {names!r}; "
            "leave it out for all."
        )
    return several


def _checked_size(call: str, size: Any) -> Any:
    if not isinstance(size, Mapping):
        return check_number(call, size, 1)
    if not size:
        raise ValueError(
            f"{call} has no field in its size: type {{'inputs': 512, 'targets': 128}}."
        )
    return {name: check_number(f"{name!r} of {call}", each, 1) for name, each in size.items()}


def _checked_begin(_call: str, begin: Any) -> Any:
    return begin if not isinstance(begin, Mapping) or begin else None


@op
class pack(Node[dict[str, Any]]):
    """Pack documents into rows of `size` tokens, with segment ids and positions.

    Samples are dicts of arrays of shape [size]: `tokens` (or the fields of documents that are
    dicts), `segment_ids` (int32: 1, 2, ... for the documents of a row, 0 for padding) and
    `positions` (int32: 0, 1, ... in each segment, 0 in padding).

    >>> from jreader import ragged
    >>> documents = ragged([11, 12, 13, 21, 31, 32], [0, 3, 4, 6])
    >>> for row in pack(documents, 4, seed=0)():
    ...     print(*(values.tolist() for values in row.values()))
    [11, 12, 13, 21] [1, 1, 1, 2] [0, 1, 2, 0]
    [31, 32, 0, 0] [1, 1, 0, 0] [0, 1, 0, 0]

    If the lengths of all documents are known (`ragged`, token files, and ops that only select their
    samples, or reorder them without a seed), all are packed at once: the number of rows, and the
    fraction of their slots that hold tokens (`Pipeline.fill`), are known before reading, and you
    can look up any row by its index. Streams, and shuffled documents, are packed window by window,
    which needs more padding: pack before you shuffle. Rows come in random order; which documents
    share a row, and the order of the rows, change every epoch. Empty documents are left out.

    A dict as `size` gives each field its own length: all fields of a document are in the same row,
    under the same segment number. Each field has its own array of segment ids and of positions,
    such as `inputs_segment_ids`. For these rows, and rows with `documents=n`, packing sorts
    documents by the largest share of a row that any of their fields needs; otherwise it sorts them
    by length. From epoch to epoch, documents of equal length swap places.

    >>> from jreader import arrays
    >>> inputs = ragged([11, 12, 13, 21, 31, 32], [0, 3, 4, 6])
    >>> pairs = arrays(inputs=inputs, targets=ragged([1, 2, 3, 3], [0, 1, 2, 4]), label=[7, 8, 9])
    >>> sizes, options = {"inputs": 4, "targets": 2}, {"documents": 2, "per_document": ["label"]}
    >>> for name, values in next(pack(pairs, sizes, seed=0, **options)()).items():
    ...     print(name, values.tolist())
    inputs [31, 32, 0, 0]
    inputs_segment_ids [1, 1, 0, 0]
    inputs_positions [0, 1, 0, 0]
    targets [3, 3]
    targets_segment_ids [1, 1]
    targets_positions [0, 1]
    label [9, 0]

    MaxText calls the fields `inputs`, `inputs_segmentation` and `inputs_position`; Grain adds
    `_segment_ids` and `_positions` to the name of a field; in Flax, pass the segment ids to
    `nn.make_attention_mask`. The guide (docs/text.md) shows how to make a mask from them.

    Cost: if lengths are known, it computes the rows once, from the lengths alone, and resuming is
    immediate. Over a stream, it keeps `window` documents in memory, and resuming reads that window
    again. With several lengths, or `documents`, planning takes some 10 to 20 µs per combination of
    lengths that occurs.

    Args:
        reader: Documents: arrays, or lists, of tokens; or dicts of such fields with one value (or
            one array) per token, such as tokens and their loss weights.
        size: The number of tokens per row; or a dict with that number for each field to pack.
        split: "never" keeps documents whole: best-fit decreasing over the histogram of lengths.
            "always" concatenates documents, and cuts them where rows end; each piece counts as a
            separate document.
        longer: For split="never", what to do with documents of more than `size` tokens: raise an
            "error", "split" them into pieces, "truncate" them to `size` tokens, or "drop" them.
        fields: The fields to pack; the others are left out. None for all.
        pad: The padding after the last document of a row: a number, or a dict of numbers by field.
        window: The number of documents to pack together; None means all, or 4,096 if lengths are
            not known or documents are shuffled.
        seed: An int, or a jax key, fixes the order; `at_epoch` and `epochs` vary it. None draws a
            new seed for each pass; resuming that pass restores it.
        documents: The maximum number of documents per row; None for no limit.
        begin: A token to begin each row with, in the segment of the document that follows it; or a
            dict of tokens by field (required if several fields are packed and `size` is one
            number). In a field that is missing from the dict, rows begin with its `pad`; or, if
            `size` is a dict, directly with a document.
        per_document: Fields with one value, or one array, per document. A row stores them in as
            many slots as `documents` says: the value for segment n is in slot n - 1, and padding
            follows the last one.
        truncation_side: With longer="truncate", whether to cut the ends of documents ("right") or
            their beginnings ("left").

    Raises:
        ValueError: A number is below 1, an option is not one of those listed above, or arguments
            conflict: documents cannot be split if `size` is a dict or `documents` is given.
        FeedMismatch: A document is longer than a row, the fields of a document differ in length
            even though `size` is one number, samples are not documents, all documents are empty, or
            `pad` or `begin` does not fit (when rows are requested).
    """

    reader: Reader[Any]
    size: Any = argument(_checked_size, named=True)
    split: Literal["never", "always"] = choice("never", "always", default="never")
    longer: Literal["error", "split", "truncate", "drop"] = choice(
        "error", "split", "truncate", "drop", default="error"
    )
    fields: Sequence[str] | None = argument(_checked_fields, default=None)
    pad: Any = argument(default=0, cursor="values")
    window: int | None = whole(default=None, least=1)
    seed: Any = random_seed()
    documents: int | None = whole(default=None, least=1, cursor="if given")
    begin: Any = argument(_checked_begin, default=None, cursor="if given")
    per_document: Sequence[str] | None = argument(
        _checked_fields, default=None, named=True, cursor="if given"
    )
    truncation_side: Side = choice("right", "left", default="right", cursor="values if given")
    epoch: int = field(default=0, init=False)
    _known: Memo[DealtDocuments] = field(default_factory=Memo, init=False)
    unit = "rows"

    def check_arguments(self) -> dict[str, Any]:
        """Check that arguments are compatible; write first what lengths depend on."""
        if self.split == "always" and self.longer != "error":
            raise ValueError(
                f"pack(reader, size) has split='always', which cuts documents of any length: leave "
                f"longer={self.longer!r} out, or give split='never'."
            )
        for says, wrong in self._contradictions().items():
            if wrong:
                raise ValueError(f"pack(reader, size) {says}.")
        if self._apart and self.longer == "truncate" and may_be_lazy(self.reader):
            raise ValueError("longer='truncate' cuts tokens from their pictures: type 'drop'.")
        if self.window is None and seeded_below(self) == 1:  # one window, if lengths are known
            return {"reader": written_first(self.reader)}
        return {}

    def _contradictions(self) -> dict[str, Any]:
        """Return possible conflicts between arguments: the message, and whether it applies."""
        sizes, whole = self.size if self._apart else {"": self.size}, self.per_document or ()
        bounded = self._apart or self.documents is not None
        many = f"has a slot a document for {whole!r}: say how many there are, as documents=8"
        return {
            "cuts no documents with several lengths, or documents=n: type longer='truncate'": (
                bounded and (self.split == "always" or self.longer == "split")
            ),
            "packs the fields that size names: leave fields= out": self._apart and self.fields,
            many: whole and self.documents is None,
            f"packs fields that per_document={whole!r} names too: name each once": (
                {*whole} & {*(self.fields or sizes)}
            ),
            "puts begin= where the first token of a row was: give rows of 2 or more": (
                min(self._sizes_with_begin.values(), default=2) < 2
            ),
            "has truncation_side='left', where nothing is cut: type longer='truncate' too": (
                self.truncation_side == "left" and self.longer != "truncate"
            ),
        }

    @property
    def _apart(self) -> bool:
        """Whether each field has its own length."""
        return isinstance(self.size, Mapping)

    @property
    def fill(self) -> float | None:
        """The share of tokens in all rows; None if lengths are not known before reading.

        >>> from jreader import ragged
        >>> pack(ragged([11, 12, 13, 21, 31, 32], [0, 3, 4, 6]), 4).fill
        0.75
        """
        found = self._whole()
        rows = found.rows if found else 0
        size = sum(self.size.values()) if self._apart else self.size
        return found.tokens / (rows * size) if found and rows else None

    def start(self, at: Position) -> Pass[dict[str, Any]]:
        """Start a pass; its position is (position before a window, its number, rows of it)."""
        many = self.window or _WINDOW

        def packed(samples: list[Any], window: int) -> Made[dict[str, Any]]:
            documents = Documents.of_samples(samples, self._chosen, window * many)
            plane = self._plane(self._dealt(documents), window)
            return plane.length, lambda done: plane.samples(done).items

        reader = made_lazily(self.reader, (chain, interleave, mix))
        return in_windows(self, reader, at, many, packed, self._no_documents)

    def _no_documents(self) -> FeedMismatch:
        return FeedMismatch(
            f"{self!r} has nothing to pack: none of the documents of this pass has a token that is "
            f"kept. Give documents with tokens, or other lengths than {self.size}."
        )

    def length(self) -> int | None:
        """Return the number of rows; None if lengths are not known before reading."""
        found = self._whole()
        return found.rows if found else None

    def layout(self) -> str:
        """Hash the lengths of all documents, as far as they are known before reading."""
        return lengths_hash(self.reader)

    def plane(self) -> Plane | None:
        """Return the rows of all documents, as one window; None if the seed is not drawn yet."""
        found = None if self.seed is None else self._whole()
        return self._plane(found, 0) if found and found.rows else None

    def notes(self) -> tuple[str, ...]:
        """Return the fill, if it is known."""
        fill = None if lazy_length(self) else self.fill
        return () if fill is None else (f"fill {fill:.4f}",)

    def _whole(self) -> DealtDocuments | None:
        """Return all documents, assigned to rows; None if lengths are unknown, or vary by epoch."""
        if self.window is not None or seeded_below(self) > 1:
            return None
        return self._known.of(self.reader, self._all_dealt)

    def _all_dealt(self) -> DealtDocuments | None:
        up = indexed(self.reader)
        documents = Documents.of_plane(up, self._chosen) if up and up.length < ENDLESS else None
        return self._dealt(documents) if documents else None

    @property
    def _chosen(self) -> Packed:
        """The fields to pack, and how."""
        tokens = tuple(self.size) if self._apart else self.fields
        return Packed(tokens, self.per_document or (), self._apart)

    def _sizes(self, documents: Documents) -> tuple[Any, Any]:
        """Return the tokens per row, and how many precede documents; by field, if these differ."""
        if not self._apart:
            return self.size, int(self.begin is not None)
        leads = [name in self._sizes_with_begin for name in documents.columns]
        return np.array([self.size[name] for name in documents.columns]), np.array(leads, int)

    @property
    def _sizes_with_begin(self) -> Mapping[str, Any]:
        """The sizes of fields that begin with a token."""
        sizes = self.size if self._apart else {"": self.size}
        some = self._apart and isinstance(self.begin, Mapping)
        named = {} if self.begin is None else self.begin if some else sizes
        return {name: size for name, size in sizes.items() if name in named}

    def _dealt(self, documents: Documents) -> DealtDocuments:
        size, lead = self._sizes(documents)
        cut = self.truncation_side
        if self.split == "always":
            return CutDocuments(documents, size - lead)
        if self._apart or self.documents is not None:
            most = self.documents
            return BoundedDocuments(documents, size - lead, self.longer, cut=cut, most=most)
        return WholeDocuments(documents, size - lead, self.longer, cut=cut)

    def _by_field(self, word: str, dealt: DealtDocuments) -> Mapping[str, Any]:
        """Return the value of `pad` or `begin` for each field."""
        given, names = getattr(self, word), dealt.packed.columns
        if not isinstance(given, Mapping):
            if word == "begin" and len(names) > 1 and not self._apart:  # such as tokens and a mask
                raise FeedMismatch(
                    f"begin={given} leads {[*names]}: type begin={{{next(iter(names))!r}: {given}}}"
                )
            return dict.fromkeys(names, given)
        every = [*names, *(dealt.packed.beside if word == "pad" else ())]
        if unknown := [name for name in given if name not in every]:
            raise FeedMismatch(
                f"pack(reader, size) was given a {word} for {unknown[0]!r}, and the fields are "
                f"{', '.join(map(repr, every))}: name one of these."
            )
        return given

    def _plane(self, dealt: DealtDocuments, window: int) -> Plane:
        """Return the rows of a window, in order."""
        rows, (size, lead) = dealt.rows, self._sizes(dealt.packed)
        leads = {} if self.begin is None else self._by_field("begin", dealt)
        row = Row(size, self._by_field("pad", dealt), self.documents or 0, leads)
        column, first = PackedRows(dealt, row), int(np.ravel(lead)[0])
        path = (self.seed, self.epoch, seeded_below(self), window)

        def variant() -> Indices:
            return orders.key(*path, 1).low % np.uint32(column.variants)

        def route(indices: Indices) -> list[Indices]:
            moved = orders.permutation(indices, rows, orders.key(*path, 0))
            return [variant().astype(moved.dtype) * rows + moved]

        def held(_column: int, documents: Array, _end: int) -> Held:
            found = dealt.holding(dealt.packed.holding(documents), variant().reshape(1))
            moved = orders.permutation(found.index, rows, orders.key(*path, 0), inverse=True)
            return replace(found, index=moved, begin=found.begin + first, end=found.end + first)

        return Plane(column, rows, route, held=held)
