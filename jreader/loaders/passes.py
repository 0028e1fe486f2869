"""What a loader's iterator knows: its feeds, its step, and where it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from jreader.errors import NotResumable, ReaderError, check_number
from jreader.orders import STREAM_VERSION
from jreader.readers import Cursor, Pass, Position


@dataclass
class Place:
    """A cursor that moves; a loader keeps it when its iterator, with all it holds, is gone."""

    cursor: Cursor


class FeedPass(Iterator[Any]):
    """Feeds, one after another; between any two of them it knows its place.

    It stops its thread when it is exhausted, closed, dropped, or left by `with`.

    >>> import numpy as np
    >>> from jreader import Pipeline, arrays
    >>> feeds = iter(Pipeline(arrays(x=np.arange(6.0))).batch(2).load())
    >>> next(feeds)["x"].tolist(), feeds.step
    ([0.0, 1.0], 1)
    >>> feeds.cursor["epoch"], feeds.cursor["step"]
    (0, 1)

    Attributes:
        waited: Seconds that the consumer waited for feeds.
    """

    def __init__(
        self,
        begin: Callable[[int, Position], Pass[Any]],
        place: Place,
        steps: int | None = None,
        *,
        endless: bool = False,
    ) -> None:
        """Begins at a place; `begin` gives what is left of an epoch from a position on."""
        self.waited = 0.0
        self._place, self._begin, self._steps, self._endless = place, begin, steps, endless
        self._pass: Pass[Any] | None = None
        self._enter(place.cursor["position"])

    @property
    def cursor(self) -> Cursor:
        """Where it is: a small dict, exact through JSON."""
        return self._place.cursor

    @property
    def step(self) -> int:
        """How many feeds were handed over, those before the cursor it began at included."""
        return self.cursor["step"]

    @property
    def epoch(self) -> int:
        """The epoch of the feed handed over last; once it has ended, the next one."""
        return self.cursor["epoch"]

    def _enter(self, position: Position) -> None:
        self._pass = self._begin(self.epoch, position)
        self._fresh = position is None
        self._move(self.epoch, self.step, self._pass.position())

    def _move(self, epoch: int, step: int, position: Position) -> None:
        self._place.cursor = Cursor(
            epoch=epoch, step=step, position=position, stream_version=STREAM_VERSION
        )

    def __next__(self) -> Any:
        """The next feed."""
        came = time.perf_counter()
        while self._pass and (self._steps is None or self.step < self._steps):
            try:
                feed = next(self._pass.items)
            except StopIteration:
                self._turn()
                continue
            except BaseException:
                self.close()
                raise
            self._fresh = False
            self._move(self.epoch, self.step + 1, self._pass.position())
            self.waited += time.perf_counter() - came
            return feed
        self.close()
        raise StopIteration

    def _turn(self) -> None:
        """The epoch is over: the next one follows, or nothing."""
        self.close()
        if self._endless and self._fresh:
            raise ReaderError(
                f"epoch {self.epoch} gave no feed, and steps(...) would go round for ever: check "
                f"that the data hold at least one full batch, or give drop_last=False"
            )
        self._move(self.epoch + 1, self.step if self._endless else 0, None)
        if self._endless:
            self._enter(None)

    def close(self) -> None:
        """Stops the thread, and lets go of what was prepared; there are no more feeds."""
        if self._pass:
            here, self._pass = self._pass, None
            here.close()

    def __enter__(self) -> FeedPass:
        """Is closed when the block is left."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes, whatever happened."""
        self.close()


def beginning(epoch: int) -> Cursor:
    """The cursor of an epoch of which nothing was read."""
    return Cursor(epoch=epoch, step=0, position=None, stream_version=STREAM_VERSION)


def checked(cursor: Any) -> Cursor:
    """A cursor, refused where it is none, or of another stream."""
    needed = {"epoch", "step", "position", "stream_version"}
    if not isinstance(cursor, dict) or set(cursor) != needed:
        raise ValueError(
            f"this is no cursor: {cursor!r}. Give feeds.cursor or loader.state_dict() of an "
            f"earlier run, a dict of {sorted(needed)}."
        )
    if cursor["stream_version"] != STREAM_VERSION:
        raise NotResumable(
            f"this cursor is of stream version {cursor['stream_version']}, and this jreader deals "
            f"version {STREAM_VERSION}, in other orders: resume with the release that wrote it"
        )
    return Cursor(
        epoch=check_number("the epoch of a cursor", cursor["epoch"]),
        step=check_number("the step of a cursor", cursor["step"]),
        position=cursor["position"],
        stream_version=STREAM_VERSION,
    )
