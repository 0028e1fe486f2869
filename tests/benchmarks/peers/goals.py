"""What jreader set out to reach, as ratios within one run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tests.benchmarks.peers.contest import Contestant


@dataclass(frozen=True)
class Goal:
    """One contestant beside another; a rate is to be high, a time (one over it) low."""

    words: str
    case: str
    ours: str
    other: str
    least: float | None = None  # of our rate over theirs
    most: float | None = None  # of our time over theirs
    other_case: str = ""


@dataclass(frozen=True)
class Limit:
    """One figure of one contestant, with its limit."""

    words: str
    case: str
    ours: str
    most: float
    unit: str
    times: float = 1.0


@dataclass(frozen=True)
class Above:
    """What a sample takes one contestant, less what it takes another, in ns."""

    words: str
    case: str
    ours: str
    other: str
    most: float


@dataclass(frozen=True)
class Same:
    """Two trainings that must give the same parameters, bit by bit, in every round."""

    words: str
    case: str
    ours: str
    other: str


GOALS: list[Goal | Limit | Above | Same] = [
    Goal(
        "(a) float32 made on the host: the loop by hand",
        "a",
        "jreader.float32",
        "by_hand.float32",
        0.95,
    ),
    Goal("(a) uint8 and a stage: that loop", "a", "jreader.uint8", "by_hand.float32", 1.5),
    Goal(
        "(a) the same: by hand, device_put, then a stage",
        "a",
        "jreader.uint8",
        "by_hand.uint8_placed",
        0.9,
    ),
    Goal(
        "(a) the same: by hand, NumPy into the stage",
        "a",
        "jreader.uint8",
        "by_hand.uint8_straight",
        0.95,
    ),
    Goal("(a) float32: Grain, per record, tuned", "a", "jreader.float32", "grain.tuned", 20),
    Goal(
        "(a) float32: Grain, a source of batches",
        "a",
        "jreader.float32",
        "grain.whole_batches",
        1.5,
    ),
    Goal("(a) float32: torch at its best", "a", "jreader.float32", "torch", 1.0),
    Goal(
        "(a) training, loss fetched (uint8, stage): float32 by hand",
        "t mlp",
        "jreader.trained_uint8",
        "by_hand.trained",
        most=0.85,
    ),
    Goal("(b) Z[idx] and device_put by hand", "b", "jreader.pixels", "by_hand.pixels", 4),
    Goal("(b) one plain copy of the bytes", "b", "jreader.pixels", "by_hand.one_copy", most=1.3),
    Goal(
        "(c) Paddle's decorators alone",
        "c",
        "jreader.stream",
        "paddle.decorators|paddle.unbuffered",
        1.0,
    ),
    Goal("(c) Paddle's loader", "c", "jreader.stream", "paddle.from_generator", 3),
    Goal("(c) stacking cheap rows: np.stack", "c stack", "jreader.stack", "by_hand.stack", 2),
    Goal("(d) the fastest peer with the same decoder, in order", "d", "jreader.pictures", "*", 1.0),
    Goal("(e) the slower side alone", "e", "jreader.slow", "by_hand.step_alone", most=1.05),
    Limit("(f) the first batch of a loop", "f first", "jreader.float32", 10, "ms", 1e3),
    Limit(
        "(f) memory, step awaited: capacity + 3", "f memory awaited", "jreader.pixels", 5, "batches"
    ),
    Limit(
        "(f) memory, step not awaited: bounded",
        "f memory not awaited",
        "jreader.pixels",
        16,
        "batches",
    ),
    Goal("(g) 1e5 rows on the host: by hand", "g 1e5", "jreader.any_size", "by_hand.any_size", 0.7),
    Goal(
        "(g) a sample of 1e9: one of 1e5",
        "g 1e9",
        "jreader.any_size",
        "jreader.any_size",
        most=1.5,
        other_case="g 1e5",
    ),
    Goal("(w) np.stack of slices by hand", "w", "jreader.windows", "by_hand.windows", 1.0),
    Goal("(w) Grain at its best", "w", "jreader.windows", "grain.windows|grain.windows_tuned", 10),
    Goal(
        "(w) the start of 1,000 files: np.memmap of each by hand",
        "w start",
        "jreader.windows_start",
        "by_hand.windows_start",
        most=1.0,
    ),
    Goal(
        "(l) documents in buckets: tf.data",
        "l bucket",
        "jreader.buckets",
        "tensorflow.buckets|tensorflow.buckets_of_a_stream",
        5,
    ),
    Goal(
        "(l) the same from a generator",
        "l bucket",
        "jreader.buckets_of_a_stream",
        "tensorflow.buckets|tensorflow.buckets_of_a_stream",
        5,
    ),
    Goal(
        "(l) what of the batches is no padding: tf.data, as few shapes",
        "l bucket fill",
        "jreader.buckets",
        "tensorflow.buckets",
        1.0,
    ),
    Goal(
        "(l) as many buckets, their bounds chosen: tf.data",
        "l bucket",
        "jreader.buckets_chosen",
        "tensorflow.buckets|tensorflow.buckets_of_any_length|tensorflow.buckets_of_a_stream",
        5,
    ),
    Goal(
        "(l) what of these is no padding: tf.data by default, a shape for nearly every batch",
        "l bucket fill",
        "jreader.buckets_chosen",
        "tensorflow.buckets_of_any_length",
        1.0,
    ),
    Above("(m) a mix of four sources: one source", "m", "jreader.mixed", "jreader.one_source", 150),
    Goal("(m) a mix by hand, NumPy", "m", "jreader.mixed", "by_hand.mixture", 0.7),
    Goal("(m) Grain's mix at its best", "m", "jreader.mixed", "grain.mixed|grain.mixed_tuned", 20),
    Goal(
        "(l) documents in packed rows: Grain, best fit in 64 bins",
        "l pack",
        "jreader.packed",
        "grain.packed_threads",
        50,
    ),
    Goal(
        "(l) the same: Grain with one thread that reads ahead",
        "l pack",
        "jreader.packed",
        "grain.packed",
        50,
    ),
    Goal(
        "(l) the same from a generator: Grain with one thread",
        "l pack",
        "jreader.packed_stream",
        "grain.packed",
        1,
    ),
    Goal(
        "(l) documents cut where rows end: Grain, whole ones, with one thread",
        "l pack",
        "jreader.packed_cut",
        "grain.packed",
        1,
    ),
    Limit("(l) padding of packed rows", "l pack padding", "jreader.packed", 1, "per mille", 1e3),
    Goal(
        "(l) the fill of packed rows: Grain's (no goal)",
        "l pack fill",
        "jreader.packed",
        "grain.packed",
    ),
    Goal(
        "8 emulated devices: one, for a batch",
        "t devices",
        "jreader.eight_devices",
        "jreader.one_device",
        most=1.6,
    ),
    Goal(
        "8 emulated devices with a stage: one (no goal)",
        "t devices stage",
        "jreader.eight_devices_stage",
        "jreader.one_device_stage",
    ),
    Goal(
        "an epoch as one scan, batch 64: by hand, loss not fetched",
        "t scan",
        "jreader.scanned",
        "by_hand.trained_unfetched",
        most=0.7,
    ),
    Goal(
        "an epoch as one scan, batch 64: by hand, loss fetched",
        "t scan",
        "jreader.scanned",
        "by_hand.trained",
        most=0.7,
    ),
    Same(
        "the scan's parameters are the loader loop's",
        "t scan",
        "jreader.scanned",
        "jreader.trained_unfetched",
    ),
    Goal(
        "8 seeds in one program: one run by the same scan (8 runs' work)",
        "t scan",
        "jreader.eight_seeds",
        "jreader.scanned",
    ),
]


def verdicts(results: Sequence[Contestant]) -> list[tuple[str, str, str, str]]:
    """(what, measured, goal, verdict) of every goal whose contestants ran."""
    by = {(each.case, each.name): each for each in results}
    rows = []
    for goal in GOALS:
        case = " ".join(goal.case.split()[:2])
        case = goal.case if (goal.case, goal.ours) in by else case
        ours = by.get((case, goal.ours))
        if ours is None:
            continue
        rows.append((goal.words, *_judged(goal, ours, by)))
    return rows


def _judged(goal, ours, by) -> tuple[str, str, str]:  # noqa: PLR0911  # a return for each kind
    if isinstance(goal, Limit):
        if goal.case not in ours.figures:
            return "not measured", f"at most {goal.most:g} {goal.unit}", "-"
        value = ours.median(goal.case) * goal.times
        return _against(value, None, goal.most, f"{value:.1f} {goal.unit}", goal.unit)
    if isinstance(goal, Above):
        other = by.get((goal.case, goal.other))
        if other is None or goal.case not in ours.figures or goal.case not in other.figures:
            return "not measured", f"at most {goal.most:g} ns", "-"
        pairs = zip(ours.figures[goal.case], other.figures[goal.case], strict=False)
        above = statistics.median(1e9 / mine - 1e9 / theirs for mine, theirs in pairs)
        return _against(above, None, goal.most, f"{above:.0f} ns", "ns")
    if isinstance(goal, Same):
        other = by.get((goal.case, goal.other))
        if other is None or not ours.figures or not other.figures:
            return "not measured", "equal", "-"
        told = ours.digests == other.digests
        return ("equal" if told else "different"), "equal", ("reached" if told else "missed")
    case = goal.other_case or goal.case
    other = fastest(case, by, goal.other)
    if other is None or case not in other.figures or goal.case not in ours.figures:
        return "not measured", _target(goal.least, goal.most, "x"), "-"
    pairs = zip(ours.figures[goal.case], other.figures[case], strict=False)
    ratios = sorted(mine / theirs for mine, theirs in pairs)
    if goal.least is None:
        ratios = sorted(1 / ratio for ratio in ratios)
    middle = statistics.median(ratios)
    text = f"{middle:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    if other.name != goal.other:
        text += f", {other.title}: {other.play}"
    return _against(middle, goal.least, goal.most, text, "x")


def fastest(case, by, names: str) -> Contestant | None:
    """The fastest of a case among those named ("*": any but jreader), without faults."""
    wanted, ran = set(names.split("|")), {case, " ".join(case.split()[:2])}
    those = [
        each
        for (each_case, _), each in by.items()
        if each_case in ran and case in each.figures and not each.note
        if {each.name, each.module} & wanted
        or (names == "*" and each.module != "jreader" and not each.limit)
    ]
    return max(those, key=lambda each: each.median(case), default=None)


def _against(value, least, most, text, unit) -> tuple[str, str, str]:
    goal = least or most
    if not goal:
        return text, "-", "-"
    reached = value >= goal if least else value <= goal
    verdict = "reached" if reached else f"missed by {abs(value / goal - 1):.0%}"
    return text, _target(least, most, unit), verdict


def _target(least, most, unit) -> str:
    return f"at least {least:g} {unit}" if least else f"at most {most:g} {unit}" if most else "-"
