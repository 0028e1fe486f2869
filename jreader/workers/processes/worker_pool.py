"""A crew of worker processes, and who gives them what: one for each size, shared by all that ask.

One thread listens to all of them. What users' threads do here is quick: they pickle, and send what
fits the connection of a worker that is free. A worker has one task: a second one behind it was not
measurably faster, and would wait for the first while another worker is free.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from jreader import errors
from jreader._worker.pickling import sent_function, unpickled_error
from jreader._worker.shared_memory import News, Told
from jreader._worker.task_worker import READY
from jreader.staging import Array
from jreader.workers.processes.pickled_functions import Parcel, Parcels
from jreader.workers.processes.pool_worker import Member, Task
from jreader.workers.processes.worker_process import reaped, unpickled
from jreader.workers.threads import ForkGuard, stop_at_exit

_TRIES = 3  # of one task whose worker died
_STARTS = 3  # of workers in a row that died before they began
_IDLE = 2.0  # seconds that workers stay though nobody uses them: the next loader may
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Crew:
    """At most `size` workers, begun when there is something to do for them.

    Args:
        size: How many.
        init: A function of its number that each worker calls first, or None.
    """

    def __init__(self, size: int, init: Callable[[int], object] | None) -> None:
        self.size, self.init = size, sent_function(init)
        self.key = init  # kept alive: crews are told apart by the identity of what they begin with
        self.fork_guard = ForkGuard()
        self.lock = threading.RLock()  # reentrant: gc may run what a user wrote anywhere
        self.queue: deque[Task] = deque()
        self.members: list[Member] = []
        self.parcels = Parcels()
        self.numbers = count()
        self.lost = 0  # workers in a row that died before they began
        self.over = False
        self.users = 0
        self.idle: float | None = None  # when the workers end, if nobody uses them until then
        self.gone: deque[None] = deque()  # users that are no more; by finalizers, without a lock
        self.events = selectors.DefaultSelector()
        self.waker, self.woken = socket.socketpair()
        self.waker.setblocking(False)  # noqa: FBT003  # by place only
        self.events.register(self.woken, _READ)
        self.threads = [threading.Thread(target=self._serve, name="jreader processes", daemon=True)]
        stop_at_exit(self)
        self.threads[0].start()

    def submit(self, parcel: Parcel, arguments: bytes) -> Task | None:
        """Has a task done by the worker that is free first; None where the crew is no more."""
        failed: list[tuple[Task, BaseException]] = []
        with self.lock:
            if self.over:
                return None
            task = Task(self, next(self.numbers), parcel, arguments)
            self.queue.append(task)
            self._deal(failed)
        _fail(failed)
        return task

    def busy(self) -> bool:
        """Whether somebody may still wait for a result."""
        with self.lock:
            return bool(self.queue) or any(each.task for each in self.members)

    def wake(self) -> None:
        """Has the thread look around; takes no lock."""
        if self.fork_guard.forked:
            return
        with contextlib.suppress(OSError):  # it is awake, or gone
            self.waker.send(b"!")

    def leave(self) -> None:
        """One user less; called by finalizers."""
        self.gone.append(None)
        self.wake()

    def stop(self) -> None:
        """Ends the workers, and fails what they have not done."""
        self.over = True
        self.wake()

    def _deal(self, failed: list[tuple[Task, BaseException]]) -> None:
        """Gives tasks to workers, as long as there are some for them."""
        while self.queue:
            try:
                member = self._free()
            except OSError as error:
                errors.noted(error, _advice(error))
                failed += [(task, error) for task in self.queue if not task.done()]
                self.queue.clear()
                return
            if member is None:
                return
            task = self.queue.popleft()
            if not task.running() and not task.set_running_or_notify_cancel():
                continue
            while self.parcels.forgotten:
                number = self.parcels.forgotten.popleft()
                for each in self.members:
                    if number in each.known:
                        each.known.remove(number)
                        each.forgotten.append(number)
            member.give(task)
            self._listen(member)

    def _free(self) -> Member | None:
        """A worker that can take a task now; one more, where there may be."""
        free = next((each for each in self.members if each.task is None), None)
        if free is not None or len(self.members) >= self.size:
            return free
        taken = {each.number for each in self.members}
        number = next(number for number in count() if number not in taken)
        member = Member(number, self.size, self.init)
        try:
            self.members.append(member)
            self.events.register(member.connection, _READ, member)
            self.events.register(member.death, _READ, member)
        except BaseException:  # an interrupt: a worker that nobody hears would keep its task
            self.members.remove(member)
            for end in (member.connection, member.death):
                with contextlib.suppress(KeyError):
                    self.events.unregister(end)
            member.process.kill()
            raise
        return member

    def _listen(self, member: Member) -> None:
        wanted = _READ | _WRITE if member.outgoing else _READ
        key = self.events.get_map().get(member.connection)
        if key is not None and key.events != wanted:
            self.events.modify(member.connection, wanted, member)

    def _serve(self) -> None:
        try:
            while not self.over and not retired(self):
                for key, what in self.events.select(self._patience()):
                    if key.data is None:
                        self.woken.recv(1 << 12)
                    else:
                        self._hear(key, what)
                self._end_of_patience()
        except BaseException as error:
            self._give_up(error)
            raise
        finally:
            self._close()

    def _hear(self, key: selectors.SelectorKey, what: int) -> None:
        """Takes what a worker has to say, and what it can take; the last of it, where it died."""
        member: Member = key.data
        if member not in self.members:
            return  # it died, as an event before this one said
        dead = key.fileobj is member.death
        if what & _WRITE:
            with self.lock:
                member.flush()
                self._listen(member)
        while member.arrivals.open and member.arrivals.read(wait=False):
            for answer in member.arrivals.whole():
                self._answered(member, *answer)
            if not dead:
                break
        if dead:
            self._died(member)
        elif not member.arrivals.open:
            with contextlib.suppress(KeyError):  # its death says the rest
                self.events.unregister(member.connection)

    def _answered(self, member: Member, number: int, good: bool, told: Told, news: News) -> None:
        if number == READY:
            self._begun(member, None if good else unpickled_error(told.data))
            return
        told, value = Told(*told), None
        error: Exception | None = None
        try:
            member.memory.learn(News(*news), member.arrivals)
            buffers = member.memory.buffers(told)
        except OSError as reason:  # no descriptor is left: what it has there is not to be had here
            error = reason
            member.process.kill()
        else:
            if good:
                value, error = _read(told.data, buffers)
            else:
                error = unpickled_error(told.data)
        member.memory.leave(News(*news))
        failed: list[tuple[Task, BaseException]] = []
        with self.lock:
            task, member.task = member.task, None
            self._deal(failed)
        if task is None:
            return  # it was given up
        del task.parcel, task.arguments  # the future may be kept for long
        if error is None:
            task.set_result(value)
        else:
            failed.append((task, error))
        _fail(failed)

    def _begun(self, member: Member, error: BaseException | None) -> None:
        """Notes that a worker is there; where it could not begin, nothing can."""
        member.ready = True
        self.lost = 0
        if error is not None:
            errors.noted(error, f"raised by the init of Processes({self.size}, init), in a worker")
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        with self.lock:
            self.over = True
            tasks = [*(each.task for each in self.members if each.task), *self.queue]
            self.queue.clear()
            for each in self.members:
                each.task = None
        _fail([(task, error) for task in tasks])

    def _died(self, member: Member) -> None:
        """Has others do what a worker leaves; what several died of is an error."""
        failed: list[tuple[Task, BaseException]] = []
        for end in (member.connection, member.death):
            with contextlib.suppress(KeyError):
                self.events.unregister(end)
        how = member.how_it_ended()
        with self.lock:
            self.members.remove(member)
            task, member.task = member.task, None
            self.lost += not member.ready
            if task is not None:
                task.tries += member.ready
                if task.tries < _TRIES and task.left is None:
                    self.queue.appendleft(task)
                else:
                    failed.append((task, _death(task, how)))
            if self.lost < _STARTS:
                self._deal(failed)
        member.end()
        member.death.close()
        _fail(failed)
        if self.lost >= _STARTS:
            self._give_up(
                errors.WorkerDied(
                    f"{self.lost} worker processes {how} before they began: does "
                    f'`python -c "import jreader"` work here?'
                )
            )

    def _patience(self) -> float | None:
        """Seconds until something has to be looked at, though nothing was heard."""
        with self.lock:
            ends = [each.task.left for each in self.members if each.task]
        known = [end for end in (*ends, self.idle) if end is not None]
        return max(0.0, min(known) - time.monotonic()) if known else None

    def _end_of_patience(self) -> None:
        """Kills workers that go on with what nobody waits for."""
        with self.lock:
            for each in self.members:
                left = each.task.left if each.task else None
                if left is not None and left <= time.monotonic():
                    each.process.kill()

    def _close(self) -> None:
        self._give_up(RuntimeError("the worker processes were shut down"))
        with _choosing:
            for key in [key for key, crew in _crews.items() if crew is self]:
                del _crews[key]
        with self.lock:
            members, self.members = self.members, []
        self.events.close()
        self.waker.close()
        self.woken.close()
        for each in members:
            each.end()
        reaped(members)


def _read(data: bytes, buffers: list[Array]) -> tuple[Any, Exception | None]:
    """A result; or what its classes raised, which a user wrote."""
    try:
        return unpickled(data, buffers), None
    except Exception as error:
        errors.noted(error, "raised while the result of a worker process was read")
        return None, error


def _fail(failed: list[tuple[Task, BaseException]]) -> None:
    for task, error in failed:
        if not task.done() and (task.running() or task.set_running_or_notify_cancel()):
            task.set_exception(error)


def _death(task: Task, how: str) -> errors.WorkerDied:
    if task.left is not None:
        return errors.WorkerDied(f"a worker process was ended: nobody waited for {task} any more.")
    return errors.WorkerDied(
        f"{task.tries} worker processes died one after another while they worked on {task}; the "
        f"last one {how}."
    )


def _advice(error: OSError) -> str:
    few = " (see `ulimit -n`)" if error.errno == errno.EMFILE else ""
    return f"raised when a worker process was to be started{few}"


_crews: dict[tuple[int, int], Crew] = {}
_choosing = threading.RLock()


def _afresh() -> None:
    """Forgets the parent's crews in a process that it forked: a lock may be held there for ever."""
    global _choosing  # noqa: PLW0603  # as said
    _choosing = threading.RLock()
    _crews.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_afresh)


def joined(size: int, init: Callable[[int], object] | None) -> Crew:
    """The crew of that size and function, with one user more."""
    with _choosing:
        crew = _crews.get((size, id(init)))
        if crew is None or crew.over or crew.fork_guard.forked:
            crew = _crews[size, id(init)] = Crew(size, init)
        crew.users += 1
        return crew


def retired(crew: Crew) -> bool:
    """Whether nobody has used a crew for some time; nobody can from now on."""
    with _choosing:
        while crew.gone:
            crew.gone.popleft()
            crew.users -= 1
        if crew.users or crew.busy():
            crew.idle = None
        elif crew.idle is None:
            crew.idle = time.monotonic() + _IDLE
        elif crew.idle <= time.monotonic():
            crew.over = True
        return crew.over
