"""Read a few feeds of a loader again, in a separate pass that times each stage.

The pass reads the same plan without workers or prefetching, so everything runs on this thread, and
the time of a stage is the time inside its function minus that of stages nested in it. The loop's
own pass is untouched: plans are pure, and this is one more pass. Functions and sources of a plan
may notice the extra calls.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any, Literal, TypeAlias, TypeVar

import jax

from jreader.cores import usable_cores
from jreader.errors import place_of_code
from jreader.linting.plan_parts import Call, call_of
from jreader.loaders.checkpoints.cursors import beginning
from jreader.loaders.host_feeds import HostFeeds
from jreader.loaders.loading import Loading
from jreader.loaders.prefetching import device_feeds
from jreader.loaders.run import Run
from jreader.readers import Node, Pass, Reader, described, indexed, itself
from jreader.readers.rewriting import rewritten
from jreader.readers.seeds import seeded
from jreader.readers.starting import watching
from jreader.transforms import cache, map_readers, shuffle
from jreader.workers import buffered, xmap_readers
from jreader.workers.gil import GilUse, share_of_a_core

T = TypeVar("T")

Name: TypeAlias = Literal[
    "source", "map", "map_batches", "collate", "transfer", "on_device", "capacity", "step"
]

_WITHOUT_WORKERS: Mapping[str, Any] = {
    "threads": 0,
    "processes": 0,
    "executor": None,
    "keep": None,
    "process_num": 0,
    "pool": None,
    "timeout": 0,
}
_SAME: Mapping[str, Any] = {}
_MAX_SAMPLES = 8  # samples of a function, to call it again with


@dataclass(frozen=True)
class Measured:
    """One stage of a report.

    Attributes:
        name: Which stage; "capacity" is not a stage but a verdict.
        function: The name of its function, or of the op that reads; "" for a stage of the loader.
        where: The file and line of the function, or of the op.
        alone: Seconds per feed on one worker.
        by: "threads", "processes" or "executor"; "workers" for those of `load`; "" for the reading
            thread.
        workers: The number of workers.
        holding: Whether its function holds the GIL, and whether it waits; None if not measured.
        filling: True if it is below a cache that is still incomplete.
        op: The op that calls the function, such as "filter"; "" for a stage of the loader.
        seen: Seconds per feed that its processes were observed to take.
    """

    name: Name
    function: str = ""
    where: str = ""
    alone: float = 0.0
    by: str = ""
    workers: int = 1
    holding: GilUse | None = None
    filling: bool = False
    op: str = ""
    seen: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds per feed with its workers."""
        side_by_side = self.workers
        if self.by == "threads" and self.holds:
            side_by_side = 1
        elif self.by and self.holding and self.holding.computes > 0.5:
            side_by_side = min(side_by_side, usable_cores())
        return max(self.alone / max(1, side_by_side), self.seen)

    @property
    def holds(self) -> bool:
        """True if its function is known to hold the GIL."""
        return self.holding is not None and self.holding.holds_gil

    @property
    def waits(self) -> bool:
        """True if its function is known to wait most of the time, but not for the GIL."""
        return self.holding is not None and not self.holds and self.holding.computes < 0.5


@dataclass
class Probe:
    """One stage of a plan while it is timed.

    Attributes:
        stage: The stage; its times are filled in at the end.
        op: The op; None for a plain function that is read.
        function: The user's function; None for a source.
        time: Nanoseconds, without those of nested stages.
        calls: How often it was called, or yielded a sample.
        samples: Arguments of some calls.
    """

    stage: Measured
    op: Node[Any] | None = None
    function: Callable[..., Any] | None = None
    time: int = 0
    calls: int = 0
    samples: deque[tuple[Any, ...]] = field(default_factory=lambda: deque(maxlen=_MAX_SAMPLES))


@dataclass(frozen=True)
class Probed:
    """The measured times, in nanoseconds per feed.

    Attributes:
        probes: The stages of the plan.
        read: The whole plan.
        collate: Stacking.
        place: Until the feed is on the devices, and its functions there have run; 0 where several
            processes feed one array, since none puts a feed there alone.
        feeds: The number of feeds read.
        computes: The share of the time in which this thread computed.
    """

    probes: tuple[Probe, ...]
    read: float
    collate: Probe
    place: float
    feeds: int
    computes: float

    def move_to_workers(self, workers: int, *, stacks: bool) -> None:
        """Assign all of the plan to the workers of `load`, including stacking if they do it."""
        for each in (*self.probes, self.collate) if stacks else self.probes:
            each.stage = replace(each.stage, by="workers", workers=workers)

    def move_threads(self, threads: Mapping[str, int]) -> None:
        """Set the thread count of each map to the tuner's, by the line that made the map."""
        for each in self.probes:
            if each.stage.by == "threads" and each.op is not None:
                workers = threads.get(each.op.made_at, each.stage.workers)
                each.stage = replace(each.stage, workers=workers)


def probe(loading: Loading, epoch: int, feeds: int, seconds: float) -> Probed | None:
    """Read some feeds of an epoch; return None if it has none.

    Args:
        loading: The loader's settings.
        epoch: The epoch to read.
        feeds: The number of feeds to measure, after an unmeasured first one.
        seconds: After this time, the current feed is the last one.
    """
    meter = _Meter()
    ready, computes = meter.read(loading, epoch, feeds, seconds)
    if not ready:
        return None
    timed = _but_first(list(meter.run.counters.assembled))
    stacks = [stacked - read for _, read, stacked, _ in timed]
    placed = _but_first(list(meter.run.counters.placed)) or [0]
    return Probed(
        tuple(each for each in meter.probes.values() if each.calls),
        fmean(read - came for came, read, _, _ in timed) if timed else 0.0,
        Probe(Measured("collate"), time=int(median(stacks)) if stacks else 0),
        0.0 if loading.placement.spans else median(placed) + median(ready),
        len(ready),
        computes,
    )


def _but_first(values: list[T]) -> list[T]:
    return values[1:] or values


class _Meter:
    """Times the stages of one pass, each without those nested in it."""

    def __init__(self) -> None:
        self.probes: dict[Any, Probe] = {}
        self.run = Run()
        self.local = threading.local()  # times per thread, for sources with their own
        self.filling = False

    def read(
        self, loading: Loading, epoch: int, feeds: int, seconds: float
    ) -> tuple[list[int], float]:
        """Read feeds on this thread; return the wait for each, and the share of computing."""
        source = loading.source
        if loading.resident is None:
            source = replace(source, batches=rewritten(source.batches, self.probed))
        options = replace(loading.options, capacity=0, workers=None)
        alone = Loading.of(source, options, loading.resident)
        at = beginning(0 if loading.remainder.continues else epoch)
        with warnings.catch_warnings(), watching(self.watched):
            warnings.simplefilter("ignore")  # the loop's own pass warns
            if alone.placement.spans:  # without the other processes
                host = HostFeeds(alone.here, alone.of_epoch(at), at, counters=self.run.counters)
                here = host.begun()
            else:
                here = device_feeds(alone, at, self.run)
            began, before = time.perf_counter(), time.thread_time()
            try:
                ready = self._waits(here.items, feeds, seconds)
            finally:
                here.close()
                self.run.stream.close()
        wall, worked = time.perf_counter() - began, time.thread_time() - before
        return ready, min(1.0, worked / max(wall, 1e-9) / share_of_a_core())

    def _waits(self, items: Iterator[Any], most: int, seconds: float) -> list[int]:
        """Return the nanoseconds of waiting for each feed on the devices, without the first."""
        waits: list[int] = []
        late = time.perf_counter() + seconds
        for feed in items:
            came = time.perf_counter_ns()
            jax.block_until_ready(feed)
            waits.append(time.perf_counter_ns() - came)
            if len(waits) == 1:
                first = self.totals()
            elif len(waits) > most or time.perf_counter() > late:
                break
        if len(waits) > 1:  # leave out the first, with its setup
            self.leave_out(first)
        return _but_first(waits)

    def totals(self) -> dict[Any, tuple[int, int]]:
        return {key: (each.time, each.calls) for key, each in self.probes.items()}

    def leave_out(self, before: dict[Any, tuple[int, int]]) -> None:
        for key, (spent, calls) in before.items():
            self.probes[key].time -= spent
            self.probes[key].calls -= calls

    def probed(self, node: Node[Any]) -> Mapping[str, Any] | Node[Any]:
        """Replace an op, for `rewritten`, by one with the same samples, timed, on this thread."""
        if isinstance(node, buffered):
            return {"size": 0}
        if isinstance(node, shuffle) and node.blocks is None:
            streamed = indexed(seeded(node, 0)) is None
            return {"buf_size": 0} if streamed else {}  # it would read a window for one feed
        if isinstance(node, cache) and not node.filled:
            self.filling = True
            return map_readers(itself, rewritten(node.reader, self.probed))
        call = call_of(node)
        return _SAME if call is None else self._called(call)

    def _called(self, call: Call) -> Mapping[str, Any] | Node[Any]:
        """Return what makes an op call its function on this thread, timed."""
        op, function = call.op, call.function
        kind = name = type(op).__name__
        where = op.made_at
        if call.stage != "source":
            where, name = written_at(function) or where, described(function)
        stage = Measured(call.stage, name, where, by=call.by, workers=call.workers, op=kind)
        probe = Probe(replace(stage, filling=self.filling), op, function)
        self.probes[id(op)] = probe
        timed = self._timed(probe, function)
        if isinstance(op, xmap_readers):
            return map_readers(timed, rewritten(op.reader, self.probed))
        alone = {name: value for name, value in _WITHOUT_WORKERS.items() if hasattr(op, name)}
        return {**alone, call.argument: timed}

    def _timed(self, probe: Probe, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*sample: Any) -> Any:
            if len(probe.samples) < _MAX_SAMPLES:
                probe.samples.append(sample)
            began = self._enter()
            try:
                return function(*sample)
            finally:
                self._leave(probe, began)

        return timed

    def watched(self, reader: Reader[Any], up: Pass[Any]) -> Pass[Any]:
        """Time the pass over a source; leave that over an op that reads others as it is."""
        if isinstance(reader, Node):
            if not isinstance(reader, cache) and reader.input_readers:
                return up
            kind, where = type(reader).__name__, reader.made_at
            stage = Measured("source", kind, where, filling=self.filling, op=kind)
            probe = self.probes.setdefault((type(reader), where), Probe(stage, reader))
        else:
            name, where = described(reader), written_at(reader)
            stage = Measured("source", name, where, filling=self.filling)
            probe = self.probes.setdefault(id(reader), Probe(stage))
        return up._replace(items=self._timed_items(probe, up.items))

    def _timed_items(self, probe: Probe, items: Iterator[Any]) -> Iterator[Any]:
        while True:
            began = self._enter()
            try:
                sample = next(items)
            except StopIteration:
                return
            finally:
                self._leave(probe, began)
            yield sample

    def _enter(self) -> int:
        inside = self.local.__dict__.setdefault("inside", [])
        inside.append(0)
        return time.perf_counter_ns()

    def _leave(self, probe: Probe, began: int) -> None:
        spent = time.perf_counter_ns() - began
        inside = self.local.inside
        probe.time += spent - inside.pop()
        probe.calls += 1
        if inside:
            inside[-1] += spent


def written_at(function: Any) -> str:
    """Return the file (or cell) and line of a Python function; "" for any other.

    >>> written_at(len), written_at(written_at).rpartition("/")[2].rpartition(":")[0]
    ('', 'probing.py')
    """
    with suppress(AttributeError):
        inner = getattr(function, "func", function)  # of a partial
        plain = getattr(inner, "__func__", inner)
        code = plain.__code__
        return place_of_code(code.co_filename, code.co_firstlineno, plain.__globals__)
    return ""
