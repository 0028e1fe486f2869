"""`Board`: where processes of one run post messages to each other, also when one of them fails.

A process that ends with an error would wait for the others in jax's shutdown for minutes. The
others would wait for it in a step that it never joins, as long as its connections are open. So it
posts what happened, waits for the others for some seconds, and exits: then the step that they wait
in fails with an error.
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
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

import jax

from jreader.loaders.multihost.lane_places import Places
from jreader.readers.exits_and_forks import ForkGuard

_KEPT = 16  # passes whose words are left to those that are slower
_PATIENCE = 10.0  # seconds that a process that has failed waits for the others
_NUMBERS: defaultdict[str, Iterator[int]] = defaultdict(count)
_GONE = "jreader/gone/"
CLOSED, ENDED = "it closed the pass before its end", "its program has ended"


class Message(NamedTuple):
    """The message of a process about a pass.

    Attributes:
        epoch: The epoch that the pass began in.
        step: The step that it began at.
        plan: A hash of the plan, and of the position that it began at.
        feeds: How many feeds are prepared; once the pass is closed, how many its loop got.
        end: None while there may be more feeds; "" after the last one; or what went wrong.
        dry: After how many feeds all lanes of the process had ended; None if one has not.
        places: Of the last feeds: its number, from 1, and where the lanes of the process are then.
    """

    epoch: int
    step: int
    plan: str
    feeds: int = 0
    end: str | None = None
    dry: int | None = None
    places: Sequence[tuple[int, Places]] = ()


class Leaving(Protocol):
    """A pass that can be left before its end."""

    def leave(self, why: str) -> None:
        """Posts that this process takes no more feeds of the pass, and why."""


class Board:
    """The messages of the processes of one loader: a value of each process for each subject.

    Attributes:
        me: The index of this process.
        others: The indices of the other processes that feed the same arrays.
        closed: The number and the message of the pass that was closed last, until another begins.
    """

    closed: tuple[int, Message] | None = None

    def __init__(self, processes: set[int], made_at: str) -> None:
        """Makes the board, named after the line that made the loader, equal on all processes.

        A loader that only one process iterates does not change the names of others. The line that
        iterates would not do: it lies in tqdm where a process shows a progress bar.

        Raises:
            RuntimeError: `jax.distributed` is not initialized.
        """
        path, _, line = made_at.rpartition(":")
        called = f"{Path(path).name}:{line}"
        self.me = jax.process_index()
        self.others = sorted(processes - {self.me})
        self._name = f"jreader/{called}/{next(_NUMBERS[called])}"
        self._turn, self._done = 0, deque[int]()
        self._passes: WeakSet[Leaving] = WeakSet()
        self._store: Any = _client()
        if self._store is None:
            raise RuntimeError(
                "processes tell one another how far they are through jax.distributed, and that is "
                "not set up: call jax.distributed.initialize() before anything else of jax."
            )
        _post_the_end(self)

    def turn(self, each: Leaving) -> int:
        """The number of the next pass; it deletes messages of passes long before."""
        self._passes.add(each)
        self.closed = None
        turn, self._turn = self._turn, self._turn + 1
        deleted: list[object] = [begun(turn - _KEPT)] if turn >= _KEPT else []
        while len(self._done) > _KEPT:
            deleted.append(self._done.popleft())
        for subject in deleted:
            self._store.key_value_delete(self._key(subject, self.me))
        return turn

    def finished(self, turn: int) -> None:
        """Marks the messages of a pass, to be deleted later."""
        self._done.append(turn)

    def post(self, subject: object, value: Any) -> None:
        """Posts a value for a subject, as JSON, in place of the one before."""
        text = json.dumps(value)
        self._store.key_value_set(self._key(subject, self.me), text, allow_overwrite=True)

    def read(self, subject: object) -> dict[int, Any]:
        """The values of the other processes for a subject."""
        found = self._store.key_value_dir_get(self._key(subject, ""))
        texts = {int(key.rpartition("/")[2]): text for key, text in found}
        return {each: json.loads(text) for each, text in texts.items() if each in self.others}

    def read_of(self, subject: object, process: int) -> Any | None:
        """The value of one process for a subject; None if there is none."""
        try:
            return json.loads(self._store.key_value_try_get(self._key(subject, process)))
        except jax.errors.JaxRuntimeError as error:
            if "NOT_FOUND" in str(error):
                return None
            raise

    def leave(self, why: str) -> None:
        """Posts that this process takes no more feeds of any pass, and why."""
        for each in list(self._passes):
            each.leave(why)
        if self.closed:  # before anybody knew why: an error drops what a loop holds
            turn, message = self.closed
            self.post(turn, message._replace(end=why))
        self.post(self._turn, Message(-1, -1, "", 0, why))

    def _key(self, subject: object, process: object) -> str:
        return f"{self._name}/{subject}/{process}"


def begun(turn: int) -> str:
    """The subject of the message that says where a pass begins."""
    return f"begun {turn}"


fork_guard = ForkGuard()
_boards: WeakSet[Board] = WeakSet()
_hooks: list[Any] = []  # what shows an error, as it was before
_failed: list[str] = []  # what this program ended with


def _client() -> Any:
    # there is no public way to the store; who has no need of it need not find it
    from jax._src import distributed  # noqa: PLC0415  # as said

    return distributed.global_state.client


def _post_the_end(board: Board) -> None:
    """Makes this program post its end, and the error that ended it."""
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
        with suppress(jax.errors.JaxRuntimeError):  # the store may be gone, with the process of it
            board.leave(why)


@atexit.register  # here, as early as can be: what is registered earlier may not be called
def _leave() -> None:
    """Waits for the others as jax would, but only some seconds after an error."""
    store = _client() if _hooks and not fork_guard.forked else None
    if store is None:
        return
    if not _failed:
        _post_to_all(ENDED)
        return
    if not _somebody_is_gone(store):
        waiting = threading.Thread(target=jax.distributed.shutdown, daemon=True)
        waiting.start()
        waiting.join(_PATIENCE)
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


def _somebody_is_gone(store: Any) -> bool:
    try:
        return bool(store.key_value_dir_get(_GONE))
    except jax.errors.JaxRuntimeError:
        return True
