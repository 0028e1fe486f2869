"""Threads, worker processes and clusters that do the work; samples and their order stay the same.

- `parallel_map.py` is the op behind `Pipeline.map(fn, threads=, processes=, executor=)`;
  `worker_batches.py` makes it stack whole batches in the workers.
- `ahead.py` works ahead of the consumer, and hands over in order what a crew has done: threads
  (`threads/thread_map.py`), or any executor (`executor_map.py`), which gets chunks of samples as
  tasks (`map_tasks.py`), and lost tasks again. `lookahead.py` does the same for a loader's feeds:
  threads start if that pays; otherwise the loop draws for itself. `limits.py` bounds how far ahead
  all of them may be.
- `processes/` starts worker processes, and has an executor over a pool of them. `jreader/_worker`
  runs inside them, and also sends large arrays through shared memory.
- `loader_workers.py` maps for a loader's `num_workers`; `global_rng.py` seeds the global generators
  there.
- `clusters.py` makes an executor of a Ray cluster. `gil.py` measures whether threads would help a
  function.

Threads are daemons with a bounded hand-over, not executors: an executor's threads are joined at
exit, so one source that never answers would keep the process alive. At exit they are asked to stop,
and joined for at most two seconds. Processes are started afresh, never forked from a process that
runs JAX (the child hangs), and never run the user's main script again.
"""

from jreader._worker.stacking import map_and_stack
from jreader._worker.worker_info import get_worker_info
from jreader.workers.loader_workers import fetch_batches
from jreader.workers.lookahead import TURN, Pace, lookahead
from jreader.workers.parallel_map import map_samples
from jreader.workers.processes import Processes, multiprocess_reader
from jreader.workers.threads import buffered, xmap_readers

__all__ = [
    "TURN",
    "Pace",
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
