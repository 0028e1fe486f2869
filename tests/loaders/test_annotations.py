"""What a trace of `jax.profiler` shows of a loader: its stages on their threads, and the steps."""

import gzip
import json
from dataclasses import dataclass
from itertools import islice, pairwise
from threading import get_ident

import jax
import numpy as np
import pytest
from jax.profiler import StepTraceAnnotation, TraceAnnotation

from jreader import Pipeline, arrays, map_readers
from jreader.profiling import profiler


@dataclass(frozen=True)
class Span:
    """What a thread did from when to when."""

    name: str
    thread: int
    begin: float
    end: float
    step: int | None

    def inside(self, other):
        """Whether it lies in the other one, on the same thread."""
        slack = 2e-3  # the file has picoseconds as microseconds
        early, late = other.begin - slack <= self.begin, self.end <= other.end + slack
        return self.thread == other.thread and early and late


class Trace:
    """The spans of a trace file."""

    def __init__(self, folder):
        (path,) = folder.rglob("*.trace.json.gz")
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        self.spans = [
            Span(
                event["name"],
                event["tid"],
                event["ts"],
                event["ts"] + event["dur"],
                int(steps) if (steps := event.get("args", {}).get("step_num")) else None,
            )
            for event in events
            if event.get("ph") == "X"
        ]

    def of(self, name):
        """The spans of a name, as they follow one another."""
        return sorted((each for each in self.spans if each.name == name), key=lambda it: it.begin)

    def under(self, name, outer):
        """How many of a name lie in one of another name; all others are a mistake."""
        found = self.of(name)
        assert all(any(one.inside(other) for other in self.of(outer)) for one in found)
        return len(found)


def decode(number):
    with TraceAnnotation(f"decoding on {get_ident()}"):
        return np.full(4, number, np.float32)


def scale(columns):
    with TraceAnnotation("scaling"):
        return columns / 2


def alone(number):
    with TraceAnnotation("alone"):
        return number


def numbers():
    yield from range(48)


def drawn():
    for number in range(48):
        with TraceAnnotation("drawing"):
            drawing = number
        yield drawing


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Six steps each: of a plain loop, of one whose maps run on threads, of one of the user's."""
    folder = tmp_path_factory.mktemp("trace")
    plain = Pipeline(map_readers(alone, numbers)).batch(8).load(capacity=0)
    rows = Pipeline(drawn).map(decode, threads=2).batch(8).map_batches(scale)
    threaded = rows.load().on_device(lambda feed: feed + 1)
    own = Pipeline(numbers).batch(8).load(capacity=0)
    list(plain), list(threaded), list(own)  # what is compiled is
    assert not profiler.active
    with jax.profiler.trace(folder):
        for feed in plain:
            with TraceAnnotation("my plain step"):
                jax.block_until_ready(feed)
        for feed in threaded:
            with TraceAnnotation("my threaded step"):
                jax.block_until_ready(feed)
        feeds = iter(own)
        feeds.annotates_steps = False
        for number in range(6):
            with StepTraceAnnotation("train", step_num=number):
                jax.block_until_ready(next(feeds))
        feeds.close()
    list(islice(own, 1))
    assert not profiler.active
    return Trace(folder)


def test_steps_are_numbered_and_reach_from_one_coming_to_the_next(trace):
    steps = trace.of("jreader step")
    assert [each.step for each in steps] == 2 * [*range(7)]  # the seventh finds the end
    assert {each.thread for each in steps} == {trace.of("train")[0].thread}
    assert trace.under("my plain step", "jreader step") == 6
    assert trace.under("my threaded step", "jreader step") == 6
    assert all(one.end <= other.begin for one, other in pairwise(steps))


def test_a_loop_waits_inside_its_step(trace):
    waits, steps = trace.of("jreader wait")[:14], trace.of("jreader step")
    assert all(wait.inside(step) for wait, step in zip(waits, steps, strict=True))


def test_without_look_ahead_all_stages_are_inside_the_wait(trace):
    (loop,) = {each.thread for each in trace.of("jreader wait")}
    first = trace.of("my threaded step")[0].begin
    for name in ("jreader read", "jreader collate", "jreader transfer"):
        here = [each for each in trace.of(name) if each.thread == loop and each.end < first]
        assert len([each for each in here if each.end < trace.of("my plain step")[-1].end]) >= 6
        waits = trace.of("jreader wait")
        assert all(any(one.inside(wait) for wait in waits) for one in here)


def test_a_map_is_inside_the_reading_sample_by_sample(trace):
    assert trace.under("jreader map alone", "jreader read") == 48
    assert trace.under("alone", "jreader map alone") == 48


def test_a_map_on_threads_is_on_those_threads(trace):
    decoding = {each.name for each in trace.spans if each.name.startswith("decoding on")}
    assert sum(trace.under(name, "jreader map decode") for name in decoding) == 48
    (loop,) = {each.thread for each in trace.of("jreader wait")}
    assert loop not in {each.thread for each in trace.of("jreader map decode")}


def test_what_a_map_on_threads_reads_is_on_one_thread_beside_those(trace):
    assert trace.under("drawing", "jreader read") == 48
    mapping = {each.thread for each in trace.of("jreader map decode")}
    reading = {each.thread for each in trace.of("drawing")}
    assert len(reading) == 1
    assert not reading & mapping


def test_a_map_of_batches_is_inside_the_reading(trace):
    assert trace.under("jreader map_batches scale", "jreader read") == 6
    assert trace.under("scaling", "jreader map_batches scale") == 6


def test_functions_on_the_devices_have_a_span_of_their_own(trace):
    assert len(trace.of("jreader on_device")) == 6


def test_steps_of_the_user_are_the_only_ones_where_ours_are_off(trace):
    first, last = trace.of("train")[0], trace.of("train")[-1]
    ours = trace.of("jreader step")
    assert not [each for each in ours if first.begin < each.end and each.begin < last.end]
    waits = trace.of("jreader wait")[-6:]
    assert all(wait.inside(step) for wait, step in zip(waits, trace.of("train"), strict=True))


def test_a_pass_that_has_begun_before_the_trace_is_in_it(tmp_path):
    feeds = Pipeline(arrays(x=np.arange(64.0))).batch(8).load(resident=True, capacity=0).steps()
    next(feeds)
    with jax.profiler.trace(tmp_path):
        next(feeds)
        next(feeds)
        feeds.close()
    trace = Trace(tmp_path)
    assert [each.step for each in trace.of("jreader step")] == [1, 2]
    assert len(trace.of("jreader on_device")) == 2


def test_what_a_traced_function_raises_is_raised_as_it_is(tmp_path):
    def odd(number):
        if number == 9:
            raise ValueError("an odd number")
        return number

    feeds = iter(Pipeline(numbers).map(odd).batch(4).load(capacity=0))
    with jax.profiler.trace(tmp_path):
        assert [next(feeds).tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(ValueError, match="an odd number"):
            next(feeds)
    assert len(Trace(tmp_path).of("jreader step")) == 3
