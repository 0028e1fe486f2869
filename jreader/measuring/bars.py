"""The table of a report as HTML, with bars proportional to the times.

Bars are text, made of block characters, since pages such as GitHub's drop styles and drawings. All
colors are shades of the page's own, so the table is legible on light and dark pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

_WIDE = 6  # characters of the longest bar
_COLUMNS = 8  # of a queue's chart


class StageBar(NamedTuple):
    """One line of the table.

    Attributes:
        title: The name of the stage.
        value: Milliseconds, the width of the bar.
        note: The text after the bar.
        marked: True for the stage that the text is about.
    """

    title: str
    value: float
    note: str
    marked: bool


def bars(text: str, lines: Sequence[StageBar], depths: Sequence[int], note: str = "") -> str:
    """Return the HTML of a text, of bars below it, and of a queue over time.

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
    """Draw a bar of that share of the full width, in eighths of a character.

    >>> _eighths(1.0), _eighths(0.4), _eighths(0.0)
    ('██████', '██▍', '▏')
    """
    full, rest = divmod(max(1, round(8 * _WIDE * share)), 8)
    parts: tuple[str, ...] = ("", *"▏▎▍▌▋▊▉")
    return "█" * full + parts[rest]


def _cells(title: str, value: str, picture: str, note: str, weight: str = "normal") -> str:
    """Return a row of the table; wide texts break, even inside a word."""
    return (
        f'<tr><td style="text-align:left;font-weight:{weight}">'
        f'<div style="min-width:6em;overflow-wrap:anywhere">{escape(title)}</div></td>'
        f'<td style="text-align:right;white-space:nowrap">{escape(value)}</td>'
        f'<td style="text-align:left;white-space:nowrap">{picture}</td>'
        f'<td style="text-align:left;opacity:0.7">'
        f'<div style="min-width:5em">{escape(note)}</div></td></tr>'
    )


def _depth_columns(depths: Sequence[int]) -> str:
    """Chart the feeds that were ready at each look; a column is a look, or the mean of several.

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
