"""Who does the work of a parallel map in tests, and what it is given to do."""

from __future__ import annotations

import gc
import pickle
import threading
from concurrent.futures import BrokenExecutor, Executor, Future

import numpy as np
from programs import PATIENCE
from seen import see

from jreader.readers.lanes import dealt_below


def numbers(count=20):
    return lambda: iter(range(count))


def noisy(sample, rng):
    return sample, rng.integers(1 << 40), rng.normal(size=2).tobytes()


def bad(*wrong):
    def fn(sample):
        if sample in wrong:
            raise ValueError(f"bad {sample}")
        return sample * 2

    return fn


class Here(Executor):
    """Does a task when it is given, as a pickle; remembers how many samples each task had."""

    def __init__(self, lose=()):
        self.tasks, self.bytes, self.lose, self.shut = [], [], list(lose), False

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        self.tasks.append(len(args[0].items))
        if self.lose and self.lose[0] == len(self.tasks):
            self.lose.pop(0)
            future.set_exception(BrokenExecutor("lost"))
            return future
        self.bytes.append(len(pickle.dumps(args)))
        fn, args = pickle.loads(pickle.dumps((fn, args)))
        future.set_result(pickle.loads(pickle.dumps(fn(*args, **kwargs))))
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        self.shut = True


def seen(plan):
    """Samples, positions and how it ended; where it is after the end may be said in many ways.

    So may the places of lanes of which some have ended.
    """
    whole = see(plan)
    return whole.samples, None if dealt_below(plan) else whole.positions, whole.error


def wait_for_threads():
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "jreader map_samples":
            thread.join(PATIENCE)
            assert not thread.is_alive()


def same(sample):
    return sample


def slow(sample):
    """Long beside what a task of `Here` costs."""
    return int(np.sort(np.arange(400_000)[::-1] % 7919)[0]) + sample
