"""Engines of all kinds; those that begin processes are begun once."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import ThreadPoolExecutor as Threads
from multiprocessing import get_context

import pytest

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
        return {"workers": 2}
    if request.param == "other processes":
        request.getfixturevalue("pool")
        return {"processes": 2}
    name = "threads" if request.param == "an executor" else "processes"
    return {"executor": request.getfixturevalue(name)}
