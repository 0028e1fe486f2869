"""Reading and mapping on other threads: one engine, `ahead`, for every op that does."""

from jreader.workers.threads.engine import Stoppable, ahead, stopped_at_exit
from jreader.workers.threads.ops import buffered, xmap_readers

__all__ = ["Stoppable", "ahead", "buffered", "stopped_at_exit", "xmap_readers"]
