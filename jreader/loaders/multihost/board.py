"""`Board`: where the processes of a run post messages to each other, also when one of them fails.

A process that ends with an error would wait for the others in jax's shutdown for minutes. The
others would wait for it in a step that it never joins, as long as its connections are open. So it
posts what happened, waits some seconds for the others, and exits: then their step fails with an
error.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

import jax

from jreader.loaders.multihost import neighbours
from jreader.loaders.multihost.lane_places import Places
from jreader.readers.exits_and_forks import ForkGuard
from jreader.readers.hashing import text_hash

_KEPT_PASSES = 16  # passes whose messages are kept for slower processes
GROUP = 64  # feeds whose messages are deleted at once
_STORE_TIMEOUT = 60.0  # seconds to wait for the store
_MAX_MILLISECONDS = 1 << 31  # a longer timeout overflows in the store
_FAILURE_TIMEOUT = 10.0  # seconds that a failed process waits for the others
_NUMBERS: defaultdict[str, Iterator[int]] = defaultdict(count)
_GONE, _AT = "jreader/gone/", "jreader/at/"
_rings: set[str] = set()  # groups of processes, each of which watches the next
_lost: set[int] = set()  # lost processes
CLOSED, ENDED = "it closed the pass before its end", "its program has ended"
LOST = "it was killed, or its machine is lost"


class Message(NamedTuple):
    """The state of a process in a pass.

    Attributes:
        feeds: The number of prepared feeds; once the pass is left, of those that the loop got.
        end: None while there may be more feeds; "" after the last one; or the error.
        places: For each of the last feeds, its number, from 1, and the positions of the lanes then.
    """

    feeds: int = 0
    end: str | None = None
    places: Sequence[tuple[int, Places]] = ()


class Leaving(Protocol):
    """A pass that can be left early.

    Attributes:
        turn: The number of the pass.
    """

    turn: int

    @property
    def over(self) -> bool:
        """True if it is over on this process."""

    def leave(self, why: str) -> None:
        """Post that this process takes no more feeds of the pass, and why."""


class Board:
    """The messages of a loader's processes: one value per process and subject.

    Attributes:
        me: The index of this process.
        others: The indices of the other processes that feed the same arrays.
        turn: The number of the next pass.
        reported: The subject of the latest report of all processes.
        closed: The number and the message of the pass closed last, until another begins.
    """

    closed: tuple[int, Message] | None = None
    reported: str | None = None

    def __init__(self, processes: set[int], made_at: str) -> None:
        """Make the board, named after the line that made the loader, which all processes share.

        A loader that only one process iterates does not change the names of others. The line that
        iterates cannot be the name: it is in tqdm on a process that shows a progress bar.

        Raises:
            RuntimeError: `jax.distributed` is not initialized.
        """
        path, _, line = made_at.rpartition(":")
        called = f"{Path(path).name}:{line}"
        self.me = jax.process_index()
        self.others = sorted(processes - {self.me})
        group = text_hash(sorted(processes))
        self._name = f"jreader/{called}/{next(_NUMBERS[called])} {group}"
        self.turn, self._begun, self._over = 0, list[int](), deque[int](maxlen=_KEPT_PASSES)
        self._passes: WeakSet[Leaving] = WeakSet()
        self._store: Any = _client()
        if self._store is None:
            raise RuntimeError(
                "processes exchange their progress through jax.distributed, and that is "
                "not set up: call jax.distributed.initialize() before anything else of jax."
            )
        _post_the_end(self)
        _watch_next(self.me, sorted(processes), group)

    def enter(self, each: Leaving) -> None:
        """Number a pass, as the next one."""
        self.closed = None
        each.turn, self.turn = self.turn, self.turn + 1
        self._passes.add(each)
        for process in _lost.intersection(self.others):
            self.lose(process)

    def began(self, turn: int) -> None:
        """Record that this process began a pass first, so that it deletes the messages of the pass.

        It deletes the messages of much earlier passes, which are over here.
        """
        self._begun.append(turn)
        needed = {each.turn for each in list(self._passes) if not each.over}
        for old in [old for old in self._begun if old <= turn - _KEPT_PASSES and old not in needed]:
            self._begun.remove(old)
            self.delete(old)

    def post(self, subject: object, value: Any) -> None:
        """Post a value for a subject, as JSON, in place of the previous one."""
        text = json.dumps(value)
        self._store.key_value_set(self._key(subject, self.me), text, allow_overwrite=True)

    def read(self, subject: object) -> dict[int, Any]:
        """Return the values of the other processes for a subject."""
        found = self._store.key_value_dir_get(self._key(subject, ""))
        texts = {int(key.rpartition("/")[2]): text for key, text in found}
        return {each: json.loads(text) for each, text in texts.items() if each in self.others}

    def read_of(self, subject: object, process: int) -> Any | None:
        """Return the value of one process for a subject; None if there is none."""
        try:
            return json.loads(self._store.key_value_try_get(self._key(subject, process)))
        except jax.errors.JaxRuntimeError as error:
            if "NOT_FOUND" in str(error):
                return None
            raise

    def first(self, subject: object, value: Any) -> Any:
        """Post a value for all processes, unless one has; return the one that counts."""
        try:
            self._store.key_value_set(f"{self._name}/{subject}", json.dumps(value))
        except jax.errors.JaxRuntimeError as error:
            if "ALREADY_EXISTS" not in str(error):
                raise
            return self.awaited(subject, _STORE_TIMEOUT)
        return value

    def awaited(self, subject: object, seconds: float) -> Any | None:
        """Return the value for all processes once there is one; None after so many seconds."""
        limit = round(min(max(1000 * seconds, 1), _MAX_MILLISECONDS))
        try:
            text = self._store.blocking_key_value_get(f"{self._name}/{subject}", limit)
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise
        return json.loads(text)

    def count(self, subject: object, more: int) -> int:
        """Add to a number of all processes, and return it."""
        counted: int = self._store.key_value_increment(f"{self._name}/{subject}", more)
        return counted

    def delete(self, subject: object) -> None:
        """Delete the messages of a subject, and of those below it."""
        self._store.key_value_delete(f"{self._name}/{subject}")

    def post_left(self, turn: int, message: Message, reported: int = 0) -> None:
        """Post that this process has left a pass, in which it had reported so many feeds."""
        self.post(f"{turn}/left", message)
        # for processes that wait for that feed
        self.first(news_of(turn, reported + 1), [0, None, self.me])
        self.first(f"{turn}/first left", self.me)

    def post_over(self, turn: int) -> None:
        """Post that a pass is over here: others need not wait for this process in it."""
        self._over.append(turn)
        if not fork_guard.forked:
            with suppress(jax.errors.JaxRuntimeError):  # jax.distributed was shut down
                self.post("over", list(self._over))

    def lose(self, process: int) -> None:
        """Post that another process is gone from all passes that are not over on it."""
        going = {self.turn, *(each.turn for each in list(self._passes) if not each.over)}
        for turn in going.difference(self.read_of("over", process) or ()):
            self.first(f"{turn}/left/{process}", Message(0, LOST))
            self.first(f"{turn}/first left", process)

    def leave(self, why: str) -> None:
        """Post that this process takes no more feeds of any pass, and why."""
        for each in list(self._passes):
            each.leave(why)
        if self.closed:  # before the reason was known: an error drops what a loop holds
            turn, message = self.closed
            self.post(f"{turn}/left", message._replace(end=why))
        self.post_left(self.turn, Message(0, why))

    def _key(self, subject: object, process: object) -> str:
        return f"{self._name}/{subject}/{process}"


def news_of(turn: int, feed: int) -> str:
    """Return the subject of the message on whether all processes have a feed, and how many more."""
    return f"{turn}/feeds/{feed // GROUP}/{feed}"


fork_guard = ForkGuard()
_boards: WeakSet[Board] = WeakSet()
_hooks: list[Any] = []  # the hooks that show errors, as they were
_failed: list[str] = []  # the error that ended this program


def _state() -> Any:
    # the store has no public access; a program without need of it never looks for it
    from jax._src import distributed  # noqa: PLC0415  # private, so imported on use

    return distributed.global_state


def _client() -> Any:
    return _state().client


def _watch_next(me: int, processes: list[int], ring: str) -> None:
    """Watch the next of the processes, once; post on all boards if it is gone."""
    if ring in _rings:
        return
    _rings.add(ring)
    other = processes[(processes.index(me) + 1) % len(processes)]
    with suppress(OSError):  # there is no network: jax gives up silent processes
        post = partial(_post, f"{_AT}{ring}/{me}")
        server = neighbours.listen(_state().coordinator_address, post)
        neighbours.watch(server, partial(_beat_of, f"{_AT}{ring}/{other}"), partial(_lose, other))


def _post(key: str, value: Any) -> bool:
    """Post a value in place of the previous one; return whether the run continues."""
    store = _client()
    with suppress(jax.errors.JaxRuntimeError):  # the run is over
        if store:
            store.key_value_set(key, json.dumps(value), allow_overwrite=True)
    return store is not None


def _beat_of(key: str) -> Any | None:
    """Return the posted value; () if there is none yet, None if the run is over.

    A thread inside a call of the store at interpreter exit aborts the process, so no call waits.
    """
    store = _client()
    with suppress(jax.errors.JaxRuntimeError):
        return store and json.loads(store.key_value_try_get(key))
    return ()


def _lose(process: int) -> None:
    _lost.add(process)
    for board in list(_boards):
        if process in board.others:
            with suppress(jax.errors.JaxRuntimeError):  # the run is over
                board.lose(process)


def _post_the_end(board: Board) -> None:
    """Make this program post its end, and the error that ended it."""
    _boards.add(board)
    if not _hooks:
        _hooks.append(sys.excepthook)
        sys.excepthook = _post_error


def _post_error(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    _hooks[0](kind, error, trace)
    if fork_guard.forked:
        return
    _failed.append(f"{kind.__name__}: {error}")
    _post_to_all(_failed[0])


def _post_to_all(why: str) -> None:
    for board in list(_boards):
        with suppress(jax.errors.JaxRuntimeError):  # the store may be gone, with its process
            board.leave(why)


@atexit.register  # early: what is registered before it runs after it, or never
def _leave() -> None:
    """Wait for the others as jax would, but only some seconds after an error."""
    store = _client() if _hooks and not fork_guard.forked else None
    if store is None:
        return
    if not _failed:
        _post_to_all(ENDED)
        return
    if not _any_process_gone(store):
        waiting = threading.Thread(target=jax.distributed.shutdown, daemon=True)
        waiting.start()
        waiting.join(_FAILURE_TIMEOUT)
        if not waiting.is_alive():
            return
    with suppress(jax.errors.JaxRuntimeError):
        store.key_value_set(f"{_GONE}{jax.process_index()}", "")
    sys.stderr.write(
        "jreader: this process leaves without the others, which may be in a step that cannot end.\n"
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _any_process_gone(store: Any) -> bool:
    try:
        return bool(store.key_value_dir_get(_GONE))
    except jax.errors.JaxRuntimeError:
        return True
