"""Reading ahead and mapping on threads: the ops, the one map behind them, closing."""

from jreader.workers.threads.closing import ClosableSource, stoppable_pass
from jreader.workers.threads.ops import buffered, xmap_readers
from jreader.workers.threads.thread_map import map_on_threads

__all__ = [
    "ClosableSource",
    "buffered",
    "map_on_threads",
    "stoppable_pass",
    "xmap_readers",
]
