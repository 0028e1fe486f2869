"""The code that runs inside a worker process.

`workers/processes/worker_process.py` starts an interpreter that calls `main`. The worker runs tasks
that the parent sends (`task_worker.py`); one of them may read a reader, and send its samples as it
reads (`reading.py`). Messages are frames over a socket (`connection.py`), values are pickled
(`pickling.py`, `unpickling.py`), and large arrays are in memory that both processes share
(`shared_memory.py`).

The parent handles Ctrl-C: workers ignore SIGINT. A worker ends within a second, whatever it is
doing, once its connection ends (the parent closed it or is gone) or the parent itself ends (though
a process that the parent forked may still hold the connection).
"""
