"""Cursors in the checkpoints of orbax: a run resumes its feeds along with its parameters.

`Save` and `Restore` are arguments of orbax, like its `StandardSave` and `StandardRestore`. Put them
beside these into a `Composite`; you need not register a handler:

    >>> import tempfile
    >>> import numpy as np
    >>> import orbax.checkpoint as ocp
    >>> from jreader import Pipeline, arrays, checkpoint
    >>> loader = Pipeline(arrays(n=np.arange(8))).shuffle(seed=0).batch(2).load()
    >>> feeds = loader.steps()
    >>> first = next(feeds)
    >>> with ocp.CheckpointManager(tempfile.mkdtemp()) as manager:
    ...     saved = manager.save(1, args=ocp.args.Composite(data=checkpoint.Save(feeds)))
    ...     later = [next(feeds)["n"].tolist() for _ in range(3)]
    ...     manager.wait_until_finished()
    ...     kept = manager.restore(1, args=ocp.args.Composite(data=checkpoint.Restore(feeds)))
    >>> [next(feeds)["n"].tolist() for _ in range(3)] == later
    True

It needs `python -m pip install 'jreader[checkpoint]'`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax

from jreader.errors import NotResumable
from jreader.extras import extra
from jreader.loaders import DataLoader
from jreader.loaders.checkpoints.cursors import checked
from jreader.loaders.iterators import FeedIterator
from jreader.readers import Cursor

ocp: Any = extra("orbax.checkpoint", "checkpoint", "jreader.checkpoint needs orbax")

Feeds: TypeAlias = FeedIterator[Any] | DataLoader[Any]
_OF_ALL = "metadata"  # the name that JsonSave uses: either reads the other's files


class CursorHandler(ocp.JsonCheckpointHandler):  # type: ignore[misc]  # orbax ships no types
    """Called by orbax for `Save` and `Restore`; users need not name it."""

    async def async_save(self, directory: Any, _item: None = None, args: Any = None) -> list[Any]:
        """Take the cursor now, and return what writes it later."""
        try:
            written = asyncio.to_thread(_writing(args.feeds), directory)
        except Exception as error:  # orbax reports it; raising would hang its threads
            failed = Future[None]()
            failed.set_exception(error)
            return [failed]
        return [ocp.future.CommitFutureAwaitingContractedSignals(written, name="jreader")]

    def restore(self, directory: Any, _item: None = None, args: Any = None) -> Any:
        """Return the cursor, or the feeds at it."""
        cursor = _read(directory)
        return cursor if args.feeds is None else _moved(args.feeds, cursor)


@ocp.args.register_with_handler(CursorHandler, for_save=True)
@dataclass
class Save(ocp.args.CheckpointArgs):  # type: ignore[misc]  # orbax ships no types
    """Save the cursor of feeds as it is when you call save, even if orbax writes it later.

    One process writes the cursor of feeds that all processes share. If each process has its own
    feeds, each writes its own cursor.

    Attributes:
        feeds: The feeds; or a loader, whose latest pass counts.
    """

    feeds: Feeds

    def __post_init__(self) -> None:
        """Raise TypeError for anything else, where it is written."""
        _check(self.feeds)


@ocp.args.register_with_handler(CursorHandler, for_restore=True)
@dataclass
class Restore(ocp.args.CheckpointArgs):  # type: ignore[misc]  # orbax ships no types
    """Restore a cursor, for `loader.steps(n, at=cursor)`; or move feeds to it.

    It also restores a cursor saved by `JsonSave(feeds.cursor)`.

    Attributes:
        feeds: The feeds, which resume at the cursor; or a loader, whose next `iter(loader)` does.
            None for only the cursor.
    """

    feeds: Feeds | None = None

    def __post_init__(self) -> None:
        """Raise TypeError for anything else, where it is written."""
        _check(self.feeds, or_none=True)


def _own() -> str:
    """Return the name of this process's file, if each process has its own."""
    return f"process_{jax.process_index()}-of-{jax.process_count()}.json"


def _writing(feeds: Feeds) -> Callable[[Any], object]:
    """Return a function that writes the present cursor of the feeds into a folder."""
    loading = feeds._loading  # noqa: SLF001  # used here only
    shared = loading is not None and loading.placement.spans
    # on all processes: if only one raised, orbax would make the others wait for it
    text = json.dumps(feeds.cursor if isinstance(feeds, FeedIterator) else feeds.state_dict())
    if shared and jax.process_index():
        return lambda _directory: None
    name = _OF_ALL if shared or jax.process_count() == 1 else _own()
    return lambda directory: (directory / name).write_text(text)


def _read(directory: Any) -> Cursor:
    """Return the cursor of this process."""
    here = [each for each in (directory / _OF_ALL, directory / _own()) if each.exists()]
    found = {each.read_text() for each in here or directory.glob("process_*")}
    if len(found) != 1:
        raise NotResumable(
            f"the item {directory.name!r} of this checkpoint has {len(found)} cursors, and no "
            f"{_own()}. Restore an item that checkpoint.Save(feeds) has saved; on as many "
            f"processes as saved it, where each had feeds of its own."
        )
    return checked(json.loads(found.pop()))


def _moved(feeds: Feeds, cursor: Cursor) -> Feeds:
    """Move the feeds to the cursor, and return them."""
    (feeds.set_state if isinstance(feeds, FeedIterator) else feeds.load_state_dict)(cursor)
    return feeds


def _check(feeds: Any, *, or_none: bool = False) -> None:
    if not isinstance(feeds, (FeedIterator, DataLoader)) and not (or_none and feeds is None):
        raise TypeError(f"give feeds or a loader, as in checkpoint.Save(feeds), not {feeds!r}")
