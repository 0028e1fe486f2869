"""Draws README's table of peers as bars: `python docs/plot_of_peers.py`.

Each bar is a share of the fastest library of its case, so that a full bar is first. The figures are
those of the table, and nothing else; run this again when they change (a test compares).
"""

from __future__ import annotations

import html
import re
from pathlib import Path

DOCS = Path(__file__).parent
TARGET = DOCS / "pictures" / "peers.svg"
COLORS = {
    "jreader": "#3b5bdb",
    "Grain": "#d8456c",
    "tf.data": "#c8841a",
    "torch": "#7a8a99",
}
LEFT, FULL, BAR, GAP, TOP, WIDTH = 190, 380, 13, 14, 42, 660


def table(readme: str) -> tuple[list[str], dict[str, list[str]]]:
    """The cases of README's table, and each library's figures as they are written there."""
    lines = re.search(r"^\| \| MNIST.*?\n\n", readme, re.MULTILINE | re.DOTALL)
    if lines is None:
        raise ValueError("README.md has no table that begins with '| | MNIST'")
    head, _, *rows = [
        [cell.strip(" *") for cell in line.strip("|").split("|")]
        for line in lines[0].strip().splitlines()
    ]
    return head[1:], {name: figures for name, *figures in rows}


def picture(readme: str) -> str:
    """An SVG with a group of bars for each case."""
    cases, figures = table(readme)
    body, y = [], TOP
    for number, case in enumerate(cases):
        speeds = {name: _number(figures[name][number]) for name in COLORS}
        body.append(f'<text x="{LEFT - 10}" y="{y + 2 * BAR + 5}" class="case">{case}</text>')
        for name, color in COLORS.items():
            wide = FULL * speeds[name] / max(speeds.values())
            label = html.escape(f"{figures[name][number]}")
            body.append(
                f'<rect x="{LEFT}" y="{y}" width="{wide:.1f}" height="{BAR - 2}" fill="{color}"/>'
                f'<text x="{LEFT + wide + 6:.1f}" y="{y + BAR - 3}" class="figure">{label}</text>'
            )
            y += BAR
        y += GAP
    key = "".join(
        f'<rect x="{LEFT + 100 * place}" y="12" width="11" height="11" fill="{color}"/>'
        f'<text x="{LEFT + 100 * place + 17}" y="22" class="figure">{name}</text>'
        for place, (name, color) in enumerate(COLORS.items())
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img" '
        'aria-label="Samples per second of jreader, Grain, tf.data and torch in five cases">\n'
        "<style>text{font-family:system-ui,sans-serif;fill:#333}.case{font-size:13px;"
        "text-anchor:end}.figure{font-size:11px}"
        "@media (prefers-color-scheme:dark){text{fill:#ddd}}</style>\n"
        + key
        + "\n"
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _number(figure: str) -> float:
    return float(figure.rstrip("kM").replace(",", "")) * {"k": 1e3, "M": 1e6}.get(figure[-1], 1)


if __name__ == "__main__":
    TARGET.write_text(picture((DOCS.parent / "README.md").read_text()))
