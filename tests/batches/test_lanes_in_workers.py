"""Batches of a stream in lanes that workers read: those that this process would read."""

import gc
import os
import signal
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laned import in_lanes, lanes_of
from seen import LIMIT, see
from widths import examples

from jreader import Pipeline, Processes, WorkerDied, at_epoch, batch, source, start
from jreader.batches import Engine, lanes_in_workers, made_in_workers
from jreader.errors import ReaderError
from jreader.feeds.shards import dealt_to
from jreader.feeds.shares import Share

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* left none of the samples"),
    pytest.mark.filterwarnings("ignore:.*leaves out .* tokens of"),
]


@pytest.fixture(scope="module")
def processes():
    with Processes(2) as workers:
        yield workers


@pytest.fixture(scope="module")
def threads():
    with ThreadPoolExecutor(3) as workers:
        yield workers


@pytest.fixture(params=["processes", "threads"])
def workers(request):
    return request.getfixturevalue(request.param)


def there(plan, workers):
    return made_in_workers(plan, plan, Engine(workers, {}))


@examples(100)
@given(
    in_lanes,
    st.integers(1, 3),
    st.sampled_from([None, True]),
    st.integers(0, 2),
    st.booleans(),
)
def test_batches_and_positions_are_those_without_workers(
    processes, threads, recipe, each, drop_last, epoch, on_threads
):
    plan = recipe.build()
    plan = batch(plan, lanes_of(plan) * each, drop_last)
    here = at_epoch(plan, epoch)
    elsewhere = at_epoch(there(plan, threads if on_threads else processes), epoch)
    expected = see(here)
    assert see(elsewhere) == expected
    for place in range(0, len(expected.positions), 3):
        rest = see(elsewhere, expected.positions[place], LIMIT - place)
        assert rest.samples == expected.samples[place:]


def lines(file):
    for place in range(int(file)):
        yield {"n": np.int64(100 * int(file) + place), "row": np.full(2000, place, np.float32)}


def drawn(sample, rng):
    return {**sample, "drawn": rng.random()}


FILES = Pipeline(source([30, 9, 17, 29, 22, 14, 31, 28])).shuffle(seed=2)
PLAN = FILES.read(lines, lanes=4).shuffle(5, seed=1).map(drawn, rng=True, seed=3)


@pytest.mark.parametrize("counts", [(0, 0, 0, 0), (0, 3, 1, 2), (2, 3, 1, 2)])
def test_an_epoch_that_wraps_is_that_of_no_workers_also_where_lanes_are_empty(counts, workers):
    def some(number):
        return iter(range(counts[number]))

    def epoch(**options):
        try:
            loader = (
                Pipeline(source(range(4)))
                .read(some, lanes=4)
                .batch(4)
                .load(sharding="host", last="wrap", **options)
            )
            return [feed.tolist() for feed in loader]
        except ReaderError as error:
            return str(error)

    expected = epoch()
    assert epoch(workers=workers) == expected
    assert ("cannot fill its rows" in expected) == (min(counts) == 0 < max(counts))


class TestRowsOfOneHost:
    """Its workers read the lanes that its devices have rows of, and no others."""

    @pytest.mark.parametrize("ranges", [((0, 4),), ((1, 3), (6, 7))])
    @pytest.mark.parametrize("drop_last", [None, True])
    def test_are_those_of_no_workers(self, ranges, drop_last, workers):
        share, batches = Share(8, ranges), batch(PLAN, 8, drop_last)
        dealt = dealt_to(batches, share)
        assert see(made_in_workers(dealt, batches, Engine(workers, {}))) == see(dealt)

    def test_begin_at_a_position_of_another_host(self, workers):
        share, batches = Share(8, ((0, 4),)), batch(PLAN, 8)
        position = see(dealt_to(batches, Share(8, ((4, 8),)))).positions[2]
        dealt = dealt_to(batches, share)
        seen = see(made_in_workers(dealt, batches, Engine(workers, {})), position)
        assert seen == see(dealt, position)


class TestWhatAWorkerHolds:
    def test_a_worker_continues_its_pass_and_reads_no_sample_twice(self, workers, tmp_path):
        def noted(sample):
            with (tmp_path / f"{sample['n']}").open("a") as file:
                file.write("read ")
            return sample

        list(there(PLAN.map(noted).batch(8), workers)())
        assert {file.read_text() for file in tmp_path.iterdir()} == {"read "}

    def test_may_be_lost_at_any_moment_and_another_worker_reads_on(self, processes, tmp_path):
        def dies(sample):
            mark = tmp_path / str(sample["n"])
            if sample["n"] in (907, 1713, 3120) and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return sample

        expected = see(PLAN.map(dict).batch(8))
        assert see(there(PLAN.map(dies).batch(8), processes)) == expected
        assert len(list(tmp_path.iterdir())) == 3

    @pytest.mark.slow
    def test_a_pass_starts_over_where_tasks_go_to_any_worker(self):
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as workers:
            assert see(there(PLAN.batch(8), workers)) == see(PLAN.batch(8))

    def test_goes_with_the_pass_where_this_program_holds_it(self):
        others = set(lanes_in_workers._PASSES)
        with ThreadPoolExecutor(3) as threads:  # it ends with tasks that had begun
            up = start(there(PLAN.batch(8), threads))
            next(up.items)
            mine = set(lanes_in_workers._PASSES) - others
            assert mine
            up.close()
            del up
        gc.collect()
        assert mine.isdisjoint(lanes_in_workers._PASSES)


class Forgetful(Executor):
    """An executor whose tasks find nothing that a task before them has left."""

    workers = 1

    def submit(self, fn, /, *args):
        for held in lanes_in_workers._PASSES.values():
            held.clear()
        future = Future()
        future.set_result(fn(*args))
        return future


class TestBatchesThatAreHeavierThanBefore:
    def test_are_left_to_another_task_which_begins_behind_those_that_were_made(self):
        def row(number):
            return np.full(1 << 19, number, np.float64)

        plan = Pipeline(source([6, 6])).read(lambda n: range(int(n)), lanes=2).map(row).batch(2)
        light = dict.fromkeys(("cost", "each", "setup", "input_bytes", "result_bytes"), 0.0)
        makers = Engine(Forgetful(), {"lanes": {**light, "item_bytes": 1.0, "chunksize": 4}})
        here, made = (
            [[int(row[0]) for row in rows] for rows in reader()]
            for reader in (plan, made_in_workers(plan, plan, makers))
        )
        assert here == made == [[number, number] for number in range(6)]


class TestErrors:
    def test_come_after_the_good_batches_and_have_the_workers_traceback(self, processes):
        def fails(sample):
            if sample["n"] == 3020:
                raise ValueError("gone")
            return sample

        here, elsewhere = see(PLAN.map(fails).batch(8)), []
        with pytest.raises(ValueError, match="gone") as caught:
            elsewhere.extend(there(PLAN.map(fails).batch(8), processes)())
        assert len(elsewhere) == len(here.samples) > 2
        assert "in a worker process" in "\n".join(caught.value.__notes__)

    def test_of_a_sample_that_ends_every_worker_name_its_batch(self, processes):
        def deadly(sample):
            if sample["n"] == 3020:
                os.kill(os.getpid(), signal.SIGKILL)
            return sample

        with pytest.raises(WorkerDied, match=r"load\(workers=...\)|one after another"):
            list(there(PLAN.map(deadly).batch(8), processes)())
