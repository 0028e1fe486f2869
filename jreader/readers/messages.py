"""How errors and plans name values, functions and ops."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from jreader.errors import noted
from jreader.profiling import annotated, profiler
from jreader.readers.keyed import without_keys

if TYPE_CHECKING:
    from jreader.readers.nodes import Node

T = TypeVar("T")

_READ_ONLY = re.compile("read-?only")  # NumPy's word, and OpenCV's


def described(value: object, most: int = 80) -> str:
    """Describe a value in few words: arrays as shapes, functions as names, long texts cut.

    >>> described(np.zeros((3, 4))), described(len), described("/data/train/cats/0017.jpg", most=20)
    ('float64[3, 4]', 'len', "'/data/t...17.jpg'")
    """
    if hasattr(value, "made_at"):  # an op: show its whole plan
        return repr(value)
    if isinstance(value, np.ndarray):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, (tuple, dict)) and len(value) <= 8 and not hasattr(value, "_fields"):
        return _container(value, most)
    if callable(value) and hasattr(value, "__qualname__"):
        return str(getattr(value, "__name__", value.__qualname__))
    text = repr(value)
    if len(text) > most:
        end = (most - 5) // 2 if isinstance(value, str) else 0  # the end of a path says the most
        text = f"{text[: most - 5 - end]}...{text[len(text) - end :]}"
    return text


def _container(value: Any, most: int) -> str:
    if isinstance(value, dict):
        parts = [f"{key!r}: {described(part, most)}" for key, part in value.items()]
        return f"{{{', '.join(parts)}}}"
    inside = ", ".join(described(part, most) for part in value)
    return f"({inside},)" if len(value) == 1 else f"({inside})"


def explain(error: Exception, node: Node[Any], fn: object, sample: object) -> None:
    """Add a note to the error of a user's function: the op, the line that made it, the sample.

    A `StopIteration` is raised as a `RuntimeError`, because it would end the pass silently.

    >>> from jreader import map_readers
    >>> try:
    ...     list(map_readers(lambda sample: 1 / sample, lambda: [1, 0])())
    ... except ZeroDivisionError as error:
    ...     print(*error.__notes__)  # doctest: +ELLIPSIS
    raised by <lambda>(0) in map_readers, made at ...
    """
    note = (
        f"raised by {described(fn)}({described(without_keys(sample))}) in {type(node).__name__}, "
        f"made at {node.made_at}"
    )
    if isinstance(error, StopIteration):
        stopped = RuntimeError(f"{described(fn)} raised StopIteration")
        stopped.add_note(note)
        raise stopped from error
    noted(error, note)
    of_arrays = isinstance(error, ValueError) or type(error).__module__ == "cv2"
    if of_arrays and _READ_ONLY.search(str(error)):
        noted(
            error,
            "arrays of samples are read-only views of what the reader keeps, so that every epoch "
            "reads the same. If this is such an array, copy it first: x = x.copy(), or type "
            "x = x / 2 for x /= 2",
        )


def explained(node: Node[Any], fn: Callable[[Any], T]) -> Callable[[Any], T]:
    """Return a user's function of a sample whose errors say where they were raised (`explain`)."""
    label = f"map {described(fn)}"

    def called(sample: Any) -> T:
        try:
            return annotated(label, fn, sample) if profiler.active else fn(sample)
        except Exception as error:
            explain(error, node, fn, sample)
            raise

    return called


class Refusal(str):
    """Stands for a position where there is none, and says why."""

    __slots__ = ()


def refusal_in(position: Any) -> Refusal | None:
    """Return the refusal in a position, or in a part of it; None if there is none.

    >>> refusal_in((3, [None, Refusal("no order")])), refusal_in((3, None))
    ('no order', None)
    """
    parts = [position]
    while parts:
        part = parts.pop()
        if isinstance(part, Refusal):
            return part
        parts += part if isinstance(part, (tuple, list)) else ()
    return None


def refused(node: Node[Any], order: str) -> Refusal:
    """Return the position of an op that keeps no order: text that names the op to use instead."""
    return Refusal(
        f"{node!r}, made at {node.made_at}, hands samples over as they arrive, and no place in "
        f"that order can be found again: use {order} to resume"
    )
