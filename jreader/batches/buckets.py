"""`bucket`: batch samples of similar length, in few shapes.

If the lengths of all samples are known before reading, the batches are a precomputed order
(`bucket_order`), and the bounds can be chosen (`bucket_bounds`). In a stream, samples wait until
their bucket is full (also in `bucket_order`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np

from jreader.batches.bucket_bounds import chosen_bounds
from jreader.batches.bucket_order import BucketOrder, KnownBatches, StreamBuckets
from jreader.batches.padding import (
    Padding,
    checked_fields,
    checked_lengths,
    field_getters,
    fields_of,
    ragged_fields,
)
from jreader.errors import NotResumable, check_number
from jreader.orders import random_seed
from jreader.readers import (
    Columns,
    Node,
    Pass,
    Plane,
    Position,
    Reader,
    argument,
    branches,
    checked_position,
    choice,
    counted,
    described,
    indexed,
    op,
    set_fields,
    start,
    truth,
    whole,
)
from jreader.readers.columns import Array
from jreader.readers.growing import written_first
from jreader.readers.joined_columns import ENDLESS
from jreader.readers.memos import Memo
from jreader.readers.nodes import lazy_length
from jreader.readers.ragged import lengths_hash, lengths_of
from jreader.readers.seeds import Draws, random_ops, seeded_below

T = TypeVar("T")
U = TypeVar("U")

_CALL = "bucket(reader, bounds)"


@op
class bucket(Node[Columns[T]]):
    """Batch samples of similar length together; each batch is padded to the bound of its bucket.

    A jitted step is compiled once per bound, with little padding.

    >>> documents = lambda: [[1], [2, 3, 4], [5], [6, 7, 8, 9], [10, 11, 12]]
    >>> for batch in bucket(documents, [2, 4], batch_size=2)():
    ...     print(batch.columns["tokens"].tolist())
    [[1, 0], [5, 0]]
    [[2, 3, 4, 0], [6, 7, 8, 9]]
    [[10, 11, 12, 0]]

    The lengths of ragged columns are known in advance, so the number of bounds is enough: the op
    then computes the bounds that need the least padding.

    >>> from jreader import ragged
    >>> ragged_documents = ragged([1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 1, 3, 4, 9])
    >>> bucket(ragged_documents, 2, batch_size=1, seed=0).bounds
    (2, 5)

    Batches have the form that `padded_batch` describes: the padded fields, and a mask for each.

    If the lengths are known before a sample is read (ragged columns, not shuffled before), each
    epoch shuffles the samples inside their buckets, and mixes the batches of all buckets. The order
    follows from seed, epoch and index alone, so any host finds any batch directly. Otherwise a
    batch is yielded when its bucket is full.

    The last samples of each bucket may not fill a batch. Such short batches are mixed with the
    others if the lengths are known, and come last in a stream. `load` drops them, or pads them with
    rows of zeros, which its `mask` marks, so that there are no other shapes.

    Cost: if the lengths are known, any batch is found directly, and resuming is immediate. Over a
    stream, at most `batch_size` - 1 samples wait in each bucket, and resuming reads all samples
    again from the oldest waiting one.

    Args:
        reader: Any reader of arrays, or lists, that differ in length, alone or as fields.
        bounds: The lengths of the buckets, in increasing order. A sample goes to the first bucket
            that fits its length. Or, if lengths are known, the number of buckets: the op then
            chooses the bounds that pad least, which `repr` shows.
        batch_size: Samples per batch, instead of `tokens`.
        tokens: Values per batch, padding included: a bucket of bound b has `tokens // b`
            samples per batch.
        by: The field whose length chooses the bucket; None for the longest of the padded fields.
        fields: The names of the fields to pad, as in `padded_batch`.
        pad: The fill value: a number, or a dict of numbers by field.
        longer: What to do with samples longer than the last bound: "error", "truncate" to cut them,
            or "drop" to leave them out.
        divisible_by: Make the size of every full batch a multiple of this: the number of devices
            that share a batch.
        drop_last: Whether to drop short batches. None and False both yield them; `load` then drops
            them for None, and pads them for False.
        seed: An int, or a jax key, fixes the order; `at_epoch` and `epochs` vary it. None draws a
            new seed for each pass; resuming that pass restores it. A stream keeps its order.
        multiple_of: Make all bounds multiples of this, such as 8 or 128 for matrix units.

    Raises:
        TypeError: `bounds` is neither a list of lengths nor a number, neither or both of
            `batch_size` and `tokens` are given, or no field differs in length.
        ValueError: The bounds do not increase, or are to be chosen and lengths are not known; a
            batch of `tokens` values has no room for a row of the last bound; a sample is longer
            than that bound; or it is not clear which fields to pad.
    """

    reader: Reader[T]
    bounds: Any
    batch_size: int | None = whole(default=None, least=1)
    tokens: int | None = whole(default=None, least=1)
    by: Any = None
    fields: Any = argument(checked_fields, default=None)
    pad: Any = argument(default=0, cursor="values")
    longer: Literal["error", "truncate", "drop"] = choice(
        "error", "truncate", "drop", default="error"
    )
    divisible_by: int = whole(default=1, least=1)
    drop_last: bool | None = truth(default=None)
    seed: Any = random_seed()
    multiple_of: int | None = whole(default=None, least=1, cursor="never")  # already in the bounds
    epoch: int = field(default=0, init=False)
    _memo: Memo[BucketOrder] = field(default_factory=Memo, init=False)
    unit = "batches"

    def check_arguments(self) -> dict[str, Any]:
        """Choose the bounds, and check that the other arguments fit them."""
        if not random_ops(self.reader):  # lengths may set the order: keep them equal
            set_fields(self, reader=written_first(self.reader))
        set_fields(self, bounds=self._checked_bounds())
        if (self.batch_size is None) == (self.tokens is None):
            seen = "neither" if self.batch_size is None else "both"
            raise TypeError(
                f"{_CALL} takes batch_size (samples per batch) or tokens (values per batch, with "
                f"the padding), not {seen}: type bucket({list(self.bounds)}, batch_size=32), or "
                f"tokens={32 * self.bounds[-1]}."
            )
        self._check_rows()
        if self.by is not None and self.fields and self.by not in self.fields:
            raise ValueError(
                f"by={self.by!r} of {_CALL} needs a field that is padded, and fields are "
                f"{list(self.fields)}: name it there too."
            )
        if not lazy_length(self.reader) and not random_ops(self.reader):
            self.known()  # raise errors about lengths here, where users can fix them
        return {}

    def _checked_bounds(self) -> tuple[int, ...]:
        """Return the bounds as given, or choose that many from the lengths."""
        each = self.multiple_of or 1
        if isinstance(self.bounds, (int, np.integer)):
            number = check_number(f"bounds of {_CALL}", self.bounds, 1)
            return chosen_bounds(self._known_lengths(number), number, each)
        bounds = checked_lengths(_CALL, "bounds", self.bounds)
        up = sorted({-(-bound // each) * each for bound in bounds})
        if list(bounds) != up:
            raise ValueError(
                f"{_CALL}: not all of the bounds {list(bounds)} are multiples of "
                f"multiple_of={each}: type bounds={up}."
            )
        return bounds

    def _known_lengths(self, number: int) -> Array:
        """Return the lengths from which to choose the bounds."""
        plane, lengths = self._plane(), np.zeros(0, int)
        lacks = (
            f"the lengths of {described(self.reader)} are not known before it is read: put bucket "
            f"directly after ragged(values, offsets), before any shuffle or map"
        )
        if plane is not None:
            lengths = self._lengths(plane)
            lacks = f"{described(self.reader)} has no samples: give it some data"
        if not len(lengths):
            raise ValueError(
                f"bounds={number} of {_CALL} asks for the {number} bounds that pad least, and "
                f"{lacks}, or type the bounds themselves, as bounds=[128, 256, 512]."
            )
        return lengths

    def _check_rows(self) -> None:
        each = self.divisible_by
        if self.batch_size and self.batch_size % each:
            below = self.batch_size // each * each
            raise ValueError(
                f"{_CALL}: batch_size={self.batch_size} is not a multiple of divisible_by={each}: "
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
        """Samples per full batch, for each bucket."""
        if self.batch_size:
            return (self.batch_size,) * len(self.bounds)
        each = self.divisible_by
        return tuple((self.tokens or 0) // bound // each * each for bound in self.bounds)

    @property
    def padding(self) -> Padding:
        """The `Padding` that turns samples into arrays."""
        names = ragged_fields(self.reader, self.fields) or self.fields
        return Padding(_CALL, names, self.pad, self.longer == "truncate")

    def resolved(self, draws: Draws) -> dict[str, Any]:
        """Draw a seed only if batches are shuffled: a stream keeps its order."""
        if self.seed is not None or self._plane() is None:
            return {}
        return {"seed": draws.seed()}

    def start(self, at: Position) -> Pass[Columns[T]]:
        """Start a pass; its position is the next batch, or the resume point of a stream."""
        plane, padding = self._plane(), self.padding
        if plane is not None:
            return self.dealt(at, self._found(plane))
        first = checked_position(at, (None, 0, (0,) * len(self.bounds)))
        up = start(self.reader, first[0]).watched(self, max(self.rows))
        number_of, made = self._number_of(padding), partial(self.made, padding)
        waiting = StreamBuckets(up, first, self.rows, number_of, made)
        return Pass(waiting.batches(short=not self.drop_last), waiting.position, up.close)

    def length(self) -> int | None:
        """Return the number of batches, if the lengths are known."""
        known = self.known()
        return None if known is None else len(known)

    def layout(self) -> str:
        """Hash the lengths of all samples, as far as they are known before reading."""
        return lengths_hash(self.reader)

    def lookup(self) -> Callable[[int], Columns[T]] | None:
        """Find a batch by the indices of its samples, if the lengths are known."""
        plane = None if self.seed is None else self._plane()
        known = None if plane is None else self.known()
        if plane is None or known is None:
            return None
        found = self._found(plane)
        return lambda index: found(*known.at(index))

    def _found(self, plane: Plane) -> Callable[[int, Array], Columns[T]]:
        """Return a function that makes a batch from a bucket number and sample indices."""
        padding = self.padding
        return lambda number, samples: self.made(padding, list(plane.each(samples)), number)

    def made(self, padding: Padding, samples: Sequence[Any], number: int) -> Columns[T]:
        """Make a batch from some samples of a bucket."""
        bound = self.bounds[number]
        return Columns(padding.columns(samples, lambda *_: (bound,)), full=self.rows[number])

    def _plane(self) -> Plane | None:
        """Return the reader's plane, if it has the lengths and they are the same in every epoch.

        Raises:
            TypeError: It shows that all samples have the same length.
        """
        plane = None if random_ops(self.reader) else indexed(self.reader)
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

    def known(self) -> KnownBatches | None:
        """Return the batches in order; None if the lengths are not known."""
        order = self._memo.of(self.reader, self._sorted)
        if order is None:
            return None
        path = self.seed, self.epoch, seeded_below(self)
        return KnownBatches(order, path, short=not self.drop_last)

    def _sorted(self) -> BucketOrder | None:
        plane = self._plane()
        if plane is None:
            return None
        return BucketOrder.of(self._numbers(self._lengths(plane)), np.array(self.rows))

    def _lengths(self, plane: Plane) -> Array:
        names = ragged_fields(self.reader, self.fields) or ()
        if self.by is not None and self.by not in names:
            raise ValueError(
                f"by={self.by!r} of {_CALL} is not a field that differs in length: those are "
                f"{list(names)}."
            )
        bare = branches(plane.columns) is None
        chosen = names if self.by is None else (self.by,)
        found: list[Any] = [lengths_of(plane, None if bare else name) for name in chosen]
        longest: Array = np.maximum.reduce(found)
        return longest

    def _numbers(self, lengths: Array) -> Array:
        """Return the bucket of each length; the number after the last one to leave a sample out."""
        numbers = np.searchsorted(np.array(self.bounds), lengths)
        beyond = numbers == len(self.bounds)
        if self.longer == "error" and beyond.any():
            first = int(beyond.argmax())
            raise ValueError(
                f"{_CALL}: {int(beyond.sum()):,} of {len(lengths):,} samples are longer than the "
                f"last bound, {self.bounds[-1]}, such as sample {first} with {lengths[first]}: "
                f"type bounds=[..., {int(lengths.max())}], longer='truncate' to cut them, or "
                "longer='drop' to leave them out."
            )
        return numbers - beyond if self.longer == "truncate" else numbers

    def _number_of(self, padding: Padding) -> Callable[[Any], int | None]:
        """Return a function that returns the bucket number of a sample; None to leave it out."""
        bounds, last, fields = self.bounds, len(self.bounds) - 1, list[Callable[[Any], Any]]()

        def number_of(sample: Any) -> int | None:
            if not fields:
                fields.extend(self._measured(padding, sample))
            length = max([len(field(sample)) for field in fields])
            number = bisect_left(bounds, length)
            if number <= last:
                return number
            if self.longer == "error":
                raise ValueError(
                    f"{_CALL}: a sample has {length} values, more than the last bound, "
                    f"{bounds[-1]}: add a bound, or type longer='truncate' to cut it, or "
                    f"longer='drop' to leave it out."
                )
            return last if self.longer == "truncate" else None

        return number_of

    def _measured(self, padding: Padding, first: Any) -> Iterator[Callable[[Any], Any]]:
        """Return getters of the fields whose lengths choose the bucket of a sample."""
        names, getters = padding.chosen(first), field_getters(first)
        if self.by is not None and self.by not in names:
            raise ValueError(
                f"by={self.by!r} of {_CALL} is no field that is padded: those are {list(names)}."
            )
        return (getters[name] for name in (names if self.by is None else (self.by,)))

    def dealt(self, at: Position, made: Callable[[int, Array], U]) -> Pass[U]:
        """Start a pass over the results of `made` for each batch, if lengths are known.

        Args:
            at: A position, as in `start`.
            made: Takes a bucket number, and the indices of the samples of a batch.

        Raises:
            NotResumable: The position belongs to samples with other lengths.
        """
        known: Any = self.known()
        check = known.order.check
        done, seen = checked_position(at, (0, check))
        if seen != check or done > len(known):
            raise NotResumable(
                f"this position is of a bucket(...) of {described(self.reader)} with other "
                "lengths, and so other batches: resume with the data that it had, or start at the "
                "beginning (at=None)."
            )
        items, count = counted((made(*each) for each in known.from_batch(done)), done)
        return Pass(items, lambda: (count(), check), lambda: None)
