"""State in a function that must not be copied to workers: iterators, files, generators."""

from __future__ import annotations

import contextlib
import functools
import io
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from jreader.readers.bytecode import globals_read
from jreader.readers.messages import described

_MAX_OBJECTS = 10_000  # objects to search for a name


def stateful_kind(value: object) -> str:
    """Name the kind of a value that advances as it is read; "" for any other value.

    Copies of an iterator or of an open file would advance independently.

    >>> stateful_kind(iter([1, 2])), stateful_kind([1, 2])
    ('an iterator (list_iterator)', '')
    """
    kind = type(value)
    if isinstance(value, io.TextIOWrapper):
        standard = (sys.stdin, sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
        alone = any(value is each for each in standard)
        return "" if alone else f"an open file ({getattr(value, 'name', kind.__name__)!r})"
    steps = getattr(kind, "__next__", None)
    if steps is None or isinstance(steps, FunctionType) or isinstance(value, io.IOBase):
        return ""  # a Python one may begin again; or it is memory that reads like a file
    return f"an iterator ({kind.__name__})"


def is_random_generator(value: object) -> bool:
    """Return whether a value is a random number generator."""
    return isinstance(value, (np.random.Generator, np.random.RandomState, random.Random))


def captured_as(root: object, wanted: object) -> str:
    """Name how an object captures a value, and the function or object that holds it.

    >>> numbers = iter([1, 2])
    >>> captured_as(lambda sample: next(numbers) + sample, numbers)
    '`numbers` of <lambda>'
    """
    seen, queue = {id(root)}, deque([(root, _title(root), "")])
    while queue and len(seen) < _MAX_OBJECTS:
        value, holder, name = queue.popleft()
        for edge, part in _references(value):
            here = (holder, f"{name}{edge}") if edge.startswith("[") else (_title(value), edge)
            if part is wanted:
                return f"`{here[1]}` of {here[0]}"
            if id(part) not in seen:
                seen.add(id(part))
                queue.append((part, *here))
    return described(root)


def _title(value: object) -> str:
    return described(value) if hasattr(value, "__qualname__") else type(value).__name__


def _references(value: Any) -> Iterable[tuple[str, Any]]:
    """Return the references of a value, each with its name."""
    for kinds, references in _REFERENCES:
        if isinstance(value, kinds):
            return references(value)
    of_c = [("self", value.__self__)] if hasattr(value, "__self__") else []  # a C method
    return [*of_c, *getattr(value, "__dict__", {}).items()]


def _captured(function: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(function, FunctionType):
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not bound yet
            yield name, cell.cell_contents
    for name in globals_read(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    yield from (
        (f"default {index}", each) for index, each in enumerate(function.__defaults__ or ())
    )
    yield from (function.__kwdefaults__ or {}).items()


def _parts_by_name(names: Iterable[Any], parts: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"[{name!r}]", part) for name, part in zip(names, parts, strict=False))


def _of_partial(value: Any) -> Iterator[tuple[str, Any]]:
    yield "func", value.func
    yield from ((f"args{name}", part) for name, part in _parts_by_name(count(), value.args))
    yield from value.keywords.items()


_REFERENCES: tuple[tuple[Any, Callable[[Any], Iterable[tuple[str, Any]]]], ...] = (
    (FunctionType, _captured),
    (MethodType, lambda value: [("self", value.__self__), *_captured(value.__func__)]),
    (functools.partial, _of_partial),
    (dict, lambda value: _parts_by_name(value, value.values())),
    ((list, tuple, set, frozenset, deque), lambda value: _parts_by_name(count(), value)),
    ((type, ModuleType), lambda _: ()),
)
"""How to find the parts of values of some kinds; the parts of others are their attributes."""
