"""Samples in groups, worked on by an executor: any that `concurrent.futures` would take.

Order, bounds and another try are ours; where the work is done is the executor's. What a task costs
beside its work (6 ms on Dask, 1 ms on Ray, 0.3 ms on processes) is measured while the first samples
are sent, to workers that wait for them, and so many samples make a task that it is a tenth of their
work. A user's error comes back as a result, so whatever a future raises is the engine's: a worker
was lost, and the task is sent again, or something cannot be pickled.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import deque
from collections.abc import Generator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import suppress
from itertools import islice
from math import ceil, inf
from typing import Any, Generic, NoReturn, TypeVar

from jreader import errors
from jreader.readers import Node, Pass, Position, described
from jreader.workers.map_tasks import UNKNOWN, Failure, Outcome, Packed, Samples, Task
from jreader.workers.memory_estimates import EACH, SPARSE, risen, weight
from jreader.workers.threads import ForkGuard, Source, stop_at_exit

T = TypeVar("T")
S = TypeVar("S")

_SHARE = 10  # the work of a task over what it costs to send it
_TURNS = 4  # tasks of each worker that fit the window: one is in work, others wait
_TRIES = 3  # of one task, whose worker may be lost

_NOT_SENT = (pickle.PicklingError, TypeError, AttributeError)
_ADVICE = (
    ": samples and results are sent as arrays, numbers, texts, or containers of them; files, locks "
    "and connections are opened inside the function"
)


def submitted(
    node: Node[T],
    up: Pass[S],
    task: Task,
    executor: Executor,
    workers: int,
    window: int,
    most: int,
    timeout: float = 0,
    most_bytes: float = inf,
) -> Pass[Any]:
    """What a task makes of the samples of `up`, in their order; of some it is a `Failure`.

    Args:
        node: The op, for errors.
        up: A pass; it is read on the thread that asks for results.
        task: What to do with samples.
        executor: Does tasks, and is not shut down.
        workers: How many it does side by side.
        window: How many samples may be in work or wait to be handed over.
        most: How many if they take next to no time.
        timeout: The seconds that a result may be waited for; 0 for any.
        most_bytes: What samples and results that are ahead may weigh, but for two of each worker.
    """
    position = up.position()
    state = _Submitted(node, up, task, executor, workers, window, most, timeout, most_bytes)

    def deal() -> Generator[Any, None, None]:
        nonlocal position
        result: Any = None
        try:
            state.begin()
            while flight := state.next():
                for place, result in enumerate(state.landed(flight)):
                    position = flight.positions[place]
                    state.ahead -= 1
                    if type(result) is Failure and result.sample is UNKNOWN:
                        result.sample = flight.samples.items[place]
                    yield result
            if state.error and not state.closed:
                raise state.error
        finally:
            flight = result = None  # or a traceback would hold this frame, and the frame an error
            state.stop()

    items = deal()

    def close() -> None:
        state.stop()
        with suppress(ValueError):  # another thread waits in it, and has been told
            items.close()

    return Pass(items, lambda: position, close)


class _Flight:
    """One task under way."""

    def __init__(self, first: int, samples: Samples, positions: list[Position]) -> None:
        self.first, self.samples, self.positions = first, samples, positions
        self.tries = 0
        self.future: Future[Outcome] = Future()
        self.sent = self.back = 0.0
        self.refused: Exception | None = None  # by the executor, which takes no more
        self.there = threading.Event()  # also where nobody waits for it any more

    def rest(self, done: int) -> _Flight:
        """Another one, for the samples that its task left."""
        samples = Samples(self.samples.items[done:], self.samples.most)
        return _Flight(self.first + done, samples, self.positions[done:])

    def land(self, _future: object) -> None:
        """Takes the time."""
        self.back = time.perf_counter()
        self.there.set()

    def __str__(self) -> str:
        last = self.first + len(self.samples.items) - 1
        return f"sample {last}" if last == self.first else f"samples {self.first} to {last}"


class _Submitted(Generic[S, T]):
    """The tasks of one pass; all on the consumer's thread, but for `land` and `stop`."""

    def __init__(
        self,
        node: Node[T],
        up: Pass[S],
        task: Task,
        executor: Executor,
        workers: int,
        window: int,
        most: int,
        timeout: float,
        most_bytes: float,
    ) -> None:
        self.where = f"{type(node).__name__}, made at {node.made_at}"
        self.source, self.task, self.executor, self.timeout = Source(up), task, executor, timeout
        self.workers, self.least, self.most = workers, window, max(window, most)
        self.window = window
        self.most_bytes = most_bytes
        self.share = most_bytes / (2 * _TURNS * workers)  # of a task
        self.given = self.made = 0.0  # bytes of a sample, and of what is made of it
        self.flights: deque[_Flight] = deque()
        self.drawn = 0
        self.ahead = 0  # samples drawn and not yet handed over
        self.trials = 2 * workers  # tasks of one sample, each for a worker that waits for it
        self.group = 1  # samples of a task
        self.cost = inf  # seconds of a task beside its work
        self.each = 0.0  # seconds of work for a sample
        self.over = self.closed = False
        self.error: BaseException | None = None  # of the source, after all samples before it
        self.lock = threading.RLock()  # of the flights; reentrant: gc may drop a pass anywhere
        self.threads: list[threading.Thread] = []  # those of others may wait here
        self.fork_guard = ForkGuard()

    def begin(self) -> None:
        """Has it stopped where the program ends while another thread waits here."""
        self.fork_guard.check("this pass")
        stop_at_exit(self)

    def next(self) -> _Flight | None:
        """The next task, with as many behind it as the window takes; None at the end."""
        self.fork_guard.check("this pass")
        while not self.over and (not self.flights or self.ahead + self.group <= self._room()):
            self._draw()
        with self.lock:
            return self.flights[0] if self.flights else None

    def _room(self) -> float:
        """How many samples may be ahead."""
        window = min(self.workers, self.window) if self.trials else self.window
        return min(window, max(EACH * self.workers, self.most_bytes / self._heavy()))

    def _heavy(self) -> float:
        """The bytes of a sample that is ahead, with what is made of it."""
        return max(1.0, self.given + self.made)

    def _draw(self) -> None:
        samples: list[S] = []
        positions: list[Position] = []
        size, each, more = 0.0, 0.0, False
        try:
            with self.source as up:
                for sample in islice(up.items, self.group):
                    if len(samples) % SPARSE == 0:
                        each = weight(sample)
                    size += each
                    samples.append(sample)
                    positions.append(up.position())
                    if more := size > self.share:
                        break
        except KeyboardInterrupt:
            raise  # it has no place in the order: it may come between a sample and its position
        except BaseException as error:  # an exit too: it comes after the samples before it
            errors.noted(error, f"raised while {self.where}, read ahead")
            self.error = error
        self.over = self.error is not None or (len(samples) < self.group and not more)
        if samples:
            self.given = risen(self.given, size / len(samples))
            flight = _Flight(self.drawn, Samples(samples, self.share), positions)
            self.drawn += len(samples)
            self.ahead += len(samples)
            with self.lock:
                if not self.closed:
                    self.flights.append(flight)
                    self._send(flight)

    def _send(self, flight: _Flight) -> None:
        flight.tries += 1
        flight.sent = time.perf_counter()
        flight.there.clear()
        try:
            _check_client(self.executor)
            if _is_elsewhere(self.executor):
                self.task.pack()
            flight.future = self.executor.submit(self.task, flight.samples)
        except Exception as error:
            flight.refused, self.over = error, True  # told in its place, after what was done
            flight.there.set()
        else:
            flight.future.add_done_callback(flight.land)

    def landed(self, flight: _Flight) -> list[Any]:
        """The results of a task, once they are there; none where the pass is closed meanwhile."""
        while not (outcome := self._outcome(flight)):
            with self.lock:
                if self.closed:
                    return []
                self._send(flight)
        with self.lock:
            if self.closed:
                return []
            self.flights.popleft()
            if outcome.more:
                self.flights.appendleft(flight.rest(len(outcome.results)))
                self._send(self.flights[0])
        flight.future = Future()  # its callback is the flight's: only gc would free the results
        self._learn(flight, outcome)
        return outcome.results

    def _outcome(self, flight: _Flight) -> Outcome | None:
        """What became of a task; None where its worker was lost, and another may do it."""
        there = flight.there.wait(self.timeout or None)
        with self.lock:
            future, closed = flight.future, self.closed
        if closed:
            return None
        if flight.refused is not None:
            self._raise_refused(flight, flight.refused)
        if not there:
            raise TimeoutError(
                f"{flight} of this pass, the first made of "
                f"{described(flight.samples.items[0])}, were waited for longer than "
                f"{self.timeout} s in {self.where}: give a longer timeout, or find what they wait "
                f"for."
            )
        try:
            error = future.exception()
        except CancelledError as cancelled:
            error = cancelled
        if error is None:
            return self._opened(future.result(), flight)
        if not _is_loss(error):
            self._noted(error, flight)
            raise error
        if flight.tries < _TRIES:
            return None
        raise errors.WorkerDied(
            f"{flight} of this pass through {self.where} lost their worker {flight.tries} times "
            f"({type(error).__name__}: {error}): perhaps one of them ends it (out of memory, a "
            f"crash outside of Python)."
        ) from error

    def _opened(self, outcome: Outcome | Packed, flight: _Flight) -> Outcome:
        """An outcome whose results are read here, where it was sent."""
        if isinstance(outcome, Outcome):
            return outcome
        try:
            opened = Outcome(*outcome.opened())
        except Exception as error:
            errors.noted(
                error,
                f"raised while what a worker made of {flight} of this pass, by {self.where}, was "
                f"read here: its classes have to be here too, and to be made of what they pickle",
            )
            raise
        return opened

    def _raise_refused(self, flight: _Flight, error: Exception) -> NoReturn:
        if not (_is_loss(error) or isinstance(error, RuntimeError)):
            # `Processes` say it themselves
            if _is_elsewhere(self.executor) or not hasattr(error, "__notes__"):
                self._noted(error, flight)
            raise error
        raise errors.WorkerDied(
            f"{type(self.executor).__name__} takes no more tasks ({error}), and {flight} of "
            f"this pass through {self.where} are not done: processes=n replaces workers that "
            f"die; or give a new executor, and start at the last position."
        ) from error

    def _noted(self, error: BaseException, flight: _Flight) -> None:
        errors.noted(
            error,
            f"raised by {type(self.executor).__name__}, given {flight} of this pass by "
            f"{self.where}{_ADVICE * isinstance(error, _NOT_SENT)}",
        )

    def _learn(self, flight: _Flight, outcome: Outcome) -> None:
        """How many samples are worth a task, and how heavy they are."""
        self.made = risen(self.made, outcome.bytes / len(outcome.results))
        each = outcome.seconds / len(outcome.results)
        self.each += (each - self.each) / (4 if self.each else 1)
        if self.trials and flight.tries == 1:
            self.trials -= 1
            self.cost = min(self.cost, max(0.0, flight.back - flight.sent - outcome.seconds))
            if self.cost * _SHARE > self.each and self.trials and not self.over:
                return
            self.trials = 0
        few = min(self.most // (_TURNS * self.workers), self.share / self._heavy())
        wanted = ceil(_SHARE * self.cost / max(self.each, 1e-9)) if self.cost < inf else 1
        self.group = int(max(1, min(2 * self.group, few, wanted)))
        self.window = max(self.least, min(self.most, _TURNS * self.workers * self.group))

    def stop(self) -> None:
        """Gives up what is not done, wakes who waits for it, and closes the source."""
        if self.fork_guard.forked:
            return
        with self.lock:
            self.over = self.closed = True
            flights = list(self.flights)
            self.flights.clear()
        for flight in reversed(flights):
            flight.future.cancel()
            flight.future = Future()  # as in `landed`
            flight.there.set()
        self.source.close()


def _is_elsewhere(executor: Executor) -> bool:
    """Whether an executor is known to pickle what it is given; others may, or be threads."""
    engines = ("concurrent.futures.process", "distributed", "ray", "jreader.workers.clusters")
    return any(kind.__module__.startswith(engines) for kind in type(executor).__mro__)


def _check_client(executor: Any) -> None:
    """Refuses a Dask client without its scheduler: it would try for minutes to find it again."""
    status = getattr(getattr(executor, "_client", None), "status", "running")
    if status != "running":
        raise RuntimeError(f"its Dask client has no scheduler any more: it is {status!r}")


def _is_loss(error: BaseException) -> bool:
    """Whether a worker was lost, as far as engines say so: each has its own errors for that."""
    if isinstance(error, (BrokenExecutor, CancelledError)):
        return True
    kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(error).__mro__}
    if "ray.RayTaskError" in kinds:  # what a task raised, as the error that it is too
        return False
    return type(error).__module__.partition(".")[0] in {"distributed", "ray"}
