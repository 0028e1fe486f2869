"""Batches of a stream in lanes that workers read: each holds a pass over some of the lanes.

Such a batch has no number to be made by: it follows those before it. So a task says where its lanes
are: by a position that this program has, and how many batches lie behind it. The worker that did
the task before continues the pass that it holds; any other one starts a pass there. So what a
worker holds saves time, and is no state: if it dies, another one reads on.
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

_LIMITS = Limits.of_each(1, 2, 256)  # of one group: batches that may be ahead, and the most
_CALL = "load(workers=...)"


class LanePlace(NamedTuple):
    """Which part of which batch is asked for.

    Attributes:
        group: The number of the group of lanes.
        begun: Tells the pass of this program from others over the same lanes.
        number: How many batches of that pass are before it.
        at: A position of the lanes before it.
        skips: How many batches lie between that position and the part.
    """

    group: int
    begun: str
    number: int
    at: Position
    skips: int


class LanePart(NamedTuple):
    """The rows of a batch that a group of lanes gives.

    Attributes:
        made: The batch with these rows alone; None where the pass has ended before it.
        position: The position of the lanes after it.
    """

    made: Columns[Any] | None
    position: Position


class _Passes(dict[int, tuple[str, int, LaneBatches[Any]]]):
    """The passes of a loader that a process holds, by group: of which pass there, how far, and it.

    They live as long as a function of that loader, of this epoch or another, is kept here.
    """


_PASSES: WeakValueDictionary[str, _Passes] = WeakValueDictionary()


class LaneParts:
    """Reads parts of batches from groups of lanes, in a worker or here.

    >>> from jreader import batch, read
    >>> lines = read(str.split, lambda: ["a b", "c d"], lanes=2)
    >>> parts = LaneParts(batch(lines, 2), [np.array([0]), np.array([1])], 0, "a loader")
    >>> list(next(parts.results_in_turn([LanePlace(1, "", 1, None, skips=1)])).made)
    ['d']

    Args:
        op: The `batch`, in its epoch.
        groups: The rows of each group of lanes.
        epoch: The epoch of the plain functions in it.
        loader: Tells the loader from others.
    """

    def __init__(self, op: Any, groups: Sequence[Array], epoch: int, loader: str) -> None:
        self.op, self.groups, self.epoch, self.loader = op, groups, epoch, loader
        self.held = _PASSES.setdefault(loader, _Passes())

    def results_in_turn(self, places: Sequence[LanePlace]) -> Generator[LanePart, None, None]:
        """Parts that follow each other, of one group; then the pass is held for the next ones."""
        begun, lanes = places[0].begun, self._pass_at(places[0])
        runs = lanes.runs()
        for place in places:
            self.held.pop(place.group, None)  # it may fail: then there is nothing to continue
            made = next(runs, None)
            part = LanePart(made and _stacked_part(made), lanes.position())
            self.held[place.group] = begun, place.number + 1, lanes
            yield part

    def _pass_at(self, place: LanePlace) -> LaneBatches[Any]:
        """The pass that is held, if it is there; else a new one."""
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
        """Without the passes that are held here."""
        return LaneParts, (self.op, self.groups, self.epoch, self.loader)

    def __repr__(self) -> str:
        """What an error calls it."""
        return repr(self.op)


def _stacked_part(made: Columns[Any]) -> Columns[Any]:
    """A part of a batch, its samples stacked if that loses nothing."""
    samples = list(made)
    tree, several = map_and_stack(itself, samples, exact_column, small=True) if samples else (0, [])
    if several is None:
        made.columns, made.arrays = tree, leaves(tree)
        made.numbers = list(map(number_type, leaves(samples[0])))
    return made


class _GroupCrew(ExecutorCrew[LanePlace]):
    """The tasks of one group of lanes, one at a time: each continues where the last one ended."""

    def __init__(self, group: int, begun: str, at: Position, node: Any, *given: Any) -> None:
        self.at, self.before = at, 0  # a position, and how many batches are before it

        def places() -> Iterator[LanePlace]:
            for number in count():
                yield LanePlace(group, begun, number, self.at, number - self.before)

        super().__init__(node, Pass(places(), lambda: None, lambda: None), *given)
        self.op, self.where = _CALL, f"{_CALL}, made at {node.made_at}"

    @property
    def ready(self) -> bool:
        """Whether the last task was taken."""
        return not self.in_work

    def take(self, chunk: DrawnChunk[LanePlace]) -> None:
        """Takes the parts of a task, and sends the next one, to be done while they are used."""
        super().take(chunk)
        if chunk.results:
            self.at, self.before = chunk.results[-1].position, chunk.first + len(chunk.results)
        if chunk.error is None:
            self.send()


class LanesInWorkers(LaneBatches[T]):
    """A pass over the batches of a stream in lanes, or over some rows of each, read by workers."""

    def __init__(self, makers: Engine, *given: Any) -> None:
        self._makers = makers
        super().__init__(*given)

    def open(self) -> None:
        """Deals the lanes to the workers, who begin with the first batch that is asked for."""
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
        """One batch after another, or its rows; without an end, unless that is "drop"."""
        for crew in self._crews:  # all begin before the first one is waited for
            crew.send()
        while (parts := self._next_parts()) is not None:
            yield self._joined(parts)

    def _next_parts(self) -> list[Columns[T]] | None:
        """The next part of each group; None if the pass ends before one of them."""
        made = []
        for numbers, up in zip(self._groups, self._parts, strict=True):
            part: LanePart = next(up.items, None) or LanePart(None, self._places)  # it was closed
            for number in numbers:
                self._places[number] = part.position[number]
            if part.made is None:
                return None
            made.append(part.made)
        return made

    def _joined(self, parts: list[Columns[T]]) -> Columns[T]:
        """The batch of the parts of all groups."""
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
        """Raises ReaderError if this row of a batch is empty, in an epoch that wraps."""
        if self._ends == "wrap" and (made.fresh or self._rows is not None):
            raise cannot_wrap(of_lane(self._node.reader, row // self._each), self._node)

    def _valid(self, parts: list[Columns[T]]) -> Array:
        """Which of the rows of all groups have samples."""
        begin, valid = 0, []
        for rows, part in zip(self._held_rows, parts, strict=True):
            valid.append(begin + (np.arange(len(rows)) if part.valid is None else part.valid))
            begin += len(rows)
        return np.concatenate(valid)

    def position(self) -> Position:
        """A pair for each lane: how often it has ended, and the position in it."""
        return tuple(map(tuple, self._places))

    def close(self) -> None:
        """Ends the tasks; the passes that workers hold go with the next ones of this loader."""
        for up in self._parts:
            up.close()
