"""How a plan shows itself in a notebook: op by op, in the order that samples pass through them.

A table without colours of its own: it takes those of the page, light or dark, and stays legible
where a page strips every style, as GitHub does.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple


class Line(NamedTuple):
    """One op of a plan.

    Attributes:
        text: The op, as it was written.
        notes: What is known of it without reading anything.
    """

    text: str
    notes: tuple[str, ...]


def under(branches: Sequence[Sequence[Line]], line: Line) -> list[Line]:
    """The lines of an op under those of what it reads, which side by side get a rail each.

    >>> one, two = [Line("images", ())], [Line("labels", ()), Line("↓ map", ())]
    >>> for line in under([one, two], Line("compose", ())):
    ...     print(line.text)
    ┌ images
    ├ labels
    │ ↓ map
    └ compose
    """
    if len(branches) == 1:
        return [*branches[0], line._replace(text=f"↓ {line.text}")]
    lines = []
    for number, branch in enumerate(branches):
        for place, each in enumerate(branch):
            rail = "│" if place else "├" if number else "┌"
            lines.append(each._replace(text=f"{rail} {each.text}"))
    return [*lines, line._replace(text=f"└ {line.text}" if branches else line.text)]


def table(lines: Sequence[Line]) -> str:
    """The lines as an HTML table.

    >>> table([Line("Pipeline(<lambda>)", ("length unknown",))]).count("&lt;lambda&gt;")
    1
    """
    rows = "".join(
        f'<tr><td style="text-align:left"><samp>{escape(line.text)}</samp></td>'
        + "".join(
            f'<td style="text-align:left;opacity:0.7">{escape(note)}</td>' for note in line.notes
        )
        + "</tr>"
        for line in lines
    )
    return f'<table style="color:inherit"><tbody>{rows}</tbody></table>'
