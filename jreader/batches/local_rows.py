"""Read only the rows of each batch that one process feeds, or all rows where lanes own blocks.

Where lanes own blocks (`shuffle(lanes=)`), rows are not in sample order: each lane has its own
rows, which stay empty in a short batch if the lane has no sample left. So the rows of a process
decide what it reads, and a position is the number of samples done on all processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from jreader.batches.removed_samples import Removed, without_rows
from jreader.readers import (
    Columns,
    Node,
    Pass,
    Plane,
    Position,
    Reader,
    bad_position,
    indexed,
    op,
    start,
)
from jreader.readers.columns import Array
from jreader.readers.lanes import by_lane, dealt_below, owners_of
from jreader.readers.located import located_errors
from jreader.readers.mapped_rows import mapped_rows
from jreader.readers.rewriting import rewritten
from jreader.readers.starting import in_batches
from jreader.readers.trees import Rows

NONE = np.zeros(0, int)
"""The valid rows of a batch of which this process has none; another batch's row stands in."""


def rows_pass(rows_of: Callable[[int], Array], made_by: Any, at: Position) -> Pass[Columns[Any]]:
    """Start a pass over some rows of each batch; no other samples are read.

    Args:
        rows_of: Returns the row numbers, in order, for a batch size.
        made_by: The `batch`, over an indexed reader or maps of one.
        at: The position; None for the beginning.
    """
    found = mapped_rows(made_by.reader)
    if found is None:
        raise TypeError(f"{made_by.reader!r} is not indexed: processes cannot be dealt its rows")
    begun = start(made_by.reader, at)  # raises if the position does not exist
    before = begun.position()
    begun.close()
    done = samples_done(before)
    if done is None:
        return _of_whole_batches(made_by, rows_of, at)
    lanes, drops = owners_of(made_by.reader), bool(made_by.drop_last)
    pieces, vary = made_by.sizes.pieces(done), made_by.sizes.vary
    removed = made_by.removed or None
    gone = removed and removed.place_finder(indexed(found.rows))

    def begun_piece() -> tuple[Any, Pass[Any]]:
        """Return the rows of the next batches of one size, and a pass over their samples."""
        size, end = next(pieces)
        rows = rows_of(size)
        many = len(np.unique(rows // (size // lanes)))
        read = found.rows if lanes == 1 else _of_lanes(found.rows, many)
        own = _rows_of_batches(read, size, lanes, rows, done, end, drops, gone, removed)
        mapped, held = found.over(own), max(len(rows), 1)
        if up := in_batches(mapped, held, None):
            return own, up
        up = start(mapped).watched(made_by, held)
        return own, up.in_runs(held, located_errors(made_by))

    own, up = begun_piece()

    def deal() -> Iterator[Columns[Any]]:
        nonlocal done, own, up
        while True:
            for samples, (count, valid) in zip(up.items, own.batches_of(), strict=True):
                made = own.without_removed(part(samples, count, valid), done)
                made.full = own.size if vary else made.full
                done += count
                yield made
            if done < own.end:
                return
            up.close()
            own, up = begun_piece()

    def close() -> None:
        up.close()  # whichever piece is current by then

    return Pass(deal(), lambda: moved_to(before, done), close)


def _of_lanes(reader: Reader[Any], lanes: int) -> Reader[Any]:
    """Return a reader of the same samples that opens only the blocks of the lanes read here."""
    dealt: Any = dealt_below(reader)
    mixed = {"open_blocks": dealt.blocks // dealt.lanes * lanes or None}
    return rewritten(reader, lambda op: mixed if op is dealt else {})


def part(samples: Any, count: int, valid: Array | None) -> Columns[Any]:
    """Wrap some rows of a batch that has `count` samples on all processes."""
    made = samples if isinstance(samples, Columns) else Columns(Rows(samples))
    made.rows, made.valid = count, valid
    return made


def _of_whole_batches(
    made_by: Any, rows_of: Callable[[int], Array], at: Position
) -> Pass[Columns[Any]]:
    """Resume from a position of an earlier release, which counts no samples: map all rows."""
    new = made_by.sizes.vary or made_by.removed
    if owners_of(made_by.reader) > 1 or new:  # no earlier release had these
        raise bad_position(at, 0)
    return start(made_by, at).mapped(partial(cut, rows_of(made_by.batch_size)))


def cut(rows: Array, samples: Sequence[Any]) -> Columns[Any]:
    """Cut some rows out of a batch that was read whole."""
    mine = [samples[row] for row in rows[rows < len(samples)].tolist()]
    return part(mine or [samples[0]], len(samples), None if mine else NONE)


def samples_done(at: Position) -> int | None:
    """Return the samples done at a position that counts them (twice, with keys)."""
    if isinstance(at, tuple) and len(at) == 2:  # of `keyed` and its reader
        first, second = map(samples_done, at)
        return first if first == second else None
    return at if type(at) is int else None


def moved_to(at: Position, done: int) -> Position:
    """Return a position of the same form at which `done` samples are done."""
    return tuple(moved_to(part, done) for part in at) if isinstance(at, tuple) else done


@op
class _rows_of_batches(Node[Any]):
    """Yield some rows of each batch, batch by batch.

    For a batch with none of these rows, one sample stands in.

    Args:
        reader: An indexed reader, the same on every process.
        size: Samples per batch.
        lanes: The number of lanes that own blocks.
        rows: The row numbers.
        done: The samples done before the first batch.
        end: The samples done after the last batch of this size.
        drop_last: Whether to drop an incomplete last batch.
        gone: Returns the hidden samples between two sample numbers; None if there are none.
        removed: The removed samples; None if there are none.
    """

    reader: Reader[Any]
    size: int
    lanes: int
    rows: Array
    done: int
    end: int
    drop_last: bool
    gone: Callable[[int, int], Array] | None
    removed: Removed | None

    def plane(self) -> Plane | None:
        """Reorder the plane of `reader` so that each batch keeps only these rows."""
        up = indexed(self.reader)
        if up is None:
            return None
        (full, rest), mine = self._sizes(up), self._samples()
        last = mine[mine < rest]
        if rest and not len(last):
            # where lanes own blocks, another process may hold the first sample of a batch
            last = mine[:1] - self.size if self.lanes > 1 and full else np.zeros(1, int)
        table = np.zeros((2, len(mine)), int)  # row 0 for full batches, row 1 for the last one
        table[0], table[1, : len(last)] = mine, last

        def order(indices: Array) -> Array:
            number, place = np.divmod(indices, len(mine))
            samples: Array = (
                self.done + number * self.size + table[(number == full).astype(int), place]
            )
            return samples if self.gone is None else _with_stand_ins(samples, self.gone)

        if self.removed:
            up = self.removed.hidden(up)
        return up.reordered(full * len(mine) + len(last), order)

    def batches_of(self) -> Iterator[tuple[int, Array | None]]:
        """Yield the size of each batch, and which of these rows are valid in it."""
        full, rest = self._sizes(indexed(self.reader))
        yield from repeat((self.size, None if len(self.rows) else NONE), full)
        valid = np.flatnonzero(self._samples() < rest) if len(self.rows) else NONE
        if rest:
            yield rest, None if self.lanes == 1 and len(valid) else valid

    def without_removed(self, made: Columns[Any], done: int) -> Columns[Any]:
        """Drop removed samples from a batch that begins after `done` samples."""
        gone = NONE if self.gone is None else self.gone(done, done + self.size)
        if not len(gone) or made.is_placeholder:
            return made
        valid = slice(len(made)) if made.valid is None else made.valid
        return without_rows(made, np.isin(done + self._samples()[valid], gone))

    def _samples(self) -> Array:
        """Map the rows to sample numbers in a batch; without rows, the first sample stands in."""
        mine: Array = by_lane(self.size, self.lanes, self.done)[self.rows]
        return mine if len(mine) else np.zeros(1, int)

    def _sizes(self, up: Any) -> tuple[int, int]:
        """Return the number of full batches left, and the size of the last one."""
        full, rest = divmod(max(min(up.length, self.end) - self.done, 0), self.size)
        return full, 0 if self.drop_last else rest


def _with_stand_ins(samples: Array, places: Callable[[int, int], Array]) -> Array:
    """Replace each removed sample by the nearest other one, if there is one."""
    gone = places(int(samples.min(initial=0)), int(samples.max(initial=-1)) + 1)
    kept = np.flatnonzero(~np.isin(samples, gone)) if len(gone) else NONE
    nearest = kept.searchsorted(np.arange(len(samples))).clip(max=len(kept) - 1)
    return samples[kept[nearest]] if len(kept) else samples
