"""Which op an error belongs to, and where it was made: a note, where nothing else says so."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from jreader.errors import FeedMismatch, noted
from jreader.readers.messages import described
from jreader.readers.nodes import Node, Reader, field_value, origin


def located(error: BaseException, reader: Reader[Any]) -> None:
    """Adds a note to an error of a pass: the plan, and the line that made it.

    It adds nothing where the error, or a note, names a line already. Samples that make no batch
    are those of an op further down, which the note names too.

    >>> from jreader import map_readers
    >>> error = FeedMismatch("sample 0 of a batch is None")
    >>> located(error, map_readers(print, lambda: "ab"))
    >>> located(error, map_readers(print, lambda: "ab"))
    >>> error.__notes__  # doctest: +ELLIPSIS
    ['raised in map_readers(print, <lambda>), made at ...; samples are made by map_readers(print, \
<lambda>), made at ...']
    """
    if not isinstance(error, Exception) or not isinstance(reader, Node):
        return
    with suppress(Exception):  # of a class that a user wrote, whose text may be an error
        if "made at " in "\n".join([str(error), *getattr(error, "__notes__", ())]):
            return
        note = f"raised in {described(reader)}, made at {reader.made_at}"
        if isinstance(error, FeedMismatch) and isinstance(op := _maker(reader), Node):
            note += f"; samples are made by {described(op)}, made at {op.made_at}"
        noted(error, note)


def _maker(reader: Reader[Any]) -> Reader[Any]:
    """The op that makes the samples of batches."""
    op = origin(reader, "all", "some")
    while isinstance(op, Node) and op.unit == "batches":
        op = origin(field_value(op, "reader"), "all", "some")
    return op


class located_errors:  # read as `with located_errors(op):`
    """Has the errors of a block name an op, as `located` does; it costs nothing for each sample."""

    def __init__(self, reader: Reader[Any]) -> None:
        self.reader = reader

    def __enter__(self) -> None:
        """Does nothing."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Adds the note."""
        if error is not None:
            located(error, self.reader)
