"""The lines of a plan in its table: an op each, with what is known of it before it is read."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from jreader.readers.mapped_rows import lookup_of
from jreader.readers.messages import described
from jreader.readers.nodes import (
    Node,
    Reader,
    length,
    plane_of,
    readers_below,
    unit_of,
    unread,
    unrolled,
)
from jreader.readers.plan_tables import Line, shortened, under
from jreader.readers.seeds import seeded


def lines_of(reader: Reader[Any]) -> list[Line]:
    """The lines of a table of a plan: an op each, in the order that samples pass through."""
    return unrolled(_table_lines, reader)


def _table_lines(
    reader: Reader[Any],
) -> Generator[Sequence[Reader[Any]], list[list[Line]], list[Line]]:
    while isinstance(reader, Node) and (inner := reader.within()) is not None:
        reader = inner
    branches = yield readers_below(reader)
    if not isinstance(reader, Node):
        return [Line(described(reader), _known(reader))]
    ups = reader.input_readers
    call = f"{type(reader).__name__}({', '.join(reader.written(*ups))})" if ups else repr(reader)
    return under(branches, Line(shortened(call), (*_known(reader), *reader.notes())))


def _known(reader: Reader[Any]) -> tuple[str, str]:
    """How many samples there are, and how they are found; nothing is read for it.

    "mapped" samples are found by their index, and made by a function.

    >>> from jreader import arrays, filter, map_readers, shuffle
    >>> rows = shuffle(arrays([1, 2, 3]))
    >>> _known(rows), _known(filter(bool, rows)), _known(map_readers(abs, rows))
    (('3 samples', 'indexed'), ('length unknown', 'streamed'), ('3 samples', 'mapped'))
    """
    if unread(reader):
        return "length unknown", "not read yet"
    number = length(reader)
    drawn = seeded(reader, 0)  # as each pass has it, whatever it draws
    found = "streamed"
    if lookup_of(drawn) is not None:
        found = "mapped" if _is_mapped(drawn) else "indexed"
    return "length unknown" if number is None else f"{number:,} {unit_of(reader)}", found


def _is_mapped(reader: Reader[Any]) -> bool:
    """Whether functions make the samples of a reader, or those that its batches are made of."""
    if not isinstance(reader, Node) or plane_of(reader) is not None:
        return False
    batched = unit_of(reader) == "batches"
    if not batched and reader.in_cursor == "never":
        return True
    return any(map(_is_mapped, reader.input_readers))
