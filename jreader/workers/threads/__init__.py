"""Reading ahead and mapping on threads: the ops, and the one map behind them."""

from jreader.workers.threads.drawers import Drawer, current_drawer, runs_users_code
from jreader.workers.threads.ops import buffered, xmap_readers
from jreader.workers.threads.thread_map import ThreadCrew, map_on_threads

__all__ = [
    "Drawer",
    "ThreadCrew",
    "buffered",
    "current_drawer",
    "map_on_threads",
    "runs_users_code",
    "xmap_readers",
]
