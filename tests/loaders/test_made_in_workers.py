"""`load(workers=...)`: whole batches made by workers, and nothing else is to be seen of it."""

import gc
import json
import os
import signal
import sys
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path

import jax
import numpy as np
import pytest
from block_sources import lines_in_blocks

import jreader
from jreader import Pipeline, Processes, ReaderError, WorkerDied, arrays, data, ragged, source
from jreader.batches import Engine, batch, made_in_workers
from jreader.batches.made_in_workers import BatchPlace, NumberedBatches
from jreader.feeds import FeedsThere
from jreader.feeds.shards import dealt_to
from jreader.feeds.shares import Share
from jreader.loaders.epoch_batches import shared_name
from jreader.readers import start
from jreader.workers.map_tasks import MapTask

pytestmark = [
    pytest.mark.filterwarnings("ignore::jreader.LintWarning"),
    pytest.mark.filterwarnings("ignore:.* a lane had too few samples"),
]

ROWS = Pipeline(arrays(x=np.arange(43.0)))
LINES = Pipeline(lines_in_blocks([9] * 43, 60)).map(lambda digit: {"x": digit})
DOCUMENTS = Pipeline(ragged(np.arange(780), np.cumsum(np.arange(40))))


def several(sample):
    return {"double": 2 * sample["x"], "row": np.full(20_000, sample["x"])}


def listed(sample):
    return float(sample["x"]), [1, 2]


def noisy(sample, rng):
    return {"x": sample["x"], "noise": rng.normal(size=3)}


def of_batch(columns):
    return {"mean": np.repeat(columns["x"].mean(), len(columns["x"]))}


def of_file(number):
    for place in range(int(number)):
        yield {"x": np.float64(place), "row": np.full(2000, place, np.float32), "n": place}


FILES = Pipeline(source([9, 4, 7, 9, 3, 8, 9, 6, 9, 5]))
LANES = FILES.read(of_file, lanes=4).shuffle(3, seed=1)


PLANS = {
    "lanes": lambda: LANES.batch(4),
    "lanes of small samples": lambda: LANES.map(noisy, rng=True, seed=3).batch(4),
    "lanes, and a map of batches": lambda: LANES.batch(4).map_batches(of_batch),
    "lanes, and files in an order that is drawn": lambda: (
        FILES.shuffle(seed=4)
        .read(of_file, lanes=2)
        .filter(lambda sample: sample["n"] != 3)
        .batch(4)
    ),
    "lanes of documents": lambda: (
        FILES.read(lambda n: ([*range(k + 1)] for k in range(n)), lanes=2)
        .map(np.array)
        .padded_batch(4)
    ),
    "rows": lambda: ROWS.shuffle(seed=1).batch(4),
    "a map": lambda: ROWS.map(several).shuffle(seed=1).batch(4),
    "a map on processes": lambda: ROWS.map(several, processes=2).shuffle(seed=1).batch(4),
    "a random map": lambda: ROWS.map(noisy, rng=True, seed=3).shuffle(seed=1).batch(4),
    "a map of batches": lambda: ROWS.shuffle(seed=1).batch(4).map_batches(of_batch),
    "a short end": lambda: ROWS.map(several).batch(4, drop_last=False),
    "buckets": lambda: DOCUMENTS.bucket([10, 40], tokens=80, seed=0, drop_last=False),
    "packed rows": lambda: DOCUMENTS.pack(64, seed=0).batch(2),
    "padded rows": lambda: DOCUMENTS.shuffle(seed=4).padded_batch(3),
    "blocks with owners": lambda: LINES.shuffle(blocks=2, lanes=2, seed=5).batch(4),
    "a mixture": lambda: Pipeline(jreader.mix([ROWS, ROWS.skip(5)], [3, 1], seed=2)).batch(4),
}

SHAPES = {
    "as they are": {},
    "at once": {"capacity": 0},
    "on the host": {"sharding": "host"},
    "wrapped": {"last": "wrap"},
    "kept": {"last": "keep"},
    "padded": {"last": "pad"},
    "of some steps": {"steps_per_epoch": 3},
    "on two devices": {"pmap": jax.devices()[:2]},
    "some on the host": {"sharding": {"x": jax.devices()[0]}},
}

SHAPES_OF_LANES = [shape for shape in SHAPES if shape not in ("kept", "some on the host")]
"""Lanes have no short end to keep, and these have other fields."""


@pytest.fixture(scope="module")
def pool():
    """Held, or every loader would begin its processes anew."""
    with Processes(2) as workers:
        workers.submit(int).result()
        yield workers


@pytest.fixture(params=["processes", "threads"])
def workers(request, pool):
    if request.param == "processes":
        yield pool
    else:
        with ThreadPoolExecutor(3) as threads:
            yield threads


def leaf(array):
    array = np.asarray(array)
    return str(array.dtype), array.shape, array.tobytes()


def passed(feeds):
    """Every feed, bit for bit, with the cursor after it."""
    return [(jax.tree.map(leaf, feed), json.dumps(feeds.cursor)) for feed in feeds]


def same(loader, other):
    """Two epochs of both, and the rest of one of them from a cursor of the other."""
    for epoch in (0, 3):
        expected = passed(loader.epoch(epoch))
        assert passed(other.epoch(epoch)) == expected
        middle = json.loads(expected[len(expected) // 2][1])
        assert passed(other.epoch(epoch, at=middle)) == expected[len(expected) // 2 + 1 :]
    assert passed(other.steps(13)) == passed(loader.steps(13))


class TestFeedsAndCursorsAreThoseOfNoWorkers:
    @pytest.mark.parametrize("plan", PLANS)
    def test_of_every_plan_whose_batches_have_numbers(self, plan, workers):
        same(PLANS[plan]().load(), PLANS[plan]().load(workers=workers))

    @pytest.mark.parametrize("shape", SHAPES)
    def test_whatever_the_loader_makes_of_them(self, shape, workers):
        words = SHAPES[shape]
        same(ROWS.batch(4).load(**words), ROWS.batch(4).load(workers=workers, **words))

    @pytest.mark.parametrize("shape", SHAPES_OF_LANES)
    def test_whatever_the_loader_makes_of_lanes(self, shape, workers):
        words = SHAPES[shape]
        same(LANES.batch(4).load(**words), LANES.batch(4).load(workers=workers, **words))

    def test_with_declared_fields(self, workers):
        fields = {data("y", [None, 1], "float32"): 0, data("z", [None, 2], "int32"): 1}
        plan = ROWS.map(listed).shuffle(seed=1).batch(4)
        same(plan.load(fields), plan.load(fields, workers=workers))

    def test_in_chunks_and_through_functions_on_the_devices(self, workers):
        def scaled(feed, key):
            return feed["x"] * jax.random.uniform(key)

        loaders = [ROWS.batch(4).load(**words) for words in ({}, {"workers": workers})]
        same(*(each.chunk(2).on_device(scaled, "batch") for each in loaders))

    def test_with_64_bits(self, workers):
        wide = {"x": np.arange(43) << 40, "y": np.arange(43.0) / 3}
        with jax.enable_x64():
            plan = Pipeline(arrays(wide)).batch(4)
            same(plan.load(), plan.load(workers=workers))

    def test_with_steps_left_out_and_begun_at_a_step(self, workers):
        loaders = [ROWS.shuffle(seed=1).batch(4).load(**w) for w in ({}, {"workers": workers})]
        one, two = (passed(each.epoch(1, start=2, skip_steps=range(4, 6))) for each in loaders)
        assert one == two

    def test_an_order_that_is_drawn_is_gone_on_with_by_anybody(self, workers):
        plan = ROWS.shuffle().map(noisy, rng=True).batch(4)
        for first, then in ((None, workers), (workers, None)):
            feeds = iter(plan.load(workers=first))
            for _ in range(3):
                next(feeds)
            at = feeds.cursor
            assert passed(plan.load(workers=then).epoch(0, at=at)) == passed(feeds)

    def test_what_a_cache_gave_in_order_is_gone_on_with_without_them(self, workers, tmp_path):
        def plan():
            return ROWS.map(several).cache(tmp_path / "rows").shuffle(seed=1).batch(4)

        filling = iter(plan().load())
        next(filling)
        at = filling.cursor
        rest = passed(filling)
        assert passed(plan().load(workers=workers).epoch(0, at=at)) == rest

    @pytest.mark.parametrize("rows", [ROWS, LINES], ids=["stacked", "one by one"])
    def test_rows_of_one_host(self, rows, pool):
        """Workers make the rows that its devices have, and no others."""
        share, seen = Share(4, ((1, 2), (3, 4))), []
        batches = batch(rows.shuffle(seed=1), 4)
        dealt, named = dealt_to(batches, share), FeedsThere().from_samples
        for made in (dealt, made_in_workers(dealt, batches, Engine(pool, {}), named)):
            here = start(made, 8)
            parts = [
                (part.rows, [float(sample["x"]) for sample in part], here.position())
                for part in here.items
            ]
            seen.append(parts)
        assert seen[0] == seen[1]
        assert len(seen[0]) == 9


class Asked:
    """A data set whose samples say which process has read them."""

    def __init__(self, many):
        self.many = many

    def __len__(self):
        return self.many

    def __getitem__(self, index):
        return {"index": index, "by": os.getpid()}


class TestWhatWorkersDo:
    def test_they_read_and_this_process_does_not(self, pool):
        feeds = list(Pipeline(source(Asked(40))).batch(4).load(workers=pool))
        by = set(np.concatenate([np.asarray(feed["by"]) for feed in feeds]).tolist())
        assert os.getpid() not in by

    def test_none_of_them_imports_jax(self):
        def imported(_sample):  # it travels by value: this module imports jax
            return np.array("jax" in sys.modules)

        share = Share(4, ((1, 2), (3, 4)))
        batches = batch(ROWS.map(imported).shuffle(seed=1), 4)
        with Processes(1) as fresh:
            for feed in Pipeline(batches).load(["jax"], workers=fresh):
                assert not np.asarray(feed["jax"]).any()
            for part in made_in_workers(dealt_to(batches, share), batches, Engine(fresh, {}))():
                assert not any(part)

    def test_the_plan_is_sent_once_for_all_epochs(self, pool):
        class Heavy:
            sent = 0

            def __init__(self):
                self.rows = np.zeros(1 << 18)

            def __reduce__(self):
                Heavy.sent += 1
                return Asked, (40,)

            def __len__(self):
                return 40

            def __getitem__(self, index):
                return index

        loader = Pipeline(source(Heavy())).shuffle(seed=1).batch(4).load(workers=pool)
        known = pool._current_pool().functions.numbers
        before = len(known)
        for _ in range(4):
            assert len(list(loader)) == 10
        assert len(known) <= before + 1

    def test_data_that_have_grown_are_sent_as_they_are_then(self, workers):
        rows = [*range(8)]
        loader = Pipeline(source(rows)).batch(4).load(workers=workers)
        assert len(list(loader)) == 2
        rows += range(8, 20)
        assert [feed.tolist() for feed in loader][-1] == [16, 17, 18, 19]


class TestWarnings:
    def test_of_numbers_that_a_run_does_not_give_again_begin_with_the_plan_that_draws_them(
        self, pool
    ):
        drawing = ROWS.map(lambda sample: sample["x"] + np.random.rand()).batch(4)  # noqa: NPY002  # the subject
        with pytest.warns(
            UserWarning, match=r"^Pipeline\(.* in load\(workers=...\), .* draws from"
        ):
            list(drawing.load(workers=pool))


class TestReports:
    def test_name_the_function_that_limits_and_the_workers_that_call_it(self, workers):
        def waits(sample):
            time.sleep(0.02)
            return sample

        loader = ROWS.map(waits).batch(4).load(workers=workers)
        for _ in loader:
            pass
        found = jreader.report(loader)
        assert (found.limit, found.note) == ("map", "")
        assert {stage.name: stage.by for stage in found.stages}["collate"] == "workers"
        assert "waits" in found.function
        assert "workers of load(workers=...) run it" in found.advice


class TestErrors:
    def test_come_after_the_good_feeds_and_have_the_sample_and_the_workers_traceback(self, pool):
        def fails(sample):
            if sample["x"] == 17:
                raise ValueError("seventeen")
            return sample

        feeds = iter(ROWS.map(fails).batch(4).load(workers=pool))
        assert [float(next(feeds)["x"][0]) for _ in range(4)] == [0, 4, 8, 12]
        with pytest.raises(ValueError, match="seventeen") as caught:
            next(feeds)
        told = "\n".join(caught.value.__notes__)
        assert "raised by " in told
        assert "'x': np.float64(17.0)" in told
        assert "in a worker process" in told
        assert feeds.step == 4

    def test_of_a_batch_that_makes_no_feed_are_those_of_no_workers(self, workers):
        def ragged_row(sample):
            return np.zeros(1 + (sample["x"] == 9))

        messages = []
        for words in ({}, {"workers": workers}):
            feeds = iter(ROWS.map(ragged_row).batch(4).load(**words))
            next(feeds)
            next(feeds)
            with pytest.raises(jreader.FeedMismatch) as caught:
                next(feeds)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]

    def test_of_closing_a_plan_come_after_the_good_feeds(self, monkeypatch):
        def start_at(made, place, last=None):
            up = begin(made, place, last)
            return up if last is None else up._replace(close=Path("/nowhere").open)

        begin = NumberedBatches.start_at
        monkeypatch.setattr(NumberedBatches, "start_at", start_at)
        with ThreadPoolExecutor(1) as threads:
            feeds = iter(ROWS.batch(4).load(workers=threads, capacity=0))
            assert next(feeds)["x"].tolist() == [0, 1, 2, 3]
            with pytest.raises(FileNotFoundError, match="nowhere"):
                next(feeds)

    @pytest.mark.parametrize("other", [8, 40], ids=["another place", "beyond the end"])
    def test_of_a_batch_that_is_not_where_it_was_asked_for(self, other):
        make = NumberedBatches(ROWS.batch(4, drop_last=True))
        made = make.results_in_turn([BatchPlace(0, None, at) for at in (0, other)])
        assert next(made).columns["x"].tolist() == [0, 1, 2, 3]
        with pytest.raises(ReaderError, match=f"no batch at position {other} .* see the same data"):
            next(made)

    def test_a_field_that_is_none_in_a_later_batch_is_told_there(self, workers):
        def sometimes(sample):
            return {"x": sample["x"], "note": None if sample["x"] >= 8 else 1}

        feeds = iter(ROWS.map(sometimes).batch(4).load(workers=workers))
        next(feeds)
        next(feeds)
        with pytest.raises(jreader.FeedMismatch, match="is None, and had values"):
            next(feeds)

    def test_a_plan_that_cannot_be_sent_says_what_it_holds(self, pool, tmp_path):
        with (tmp_path / "log").open("w") as opened:
            held = ROWS.map(lambda sample: opened.write("x") and sample).batch(4)
            with pytest.raises(TypeError, match="opened") as caught:
                next(iter(held.load(workers=pool)))
        assert "open files, locks and connections where they are used" in "".join(
            caught.value.__notes__
        )

    def test_an_executor_that_is_shut_down_is_told_of(self):
        threads = ThreadPoolExecutor(1)
        feeds = iter(ROWS.batch(4).load(workers=threads, capacity=0))
        next(feeds)
        threads.shutdown()
        with pytest.raises(WorkerDied, match="takes no more tasks"):
            list(feeds)


class TestWorkersThatDie:
    def test_at_any_moment_change_nothing(self, pool, tmp_path):
        marks = tmp_path / "killed"
        marks.mkdir()

        def dies(sample):
            mark = marks / f"{sample['x']:.0f}"
            if sample["x"] % 5 == 3 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return sample

        expected = passed(ROWS.map(dict).batch(4).load().epoch(1))
        found = passed(ROWS.map(dies).batch(4).load(workers=pool).epoch(1))
        assert [feed for feed, _ in found] == [feed for feed, _ in expected]
        assert len(list(marks.iterdir())) == 8

    def test_all_of_one_batch_are_an_error_after_the_good_feeds(self, pool):
        def deadly(sample):
            if sample["x"] == 9:
                os.kill(os.getpid(), signal.SIGKILL)
            return sample

        feeds = iter(ROWS.map(deadly).batch(4).load(workers=pool))
        assert [float(next(feeds)["x"][0]) for _ in range(2)] == [0, 4]
        with pytest.raises(WorkerDied, match="one after another"):
            next(feeds)


class AtOnce(Executor):
    """An executor that is done with a task before it has taken it."""

    def submit(self, fn, /, *args):
        future = Future()
        future.set_result(fn(*args))
        return future


class TestBounds:
    def test_what_was_sent_goes_with_its_pass_and_waits_for_no_gc(self):
        gc.collect()
        gc.disable()
        try:
            before = [task for task in gc.get_objects() if isinstance(task, MapTask)]
            feeds = list(ROWS.batch(4).load(workers=AtOnce(), capacity=0))
            after = [task for task in gc.get_objects() if isinstance(task, MapTask)]
        finally:
            gc.enable()
        assert (len(feeds), len(after)) == (10, len(before))

    def test_no_more_is_made_than_may_wait(self):
        made = count()
        latest = []

        def counts(sample):
            latest.append(next(made))
            return {"row": np.zeros(1 << 21)}  # so heavy that two of each worker may wait

        with ThreadPoolExecutor(1) as threads:
            many = Pipeline(arrays(x=np.arange(1000))).map(counts).batch(1)
            feeds = iter(many.load(workers=threads, capacity=0, sharding="host"))
            for _ in range(8):
                next(feeds)
            time.sleep(0.3)  # in which the thread could make many more
            feeds.close()
        assert len(latest) <= 8 + 4

    def test_a_pass_that_is_closed_has_nothing_more_made(self, workers):
        feeds = iter(ROWS.batch(1).load(workers=workers))
        next(feeds)
        feeds.close()
        assert workers.submit(abs, -3).result() == 3


class TestArguments:
    @pytest.mark.parametrize("bad", [3, 0, "processes", Processes, [Processes]])
    def test_who_is_no_executor_is_told_what_is_one(self, bad):
        with pytest.raises(TypeError, match=r"load\(workers=...\) needs .*give jreader.Processes"):
            ROWS.batch(4).load(workers=bad)

    @pytest.mark.parametrize(
        ("plan", "cure"),
        [
            (ROWS.filter(bool).batch(4), "map(fn, processes=2)"),
            (Pipeline(lambda: range(9)).batch(4), "map(fn, processes=2)"),
            (ROWS, "type .batch(n)"),
        ],
    )
    def test_batches_without_numbers_are_refused_where_it_is_written(self, plan, cure, pool):
        with pytest.raises(
            TypeError, match="be found only by reading all that comes before"
        ) as told:
            plan.load(workers=pool)
        assert cure in str(told.value)

    def test_jobs_share_what_a_cluster_makes(self, pool):
        with pytest.raises(TypeError, match=r"share='sweep'\) needs a cluster .*Client\(address\)"):
            ROWS.batch(4).load(workers=pool, share="sweep")
        with pytest.raises(TypeError, match=r"load\(workers=...\) needs workers"):
            ROWS.batch(4).load(share="sweep")

    @pytest.mark.parametrize(
        ("plan", "share", "cure"),
        [
            (ROWS.batch(4), "", "give share='sweep'"),
            (ROWS.batch(4), 3, "give share='sweep'"),
            (LANES.batch(4), "sweep", "leave share= out"),
            (ROWS.shuffle().batch(4), "sweep", "type seed=0"),
        ],
    )
    def test_what_jobs_cannot_share_says_what_to_type(self, plan, share, cure):
        with ThreadPoolExecutor(1) as threads:
            threads._client = threads  # as an executor of Dask has one
            with pytest.raises((TypeError, ValueError), match=cure):
                plan.load(workers=threads, share=share)

    def test_processes_share_a_batch_only_if_they_feed_the_same_rows_of_each_size(self):
        loading = ROWS.batch({0: 4, 2: 8}).load(sharding="host")._loaded
        first, second = (
            replace(
                loading, shares=tuple(Share(n, ((of * n // 2, n // 2 * (of + 1)),)) for n in (4, 8))
            )
            for of in range(2)
        )
        assert shared_name(first, "sweep") == shared_name(replace(first), "sweep")
        assert shared_name(first, "sweep") != shared_name(second, "sweep")

    def test_data_on_the_devices_need_none(self, pool):
        with pytest.raises(ValueError, match="leave one of them out"):
            ROWS.batch(4).load(workers=pool, resident=True)
