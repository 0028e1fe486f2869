"""The report of a loop that only waits for its feeds: what limits the data, whatever the step."""

from __future__ import annotations

import time
import warnings

import jax

from jreader.loaders import DataLoader
from jreader.measuring.reporting import Report, report

_LEAST = 8  # feeds of the loop
_SHORTEST = 0.1  # seconds in which some are read again


def report_of_idle_loop(loader: DataLoader, seconds: float) -> Report:
    """Loops over the feeds of a loader, does nothing with them, and reports what limits that.

    >>> import numpy as np
    >>> from jreader import Pipeline, arrays
    >>> loader = Pipeline(arrays(np.arange(64))).batch(8).load()
    >>> found = report_of_idle_loop(loader, seconds=0.05)
    >>> len(found.stats.steps_ns) >= 8
    True

    Args:
        loader: Any loader.
        seconds: How long to loop, but for 9 feeds at least; and how long to read some again.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is left out of an epoch, say
        stops = time.perf_counter() + seconds
        with loader.steps() as feeds:
            for number, feed in enumerate(feeds):
                jax.block_until_ready(feed)
                if number >= _LEAST and time.perf_counter() > stops:
                    break
        return report(loader, seconds=max(seconds, _SHORTEST))
