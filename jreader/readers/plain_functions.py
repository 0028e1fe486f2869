"""Passes over plain functions: mistakes that would look like the end of one, and their epochs.

A function that returns the same iterator twice, say, would seem to be empty the second time.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, repeat
from types import FrameType, FunctionType, GeneratorType
from typing import Any, TypeVar

from jreader.errors import ReaderError
from jreader.readers.messages import described
from jreader.readers.protected import is_fixed, protected
from jreader.readers.streams_with_state import is_declared_stream, of_pass

T = TypeVar("T")


def opened_function(
    reader: Callable[[], Iterable[T]], state: str = ""
) -> tuple[Iterator[T], Callable[[], object], Callable[[], str] | None]:
    """The iterator that a plain function returns, what closes it, and what tells its state.

    Args:
        reader: The function.
        state: A state that was told in an earlier pass, to go on from; "" for the beginning.

    Raises:
        TypeError: The function returned something that cannot be iterated.
        RuntimeError: It raised StopIteration.
        ReaderError: It returned a generator that it has returned before.
    """
    try:
        stream = _stream_of(reader)  # which may be empty
        produced = reader() if stream is None else stream
        if not hasattr(produced, "__iter__") and not hasattr(produced, "__getitem__"):
            raise TypeError(
                f"{described(reader)} returned {described(produced)}, which cannot be iterated: a "
                "reader yields its samples, or returns an iterable of them (one that is async has "
                "to be read by a plain generator)."
            )
        kept = isinstance(produced, (list, tuple)) and _is_held(produced) and not is_fixed(produced)
        produced, told = of_pass(produced, _epoch.get(), state)
        source = map(protected, produced) if kept else iter(produced)
    except StopIteration as stopped:
        raise RuntimeError(
            f"{described(reader)}{_written_at(reader)} raised StopIteration when it was called for "
            "a pass: the iterator that it calls next() on has ended. Make a new iterator in each "
            "call, and end a pass with `return`."
        ) from stopped
    del produced
    kind = type(source)
    close = getattr(source, "close", _close_nothing)
    before = _given_before(source)
    note_epoch(source, _epoch.get() or 0)
    if isinstance(getattr(kind, "__iter__", None), FunctionType):
        source = map(next, repeat(source))  # to ask for its iterator again may begin it again
    if not before:
        return source, close, told
    again = ReaderError(
        f"{described(reader)}{_written_at(reader)} returned an iterator that it has returned "
        f"before (a {kind.__name__}), which gives its samples only once: make a new one in each "
        "call. For a generator function f, type Pipeline(f), or lambda: f(...), which calls it "
        "anew."
    )
    if isinstance(source, GeneratorType):
        raise again
    return chain(_at_least_one(source, again), source), close, told


def _stream_of(reader: Any) -> Any:
    """The stream of which a reader is the `__iter__`, if it has epochs; else None."""
    owner = reader.__self__ if getattr(reader, "__name__", "") == "__iter__" else None
    return owner if is_declared_stream(owner) and hasattr(owner, "set_epoch") else None


def _close_nothing() -> None:
    """Closes a pass that holds nothing."""


def _written_at(reader: Any) -> str:
    code = getattr(getattr(reader, "__func__", reader), "__code__", None)
    return f", written at {code.co_filename}:{code.co_firstlineno}," if code else ""


def _at_least_one(source: Iterator[T], again: ReaderError) -> Iterator[T]:
    """The first sample of an iterator that may have begun again; raises if there is none."""
    for sample in source:
        yield sample
        return
    raise again


@contextmanager
def in_epoch(epoch: int) -> Iterator[None]:
    """Tells plain functions that are called inside the block which epoch it is."""
    before = _epoch.set(epoch)
    try:
        yield
    finally:
        _epoch.reset(before)


def note_epoch(source: object, epoch: int) -> None:
    """Records the epoch in which a generator is read."""
    if isinstance(source, GeneratorType):
        _given_before(source)
        _generators[id(source)] = epoch


def epoch_of_caller() -> int:
    """The epoch of the plain function that calls, directly or not; 0 if none does."""
    if epoch := _epoch.get():
        return epoch  # it is being called
    if not any(_generators.values()):
        return 0
    sources = [ref() for ref in list(_given.values())]
    running = {id(each.gi_frame): each for each in sources if isinstance(each, GeneratorType)}
    frame = sys._getframe()  # noqa: SLF001  # as inspect.currentframe, but never None
    while frame.f_back and _is_ours(frame):
        frame = frame.f_back
    while frame.f_back and not _is_ours(frame):  # the innermost one, through its helpers
        if id(frame) in running:
            return _generators.get(id(running[id(frame)]), 0)
        frame = frame.f_back
    return 0


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "jreader"


_epoch: ContextVar[int | None] = ContextVar("epoch", default=None)
_generators: dict[int, int] = {}  # the epoch that each one is of, by its id
_given: dict[int, weakref.ref[Any]] = {}
_given_unseen: deque[tuple[int, type]] = deque(maxlen=64)  # what no weak reference leads to


def _given_before(source: Iterator[Any]) -> bool:
    """Whether a pass over this iterator was begun before; weak references only."""
    number = id(source)
    known = _given.get(number)
    if known is not None and known() is source:
        return True
    try:
        _given[number] = weakref.ref(source, lambda gone: _forget(number, gone))
    except TypeError:
        if _references(source) <= _ALONE:
            return False  # nobody has it but this pass: its number may be that of an older one
        seen = (number, type(source)) in _given_unseen
        _given_unseen.append((number, type(source)))
        return seen
    return False


def _forget(number: int, gone: weakref.ref[Any]) -> None:
    if _given.get(number) is gone:
        del _given[number]
        _generators.pop(number, None)


def _is_held(produced: Any) -> bool:
    """Whether somebody else has what a function returned, and so sees what is done to it."""
    return _references(produced) > _ALONE


def _references(source: Iterator[Any]) -> int:
    return sys.getrefcount(source)


def _alone() -> int:
    """The references to an iterator that only its caller holds, on this interpreter."""

    def asked(source: Iterator[Any]) -> int:
        return _references(source)

    source = iter(())
    return asked(source)


_ALONE = _alone()
