"""Which samples a step saw, without having written it down: an indexed plan is arithmetic."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jreader.loaders.cursors import EpochPosition
from jreader.loaders.loading import Loading
from jreader.readers import Cursor, at_epoch, described, indexed, leaves, rebuilt
from jreader.readers.planes import Array, Joined, Plane, SideBySide
from jreader.readers.seeds import seeded, waits

_CALL = "loader.samples(step)"


class Where(NamedTuple):
    """Where a row lies: in which file, and from which byte on."""

    path: str
    offset: int


@dataclass(frozen=True)
class Samples:
    """The samples of one step.

    Attributes:
        epoch: The epoch.
        step: The step, as it was asked for.
        places: The places of the samples in the order of the epoch.
        rows: The rows of each column that make them, in the tree of the columns.
        columns: The columns.
    """

    epoch: int
    step: int
    places: Array
    rows: Any
    columns: Any

    @property
    def files(self) -> Any:
        """A `Where` for each row of each column that is a mapped file; None for other columns."""
        pairs = zip(leaves(self.columns), leaves(self.rows), strict=True)
        return rebuilt(self.columns, iter([_files(column, rows) for column, rows in pairs]))

    def __repr__(self) -> str:
        """The rows; columns may be large."""
        return f"Samples(epoch={self.epoch}, step={self.step}, rows={self.rows!r})"


def samples_of(
    loading: Loading, began: Cursor, cursor: Cursor, step: int, *, other: bool = False
) -> Samples:
    """The samples of a step of an epoch; nothing is read but the columns' own lengths.

    Args:
        loading: What the loader loads.
        began: Where the numbers of steps and those of samples are known together.
        cursor: Where the loader is: it tells what an unseeded plan drew for this epoch.
        step: The step, counted as `began` counts.
        other: Whether the epoch is one that was asked for, rather than the one under way.

    Raises:
        TypeError: The plan is not indexed.
        ValueError: Another pass of the plan would draw anew, or the epoch has no such step.
    """
    shape, batches = loading.shape, loading.batches()
    found = loading.batching(None if other else cursor)
    op = found.counted
    if op is None or not found.indexed:
        raise TypeError(
            f"{_CALL} needs an indexed plan, one that finds samples by their place, and "
            f"{described(batches)} reads them: begin with jreader.arrays(...), npy or source, and "
            f"map behind .batch(n), with .map_batches(fn)."
        )
    reader, epoch = op.reader, began["epoch"]
    if waits(reader):
        position = EpochPosition.of(cursor["position"]) if cursor["epoch"] == epoch else None
        if position is None:
            raise ValueError(
                f"{described(batches)} draws anew for each pass, and epoch {epoch} is not under "
                f"way: give its shuffles a seed, and every step of every epoch is known."
            )
        reader = seeded(reader, position.batches[0])
    plane = indexed(at_epoch(reader, epoch))
    assert plane is not None  # noqa: S101  # it was, above
    size = op.batch_size * shape.per_feed
    before = EpochPosition.of(began["position"])
    if before and step < began["step"] and before.size != op.batch_size:
        raise ValueError(
            f"{_CALL}: step {step} was one of batches of {before.size} samples, and here they have "
            f"{op.batch_size}, from step {began['step']} on: ask a loader with that size."
        )
    first = began["samples"] + (step - began["step"]) * size
    end = plane.length - ((plane.length - began["samples"]) % op.batch_size if op.drop_last else 0)
    rest = (end - began["samples"]) % size
    if rest and not shape.gives(rest):
        end -= rest
    return _samples(plane, first, min(first + size, end), size, epoch, step)


def _samples(plane: Plane, first: int, last: int, size: int, epoch: int, step: int) -> Samples:
    if not 0 <= first < last:
        raise ValueError(
            f"{_CALL}: epoch {epoch} has no step {step}; it has {plane.length:,} samples, {size} a "
            f"step, and those that fill none may be left out. For another epoch type "
            f"loader.samples(step, epoch=...), where steps count from 0 in each: "
            f"step % len(loader) of epoch step // len(loader)."
        )
    places = np.arange(first, last)
    rows = rebuilt(plane.columns, iter(plane.rows(places)))
    return Samples(epoch, step, places, _plain(rows), _plain(plane.columns))


def _plain(tree: Any) -> Any:
    """The tree as users know it: what `compose` lays side by side is a tuple."""
    return tuple(map(_plain, tree.parts)) if isinstance(tree, SideBySide) else tree


def _files(column: Any, rows: Array) -> list[Where] | None:
    if isinstance(column, Joined):
        which, local = column.found(rows)
        found = [
            _files(column.parts[part], np.array([row]))
            for part, row in zip(which.tolist(), local.tolist(), strict=True)
        ]
        return None if any(part is None for part in found) else [w for part in found for w in part]  # type: ignore[union-attr]  # just looked
    mapped = _mapped(column)
    if mapped is None:
        return None
    first = mapped.offset + _address(column) - _address(mapped)
    return [Where(str(mapped.filename), first + row * column.strides[0]) for row in rows.tolist()]


def _mapped(column: Any) -> np.memmap[Any, Any] | None:
    """The map that a column is a view of: the first of all, whose offset is its own."""
    while isinstance(column, np.ndarray):
        if isinstance(column, np.memmap) and isinstance(column.base, mmap.mmap):
            return column if column.filename else None
        column = column.base
    return None


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
