"""`jreader show`: print the plan as text, or write it as an HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from jreader.commands.named_pipelines import is_loader
from jreader.readers.plan_lines import lines_of, table

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: clamp(13px, 3.6vw, 15px)/1.5 system-ui, sans-serif; margin: 2em min(2em, 4vw); }}
td {{ padding: 0.1em min(1.5em, 2vw) 0.1em 0; vertical-align: top; }}
</style>
<h1 style="font-size: 1.2em; overflow-wrap: anywhere">{title}</h1>
{table}
</html>
"""


def show(subject: Any, title: str, page: str | None = None) -> Iterator[str]:
    """Return the lines of a plan, one per op, with what is known of it; reads nothing.

    >>> from jreader import Pipeline
    >>> for line in show(Pipeline(lambda: "abc").firstn(2).batch(2), "letters"):
    ...     print(line)
    <lambda>              length unknown  streamed
    ↓ firstn(n=2)         length unknown  streamed
    ↓ batch(batch_size=2) length unknown  streamed

    Args:
        subject: A reader or a loader.
        title: The title of the page.
        page: The file to write a page to instead.
    """
    lines = subject._drawn() if is_loader(subject) else lines_of(subject)  # noqa: SLF001  # our own class
    if page is not None:
        Path(page).write_text(
            _PAGE.format(title=escape(title), table=table(lines)), encoding="utf-8"
        )
        yield f"{page} is written"
        return
    yield from aligned_rows([(line.text, *line.notes) for line in lines])


def aligned_rows(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Align the rows of a table into columns.

    >>> list(aligned_rows([("a", "bcd"), ("efg", "h")]))
    ['a   bcd', 'efg h']
    """
    many = max(map(len, rows), default=0)
    widths = [max(len(row[at]) for row in rows if len(row) > at) for at in range(many)]
    for row in rows:
        gaps = zip(row, widths, strict=False)
        yield " ".join(cell.ljust(width) for cell, width in gaps).rstrip()
