"""`loader.stats()`: what the stages took for the last feeds, as plain data."""

import json
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import count

import jax
import numpy as np
import pytest

from jreader import DataLoader, Pipeline, arrays
from jreader.counters import KEPT, MOST, QUICK, Counters, Work, counting, snapshot, working
from jreader.loaders.queries.stats import stats_of


def rows(samples=64, **options):
    return Pipeline(arrays(x=np.arange(float(samples)))).batch(8).load(**options)


def stages(loader):
    return {stage.name: stage for stage in loader.stats().stages}


@pytest.mark.parametrize("capacity", [0, 2])
def test_each_stage_is_timed_and_every_step(capacity):
    loader = rows(capacity=capacity)
    list(loader)
    found = stages(loader)
    assert [*found] == ["read", "collate", "transfer", "step"]
    assert found["step"].items == 7
    assert all(stage.time_ns > 0 and stage.items >= 1 for stage in found.values())


def test_every_feed_is_timed_where_they_are_slow():
    def slow(columns):
        limit = time.perf_counter_ns() + 2 * QUICK
        while time.perf_counter_ns() < limit:
            pass
        return columns

    loader = Pipeline(arrays(x=np.arange(64.0))).batch(8).map_batches(slow).load(capacity=0)
    list(loader)
    found = stages(loader)
    assert [found[name].items for name in ("read", "map_batches", "transfer")] == [8, 8, 8]


def test_feeds_that_are_timed_stand_for_all():
    loader = rows(samples=8 * 100)
    list(loader)
    found = stages(loader)
    assert 100 <= found["read"].items <= 100 + MOST
    assert found["collate"].items == found["read"].items


def test_a_loader_that_no_loop_has_asked_has_counted_nothing():
    stats = rows().stats()
    assert {stage.items for stage in stats.stages} == {0}
    assert (stats.waiting, stats.steps_ns) == (0, ())
    assert "the loop waited for feeds 0% of the time" in str(stats)


def test_passes_are_counted_together_but_not_what_lies_between_them():
    loader = rows()
    for _ in range(3):
        list(loader)
    assert stages(loader)["read"].items >= 3
    assert len(loader.stats().steps_ns) == 3 * 7


def test_what_is_kept_does_not_grow():
    loader = rows()
    for _ in loader.steps(3 * KEPT):
        pass
    stats = loader.stats()
    assert len(stats.queues[0].depths) == KEPT
    assert len(stats.steps_ns) == KEPT - 1


def test_stats_are_plain_data_for_json():
    loader = rows()
    list(loader)
    again = json.loads(json.dumps(asdict(loader.stats())))
    assert [stage["name"] for stage in again["stages"]] == ["read", "collate", "transfer", "step"]


def test_bytes_are_those_of_the_feeds_where_all_are_alike():
    loader = rows()
    list(loader)
    found = stages(loader)["transfer"]
    assert found.bytes == found.items * 8 * jax.numpy.zeros(1).dtype.itemsize


def test_functions_on_the_devices_are_a_stage():
    loader = rows().on_device(lambda feed: {"x": feed["x"] + 1})
    list(loader)
    assert stages(loader)["on_device"].items >= 1


def test_a_function_of_batches_has_its_name():
    def scaled(columns):
        return {"x": columns["x"] / 2}

    loader = Pipeline(arrays(x=np.arange(64.0))).batch(8).map_batches(scaled).load()
    list(loader)
    found = stages(loader)["map_batches"]
    assert (found.function, found.items >= 1) == ("scaled", True)
    assert __file__ in found.made_at


@pytest.mark.parametrize("by", ["threads", "processes"])
def test_a_map_on_workers_counts_its_samples(by):
    loader = Pipeline(arrays(np.arange(64))).map(abs, **{by: 2}).batch(8).load()
    list(loader)
    found = stages(loader)["map"]
    assert (found.function, found.items, found.by, found.workers) == ("abs", 64, by, 2)
    (queue,) = loader.stats().queues[1:]
    assert (queue.name, len(queue.depths) > 0) == ("map_samples", True)


def test_a_second_pass_leaves_the_counters_of_the_first_alone():
    loader = rows()
    first = iter(loader)
    next(first)
    list(loader)
    seen = stages(loader)["step"].items
    list(first)
    assert stages(loader)["step"].items == seen


def test_a_copy_counts_for_itself():
    loader = rows()
    list(loader)
    assert stages(loader.chunk(2))["read"].items == 0


def test_a_loader_without_a_source_has_stats():
    assert DataLoader.from_generator().stats().steps_ns == ()


def test_a_resident_loader_counts_what_it_gathers():
    loader = rows(resident=True)
    list(loader)
    assert stages(loader)["on_device"].items >= 1


def said(*works, on_device=False, equal=True, feed_bytes=None, **rings):
    """What is said of rings that are filled by hand."""
    counters = Counters()
    for name, counted in rings.items():
        getattr(counters, name).extend(counted)
    counters.works.extend(works)
    counters.feed_bytes = feed_bytes
    return stats_of(counters, on_device=on_device, capacity=3, equal=equal)


def test_waits_and_steps_are_together_the_time_from_one_coming_to_the_next():
    stats = said(steps=[None, (0, 10), (25, 29), (40, 60), None, (1000, 1001), (1004, 1010)])
    assert stats.waits_ns == (4, 20, 6)
    assert stats.steps_ns == (15, 11, 3)
    assert stats.waiting == 30 / 59
    assert {stage.name: stage for stage in stats.stages}["step"].time_ns == 29


def test_a_feed_that_is_timed_stands_for_those_that_are_not():
    assembled = [(100, 103, 108, 1), (200, 210, 250, 8)]
    stats = said(assembled=assembled, placed=[7, 9], feed_bytes=16)
    found = {stage.name: stage for stage in stats.stages}
    assert (found["read"].time_ns, found["read"].items) == (3 + 8 * 10, 9)
    assert (found["collate"].time_ns, found["collate"].items) == (5 + 8 * 40, 9)
    assert (found["transfer"].time_ns, found["transfer"].items) == (16, 2)
    assert (found["collate"].bytes, found["transfer"].bytes) == (9 * 16, 2 * 16)


def test_bytes_are_unknown_where_feeds_differ_or_none_was_read():
    for stats in (said(placed=[7], equal=False, feed_bytes=16), said(placed=[7])):
        assert {stage.bytes for stage in stats.stages} == {None}


def test_an_op_has_its_tasks_and_a_queue_where_it_has_workers():
    told = ("scale", "train.py:4")
    alone = Work("map_batches", *told, "", 1, [(5, 1), (7, 1)], [])
    beside = Work("map_samples", *told, "threads", 2, [(50, 4), (70, 6)], [0, 2, 0, 1])
    stats = said(alone, beside, depths=[0, 1, 3])
    stages = {stage.name: stage for stage in stats.stages}
    assert [*stages] == ["read", "map_batches", "map", "collate", "transfer", "step"]
    assert (stages["map_batches"].time_ns, stages["map_batches"].items) == (12, 2)
    assert (stages["map"].time_ns, stages["map"].items, stages["map"].workers) == (120, 10, 2)
    capacity, queue = stats.queues
    assert (capacity.room, capacity.depths, capacity.empty) == (3, (0, 1, 3), 1 / 3)
    assert (queue.name, queue.room, queue.empty) == ("map_samples", None, 0.5)
    assert (queue.made_at, queue.depths) == ("train.py:4", (0, 2, 0, 1))


def test_the_table_has_milliseconds_an_item_and_shares():
    times = {"steps": [(0, 10), (30, 40)], "assembled": [(0, 4_000_000, 6_000_000, 2)]}
    lines = str(said(**times, depths=[0, 1], placed=[1_500_000])).splitlines()
    cells = {line.split()[0]: line.split()[1:] for line in lines}
    assert cells["read"] == ["4.000", "2", "1"]
    assert cells["collate"] == ["2.000", "2", "1"]
    assert cells["transfer"] == ["1.500", "1", "1"]
    assert "the loop waited for feeds 33% of the time" in lines
    assert lines[-1] == "the prefetch queue was empty 50% of the time"


def test_the_next_pass_goes_on_counting_what_the_last_one_has():
    first = Counters()
    first.feed_bytes = 16
    for ring in (first.assembled, first.placed, first.depths, first.steps):
        ring.append(1)
    with counting(first):
        op = working("map_samples", "decode", "train.py:31", "threads", 2)
        assert working("map_samples", "decode", "train.py:31", "threads", 2) is op
        assert working("map_samples", "decode", "train.py:32", "threads", 2) is not op
    op.tasks.append((5, 1))
    op.depths.append(0)
    second = first.continued()
    assert said_by(second) == said_by(first)
    with counting(second):
        again = working("map_samples", "decode", "train.py:31", "threads", 2)
    assert again is not op
    assert (list(again.tasks), list(again.depths)) == ([(5, 1)], [0])
    for ring in (second.assembled, second.placed, second.depths, second.steps, again.tasks):
        ring.append(2)
    assert said_by(first)[:4] == ([1], [1], [1], [1])
    assert list(op.tasks) == [(5, 1)]


def said_by(counters):
    """What the rings hold."""
    rings = (counters.assembled, counters.placed, counters.depths, counters.steps)
    return (*map(list, rings), counters.feed_bytes, [work[:5] for work in counters.works])


def test_an_op_outside_a_loader_counts_for_nobody():
    counters = Counters()
    with counting(counters):
        pass
    working("map_samples", "decode", "train.py:31").tasks.append((5, 1))
    assert counters.works == []


def test_as_many_ops_are_kept_as_feeds():
    counters = Counters()
    with counting(counters):
        for number in range(2 * KEPT):
            working("map_samples", "decode", f"train.py:{number}")
    assert len(counters.works) == KEPT


def test_rings_are_copied_while_other_threads_append():
    ring, done = deque(range(KEPT), maxlen=KEPT), threading.Event()

    def append():
        for number in count(KEPT):
            ring.append(number)
            sum(range(10_000))  # as a loader appends: copies have time between two
            if done.is_set():
                return

    with ThreadPoolExecutor(2) as threads:
        appended = threads.submit(append)
        copies = [[*snapshot(ring)] for _ in range(500)]
        done.set()
        appended.result()
    assert all(copy == [*range(copy[0], copy[0] + KEPT)] for copy in copies)
