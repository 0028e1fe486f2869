"""Reading and mapping on other threads: one engine, `ahead`, for every op that does."""

from jreader.workers.threads.ops import buffered, xmap_readers
from jreader.workers.threads.shutdown import Home, Source, Stoppable, stopped_at_exit
from jreader.workers.threads.thread_map import ahead

__all__ = ["Home", "Source", "Stoppable", "ahead", "buffered", "stopped_at_exit", "xmap_readers"]
