"""Annotations for a profiler: the work of host threads, next to that of the devices.

`jax.profiler` records a span of time that a thread marks with an annotation. Making one costs 0.6
us even if nothing is recorded, and checking whether something is costs 0.07 us, of a quick feed's
60. So a loop checks once per step, and all stages look at its answer, which costs next to nothing.
A trace has what follows the first step that begins in it. A profiler that is started elsewhere
(such as by TensorBoard) works like one of `jax.profiler.trace`.

Modules that samples pass through do not import jax, so the loaders say how to annotate.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Profiler:
    """The state of this process's profiler.

    Attributes:
        active: Whether it recorded when a loop last came for a feed.
        annotation: Makes an annotation from a name: a context manager for one thread.
    """

    __slots__ = ("active", "annotation")

    def __init__(self) -> None:
        self.active = False
        self.annotation: Callable[[str], AbstractContextManager[Any]] = nullcontext

    def during(self, name: str) -> AbstractContextManager[Any]:
        """Return an annotation of a block, or nothing if none is recorded."""
        return self.annotation(f"jreader {name}") if self.active else _NOTHING

    def begin(self, name: str) -> AbstractContextManager[Any]:
        """Return an annotation that begins here."""
        span = self.annotation(f"jreader {name}")
        span.__enter__()
        return span

    def end(self, span: AbstractContextManager[Any]) -> None:
        """End an annotation, on the thread that began it."""
        span.__exit__(None, None, None)


_NOTHING: AbstractContextManager[Any] = nullcontext()
profiler = Profiler()


def annotated(name: str, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function under an annotation, and return its result.

    >>> annotated("map abs", abs, -3)
    3
    """
    with profiler.annotation(f"jreader {name}"):
        return fn(*args, **kwargs)
