"""The buckets of a stream: samples wait until their bucket is full.

What waits is bounded: less than a batch for each bucket. The position is exact without storing
samples: that of the reader before the oldest one that waits, how many were read since, and how many
of each bucket were handed over since; who resumes reads those again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Protocol, cast

from jreader.batches.bucket_order import CALL, Buckets
from jreader.batches.padding import Padding, field_getter
from jreader.readers import Columns, Node, Pass, Position, Reader, checked_position, start

_MARKED = 64  # samples of a stream between two places that are remembered


class Waiting(Buckets, Protocol):
    """What the buckets of a stream ask of the op."""

    @property
    def reader(self) -> Reader[Any]:
        """The stream."""

    @property
    def by(self) -> Any:
        """The field whose length chooses the bucket."""

    @property
    def padding(self) -> Padding:
        """How samples become arrays."""

    def made(self, padding: Padding, samples: Sequence[Any], number: int) -> Columns[Any]:
        """The batch of some samples of a bucket."""


class StreamBuckets:
    """A pass over a stream: the samples that wait for their bucket to be full.

    Attributes:
        read: How many samples were read since the place where this pass began.
        held: For each bucket, the samples that wait, each with its number.
        given: How many samples of each bucket were handed over since then.
        seen: How many were read.
        marks: Places to resume at, in order: the position of the reader, `read` and `seen` there.
    """

    def __init__(self, op: Waiting, at: Position) -> None:
        """Begins at a position; nothing is read yet."""
        many = len(op.bounds)
        origin, behind, given = checked_position(at, (None, 0, (0,) * many))
        self.op, self.padding = op, op.padding
        self.up = start(op.reader, origin).watched(cast("Node[Any]", op), max(op.rows))
        self.first: Position = (origin, behind, tuple(given))
        self.behind, self.read = behind, 0
        self.held: list[deque[tuple[int, Any]]] = [deque() for _ in range(many)]
        self.given, self.seen = list(given), [0] * many
        self.marks: list[tuple[Position, int, tuple[int, ...]]] = []

    def begun(self) -> Pass[Any]:
        """The pass."""
        return Pass(self._batches(), self.position, self.up.close)

    def position(self) -> Position:
        """A place before the oldest sample that waits, and what was done since."""
        if not self.marks or self.read < self.behind:
            return self.first
        waits = [held[0][0] for held in self.held if held]
        if not waits:
            return self.up.position(), 0, (0,) * len(self.given)
        mark = bisect_right(self.marks, min(waits), key=itemgetter(1)) - 1
        origin, read, seen = self.marks[mark]
        given = [done - before for done, before in zip(self.given, seen, strict=True)]
        return origin, self.read - read, tuple(given)

    def _batches(self) -> Iterator[Any]:
        rows, held, seen = self.op.rows, self.held, self.seen
        most = 2 * sum(rows) + 2
        bucket_of: Callable[[Any], int | None] | None = None
        self._mark()
        for sample in self.up.items:
            bucket_of = bucket_of or self._finder(sample)
            number = bucket_of(sample)
            if number is not None:
                seen[number] += 1
                if seen[number] > self.given[number]:  # else it was handed over before
                    held[number].append((self.read, sample))
            self.read += 1
            if self.read > self.behind and number is not None and len(held[number]) == rows[number]:
                yield self._full(number)
            if not self.read % _MARKED:
                if len(self.marks) > most:
                    self._forget()
                self._mark()
        if not self.op.drop_last:
            for number in range(len(held)):
                if held[number]:
                    yield self._full(number)

    def _full(self, number: int) -> Any:
        samples = [sample for _, sample in self.held[number]]
        self.held[number].clear()
        self.given[number] += len(samples)
        return self.op.made(self.padding, samples, number)

    def _mark(self) -> None:
        self.marks.append((self.up.position(), self.read, tuple(self.seen)))

    def _forget(self) -> None:
        """Forgets the marks after which no sample waits before the next one."""
        waits = [read for held in self.held for read, _ in held]
        needed = {bisect_right(self.marks, read, key=itemgetter(1)) - 1 for read in waits}
        self.marks = [self.marks[index] for index in sorted(needed)]

    def _finder(self, first: Any) -> Callable[[Any], int | None]:
        """A function that gives the number of the bucket of a sample; None for none."""
        by, names, bounds = self.op.by, self.padding.chosen(first), self.op.bounds
        if by is not None and by not in names:
            raise ValueError(
                f"by={by!r} of {CALL} is no field that is padded: those are {list(names)}."
            )
        fields = [field_getter(first, name) for name in (names if by is None else (by,))]

        def found(sample: Any) -> int | None:
            length = max([len(field(sample)) for field in fields])
            number = bisect_left(bounds, length)
            return number if number < len(bounds) else self._beyond(length)

        return found

    def _beyond(self, length: int) -> int | None:
        last = self.op.bounds[-1]
        if self.op.longer == "error":
            raise ValueError(
                f"{CALL}: a sample has {length} values, more than the last bound, {last}: add a "
                f"bound, or type longer='truncate' to cut it, or longer='drop' to leave it out."
            )
        return len(self.op.bounds) - 1 if self.op.longer == "truncate" else None
