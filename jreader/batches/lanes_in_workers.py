"""Workers read the lanes of a stream: each holds a pass over some lanes.

These batches cannot be made by number: each follows those before it. So a task gives a position of
the lanes, which this program knows, and how many batches to skip from there. The worker that ran
the previous task continues the pass that it holds; any other starts a pass at the position. The
held passes only save time; they are not state. If a worker dies, another resumes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from itertools import count, islice
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

import numpy as np

from jreader.batches.lane_batches import LaneBatches, cannot_wrap
from jreader.batches.stacked import concatenated
from jreader.counters import working
from jreader.readers import Columns, Pass, Position, itself, leaves
from jreader.readers.columns import Array
from jreader.readers.lanes import dealt_below, of_lane
from jreader.readers.plain_functions import epoch_of_caller, in_epoch
from jreader.readers.trees import Rows
from jreader.workers import map_and_stack
from jreader.workers.ahead import DrawnChunk, made_ahead
from jreader.workers.executor_map import Engine, ExecutorCrew, each_alone
from jreader.workers.limits import Limits
from jreader.workers.map_tasks import MapTask
from jreader.workers.worker_batches import exact_column, number_type

T = TypeVar("T")

_LIMITS = Limits.of_each(1, 2, 256)  # batches in flight per group, and the most
_CALL = "load(workers=...)"


class LanePlace(NamedTuple):
    """Identifies one part of one batch.

    Attributes:
        group: The index of the group of lanes.
        begun: An id of this program's pass, unlike that of any other pass over the same lanes.
        number: The batches of that pass before this one.
        at: An earlier position of the lanes.
        skips: The batches between that position and the part.
    """

    group: int
    begun: str
    number: int
    at: Position
    skips: int


class LanePart(NamedTuple):
    """The rows of a batch that one group of lanes supplies.

    Attributes:
        made: The batch with only these rows; None if the pass ended before it.
        position: The position of the lanes after it.
    """

    made: Columns[Any] | None
    position: Position


class _Passes(dict[int, tuple[str, int, LaneBatches[Any]]]):
    """The passes that a process holds for one loader, by group: (pass id, batches done, pass).

    They live as long as this process keeps a function of that loader, from any epoch.
    """


_PASSES: WeakValueDictionary[str, _Passes] = WeakValueDictionary()


class LaneParts:
    """Reads parts of batches from groups of lanes, in a worker or locally.

    >>> from jreader import batch, read
    >>> lines = read(str.split, lambda: ["a b", "c d"], lanes=2)
    >>> parts = LaneParts(batch(lines, 2), [np.array([0]), np.array([1])], 0, "a loader")
    >>> list(next(parts.results_in_turn([LanePlace(1, "", 1, None, skips=1)])).made)
    ['d']

    Args:
        op: The `batch`, at its epoch.
        groups: The rows of each group of lanes.
        epoch: The epoch that plain functions in it see.
        loader: An id of the loader.
    """

    def __init__(self, op: Any, groups: Sequence[Array], epoch: int, loader: str) -> None:
        self.op, self.groups, self.epoch, self.loader = op, groups, epoch, loader
        self.held = _PASSES.setdefault(loader, _Passes())

    def results_in_turn(self, places: Sequence[LanePlace]) -> Generator[LanePart, None, None]:
        """Yield consecutive parts of one group; hold the pass for the next task."""
        begun, lanes = places[0].begun, self._pass_at(places[0])
        runs = lanes.runs()
        for place in places:
            self.held.pop(place.group, None)  # if the pass fails, there is nothing to continue
            made = next(runs, None)
            part = LanePart(made and _stacked_part(made), lanes.position())
            self.held[place.group] = begun, place.number + 1, lanes
            yield part

    def _pass_at(self, place: LanePlace) -> LaneBatches[Any]:
        """Return the held pass if it is at this place; else start one."""
        held = self.held.pop(place.group, None)
        if held and held[:2] == (place.begun, place.number):
            return held[2]
        if held:
            held[2].close()
        with in_epoch(self.epoch):
            dealt: Any = dealt_below(self.op.reader)
            lanes: LaneBatches[Any] = self.op.in_lanes(dealt, place.at, self.groups[place.group])
        lanes.joined = True
        deque(islice(lanes.runs(), place.skips), maxlen=0)
        return lanes

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the held passes."""
        return LaneParts, (self.op, self.groups, self.epoch, self.loader)

    def __repr__(self) -> str:
        """Return the name that errors use."""
        return repr(self.op)


def _stacked_part(made: Columns[Any]) -> Columns[Any]:
    """Stack the samples of a part if that loses nothing."""
    samples = list(made)
    tree, several = map_and_stack(itself, samples, exact_column, small=True) if samples else (0, [])
    if several is None:
        made.columns, made.arrays = tree, leaves(tree)
        made.numbers = list(map(number_type, leaves(samples[0])))
    return made


class _GroupCrew(ExecutorCrew[LanePlace]):
    """Runs the tasks of one group of lanes one at a time; each resumes where the last ended."""

    def __init__(self, group: int, begun: str, at: Position, node: Any, *given: Any) -> None:
        self.at, self.before = at, 0  # a position, and the batches before it

        def places() -> Iterator[LanePlace]:
            for number in count():
                yield LanePlace(group, begun, number, self.at, number - self.before)

        super().__init__(node, Pass(places(), lambda: None, lambda: None), *given)
        self.op, self.where = _CALL, f"{_CALL}, made at {node.made_at}"

    @property
    def ready(self) -> bool:
        """True once the last task's results were taken."""
        return not self.in_work

    def take(self, chunk: DrawnChunk[LanePlace]) -> None:
        """Take the results of a task, and send the next one, which runs while they are used."""
        super().take(chunk)
        if chunk.results:
            self.at, self.before = chunk.results[-1].position, chunk.first + len(chunk.results)
        if chunk.error is None:
            self.send()


class LanesInWorkers(LaneBatches[T]):
    """A pass over batches of a stream in lanes that workers read, or over some of their rows."""

    def __init__(self, makers: Engine, *given: Any) -> None:
        self._makers = makers
        super().__init__(*given)

    def open(self) -> None:
        """Assign the lanes to the workers, which start with the first batch requested."""
        workers, learnt = each_alone(self._makers.executor), self._makers.learnt
        rows = np.arange(self._size) if self._rows is None else self._rows
        lanes = np.array_split(self.numbers, min(len(workers), len(self.numbers)))
        self._groups = [group.tolist() for group in lanes]
        self._held_rows = [rows[np.isin(rows // self._each, group)] for group in lanes]
        op = self._node.changed({"_makers": None})
        loader = learnt.setdefault("loader", uuid4().hex)
        task = MapTask(LaneParts(op, self._held_rows, epoch_of_caller(), loader))
        begun, at = uuid4().hex, tuple(map(tuple, self._places))
        work = working(_CALL, "", op.made_at, "processes", len(lanes))
        more = lambda *_: None, work, 1, learnt.setdefault("lanes", {})
        self._crews = [
            _GroupCrew(number, begun, at, op, task, worker, _LIMITS, *more)
            for number, worker in enumerate(workers[: len(lanes)])
        ]
        self._parts = [made_ahead(crew) for crew in self._crews]

    def runs(self) -> Iterator[Columns[T]]:
        """Yield batches, or their rows; endless unless `ends` is "drop"."""
        for crew in self._crews:  # start all before waiting for the first
            crew.send()
        while (parts := self._next_parts()) is not None:
            yield self._joined(parts)

    def _next_parts(self) -> list[Columns[T]] | None:
        """Return the next part of each group; None if the pass ends before one of them."""
        made = []
        for numbers, up in zip(self._groups, self._parts, strict=True):
            part: LanePart = next(up.items, None) or LanePart(None, self._places)  # up was closed
            for number in numbers:
                self._places[number] = part.position[number]
            if part.made is None:
                return None
            made.append(part.made)
        return made

    def _joined(self, parts: list[Columns[T]]) -> Columns[T]:
        """Join the parts of all groups into a batch."""
        rows, there = np.concatenate(self._held_rows), self._valid(parts)
        some = [part for part in parts if len(part)] or parts[:1]
        samples = some[0] if len(some) == 1 else concatenated(some)
        made = samples if isinstance(samples, Columns) else Columns(Rows(samples))
        made.fresh = any(part.fresh for part in parts)
        if len(lacking := np.delete(rows, there)):
            self._check_wraps(int(lacking[0]), made)
            made.valid = there
        made.rows = self._size - len(lacking)
        return made

    def _check_wraps(self, row: int, made: Columns[T]) -> None:
        """Raise ReaderError if this row of a batch is empty although the epoch wraps."""
        if self._ends == "wrap" and (made.fresh or self._rows is not None):
            raise cannot_wrap(of_lane(self._node.reader, row // self._each), self._node)

    def _valid(self, parts: list[Columns[T]]) -> Array:
        """Return which rows of all groups hold samples."""
        begin, valid = 0, []
        for rows, part in zip(self._held_rows, parts, strict=True):
            valid.append(begin + (np.arange(len(rows)) if part.valid is None else part.valid))
            begin += len(rows)
        return np.concatenate(valid)

    def position(self) -> Position:
        """Return a pair for each lane: how often it has ended, and the position in it."""
        return tuple(map(tuple, self._places))

    def close(self) -> None:
        """Close the crews; workers drop the passes that they hold at the loader's next task."""
        for up in self._parts:
            up.close()
