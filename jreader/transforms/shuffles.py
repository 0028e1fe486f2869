"""`shuffle`: yield the same samples in a random order."""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np

from jreader import errors, orders
from jreader.orders import random_seed
from jreader.orders.block_orders import BlockOrder, block_order
from jreader.orders.keys import distinct
from jreader.readers import (
    Node,
    Pass,
    Position,
    Reader,
    bad_position,
    checked_position,
    counted,
    described,
    length,
    op,
    set_fields,
    start,
    whole,
)
from jreader.readers.columns import Array, Indices
from jreader.readers.declarations import declared_names
from jreader.readers.growing import any_stores, writing_allowed, written_first
from jreader.readers.hashing import text_hash
from jreader.readers.lanes import Lanes
from jreader.readers.mapped_rows import mapped_rows
from jreader.readers.nodes import children, lazy_length, ops_of
from jreader.readers.planes import Plane, indexed
from jreader.readers.seeds import seeded, seeded_below
from jreader.sources.blocks import keeping
from jreader.transforms.stream_windows import Made, in_windows

T = TypeVar("T")
_LIKELY_SEEDS = {0, 1, 42, 123, 1234, 1337}  # few choose them as sizes of windows


@op
class shuffle(Node[T], Lanes):
    """Shuffle the samples, within windows of `buf_size` samples or as a whole.

    Over a stream, it reads a window, yields its samples in random order, and only then reads the
    next one: it holds `buf_size` samples in memory, and no sample leaves its window. The order
    depends on indices, not on samples (`orders.permutation`), so shuffles of equally long readers
    with the same seed have the same order: `compose(shuffle(images, seed=7), shuffle(labels,
    seed=7))` keeps each image with its label.

    >>> list(shuffle(lambda: "abcdef", buf_size=3, seed=7)())
    ['a', 'c', 'b', 'e', 'd', 'f']

    Shuffling all samples of a file that is read in blocks (such as Parquet's row groups) would
    decode a block for nearly every sample. `shuffle(reader, seed=7, blocks=64)` permutes the
    blocks, and then the samples within each group of 64 blocks: it decodes each block once per
    epoch, and keeps little more than 64 blocks in memory. The position of a pass is still a single
    number. This is the block shuffle of Levanter (https://github.com/stanford-crfm/levanter).
    `chain`, `firstn`, `skip` and `map` may come before it, since they leave samples in their
    blocks, and so may `compose` with readers that have the same blocks, or none.

    On several hosts, without lanes, each host would decode nearly every block. `lanes=8` cuts the
    permuted blocks into eight equal parts, each of which always supplies the same range of rows in
    every batch, as the lanes of a stream do (`read`): lane k supplies rows k * B / 8 to (k + 1) * B
    / 8 of `batch(B)`. So a host decodes only the blocks of the rows that it feeds, and all hosts
    together decode each block once. `lanes` is part of the plan: any number of hosts that divides
    it, including one, gets the same sequence. `blocks` counts the blocks of all lanes, so a run on
    one host needs the same memory whatever `lanes` is, and in a run on `n` hosts, each holds 1 / n
    of the blocks.

    Cost: over an indexed reader, it computes each index: it needs no memory, whatever the window
    size, and resuming is immediate; with `blocks`, it keeps those blocks in memory. The same holds
    over maps of an indexed reader; a map is called only for samples that are yielded. Over a
    stream, it keeps one window of samples in memory, and resuming reads that window again.

    Args:
        reader: Any reader.
        buf_size: Samples per window; None for the whole reader, whose length must be known. 0 and 1
            keep the order, as in Paddle, and warn.
        seed: An int, or a jax key, fixes the order; `at_epoch` and `epochs` vary it. None draws a
            new seed for each pass; resuming that pass restores it.
        blocks: For files that are read in blocks, how many blocks to mix at a time; `tokens`,
            `arrayrecord` and other readers that access single samples have blocks if you pass them
            `block="4MB"`.
        lanes: The number of parts to divide among the hosts: a divisor of `blocks`, and a multiple
            of every number of hosts that may run the plan.

    Raises:
        ValueError: `buf_size` is negative, or None when the length of `reader` is unknown; or
            `blocks` is given together with `buf_size`, or for a reader whose samples are not stored
            in blocks; or `lanes` is given without `blocks`, or does not divide them.
        TypeError: `buf_size` is not a whole number, or `seed` is neither an int nor a jax key.
    """

    reader: Reader[T]
    buf_size: int | None = whole(default=None)
    seed: Any = random_seed()
    blocks: int | None = whole(default=None, least=1, cursor="if given")
    lanes: int = whole(default=1, least=1, cursor="if given")
    owned = True
    open_blocks: int | None = field(default=None, init=False)
    """The number of blocks that a process mixes if it reads only some lanes; None for all."""
    epoch: int = field(default=0, init=False)
    from_reader = "all"
    moves = "rows"

    def check_arguments(self) -> dict[str, Any]:
        """Check what the reader needs: a length, or blocks."""
        if self.blocks is not None or self.lanes > 1:
            self._check_in_blocks(self.blocks)
        elif self.buf_size is None and not lazy_length(self.reader) and length(self.reader) is None:
            if not any_stores(self.reader):
                raise self._of_no_length()
            set_fields(self, reader=written_first(self.reader, known=False))
        self._warn_of_window()
        return {}

    def _warn_of_window(self) -> None:
        size, seed = self.buf_size, self.seed
        if size not in _LIKELY_SEEDS or (size > 1 and seed is not None):
            return
        so = "so keeps the order" if size < 2 else "draws another order in each run"
        meant = "." if seed is not None else f": was seed={size} meant?"
        errors.warn(
            f"shuffle(reader, buf_size={size}) deals windows of {size} samples, and {so}{meant} "
            f"Give buf_size=1000, or seed={size if size > 1 else 0} alone for the whole of a "
            "reader with a length; to keep the order, leave shuffle out."
        )

    def _check_in_blocks(self, blocks: int | None) -> None:
        if blocks is None:
            raise ValueError(
                f"shuffle(reader, lanes={self.lanes}) deals blocks to lanes, and no number of "
                f"blocks is given: type shuffle(reader, seed=0, blocks={8 * self.lanes}, "
                f"lanes={self.lanes}), or leave lanes out where samples are found by their index."
            )
        if self.buf_size is not None:
            raise ValueError(
                f"shuffle(reader, buf_size={self.buf_size}, blocks={blocks}) takes only "
                "one of the two: buf_size, a window of samples as they come, or blocks, each "
                "of which is read as a whole."
            )
        if blocks % self.lanes:
            fit = max(blocks // self.lanes, 1) * self.lanes
            raise ValueError(
                f"shuffle(reader, blocks={blocks}, lanes={self.lanes}) cannot mix the same number "
                f"of blocks in each lane: type blocks={fit}, or blocks={fit + self.lanes}."
            )
        ops: list[Any] = ops_of(self.reader)
        learnt = [op.reader for op in ops if op.stores and op.from_reader == "some"]
        check_blocks(learnt[-1] if learnt else self.reader, blocks)  # a pass checks the others
        set_fields(self, reader=written_first(self.reader, known=False))

    def start(self, at: Position) -> Pass[T]:
        """Start a pass; its position is (position before a window, its number, samples of it).

        In blocks, it is the number of samples yielded.
        """
        if self.blocks is not None and _blocks_of(self.reader) is not None:
            return self._start_in_blocks(checked_position(at, 0))
        size = length(self.reader) if self.buf_size is None else self.buf_size
        if size is None and writing_allowed():
            raise self._of_no_length()
        if size is None or size < 2:
            return start(self.reader, at)
        _, first, done = checked_position(at, (None, 0, 0))
        if done >= size:
            raise bad_position(at, (None, 0, size - 1))
        path = (self.seed, self.epoch, seeded_below(self))
        full = orders.windows(size, *path, first=first)

        def dealt(held: list[T], window: int) -> Made[T]:
            many = len(held)
            if many == size:
                order = next(full)
            else:
                order = orders.permutation(np.arange(many), many, orders.key(*path, window))
            return many, lambda done: list(map(held.__getitem__, order[done:].tolist()))

        return in_windows(self, self.reader, at, size, dealt)

    def _start_in_blocks(self, done: int) -> Pass[T]:
        """Start a pass that holds all samples, in the order that `plane` computes."""
        up = start(self.reader, None)
        held = list(up.items)
        order, path = self._in_blocks(_blocks_of(self.reader), len(held))
        rows = order.rows(np.arange(len(held)), path)
        items, count = counted(map(held.__getitem__, rows[done:].tolist()), done)
        return Pass(items, count, up.close)

    def _of_no_length(self) -> ValueError:
        return ValueError(
            f"shuffle({self.reader!r}) needs a buf_size: the length of the reader is not known "
            f"before it is read. Give shuffle(reader, buf_size=1000), or a reader with a "
            f"length, as jreader.arrays(...) has."
        )

    def cursor_extra(self) -> str:
        """Return where blocks begin, if it shuffles blocks."""
        starts = None if self.blocks is None else _blocks_of(self.reader)
        return "" if starts is None else f"{len(starts)} blocks, {text_hash(starts.tolist())}"

    def plane(self) -> Plane | None:
        """Return the plane of `reader` in window order; None if the seed is not drawn yet."""
        up = None if self.seed is None else indexed(self.reader)
        if up is None or self.blocks is None:
            return up and up.reordered(
                up.length,
                lambda indices: self._order(indices, up.length),
                lambda held: held.at(self._order(held.index, up.length, inverse=True)),
                lambda end: end + (self.buf_size or 0),
            )
        check_blocks(self.reader, self.blocks)
        starts: Any = up.blocks
        order, path = self._in_blocks(starts, up.length)
        plane = up.reordered(
            up.length,
            lambda indices: order.rows(indices, path),
            lambda held: held.at(order.places(held.index, path)),
        )
        columns = keeping(up.columns, self.open_blocks or self.blocks)
        return replace(plane, columns=columns, lanes=self.lanes)

    def _in_blocks(self, starts: Array, known: int) -> tuple[BlockOrder, tuple[Any, ...]]:
        """Return the order in blocks, and the parts of its keys."""
        order = block_order(starts, known, (self.blocks or 1) // self.lanes, self.lanes)
        return order, (self.seed, self.epoch, seeded_below(self))

    @cached_property
    def _place(self) -> int:
        """Its place in its plan, which is part of its keys."""
        return seeded_below(self)

    def _order(self, indices: Indices, known: int, *, inverse: bool = False) -> Indices:
        size = known if self.buf_size is None else min(self.buf_size, known)
        if size < 2:
            return indices
        path = (self.seed, self.epoch, self._place)
        permuted = partial(orders.permutation, inverse=inverse)
        if size == known:
            return permuted(indices, known, orders.key(*path, 0))
        window, index = indices // size, indices % size
        keys = _window_keys(path, window)
        if not (short := known % size):
            return window * size + permuted(index, size, keys)
        namespace = indices.__array_namespace__()
        last = window == known // size
        # clamp indices to windows of either size, since a trace computes both
        moved = permuted(index, size, keys)
        if namespace is not np or last.any():
            rest = permuted(namespace.minimum(index, short - 1), short, keys)
            moved = namespace.where(last, rest, moved)
        return window * size + moved


def check_blocks(reader: Reader[Any], blocks: int) -> None:
    """Raise unless the samples of a reader lie in blocks, in order.

    Raises:
        ValueError: They do not; the message names the op that takes them out of their blocks, if
            any.
    """
    if _blocks_of(reader) is not None:
        return
    call, at = f"shuffle(reader, blocks={blocks})", reader
    for each in ops_of(reader):
        if "block" in declared_names(each) and getattr(each, "block", 0) is None:
            raise ValueError(
                f"{call} needs a reader of files that are read in blocks, and {each!r}, made at "
                f"{each.made_at}, has none yet: type {type(each).__name__}(..., block='4MB')."
            )
    while isinstance(at, Node):
        below = list(children(at))
        found = next((part for part in below if _blocks_below(part)), None)
        if found is None:
            break
        if _blocks_of(found) is not None:
            name = type(at).__name__
            raise ValueError(
                f"{call} needs samples in the order of their blocks, and {name}, made at "
                f"{at.made_at}, takes them out of it: shuffle the reader below it, as in "
                f"{name}(shuffle(reader, seed=0, blocks={blocks}), ...), or leave blocks out."
            )
        at = found
    raise ValueError(
        f"{call} needs a reader of files that are read in blocks, as Parquet's row groups, and "
        f"{described(reader)} has none: type shuffle(reader, seed=0), where samples are found by "
        f"their index, or shuffle(reader, buf_size=1000), within windows."
    )


def _blocks_of(reader: Reader[Any]) -> Any:
    """Return where the blocks of a reader begin; None if its samples are not in block order."""
    found = mapped_rows(seeded(reader, 0))
    plane = found and indexed(found.rows)
    return plane and plane.blocks


def _blocks_below(reader: Reader[Any]) -> bool:
    """Return whether a reader, or one that it reads, has blocks."""
    return any(_blocks_of(op) is not None for op in ops_of(reader))


def _window_keys(path: tuple[Any, ...], window: Indices) -> orders.Key:
    """Return a key per index; on the host, consecutive indices share a computation per window."""
    windows, which = distinct(window)
    keys = orders.key(*path, windows)
    return keys if which is None else orders.Key(*(word[which] for word in keys))
