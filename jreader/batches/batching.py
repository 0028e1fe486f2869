"""What a plan shows about its batches before one is read: their size, number and order.

A plan of batches ends in `batch`, perhaps followed by ops that pass batches on, drop some, or make
a new batch from each. Two traits of these ops, `Node.from_reader` and `Node.in_cursor`, tell a
loader all that it needs, so a new op declares it once. Only this file looks at the ops above a
`batch`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from jreader.batches.buckets import bucket
from jreader.batches.local_rows import moved_to, samples_done
from jreader.batches.padded_batches import padded_batch
from jreader.batches.plain_batches import batch, map_batches
from jreader.readers import Node, Position, Reader, length
from jreader.readers.lanes import dealt_below
from jreader.readers.mapped_rows import mapped_rows
from jreader.readers.nodes import declares, overridden_pass, trampoline, unwrapped
from jreader.readers.seeds import seeded
from jreader.transforms import cache, chain, interleave


@dataclass(frozen=True)
class Batching:
    """What a plan shows about its batches.

    Attributes:
        op: The `batch` or `padded_batch` that makes them; None if something else does.
        size: Samples per full batch; None if unknown before it is read.
        rows: Rows per full batch: `size`, or None if a function of whole batches may change it.
        whole: True if the plan yields every batch of `op`.
        ordered: True if it yields them in the order of `op`.
        by_sample: True if a position counts samples. A pass can then resume at any sample, even
            with another batch size.
        functions: The ops that make a new batch from each, in call order.
        buckets: The `bucket` that makes them, in several sizes; None if something else does.
        by_batch: True if a position counts the batches of `buckets`.
        opaque: True if an op turns each batch into something that it does not declare.
    """

    op: batch[Any] | None = None
    size: int | None = None
    rows: int | None = None
    whole: bool = False
    ordered: bool = False
    by_sample: bool = False
    functions: tuple[Node[Any], ...] = ()
    buckets: bucket[Any] | None = None
    by_batch: bool = False
    opaque: bool = field(default=False, compare=False)

    @cached_property
    def counted(self) -> batch[Any] | None:
        """The `batch` whose samples positions count; None if they do not count samples."""
        return self.op if self.by_sample else None

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of full batches, if these vary; else ()."""
        if self.buckets is not None:
            return self.buckets.rows
        return self.op.sizes.sizes if self.op and self.op.sizes.vary else ()

    @property
    def samples(self) -> int | None:
        """The current number of samples that the batches are made of; None if unknown."""
        return length(self.op.reader) if self.op and self.whole else None

    @cached_property
    def lanes(self) -> int:
        """The number of lanes that fill each batch; 0 if samples are not in lanes."""
        dealt = dealt_below(self.counted.reader) if self.counted else None
        return dealt.lanes if dealt and not dealt.owned else 0

    @property
    def indexed(self) -> bool:
        """True if samples are found by index, so all processes have equally many."""
        if self.buckets is not None:
            return self.by_batch and length(self.buckets) is not None
        op = self.counted
        return op is not None and mapped_rows(seeded(op.reader, 0)) is not None

    def positions(self, at: Position) -> tuple[Iterator[Position], Position] | None:
        """Compute the position after each remaining batch, and the position at the end.

        >>> from jreader import arrays
        >>> after, end = batching(batch(arrays([1, 2, 3, 4, 5]), 2, drop_last=True)).positions(2)
        >>> list(after), end
        ([4], 5)

        Args:
            at: A position of a pass.

        Returns:
            Both; None if only reading shows them, or the position does not count samples.
        """
        if self.buckets is not None:
            many, more = len(self.buckets), at[1:]
            return ((done + 1, *more) for done in range(at[0], many)), (many, *more)
        op, done = self.counted, samples_done(at)
        end = length(op.reader) if op else None
        if op is None or end is None or done is None:
            return None
        last = op.sizes.full(done, end)[1] if op.drop_last else end
        return (moved_to(at, each) for each in op.sizes.ends(done, last)), moved_to(at, end)


def batching(reader: Reader[Any]) -> Batching:
    """Return what a plan shows about its batches.

    >>> from jreader import firstn
    >>> pairs = map_batches(abs, batch(lambda: range(5), 2))
    >>> found = batching(pairs)
    >>> found.op, found.size, found.rows, found.whole, found.by_sample
    (batch(<lambda>, batch_size=2), 2, None, True, True)
    >>> found = batching(firstn(batch(lambda: range(5), 2), 1))
    >>> found.rows, found.whole, found.by_sample
    (2, False, False)

    Args:
        reader: Any reader; if it does not yield batches, nothing is known.
    """
    found: Batching = trampoline(_batching, reader)
    return found


def _batching(reader: Reader[Any]) -> Generator[Any, Any, Batching]:
    behind: list[tuple[Node[Any], str, bool]] = []
    while isinstance(reader, Node) and not isinstance(reader, batch):
        how, one_for_one = _op_traits(reader)
        if not (how or one_for_one):
            break
        if how != "all" or not one_for_one:  # else it changes nothing
            behind.append((reader, how, one_for_one))
        (reader,) = reader.input_readers
    found = _batching_of_samples(reader)
    if type(reader) is chain or type(reader) is interleave:
        found = _common((yield reader.readers))
    for op, how, one_for_one in reversed(behind):
        found = _batching_after(found, op, how, one_for_one)
    return found


def _op_traits(op: Node[Any]) -> tuple[str, bool]:
    """Return the traits `from_reader` and whether an op yields one batch for each that it reads.

    Return ("", False) for an op that declares nothing or has several readers.
    """
    if len(op.input_readers) != 1:
        return "", False
    kind = type(op)
    how = op.from_reader if declares(kind, "from_reader") else ""
    return how, declares(kind, "in_cursor") and op.in_cursor == "never"


def _batching_of_samples(reader: Reader[Any]) -> Batching:
    """Describe the batches that a reader makes from samples."""
    if (op := plain_batch(reader)) is not None:
        size = op.batch_size if isinstance(op.batch_size, int) else None
        return Batching(op, size, size, whole=True, ordered=True, by_sample=True)
    if isinstance(reader, bucket) and not overridden_pass(type(reader)):
        return Batching(buckets=reader, whole=True, ordered=True, by_batch=True)
    return Batching()


def _batching_after(found: Batching, op: Node[Any], how: str, one_for_one: bool) -> Batching:
    """Describe the batches after an op, from its traits."""
    by_sample = found.by_sample and one_for_one
    if found.opaque or not how:
        return Batching(found.op if by_sample else None, by_sample=by_sample, opaque=True)
    if how == "each":
        found = replace(found, rows=None, functions=(*found.functions, op))
    if how == "some":
        found = replace(found, whole=False, ordered=False)
    return replace(
        found,
        ordered=found.ordered and (one_for_one or isinstance(op, cache)),
        by_sample=by_sample,
        by_batch=found.by_batch and one_for_one,
    )


def plain_batch(reader: Reader[Any]) -> batch[Any] | None:
    """Return the reader if it is an unmodified `batch` or `padded_batch`; else None.

    >>> plain_batch(batch(lambda: "abc", 2)), plain_batch(lambda: ["ab", "c"])
    (batch(<lambda>, batch_size=2), None)
    """
    if not isinstance(reader, batch) or type(reader).start not in (batch.start, padded_batch.start):
        return None
    return None if overridden_pass(type(reader)) else reader


def gives_batches(reader: Reader[Any]) -> bool:
    """Return whether a reader yields batches, as far as its plan shows.

    >>> from jreader import firstn
    >>> gives_batches(firstn(batch(lambda: "abc", 2), 1)), gives_batches(lambda: ["ab", "c"])
    (True, False)
    """
    op = unwrapped(reader)
    if isinstance(op, Node) and op.in_cursor == "never" and not op.from_reader:
        return False  # a map, which may turn batches into anything
    found = batching(reader)
    made = found.rows is not None or found.buckets is not None
    return made or any(isinstance(op, map_batches) for op in found.functions)


def _common(parts: Sequence[Batching]) -> Batching:
    """Describe the batches of several plans together: the sizes that all have in common."""
    sizes, rows = ({getattr(part, name) for part in parts} for name in ("size", "rows"))
    return Batching(
        size=sizes.pop() if len(sizes) == 1 else None, rows=rows.pop() if len(rows) == 1 else None
    )
