"""The figures as a picture: every contestant of a workload, jreader and the loop by hand marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.peers.contest import Contestant
from tests.benchmarks.peers.tables import figure

PANELS = {
    "a": "(a) MNIST rows, batch 512: samples/s",
    "b": "(b) 224 x 224 x 3 from a file, batch 256: samples/s",
    "c": "(c) a Python generator of rows: samples/s",
    "d": "(d) JPEG decode, in order: samples/s",
    "e": "(e) source of 5 ms beside a step of 5 ms: samples/s",
    "f first": "(f) first batch of (a), seconds: less is better",
}
COLOURS = {"jreader": "#0b7285", "by_hand": "#868e96"}
PEER = "#ced4da"


def drawn(results: Sequence[Contestant], path: Path) -> str:
    """Writes an SVG where matplotlib can be imported; says what it did."""
    try:
        import matplotlib as mpl
    except ImportError:
        return "no picture: matplotlib cannot be imported"
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "jreader"
    from matplotlib import pyplot as plt

    cases = [case for case in PANELS if any(case in each.figures for each in results)]
    if not cases:
        return "no picture: none of the workloads a to f was run"
    rows = -(-len(cases) // 2)
    canvas, panels = plt.subplots(
        rows, 2, figsize=(11, 3.4 * rows), layout="constrained", squeeze=False
    )
    for case, panel in zip(cases, panels.flat, strict=False):
        _panel(panel, case, [each for each in results if case in each.figures])
    for panel in panels.flat[len(cases) :]:
        panel.axis("off")
    canvas.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return f"picture: {path}"


def _panel(panel, case: str, those: list[Contestant]) -> None:
    those.sort(key=lambda each: each.median(case), reverse=case.startswith("f "))
    middles = [each.median(case) for each in those]
    low = [middle - min(each.figures[case]) for middle, each in zip(middles, those, strict=True)]
    high = [max(each.figures[case]) - middle for middle, each in zip(middles, those, strict=True)]
    bars = panel.barh(
        [f"{each.title}: {each.play}".replace("_", " ") for each in those],
        middles,
        xerr=[low, high],
        color=[COLOURS.get(each.module, PEER) for each in those],
        error_kw={"elinewidth": 0.8, "ecolor": "#495057"},
    )
    panel.bar_label(bars, [f" {figure(middle)}" for middle in middles], fontsize=7)
    panel.set_title(PANELS[case], fontsize=9, loc="left")
    panel.margins(x=0.12)
    panel.set_xlim(left=0)
    panel.set_xticks([])
    panel.tick_params(labelsize=7)
    panel.spines[["top", "right", "bottom"]].set_visible(False)
