"""Drawing a pass that runs users' code: on one thread, in one context, from begin to close.

Users' code holds objects that belong to a thread or to a context: a cursor of sqlite3,
`np.errstate`, `jax.default_device`. So a stage that prefetches such a pass either has one thread
that draws it, chosen when the pass begins, or lets the consumer draw it. Either way the context,
and the modes of jax, are those of the thread that began the pass.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from contextvars import copy_context
from functools import partial
from itertools import repeat
from operator import itemgetter
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np

from jreader.errors import begun_at, place_of_caller
from jreader.readers import Node, Pass, Reader
from jreader.readers.exits_and_forks import ForkGuard, resolve_future, stop_at_exit
from jreader.readers.nodes import arguments, overridden_pass, readers_below, sources_first

T = TypeVar("T")

_MODES = (
    *("debug_infs", "debug_nans", "default_device", "default_matmul_precision"),
    *("default_prng_impl", "disable_jit", "enable_x64", "numpy_dtype_promotion"),
    "numpy_rank_promotion",
)
"""jax's context managers that change what users' code computes, and belong to a thread."""


class Drawer:
    """Begins, draws and closes one pass on one thread and in one context.

    >>> drawer = Drawer("pass", apart=True)
    >>> drawer.call(lambda: threading.current_thread().name)
    'jreader pass'

    Args:
        name: The name of its thread.
        apart: Whether it has its own thread; otherwise the thread that draws the items is the one.

    Attributes:
        apart: The same. It may change between two passes over users' code.
        kept: The part of its pass that stays open when that is closed; None for nothing.
    """

    def __init__(self, name: str, *, apart: bool) -> None:
        """Copy the context of this thread, and its modes of jax."""
        self.name, self.apart = name, apart
        self.kept: Pass[Any] | None = None
        self._context, self._modes = copy_context(), _modes_of_jax()
        if apart:
            self._context.run(begun_at.set, place_of_caller())
        self._open: list[Pass[Any]] = []
        self._thread: _Worker | None = None
        self.threads: list[threading.Thread] = []  # to join at exit
        self._fork_guard = ForkGuard()

    def begun(self, begin: Callable[[], Pass[T]]) -> Pass[T]:
        """Begin a pass with `begin`, whose items are drawn in the context.

        If the drawer is `apart`, draw them only in `work` or `call`.
        """
        self._open.clear()  # the kept part belongs to the new pass
        try:
            up = self.call(begin)
        except BaseException:
            self._leave()
            raise
        self._open.append(up)
        items = map(self._context.run, repeat(next), repeat(up.items))  # without a Python frame
        return Pass(items, up.position, self.close)

    def call(self, fn: Callable[[], T]) -> T:
        """Call `fn` where the pass is drawn, and return its result."""
        self._fork_guard.check("this pass")
        if not self.apart or self._is_here():
            return self._called(fn)
        return self._sent(partial(self._called, fn)).result()

    def work(self, fn: Callable[[], object]) -> threading.Thread:
        """Queue a call of `fn` on the thread."""
        thread = self._thread
        if thread is None:
            thread = self._thread = _Worker(f"jreader {self.name}", self._modes)
            self.threads = [thread]
            stop_at_exit(self)
            thread.start()
        thread.jobs.put(fn)
        return thread

    def close(self, *, wait: bool = True) -> None:
        """Close the pass where it is drawn, unless it is closed; then the thread ends.

        Args:
            wait: Whether to return once it is closed. Otherwise an error of closing is printed.
        """
        try:
            up = self._open.pop()
        except IndexError:
            return
        if self._fork_guard.forked:
            return
        if not self.apart or self._is_here():
            self._closed(up)
        elif wait:
            self._sent(partial(self._closed, up)).result()
        else:
            self.work(partial(self._closed, up))

    def stop(self) -> None:
        """Close the pass when the program exits."""
        self.close(wait=False)

    def __del__(self) -> None:
        """Close a dropped pass; never block, since gc may run it anywhere."""
        if getattr(self, "_fork_guard", None):
            self.close(wait=False)
            self._leave()  # even if no pass was begun

    def _closed(self, up: Pass[Any]) -> None:
        entered = False

        def close() -> None:
            nonlocal entered
            entered = True
            up.close()

        try:
            self._called(close)
        except RuntimeError:
            if entered:
                raise
            up.close()  # another thread waits in the pass, and has been woken
        finally:
            if self.kept:
                self._open.append(self.kept)
                self.kept = None
            else:
                self._leave()

    def _called(self, fn: Callable[[], T]) -> T:
        before, _here.drawer = current_drawer(), self
        try:
            return self._context.run(fn)
        finally:
            _here.drawer = before

    def _sent(self, fn: Callable[[], T]) -> Future[T]:
        done: Future[T] = Future()
        self.work(partial(resolve_future, done, fn))
        return done

    def _is_here(self) -> bool:
        return threading.current_thread() is self._thread

    def _leave(self) -> None:
        thread, self._thread = self._thread, None
        if thread:
            thread.jobs.put(None)


def drawn_apart(node: Node[Any], begin: Callable[[], Pass[T]]) -> tuple[Pass[T], Drawer | None]:
    """Begin an op's pass with `begin`; return it and its drawer, None if any thread may draw."""
    if not any(map(runs_users_code, node.input_readers)):
        return begin(), None
    drawer = Drawer(type(node).__name__, apart=True)
    return drawer.begun(begin), drawer


class _Worker(threading.Thread):
    """A thread that runs jobs in order; it holds no drawer, so drawers can be dropped."""

    def __init__(self, name: str, modes: Callable[[], ExitStack]) -> None:
        super().__init__(name=name, daemon=True)
        self.jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self.modes = modes

    def run(self) -> None:
        with self.modes():
            while job := self.jobs.get():
                job()
                del job


class _Here(threading.local):
    drawer: Drawer | None = None


_here = _Here()


def current_drawer() -> Drawer | None:
    """Return the drawer that is now beginning or closing a pass on this thread; else None."""
    return _here.drawer


def _modes_of_jax() -> Callable[[], ExitStack]:
    """Return a function that enters this thread's modes of jax on another thread."""
    jax: Any = sys.modules.get("jax")  # users' code has modes of jax only if it was imported
    known: dict[str, Any] = {}
    for name in _MODES if jax else ():
        if hasattr(jax, name) and hasattr(jax.config, f"jax_{name}"):
            known[name] = getattr(jax.config, f"jax_{name}")

    def turned_on() -> ExitStack:
        modes = ExitStack()
        for name, value in known.items():
            if getattr(jax.config, f"jax_{name}") != value:
                modes.enter_context(getattr(jax, name)(value))
        return modes

    return turned_on


_KNOWN = frozenset(
    {
        *("_operator", "builtins", "datasets", "functools", "h5py", "itertools", "jax", "jaxlib"),
        *("jreader", "numpy", "operator", "pandas", "pathlib", "polars", "pyarrow", "zarr"),
    }
)
"""Packages whose objects have no thread-bound state."""


def runs_users_code(reader: Reader[Any]) -> bool:
    """Return whether a pass over a plan calls users' code: generators, functions, data sets.

    >>> from jreader import arrays, map_readers, shuffle
    >>> rows, weights = shuffle(arrays([1, 2, 3]), seed=0), {0: 0.5}
    >>> runs_users_code(rows), runs_users_code(map_readers(lambda n: weights[n], rows))
    (False, False)
    """
    return any(map(_reads_users_code, sources_first(reader, readers_below)))


def _reads_users_code(reader: Reader[Any]) -> bool:
    """Return whether a reader itself, without those below, is or holds users' code."""
    if not isinstance(reader, Node):
        return True  # a function that is a source
    if overridden_pass(type(reader)) or not _is_known(type(reader)):
        return True
    seen = set(map(id, reader.input_readers))
    return any(map(_is_users, map(itemgetter(1), arguments(reader)), repeat(seen)))


def _is_users(value: Any, seen: set[int]) -> bool:
    """Return whether a value is or holds users' code; values in `seen` count as not."""
    if type(value) in _PLAIN or id(value) in seen:
        return False
    seen.add(id(value))
    if isinstance(value, (tuple, dict)):
        inner: Iterable[Any] = value.values() if isinstance(value, dict) else value
    elif hasattr(value, "__qualname__"):  # a function or a class
        return not _is_known(value) or bool(getattr(value, "__closure__", ()))
    elif type(value).__module__.startswith("jreader."):
        inner = getattr(value, "__dict__", {}).values()
    else:
        return not _is_known(type(value)) or isinstance(value, partial)
    return any(_is_users(each, seen) for each in inner)


_PLAIN = frozenset({type(None), bool, int, float, str, bytes, np.ndarray})


def _is_known(value: Any) -> bool:
    return str(getattr(value, "__module__", "") or "builtins").partition(".")[0] in _KNOWN
