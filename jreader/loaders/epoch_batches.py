"""The batches that a loader reads, from any position of an epoch on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from jreader.batches import batch, batching, made_in_workers, plain_batch
from jreader.errors import NotResumable
from jreader.feeds.shards import dealt_to, sizes_dealt_to, whole_dealt_to
from jreader.loaders.checkpoints.positions import EpochPosition
from jreader.loaders.loading import Loading
from jreader.loaders.source import Source
from jreader.readers import (
    Columns,
    Cursor,
    Node,
    Pass,
    Position,
    Reader,
    at_epoch,
    described,
    first_column,
    start,
)
from jreader.readers.growing import plan_at
from jreader.readers.hashing import identity
from jreader.readers.plain_functions import in_epoch
from jreader.readers.seeds import lacks_seed
from jreader.readers.trees import copied
from jreader.transforms import cache, map_readers
from jreader.workers import Processes, fetch_batches


def batches_from(
    loading: Loading, source: Source, cursor: Cursor, kept: Pass[Any] | None
) -> tuple[Pass[Any], int | None]:
    """Begin a pass over the batches of an epoch at a cursor, or continue an open one.

    Args:
        loading: What the loader loads. If several batches make a feed, items are lists of them.
        source: The source in this epoch.
        cursor: The cursor.
        kept: The open pass over a stream to continue; None for none.

    Returns:
        The pass, and the seed that an unseeded plan drew for this epoch; None for a seeded plan.
    """
    remainder = loading.remainder
    at = _position_of(source, cursor, continues=remainder.continues)
    epoch = 0 if remainder.continues else cursor["epoch"]
    plan = at_epoch(_own_batches(loading, source, cursor, at), epoch)
    if loading.per_feed > 1:
        plan = batch(plan, loading.per_feed)
    if kept is None:
        with in_epoch(epoch):
            kept = start(plan, at)
    if remainder.continues and cursor["position"] is None:
        # the user asked for an epoch by number: read and drop the epochs before it
        deque(islice(kept.items, (remainder.steps or 0) * cursor["epoch"]), maxlen=0)
    return kept, kept.position()[0] if lacks_seed(plan) else None


def _own_batches(loading: Loading, source: Source, cursor: Cursor, at: Position) -> Reader[Any]:
    """Return the batches that this process reads, itself or by its workers."""
    whole, workers = _of_all_hosts(loading, source, cursor, at), loading.options.workers
    streamed = whole is not source.batches and not batching(whole).indexed
    if workers is None or streamed:  # resumes what was a stream when it stopped
        return _of_this_host(loading, _copied_where_shared(loading, source, whole))
    batches, made_at = _of_this_host(loading, whole), loading.options.made_at
    if workers.share:
        workers = workers._replace(share=shared_name(loading, workers.share))
    made = made_in_workers(batches, whole, workers, loading.named_there, made_at)
    ours = loading.placement.hosts and not isinstance(workers.executor, Processes)
    return map_readers(_in_own_memory, made) if ours else made


def shared_name(loading: Loading, share: str) -> str:
    """Return the name that two loaders share if their workers make equal feeds."""
    dtypes = [str(loading.placement.canonical(np.dtype(kind))) for kind in ("i8", "f8")]
    return f"{share} {identity([loading.plan(), loading.share, loading.shares, dtypes])}"


def _of_all_hosts(loading: Loading, source: Source, cursor: Cursor, at: Position) -> Reader[Any]:
    """Return the batches of all processes, counted if their sizes must be the cursor's."""
    batches, remainder = plan_at(source.batches, at), loading.remainder
    again = cursor["samples"] > 0 and not (remainder.continues and cursor["epoch"])
    if again and remainder.last == "keep" and not isinstance(batches, Node):
        return _of_same_sizes(batches, at, cursor["samples"], source)
    return batches


def _of_this_host(loading: Loading, batches: Reader[Any]) -> Reader[Any]:
    """Return the batches with only the rows that this process feeds."""
    if loading.share:
        dealt = dealt_to(batches, loading.share, pads=loading.pads)
        return dealt or whole_dealt_to(batches, loading.share)
    return sizes_dealt_to(batches, loading.shares) if loading.shares else batches


def _copied_where_shared(loading: Loading, source: Source, batches: Reader[Any]) -> Reader[Any]:
    """Return the batches, copied if something else may hold their memory."""
    if source.kind == "arrays":
        # copy them as they come: their generator may write to them again while they wait here,
        # or while a device reads them
        return map_readers(copied, batches)
    if loading.placement.hosts and _may_be_kept(batches):
        # so that writing to a feed changes nothing else
        return map_readers(_in_own_memory, batches)
    return batches


def _of_same_sizes(reader: Reader[Any], at: Position, samples: int, source: Source) -> Reader[Any]:
    """Read a plain function up to a cursor, whose batches may by now have other sizes.

    Args:
        reader: The function.
        at: The position of the cursor: the number of batches read.
        samples: The number of samples in them.
        source: The source of the loader.

    Raises:
        NotResumable: They have other sizes (while iterating).
    """
    done = at if isinstance(at, int) else at[0]

    def checked() -> Iterator[Any]:
        before = 0
        for number, each in enumerate(reader()):
            if number == done and before != samples:
                raise NotResumable(
                    f"this cursor is of batches of other sizes: it has {samples} samples before "
                    f"its position, which is counted in batches, and {source.batches!r} gives "
                    f"{before} up to there. Resume with the sizes of the run that wrote it, or "
                    f"batch with jreader.batch, whose positions are samples."
                )
            if number < done:
                first = first_column(each) if source.kind == "arrays" else each
                before += len(first) if hasattr(first, "__len__") else 0
            yield each

    return checked


def _position_of(source: Source, cursor: Cursor, *, continues: bool) -> Position:
    """Return the position of the reader of batches in a cursor.

    Raises:
        NotResumable: It counts batches, and this reader counts samples, or the reverse; or sizes of
            batches depend on samples that it does not count.
    """
    if cursor["position"] is None:
        return None
    position = EpochPosition.of(cursor)
    if (source.size is None) != (position.size is None):
        counted, here = ("batches", "samples") if source.size else ("samples", "batches")
        raise NotResumable(
            f"the position of this cursor is counted in {counted}, and that of "
            f"{described(source.batches)} in {here}: resume with the pipeline that wrote it, whose "
            f"batches were made in another way."
        )
    had_sizes, has_sizes = isinstance(position.size, str), isinstance(source.size, str)
    if had_sizes == has_sizes or batching(plan_at(source.batches, position.batches)).indexed:
        return position.batches
    if has_sizes and continues:
        raise NotResumable(
            f"this cursor is of batches of {position.size} samples of a stream that continues "
            f"in the next epoch, and does not say how many came before: resume with one batch "
            f"size, not with {source.size}."
        )
    return _counted_in_stream(source, position.batches, cursor["samples"], has_sizes=has_sizes)


def _counted_in_stream(source: Source, at: Position, samples: int, *, has_sizes: bool) -> Position:
    """Return a stream's position; with the samples done, if batch sizes depend on them."""
    if not lacks_seed(source.batches):
        return (samples, at) if has_sizes else at[1]
    drawn, inner = at
    return drawn, (samples, inner) if has_sizes else inner[1]


def _in_own_memory(samples: Sequence[Any]) -> Sequence[Any]:
    """Copy the arrays of a batch; lists are copied anyway when they are stacked."""
    if not isinstance(samples, Columns) or not samples.stacked:
        return samples
    return samples.having(copied(samples.columns))


def _may_be_kept(batches: Reader[Any]) -> bool:
    """Return whether a cache, or the user's function, may hold the arrays of batches."""
    left = [batches]
    while left:
        reader = left.pop()
        if isinstance(reader, cache) or not isinstance(reader, Node):
            return True
        if not isinstance(reader, fetch_batches) and plain_batch(reader) is None:
            left += reader.input_readers
    return False
