"""A note on an error that names its op, and the line that made it, if nothing else does."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from jreader.errors import FeedMismatch, noted
from jreader.readers.messages import described
from jreader.readers.nodes import Node, Reader, field_value, origin


def located(error: BaseException, reader: Reader[Any]) -> None:
    """Add a note to an error of a pass: the plan, and the line that made it.

    It adds nothing if the error, or a note, already names a line. If samples make no batch, the
    note also names the op below that makes them.

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
    with suppress(Exception):  # the text of a user's own class may raise
        if "made at " in "\n".join([str(error), *getattr(error, "__notes__", ())]):
            return
        note = f"raised in {described(reader)}, made at {reader.made_at}"
        if isinstance(error, FeedMismatch) and isinstance(op := _maker(reader), Node):
            note += f"; samples are made by {described(op)}, made at {op.made_at}"
        noted(error, note)


def _maker(reader: Reader[Any]) -> Reader[Any]:
    """Return the op that makes the samples of batches."""
    op = origin(reader, "all", "some")
    while isinstance(op, Node) and op.unit == "batches":
        op = origin(field_value(op, "reader"), "all", "some")
    return op


class located_errors:  # read as `with located_errors(op):`
    """Make errors of a block name an op, as `located` does, at no cost per sample."""

    def __init__(self, reader: Reader[Any]) -> None:
        self.reader = reader

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Add the note."""
        if error is not None:
            located(error, self.reader)
