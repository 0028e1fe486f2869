"""`jreader lock`: record everything that determines the samples of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jreader.commands.named_pipelines import reader_of
from jreader.pipelines import locking


def write_lock(subject: Any, path: str, *, sampled: bool) -> Iterator[str]:
    """Write the lock of a plan, and yield a line about it.

    Args:
        subject: A reader or a loader.
        path: The file to write.
        sampled: Whether to hash only some ranges of large files.
    """
    yield f"{path}: lock {locking.lock(reader_of(subject), path, sampled=sampled)}"


def agreement(target: str, path: str) -> str:
    """Return the message of `check` for a plan that matches its lock."""
    return f"{target} is as {path} says: plan, packages and data{locking.unseen(path)}"
