"""The same samples, on other threads and processes.

Threads are daemons with a bounded hand-over, not executors: an executor's threads are joined at
exit, so one source that never answers would keep the process alive. At exit they are asked to stop
and waited for, at most two seconds. Processes are started by jreader itself (`_worker/`), never
forked from a process that runs JAX (the child hangs), and never re-run the user's main script.
"""

from jreader._worker.stacking import get_worker_info, map_and_stack
from jreader.workers.loader_workers import fetch_batches
from jreader.workers.lookahead import lookahead
from jreader.workers.parallel_map import map_samples
from jreader.workers.processes import Processes, multiprocess_reader
from jreader.workers.threads import buffered, xmap_readers

__all__ = [
    "Processes",
    "buffered",
    "fetch_batches",
    "get_worker_info",
    "lookahead",
    "map_and_stack",
    "map_samples",
    "multiprocess_reader",
    "xmap_readers",
]
