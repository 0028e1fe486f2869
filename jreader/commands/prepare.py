"""`jreader prepare`: fill the folders in which a plan stores results, before training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jreader.commands.named_pipelines import CommandFailed, reader_of
from jreader.pipelines.preparing import preparing
from jreader.workers import Processes


def prepare(subject: Any, processes: int | None, part: Any) -> Iterator[str]:
    """Fill each folder of a plan; yield what it will take, and then what was made.

    Args:
        subject: A reader or a loader.
        processes: The number of worker processes; None for only this process.
        part: The part that this program makes, and of how many; None for all.

    Raises:
        CommandFailed: The plan stores nothing in folders.
    """
    workers, none = Processes(processes) if processes else None, True
    for each in preparing(reader_of(subject), workers, part):
        yield str(each)
        none = False
    if none:
        raise CommandFailed("it has neither cache(path) nor filter(fn, keep=path): nothing to do")
