"""The table of a report as HTML: bars as wide as what they stand for.

It has no colours of its own but for shades of the page's, so it is legible on light and dark pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_WIDEST = 24  # em


class Bar(NamedTuple):
    """One line.

    Attributes:
        title: What it is.
        value: Milliseconds, the width of the bar.
        note: What stands behind it.
        marked: Whether it is what the text speaks of.
    """

    title: str
    value: float
    note: str
    marked: bool


def bars(text: str, lines: Sequence[Bar], depths: Sequence[int], note: str = "") -> str:
    """The HTML of a text, of bars below it, and of a queue over time.

    >>> page = bars("The map <f> limits.", [Bar("map f", 2.0, "one thread", True)], [0, 2])
    >>> "&lt;f&gt;" in page, page.count("<tr>")
    (True, 2)
    """
    most = max([line.value for line in lines], default=0.0) or 1.0
    rows = "".join(_row(line, most) for line in lines)
    queue = _queue(depths) if depths else ""
    under = f"<p>{escape(note)}</p>" if note else ""
    table = f'<table style="color:inherit"><tbody>{rows}{queue}</tbody></table>'
    return f"<div><p>{escape(text)}</p>{table}{under}</div>"


def _row(line: Bar, most: float) -> str:
    shade = 0.9 if line.marked else 0.4
    weight = "bold" if line.marked else "normal"
    wide = max(0.1, _WIDEST * line.value / most)
    bar = (
        f'<div style="width:{wide:.2f}em;height:0.8em;background:currentColor;opacity:{shade}">'
        f"</div>"
    )
    return (
        f'<tr><td style="text-align:left;font-weight:{weight}">{escape(line.title)}</td>'
        f'<td style="text-align:right">{line.value:.3f} ms</td>'
        f'<td style="text-align:left">{bar}</td>'
        f'<td style="text-align:left;opacity:0.7">{escape(line.note)}</td></tr>'
    )


def _queue(depths: Sequence[int]) -> str:
    """How many feeds waited, look after look, as columns of one picture."""
    most, wide = max([*depths, 1]), _WIDEST / len(depths)
    columns = "".join(
        f'<rect x="{number * wide:.3f}" y="{2 - 2 * depth / most:.3f}" width="{wide:.3f}" '
        f'height="{2 * depth / most:.3f}" fill="currentColor" opacity="0.6"/>'
        for number, depth in enumerate(depths)
        if depth
    )
    size = f'width="{_WIDEST}em" height="2em" viewBox="0 0 {_WIDEST} 2"'
    empty = depths.count(0) / len(depths)
    return (
        f'<tr><td style="text-align:left">feeds ready</td>'
        f'<td style="text-align:right">0 to {most}</td>'
        f'<td style="text-align:left"><svg {size} preserveAspectRatio="none">{columns}</svg></td>'
        f'<td style="text-align:left;opacity:0.7">none in {empty:.0%} of {len(depths)} looks'
        f"</td></tr>"
    )
