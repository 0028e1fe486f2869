"""Reading ahead and mapping on threads: the ops, the one map behind them, and how threads end."""

from jreader.workers.threads.ops import buffered, xmap_readers
from jreader.workers.threads.shutdown import (
    ClosableSource,
    ForkGuard,
    Stoppable,
    stop_at_exit,
    stoppable_pass,
)
from jreader.workers.threads.thread_map import map_on_threads

__all__ = [
    "ClosableSource",
    "ForkGuard",
    "Stoppable",
    "buffered",
    "map_on_threads",
    "stop_at_exit",
    "stoppable_pass",
    "xmap_readers",
]
