"""What processes tell one another of the feeds of one global array, so that none waits for ever.

A process that has a feed less than the others leaves them in a collective that never ends. So,
where each of them reads a stream for itself, it tells how far it has got, and hands over a feed
only when all have one. They use the key-value store of `jax.distributed`, beside the devices: a
call takes some 0.4 ms, and is made once for each window of look-ahead, not for each feed, by those
who look ahead. On the consumer's thread it cost 12 % of a step of 5 ms; there it costs nothing.

Plans whose samples are found by place give the same feeds everywhere, so there nobody waits: a
process only compares where it begins with what others have told, since another seed or another
length on one of them would repeat some samples, and lose others, without a word.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict, deque
from collections.abc import Generator, Iterator, Sequence
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import jax

from jreader.errors import ReaderError, ShortEpoch
from jreader.loaders.cursors import difference
from jreader.readers import Cursor, Pass
from jreader.readers.identities import text_hash

T = TypeVar("T")

TIMEOUT = 300.0
"""Seconds that another process is waited for, as `jax.distributed.initialize` does."""
_SHORTEST, _LONGEST = 0.001, 0.05  # seconds between two looks at a process that is waited for
_MOMENT = 0.05  # seconds that a look-ahead listens for at most
_KEPT = 16  # passes whose words are left to those that are slower
_NUMBERS: defaultdict[str, Iterator[int]] = defaultdict(count)


class Told(NamedTuple):
    """What a process says of a pass.

    Attributes:
        epoch: The epoch it began in.
        step: The step it began at.
        plan: A hash of the plan, and of the place in it.
        feeds: How many feeds are prepared.
        end: None while there may be more; "" behind the last one; or what went wrong.
    """

    epoch: int
    step: int
    plan: str
    feeds: int = 0
    end: str | None = None


class Board:
    """Where the processes of one loader leave word: a text of each of them about each subject.

    Attributes:
        me: The number of this process.
        others: Those of the others that feed the same arrays.
    """

    def __init__(self, processes: set[int], made_at: str) -> None:
        """Is named after the line that made the loader: what only one process iterates shifts none.

        Not after the line that iterates, which is one of tqdm where only one process shows a bar.

        Raises:
            RuntimeError: There is no store.
        """
        # there is no public way to the store; who has no need of it need not find it
        from jax._src import distributed  # noqa: PLC0415  # as said

        path, _, line = made_at.rpartition(":")
        called = f"{Path(path).name}:{line}"
        self.me = jax.process_index()
        self.others = sorted(processes - {self.me})
        self._name = f"jreader/{called}/{next(_NUMBERS[called])}"
        self._turns, self._done = count(), deque[int]()
        self._store: Any = distributed.global_state.client
        if self._store is None:
            raise RuntimeError(
                "processes tell one another how far they are through jax.distributed, and it is "
                "not there: call jax.distributed.initialize() before anything else of jax."
            )

    def turn(self) -> int:
        """The number of the next pass."""
        turn = next(self._turns)
        forgotten: list[object] = [begun(turn - _KEPT)] if turn >= _KEPT else []
        while len(self._done) > _KEPT:
            forgotten.append(self._done.popleft())
        for subject in forgotten:
            self._store.key_value_delete(self._key(subject, self.me))
        return turn

    def finished(self, turn: int) -> None:
        """Lets what was told of a pass be forgotten later."""
        self._done.append(turn)

    def post(self, subject: object, text: str) -> None:
        """Leaves word, in place of what was said before."""
        self._store.key_value_set(self._key(subject, self.me), text, allow_overwrite=True)

    def read(self, subject: object) -> dict[int, str]:
        """What the others have left."""
        found = self._store.key_value_dir_get(self._key(subject, ""))
        texts = {int(key.rpartition("/")[2]): text for key, text in found}
        return {process: text for process, text in texts.items() if process in self.others}

    def read_of(self, subject: object, process: int) -> str | None:
        """What one has left."""
        try:
            text: str = self._store.key_value_try_get(self._key(subject, process))
        except jax.errors.JaxRuntimeError as error:
            if "NOT_FOUND" in str(error):
                return None
            raise
        return text

    def _key(self, subject: object, process: object) -> str:
        return f"{self._name}/{subject}/{process}"


def begun(turn: int) -> str:
    """The subject of where a pass begins."""
    return f"begun {turn}"


class Agreement:
    """What is told of one pass."""

    def __init__(
        self, board: Board, cursor: Cursor, timeout: float, about: Sequence[str] = ()
    ) -> None:
        """Tells where the pass begins, and compares that with what others have told.

        Args:
            board: That of the loader.
            cursor: Where the pass begins.
            timeout: Seconds that another process is waited for; 0 for any.
            about: What else has to be the same everywhere.

        Raises:
            ReaderError: Another process has begun the same step with another plan, or elsewhere.
        """
        self._board, self._timeout, self._turn = board, timeout, board.turn()
        skips = [f"skip_steps=range({low}, {high})" for low, high, _ in cursor["skipped"]]
        self._lines = [*cursor["plan"]["ops"], *about, *skips]
        place = cursor["position"] if cursor["samples"] else None
        plan = text_hash(self._lines, place)
        self._mine = self._said = Told(cursor["epoch"], cursor["step"], plan)
        self._heard: dict[int, Told] = {}
        self._telling = Lock()
        board.post(begun(self._turn), json.dumps([self._mine, self._lines]))
        try:
            for process, text in board.read(begun(self._turn)).items():
                told = self._compared(process, Told(*json.loads(text)[0]))
                if self._turn == 0 and told[:2] != self._mine[:2]:  # later, one may look alone
                    raise self._elsewhere(process, told)
        except ReaderError as error:
            self._tell(str(error))  # others may wait already
            raise

    def telling(self, host: Pass[T], window: int) -> Pass[T]:
        """A pass that tells how far it has got, every `window` items, and how it ends."""

        def deal() -> Generator[T, None, None]:
            try:
                for item in host.items:
                    self._mine = self._mine._replace(feeds=self._mine.feeds + 1)
                    if self._mine.feeds % window == 0:
                        self._tell()
                        self._listen()
                    held = [item]
                    del item  # and nothing here holds what is handed over
                    yield held.pop()
            except Exception as error:
                self._tell(f"{type(error).__name__}: {error}")
                raise
            else:
                self._tell("")
            finally:
                self._board.finished(self._turn)

        return Pass(deal(), host.position, host.close)

    def heeding(self, feeds: Pass[T]) -> Pass[T]:
        """A pass that hands over what all processes have.

        Raises:
            ShortEpoch: One ends before the others.
            ReaderError: One has gone wrong, or reads something else.
            TimeoutError: One is not heard of.
        """

        def deal() -> Generator[T, None, None]:
            given = 0
            for feed in feeds.items:
                held = [feed]
                del feed
                self._agree(given, ends=False)
                given += 1
                yield held.pop()
            self._agree(given, ends=True)

        return Pass(deal(), feeds.position, feeds.close)

    def _tell(self, end: str | None = None) -> None:
        """Says how far this process is, if that is more than it has said."""
        with self._telling:  # the consumer, who waits, and whoever looks ahead
            if end is not None:
                self._mine = self._mine._replace(end=end)
            mine = self._mine  # another thread may go on counting
            if mine != self._said:
                self._board.post(self._turn, json.dumps(mine))
                self._said = mine

    def _listen(self) -> None:
        """Hears that others have as much, before the consumer asks: looking ahead, that is free."""
        until, pause = time.monotonic() + _MOMENT, _SHORTEST
        while time.monotonic() < until:
            self._hear()
            heard = list(self._heard.values())  # the consumer may hear of more meanwhile
            if sum(map(self._as_far, heard)) == len(self._board.others):
                return
            time.sleep(pause)
            pause *= 2

    def _as_far(self, told: Told) -> bool:
        return told.feeds >= self._mine.feeds or told.end is not None

    def _hear(self) -> None:
        for process, text in self._board.read(self._turn).items():
            self._heard[process] = self._compared(process, Told(*json.loads(text)))

    def _agree(self, given: int, *, ends: bool) -> None:
        """Returns when every process has another feed after so many, or has none either."""
        late = [process for process in self._board.others if self._unsure(process, given, ends)]
        if not ends and self._said.feeds <= given:
            self._tell()  # others wait for what is handed over, also if nothing more is drawn here
        if late:
            self._hear()
        for process in late:
            began, pause = time.monotonic(), _SHORTEST
            while self._unsure(process, given, ends):
                if self._timeout and time.monotonic() - began > self._timeout:
                    raise self._silent(process, given)
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST)
                if text := self._board.read_of(self._turn, process):
                    self._heard[process] = self._compared(process, Told(*json.loads(text)))

    def _unsure(self, process: int, given: int, ends: bool) -> bool:
        """Whether it is not yet known that a process has as much; that it has not is raised."""
        told = self._heard.get(process)
        if told is None:
            return True
        if told[:2] != self._mine[:2]:
            raise self._elsewhere(process, told)
        behind = told.feeds <= given
        if behind and told.end:
            raise ReaderError(
                f"process {process} stopped after {given} feeds of this pass, and no step can go "
                f"on without it: {told.end}"
            )
        if ends and not behind:
            raise self._short(self._board.me, process, given)
        if not ends and behind and told.end == "":
            raise self._short(process, self._board.me, given)
        return behind and told.end is None

    def _short(self, ended: int, other: int, given: int) -> ShortEpoch:
        return ShortEpoch(
            f"process {ended} has {given} feeds in epoch {self._mine.epoch}, and process {other} "
            f"has more. Each reads the whole stream, and keeps its rows: give all the same files "
            f"in the same order, and the same seeds."
        )

    def _compared(self, process: int, told: Told) -> Told:
        """What a process tells; refused where it begins this step with something else."""
        if told[:2] != self._mine[:2] or told.plan == self._mine.plan:
            return told
        theirs = json.loads(self._board.read_of(begun(self._turn), process) or "[0, []]")[1]
        begins = f"process {process} begins epoch {told.epoch}, step {told.step}"
        if theirs == self._lines:
            raise ReaderError(f"{begins} at another place of the plan: resume all at one cursor.")
        line, one, other = difference(theirs, self._lines)
        raise ReaderError(
            f"{begins} with another plan, whose line {line} is {one}; here it is {other}. Each "
            f"feeds its rows of one global batch: give all the same data, ops and seeds."
        )

    def _elsewhere(self, process: int, told: Told) -> ReaderError:
        return ReaderError(
            f"process {process} began at epoch {told.epoch}, step {told.step}, and this one at "
            f"epoch {self._mine.epoch}, step {self._mine.step}: all have to iterate this loader "
            f"alike, and to resume at one cursor."
        )

    def _silent(self, process: int, given: int) -> TimeoutError:
        told = self._heard.get(process)
        far = f"told of {told.feeds} feeds" if told else "told of none"
        return TimeoutError(
            f"this process is at feed {given} of a pass, and process {process} has {far}, and "
            f"of nothing else for {self._timeout:g} s: it hangs, is gone, or does not iterate this "
            f"loader. If it only takes longer, give the loader a longer timeout=."
        )
