"""`windows`: cut documents of any length into samples of one size."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from jreader import errors
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    branches,
    checked_position,
    described,
    flag,
    indexed,
    leaves,
    op,
    rebuilt,
    start,
    whole,
)
from jreader.readers.columns import Array, each_column, set_block_starts
from jreader.readers.holders import Held
from jreader.readers.joined_columns import ENDLESS
from jreader.readers.located import located_errors
from jreader.readers.memos import Memo
from jreader.readers.planes import Plane
from jreader.readers.ragged import Ragged, lengths_hash
from jreader.readers.seeds import random_ops
from jreader.readers.windowed import ConcatRows, Cut, Windowed

_CHUNK = 1 << 20  # documents to route at a time


@op
class windows(Node[Any]):
    """Cut documents into samples of `size` tokens each.

    Over all documents as one stream (the default), windows continue into the next document; only
    the last tokens are left out, if they are too few for a window:

    >>> from jreader import ragged
    >>> documents = ragged(np.arange(9), [0, 4, 5, 9])
    >>> [window.tolist() for window in windows(documents, 3)()]
    [[0, 1, 2], [3, 4, 5], [6, 7, 8]]

    Within documents, with `across=False`, tokens of each document that do not fill a window are
    left out. A warning counts them. To keep them, let windows continue (`across=True`), or `pack`
    whole documents, with padding:

    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     [window.tolist() for window in windows(documents, 3, across=False)()]
    [[0, 1, 2], [5, 6, 7]]

    To predict each token from those before it, as nanoGPT does, cut windows that are one token
    longer and overlap by one, and split them in the step, where it costs nothing:

    >>> from jreader import Pipeline
    >>> T = 4
    >>> (batch,) = Pipeline(documents).windows(T + 1, stride=T).batch(2)
    >>> x, y = batch.columns[:, :-1], batch.columns[:, 1:]
    >>> x.tolist(), y.tolist()
    ([[0, 1, 2, 3], [4, 5, 6, 7]], [[1, 2, 3, 4], [5, 6, 7, 8]])

    Tokens keep their dtype, which `on_device` can widen: this halves the bytes sent to the device.
    Over files and arrays whose order is the same in every epoch, window `i` is found by arithmetic,
    so cut first and then shuffle. Over other plans, and over streams, documents are read in order,
    and a position is the document in which the next window begins, and where in it.

    Cost: if window `i` is found by arithmetic, resuming is immediate. Over a stream, it keeps only
    the documents of one window in memory, and resuming continues from the document in which the
    next window begins.

    Args:
        reader: A reader of documents: arrays whose first axis is that of the tokens, lists of
            numbers, or trees of these, with one length per document. Windows are such trees.
        size: Tokens per window.
        stride: The distance between the starts of two windows, in tokens; None for `size`, so that
            each token is in one window.
        across: Whether windows continue from one document into the next.

    Raises:
        TypeError: A field has no axis of tokens (in a pass, or when the length is requested).
        ValueError: The fields of a document differ in length (while iterating).
    """

    reader: Reader[Any]
    size: int = whole(least=1)
    stride: int | None = whole(default=None, least=1)
    across: bool = flag(default=True)
    _columns: Memo[Any] = field(default_factory=Memo, init=False)

    def start(self, at: Position) -> Pass[Any]:
        """Start a pass; its position is (that before a document, where its next window begins)."""
        before, begin = checked_position(at, (None, 0))
        up = start(self.reader, before)
        cut = _Stream(self, up, begin, _step(self))
        return Pass(cut.windows(), cut.position, up.close)

    def length(self) -> int | None:
        """Return the number of windows, if the lengths of all documents are known."""
        plane = self.plane()
        return None if plane is None else plane.length

    def layout(self) -> str:
        """Hash the lengths of all documents, as far as they are known before reading."""
        return lengths_hash(self.reader)

    def plane(self) -> Plane | None:
        """Return the plane of windows; None if lengths are unknown or differ between epochs."""
        if random_ops(self.reader):
            return None
        up = indexed(self.reader)
        if up is None or up.length >= ENDLESS or not _all_ragged(self, up):
            return None
        columns = self._columns.of(self.reader, lambda: self._cut(up))
        every = leaves(columns)
        many, blocks = len(every), every[0].block_starts
        return Plane(
            columns,
            len(every[0]),
            lambda rows: [rows] * many,
            straight=True,
            blocks=blocks,
            held=lambda column, rows, _: every[0].cut.holding(
                _among_all_values(up, every[0], up.holding(rows, column=column))
            ),
        )

    def _cut(self, up: Plane) -> Any:
        """Return the columns of the windows, for the documents of a plane."""
        strung, step = _documents_end_to_end(up), _step(self)
        first = strung[0][1]
        for number, (_, lengths) in enumerate(strung):
            if lengths is not first and not np.array_equal(lengths, first):
                which = int((lengths != first).argmax())
                raise _unequal(self, number, int(first[which]), int(lengths[which]))
        total = int(first.sum())
        if self.across:
            cut = Cut.across(total, self.size, step)
        else:
            cut = Cut.within(first, self.size, step)
            _warn_of_rests(self, _left_out(first, self.size, step), len(first))
        made = [
            Windowed(values, begin, total, cut, column)
            for ((values, begin), _), column in zip(strung, leaves(up.columns), strict=True)
        ]
        block = max(column.block_bytes for column in leaves(up.columns))
        if block and not any(isinstance(values, ConcatRows) for (values, _), _ in strung):
            set_block_starts(made, block)
        return rebuilt(up.columns, iter(made))


def _step(node: windows) -> int:
    """Return the distance between the starts of two windows, in tokens."""
    return node.size if node.stride is None else node.stride


def _warn_of_rests(node: windows, left: int, documents: int) -> None:
    if left:
        errors.warn(
            f"windows({node.size}, across=False) leaves out {left:,} tokens of {documents:,} "
            "documents, which do not fill a window: type across=True, for windows that go on in "
            f"the next document, or .pack({node.size}), which keeps all of them, with padding.",
            node.made_at,
        )


def _left_out(lengths: Array, size: int, stride: int) -> int:
    """Count the tokens at the ends of documents of these lengths that are in no window."""
    last = np.maximum(lengths - size, 0) // stride * stride + size  # where the last window ends
    return int(np.where(lengths < size, lengths, lengths - last).sum())


def _all_ragged(node: windows, up: Plane) -> bool:
    """Return whether all columns are ragged, or none is.

    Raises:
        TypeError: Only some are.
    """
    every = leaves(up.columns)
    flags = [isinstance(column, Ragged) for column in every]
    if any(flags) and not all(flags):
        odd, names = flags.index(False), list(branches(up.columns) or ())
        name = names[odd] if len(names) == len(every) else f"field {odd}"
        raise TypeError(
            f"{node!r} cuts all fields of the documents, and {name!r} has one row for each "
            f"document, {described(every[odd])}: leave it out, or give it a value for each token."
        )
    return bool(flags) and all(flags)


def _documents_end_to_end(up: Plane) -> list[tuple[tuple[Any, int], Array]]:
    """Return, for each column, its concatenated documents, where they begin, and their lengths."""
    every = leaves(up.columns)
    if up.straight and all(up.length == len(column) for column in every):
        return [((each.values, int(each.offsets[0])), each.lengths()) for each in every]
    runs = range(0, up.length, _CHUNK)
    routed = [up.rows(np.arange(low, min(low + _CHUNK, up.length))) for low in runs]
    found = []
    for number, column in enumerate(every):
        rows = np.concatenate([np.zeros(0, np.int64), *(each[number] for each in routed)])
        begins, ends = column.offsets[rows], column.offsets[rows + 1]
        if len(rows) and (begins[1:] == ends[:-1]).all():
            found.append(((column.values, int(begins[0])), ends - begins))
        else:
            found.append(((ConcatRows(column, rows), 0), ends - begins))
    return found


def _among_all_values(up: Plane, column: Windowed, documents: Held) -> Held:
    """Add to the documents of a plane where they begin and end among all concatenated values."""
    if isinstance(column.values, ConcatRows):
        begins, ends, which = column.values.starts, column.values.ends, documents.index
        return replace(documents, begin=begins[which], end=ends[which])
    rows, offsets = up.route(documents.index)[0], column.documents.offsets
    first = column.first
    return replace(documents, begin=offsets[rows] - first, end=offsets[rows + 1] - first)


class _Stream:
    """Cuts windows from documents that are read one by one."""

    def __init__(self, node: windows, up: Pass[Any], begin: int, step: int) -> None:
        self.node, self.up, self.step = node, up, step
        self.begin = begin  # where the next window begins, from the first held document
        self.before = up.position()  # position before the next document
        self.held: deque[tuple[Position, Any, int]] = deque()
        self.tokens = 0  # in the held documents

    def position(self) -> Position:
        """Return the position before the next window's document, and where in it that begins."""
        return (self.held[0][0] if self.held else self.before), self.begin

    def windows(self) -> Iterator[Any]:
        """Yield the remaining windows."""
        size, step, across = self.node.size, self.step, self.node.across
        left = documents = 0
        with located_errors(self.node):
            for given in self.up.items:
                document, length = _document(self.node, given)
                self.held.append((self.before, document, length))
                self.tokens += length
                self.before = self.up.position()
                documents += 1
                self._drop()
                while self.tokens - self.begin >= size:
                    window = self._window()
                    self.begin += step
                    if across:
                        self._drop()
                    elif self.tokens - self.begin < size:
                        left -= self.begin - step + size  # where its last window ends
                        self._end()
                    yield window
                if not across:
                    left += length
                    self._end()
        _warn_of_rests(self.node, left, documents)

    def _drop(self) -> None:
        """Drop the documents that end before the next window."""
        while self.held and self.begin >= self.held[0][2]:
            _, _, length = self.held.popleft()
            self.begin -= length
            self.tokens -= length

    def _end(self) -> None:
        """Drop a document whose windows were all yielded."""
        self.held.clear()
        self.begin = self.tokens = 0

    def _window(self) -> Any:
        first, left = self.begin, self.node.size
        pieces = []
        for _, document, length in self.held:
            if length and left:
                pieces.append([leaf[first : first + left] for leaf in leaves(document)])
                left, first = left - min(left, length - first), 0
        tree = self.held[0][1]
        if len(pieces) == 1:
            return rebuilt(tree, iter(pieces[0]))
        return rebuilt(tree, map(np.concatenate, zip(*pieces, strict=True)))


def _document(node: windows, given: Any) -> tuple[Any, int]:
    """Return a document as a tree of arrays, and its number of tokens."""
    document = each_column(np.asarray, given)
    every = leaves(document)
    for leaf in every:
        if not leaf.ndim:
            raise TypeError(
                f"{node!r} needs documents, arrays or lists of tokens, and {described(given)} has "
                f"{described(leaf.item())}, which has no axis of tokens: leave it out, as in "
                f".map(lambda sample: sample['tokens'])."
            )
    for number, (one, other) in enumerate(pairwise(every), 1):
        if len(one) != len(other):
            raise _unequal(node, number, len(one), len(other))
    return document, len(every[0])


def _unequal(node: windows, number: int, one: int, other: int) -> ValueError:
    return ValueError(
        f"{node!r} needs fields of one length in each document, and in one of them field 0 has "
        f"{one:,} tokens, and field {number} {other:,}: cut them alike, or leave one out."
    )
