"""`load(workers=...)` on Dask, on Ray where it is installed, and on an executor that pickles."""

from __future__ import annotations

import json
import os
import pickle
import signal
from collections import Counter
from concurrent.futures import Executor, Future

import jax
import numpy as np
import pytest
from programs import PATIENCE

from jreader import Pipeline, WorkerDied, arrays, source
from jreader.workers import map_tasks

pytestmark = [pytest.mark.filterwarnings("ignore")]  # what engines warn of is theirs

ROWS = Pipeline(arrays(x=np.arange(400.0)))


def noisy(sample, rng):
    return {"x": sample["x"], "row": rng.normal(size=5000)}


def plan():
    return ROWS.map(noisy, rng=True, seed=3).shuffle(seed=1).batch(8)


def of_file(number):
    for place in range(40):
        yield {"n": 100 * number + place, "row": np.full(2000, place, np.float32)}


def lanes():
    files = Pipeline(source(list(range(8))))
    return files.read(of_file, lanes=4).shuffle(9, seed=1).map(tagged)


def tagged(sample):
    return {**sample, "twice": 2 * sample["n"]}


def leaf(array):
    array = np.asarray(array)
    return str(array.dtype), array.shape, array.tobytes()


def passed(feeds):
    return [(jax.tree.map(leaf, feed), json.dumps(feeds.cursor)) for feed in feeds]


class Checks:
    """What holds on a cluster, whose executor is the fixture `executor`."""

    def test_feeds_and_cursors_are_those_of_no_workers(self, executor):
        expected, loader = passed(plan().load().steps(120)), plan().load(workers=executor)
        assert passed(loader.steps(120)) == expected
        middle = json.loads(expected[70][1])
        assert passed(loader.steps(120, at=middle)) == expected[71:]

    def test_feeds_on_the_host_can_be_written_to(self, executor):
        for feed in plan().load(workers=executor, sharding="host").steps(5):
            feed["row"] += 1

    def test_a_worker_killed_is_not_to_be_seen(self, executor, tmp_path):
        def dies(sample):
            flag = tmp_path / str(sample["x"])
            if sample["x"] in (100, 300) and not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return sample

        killed = ROWS.map(dies).batch(8)
        assert (
            passed(killed.load(workers=executor).epoch(0))[-1][0]
            == passed(ROWS.batch(8).load().epoch(0))[-1][0]
        )
        assert len(list(tmp_path.iterdir())) == 2

    def test_lanes_are_read_on_where_a_worker_is_killed(self, executor, tmp_path):
        def dies(sample):
            flag = tmp_path / str(sample["n"])
            if sample["n"] in (130, 520) and not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return sample

        expected = passed(lanes().map(dict).batch(8).load().epoch(0))
        loader = lanes().map(dies).batch(8).load(workers=executor)
        assert [feed for feed, _ in passed(loader.epoch(0))] == [feed for feed, _ in expected]
        assert len(list(tmp_path.iterdir())) == 2
        middle = json.loads(expected[20][1])
        assert (
            passed(lanes().map(dict).batch(8).load(workers=executor).epoch(0, at=middle))
            == (expected[21:])
        )

    def test_no_worker_reads_a_lane_again_for_each_task(self, executor, tmp_path):
        def noted(sample):
            with (tmp_path / str(sample["n"])).open("a") as file:
                file.write("read ")
            return sample

        passed(lanes().map(noted).batch(8).load(workers=executor).epoch(0))
        texts = [file.read_text() for file in tmp_path.iterdir()]
        assert (len(texts), {*texts}) == (320, {"read "})

    def test_all_that_die_of_one_batch_are_an_error(self, executor):
        def deadly(sample):
            if sample["x"] == 20:
                os.kill(os.getpid(), signal.SIGKILL)
            return sample

        feeds = iter(ROWS.map(deadly).batch(8).load(workers=executor))
        assert [float(next(feeds)["x"][0]) for _ in range(2)] == [0, 8]
        with pytest.raises(WorkerDied, match="lost their worker 3 times"):
            next(feeds)

    def test_an_error_comes_in_its_place_with_the_workers_traceback(self, executor):
        def fails(sample):
            if sample["x"] == 17:
                raise ValueError("seventeen")
            return sample

        feeds = iter(ROWS.map(fails).batch(8).load(workers=executor))
        next(feeds)
        next(feeds)
        with pytest.raises(ValueError, match="seventeen") as caught:
            next(feeds)
        assert "in a worker process" in "\n".join(caught.value.__notes__)

    def test_a_large_plan_is_known_to_workers_that_were_sent_it(self, executor):
        rows = np.arange(1 << 18, dtype=np.float32).reshape(-1, 64)
        large = Pipeline(arrays(rows)).shuffle(seed=0).batch(64)
        assert passed(large.load(workers=executor)()) == passed(large.load()())


@pytest.mark.slow  # a cluster takes half a minute to begin and end
class TestDask(Checks):
    @pytest.fixture
    def executor(self, dask):
        client = dask._client
        client.cluster.scale(2)  # a nanny may give up a worker that a test has killed
        client.wait_for_workers(2, timeout=PATIENCE)
        return dask

    def test_a_client_says_it_too_and_workers_may_join(self, dask):
        client = dask._client
        expected = passed(plan().load().steps(100))
        feeds = plan().load(workers=client).steps(100)
        seen = [(jax.tree.map(leaf, next(feeds)), json.dumps(feeds.cursor)) for _ in range(30)]
        client.cluster.scale(3)
        client.wait_for_workers(3)
        assert seen + passed(feeds) == expected
        client.cluster.scale(2)


@pytest.mark.slow
class TestJobsThatShare:
    """Two clients of one cluster stand for two programs: they have no object in common."""

    @pytest.fixture
    def clients(self, dask):
        import distributed  # noqa: PLC0415  # it may not be installed

        with distributed.Client(dask._client.scheduler.address) as other:
            yield dask._client, other

    def counted(self, folder, seed=1):
        def noted(sample):
            with (folder / str(sample["x"])).open("a") as file:
                file.write("made ")
            return sample

        return ROWS.map(noted).shuffle(seed=seed).batch(8)

    def made(self, folder):
        """How many samples were made so often.

        A few batches are off by one: where Dask itself draws from `random` beside a task, its
        worker calls the function again, to see whether it was that. It looks at tasks 1, 2, 4, ...
        """
        return Counter(file.read_text().count("made") for file in folder.iterdir())

    def test_have_each_batch_made_once_for_both(self, clients, tmp_path):
        expected = passed(self.counted(tmp_path).load().epoch(1))
        for file in tmp_path.iterdir():
            file.unlink()
        feeds = [
            iter(self.counted(tmp_path).load(workers=client, share="sweep").epoch(1))
            for client in clients
        ]
        found = [[], []]
        for ahead, behind in ((30, 0), (10, 40), (10, 10)):
            for mine, job, many in zip(found, feeds, (ahead, behind), strict=True):
                mine += [
                    (jax.tree.map(leaf, next(job)), json.dumps(job.cursor)) for _ in range(many)
                ]
        assert found == [expected, expected]
        assert self.made(tmp_path)[1] >= 300

    def test_share_none_of_another_plan_or_name(self, clients, tmp_path):
        loaders = [
            self.counted(tmp_path, seed).load(workers=client, share=name)
            for client, seed, name in zip(
                (*clients, clients[1]), (1, 2, 1), ("sweep", "sweep", "another"), strict=True
            )
        ]
        for loader in loaders:
            assert len(list(loader.epoch(0))) == 50
        assert self.made(tmp_path)[3] >= 300

    def test_have_batches_made_again_that_a_job_asks_for_much_later(self, clients, tmp_path):
        for client in clients:
            loader = self.counted(tmp_path).load(workers=client, share="sweep")
            for epoch in range(3):
                assert len(list(loader.epoch(epoch))) == 50
        assert self.made(tmp_path)[6] >= 200

    def test_have_a_batch_of_a_large_plan_that_was_lost_made_again(self, clients, tmp_path):
        large = {"x": np.arange(400.0), "row": np.ones((400, 50))}

        def dies(sample):
            flag = tmp_path / str(sample["x"])
            if sample["x"] == 100 and not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return sample

        plan = Pipeline(arrays(large)).map(dies).batch(8)
        expected = passed(Pipeline(arrays(large)).batch(8).load().epoch(0))
        for client in clients:
            found = passed(plan.load(workers=client, share="lost").epoch(0))
            assert [feed for feed, _ in found] == [feed for feed, _ in expected]


@pytest.mark.slow
class TestRay(Checks):
    @pytest.fixture
    def executor(self, ray):
        return ray


class Pickling(Executor):
    """Does a task when it is given, as a pickle; remembers its size and how many batches it has."""

    workers = 1

    def __init__(self):
        self.sizes, self.batches = [], []

    def submit(self, fn, /, *args):
        data, future = pickle.dumps((fn, args)), Future()
        self.sizes.append(len(data))
        self.batches.append(len(args[0].items))
        fn, args = pickle.loads(data)
        future.set_result(pickle.loads(pickle.dumps(fn(*args))))
        return future


class TestTasks:
    def test_have_as_many_batches_in_the_next_epoch_as_they_were_found_to_be_worth(self):
        there, first = Pickling(), []
        loader = Pipeline(arrays(np.arange(4096))).batch(8).load(workers=there)
        for _ in range(2):
            tasks = len(there.batches)
            assert len(list(loader)) == 512
            first.append(there.batches[tasks])
        assert first[0] == 1 < first[1]


class TestALargePlan:
    def test_travels_once_to_each_worker_of_any_executor(self):
        there, large = Pickling(), 1 << 20
        loader = Pipeline(arrays(np.arange(large // 8))).batch(1 << 12).load(workers=there)
        for _ in range(2):
            assert len(list(loader)) == 32
        assert sum(size > large for size in there.sizes) == 1
        map_tasks._FUNCTIONS.clear()  # another worker
        assert len(list(loader)) == 32
        assert sum(size > large for size in there.sizes) == 2
