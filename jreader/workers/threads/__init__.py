"""Reading and mapping on other threads: one engine, `ahead`, for every op that does."""

from jreader.workers.threads.ops import buffered, xmap_readers
from jreader.workers.threads.shutdown import ForkGuard, Source, Stoppable, stop_at_exit
from jreader.workers.threads.thread_map import ahead

__all__ = ["ForkGuard", "Source", "Stoppable", "ahead", "buffered", "stop_at_exit", "xmap_readers"]
