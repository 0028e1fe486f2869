"""A source of numbers that holds what belongs to a thread, and to a context."""

import sqlite3
import threading
from contextvars import ContextVar

import jax
import numpy as np
from programs import PATIENCE

told = ContextVar("told", default="nothing")  # by the thread of the loop
held = ContextVar("held", default="nothing")  # by a pass of the source, while it is open


class ThreadBound:
    """A reader of numbers whose passes note the thread and the context of all that they do.

    A pass that is moved to another thread dies: sqlite3 refuses it, and contexts do.
    """

    def __init__(self, count=40, alone=False):
        self.count, self.alone = count, alone
        self.passes = []  # for each: the threads that began, drew and closed it
        self.told, self.modes = set(), set()
        self.closed = threading.Semaphore(0)
        self.errors = []

    def __call__(self):
        threads = [threading.get_ident()]
        self.passes.append(threads)
        return self.drawn(threads)

    def drawn(self, threads):
        connection = sqlite3.connect(":memory:")
        connection.execute("create table numbers (n integer)")
        connection.executemany("insert into numbers values (?)", ((n,) for n in range(self.count)))
        rows = connection.execute("select n from numbers order by n")
        try:
            token = held.set("open")
            try:
                with np.errstate(divide="raise"):
                    for (number,) in rows:
                        threads.append(threading.get_ident())
                        self.told.add((told.get(), held.get(), np.geterr()["divide"]))
                        self.modes.add(str(jax.config.jax_default_device))
                        yield number
            finally:
                threads.append(threading.get_ident())
                connection.close()
                held.reset(token)
        except GeneratorExit:
            raise
        except BaseException as error:
            self.errors.append(error)
            raise
        finally:
            self.closed.release()

    def check(self, passes, context="nothing"):
        """Each of so many passes was begun, drawn and closed on one thread, in the context."""
        for _ in range(passes):
            assert self.closed.acquire(timeout=PATIENCE)
        assert self.errors == []
        assert [len(set(threads)) for threads in self.passes] == [1] * passes
        assert self.told == {(context, "open", "raise")}
