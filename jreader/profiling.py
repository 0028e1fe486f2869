"""Annotations of a profiler: what threads of the host do, beside what the devices do.

`jax.profiler` records a span of time that a thread marks by an annotation. Making one costs 0.6 us
also where nothing is recorded, and asking whether something is costs 0.07 us, of a quick feed's 60.
So a loop asks once a step, and all stages look at its answer, which costs next to nothing. A
trace has what follows the first step that begins in it. A profiler that is started from elsewhere
(by TensorBoard, say) is seen just as one of `jax.profiler.trace`.

What samples pass through does not import jax, so the loaders say how to annotate.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Profiler:
    """What is known of the profiler of this process.

    Attributes:
        active: Whether it recorded when a loop last came for a feed.
        annotation: Makes the annotation of a name, a context manager for one thread.
    """

    __slots__ = ("active", "annotation")

    def __init__(self) -> None:
        self.active = False
        self.annotation: Callable[[str], AbstractContextManager[Any]] = nullcontext

    def during(self, name: str) -> AbstractContextManager[Any]:
        """An annotation of a block, or nothing where none is recorded."""
        return self.annotation(f"jreader {name}") if self.active else _NOTHING

    def begin(self, name: str) -> AbstractContextManager[Any]:
        """An annotation that begins here."""
        span = self.annotation(f"jreader {name}")
        span.__enter__()
        return span

    def end(self, span: AbstractContextManager[Any]) -> None:
        """Ends an annotation, on the thread that began it."""
        span.__exit__(None, None, None)


_NOTHING: AbstractContextManager[Any] = nullcontext()
profiler = Profiler()


def annotated(name: str, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a function returns, under an annotation.

    >>> annotated("map abs", abs, -3)
    3
    """
    with profiler.annotation(f"jreader {name}"):
        return fn(*args, **kwargs)
