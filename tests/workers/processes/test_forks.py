"""A program that forks while passes are alive: the child ends, and has nothing of its parent."""

from __future__ import annotations

import pytest
from programs import program
from widths import few

SCRIPT = """
    import os, sys, threading, warnings
    warnings.simplefilter("ignore")  # of os.fork where there are threads
    from concurrent.futures import ThreadPoolExecutor
    from jreader import Pipeline, ReaderError, multiprocess_reader, xmap_readers
    numbers = lambda: iter(range(10_000))
    plain = Pipeline(numbers)
"""

PLANS = {
    "threads": "plain.map(int, threads=2, window=1)",
    "processes": "plain.map(int, processes=2, window=1)",
    "executor": "plain.map(int, executor=ThreadPoolExecutor(2), window=1)",
    "readers": "Pipeline(multiprocess_reader([numbers]))",
    "buffered": "plain.prefetch(1)",
    "xmap": "Pipeline(xmap_readers(int, numbers, 2, 2))",
    "loader": "plain.batch(2).load(capacity=2)",
    "loader over threads": "plain.map(int, threads=2, window=4).batch(2).load(capacity=2)",
}


FEW = ("threads", "processes")


@pytest.mark.parametrize("plan", few(PLANS, FEW))
def test_a_fork_ends_and_is_told_to_begin_passes_of_its_own(plan):
    rest = f"""
        plan = {PLANS[plan]}
        items = iter(plan)
        for _ in range(9):
            next(items)
            threading.Event().wait(0.002)  # a step that is awaited
        child = os.fork()
        if not child:
            try:
                for _ in range(5):
                    next(items)
            except ReaderError as error:
                print("was forked from it" in str(error), flush=True)
            if {plan != "executor"}:  # whose threads are not there
                print(next(iter(plan)) is not None, flush=True)
            sys.exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        print(len([next(items) for _ in range(20)]), flush=True)
    """
    with program(SCRIPT, rest) as running:
        told = [running.says() for _ in range(4 - (plan == "executor"))]
        assert told == ["True", *["True"] * (plan != "executor"), "7", "20"]
        code, errors = running.ends()
        assert (code, errors) == (0, "")
