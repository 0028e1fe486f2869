"""A plan as a table: a line for each op, with the facts known before reading.

Lines come in the order that samples pass through. A table has no colours, so it takes those of the
page, light or dark; it stays legible where a page strips all styles, as GitHub does.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from html import escape
from typing import Any, NamedTuple

from jreader.readers.mapped_rows import lookup_of
from jreader.readers.messages import described
from jreader.readers.nodes import (
    Node,
    Reader,
    lazy_length,
    length,
    plane_of,
    readers_below,
    trampoline,
    unit_of,
)
from jreader.readers.seeds import seeded

_RAILS = "┌├│└↓· "
_LEAST = 12  # characters of an op on one line
_SHORT = 17  # characters, as in 1,281,167 samples


class Line(NamedTuple):
    """One op of a plan.

    Attributes:
        text: The op, as it was written.
        notes: What is known about it before anything is read.
    """

    text: str
    notes: tuple[str, ...]


def lines_of(reader: Reader[Any]) -> list[Line]:
    """Return the lines of a plan's table: one per op, in the order that samples pass through."""
    return trampoline(_table_lines, reader)


def _table_lines(
    reader: Reader[Any],
) -> Generator[Sequence[Reader[Any]], list[list[Line]], list[Line]]:
    while isinstance(reader, Node) and (inner := reader.wrapped()) is not None:
        reader = inner
    branches = yield readers_below(reader)
    if not isinstance(reader, Node):
        return [Line(described(reader), _known(reader))]
    ups = reader.input_readers
    call = f"{type(reader).__name__}({', '.join(reader.written(*ups))})" if ups else repr(reader)
    return under(branches, Line(shortened(call), (*_known(reader), *reader.notes())))


def _known(reader: Reader[Any]) -> tuple[str, str]:
    """Return how many samples there are, and how they are found, without reading.

    "mapped" samples are found by their index, and made by a function.

    >>> from jreader import arrays, filter, map_readers, shuffle
    >>> rows = shuffle(arrays([1, 2, 3]))
    >>> _known(rows), _known(filter(bool, rows)), _known(map_readers(abs, rows))
    (('3 samples', 'indexed'), ('length unknown', 'streamed'), ('3 samples', 'mapped'))
    """
    if lazy_length(reader):
        return "length unknown", "not read yet"
    number = length(reader)
    drawn = seeded(reader, 0)  # as each pass has it, whatever it draws
    found = "streamed"
    if lookup_of(drawn) is not None:
        found = "mapped" if _is_mapped(drawn) else "indexed"
    return "length unknown" if number is None else f"{number:,} {unit_of(reader)}", found


def _is_mapped(reader: Reader[Any]) -> bool:
    """Return whether functions make a reader's samples, or those of its batches."""
    if not isinstance(reader, Node) or plane_of(reader) is not None:
        return False
    batched = unit_of(reader) == "batches"
    if not batched and reader.in_cursor == "never":
        return True
    return any(map(_is_mapped, reader.input_readers))


def under(branches: Sequence[Sequence[Line]], line: Line) -> list[Line]:
    """Return the line of an op under the lines of its readers; several readers get a rail each.

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


def shortened(text: str, most: int = 240) -> str:
    """Shorten the middle of a long text, such as the names of a thousand files.

    >>> shortened("npy(" + "'part.npy', " * 100 + ")", most=40)
    "npy('part.npy', 'part.npy', … rt.npy', )"
    """
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end - 3]} … {text[-end:]}"


def table(lines: Sequence[Line]) -> str:
    """Return the lines as an HTML table.

    >>> table([Line("Pipeline(<lambda>)", ("length unknown",))]).count("&lt;lambda&gt;")
    1
    """
    rows = "".join(
        f"<tr>{_cell(_op(line.text))}"
        + "".join(_cell(escape(note), f"opacity:0.7{_unbroken(note)}") for note in line.notes)
        + "</tr>"
        for line in lines
    )
    return f'<table style="color:inherit"><tbody>{rows}</tbody></table>'


def _cell(inside: str, style: str = "") -> str:
    """Return a cell; notebooks would align it to the right, and to the middle."""
    return f'<td style="text-align:left;vertical-align:top;{style}">{inside}</td>'


def _op(text: str) -> str:
    """Return an op beside its rails, so that a wide op breaks without them, also inside a word."""
    op = text.lstrip(_RAILS)
    rails = text[: len(text) - len(op)]
    least = f"min-width:{min(len(op), _LEAST)}ch"
    return (
        f'<samp style="display:flex"><span style="white-space:pre">{rails}</span>'
        f'<span style="white-space:pre-wrap;overflow-wrap:anywhere;{least}">{escape(op)}</span>'
        f"</samp>"
    )


def _unbroken(note: str) -> str:
    """Keep a short note on one line; otherwise a wide op leaves a word per line."""
    return ";white-space:nowrap" if len(note) <= _SHORT else ""
