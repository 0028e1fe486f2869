"""The tables of the gauntlet, in Markdown."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from tests.benchmarks.gauntlet.scenarios import LATE, LATE_STEPS, PLANS, SCENARIOS

TITLES = {
    "jreader": "jreader",
    "grain": "Grain",
    "torchdata": "torchdata",
    "hugging_face": "Hugging Face",
    "tf_data": "tf.data",
}
NOISE = re.compile(r"\{\{.*?\}\}|\[Op:\w+\]( name:)?")
"""Names of kernels in tf.data's errors."""
BEGIN, END = "<!-- gauntlet -->", "<!-- end of gauntlet -->"

Told = dict[str, dict[str, Any]]


def page(told: Told) -> str:
    """Both tables, the reasons, the plans, and the versions."""
    notes: list[str] = []
    table = matrix(told, notes)
    reasons = [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    versions = ", ".join(each["version"] for each in told.values())
    plans = [f"- *{plan}*: {words}." for plan, words in PLANS.items()]
    parts = [table, "Reasons:", "", *reasons, "", "Plans:", "", *plans, "", late(told)]
    return "\n".join([*parts, f"Versions: {versions}."])


def matrix(told: Told, notes: list[str]) -> str:
    """A row for each scenario, and how many were passed."""
    names = [name for name in TITLES if name in told]
    rows = [_row("plan", "what changes at the resume", *(TITLES[name] for name in names))]
    rows.append("|---" * (len(names) + 2) + "|")
    plan = ""
    for scenario in sorted(SCENARIOS, key=lambda each: [*PLANS].index(each.plan)):
        cells = [_cell(told[name], scenario.key, notes) for name in names]
        rows.append(_row("" if scenario.plan == plan else scenario.plan, scenario.change, *cells))
        plan = scenario.plan
    rows.append(_row("**passed**", "", *(_passed(told[name]) for name in names)))
    rows.append(_row("**samples lost, doubled**", "", *(_lost(told[name]) for name in names)))
    rows.append(_row("**bytes of the state**", "", *(_sizes(told[name]) for name in names)))
    return "\n".join(rows) + "\n"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(contestant: dict[str, Any], key: str, notes: list[str]) -> str:
    verdict = contestant["verdicts"].get(key)
    if verdict is None:
        return "-"
    outcome = verdict["outcome"]
    if outcome == "passed":
        return "passed"
    if outcome == "wrong":
        return f"**lost {verdict['lost']}, doubled {verdict['doubled']}**"
    reason = NOISE.sub("", verdict["reason"]).replace("|", "/").strip()
    if not reason:
        return outcome
    if reason not in notes:
        notes.append(reason)
    return f"{outcome} ({notes.index(reason) + 1})"


def _passed(contestant: dict[str, Any]) -> str:
    outcomes = Counter(each["outcome"] for each in contestant["verdicts"].values())
    return f"**{outcomes['passed']} of {len(SCENARIOS)}**"


def _lost(contestant: dict[str, Any]) -> str:
    verdicts = contestant["verdicts"].values()
    return ", ".join(str(sum(each[name] for each in verdicts)) for name in ("lost", "doubled"))


def _sizes(contestant: dict[str, Any]) -> str:
    sizes = [each["size"] for each in contestant["verdicts"].values() if each["size"]]
    return f"{min(sizes):,} to {max(sizes):,}" if sizes else "-"


def late(told: Told) -> str:
    """Seconds to the first batch from a state of step 10**6."""
    names = [name for name in TITLES if name in told]
    rows = [_row("from step 10^6", *(TITLES[name] for name in names))]
    rows.append("|---" * (len(names) + 1) + "|")
    for plan in LATE:
        found = [told[name].get("late", {}).get(plan) for name in names]
        seconds = [_seconds(each) for each in found]
        sizes = [f"{each['size']:,}" if _seconds(each) != "-" else "-" for each in found]
        rows.append(_row(f"{plan}: seconds to the first batch", *seconds))
        rows.append(_row(f"{plan}: bytes of the state", *sizes))
    return "\n".join(rows) + "\n"


def _seconds(found: dict[str, Any] | None) -> str:
    if not found:
        return "-"
    seconds = found["at_million"]
    said = f"{seconds:.2g}" if seconds < 10 else f"{seconds:,.0f}"
    measured = LATE_STEPS[-1] in map(int, found["seconds"])
    return said if measured else f"about {said}"


def written(told: Told, path: Path) -> None:
    """Puts the tables between the marks of a page."""
    before, _, rest = path.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n\n{page(told)}\n\n{END}{after}")
