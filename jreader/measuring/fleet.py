"""`Fleet`: merge the reports of all processes of a run, to find the one that the others wait for.

Processes that train together step together, so a delay of one delays all: while its loop waits for
its own data, the others wait in the step or, where they agree on each feed of a stream, for the
feed. So a waiting process may have its data ready. Its wait for its own data is at most the time
that its reading thread works on a feed: the smaller of the two counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from jreader.loaders.multihost.board import Board
from jreader.measuring.verdicts import WAITS


@dataclass(frozen=True)
class Fleet:
    """The process that the others wait for; `str(fleet)` names it, with advice.

    Attributes:
        process: Its number, `jax.process_index()`.
        host: The name of its machine.
        limit: The stage that limits its data, and what to change there.
        waits: Seconds per feed that its loop waits for its own data.
        step: Seconds from feed to feed.
        waited: The share of a step in which the others wait for this process alone.
        silent: The numbers of the processes that did not answer.
    """

    process: int
    host: str
    limit: str
    waits: float
    step: float
    waited: float = 0.0
    silent: Sequence[int] = ()

    def __str__(self) -> str:
        """Name the slowest process, how long the others wait for it, and what to change there."""
        silent = f" No report(loader, fleet=True) from {self.silent}." if self.silent else ""
        if self.waits < WAITS * self.step:
            return (
                f"The step limits all processes, not the data: none waits for data in more than "
                f"{self.waits / self.step:.0%} of each step.{silent}"
            )
        return (
            f"Process {self.process} (on {self.host}) is the slowest: the others wait for its data "
            f"in {self.waited:.0%} of each step. What limits there is {self.limit}.{silent}"
        )


def slowest_of(fleets: Iterable[Fleet], silent: Sequence[int] = ()) -> Fleet:
    """Merge the reports of single processes, in any order, into one.

    >>> one = Fleet(0, "a", "the source; read several parts at once", waits=0.1, step=0.5)
    >>> other = Fleet(1, "b", "the map `decode`; `threads=4`", waits=0.4, step=0.5)
    >>> print(slowest_of([one, other]))
    Process 1 (on b) is the slowest: the others wait for its data in 60% of each step. What limits
    there is the map `decode`; `threads=4`.
    """
    slowest, *rest = sorted(fleets, key=lambda each: (-each.waits, each.process))
    more = slowest.waits - max((each.waits for each in rest), default=0.0)
    return replace(slowest, waited=more / slowest.step, silent=silent)


def exchanged(board: Board, mine: Fleet, at: int, seconds: float) -> Fleet:
    """Post the report of this process, and return the merged one, which the first process makes.

    So what each other process posts and reads does not grow with their number.

    Args:
        board: Where the processes post.
        mine: The fleet of this process alone.
        at: The number of feeds that the loop of each process has received.
        seconds: How long the first process waits for the others; they wait for it twice as long.
    """
    subject, first = f"{board.turn}/report {at}", min([board.me, *board.others])
    board.post(f"{subject}/each", asdict(mine))
    if board.me > first and (found := board.awaited(f"{subject}/all/{first}", 2 * seconds)):
        return Fleet(**found)
    if board.me == first and board.reported not in (None, subject):
        board.delete(board.reported)  # no process needs it anymore
    board.reported, until = subject, time.monotonic() + seconds
    for process in board.others if board.me == first else ():
        board.awaited(f"{subject}/each/{process}", until - time.monotonic())
    reports = board.read(f"{subject}/each")
    silent = [each for each in board.others if each not in reports]
    fleet = slowest_of([mine, *(Fleet(**each) for each in reports.values())], silent)
    board.post(f"{subject}/all", asdict(fleet))
    return fleet
