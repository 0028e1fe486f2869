"""`loader.warm(step)`: a step compiled for every shape of an epoch, in advance.

`step.lower(*state, shapes).compile()` fills the cache of a jitted function: the loop finds every
program there, and compiles nothing. A call would do so too, but would run the step, and might
consume its arguments, if the step donates them.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

from jreader.cores import usable_cores
from jreader.errors import noting
from jreader.loaders.queries.shapes import shape_and_dtype
from jreader.readers import described


class Warming:
    """The compilation of a step for all shapes, on threads, while something else is read."""

    def __init__(self, step: Any, state: Sequence[Any], specs: Sequence[Any]) -> None:
        """Trace the step here, on the user's thread, and begin to compile.

        Raises:
            TypeError: The step is not jitted.
        """
        if not callable(getattr(step, "lower", None)):
            raise TypeError(
                f"loader.warm(step, *state) compiles a jitted function, and {described(step)} is "
                "not one: give the step of your loop, as step = jax.jit(step)."
            )
        lowered = [self._traced(step, state, spec) for spec in specs]
        most = max(1, min(len(specs), usable_cores()))
        self._threads = ThreadPoolExecutor(most, "jreader warm")
        self._compiled = [self._threads.submit(each.compile) for each in lowered]

    def _traced(self, step: Any, state: Sequence[Any], spec: Any) -> Any:
        shapes = {str(jax.tree.map(shape_and_dtype, spec))}
        with noting(f"in loader.warm(step, *state), for the feed of shapes {shapes}"):
            return step.lower(*state, spec)

    def wait(self) -> None:
        """Wait until all is compiled; raise the error of a compilation."""
        with self._threads:
            try:
                for compiled in self._compiled:
                    compiled.result()
            except BaseException:
                self._threads.shutdown(wait=False, cancel_futures=True)
                raise
