"""`loader.stats()`: what the stages took for the last feeds, as plain data."""

import json
import time
from dataclasses import asdict

import jax
import numpy as np
import pytest

from jreader import DataLoader, Pipeline, arrays
from jreader.counters import KEPT, QUICK


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


def test_a_loader_that_no_loop_has_asked_has_counted_nothing():
    stats = rows().stats()
    assert {stage.items for stage in stats.stages} == {0}
    assert (stats.waiting, stats.steps_ns) == (0, ())
    assert "the loop waited for feeds in 0% of its time" in str(stats)


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


def test_it_is_plain_data_for_json():
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
