"""Worker processes: a pool that runs any function, even one that reads a reader.

`Processes` is an executor over a pool (`worker_pool.py`) that all executors of one size share. Each
of its workers (`worker_process.py`) is a process that runs one task at a time, and each function is
pickled and sent once (`pickled_functions.py`). `multiprocess_reader` (`reader_processes.py`) has
its own pool for each pass, and gives each of its workers one task, to read a reader.
`jreader/_worker` runs inside the processes.
"""

from jreader.workers.processes.executors import Processes
from jreader.workers.processes.reader_processes import multiprocess_reader

__all__ = ["Processes", "multiprocess_reader"]
