"""Passes over plain functions: their epochs, and mistakes that look like an empty pass.

A function that returns the same iterator twice, for example, would seem empty the second time.
"""

from __future__ import annotations

import inspect
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from itertools import chain, repeat
from types import FrameType, FunctionType, GeneratorType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from jreader.errors import ReaderError, assigned
from jreader.readers.messages import described
from jreader.readers.protected import is_fixed, protected
from jreader.readers.streams_with_state import is_declared_stream, of_pass
from jreader.readers.torch_loaders import is_torch_loader

T = TypeVar("T")


def opened_function(
    reader: Callable[[], Iterable[T]], state: str = ""
) -> tuple[Iterator[T], Callable[[], object], Callable[[], str] | None]:
    """Return a plain function's iterator, and functions that close it and return its state.

    Args:
        reader: The function.
        state: The state from an earlier pass, to resume at; "" for the beginning.

    Raises:
        TypeError: The function returned something that cannot be iterated.
        RuntimeError: It raised StopIteration.
        ReaderError: It returned a generator that it has returned before.
    """
    try:
        source, state_of = _iterator_of(reader, state)
    except StopIteration as stopped:
        raise RuntimeError(
            f"{described(reader)}{_written_at(reader)} raised StopIteration when it was called for "
            "a pass: the iterator that it calls next() on has ended. Make a new iterator in each "
            "call, and end a pass with `return`."
        ) from stopped
    kind = type(source)
    close = getattr(source, "close", _close_nothing)
    begun = _is_begun([source])
    if isinstance(source, GeneratorType):
        if begun:
            raise _of_begun(reader, kind)
        note_epoch(source, _epoch.get() or 0)
    elif isinstance(getattr(kind, "__iter__", None), FunctionType):
        source = map(next, repeat(source))  # `iter` might restart it
    if begun:
        source = chain(_first_sample(source, _of_begun(reader, kind)), source)
    return source, close, state_of


def _iterator_of(
    reader: Callable[[], Iterable[T]], state: str
) -> tuple[Iterator[T], Callable[[], str] | None]:
    """Return a plain function's iterator for a pass, and a function that returns its state."""
    stream = _stream_of(reader)  # it may be empty
    produced = reader() if stream is None else stream
    if not hasattr(produced, "__iter__") and not hasattr(produced, "__getitem__"):
        raise TypeError(
            f"{described(reader)} returned {described(produced)}, which cannot be iterated: a "
            "reader yields its samples, or returns an iterable of them (one that is async has "
            "to be read by a plain generator)."
        )
    kept = isinstance(produced, (list, tuple)) and _is_shared([produced]) and not is_fixed(produced)
    produced, state_of = of_pass(produced, _epoch.get(), state)
    return (map(protected, produced) if kept else iter(produced)), state_of


def _of_begun(reader: Any, kind: type) -> ReaderError:
    return ReaderError(
        f"{described(reader)}{_written_at(reader)} returned an iterator that it has returned "
        f"before (a {kind.__name__}), which gives its samples only once: make a new one in each "
        "call. For a generator function f, type Pipeline(f), or lambda: f(...), which calls it "
        "anew."
    )


def owner_of(reader: Any) -> Any:
    """Return the object whose `__iter__` a reader is; any other reader itself."""
    return reader.__self__ if getattr(reader, "__name__", "") == "__iter__" else reader


def _stream_of(reader: Any) -> Any:
    """Return the stream whose `__iter__` a reader is, if it has epochs; else None."""
    owner = owner_of(reader)
    if owner is reader:
        return None
    has_epochs = is_declared_stream(owner) and hasattr(owner, "set_epoch")
    return owner if has_epochs or is_torch_loader(owner) else None


def _close_nothing() -> None:
    """Do nothing: the pass holds nothing."""


def _written_at(reader: Any) -> str:
    code = getattr(getattr(reader, "__func__", reader), "__code__", None)
    return f", written at {code.co_filename}:{code.co_firstlineno}," if code else ""


def _first_sample(source: Iterator[T], again: ReaderError) -> Iterator[T]:
    """Yield the first sample of an iterator that may have begun before; raise if it has none."""
    for sample in source:
        yield sample
        return
    raise again


_epoch: ContextVar[int | None] = ContextVar("epoch", default=None)


def in_epoch(epoch: int) -> AbstractContextManager[None]:
    """Show this epoch to plain functions that are called inside the block."""
    return assigned(_epoch, epoch)


def note_epoch(source: object, epoch: int) -> None:
    """Record the epoch in which a generator is read."""
    if isinstance(source, GeneratorType):
        _epochs[source] = epoch


def epoch_of_caller() -> int:
    """Return the epoch of the calling plain function, direct or not; 0 without one.

    It finds a generator by its frame: a context variable would cost time per sample.
    """
    if (epoch := _epoch.get()) or not len(_epochs):
        return epoch or 0
    running = {id(each.gi_frame): each for ref in _epochs.keyrefs() if (each := ref())}
    found = (running[id(frame)] for frame in _frames_of_caller() if id(frame) in running)
    return next((_epochs[generator] for generator in found), 0)


def _frames_of_caller() -> Iterator[FrameType]:
    """Yield the frames of the calling user's function and its helpers, the innermost first."""
    frame = inspect.currentframe()
    while frame and _is_ours(frame):
        frame = frame.f_back
    while frame and not _is_ours(frame):
        yield frame
        frame = frame.f_back


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "jreader"


_epochs: WeakKeyDictionary[GeneratorType[Any, Any, Any], int] = WeakKeyDictionary()
_begun_iterators: WeakValueDictionary[int, Any] = WeakValueDictionary()  # by id
_begun_by_id: deque[tuple[int, type]] = deque(maxlen=64)  # iterators that allow no weak reference


def _is_begun(box: list[Iterator[Any]]) -> bool:
    """Return whether a pass over the iterator in a list began before, by weak references."""
    number = id(box[0])
    if _begun_iterators.get(number) is box[0]:
        return True
    with suppress(TypeError):
        _begun_iterators[number] = box[0]
        return False
    if not _is_shared(box):
        return False  # only this pass has it: the id is reused
    seen = (number, type(box[0])) in _begun_by_id
    _begun_by_id.append((number, type(box[0])))
    return seen


def _is_shared(box: list[Any]) -> bool:
    """Return whether anything but one local variable and this list refers to its item.

    Since Python 3.14 an argument may or may not count as a reference; an item always does.
    """
    return sys.getrefcount(box[0]) > _UNSHARED_REFERENCES


def _count_unshared_references() -> int:
    """Return how many references an iterator has in a list that its caller holds."""

    def asked(box: list[Any]) -> int:
        return sys.getrefcount(box[0])

    source = iter(())
    return asked([source])


_UNSHARED_REFERENCES = _count_unshared_references()
