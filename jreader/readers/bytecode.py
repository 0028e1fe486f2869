"""What the code of a function contains: the names that it reads, and its instructions."""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from itertools import pairwise
from types import CodeType
from typing import Any

_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")
_CELL = ("LOAD_DEREF", "LOAD_CLASSDEREF")


@functools.lru_cache(1024)
def globals_read(code: CodeType) -> tuple[str, ...]:
    """Return the names of the globals that a function reads, with those of functions inside it."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname in _GLOBAL}
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return tuple(sorted(names.union(*map(globals_read, inner))))


@functools.lru_cache(1024)
def attributes_read(code: CodeType, name: str) -> frozenset[str] | None:
    """Return the attributes that a function reads from a variable; None if it uses it otherwise.

    >>> sorted(attributes_read((lambda: args.scale * args.size).__code__, "args"))
    ['scale', 'size']
    >>> attributes_read((lambda: print(args)).__code__, "args")
    """
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    found: set[str] = set()
    for step, behind in pairwise(steps):
        if step.opname in (*_GLOBAL, *_CELL) and step.argval == name:
            if behind.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                return None
            found.add(behind.argval)
    for part in code.co_consts:
        if isinstance(part, CodeType):
            inner = attributes_read(part, name)
            if inner is None:
                return None
            found |= inner
    return frozenset(found)


def names_in(code: CodeType) -> set[str]:
    """Return the names of globals and attributes in a function and the functions inside it."""
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*map(names_in, inner))


def instructions(code: CodeType) -> Iterator[Any]:
    """Yield the instructions, names and constants of a function and the functions inside it."""
    yield code.co_code.hex()
    yield list(code.co_names)
    yield list(code.co_varnames)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from instructions(constant)
        elif isinstance(constant, frozenset):
            yield sorted(map(repr, constant))  # the order of a set varies between processes
        else:
            yield repr(constant)
