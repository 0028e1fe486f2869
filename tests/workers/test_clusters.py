"""A map on a cluster: Dask for real, on this machine; Ray where it is installed."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from concurrent.futures import Executor, Future
from importlib.util import find_spec
from itertools import islice

import numpy as np
import pytest
from engines import seen
from graphs import drawn_for, recipes
from hypothesis import given
from hypothesis import strategies as st
from programs import HELPERS, PATIENCE, ROOT
from widths import examples

from jreader import Pipeline, WorkerDied, map_samples, shuffle, start
from jreader.workers import clusters
from jreader.workers.clusters import ray_executor

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # what engines warn of is theirs
]


def numbers(count=60):
    return lambda: iter(range(count))


def noisy(sample, rng):
    return {"id": sample, "row": rng.normal(size=3), "image": np.full((40, 40), sample)}


def plan(**engine):
    return map_samples(noisy, shuffle(numbers(), 16, seed=2), rng=True, seed=9, **engine)


def same(one, other):
    return [(s["id"], s["row"].tobytes(), s["image"].tobytes()) for s in one] == [
        (s["id"], s["row"].tobytes(), s["image"].tobytes()) for s in other
    ]


def killing(flag):
    """A function whose worker is killed in the middle of the epoch, once."""

    def fn(sample, rng):
        if sample == 30 and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return sample, rng.integers(1 << 60)

    return fn


def deadly(sample):
    if sample == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return sample


@pytest.mark.slow  # a cluster takes half a minute to begin and end
class TestDask:
    """Two worker processes under a scheduler and nannies, as on any Dask cluster."""

    @pytest.fixture(scope="class")
    def client(self):
        distributed = pytest.importorskip("distributed")
        psutil = pytest.importorskip("psutil")
        me = psutil.Process()
        before = set(me.children(recursive=True))
        settings = {"distributed.scheduler.allowed-failures": 0, "distributed.admin.log-length": 0}
        dask = pytest.importorskip("dask")
        with (
            dask.config.set(settings),
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client
        begun = set(me.children(recursive=True)) - before
        workers = [each for each in begun if "resource_tracker" not in " ".join(each.cmdline())]
        assert psutil.wait_procs(workers, timeout=PATIENCE)[1] == []

    def test_the_stream_is_the_one_without_workers_and_can_be_resumed(self, client):
        executor = client.get_executor()
        assert same(plan(executor=executor)(), plan()())
        here = start(plan(executor=executor))
        head = list(islice(here.items, 23))
        position = here.position()
        here.close()
        assert same(head + list(start(plan(executor=executor), position).items), plan()())
        assert same(start(plan(threads=2), position).items, list(plan()())[23:])

    @given(recipes(depth=2).filter(lambda recipe: recipe.seeded), st.integers(1, 30))
    @examples(15, least=3)
    def test_any_plan_gives_the_stream_that_it_gives_without(self, client, recipe, window):
        given = {"rng": True, "seed": 3}
        plain = map_samples(drawn_for, recipe.build(), **given)
        given |= {"executor": client.get_executor(), "window": window}
        assert seen(map_samples(drawn_for, recipe.build(), **given)) == seen(plain)

    def test_it_does_as_many_tasks_as_there_are_threads_and_groups_what_is_tiny(self, client):
        executor = client.get_executor()
        assert list(map_samples(abs, numbers(20_000), executor=executor)()) == [*range(20_000)]

    def test_an_error_names_function_sample_and_place(self, client):
        plan = Pipeline(numbers()).map(lambda n: 1 / (n - 7), executor=client.get_executor())
        items = iter(plan)
        assert len(list(islice(items, 7))) == 7
        with pytest.raises(ZeroDivisionError) as caught:
            next(items)
        told = "\n".join(caught.value.__notes__)
        assert "raised by <lambda>(7) in map_samples" in told
        assert "in a worker process" in told

    def test_a_worker_killed_during_the_epoch_is_not_to_be_seen(self, client, tmp_path):
        def stream(flag, **engine):
            return list(map_samples(killing(flag), numbers(), rng=True, seed=1, **engine)())

        (tmp_path / "killed before").touch()
        undisturbed = stream(tmp_path / "killed before")
        assert stream(tmp_path / "killed", executor=client.get_executor()) == undisturbed
        assert (tmp_path / "killed").exists()

    def test_a_sample_that_ends_its_worker_is_named(self, client):
        executor = client.get_executor()
        items = map_samples(deadly, numbers(4), executor=executor, window=1, timeout=PATIENCE)()
        assert list(islice(items, 3)) == [0, 1, 2]
        with pytest.raises(WorkerDied, match=r"sample 3 of this pass .* lost their worker 3 times"):
            next(items)

    def test_what_is_broken_off_is_cancelled_and_the_executor_works_on(self, client):
        executor = client.get_executor()
        for count in (0, 1, 5):
            here = start(plan(executor=executor))
            list(islice(here.items, count))
            here.close()
        assert executor.submit(abs, -3).result(PATIENCE) == 3


class TestDaskWithoutWorkers:
    """A cluster whose workers have gone, and do not come back, has tasks that never end."""

    @pytest.fixture
    def cluster(self):
        distributed = pytest.importorskip("distributed")
        with distributed.LocalCluster(
            n_workers=1, processes=False, dashboard_address=None, silence_logs=50
        ) as cluster:
            yield cluster

    def test_ends_a_pass_that_had_one(self, cluster, monkeypatch):
        monkeypatch.setattr(clusters, "_MAX_IDLE", 1.0)
        executor = cluster.get_client().get_executor()
        items = map_samples(held_back, numbers(), executor=executor, window=1)()
        assert next(items) == 0
        gate.clear()  # so that a task is waited for while its worker leaves
        threading.Timer(3.0, cluster.scale, (0,)).start()
        with pytest.raises(WorkerDied, match="Dask cluster has had no worker for 1 s"):
            list(items)
        gate.set()

    def test_is_waited_for_until_one_comes(self, cluster, monkeypatch):
        monkeypatch.setattr(clusters, "_MAX_IDLE", 0.0)
        cluster.scale(0)
        executor = cluster.get_client().get_executor()
        threading.Timer(3.0, cluster.scale, (1,)).start()
        assert list(map_samples(abs, numbers(), executor=executor, concurrency=1)()) == [*range(60)]


gate = threading.Event()
gate.set()


def held_back(sample):
    gate.wait(PATIENCE)
    return sample


class LosingExecutor(Executor):
    """Dask's own way to hand a result over, of a task that is lost again at that moment, once."""

    def __init__(self):
        self.tasks = 0

    def submit(self, fn, *args):
        cfexecutor = pytest.importorskip("distributed.cfexecutor")

        class Task:
            status = "finished" if self.tasks else "pending"

            async def _result(self, *, raiseit):
                return fn(*args)

        async def handed_over():
            await cfexecutor._cascade_future(Task(), future)

        future = Future()
        self.tasks += 1
        asyncio.run(handed_over())
        return future


def test_a_result_that_dask_loses_while_it_hands_it_over_is_computed_again():
    executor = LosingExecutor()
    assert list(map_samples(abs, numbers(9), executor=executor)()) == [*range(9)]
    assert executor.tasks > 1


@pytest.mark.peers
class TestRay:
    """A local Ray."""

    @pytest.fixture(scope="class")
    def executor(self):
        ray = pytest.importorskip("ray")
        os.environ["PYTHONPATH"] = f"{HELPERS}:{ROOT}"  # what workers import, they must find
        ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200_000_000)
        yield ray_executor()
        ray.shutdown()

    def test_the_stream_is_the_one_without_workers_and_can_be_resumed(self, executor):
        assert executor.workers == 2
        assert same(plan(executor=executor)(), plan()())
        here = start(plan(executor=executor))
        head = list(islice(here.items, 23))
        rest = start(plan(executor=executor), here.position())
        assert same(head + list(rest.items), plan()())

    def test_a_worker_killed_during_the_epoch_is_not_to_be_seen(self, executor, tmp_path):
        def stream(flag, **engine):
            return list(map_samples(killing(flag), numbers(), rng=True, seed=1, **engine)())

        (tmp_path / "killed before").touch()
        undisturbed = stream(tmp_path / "killed before")
        assert stream(tmp_path / "killed", executor=executor) == undisturbed
        assert (tmp_path / "killed").exists()

    def test_a_sample_that_ends_its_worker_is_named(self, executor):
        with pytest.raises(WorkerDied, match=r"sample 3 of this pass .* lost their worker 3 times"):
            list(map_samples(deadly, numbers(), executor=executor, window=1)())

    def test_tiny_samples_are_grouped(self, executor):
        assert list(map_samples(abs, numbers(20_000), executor=executor)()) == [*range(20_000)]

    def test_an_error_names_function_sample_and_place(self, executor):
        with pytest.raises(ZeroDivisionError) as caught:
            list(map_samples(lambda n: 1 / (n - 7), numbers(), executor=executor)())
        assert "raised by <lambda>(7) in map_samples" in "\n".join(caught.value.__notes__)


@pytest.mark.peers
@pytest.mark.parametrize("again", [False, True])
def test_a_pass_whose_ray_is_shut_down_ends_and_starts_no_other(again):
    ray = pytest.importorskip("ray")
    options = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100_000_000}
    ray.init(**options)
    here = start(map_samples(abs, numbers(9_000), executor=ray_executor(), window=2))
    assert next(here.items) == 0
    ray.shutdown()
    if again:
        ray.init(**options)
    with pytest.raises(WorkerDied, match="Ray was shut down"):
        list(here.items)
    assert ray.is_initialized() == again
    ray.shutdown()


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_error_says_what_to_install():
    with pytest.raises(ModuleNotFoundError) as caught:
        ray_executor()
    assert "python -m pip install 'jreader[ray]'" in caught.value.__notes__[0]
