"""Engines of all kinds; those that begin processes are begun once."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import ThreadPoolExecutor as Threads
from multiprocessing import get_context

import pytest
from programs import HELPERS, ROOT

from jreader.workers.clusters import ray_executor
from jreader.workers.processes.executors import Processes


@pytest.fixture(scope="module")
def threads():
    with Threads(3) as executor:
        yield executor


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        yield executor


@pytest.fixture(scope="module")
def pool():
    """Held and begun, or every plan would begin its processes anew."""
    with Processes(2) as executor:
        executor.submit(int).result()
        yield executor


@pytest.fixture(params=["inline", "threads", "an executor", "other processes", "a pool"])
def engine(request):
    """The arguments that choose who does the work."""
    if request.param == "inline":
        return {}
    if request.param == "threads":
        return {"threads": 2}
    if request.param == "other processes":
        request.getfixturevalue("pool")
        return {"processes": 2}
    name = "threads" if request.param == "an executor" else "processes"
    return {"executor": request.getfixturevalue(name)}


@pytest.fixture(scope="package")
def dask():
    """Two worker processes under a scheduler and nannies."""
    distributed = pytest.importorskip("distributed")
    settings = {"distributed.scheduler.allowed-failures": 0, "distributed.admin.log-length": 0}
    with (
        pytest.importorskip("dask").config.set(settings),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor()


@pytest.fixture(scope="package")
def ray():
    """A local Ray."""
    ray = pytest.importorskip("ray")
    os.environ["PYTHONPATH"] = f"{HELPERS}:{ROOT}"  # what workers import, they must find
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200_000_000)
    yield ray_executor()
    ray.shutdown()
