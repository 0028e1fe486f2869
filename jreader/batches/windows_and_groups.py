"""Merge consecutive samples: a fixed number (`sliding_window`) or one key (`group_by`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from jreader import errors
from jreader.batches.batching import gives_batches
from jreader.batches.stacked import stack
from jreader.readers import (
    Node,
    Pass,
    Plane,
    Position,
    Reader,
    checked_position,
    described,
    explained,
    flag,
    indexed,
    leaves,
    length,
    lookup_of,
    map_tree,
    op,
    start,
    whole,
)
from jreader.readers.columns import Array, Indices
from jreader.readers.holders import Held
from jreader.readers.joined_columns import ENDLESS, ConcatArray
from jreader.readers.stacked_rows import StackedRows
from jreader.readers.windowed import Cut


@op
class sliding_window(Node[Any]):
    """Stack each `size` consecutive samples into one sample, along a new first axis.

    >>> list(sliding_window(lambda: [1, 2, 3, 4], 2)())
    [array([1, 2]), array([3, 4])]
    >>> list(sliding_window(lambda: [(1, 0.5), (2, 1.5), (3, 2.5)], 2, stride=1)())
    [(array([1, 2]), array([0.5, 1.5])), (array([2, 3]), array([1.5, 2.5]))]

    Over an indexed reader it is indexed too: one gather reads any window, so you can shuffle
    windows, and no sample is stored twice.

    >>> from jreader import arrays, batch, shuffle
    >>> every = sliding_window(arrays(np.arange(1000)), 4, stride=1)
    >>> next(batch(shuffle(every, seed=0), 2)()).columns.tolist()
    [[262, 263, 264, 265], [223, 224, 225, 226]]

    `stride` is the `shift` of tf.data's `window`. There, a window begins at every multiple of the
    shift, so a small shift leaves several incomplete windows at the end. Here at most one is
    incomplete, and only if it has a sample that no other window has. To cut the tokens of
    documents, use `windows`.

    Cost: over an indexed reader, one gather per window, and resuming is immediate. Over a stream,
    it keeps `size` samples in memory, and resuming reads the latest window again.

    Args:
        reader: Any reader of samples that can be stacked.
        size: Samples per window.
        stride: The distance from one window's start to the next; None for `size`, so that windows
            do not overlap. Above `size`, samples between windows are left out.
        drop_last: Whether to drop an incomplete last window. None drops it with a warning; False
            keeps it, with fewer rows, and then windows are not indexed.

    Raises:
        FeedMismatch: The samples of a window cannot be stacked (while iterating).
    """

    reader: Reader[Any]
    size: int = whole(least=1)
    stride: int | None = whole(default=None, least=1)
    drop_last: bool | None = flag(default=None)

    def check_arguments(self) -> dict[str, Any]:
        """Check that the reader yields samples."""
        _check_samples(
            self.reader,
            "sliding_window(reader, size, stride, drop_last)",
            "type .sliding_window(n) before .batch(...), or .unbatch() before it; for several "
            "steps in one feed there is .load().chunk(n).",
        )
        return {}

    def start(self, at: Position) -> Pass[Any]:
        """Start a pass; its position is (whether a window was yielded, where it began)."""
        begun, first = checked_position(at, (False, None))
        up = start(self.reader, first).watched(self, self.size)
        first = up.position()
        overlap = max(self.size - self._stride, 0)

        def deal() -> Iterator[Any]:
            nonlocal begun, first
            held = list[Any]()
            begins = deque[Position]()  # of the windows with samples in `held`
            skipped = self._stride if begun else 0
            while True:
                deque(islice(up.items, max(skipped, 0)), maxlen=0)
                self._fill(held, begins, up)
                short = len(held) < self.size
                new = len(held) - (overlap if begun else 0)
                if short and (new <= 0 or self.drop_last is not False):
                    return self._warn_of_left_out(new)
                begun, first = True, begins.popleft()
                yield self._stacked(held)
                if short:
                    return None
                del held[: self._stride]
                skipped = self._stride - self.size

        return Pass(deal(), lambda: (begun, first), up.close)

    @property
    def _stride(self) -> int:
        return self.size if self.stride is None else self.stride

    def _fill(self, held: list[Any], begins: deque[Position], up: Pass[Any]) -> None:
        """Draw the samples that a window lacks; record where windows begin among them."""
        while (have := len(held)) < self.size:
            since = have % self._stride
            if not since:
                begins.append(up.position())
            wanted = min(self._stride - since, self.size - have)
            held += islice(up.items, wanted)
            if len(held) < have + wanted:
                return

    def _stacked(self, samples: Sequence[Any]) -> Any:
        return _one_sample(samples, f"a window of {len(samples)} samples, made at {self.made_at}")

    def _warn_of_left_out(self, left_out: int) -> None:
        """Warn of samples that are in no window, unless the user chose that."""
        if left_out > 0 and self.drop_last is None:
            errors.warn(
                f"{self!r} leaves out {left_out:,} of its last samples, which do not fill a "
                f"window of {self.size}: type drop_last=True if that is intended, or "
                "drop_last=False for a last window of fewer samples.",
                self.made_at,
            )

    def _windows(self, known: int) -> tuple[int, int]:
        """Return how many full windows `known` samples make, and how many samples follow them."""
        full = (known - self.size) // self._stride + 1 if known >= self.size else 0
        end = (full - 1) * self._stride + max(self.size, self._stride) if full else 0
        return full, max(known - end, 0)

    def length(self) -> int | None:
        """Return the number of windows."""
        known = length(self.reader)
        if known is None:
            return None
        full, behind = self._windows(known)
        return full + (self.drop_last is False and behind > 0)

    def lookup(self) -> Callable[[int], Any] | None:
        """Stack the samples that `reader` finds."""
        find, known = lookup_of(self.reader), length(self.reader)
        if find is None:
            return None

        def found(index: int) -> Any:
            first = index * self._stride
            last = first + self.size if known is None else min(first + self.size, known)
            return self._stacked(list(map(find, range(first, last))))

        return found

    def plane(self) -> Plane | None:
        """Return the rows of each window; None if the last one has fewer."""
        up = indexed(self.reader)
        if up is None:
            return None
        full, behind = (ENDLESS, 0) if up.length >= ENDLESS else self._windows(up.length)
        if behind and self.drop_last is False:
            return None
        self._warn_of_left_out(behind)

        def held(column: int, rows: Array, end: int) -> Held:
            below = up.holding(rows, end * self._stride + self.size, column)
            samples = replace(below, begin=below.index, end=below.index + 1)
            return Cut(self.size, self._stride, end).holding(samples)

        arrays = all(isinstance(column, (np.ndarray, ConcatArray)) for column in leaves(up.columns))
        stacked = partial(StackedRows, size=self.size, stack=self._stacked)
        if arrays and (up.straight or up.runs):
            columns = map_tree(partial(stacked, runs=True), up.columns)
            return Plane(columns, full, lambda indices: up.route(indices * self._stride), held=held)
        return Plane(map_tree(stacked, up.columns), full, partial(self._route, up), held=held)

    def _route(self, up: Plane, indices: Indices) -> list[Indices]:
        namespace = indices.__array_namespace__()
        # The samples of a window vary along the first axis: in a trace, `indices` may go with an
        # array of epochs, which broadcasts along the last axis.
        places = namespace.arange(self.size).reshape(-1, *[1] * indices.ndim)
        places = indices * self._stride + places
        if namespace is np:  # here, planes route indices of one axis
            routed = [
                rows.reshape(*places.shape, *rows.shape[1:]) for rows in up.route(places.ravel())
            ]
        else:
            routed = up.route(places)
        return [namespace.moveaxis(rows, 0, indices.ndim) for rows in routed]


@op
class group_by(Node[Any]):
    """Stack consecutive samples for which `fn` is equal into one sample, along a new first axis.

    >>> events = [("ann", 1), ("ann", 2), ("bob", 7), ("ann", 3)]
    >>> [counts.tolist() for _, counts in group_by(lambda event: event[0], lambda: events)()]
    [[1, 2], [7], [3]]

    As with `itertools.groupby`, a key that recurs later begins another group: sort the data by key,
    or write it in that order. Groups differ in length; `padded_batch` and `bucket` accept them.

    Cost: keeps one group in memory, and the first sample of the next. Resuming goes back to the
    beginning of a group.

    Args:
        fn: Takes a sample and returns its key; keys are compared with `==`.
        reader: Any reader of samples that can be stacked.

    Raises:
        TypeError: `reader` yields batches.
        FeedMismatch: The samples of a group cannot be stacked (while iterating).
    """

    fn: Callable[[Any], Any]
    reader: Reader[Any]

    def check_arguments(self) -> dict[str, Any]:
        """Check that the reader yields samples."""
        call, cure = "group_by(fn, reader)", "type .group_by(fn) before .batch(...)."
        _check_samples(self.reader, call, cure)
        return {}

    def start(self, at: Position) -> Pass[Any]:
        """Start a pass; its position is that of `reader` before the next group."""
        up, key_of = start(self.reader, at).watched(self, 2), explained(self, self.fn)
        begin = up.position()

        def deal() -> Iterator[Any]:
            nonlocal begin
            held = list[Any]()
            key, end = None, begin
            for sample in up.items:
                now = key_of(sample)
                if held and not bool(now == key):
                    begin = end
                    yield self._stacked(held)
                    held = []
                held.append(sample)
                key, end = now, up.position()
            if held:
                begin = end
                yield self._stacked(held)

        return Pass(deal(), lambda: begin, up.close)

    def _stacked(self, samples: list[Any]) -> Any:
        return _one_sample(samples, f"a group of {len(samples)} samples, made at {self.made_at}")


def _check_samples(reader: Reader[Any], call: str, cure: str) -> None:
    """Raise TypeError if a reader yields batches where an op merges samples."""
    if gives_batches(reader):
        raise TypeError(f"{call} needs samples, and {described(reader)} gives batches: {cure}")


def _one_sample(samples: Sequence[Any], what: str) -> Any:
    """Stack samples into one; errors call them `what`."""
    with errors.noting(f"in {what}", errors.FeedMismatch):
        return stack(samples)
