"""Tables of plans, for notebooks: a line for each op, in the order that samples pass through.

A table has no colours of its own, so it takes those of the page, light or dark; it stays legible
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
        notes: What is known about it before anything is read.
    """

    text: str
    notes: tuple[str, ...]


def under(branches: Sequence[Sequence[Line]], line: Line) -> list[Line]:
    """The line of an op under the lines of what it reads; several readers get a rail each.

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
        for row, each in enumerate(branch):
            rail = "│" if row else "├" if number else "┌"
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
