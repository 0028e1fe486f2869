"""The figures as Markdown."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.peers.contest import CASES, Contestant, Field

SECONDS = {"f import", "f first", "f again"}


def page(
    results: Sequence[Contestant],
    field: Field,
    settings: Mapping[str, Any],
    verdicts: Sequence[tuple[str, ...]],
) -> str:
    """The whole page."""
    return "\n".join(_page(results, field, settings, verdicts))


def _page(results, field, settings, verdicts) -> Iterator[str]:
    yield from _opening(field, settings)
    if field.absent:
        yield f"Not here: {'; '.join(field.absent)}."
    for case in CASES:
        those = [each for each in results if each.case == case]
        if those:
            yield from ["", f"### ({case[0]}) {CASES[case]}", ""]
            yield from (_first(those) if case.startswith("f ") else _rates(case, those))
            yield from _notes(those)
    if verdicts:
        yield from ["", "### Goals", "", *_goals(verdicts)]


def _opening(field, settings) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(field.versions.items()))
    yield f"{machine()}. {versions}."
    yield (
        f"{settings['sittings']} sittings of fresh processes, {settings['rounds']} rounds in turns "
        f"in each; medians, in brackets lowest to highest; size {settings['size']:g}, turns of at "
        f"most {settings['seconds']:g} s (b, e: twice, d: three times that), {settings['took']} s."
    )


def _goals(verdicts) -> Iterator[str]:
    yield from ["| jreader beside | measured | goal | |", "|---|---|---|---|"]
    yield from (f"| {' | '.join(row)} |" for row in verdicts)


def summary(
    results: Sequence[Contestant],
    field: Field,
    settings: Mapping[str, Any],
    verdicts: Sequence[tuple[str, ...]],
) -> str:
    """A page for the README: each peer's fastest way to do each work, and the goals."""
    return "\n".join(_summary(results, field, settings, verdicts))


def _summary(results, field, settings, verdicts) -> Iterator[str]:
    cases = [case for case in SUMMARY if any(case in each.figures for each in results)]
    yield f"| samples/s | {' | '.join(SUMMARY[case] for case in cases)} |"
    yield f"|---|{'---|' * len(cases)}"
    best = {case: _fastest(results, case) for case in cases}
    for title in dict.fromkeys(each.title for each in results):
        cells = [_cell(_fastest(results, case, title), case, best[case]) for case in cases]
        if any(cell != "-" for cell in cells):
            yield f"| {title} | {' | '.join(cells)} |"
    limits = [(each, case) for case in cases for each in results if each.limit]
    for each, case in limits:
        if case in each.figures:
            yield f"| *({case}) {each.play}: {each.settings}* | {_at(cases, case, each)} |"
    yield from ["", *_opening(field, settings)]
    if verdicts:
        yield from ["", *_goals(verdicts)]


SUMMARY = {
    "a": "MNIST rows",
    "b": "224 x 224 x 3 from a file",
    "c": "Python generator",
    "d": "JPEG",
    "e": "slow source and step",
    "g 1e3": "1e3 rows, host",
    "g 1e5": "1e5",
    "g 1e7": "1e7",
    "g 1e9": "1e9",
    "f first": "first batch, ms",
    "f import": "import, ms",
}


def _fastest(results, case: str, title: str = "") -> Contestant | None:
    """The best of a case, of one peer or of all, limits and faults aside."""
    those = [
        each
        for each in results
        if case in each.figures and not each.limit and not each.note and title in (each.title, "")
    ]
    sign = 1 if case in SECONDS else -1
    return min(those, key=lambda each: sign * each.median(case), default=None)


def _cell(each: Contestant | None, case: str, best: Contestant | None) -> str:
    if each is None:
        return "-"
    text = figure(each.median(case) * _times(case))
    return f"**{text}**" if each is best and case not in SECONDS else text


def _at(cases: Sequence[str], case: str, each: Contestant) -> str:
    return " | ".join(figure(each.median(case)) if name == case else "" for name in cases)


def machine() -> str:
    """The processor, its cores, and Python."""
    names = [line.split(":")[1] for line in _cpu() if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0))
    return (
        f"{cores} cores ({(names or ['unknown'])[0].strip()}), Python {platform.python_version()}"
    )


def _cpu() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def _rates(case: str, those: Sequence[Contestant]) -> Iterator[str]:
    """Rates from the highest to the lowest, beside the first contestant's (the loop by hand's)."""
    done = sorted((each for each in those if each.figures), key=lambda each: -each.median(case))
    unit = {"t": "epochs/s", "c stack": "rows/s"}.get(case if case == "c stack" else case[0])
    unit = "samples/s" if case.startswith("t devices") else unit or "samples/s"
    yield f"| contestant | {unit} | beside by hand | settings |"
    yield "|---|---|---|---|"
    base = next((each for each in those if each.figures and each.module == "by_hand"), None)
    for each in done:
        ratio = f"{each.median(case) / base.median(case):.2g}" if base else "-"
        figures = each.figures[case]
        spread = f"{figure(each.median(case))} ({figure(min(figures))} to {figure(max(figures))})"
        yield f"| {each.title}: {each.play} | {spread} | {ratio} | `{each.settings}` |"


def _first(those: Sequence[Contestant]) -> Iterator[str]:
    """One column for each thing that was measured of a fresh process."""
    names = list(dict.fromkeys(name for each in those for name in each.figures))
    yield f"| contestant | {' | '.join(map(_titled, names))} | settings |"
    yield f"|---|{'---|' * len(names)}---|"
    for each in those:
        if each.figures:
            cells = [f"{each.median(name) * _times(name):.1f}" for name in names]
            yield f"| {each.title}: {each.play} | {' | '.join(cells)} | `{each.settings}` |"


def _titled(name: str) -> str:
    return f"{name[2:]}, {'ms' if name in SECONDS else 'batches'}"


def _times(name: str) -> float:
    return 1e3 if name in SECONDS else 1.0


def _notes(those: Sequence[Contestant]) -> Iterator[str]:
    for each in those:
        if each.note:
            yield f"\n{each.title}: {each.play}: **{each.note}**"


def figure(number: float) -> str:
    """A number in three places.

    >>> figure(1234567), figure(12345), figure(0.5)
    ('1,230k', '12.3k', '0.5')
    """
    if number >= 1e5:
        return f"{float(f'{number / 1e3:.3g}'):,.0f}k"
    return f"{number / 1e3:.3g}k" if number >= 1e3 else f"{number:.3g}"
