"""Processes agree on the feeds of one global array, so that none waits for ever.

If one process has a feed less than the others, these wait in a collective that never ends. So, if
each process reads a stream for itself, it reports how many feeds it has, and gives a feed to its
loop only when all have one (`counts.py`). Messages go through the key-value store of
`jax.distributed`, not through devices. A call takes some 0.2 ms, whatever the number of processes;
the prefetching thread makes a few per window of feeds.

Of a stream in lanes, each process reads some lanes, and posts their positions after each of its
last feeds. Only a cursor asks the others for them. When lanes end, the counts show it, and all
processes end the epoch at the same feed.

Indexed plans give the same feeds on all processes, so none of them waits. The process that begins a
pass first posts the position, and a hash of its plan, and the others compare theirs with it: with
another seed or length, one process would repeat some samples, and lose others, without an error.

In both cases, a process that leaves a pass early posts that, and why, and marks the pass. A thread
in each of the others waits for the mark, and then gives no feed that the process did not take.
Without a mark, processes do not read each other's posts.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from threading import Event, RLock, Thread
from typing import Any, TypeVar

import jax

from jreader.errors import ReaderError, ShortEpoch
from jreader.loaders.checkpoints.cursors import gathered
from jreader.loaders.checkpoints.positions import EpochPosition
from jreader.loaders.multihost.board import CLOSED, ENDED, LOST, Board, Message, fork_guard
from jreader.loaders.multihost.counts import Counts
from jreader.loaders.multihost.lane_places import Filler, LanesHere, places, scattered
from jreader.readers import Cursor, Pass
from jreader.readers.exits_and_forks import stop_at_exit
from jreader.readers.fingerprints import difference
from jreader.readers.hashing import text_hash
from jreader.workers.ahead import stoppable_pass

T = TypeVar("T")

TIMEOUT = 300.0
"""Seconds to wait for another process, as in `jax.distributed.initialize`."""
_WAIT_SECONDS = 0.1  # per wait, so that the consumer sees interrupts
_REASON_POLL_SECONDS = 0.05
_PLAN_TIMEOUT = 10.0  # seconds to wait for the lines of another plan after its hash
_PREFETCH_WAIT_SECONDS = 0.05  # longest wait of a prefetching thread
_REASON_TIMEOUT = 1.0  # seconds to wait for the reason of a failure that is known
_EXTRA_PLACES = 8  # places posted beyond those that both windows may have prepared
_LEAVE_POLL_SECONDS = 0.25  # between two checks for processes that have left


class Agreement:
    """The messages of one pass: those that this process posts, and those that it reads.

    Attributes:
        turn: The number of the pass.
        threads: The watching thread.
    """

    turn: int

    def __init__(
        self,
        board: Board,
        cursor: Cursor,
        timeout: float,
        about: Sequence[str] = (),
        lanes: LanesHere | None = None,
    ) -> None:
        """Post where the pass begins, or compare it with what another process has posted.

        Args:
            board: The board of the loader.
            cursor: The cursor at which the pass begins.
            timeout: Seconds to wait for another process; 0 for no limit.
            about: Lines that must be equal on all processes, besides the plan.
            lanes: The lanes that this process reads, if processes read different ones.

        Raises:
            ReaderError: Another process has begun at another step, position or plan.
        """
        self._board, self._timeout, self._cursor = board, timeout, cursor
        skips = [f"skip_steps=range({low}, {high})" for low, high, _ in cursor["skipped"]]
        self._lines = [*cursor["plan"]["ops"], *about, *skips]
        self._epoch, self._own = cursor["epoch"], Message()
        self._lacks_samples = deque[bool]()  # per unreported feed: does this process lack a sample
        self._gone: dict[int, Message] = {}  # the processes that have left
        self._peer_error: ReaderError | None = None
        self._lanes = lanes
        self._posting = RLock()  # reentrant: gc may drop a pass anywhere, which then posts
        self._taken = 0  # feeds that the loop has taken
        self._widest = 0  # the largest window of any process, once needed
        self._left = False
        self._ended = Event()
        self.threads: list[Thread] = []
        board.enter(self)
        self._counts = Counts(board, self.turn, self._has_feed)
        try:
            self._compare(cursor["epoch"], cursor["step"])
            if self._peer_error and not self.turn:  # a later pass may be of this process alone
                raise self._peer_error
        except ReaderError as error:
            board.post_left(self.turn, Message(0, str(error)))  # others may already wait
            raise

    def posting(self, host: Pass[T], window: int) -> Pass[T]:
        """Return a pass over host feeds that posts their number every `window` feeds, and its end.

        Raises:
            ReaderError: There are too many processes to be counted.
        """
        self._counts.check()

        def deal() -> Generator[T, None, None]:
            try:
                if self._lanes and self._board.first(f"{self.turn}/window", window) != window:
                    self._board.post(f"{self.turn}/other windows", window)
                for item in host.items:
                    self._count(item, host, window)
                    if self._own.feeds % window == 0:
                        self._post()
                        self._listen()
                    held = [item.feed if isinstance(item, Filler) else item]
                    del item  # so that its memory is free as soon as the loop drops it
                    yield held.pop()
            except Exception as error:
                self._post()
                reported = self._counts.reported  # fewer than it has, if the loop has left
                self._board.post_left(self.turn, Message(reported, _why(error)), reported)
                raise
            else:
                self._lacks_samples.append(True)
                self._own = self._own._replace(end="")
                self._post()

        return Pass(deal(), host.position, host.close)

    def agreed(self, feeds: Pass[T], *, streamed: bool = True) -> Pass[T]:
        """Return a pass that gives the feeds that all processes have, and posts where it is left.

        Args:
            feeds: The feeds of this process.
            streamed: Whether other processes may have fewer feeds; then the pass waits for their
                messages.

        Raises:
            ShortEpoch: One process has fewer feeds than the others.
            ReaderError: One process has failed, has left, or reads something else.
            TimeoutError: One process posts nothing for `timeout` seconds.
        """

        def deal() -> Generator[T, None, None]:
            try:
                self._start_watching(streamed=streamed)
                for feed in feeds.items:
                    held = [feed]
                    del feed
                    if not self._is_given(streamed=streamed):
                        break
                    self._taken += 1
                    yield held.pop()
                else:
                    if streamed:
                        self._agree(ends=True)
                self._left = True
                self._board.post_over(self.turn)
            except ShortEpoch:
                self._left = True  # from what is already posted, the others find the same
                raise
            except GeneratorExit as closed:
                error = closed.__context__
                self.leave(_why(error) if isinstance(error, Exception) else "")
                raise
            except BaseException as error:
                self.leave(_why(error))
                raise
            finally:
                self._ended.set()

        def position() -> tuple[Any, ...]:
            return self._position(feeds.position())

        return stoppable_pass(deal(), position, feeds.close)

    def _count(self, item: object, host: Pass[Any], window: int) -> None:
        """Count one more feed of this process, and record the positions of its lanes after it."""
        feeds, known = self._own.feeds + 1, self._own.places
        if self._lanes is not None:
            after = feeds, places(host.position(), self._lanes.numbers)
            if len(known) > 2 * window + _EXTRA_PLACES and not self._widest:
                self._widest = self._widest_of_all(window)
            known = [*known[-2 * (self._widest or window) - _EXTRA_PLACES :], after]
        self._lacks_samples.append(isinstance(item, Filler))
        self._own = Message(feeds, None, known)

    def _position(self, here: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the position after the loop's last feed, with the lanes that others read."""
        if self._lanes is None:
            return here
        if self._taken:
            return scattered(here, partial(self._places_of_others, self._taken))
        began = getattr(EpochPosition.of(self._cursor).batches, "others", tuple)
        return scattered(here, began)

    def _places_of_others(self, feeds: int) -> Iterator[tuple[int, Any]]:
        """Yield the positions of the other processes' lanes after so many feeds, as posted."""
        states = self._states()
        for process in self._board.others:
            known = dict(states[process].places) if process in states else {}
            if feeds not in known:
                raise ReaderError(
                    f"this process is at feed {feeds} of a pass in lanes, and process {process} "
                    f"is far ahead, and no longer keeps the places of its lanes at that feed: read "
                    f"the cursor (feeds.cursor, loader.state_dict()) before you begin later passes."
                )
            yield from known[feeds]

    def _widest_of_all(self, window: int) -> int:
        """Return the largest window of all processes: one may be so far ahead, or behind."""
        first = self._board.awaited(f"{self.turn}/window", _PLAN_TIMEOUT)
        others = self._board.read(f"{self.turn}/other windows").values()
        return max(map(int, [window, first or 0, *others]))

    def _has_feed(self, lacking: int) -> bool:
        """Return whether the epoch has a feed for which so many processes lack samples."""
        fills = self._lanes is not None and self._lanes.ends == "last"
        return lacking < (self._counts.processes if fills else 1)

    def _is_given(self, *, streamed: bool) -> bool:
        """Return whether the next feed belongs to the epoch, once all processes have it."""
        if self._gone:
            self._check_gone()
        if not streamed or self._taken < self._counts.agreed_feeds or self._agree(ends=False):
            return True
        self._check_steps()
        return False

    def _check_steps(self) -> None:
        """Check, when lanes have ended, that the epoch had as many steps as it needs.

        Raises:
            ShortEpoch: It had fewer.
        """
        needed = self._lanes and self._lanes.steps
        if needed and self._taken < needed:
            raise ShortEpoch(
                f"the lanes of epoch {self._epoch} ended {needed - self._taken} steps before "
                f"the end of it: give a steps_per_epoch that they can fill; or .epochs() below the "
                f"batches, so that lanes begin their next epoch; or last='wrap', which begins this "
                f"one again."
            )

    def _start_watching(self, *, streamed: bool) -> None:
        """Start the thread that watches for processes that leave.

        Raises:
            ReaderError: Another process reads another part of the stream.
        """
        if streamed and self._peer_error:
            raise self._peer_error
        stop_at_exit(self)
        self.threads = [Thread(target=self._watch, name="jreader agreement", daemon=True)]
        self.threads[0].start()

    def _watch(self) -> None:
        """Report on stderr which processes leave, as the loop may be in a step with them.

        A process that leaves after as many feeds as this one took did not fail: all may stop there.
        """
        failures: dict[int, Message] = {}
        often = _LEAVE_POLL_SECONDS + len(self._board.others) / 100  # one store serves all
        try:
            while not self._ended.wait(_LEAVE_POLL_SECONDS):
                if self._board.awaited(f"{self.turn}/first left", often) is None:
                    continue
                for process, parts in self._board.read(f"{self.turn}/left").items():
                    self._gone[process] = message = Message(*parts)
                    fails = message.feeds < self._taken or message.end not in (CLOSED, ENDED)
                    if fails and failures.get(process) != message:
                        failures[process] = message
                        sys.stderr.write(f"jreader: {_stopped(process, message)}.\n")
        except jax.errors.JaxRuntimeError:
            return  # jax.distributed was shut down

    @property
    def over(self) -> bool:
        """True if no more feeds follow."""
        return self._ended.is_set()

    def stop(self) -> None:
        """End the thread, which must not wait when the interpreter exits."""
        self._ended.set()
        if self.threads and self.threads[0].is_alive():
            with suppress(jax.errors.JaxRuntimeError):  # jax.distributed was shut down
                self._board.first(f"{self.turn}/first left", self._board.me)

    def leave(self, why: str = "") -> None:
        """Post that this process takes no more feeds of this pass; the first reason counts."""
        if fork_guard.forked:  # nor does a fork of this process
            return
        with self._posting:
            if self._left:
                return
            self._left = True
            message = Message(self._taken, why or CLOSED)
            if not why:
                self._board.closed = self.turn, message
            with suppress(jax.errors.JaxRuntimeError):  # jax.distributed was shut down
                self._board.post_left(self.turn, message, self._counts.reported)

    def _post(self) -> None:
        """Report the feeds that this process has since the last report, if any."""
        with self._posting:  # the waiting consumer and the prefetching thread both post
            mine = self._own  # another thread may count meanwhile
            more = mine.feeds + (mine.end is not None) - self._counts.reported
            if more and not self._left and not self._counts.over:
                self._board.post(f"{self.turn}/state", mine)
                self._counts.report([self._lacks_samples.popleft() for _ in range(more)])

    def _listen(self) -> None:
        """Wait, ahead of the loop, until others have as many feeds: here, waiting is free."""
        until, counts = time.monotonic() + _PREFETCH_WAIT_SECONDS, self._counts
        while counts.agreed_feeds < counts.reported and not counts.over:
            if not counts.wait_for_news(until - time.monotonic()):
                return

    def _agree(self, *, ends: bool) -> bool:
        """Wait until every process has a feed beyond those that the loop got, or all have ended.

        Returns:
            Whether all have that feed; False once all, or their lanes, have ended.

        Raises:
            ShortEpoch: Some processes have ended, and others not.
        """
        counts, first = self._counts, self._lanes is not None and self._lanes.ends == "first"
        if not ends and counts.reported <= self._taken:
            self._post()  # others wait for this feed, even if this process prepares no more
        if ends and first:
            return False
        self._wait()
        given = counts.agreed_feeds > self._taken
        alike = given or first or counts.lacking == counts.processes
        if not alike or (given and ends):
            raise self._short(ends=ends)
        return given

    def _wait(self) -> None:
        """Wait until it is known whether all processes have a feed beyond those of the loop.

        Raises:
            TimeoutError: It takes too long.
        """
        counts, until = self._counts, time.monotonic() + (self._timeout or inf)
        slice_ = _WAIT_SECONDS + len(self._board.others) / 1000  # one store serves all
        while counts.agreed_feeds <= self._taken and counts.lacking is None:
            heard = counts.gone is not None or counts.wait_for_news(
                min(slice_, until - time.monotonic())
            )
            if counts.gone is not None:
                left = self._board.read_of(f"{self.turn}/left", counts.gone)
                self._gone[counts.gone] = Message(*(left or ()))
            self._check_gone()
            if not heard and time.monotonic() > until:
                raise self._late()

    def _late(self) -> TimeoutError:
        others, states = self._board.others, self._states()
        has = {process: states[process].feeds if process in states else 0 for process in others}
        process = min(others, key=has.__getitem__)
        far = f"{has[process]} feeds" if process in states else "none"
        return TimeoutError(
            f"this process is at feed {self._taken} of a pass, and process {process} has reported "
            f"{far}, and nothing else for {self._timeout:g} s: it hangs, is gone, or does "
            "not iterate this loader. If it only takes longer, give the loader a longer "
            "peer_timeout=."
        )

    def _states(self) -> dict[int, Message]:
        """Return the latest reports of the other processes."""
        found = self._board.read(f"{self.turn}/state")
        return {process: Message(*parts) for process, parts in found.items()}

    def _check_gone(self) -> None:
        """Raise ReaderError if a process has failed, or left, before the next feed."""
        for process, message in list(self._gone.items()):
            if message.feeds <= self._taken:
                how = _stopped(process, self._final_message(process, message))
                raise ReaderError(
                    f"{how}. No step can go on without it; this process is at feed {self._taken}."
                )

    def _final_message(self, process: int, message: Message) -> Message:
        """Return a process's last message: an error closes its pass, then ends its program."""
        until = time.monotonic() + _REASON_TIMEOUT
        while message.end == CLOSED and time.monotonic() < until:
            time.sleep(_REASON_POLL_SECONDS)
            message = Message(*(self._board.read_of(f"{self.turn}/left", process) or message))
        return message

    def _short(self, *, ends: bool) -> ShortEpoch:
        short = [
            process
            for process, state in self._states().items()
            if state.end is not None and state.feeds <= self._taken
        ]
        more = [process for process in self._board.others if process not in short]
        ended, other = (self._board.me, more[0]) if ends else (short[0], self._board.me)
        seen = (
            f"process {ended} has {self._taken} feeds in epoch {self._epoch}, and process "
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

    def _compare(self, epoch: int, step: int) -> None:
        """Compare where this pass begins with the first process that began this pass.

        If that is at another step, compare with the first one that began this step.

        Raises:
            ReaderError: That process began this step with another plan, or at another position.
        """
        board, position = self._board, self._cursor["position"]
        plan = text_hash(self._lines, gathered(position) if self._cursor["samples"] else None)
        mine = [epoch, step, plan, board.me]
        for subject in (f"{self.turn}/begun", f"{self.turn}/begun {epoch} {step}"):
            first = board.first(subject, mine)
            if first == mine:
                board.first(f"{subject} lines", self._lines)
                board.began(self.turn)
            elif first[:3] != mine[:3]:
                where = f"epoch {first[0]}, step {first[1]}"
                if first[:2] == mine[:2]:
                    lines = board.awaited(f"{subject} lines", _PLAN_TIMEOUT) or []
                    raise self._other_plan(f"process {first[3]} begins {where}", lines)
                self._peer_error = ReaderError(
                    f"process {first[3]} began at {where}, and this one at epoch {epoch}, step "
                    f"{step}: all must iterate this loader alike, and resume from the same cursor."
                )
                continue
            return

    def _other_plan(self, begins: str, theirs: list[str]) -> ReaderError:
        if theirs == self._lines:
            return ReaderError(f"{begins} at another position: resume all from the same cursor.")
        line, one, other = difference(theirs, self._lines)
        return ReaderError(
            f"{begins} with another plan, whose line {line} is {one}; here it is {other}. Each "
            "process feeds its rows of one global batch: give all of them the same data, ops and "
            "seeds."
        )


def _why(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _stopped(process: int, message: Message) -> str:
    after = "" if message.end == LOST else f" stopped after {message.feeds} feeds of this pass"
    return f"process {process}{after}: {message.end}"
