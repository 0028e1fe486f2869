"""What a loader reads: host feeds from any place of an epoch on, and how many there are."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice, repeat
from typing import Any

import numpy as np

from jreader.batches import as_batch, batch, declared, sized
from jreader.devices import Placement, places_placement, sharding_placement
from jreader.errors import NotResumable, ShortEpoch, warn
from jreader.loaders.assembling import Grouping, Kind
from jreader.loaders.cursors import Trail
from jreader.loaders.iterators import SKIPPED, Here
from jreader.loaders.multihost.shards import dealt_to
from jreader.loaders.remainders import Ends
from jreader.readers import (
    Columns,
    Cursor,
    Node,
    Pass,
    Position,
    Reader,
    at_epoch,
    described,
    leaves,
    length,
    map_tree,
    origin,
    start,
)
from jreader.readers.nodes import inputs
from jreader.readers.plain_functions import in_epoch
from jreader.readers.seeds import waits
from jreader.transforms import cache, exactly, map_readers
from jreader.workers import fetch_batches


@dataclass
class Lost:
    """What an epoch leaves out, since it makes no whole feed.

    Attributes:
        batches: How many batches.
        samples: How many samples they have.
    """

    batches: int = 0
    samples: int = 0

    def add(self, batches: int, samples: int) -> None:
        """Counts some more."""
        self.batches += batches
        self.samples += samples

    def tell(self, source: Source, grouping: Grouping, epoch: int, *, anything: bool) -> None:
        """Warns, once for an epoch, where nobody asked for that, or nothing else is there."""
        empty = not anything and (self.batches > 0 or _short(source.batches))
        if not empty and not (grouping.ends.tells and self.batches):
            return
        some = f"{self.batches} batch{'es' * (self.batches > 1)} ({self.samples} samples)"
        start = "this epoch is empty: " if empty else f"epoch {epoch}: "
        warn(
            f"{start}{some if self.batches else 'all'} left out, since they make no whole feed of "
            f"equal parts. last='pad' (or drop_last=False) fills them up with zeros, under a mask; "
            f"drop_last=True leaves them out without this warning; and so none are left out, use a "
            f"smaller batch size or fewer places.",
            getattr(source.batches, "made_at", ""),
        )


@dataclass(frozen=True)
class Source:
    """What a loader reads, and where to: the part that `set_*_generator` sets."""

    batches: Reader[Any]
    kind: Kind
    places: Any
    beside: bool  # the seeds' door: each of several places gets a batch of its own
    pmap: Any = None
    rows: int | None = None
    resident: bool = False

    @property
    def size(self) -> int | None:
        """The samples of a full batch, where `batch` says it."""
        return declared(self.batches, "all", "some", "each")

    def placement(self) -> Placement:
        """Resolved on the thread that iterates: jax's modes are the thread's."""
        if self.beside:
            return places_placement(self.places)
        return sharding_placement(self.places, self.pmap)


class Kept:
    """The pass of a stream between two epochs of it, which the next one goes on with."""

    def __init__(self) -> None:
        self._at: Position = None
        self._pass: Pass[Any] | None = None

    def keep(self, up: Pass[Any]) -> None:
        """Keeps what is left of a pass."""
        self._at, self._pass = up.position(), up

    def taken(self, at: Position) -> Pass[Any] | None:
        """What was kept at that position, once; anything else is closed."""
        if at == self._at:
            up, self._pass = self._pass, None
            return up
        self.close()
        return None

    def close(self) -> None:
        """Ends what was kept."""
        up, self._pass = self._pass, None
        if up:
            up.close()


def hosted(
    source: Source, grouping: Grouping, cursor: Cursor, kept: Kept | None = None, passed: int = 0
) -> Pass[Any]:
    """Host feeds of what is left of an epoch, each with the number of its first row.

    The position is what a cursor has of it; that of the source in it is (rows of a full batch, size
    that `batch` gave it, position of the batches, steps of the epoch that are done).

    Args:
        source: What is read.
        grouping: What makes feeds of it.
        cursor: Where to begin.
        kept: Where the pass of a stream stays, when an epoch of so many steps of it is over.
        passed: How many feeds are passed over at first: read, and counted as handed over.

    Raises:
        NotResumable: The cursor is not of this source.
    """
    size, done = _size(source), steps_done(cursor)
    most = grouping.ends.steps if grouping.ends.onward else None
    up, drawn, seen = _opened(source, grouping, cursor, kept)
    trail, steps = Trail(cursor, drawn), left_out(cursor)
    lost, stays = Lost(), False

    def deal() -> Generator[Any, None, None]:
        nonlocal done, stays, passed
        began = done
        for group in up.items if most is None else islice(up.items, most - done):
            made = [grouping.feed(group)]
            if seen:
                _check_sizes(source, cursor["samples"], seen.pop() - grouping.fed)
            if made[0] is None:
                lost.add(len(group), grouping.fed)
                continue
            done += 1
            first = trail.samples * grouping.spread
            passed -= 1
            skips = next(steps)
            (trail.leave_out if skips else trail.add)(grouping.fed)
            if skips or passed >= 0:
                yield SKIPPED
                continue
            del group  # and nothing here holds what is handed over: its memory is free sooner
            yield made.pop(), first
        if most and done < most:
            raise _ended(source, grouping, cursor["epoch"], trail.samples + lost.samples)
        stays = most is not None
        lost.tell(source, grouping, cursor["epoch"], anything=began < done or began > 0)

    def here() -> Here:
        return Here(trail.samples, (grouping.rows, size, up.position(), done), trail.digest)

    def close() -> None:
        if stays and kept:
            kept.keep(up)
        else:
            up.close()

    return Pass(deal(), here, close)


def _opened(
    source: Source, grouping: Grouping, cursor: Cursor, kept: Kept | None
) -> tuple[Pass[Any], Any, list[int]]:
    """The pass of the batches, in groups; what it drew, if it did; and what `_read` gives."""
    inner, ends = _resumed(source, grouping, cursor), grouping.ends
    batches, seen = _read(source, grouping, cursor)
    epoch = 0 if ends.onward else cursor["epoch"]
    plan = at_epoch(batch(batches, grouping.batches), epoch)
    up = kept.taken(inner) if kept else None
    if up is None:
        with in_epoch(epoch):
            up = _begun(plan, inner)
    if ends.onward and cursor["position"] is None:  # by its number: those before it are passed over
        deque(islice(up.items, (ends.steps or 0) * cursor["epoch"]), maxlen=0)
    return up, up.position()[0] if waits(plan) else None, seen


def foresee(source: Source, grouping: Grouping) -> None:
    """Refuses epochs that are known to end too soon, before the first step of one.

    Raises:
        ShortEpoch: They do.
    """
    op = sized(source.batches)
    if op and isinstance(op.reader, exactly):
        op.reader.check()
    samples = length(op.reader) if op and grouping.strict else None
    size = (op.batch_size if op else 1) * grouping.batches
    if samples is not None and samples % size:
        raise grouping.short(samples % size, size)


_OTHER_SIZE = (
    "this cursor is of batches of other sizes: it has {} samples before its place, which is "
    "counted in batches, and {!r} gives {} up to there. Resume with the sizes of the run that "
    "wrote it, or batch with jreader.batch, whose places are samples."
)


def _read(source: Source, grouping: Grouping, cursor: Cursor) -> tuple[Reader[Any], list[int]]:
    """The batches, and how many samples they have had so far, where only that tells a wrong place.

    A plain function is read again up to a place that is counted in batches, which may have other
    sizes by now.
    """
    batches, seen = source.batches, list[int]()
    ends, began = grouping.ends, cursor["samples"] > 0
    from_start = not (ends.onward and cursor["epoch"])
    if not isinstance(batches, Node) and ends.last == "keep" and began and from_start:
        reader, seen = batches, [0]

        def counting() -> Iterator[Any]:
            for batch in reader():
                first = leaves(batch)[0] if source.kind == "arrays" else batch
                if seen:
                    seen[0] += len(first) if hasattr(first, "__len__") else 0
                yield batch

        batches = counting
    if source.kind == "arrays":
        # copied as they come: their generator may fill them anew, while they wait here, or while a
        # device reads them
        batches = map_readers(_copied, batches)
    elif grouping.placement.target == "host" and _kept(batches):
        batches = map_readers(_own, batches)  # who writes to a feed writes to nothing else
    if grouping.share:
        batches = dealt_to(batches, grouping.share) or batches
    return batches, seen


def _check_sizes(source: Source, samples: int, before: int) -> None:
    if samples != before:
        raise NotResumable(_OTHER_SIZE.format(samples, source.batches, before))


def _ended(source: Source, grouping: Grouping, epoch: int, samples: int) -> ShortEpoch:
    steps, size = grouping.ends.steps or 0, (grouping.size or grouping.rows or 0) * grouping.batches
    needs = f"{steps * size}: {steps} steps of {size}" if size else f"{steps} steps"
    return ShortEpoch(
        f"{described(source.batches)} ended after {samples}, and epoch {epoch}, which goes on "
        f"where the one before ended, needs {needs}. Give a steps_per_epoch that it can fill; or, "
        f"below the batches, .epochs() to go round, .firstn(n) to begin anew in each epoch; or "
        f"last='wrap', which begins it again."
    )


def steps_done(cursor: Cursor) -> int:
    """How many steps of its epoch lie before a cursor."""
    position = cursor["position"]
    whole = isinstance(position, (list, tuple)) and len(position) == 4
    return position[3] if whole and isinstance(position[3], int) else 0


def step_size(source: Source, grouping: Grouping) -> int:
    """How many samples a step has; 0 where places are not counted in samples."""
    return (_size(source) or 0) * grouping.batches


def turned(position: Position, ends: Ends) -> Position:
    """The position of the next epoch, at the end of one: a stream goes on, where it is cut."""
    return (*position[:3], 0) if ends.onward and position else None


def _resumed(source: Source, grouping: Grouping, cursor: Cursor) -> Position:
    """The position of the batches; the rows of a full batch are those of the cursor, or of now."""
    if cursor["position"] is None:
        return None
    try:
        rows, before, inner, *_ = cursor["position"]
    except (TypeError, ValueError):
        raise _foreign(cursor["position"]) from None
    size = _size(source)
    if (size is None) != (before is None):
        counted, here = ("batches", "samples") if before is None else ("samples", "batches")
        raise NotResumable(
            f"the place of this cursor is counted in {counted}, and in {here} here, by "
            f"{described(source.batches)}: resume with the pipeline that wrote it, whose batches "
            f"were made in another way."
        )
    if size is None and source.size is None:
        grouping.rows = rows
    return inner


def _foreign(position: Position) -> NotResumable:
    return NotResumable(
        f"the position of this cursor, {position!r}, is not one of this pipeline: it was changed, "
        f"or written by another one. Give an earlier cursor as it was written, or begin anew, "
        f"without at=."
    )


def _begun(plan: Reader[Any], at: Position) -> Pass[Any]:
    """A pass of the plan; what is no position of it is refused, whatever else it may be."""
    try:
        return start(plan, at)
    except (TypeError, ValueError, IndexError, KeyError) as error:
        last = error.__traceback__
        while last and last.tb_next:
            last = last.tb_next
        here = last.tb_frame.f_globals.get("__name__", "") if last else ""
        if at is None or not here.startswith("jreader."):
            raise  # a reader of the user's
        raise _foreign(at) from error


def _size(source: Source) -> int | None:
    """The size that `batch` gives the batches, where they go on at any sample."""
    op = sized(source.batches)
    return op.batch_size if op else None


def left_out(cursor: Cursor) -> Iterator[bool]:
    """For step after step, whether it is left out."""
    spans, step = cursor["skipped"], cursor["step"]
    if not spans:
        return repeat(False)  # noqa: FBT003  # what is repeated
    return (any(low <= each < high for low, high, _ in spans) for each in count(step))


def _short(reader: Reader[Any]) -> bool:
    """Whether the only batch of a reader is a short one, which it leaves out itself."""
    op = as_batch(origin(reader, "all", "each"))
    if op is None or not op.drop_last:
        return False
    samples = start(op.reader)
    try:
        return any(True for _ in samples.items)
    finally:
        samples.close()


def _copied(arrays: Any) -> Any:
    return map_tree(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, arrays)


def _own(samples: Sequence[Any]) -> Sequence[Any]:
    """A batch whose arrays are nobody else's; lists are stacked, and so copied, anyway."""
    return Columns(_copied(samples.columns)) if isinstance(samples, Columns) else samples


def _kept(batches: Reader[Any]) -> bool:
    """Whether batches are kept by a cache, or come from a function, which may keep them."""
    if isinstance(batches, cache) or not isinstance(batches, Node):
        return True
    fresh = isinstance(batches, fetch_batches) or as_batch(batches) is not None
    return not fresh and any(map(_kept, inputs(batches)))


def feeds_of(source: Source, grouping: Grouping) -> int | None:
    """How many feeds an epoch has; None where that is not known before it is read."""
    ends, parts = grouping.ends, grouping.batches
    if ends.steps is not None:
        return ends.steps
    op = as_batch(origin(source.batches, "all", "each"))
    samples = length(op.reader) if op else None
    if op is None or samples is None:
        many = length(source.batches)
        if many is None or ends.last == "keep":
            return many
        return -(-many // parts) if ends.last == "pad" else None
    full, rest = divmod(samples, op.batch_size)
    if op.drop_last:
        rest = 0
    most = parts * op.batch_size
    rest += full % parts * op.batch_size
    equal = not ends.varies or grouping.masked or grouping.takes(op.batch_size)
    return samples // most * equal + bool(rest and grouping.gives(rest))
