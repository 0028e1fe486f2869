"""Workers read, map, pad and name batches by number; the program yields them in order.

A batch of an indexed plan follows from the plan, the epoch, the seeds drawn by the pass, and its
position. So the plan is sent to each worker once, each task names its batches, and workers keep no
state. The program itself reads no sample: it computes where each batch begins.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import field
from functools import partial
from typing import Any, NamedTuple

from jreader.batches.batching import Batching, batching, gives_batches
from jreader.batches.plain_batches import batch, map_batches
from jreader.errors import ReaderError
from jreader.readers import Columns, Node, Pass, Position, Reader, at_epoch, described, op, start
from jreader.readers.lanes import dealt_below
from jreader.readers.rewriting import rewritten
from jreader.readers.seeds import Draws, lacks_seed, resolved, seeded
from jreader.transforms import firstn
from jreader.workers import map_samples
from jreader.workers.ahead import made_ahead
from jreader.workers.executor_map import Engine, ExecutorCrew, workers_of
from jreader.workers.limits import Limits
from jreader.workers.map_tasks import MapTask

_AHEAD = 2  # batches in flight per worker
_MAX_AHEAD = 256  # the most, if they take next to no time


class BatchPlace(NamedTuple):
    """Identifies one batch of a plan.

    Attributes:
        epoch: The epoch number.
        drawn: The seeds that the pass drew where the plan has none; None if none were drawn.
        at: The plan's position before the batch.
    """

    epoch: int
    drawn: Position
    at: Position


class NumberedBatches:
    """Makes any batch of a plan, in a worker or locally; thread-safe.

    >>> from jreader import arrays, batch
    >>> make = NumberedBatches(batch(arrays([1, 2, 3, 4]), 2))
    >>> make(BatchPlace(0, None, 2)).columns.tolist()
    [3, 4]

    Args:
        plan: The batches in epoch 0, found by position.
        named: Turns a batch into the named arrays of a feed; None leaves batches as they are.
    """

    def __init__(self, plan: Reader[Any], named: Callable[[Any], Any] | None = None) -> None:
        self.plan, self.named = plan, named

    def __call__(self, place: BatchPlace) -> Any:
        """Return the batch; with `named`, as `Columns` that are marked as named."""
        (batch,) = self.results_in_turn([place])
        return batch

    def results_in_turn(self, places: Sequence[BatchPlace]) -> Generator[Any, None, None]:
        """Yield consecutive batches from one pass, which ends with the last of them."""
        with closing(self.start_at(places[0], places[-1].at)) as up:
            for place in places:
                batch = next(up.items, self) if up.position() == place.at else self
                if batch is self:  # there is none
                    raise ReaderError(
                        f"{described(self.plan)} has no batch at position {place.at!r} of epoch "
                        f"{place.epoch} where a worker reads it, but has one in this program: let "
                        "the worker see the same data, and do not change them during a pass."
                    )
                yield batch if self.named is None else _with_names(batch, self.named)

    def start_at(self, place: BatchPlace, last: Position = None) -> Pass[Any]:
        """Start a pass at a batch; it ends after the batch that begins at `last`, or at the end."""
        plan = at_epoch(_until(self.plan, last), place.epoch)
        return start(plan if place.drawn is None else seeded(plan, place.drawn), place.at)

    def __repr__(self) -> str:
        """Return the name that errors use."""
        return described(self.plan)


@op
class _made_in_workers(Node[Any]):
    """The batches of a plan, made by an executor.

    Args:
        make: Makes the batch of a `BatchPlace`. Its plan is deliberately not a reader of this op:
            each task carries the epoch and the drawn seeds, so workers receive the plan only once.
        found: Describes the batches of all processes together.
        makers: The executor and its settings.
        epoch: The epoch of the plan.
        drawn: The seeds that a pass draws for the plan; None until drawn, or if none are needed.
    """

    make: NumberedBatches
    found: Batching
    makers: Engine
    epoch: int = field(default=0, init=False)
    drawn: Position = field(default=None, init=False)
    unit = "batches"
    in_cursor = "never"
    shown_call = "load(workers=...)"

    def resolved(self, draws: Draws) -> dict[str, Any]:
        """Return the seeds drawn, if the plan lacks any."""
        if self.drawn is not None or not lacks_seed(self.make.plan):
            return {}
        resolved(self.make.plan, draws)
        return {"drawn": draws.drawn}

    def start(self, at: Position) -> Pass[Any]:
        """Start a pass; its position is that of the plan."""
        upstream = self.make.start_at(BatchPlace(self.epoch, self.drawn, at))
        before = upstream.position()
        positions = self.found.positions(before)
        if positions is None:  # a position of an earlier release
            return upstream
        upstream.close()
        (executor, learnt, share), up = self.makers, self._places(before, positions[0])
        most, task = 0 if share else _MAX_AHEAD, MapTask(self.make, share=share)
        limits = Limits.of_each(workers_of(executor), _AHEAD, most)  # a shared task makes one batch
        crew = ExecutorCrew(self, up, task, executor, limits, lambda *_: None, learnt=learnt)
        made = made_ahead(crew)
        return _to_the_end(made, up, positions[1])

    def _places(self, at: Position, after: Iterator[Position]) -> Pass[BatchPlace]:
        def deal() -> Iterator[BatchPlace]:
            nonlocal at
            for end in after:
                place, at = BatchPlace(self.epoch, self.drawn, at), end
                yield place

        return Pass(deal(), lambda: at, lambda: None)


def _to_the_end(made: Pass[Any], up: Pass[Any], end: Position) -> Pass[Any]:
    """End a pass at `end` once all batches were yielded, even if samples are left."""
    over = False

    def deal() -> Iterator[Any]:
        nonlocal over
        yield from made.items
        left = next(up.items, None)
        over = left is None and made.position() == up.position()  # otherwise it was closed

    return Pass(deal(), lambda: end if over else made.position(), made.close)


def made_in_workers(
    batches: Reader[Any],
    source: Reader[Any],
    makers: Engine,
    named: Callable[[Any], Any] | None = None,
    made_at: str = "",
) -> Reader[Any]:
    """Let the tasks of an executor make the batches of a plan, in order.

    Args:
        batches: The batches that this process reads, in epoch 0.
        source: The batches of all processes, whose positions count.
        makers: The executor and its settings.
        named: Turns a batch into the named arrays of a feed, in the worker; None to do it locally.
        made_at: The file and line that errors show.

    Raises:
        TypeError: Batches cannot be found by number.
    """
    found = check_numbered(source)
    batches = rewritten(batches, _without_workers, pinned=True)
    if found.lanes:
        return rewritten(batches, partial(_with_lane_workers, makers))
    make = NumberedBatches(batches, named)
    made = _made_in_workers(make, found, makers)
    return made.changed({"made_at": made_at or made.made_at})


def check_numbered(batches: Reader[Any]) -> Batching:
    """Describe batches that can be found by number; raise for others.

    Raises:
        TypeError: Batches cannot be found by number.
    """
    found = batching(batches)
    if found.indexed or found.lanes:
        return found
    if not gives_batches(batches):
        cure = "type .batch(n) before .load()"
    else:
        cure = (
            "deal its files to lanes, which workers read side by side, as .read(fn, lanes=8) does; "
            "or let workers map the samples instead, as .map(fn, processes=2) or executor= does; "
            "or use an indexed source: arrays, files with an index, or a .cache(path) that you "
            "fill (with .prepare(), say) before you build this plan"
        )
    raise TypeError(
        f"load(workers=...) makes batches by their number, and those of {described(batches)} can "
        f"be found only by reading all that comes before: {cure}."
    )


def _with_lane_workers(makers: Engine, node: Node[Any]) -> dict[str, Any]:
    """Return the changed fields of a `batch` whose lanes workers read."""
    dealt = dealt_below(node.reader) if isinstance(node, batch) else None
    return {"_makers": makers} if dealt and not dealt.owned else {}


def _with_names(batch: Any, named: Callable[[Any], Any]) -> Any:
    """Return a batch with named columns."""
    known = isinstance(batch, Columns)
    feed = named(batch.columns if known and not batch.stacked else batch)
    made = batch.having(feed) if known else Columns.collated(feed, None)
    made.named = True
    return made


def _until(batches: Reader[Any], at: Position) -> Reader[Any]:
    """End the plan after the batch at a position, so that nothing behind it is read ahead.

    A plan whose positions are not sample counts is returned unchanged.
    """

    def ends(op: Node[Any]) -> dict[str, Any] | Node[Any]:
        if not isinstance(op, batch):
            return {}
        return op.changed({"reader": firstn(op.reader, at + op.sizes.at(at))})

    return rewritten(batches, ends) if type(at) is int else batches


def _without_workers(node: Node[Any]) -> dict[str, Any]:
    """Return the changed fields of an op that runs entirely inside a worker."""
    if isinstance(node, map_samples):
        return {"processes": 0, "executor": None, "concurrency": 0, "pool": None}
    return {"processes": 0, "pool": None} if isinstance(node, map_batches) else {}
