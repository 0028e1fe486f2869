"""`bucket`: batches of samples of about one length, of few shapes.

Where the lengths of all samples are known before one is read, the batches are an order: samples are
sorted by bucket once (a counting sort), permuted inside each bucket, cut into batches, and the
batches of all buckets are permuted. So any batch is found at once, on any host.

Of a stream, samples wait until their bucket is full. What waits is bounded: less than a batch for
each bucket. Its position is exact without storing samples: that of the reader before the oldest one
that waits, how many were read since, and how many of each bucket were handed over since; who
resumes reads those again.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal, TypeVar

import numpy as np

from jreader import orders
from jreader.batches.padding import (
    Padding,
    checked_fields,
    checked_lengths,
    field_getter,
    fields_of,
    ragged_fields,
)
from jreader.errors import NotResumable
from jreader.readers import (
    Columns,
    Node,
    Pass,
    Plane,
    Position,
    Reader,
    branches,
    checked_position,
    described,
    indexed,
    op,
    start,
    whole,
)
from jreader.readers.nodes import children, field_names, unread
from jreader.readers.planes import ENDLESS, Array, parted
from jreader.readers.ragged import lengths_of
from jreader.readers.seeds import Draws, seeded_below

T = TypeVar("T")
U = TypeVar("U")

_CALL = "bucket(reader, bounds)"
_AT_ONCE = 16384  # samples whose order is computed in one go, at least
_MARKED = 64  # samples of a stream between two places that are remembered


class _Memo:
    """What the copies of an op share, and no pickle has: its samples, sorted."""

    def __init__(self) -> None:
        self.reader: Any = None
        self.order: _Order | None = None

    def __reduce__(self) -> Any:
        return _Memo, ()


@op
class bucket(Node[Columns[T]]):
    """Batches of samples of about one length: each is padded to the bound of its bucket.

    A step that is compiled for each shape is compiled once for each bound, and little is padded.

    >>> documents = lambda: [[1], [2, 3, 4], [5], [6, 7, 8, 9], [10, 11, 12]]
    >>> for batch in bucket(documents, [2, 4], batch_size=2)():
    ...     print(batch.columns["tokens"].tolist())
    [[1, 0], [5, 0]]
    [[2, 3, 4, 0], [6, 7, 8, 9]]
    [[10, 11, 12, 0]]

    What a batch is, `padded_batch` says: the fields, padded, and a mask for each of them.

    If the lengths are known before a sample is read (ragged columns, not shuffled before), samples
    are shuffled inside their buckets, and the batches of all buckets are mixed, in each epoch anew:
    by seed, epoch and index alone, so that any batch is found at once, on any host. Otherwise
    batches come as they fill up; at most `batch_size` samples, less one, wait in each bucket. To
    resume, the samples since the oldest one that waits are read again.

    The last samples of each bucket may fill no batch. Short batches come among the others where
    lengths are known, and at the end of a stream; `load` leaves them out, or pads them with rows of
    zeros, under its `mask`, so that there are no other shapes.

    Args:
        reader: Any reader of arrays, or lists, that differ in length, alone or as fields.
        bounds: The lengths of the buckets, in rising order. A sample belongs to the first one that
            is not less than its length.
        batch_size: Samples per batch. Instead of `tokens`.
        tokens: Values per batch, padding included: a bucket of bound b has `tokens // b` samples
            per batch.
        by: The field whose length chooses the bucket; None for the longest of those that are
            padded.
        fields: The names of the fields to pad, as in `padded_batch`.
        pad: What fills rows up: a number, or a dict of numbers by field.
        longer: What to do with samples that are longer than the last bound: "error", or "truncate"
            to cut them, or "drop" to leave them out.
        divisible_by: The samples of every full batch are a multiple of this: the number of devices
            that share a batch.
        drop_last: Whether to leave out the short batches. None hands them over too, but `load`
            leaves them out then; with False, `load` pads them.
        seed: An int, or a jax key, fixes the order; `at_epoch` and `epochs` vary it. None draws
            anew for each pass, which can be resumed all the same. A stream keeps its order.

    Raises:
        TypeError: `bounds` is no list of lengths, neither or both of `batch_size` and `tokens` are
            given, or no field differs in length.
        ValueError: The bounds do not rise, or a batch has no room for a row of the last one; a
            sample is longer than that; or it is not clear which fields to pad.
    """

    reader: Reader[T]
    bounds: Any
    batch_size: int | None = whole(default=None, least=1)
    tokens: int | None = whole(default=None, least=1)
    by: Any = None
    fields: Any = None
    pad: Any = 0
    longer: Literal["error", "truncate", "drop"] = "error"
    divisible_by: int = whole(default=1, least=1)
    drop_last: bool | None = None
    seed: Any = None
    epoch: int = field(default=0, init=False)
    _memo: _Memo = field(default_factory=_Memo, init=False)
    unit = "batches"
    cursor_ignores = ("pad",)
    joins_lanes = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "bounds", checked_lengths(_CALL, "bounds", self.bounds))
        object.__setattr__(self, "fields", checked_fields(_CALL, self.fields))
        if (self.batch_size is None) == (self.tokens is None):
            seen = "neither" if self.batch_size is None else "both"
            raise TypeError(
                f"{_CALL} takes batch_size, samples per batch, or tokens, values per batch with "
                f"their padding, not {seen}: type bucket({list(self.bounds)}, batch_size=32), or "
                f"tokens={32 * self.bounds[-1]}."
            )
        self._check_rows()
        if self.longer not in ("error", "truncate", "drop"):
            raise ValueError(
                f"longer of {_CALL} is 'error', 'truncate' or 'drop', not {self.longer!r}."
            )
        if self.by is not None and self.fields and self.by not in self.fields:
            raise ValueError(
                f"by={self.by!r} of {_CALL} is a field that is padded, and fields are "
                f"{list(self.fields)}: name it there too."
            )
        if self.drop_last is not None:
            object.__setattr__(self, "drop_last", bool(self.drop_last))
        if self.seed is not None:
            object.__setattr__(self, "seed", orders.as_seed(self.seed, f"{_CALL[:-1]}, seed)"))
        if not unread(self.reader) and not _random(self.reader):
            self._order()  # raises the errors of lengths here, where they can be mended

    def _check_rows(self) -> None:
        each = self.divisible_by
        if self.batch_size and self.batch_size % each:
            below = self.batch_size // each * each
            raise ValueError(
                f"{_CALL}: batch_size={self.batch_size} is no multiple of divisible_by={each}: "
                f"type batch_size={f'{below} or ' if below else ''}{below + each}."
            )
        if self.tokens and not self.rows[-1]:
            room = f"{each} samples" if each > 1 else "a sample"
            raise ValueError(
                f"{_CALL}: tokens={self.tokens} has no room for {room} of {self.bounds[-1]}, the "
                f"last bound: give at least tokens={each * self.bounds[-1]}, or smaller bounds."
            )

    @property
    def rows(self) -> tuple[int, ...]:
        """The samples of a full batch, for each bucket."""
        if self.batch_size:
            return (self.batch_size,) * len(self.bounds)
        each = self.divisible_by
        return tuple((self.tokens or 0) // bound // each * each for bound in self.bounds)

    @property
    def sizes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The lengths of the buckets, and the samples of a full batch of each."""
        return self.bounds, self.rows

    @property
    def padding(self) -> Padding:
        """How samples become arrays."""
        names = ragged_fields(self.reader, self.fields) or self.fields
        return Padding(_CALL, names, self.pad, self.longer == "truncate")

    def resolved(self, draws: Draws) -> dict[str, Any]:
        """Draws a seed only for what is mixed: a stream keeps its order."""
        if self.seed is not None or self._plane() is None:
            return {}
        return {"seed": draws.seed()}

    def start(self, at: Position) -> Pass[Columns[T]]:
        """Begins a pass; its position says which batch comes next, or what waits of a stream."""
        plane = self._plane()
        if plane is None:
            return _Waiting(self, at).begun()
        padding = self.padding
        return self.dealt(
            at, lambda number, samples: self.made(padding, list(plane.each(samples)), number)
        )

    def length(self) -> int | None:
        """The number of batches, if the lengths are known."""
        order = self._order()
        return None if order is None else int(order.batches(self)[-1])

    def lookup(self) -> Callable[[int], Columns[T]] | None:
        """Finds a batch by the indices of its samples, if the lengths are known."""
        plane, order = self._plane(), self._order()
        if plane is None or order is None or self.seed is None:
            return None
        padding = self.padding

        def nth(index: int) -> Columns[T]:
            ((number, samples),) = order.found(self, np.array([index]))
            return self.made(padding, list(plane.each(samples)), number)

        return nth

    def shapes(self) -> list[int] | None:
        """The numbers of the buckets that have a batch in an epoch; None if they are not known."""
        order = self._order()
        if order is None:
            return None
        return np.flatnonzero(np.diff(order.batches(self))).tolist()

    def never(self) -> list[int]:
        """The numbers of the buckets whose samples fill no batch, as far as lengths are known."""
        order = self._order()
        if order is None:
            return []
        few = (order.counts > 0) & (order.counts < np.array(self.rows))
        return np.flatnonzero(few).tolist()

    def short(self) -> list[tuple[int, int]]:
        """The buckets with a short batch, and its samples, as far as lengths are known."""
        order = None if self.drop_last else self._order()
        rests = [] if order is None else (order.counts % np.array(self.rows)).tolist()
        return [(number, rest) for number, rest in enumerate(rests) if rest]

    def samples_of(self, index: int) -> Array:
        """The indices of the samples of a batch, where lengths are known."""
        ((_, samples),) = self._sorted.found(self, np.array([index]))
        return samples

    def cursor_at(self, index: int) -> tuple[Position, int]:
        """The position before a batch, and the samples before it, where lengths are known."""
        order = self._sorted
        return (index, order.check), order.before(self, index)

    @property
    def _sorted(self) -> _Order:
        order = self._order()
        assert order is not None  # noqa: S101  # the caller has seen that it has a length
        return order

    def made(self, padding: Padding, samples: Sequence[Any], number: int) -> Columns[T]:
        """The batch of some samples of a bucket."""
        bound = self.bounds[number]
        return Columns(padding.columns(samples, lambda _: bound), full=self.rows[number])

    def _plane(self) -> Plane | None:
        """The plane of the reader, if it tells the lengths, and they are those of every epoch.

        Raises:
            TypeError: It tells that no sample differs in length from another.
        """
        plane = None if _random(self.reader) else indexed(self.reader)
        if plane is None or plane.length >= min(ENDLESS, 1 << 32):
            return None
        if ragged_fields(self.reader, self.fields):
            return plane
        columns = list(fields_of(plane.columns).values())
        if all(isinstance(column, np.ndarray) and not column.dtype.hasobject for column in columns):
            raise TypeError(
                f"{_CALL} needs samples that differ in length, and those of "
                f"{', '.join(map(described, columns))} do not: give jreader.ragged(values, "
                f"offsets), or type .batch(n)."
            )
        return None

    def _order(self) -> _Order | None:
        """The samples sorted by bucket; None if their lengths are not known."""
        held = self._memo.order
        if held is not None and self._memo.reader is self.reader:
            return held
        plane = self._plane()
        if plane is None:
            return None
        order = _Order.of(self, self._lengths(plane), plane.length)
        self._memo.reader, self._memo.order = self.reader, order
        return order

    def _lengths(self, plane: Plane) -> Array:
        names = ragged_fields(self.reader, self.fields) or ()
        if self.by is not None and self.by not in names:
            raise ValueError(
                f"by={self.by!r} of {_CALL} is no field that differs in length: those are "
                f"{list(names)}."
            )
        bare = branches(plane.columns) is None
        chosen = names if self.by is None else (self.by,)
        found: list[Any] = [lengths_of(plane, None if bare else name) for name in chosen]
        longest: Array = np.maximum.reduce(found)
        return longest

    def dealt(self, at: Position, made: Callable[[int, Array], U]) -> Pass[U]:
        """A pass over what is made of each batch, where lengths are known.

        Args:
            at: A position, as of `start`.
            made: Takes the number of a bucket, and the indices of the samples of a batch.

        Raises:
            NotResumable: The position is of samples with other lengths.
        """
        order = self._sorted
        total = int(order.batches(self)[-1])
        done, check = checked_position(at, (0, order.check))
        if check != order.check or done > total:
            raise NotResumable(
                f"this position is of a bucket(...) of {described(self.reader)} with other "
                f"lengths, which make other batches: go on with the data that it had, or start at "
                f"the beginning (at=None)."
            )
        many = max(_AT_ONCE // max(self.rows), 1)

        def deal() -> Iterator[U]:
            nonlocal done
            while done < total:
                for number, samples in order.found(self, np.arange(done, min(done + many, total))):
                    held = [made(number, samples)]
                    done += 1
                    yield held.pop()

        return Pass(deal(), lambda: (done, order.check), lambda: None)


def _random(reader: Reader[Any]) -> bool:
    """Whether a plan orders or makes samples at random, so that lengths vary with the epoch."""
    if not isinstance(reader, Node):
        return False
    here = "seed" in field_names(reader) and hasattr(reader, "epoch")
    return here or (not reader.pinned and any(map(_random, children(reader))))


@dataclass(frozen=True, eq=False)
class _Order:
    """The samples of a reader, sorted by bucket.

    Attributes:
        samples: The indices of the samples, bucket by bucket.
        counts: The number of samples in each bucket.
        check: A number that differs where the counts do.
    """

    samples: Array
    counts: Array
    check: int

    @classmethod
    def of(cls, op: bucket[Any], lengths: Array, known: int) -> _Order:
        """Sorts the samples of these lengths.

        Raises:
            ValueError: One is longer than the last bound, and that is an error.
        """
        numbers = np.searchsorted(np.array(op.bounds), lengths)
        last = len(op.bounds) - 1
        over = numbers > last
        if op.longer == "error" and over.any():
            first = int(over.argmax())
            raise ValueError(
                f"{_CALL}: {int(over.sum()):,} of {known:,} samples are longer than the last "
                f"bound, {op.bounds[-1]}, as sample {first} with {lengths[first]}: type "
                f"bounds=[..., {int(lengths.max())}], longer='truncate' to cut them, or "
                f"longer='drop' to leave them out."
            )
        if op.longer == "truncate":
            numbers = np.minimum(numbers, last)
        narrow = numbers.astype(np.uint8 if last < 255 else np.uint32)  # 8 bits sort fastest
        counts = np.bincount(narrow, minlength=last + 2)[: last + 1]
        samples = np.argsort(narrow, kind="stable")[: counts.sum()].astype(np.uint32)
        return cls(samples, counts, zlib.crc32(counts.tobytes()))

    def batches(self, op: bucket[Any]) -> Array:
        """How many batches the buckets before each one have; the last number is that of all."""
        rows = np.array(op.rows)
        many = self.counts // rows if op.drop_last else -(-self.counts // rows)
        return np.concatenate([[0], np.cumsum(many)])

    def located(self, op: bucket[Any], indices: Array) -> tuple[Array, Array]:
        """The bucket of each batch, and its number among those of its bucket."""
        begins = self.batches(op)
        mixed = orders.permutation(indices, int(begins[-1]), orders.key(*_path(op), 0))
        numbers = np.searchsorted(begins, mixed, "right") - 1
        return numbers, mixed - begins[numbers]

    def before(self, op: bucket[Any], index: int) -> int:
        """How many samples the batches before one of them have."""
        numbers, places = self.located(op, np.arange(index))
        rows = np.array(op.rows)[numbers]
        return int(np.minimum(rows, self.counts[numbers] - places * rows).sum())

    def found(self, op: bucket[Any], indices: Array) -> list[tuple[int, Array]]:
        """The bucket of each batch, and the indices of its samples."""
        numbers, places = self.located(op, indices)
        firsts = np.cumsum(self.counts) - self.counts
        made: list[Any] = [None] * len(indices)
        for number, here in parted(numbers):
            rows, count = op.rows[number], int(self.counts[number])
            wanted = places[here][:, None] * rows + np.arange(rows)
            there = wanted < count
            key = orders.key(*_path(op), 1 + number)
            moved = orders.permutation(wanted[there], count, key)
            samples = self.samples[firsts[number] + moved].astype(np.int64)
            parts = np.split(samples, np.cumsum(there.sum(1))[:-1])
            for index, part in zip(np.arange(len(indices))[here].tolist(), parts, strict=True):
                made[index] = (number, part)
        return made


def _path(op: bucket[Any]) -> tuple[int, int, int]:
    return op.seed, op.epoch, seeded_below(op)


class _Waiting:
    """A pass over a stream: the samples that wait for their bucket to be full.

    Attributes:
        read: How many samples were read since the place where this pass began.
        held: For each bucket, the samples that wait, each with its number.
        given: How many samples of each bucket were handed over since then.
        seen: How many were read.
        marks: Places to resume at, in order: the position of the reader, `read` and `seen` there.
    """

    def __init__(self, op: bucket[Any], at: Position) -> None:
        """Begins at a position; nothing is read yet."""
        many = len(op.bounds)
        origin, behind, given = checked_position(at, (None, 0, (0,) * many))
        self.op, self.padding = op, op.padding
        self.up = start(op.reader, origin).watched(op, max(op.rows))
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
                f"by={by!r} of {_CALL} is no field that is padded: those are {list(names)}."
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
                f"{_CALL}: a sample has {length} values, more than the last bound, {last}: add a "
                f"bound, or type longer='truncate' to cut it, or longer='drop' to leave it out."
            )
        return len(self.op.bounds) - 1 if self.op.longer == "truncate" else None
