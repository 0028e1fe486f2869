"""What a loader's iterator knows: its feeds, its step, and where it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple

from jreader.errors import ReaderError, check_number
from jreader.loaders.cursors import sealed
from jreader.readers import Cursor, Pass, Position

SKIPPED: Any = object()
"""What stands for the feed of a step that is left out: its place counts all the same."""


class Here(NamedTuple):
    """Where a pass of feeds is in its epoch: what a cursor has of it."""

    samples: int
    position: Position
    digest: str


@dataclass
class Place:
    """A cursor that moves; a loader keeps it when its iterator, with all it holds, is gone.

    Attributes:
        cursor: Where it is.
        began: Where it was when its epoch was begun, or resumed; None if it was not.
    """

    cursor: Cursor
    began: Cursor | None = None


class FeedIterator(Iterator[Any]):
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
        begin: Callable[[Cursor, int], Pass[Any]],
        place: Place,
        steps: int | None = None,
        turned: Callable[[Position], Position] = lambda _: None,
        *,
        endless: bool = False,
        start: int = 0,
        find: Callable[[int], Cursor | None] = lambda _: None,
    ) -> None:
        """Begins at a place, and goes on to step `start`.

        Args:
            begin: Gives what is left of an epoch after a cursor, and passes over so many feeds.
            place: The place.
            steps: How many steps of the run there are at most.
            turned: Gives the position of the next epoch at the end of one.
            endless: Whether the next epoch follows.
            start: The first step that is handed over.
            find: Gives the cursor of a step, where it is known without reading up to there.
        """
        self.waited = 0.0
        self._place, self._begin, self._steps, self._endless = place, begin, steps, endless
        self._turned = turned
        self._start, self._find, self._first = start, find, place.cursor
        self._pass: Pass[Any] | None = None
        self._enter()

    @property
    def cursor(self) -> Cursor:
        """Where it is: a small dict, exact through JSON."""
        return sealed(self._place.cursor)

    @property
    def step(self) -> int:
        """How many feeds were handed over, those before the cursor it began at included.

        Steps that are left out count.
        """
        return self._place.cursor["step"]

    @property
    def epoch(self) -> int:
        """The epoch of the feed handed over last; once it has ended, the next one."""
        return self._place.cursor["epoch"]

    def _enter(self) -> None:
        self._place.began = self._place.cursor
        try:
            self._pass = self._begin(self._place.cursor, max(self._start - self.step, 0))
        except StopIteration as stopped:  # which would be the end of all epochs
            raise RuntimeError(
                f"raised StopIteration when epoch {self.epoch} was begun"
            ) from stopped
        self._fresh = not self._place.cursor["samples"]
        self._move(self.epoch, self.step, self._pass.position())

    def _move(self, epoch: int, step: int, here: Here) -> None:
        samples, position, digest = here
        before = self._place.cursor
        self._place.cursor = Cursor(
            epoch=epoch,
            step=step,
            samples=samples,
            position=position,
            digest=digest,
            skipped=before["skipped"],
            plan=before["plan"],
            format=before["format"],
            stream_version=before["stream_version"],
            check="",  # made when it is asked for
        )

    def __next__(self) -> Any:
        """The next feed."""
        came = time.perf_counter()
        while (here := self._pass) and (self._steps is None or self.step < self._steps):
            try:
                feed = next(here.items)
            except StopIteration:
                if here is self._pass:  # else another thread has closed it meanwhile
                    self._turn()
                continue
            except BaseException:
                self.close()
                raise
            self._fresh = False
            self._move(self.epoch, self.step + 1, here.position())
            if feed is SKIPPED:
                continue
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
        if not self._endless and self.step < self._start:
            raise too_few(self.epoch, self.step, self._start)
        before = self._place.cursor
        step, at = self.step if self._endless else 0, self._turned(before["position"])
        self._move(self.epoch + 1, step, Here(0, at, before["digest"]))
        if not self._endless:
            self._place.cursor["skipped"] = []  # those were steps of this epoch
        else:
            self._enter()

    def seek(self, step: int) -> None:
        """Goes to a step, forward or back, as `feeds.step` counts: its feed is the next one.

        At once where the plan is indexed; else what lies before it is read, and dropped.

        >>> import numpy as np
        >>> from jreader import Pipeline, arrays
        >>> feeds = Pipeline(arrays(x=np.arange(6.0))).batch(2).load().steps()
        >>> feeds.seek(4)
        >>> next(feeds)["x"].tolist(), feeds.step, feeds.epoch
        ([2.0, 3.0], 5, 1)

        Raises:
            ValueError: The step is negative, or beyond an epoch; or it lies behind, and the plan
                draws anew for each pass, or the pass began at a cursor of another size.
        """
        start, first = check_number("feeds.seek(step)", step), self._first
        try:
            cursor = self._find(start)
        except ValueError:
            if not self._reaches(start):
                raise
            cursor = None  # what this pass has drawn, it goes on with
        if cursor is None:
            cursor = self._place.cursor if self._reaches(start) else first
            if start < first["step"]:
                raise ValueError(
                    f"feeds.seek({start}) asks for a step before this pass, which began at step "
                    f"{first['step']}, and its source has to be read: begin a pass with "
                    f"loader.steps(start={start})."
                )
        elif (there := self._find(first["step"])) and _where(there) != _where(first):
            raise ValueError(
                f"feeds.seek({start}) counts steps of one size, and those before the cursor that "
                f"this pass began at were of another size: it stands at sample {first['samples']} "
                f"of epoch {first['epoch']} after {first['step']} steps. Begin a pass without at=."
            )
        self.close()
        self._place.cursor = {**cursor, "skipped": first["skipped"]}
        self._start = start
        self._enter()

    def _reaches(self, step: int) -> bool:
        """Whether a step lies ahead, in the epoch that is under way or, in a run, a later one."""
        return step >= self.step and (self._endless or self.epoch == self._first["epoch"])

    def close(self) -> None:
        """Stops the thread, and lets go of what was prepared; there are no more feeds."""
        if self._pass:
            here, self._pass = self._pass, None
            here.close()

    def __enter__(self) -> FeedIterator:
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


def _where(cursor: Cursor) -> tuple[int, int]:
    return cursor["epoch"], cursor["samples"]


def too_few(epoch: int, steps: int, start: int) -> ValueError:
    """The error of a start beyond an epoch."""
    return ValueError(
        f"epoch {epoch} has {steps} steps, and start={start} lies beyond: steps of an epoch count "
        f"from 0; loader.steps(start=...) counts on through later ones."
    )
