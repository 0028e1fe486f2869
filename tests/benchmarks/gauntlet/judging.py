"""Judges a scenario: counts every sample, and compares step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, chain

from tests.benchmarks.gauntlet.scenarios import LATE_STEPS

Steps = list[list[float]]
"""The numbers of each step, of all hosts."""


@dataclass
class Verdict:
    """The outcome of a scenario.

    Attributes:
        outcome: "passed"; "cannot" and "refused", with the reason; "wrong", where samples were lost
            or doubled; "other order", where each came once, but not in its place; "other values",
            where each came in its place, but a random function gave it another value.
        lost: The number of samples of the uninterrupted run that never came.
        doubled: The number that came more often than in that run.
        size: Bytes of the state, of all hosts.
    """

    change: str
    plan: str
    outcome: str
    reason: str = ""
    lost: int = 0
    doubled: int = 0
    size: int = 0


def judged(told: Verdict, whole: Steps, seen: Steps, *, alone: bool) -> Verdict:
    """Counts each sample, and compares at every number of samples at which both end a step.

    Args:
        told: The verdict so far.
        whole: The uninterrupted run.
        seen: The steps before the state was saved, and those after the resume.
        alone: Whether one host ran all: then the order of rows counts, too. Several hosts have
            their rows side by side, and another number of hosts gives them in another order.
    """
    expected, found = (Counter(int(n) for step in steps for n in step) for steps in (whole, seen))
    lost, doubled = (expected - found).total(), (found - expected).total()
    if lost or doubled:
        return replace(told, outcome="wrong", lost=lost, doubled=doubled)
    pairs = (whole, seen), (seen, whole)
    one, two = ([each if alone else sorted(each) for each in pieces(*pair)] for pair in pairs)
    if one == two:
        return told
    same = [[*map(int, each)] for each in one] == [[*map(int, each)] for each in two]
    return replace(told, outcome="other values" if same else "other order")


def pieces(steps: Steps, other: Steps) -> Iterator[list[float]]:
    """The samples between the step ends that both runs have in common."""
    ends, others = ([*accumulate(map(len, each))] for each in (steps, other))
    flat, begin = [*chain(*steps)], 0
    for end in sorted({*ends} & {*others}):
        yield flat[begin:end]
        begin = end


def at_million(seconds: dict[int, float]) -> float:
    """The time of step 10**6, measured, or extrapolated from the last two steps."""
    (few, before), (many, last) = [*seconds.items()][-2:]
    if many == LATE_STEPS[-1]:
        return last
    return last + max(last - before, 0) / (many - few) * (LATE_STEPS[-1] - many)
