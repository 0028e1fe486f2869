"""Streams of other libraries that know their own position: those of Hugging Face, and of Grain."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

from jreader.readers.torch_loaders import of_loader, set_epoch_of

_MODULE = "datasets.iterable_dataset"  # Hugging Face's


def of_pass(stream: Any, epoch: int | None, state: str) -> tuple[Any, Callable[[], str] | None]:
    """Return the stream as one pass reads it, in its epoch and from a state, and its state getter.

    Args:
        stream: The stream that a function returned for a pass.
        epoch: The epoch to call `set_epoch` with; None for no call.
        state: The state from an earlier pass; "" for the beginning.

    Returns:
        The stream; and a function that returns its state as JSON, or None if its state is not
        exact: a shuffle buffer forgets the samples in it.
    """
    if hasattr(stream, "set_state") and kinds_of_grain(stream):
        if state:
            in_bytes = isinstance(stream.get_state(), bytes)
            stream.set_state(state.encode() if in_bytes else json.loads(state))
        return stream, partial(_state_of, stream)
    if not is_declared_stream(stream):
        return of_loader(stream, epoch, state)
    if type(stream).__module__ != _MODULE or not _is_exact(stream):
        set_epoch_of(epoch, stream)
        return stream, None
    own, begin = _with_own_state(stream), json.loads(state) if state else {}
    set_epoch_of(begin.get("epoch", epoch), own)
    if begin:
        own.load_state_dict(begin)
    return own, lambda: json.dumps(own.state_dict())


def is_declared_stream(data: object) -> bool:
    """Return whether data are an `IterableDataset` of any library, known by the class name.

    >>> from jreader import IterableDataset
    >>> is_declared_stream(IterableDataset()), is_declared_stream(iter("abc"))
    (True, False)
    """
    return any(kind.__name__ == "IterableDataset" for kind in type(data).__mro__)


def kinds_of_grain(data: object) -> set[str]:
    """Return the names of Grain's classes that an object or iterator belongs to."""
    kinds = type(data).__mro__
    return {kind.__name__ for kind in kinds if kind.__module__.partition(".")[0] == "grain"}


def _state_of(iterator: Any) -> str:
    """Return the state of a Grain iterator as text: JSON, which its `DataLoader` gives as bytes."""
    state = iterator.get_state()
    return state.decode() if isinstance(state, bytes) else json.dumps(state)


def _with_own_state(part: Any) -> Any:
    """Return a copy with its own state, over the same data: two passes may be open at a time."""
    if isinstance(part, list):
        return list(map(_with_own_state, part))
    if type(part).__module__ != _MODULE:
        return part
    own = copy(part)
    vars(own).update({name: _with_own_state(value) for name, value in vars(part).items()})
    return own


def _is_exact(part: Any) -> bool:
    """Return whether a stream resumes at the very next sample, as its documentation says."""
    if isinstance(part, list):
        return all(map(_is_exact, part))
    if type(part).__module__ != _MODULE:
        return True
    buffered = type(part).__name__.startswith("BufferShuffled")
    skips = getattr(part, "batched", False) and getattr(part, "formatting", None)
    return not (buffered or skips) and all(map(_is_exact, vars(part).values()))
