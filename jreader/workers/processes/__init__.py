"""Worker processes: readers that each have one, and a crew of them that anything can be given to.

All are launched alike (`worker_process.py`), and send arrays through shared memory.
"""

from jreader.workers.processes.executors import Processes
from jreader.workers.processes.reader_processes import multiprocess_reader

__all__ = ["Processes", "multiprocess_reader"]
