"""A pool of worker processes, shared by all executors of its size, and its queue of tasks.

One thread listens to all workers. Users' threads do only quick work here: they pickle, and send
what fits into the connection of a free worker. A worker has one task: a second one behind it was
not measurably faster, and would wait for the first while another worker is free.
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import selectors
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from jreader import errors
from jreader._worker.connection import to_frame
from jreader._worker.pickling import pickled_function
from jreader._worker.remote_errors import unpickled_error
from jreader._worker.task_worker import Answer
from jreader._worker.unpickling import unpickled
from jreader._worker.worker_info import get_worker_info
from jreader.readers.exits_and_forks import ForkGuard, stop_at_exit
from jreader.workers.processes.pickled_functions import PickledFunctions
from jreader.workers.processes.worker_process import SentValue, TaskFuture, Worker, reap

_MAX_FAILED_STARTS = 3  # consecutive workers that died before they began
_IDLE_SECONDS = 2.0  # seconds that idle workers wait for the next loader
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class WorkerPool:
    """At most `size` workers, started when there are tasks for them.

    Args:
        size: The most workers.
        init: A function that each worker calls first with its number, or None.
        user: The first user, known from the start, so that the pool does not end as idle.
    """

    def __init__(self, size: int, init: Callable[[int], object] | None, user: object) -> None:
        _check_no_import()
        self.size, self.init = size, pickled_function(init)
        self.key = init  # kept alive: pools are keyed by the identity of their `init`
        self.fork_guard = ForkGuard()
        self.lock = threading.RLock()  # reentrant: gc may run a user's code anywhere
        self.queue: deque[TaskFuture] = deque()
        self.failed: deque[tuple[TaskFuture, BaseException]] = deque()  # still to fail
        self.workers: list[Worker] = []
        self.functions = PickledFunctions()
        self.failed_starts = 0  # consecutive workers that died before they began
        self.over = False
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()
        self.idle_until: float | None = None  # when idle workers end
        self.events = selectors.DefaultSelector()
        self.waker, self.woken = socket.socketpair()
        self.waker.settimeout(0)
        self.events.register(self.woken, _READ)
        self.threads = [threading.Thread(target=self._run, name="jreader processes", daemon=True)]
        stop_at_exit(self)
        self.join(user)
        self.threads[0].start()

    def submit(self, task: TaskFuture) -> bool:
        """Queue a task for the first free worker; return False if the pool has ended."""
        with self.lock:
            if self.over:
                return False
            try:
                self.queue.append(task)
                self._dispatch()
            except BaseException:  # an interrupt: the result is not wanted
                with contextlib.suppress(ValueError):
                    self.queue.remove(task)
                raise
        self._fail_tasks()
        return True

    def report_taken(self, task: TaskFuture, number: int) -> None:
        """Report to the worker of a reading task that so many more samples were handed over."""
        with self.lock:
            for worker in self.workers:
                if worker.task is task:
                    worker.send(to_frame(("taken", number, worker.memory.take_returned())))
                    self._watch_for_writing(worker)

    @property
    def gone(self) -> bool:
        """True if it takes no tasks in this process."""
        return self.over or self.fork_guard.forked

    def join(self, user: object) -> None:
        """Live as long as this user, from now on."""
        with self.lock:
            self.users.add(user)
        weakref.finalize(user, _wake, weakref.ref(self))

    def leave(self, user: object) -> None:
        """Remove a user."""
        if self.fork_guard.forked:
            return  # the lock may be held for ever
        with self.lock:
            self.users.discard(user)
        self.wake()

    def wake(self) -> None:
        """Wake the pool's thread, without a lock."""
        if self.fork_guard.forked:
            return
        with contextlib.suppress(OSError):  # it is awake, or gone
            self.waker.send(b"!")

    def stop(self) -> None:
        """End the workers; unfinished tasks fail."""
        self.over = True
        self.wake()

    def _fail_tasks(self) -> None:
        """Fail tasks, and call their callbacks here, never under the lock."""
        with contextlib.suppress(IndexError):  # other threads may do the same
            while True:
                task, error = self.failed.popleft()
                if not task.done() and (task.running() or task.set_running_or_notify_cancel()):
                    task.set_exception(error)

    def _dispatch(self) -> None:
        """Send queued tasks to free workers."""
        while self.queue:
            try:
                worker = self._free_worker()
            except OSError as error:
                errors.noted(error, _advice(error))
                self.failed.extend((task, error) for task in self.queue)
                self.queue.clear()
                return
            if worker is None:
                return
            task = self.queue.popleft()
            if not task.running() and not task.set_running_or_notify_cancel():
                continue
            worker.assign(task, self.functions.numbers)
            self._watch_for_writing(worker)

    def _free_worker(self) -> Worker | None:
        """Return a worker without a task, started if one more is allowed; else None."""
        free = next((each for each in self.workers if each.task is None), None)
        if free is not None or len(self.workers) >= self.size:
            return free
        taken = {each.number for each in self.workers}
        number = next(number for number in count() if number not in taken)
        worker = Worker(number, self.size)
        try:
            self.workers.append(worker)
            worker.begin(self.init)
            self.events.register(worker.connection, _READ, worker)
            self.events.register(worker.sentinel, _READ, worker)
        except BaseException:  # an interrupt: an unheard worker would keep its task
            self.workers.remove(worker)
            self._ignore(worker)
            worker.end()
            worker.kill()
            raise
        return worker

    def _ignore(self, worker: Worker) -> None:
        """Stop listening to a worker."""
        for end in (worker.connection, worker.sentinel):
            with contextlib.suppress(KeyError, ValueError):  # not registered, closed, or not begun
                self.events.unregister(end)

    def _watch_for_writing(self, worker: Worker) -> None:
        wanted = _READ | _WRITE if worker.outgoing else _READ
        key = self.events.get_map().get(worker.connection)
        if key is not None and key.events != wanted:
            self.events.modify(worker.connection, wanted, worker)

    def _run(self) -> None:
        try:
            while not self._is_over():
                for key, what in self.events.select(self._time_left()):
                    if key.data is None:
                        self.woken.recv(1 << 12)
                    else:
                        self._handle(key, what)
                self._fail_tasks()
        except BaseException as error:
            self._give_up(error)
            raise
        finally:
            self._end()

    def _is_over(self) -> bool:
        """Return whether the pool ends: shut down, or idle for some time."""
        with self.lock:
            if (
                self.queue
                or any(each.task for each in self.workers)
                or any(True for _ in self.users)
            ):
                self.idle_until = None
            elif self.idle_until is None:
                self.idle_until = time.monotonic() + _IDLE_SECONDS
            else:
                self.over = self.over or self.idle_until <= time.monotonic()
        return self.over

    def _handle(self, key: selectors.SelectorKey, what: int) -> None:
        """Receive from a worker, and send what it can take; drain a dead one."""
        worker: Worker = key.data
        if worker not in self.workers:
            return  # it died in an earlier event
        dead = key.fileobj is worker.sentinel
        if what & _WRITE:
            with self.lock:
                worker.flush()
                self._watch_for_writing(worker)
        while worker.receiver.open and worker.receiver.receive(wait=False):
            for answer in worker.receiver.frames():
                self._take(worker, Answer(*answer))
            if not dead:
                break
        if dead:
            self._worker_died(worker)
        elif not worker.receiver.open:
            with contextlib.suppress(KeyError):  # the death is reported elsewhere
                self.events.unregister(worker.connection)

    def _take(self, worker: Worker, answer: Answer) -> None:
        """Take a message of a worker on its task: some samples, or its end."""
        error = unpickled_error(answer.error) if answer.error else None
        if not worker.ready:
            self._worker_began(worker, error)
            return
        values: list[SentValue] = []
        try:
            worker.memory.update(answer.updates, worker.receiver)
            values = [worker.memory.value(each) for each in answer.values]
        except OSError as reason:  # out of descriptors: the arrays there cannot be read
            worker.kill()
            error = reason
        finally:
            worker.memory.release(answer.updates)
        if answer.ends or error:
            self._finish_task(worker, values, error)
        elif worker.task is not None and worker.task.take:  # otherwise it was given up
            worker.task.take(values, answer.positions)

    def _finish_task(
        self, worker: Worker, values: list[SentValue], error: Exception | None
    ) -> None:
        value: Any = None
        if error is None:
            value, error = _unpickled(*values[0])
        with self.lock:
            task, worker.task = worker.task, None
            self._dispatch()
        if task is None:  # it was given up
            return
        del task.function, task.arguments  # the future may be kept for long
        if error is None:
            task.set_result(value)
        else:
            self.failed.append((task, error))

    def _worker_began(self, worker: Worker, error: BaseException | None) -> None:
        """Record that a worker is ready; if its `init` raised, the pool ends."""
        worker.ready = True
        self.failed_starts = 0
        if error is not None:
            errors.noted(error, f"raised by the init of Processes({self.size}, init), in a worker")
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        with self.lock:
            self.over = True
            tasks = [*(each.task for each in self.workers if each.task), *self.queue]
            self.queue.clear()
            for each in self.workers:
                each.task = None
        self.failed.extend((task, error) for task in tasks)
        self._fail_tasks()

    def _worker_died(self, worker: Worker) -> None:
        """Queue a dead worker's task again; if several workers died of it, that is an error."""
        self._ignore(worker)
        how = worker.how_it_ended()
        with self.lock:
            self.workers.remove(worker)
            task, worker.task = worker.task, None
            self.failed_starts += not worker.ready
            if task is not None:
                task.tries += worker.ready
                task.died = task.tries >= task.most_tries or task.kill_at is not None
                if task.died:
                    self.failed.append((task, task.death_error(how)))
                else:
                    self.queue.appendleft(task)
            if self.failed_starts < _MAX_FAILED_STARTS:
                self._dispatch()
        worker.end()
        worker.sentinel.close()
        if self.failed_starts >= _MAX_FAILED_STARTS:
            self._give_up(
                errors.WorkerDied(
                    f"{self.failed_starts} worker processes {how} before they started: does "
                    '`python -c "import jreader"` work here?'
                )
            )

    def _time_left(self) -> float | None:
        """Kill workers whose cancelled task runs for too long.

        Returns:
            The seconds until the next one is killed, or the pool ends, unless a message comes
            before.
        """
        now, until = time.monotonic(), [self.idle_until]
        with self.lock:
            for each in self.workers:
                kill_at = each.task.kill_at if each.task else None
                if kill_at is not None and kill_at <= now:
                    each.kill()
                else:
                    until.append(kill_at)
        return min((max(0.0, end - now) for end in until if end is not None), default=None)

    def _end(self) -> None:
        self._give_up(RuntimeError("the worker processes were shut down"))
        with self.lock:
            workers, self.workers = self.workers, []
        self.events.close()
        self.waker.close()
        self.woken.close()
        for each in workers:
            each.end()
        reap(workers)


def _wake(pool: Callable[[], WorkerPool | None]) -> None:
    """Wake a pool, which a longer-lived object does not keep alive."""
    if there := pool():
        there.wake()


def _check_no_import() -> None:
    """Check that no module starts workers while a worker imports it, which would never end.

    Raises:
        RuntimeError: A module does.
    """
    frame = inspect.currentframe() if get_worker_info() else None
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if frame.f_code.co_name == "<module>" and module != "__main__":
            raise RuntimeError(
                f"the module {module} starts worker processes when it is imported. A worker that "
                "imports it, for a function of it, would start others, and so on without end: "
                'start them in a function, or below `if __name__ == "__main__":`.'
            )
        frame = frame.f_back


def _unpickled(data: bytes, arrays: Sequence[Any]) -> tuple[Any, Exception | None]:
    """Return the result of a task, or the error that its classes raised while unpickling."""
    try:
        return unpickled(data, arrays), None
    except Exception as error:
        errors.noted(error, "raised while the result of a worker process was read")
        return None, error


def _advice(error: OSError) -> str:
    few = " (see `ulimit -n`)" if error.errno == errno.EMFILE else ""
    return f"raised when a worker process was to be started{few}"
