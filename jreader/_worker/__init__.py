"""What runs inside a worker process.

`workers/processes/worker_process.py` starts an interpreter that calls `main` here. The worker runs
tasks that the parent sends (`task_worker.py`); one of them may read a reader, and send its samples
as it goes on (`reading.py`). Messages are frames over a socket (`connection.py`), values are
pickled (`pickling.py`, `unpickling.py`), and large arrays lie in memory that both processes share
(`shared_memory.py`).

Ctrl-C is the parent's to handle: workers ignore SIGINT. A worker ends within a second, whatever it
is doing, once its connection ends (the parent closed it or is gone) or the parent itself ends
(though a process that the parent forked may still hold the connection).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading

from jreader._worker.task_worker import TaskWorker

_GRACE = 1.0  # seconds to clean up once nobody listens
_GONE = getattr(select, "POLLRDHUP", 0)  # POLLHUP is told without being asked for


def main(descriptor: int, parent: int) -> None:
    """Runs the tasks of a worker until its connection ends.

    Args:
        descriptor: The file descriptor of the socket to the parent.
        parent: The process id of the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # held back until here
    connection = socket.socket(fileno=descriptor)
    threading.Thread(target=_exit_with_parent, args=(connection, parent), daemon=True).start()
    TaskWorker(connection).run()


def _exit_with_parent(connection: socket.socket, parent: int) -> None:
    """Ends this process, with some grace, when the connection or the parent ends."""
    events = select.poll()
    events.register(connection, _GONE)
    with contextlib.suppress(OSError, AttributeError):  # where there are none, or it is gone
        events.register(os.pidfd_open(parent), select.POLLIN)
    if os.getppid() == parent:
        events.poll()
    threading.Event().wait(_GRACE)  # the main thread sees it too, and may be gone before
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(0)
