"""What runs in a worker process: a reader, read to the parent, or tasks that the parent sends.

`main` is started by `workers/processes`. SIGINT is the parent's to handle. When the connection
ends, the parent has closed it or is gone; when the parent itself ends, it is gone though somebody
else (a process that it forked) may hold the connection: either way the process ends within a
second, whatever it is doing.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading

from jreader._worker.pickling import Arrivals
from jreader._worker.reader_worker import read
from jreader._worker.stacking import WorkerInfo, informed
from jreader._worker.task_worker import work

_GRACE = 1.0  # seconds to clean up once nobody listens
_GONE = getattr(select, "POLLRDHUP", 0)  # POLLHUP is told without being asked for


def main(descriptor: int, parent: int) -> None:
    """Takes the job from the connection, and does it.

    Args:
        descriptor: That of the connection.
        parent: The process that started this one.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # held back until here
    connection = socket.socket(fileno=descriptor)
    threading.Thread(target=_watch, args=(connection, parent), daemon=True).start()
    arrivals = Arrivals(connection)
    job = arrivals.next()
    if job is not None:  # else it was closed before it began
        kind, info, rest = job
        informed(WorkerInfo(*info))
        (work if kind == "tasks" else read)(connection, arrivals, rest)


def _watch(connection: socket.socket, parent: int) -> None:
    """Ends the process, with some grace, when nobody listens any more."""
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
