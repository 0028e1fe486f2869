"""The table of a report as HTML: bars as wide as what they stand for.

It has no colours of its own but for shades of the page's, so it is legible on light and dark pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple


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
    shade = 0.9 if line.marked else 0.55
    weight = "bold" if line.marked else "normal"
    wide = max(0.5, 100 * line.value / most)
    bar = (
        f'<div style="width:{wide:.1f}%;height:0.8em;background:currentColor;opacity:{shade}">'
        f"</div>"
    )
    return _cells(line.title, f"{line.value:.3f} ms", bar, line.note, weight)


def _cells(title: str, value: str, picture: str, note: str, weight: str = "normal") -> str:
    """A line of the table; what is wide breaks, also inside a word."""
    return (
        f'<tr><td style="text-align:left;font-weight:{weight}">'
        f'<div style="min-width:7em;overflow-wrap:anywhere">{escape(title)}</div></td>'
        f'<td style="text-align:right;white-space:nowrap">{escape(value)}</td>'
        f'<td style="width:35%"><div style="text-align:left;min-width:3em">{picture}</div></td>'
        f'<td style="text-align:left;opacity:0.7">{escape(note)}</td></tr>'
    )


def _queue(depths: Sequence[int]) -> str:
    """How many feeds waited, look after look, as columns of one picture, over a line."""
    most, looks = max([*depths, 1]), len(depths)
    columns = "".join(
        f'<rect x="{number}" y="{most - depth}" width="1" height="{depth}" fill="currentColor" '
        f'opacity="0.6"/>'
        for number, depth in enumerate(depths)
        if depth
    )
    size = f'width="100%" height="2em" viewBox="0 0 {looks} {most}" preserveAspectRatio="none"'
    line = 'style="display:block;border-bottom:1px solid currentColor"'
    return _cells(
        *("feeds ready", f"0 to {most}", f"<svg {size} {line}>{columns}</svg>"),
        f"none in {depths.count(0) / looks:.0%} of {looks} looks",
    )
