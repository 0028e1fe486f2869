"""How processes agree on the feeds of one global array, so that none waits for ever.

If one process has a feed less than the others, these wait in a collective that never ends. So,
where each process reads a stream for itself, it posts how many feeds it has, and gives a feed to
its loop only when all have one. The messages go through the key-value store of `jax.distributed`,
not through devices. A call takes some 0.4 ms; the thread that looks ahead makes one for each window
of feeds. (On the loop's thread, a call for each feed cost 12 % of a step of 5 ms.)

Of a stream in lanes, each process reads some, and its messages say where these are after each feed:
so every process has the cursor of all. When lanes end, the messages say so too, and all processes
end the epoch at the same feed.

Indexed plans give the same feeds on all processes, so none of them waits. A process only compares
where it begins with the messages of the others, since another seed or length on one of them would
repeat some samples, and lose others, without an error.

In both cases, a process that leaves a pass before its end posts that, and why. The others look for
it a few times a second, on a thread, and give no feed that it did not take.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from math import inf
from threading import Event, RLock, Thread
from typing import Any, TypeVar

import jax

from jreader.errors import ReaderError, ShortEpoch
from jreader.loaders.multihost.board import CLOSED, ENDED, Board, Message, begun, fork_guard
from jreader.loaders.multihost.lane_places import Filler, LanesHere, Places, places, with_places
from jreader.readers import Cursor, Pass
from jreader.readers.exits_and_forks import stop_at_exit
from jreader.readers.fingerprints import difference
from jreader.readers.hashing import text_hash
from jreader.workers.ahead import stoppable_pass

T = TypeVar("T")

TIMEOUT = 300.0
"""Seconds that another process is waited for, as `jax.distributed.initialize` does."""
_SHORTEST, _LONGEST = 0.001, 0.05  # seconds between two looks at a process that is waited for
_MOMENT = 0.05  # seconds that a look-ahead listens for at most
_LAST = 1.0  # seconds that the reason may come after the word
_MORE = 8  # feeds of which places are posted, besides those that both may have prepared
_OFTEN = 0.25  # seconds between two looks at whether one has left


class Agreement:
    """The messages of one pass: those that this process posts, and those that it reads."""

    def __init__(
        self,
        board: Board,
        cursor: Cursor,
        timeout: float,
        about: Sequence[str] = (),
        lanes: LanesHere | None = None,
    ) -> None:
        """Posts where the pass begins, and compares it with what others have posted.

        Args:
            board: The board of the loader.
            cursor: The cursor that the pass begins at.
            timeout: The seconds to wait for another process; 0 for no limit.
            about: Lines that must be equal on all processes, besides the plan.
            lanes: The lanes that this process reads, if others read others.

        Raises:
            ReaderError: Another process has begun at another step, position or plan.
        """
        self._board, self._timeout, self._turn = board, timeout, board.turn(self)
        skips = [f"skip_steps=range({low}, {high})" for low, high, _ in cursor["skipped"]]
        self._lines = [*cursor["plan"]["ops"], *about, *skips]
        position = cursor["position"] if cursor["samples"] else None
        plan = text_hash(self._lines, position)
        self._mine = self._posted = Message(cursor["epoch"], cursor["step"], plan)
        self._received: dict[int, Message] = {}
        self._lanes = lanes
        self._places: dict[int, dict[int, Places]] = {}  # of each process, after each feed
        self._posting = RLock()  # reentrant: gc may drop a pass, which tells of that, anywhere
        self._given = 0  # feeds that the loop got
        self._left = False
        self._ended = Event()
        self.threads: list[Thread] = []
        board.post(begun(self._turn), [self._mine, self._lines])
        try:
            for process, (parts, _) in board.read(begun(self._turn)).items():
                message = self._compared(process, Message(*parts))
                if self._turn == 0 and message[:2] != self._mine[:2]:  # later, one may look alone
                    raise self._elsewhere(process, message)
        except ReaderError as error:
            self._post(str(error))  # others may wait already
            raise

    def posting(self, host: Pass[T], window: int) -> Pass[T]:
        """A pass over host feeds that posts their number, every `window` feeds, and how it ends."""

        def deal() -> Generator[T, None, None]:
            try:
                for item in host.items:
                    self._mine = self._counted(item, host, window)
                    if self._mine.feeds % window == 0:
                        self._post()
                        self._listen()
                    held = [item.feed if isinstance(item, Filler) else item]
                    del item  # so that its memory is free as soon as the loop drops it
                    yield held.pop()
            except Exception as error:
                self._post(f"{type(error).__name__}: {error}")
                raise
            else:
                self._post("")
            finally:
                self._board.finished(self._turn)

        return Pass(deal(), host.position, host.close)

    def agreed(self, feeds: Pass[T], *, streamed: bool = True) -> Pass[T]:
        """A pass that gives the feeds that all processes have, and posts where it is left.

        Args:
            feeds: The feeds of this process.
            streamed: Whether other processes may have fewer feeds; then it waits for their
                messages.

        Raises:
            ShortEpoch: One process has fewer feeds than the others.
            ReaderError: One process has failed, has left, or reads something else.
            TimeoutError: One process posts nothing for `timeout` seconds.
        """

        def deal() -> Generator[T, None, None]:
            try:
                self._start_watching()
                for feed in feeds.items:
                    held = [feed]
                    del feed
                    if not self._is_given(streamed=streamed):
                        return
                    self._given += 1
                    yield held.pop()
                if streamed:
                    self._agree(ends=True)
                self._left = True
            except ShortEpoch:
                self._left = True  # what was posted already has the others find the same
                raise
            except GeneratorExit as closed:
                error = closed.__context__
                self.leave(_why(error) if isinstance(error, Exception) else "")
                raise
            except BaseException as error:
                self.leave(_why(error))
                raise
            finally:
                self.stop()

        def position() -> tuple[Any, ...]:
            here: tuple[Any, ...] = feeds.position()
            if not self._lanes or not self._given:
                return here
            return with_places(here, map(self._places_of, self._board.others))

        return stoppable_pass(deal(), position, feeds.close)

    def _counted(self, item: object, host: Pass[Any], window: int) -> Message:
        """The message of this process once it has one feed more."""
        mine = self._mine._replace(feeds=self._mine.feeds + 1)
        if self._lanes is None:
            return mine
        after = mine.feeds, places(host.position(), self._lanes.numbers)
        known = [*mine.places[-2 * window - _MORE :], after]
        dry = mine.feeds - 1 if isinstance(item, Filler) and mine.dry is None else mine.dry
        return mine._replace(dry=dry, places=known)

    def _is_given(self, *, streamed: bool) -> bool:
        """Whether the next feed belongs to the epoch, once all processes have it."""
        if not streamed:
            for process in self._board.others if self._received else ():
                self._unsure(process, ends=False)  # raises if it has left
            return True
        if self._agree(ends=False):
            return True
        self._left = True
        self._check_steps()
        return False

    def _places_of(self, process: int) -> Places:
        """Where the lanes of another process are after the feeds that the loop got."""
        known = self._places.get(process, {})
        for feeds in [*known]:
            if feeds < self._given:
                known.pop(feeds, None)
        return known[self._given]

    def _check_steps(self) -> None:
        """Checks, when lanes have ended, that the epoch had as many steps as it needs.

        Raises:
            ShortEpoch: It had fewer.
        """
        needed = self._lanes and self._lanes.steps
        if needed and self._given < needed:
            raise ShortEpoch(
                f"the lanes of epoch {self._mine.epoch} ended {needed - self._given} steps before "
                f"the end of it: give a steps_per_epoch that they can fill; or .epochs() below the "
                f"batches, so that lanes begin their next epoch; or last='wrap', which begins this "
                f"one again."
            )

    def _start_watching(self) -> None:
        """Starts the thread that looks whether another process leaves."""
        stop_at_exit(self)
        self.threads = [Thread(target=self._watch, name="jreader agreement", daemon=True)]
        self.threads[0].start()

    def _watch(self) -> None:
        """Reports processes that leave, on stderr, since the loop may be in a step with them.

        A process that leaves after as many feeds as this one took did not fail: all may stop there.
        """
        said: dict[int, Message] = {}
        often = _OFTEN + len(self._board.others) / 100  # one store serves all
        while not self._ended.wait(often):
            try:
                self._receive()
            except (ReaderError, jax.errors.JaxRuntimeError):
                return  # the consumer meets it too; or jax.distributed was shut down
            for process, message in list(self._received.items()):
                fails = message.feeds < self._given or message.end not in (CLOSED, ENDED)
                if message.end and fails and said.get(process) != message:
                    said[process] = message
                    sys.stderr.write(f"jreader: {_stopped(process, message)}.\n")

    def stop(self) -> None:
        """Ends the thread."""
        self._ended.set()

    def leave(self, why: str = "") -> None:
        """Posts that this process takes no more feeds of this pass; the first reason counts."""
        if fork_guard.forked:  # nor does a fork of it
            return
        with self._posting:
            if self._left:
                return
            self._left = True
            message = self._mine._replace(feeds=self._given, end=why or CLOSED)
            if not why:
                self._board.closed = self._turn, message
            with suppress(jax.errors.JaxRuntimeError):  # jax.distributed was shut down
                self._board.post(self._turn, message)
                self._board.finished(self._turn)

    def _post(self, end: str | None = None) -> None:
        """Posts how many feeds this process has, if that has changed."""
        with self._posting:  # the consumer, who waits, and whoever looks ahead
            if end is not None:
                self._mine = self._mine._replace(end=end)
            mine = self._mine  # another thread may go on counting
            if mine != self._posted and not self._left:
                self._board.post(self._turn, mine)
                self._posted = mine

    def _listen(self) -> None:
        """Reads, before the loop asks, whether others have as many feeds: ahead, that is free."""
        until, pause = time.monotonic() + _MOMENT, _SHORTEST
        while time.monotonic() < until:
            self._receive()
            received = list(self._received.values())  # the consumer may hear of more meanwhile
            if sum(map(self._as_far, received)) == len(self._board.others):
                return
            time.sleep(pause)
            pause *= 2

    def _as_far(self, message: Message) -> bool:
        return message.feeds >= self._mine.feeds or message.end is not None

    def _receive(self) -> None:
        for process, parts in self._board.read(self._turn).items():
            self._note(process, parts)

    def _note(self, process: int, parts: Any) -> None:
        message = Message(*parts)
        if message.places:
            self._places.setdefault(process, {}).update(message.places)
        self._received[process] = message if message.end else self._compared(process, message)

    def _agree(self, *, ends: bool) -> bool:
        """Waits until every process has a feed beyond those that the loop got, or all have ended.

        Returns:
            Whether that feed is one of this epoch: False once lanes have ended.
        """
        late = [process for process in self._board.others if self._unsure(process, ends=ends)]
        if not ends and self._posted.feeds <= self._given:
            self._post()  # others wait for this feed, also if this process prepares no more
        if late:
            self._receive()
        for process in late:
            self._wait_for(process, ends=ends)
        return ends or not self._is_beyond()

    def _wait_for(self, process: int, *, ends: bool) -> None:
        """Reads the messages of a process until it is known if it has as many feeds.

        Raises:
            TimeoutError: It posts nothing for too long.
        """
        until, pause = time.monotonic() + (self._timeout or inf), _SHORTEST
        while self._unsure(process, ends=ends):
            if time.monotonic() > until:
                message = self._received.get(process)
                far = f"reported {message.feeds} feeds" if message else "reported none"
                raise TimeoutError(
                    f"this process is at feed {self._given} of a pass, and process {process} has "
                    f"{far}, and nothing else for {self._timeout:g} s: it hangs, is gone, or does "
                    "not iterate this loader. If it only takes longer, give the loader a longer "
                    "peer_timeout=."
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST)
            if parts := self._board.read_of(self._turn, process):
                self._note(process, parts)

    def _is_beyond(self) -> bool:
        """Whether lanes have ended, so that the epoch has no feed after those that the loop got."""
        others = [self._received[process] for process in self._board.others]
        if self._lanes and self._lanes.ends == "last":
            return all(
                message.dry is not None and message.dry <= self._given
                for message in (self._mine, *others)
            )
        return any(message.end == "" and message.feeds <= self._given for message in others)

    def _unsure(self, process: int, *, ends: bool) -> bool:
        """Whether it is still unknown if a process has as many feeds; raises if it has not."""
        message = self._received.get(process)
        if message is None:
            return True
        self._check_there(process, message)
        behind = message.feeds <= self._given
        waits = behind and message.end is None
        if self._lanes and self._lanes.ends == "first":
            return waits and not ends
        if ends != behind and not waits:
            ended, other = (self._board.me, process) if ends else (process, self._board.me)
            raise self._short(ended, other)
        return waits

    def _check_there(self, process: int, message: Message) -> None:
        """Raises ReaderError if a process has failed, has left, or is somewhere else."""
        if message.end and message.feeds <= self._given:
            how = _stopped(process, self._in_the_end(process, message))
            raise ReaderError(
                f"{how}. No step can go on without it; this process is at feed {self._given}."
            )
        if message[:2] != self._mine[:2]:
            raise self._elsewhere(process, message)

    def _in_the_end(self, process: int, message: Message) -> Message:
        """The last message of a process: an error first closes its pass, then ends its program."""
        until = time.monotonic() + _LAST
        while message.end == CLOSED and time.monotonic() < until:
            time.sleep(_LONGEST)
            message = Message(*(self._board.read_of(self._turn, process) or message))
        return message

    def _short(self, ended: int, other: int) -> ShortEpoch:
        seen = (
            f"process {ended} has {self._given} feeds in epoch {self._mine.epoch}, and process "
            f"{other} has more."
        )
        if self._lanes:
            return ShortEpoch(
                f"{seen} Their lanes end at different steps: with last='drop' the epoch ends with "
                f"the first, with 'pad' the rows of those that have ended are zeros, under a mask, "
                f"and with 'wrap' they begin again."
            )
        return ShortEpoch(
            f"{seen} Each process reads the whole stream, and keeps its rows: give all of them the "
            "same files in the same order, and the same seeds."
        )

    def _compared(self, process: int, message: Message) -> Message:
        """The message of a process, once it is known to begin this step with the same plan.

        Raises:
            ReaderError: It begins with another plan, or at another position.
        """
        if message[:2] != self._mine[:2] or message.plan == self._mine.plan:
            return message
        _, theirs = self._board.read_of(begun(self._turn), process) or (0, [])
        begins = f"process {process} begins epoch {message.epoch}, step {message.step}"
        if theirs == self._lines:
            raise ReaderError(f"{begins} at another position: resume all at one cursor.")
        line, one, other = difference(theirs, self._lines)
        raise ReaderError(
            f"{begins} with another plan, whose line {line} is {one}; here it is {other}. Each "
            "process feeds its rows of one global batch: give all of them the same data, ops and "
            "seeds."
        )

    def _elsewhere(self, process: int, message: Message) -> ReaderError:
        return ReaderError(
            f"process {process} began at epoch {message.epoch}, step {message.step}, and this one "
            f"at epoch {self._mine.epoch}, step {self._mine.step}: all have to iterate this loader "
            f"alike, and to resume at one cursor."
        )


def _why(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _stopped(process: int, message: Message) -> str:
    return f"process {process} stopped after {message.feeds} feeds of this pass: {message.end}"
