"""The table of a report as HTML: bars as wide as what they stand for.

Bars are text, of block characters: pages such as GitHub's drop styles and drawings. It has no
colours of its own but for shades of the page's, so it is legible on light and dark pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

_WIDE = 6  # characters of the longest bar
_COLUMNS = 8  # of the picture of a queue


class StageBar(NamedTuple):
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


def bars(text: str, lines: Sequence[StageBar], depths: Sequence[int], note: str = "") -> str:
    """The HTML of a text, of bars below it, and of a queue over time.

    >>> page = bars("The map <f> limits.", [StageBar("map f", 2.0, "one thread", True)], [0, 2])
    >>> "&lt;f&gt;" in page, page.count("<tr>")
    (True, 2)
    """
    most = max([line.value for line in lines], default=0.0) or 1.0
    rows = "".join(_bar_row(line, most) for line in lines)
    queue = _depth_columns(depths) if depths else ""
    under = f"<p>{escape(note)}</p>" if note else ""
    table = f'<table style="color:inherit"><tbody>{rows}{queue}</tbody></table>'
    return f"<div><p>{escape(text)}</p>{table}{under}</div>"


def _bar_row(line: StageBar, most: float) -> str:
    weight = "bold" if line.marked else "normal"
    return _cells(
        line.title, f"{line.value:.3f} ms", _eighths(line.value / most), line.note, weight
    )


def _eighths(share: float) -> str:
    """A bar of that share of the full width, in eighths of a character.

    >>> _eighths(1.0), _eighths(0.4), _eighths(0.0)
    ('██████', '██▍', '▏')
    """
    full, rest = divmod(max(1, round(8 * _WIDE * share)), 8)
    parts: tuple[str, ...] = ("", *"▏▎▍▌▋▊▉")
    return "█" * full + parts[rest]


def _cells(title: str, value: str, picture: str, note: str, weight: str = "normal") -> str:
    """A line of the table; what is wide breaks, also inside a word."""
    return (
        f'<tr><td style="text-align:left;font-weight:{weight}">'
        f'<div style="min-width:6em;overflow-wrap:anywhere">{escape(title)}</div></td>'
        f'<td style="text-align:right;white-space:nowrap">{escape(value)}</td>'
        f'<td style="text-align:left;white-space:nowrap">{picture}</td>'
        f'<td style="text-align:left;opacity:0.7">'
        f'<div style="min-width:5em">{escape(note)}</div></td></tr>'
    )


def _depth_columns(depths: Sequence[int]) -> str:
    """How many feeds waited, look after look: a column for each, or for several one of their mean.

    >>> "▁▃▅█" in _depth_columns([0, 1, 2, 4])
    True
    """
    most, looks = max([*depths, 1]), len(depths)
    cuts = [number * looks // min(looks, _COLUMNS) for number in range(min(looks, _COLUMNS) + 1)]
    means = [fmean(depths[low:high]) for low, high in pairwise(cuts)]
    return _cells(
        *("feeds ready", f"0 to {most}"),
        "".join("▁▂▃▄▅▆▇█"[round(7 * mean / most)] for mean in means),
        f"none in {depths.count(0) / looks:.0%} of {looks} looks",
    )
