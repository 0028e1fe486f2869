"""`jreader check`: what the linter finds, a line each."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from jreader.commands.named_pipelines import CommandFailed, is_loader
from jreader.commands.peek import first_items
from jreader.linting import lint


def check(subject: Any, ignore: Collection[str] = (), *, measure: bool = True) -> Iterator[str]:
    """The findings of a plan or a loader, with functions timed: the line of an op, and the fix.

    >>> from jreader import Pipeline
    >>> list(check(Pipeline(lambda: range(10)).batch(2)))
    []

    Args:
        subject: A reader or a loader.
        ignore: The names of findings to leave out.
        measure: Whether to time functions.

    Raises:
        CommandFailed: The plan gives nothing, so there is nothing to check.
    """
    found = lint(subject, measure=measure, ignore=ignore)
    if not found and not is_loader(subject) and not first_items(subject, 1):
        raise CommandFailed("yields nothing: there is no first sample to check")
    for finding in found:
        yield f"{finding.made_at}: {finding}" if finding.made_at else str(finding)
