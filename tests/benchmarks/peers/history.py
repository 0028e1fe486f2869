"""Draws what weeks of the benchmark gave: `python -m tests.benchmarks.peers.history FOLDER`.

FOLDER has the `figures.json` of each run, under a name that begins with its date. It gets
`history.svg`: jreader over the quickest of its peers in the same run, case by case. A ratio of one
run holds on a machine that is slow one week and fast the next; a time does not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.benchmarks.peers.contest import Contestant
from tests.benchmarks.peers.pictures import COLOURS, PANELS


def quickest(results: list[Contestant], case: str) -> dict[str, float]:
    """The best median of jreader, and of all others, among contestants that did all the work."""
    best: dict[str, float] = {}
    for each in results:
        if case in each.figures and not each.note and not each.limit:
            side = "jreader" if each.module == "jreader" else "peers"
            found = each.median(case)
            choose = min if case.startswith("f ") else max
            best[side] = choose(best.get(side, found), found)
    return best


def ratios(folder: Path) -> dict[str, dict[str, float]]:
    """For each case, by date, by how much jreader is quicker than the quickest of its peers."""
    over: dict[str, dict[str, float]] = {case: {} for case in PANELS}
    for path in sorted(folder.glob("*.json")):
        results = [Contestant(**each) for each in json.loads(path.read_text())["results"]]
        for case, by_date in over.items():
            best = quickest(results, case)
            if len(best) == 2:
                ratio = best["jreader"] / best["peers"]
                by_date[path.name[:10]] = 1 / ratio if case.startswith("f ") else ratio
    return {case: by_date for case, by_date in over.items() if by_date}


def drawn(folder: Path) -> Path:
    """Writes the picture."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "jreader"
    from matplotlib import pyplot as plt

    over = ratios(folder)
    canvas, panels = plt.subplots(
        len(over), 1, figsize=(9, 1.8 * len(over)), layout="constrained", squeeze=False, sharex=True
    )
    dates = sorted({date for by_date in over.values() for date in by_date})
    for (case, by_date), panel in zip(over.items(), panels.flat, strict=True):
        at = [dates.index(date) for date in by_date]
        panel.plot(at, list(by_date.values()), marker="o", color=COLOURS["jreader"])
        panel.axhline(1, color=COLOURS["by_hand"], linewidth=0.8)
        panel.set_title(f"{PANELS[case].partition(':')[0]}: times the quickest other", fontsize=9)
        panel.set_xticks(range(len(dates)), dates, fontsize=7, rotation=45)
        panel.set_ylim(bottom=0)
    path = folder / "history.svg"
    canvas.savefig(path, metadata={"Date": None})
    return path


if __name__ == "__main__":
    print(drawn(Path(sys.argv[1])))
