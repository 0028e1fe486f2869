"""Worker processes: a pool that runs any function, and processes that each read one reader.

`worker_process.py` starts one process and ends it. `Processes` is an executor over a pool
(`worker_pool.py`) that all executors of one size share: each of its workers (`pool_worker.py`) has
one task at a time, and each function is pickled and sent once (`pickled_functions.py`).
`multiprocess_reader` (`reader_processes.py`) starts a process for each reader. What runs inside the
processes is in `jreader/_worker`.
"""

from jreader.workers.processes.executors import Processes
from jreader.workers.processes.reader_processes import multiprocess_reader

__all__ = ["Processes", "multiprocess_reader"]
