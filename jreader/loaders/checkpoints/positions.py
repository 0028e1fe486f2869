"""The position of a loader's pass: counted per step, recorded per feed, and turned into a cursor.

For each feed a pass records a plain tuple, the fields of a `Place`, whose last one is the position
that a cursor stores: a loop takes many feeds and asks for few cursors. `Tally` counts from one to
the next, and `epochs` joins the epochs of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from jreader.errors import ReaderError
from jreader.loaders.checkpoints.cursors import plan_hash
from jreader.readers import Cursor, Pass, Position, checked_position
from jreader.readers.hashing import text_hash
from jreader.workers import TURN

SKIPPED: Any = object()
"""Replaces the feed of a skipped step, since its position counts all the same."""


class Wanted(NamedTuple):
    """The steps that a pass must give, numbered as in a cursor.

    Attributes:
        first: The first step; the steps before it are read, and each gives `SKIPPED`.
        until: The step to stop before; None for the end.
        endless: Whether the steps of later epochs follow.
    """

    first: int = 0
    until: int | None = None
    endless: bool = False


EVERY = Wanted()
"""All remaining steps of an epoch."""


class EpochPosition(NamedTuple):
    """The position in a cursor, inside its epoch.

    Attributes:
        rows: The rows of a full batch; None before the first batch.
        size: The samples per batch, if `batches` counts samples, or a text of the sizes by step;
            else None.
        batches: The position of the reader of batches (`Pass.position`).
        steps: The number of finished steps of the epoch.
    """

    rows: int | None
    size: int | str | None
    batches: Position
    steps: int

    @classmethod
    def of(cls, cursor: Cursor) -> EpochPosition:
        """Return the position in a cursor.

        >>> from jreader.loaders.checkpoints.cursors import beginning
        >>> EpochPosition.of({**beginning(0), "position": [64, 64, 640, 10]}).steps
        10

        Raises:
            NotResumable: Its position is not a loader's.
        """
        return cls(*checked_position(cursor["position"], (None, None, None, 0)))


class Place(NamedTuple):
    """The position of a pass: the cursor at which it began, and the changes since.

    Attributes:
        began: The cursor at which the pass began.
        samples: The number of finished samples of the epoch.
        runs: A hash of where the runs of consecutive samples begin (`Tally`); "" before a pass.
        end: The index in the epoch at which the last run ends.
        position: The position to store in its cursor: the fields of an `EpochPosition`.
    """

    began: Cursor
    samples: int
    runs: str
    end: int
    position: Position

    @classmethod
    def of(cls, cursor: Cursor) -> Place:
        """Return the place of a cursor, before a pass moves on."""
        runs, _, end = cursor["digest"].rpartition(":")
        return cls(cursor, cursor["samples"], runs, int(end), cursor["position"])

    @property
    def cursor(self) -> Cursor:
        """The cursor of this place."""
        steps = self.position[-1] if self.position else 0
        return {
            **self.began,
            "step": self.began["step"] + steps - EpochPosition.of(self.began).steps,
            "samples": self.samples,
            "position": self.position,
            "digest": f"{self.runs}:{self.end}",
            "check": "",  # set when it is handed out
        }


class Tally:
    """Counts the steps of an epoch, and the samples that a pass gives.

    Consecutive samples are one run, whatever batches they came in. The digest has a hash of where
    runs begin, and where the last one ends. So it does not depend on batch sizes, hosts or devices,
    and costs one comparison per step.

    >>> from jreader.loaders.checkpoints.cursors import beginning
    >>> small, large = Tally(beginning(0)), Tally(beginning(0))
    >>> small.gives(32), small.gives(32), large.gives(64)
    (True, True, True)
    >>> small.runs == large.runs, small.samples, small.steps
    (True, 64, 2)

    Attributes:
        samples: The number of finished samples of the epoch.
        steps: The number of steps that they took.
        place: The fields of the `Place` after them.
    """

    def __init__(self, cursor: Cursor, drawn: int | None = None, wanted: Wanted = EVERY) -> None:
        """Resume at a cursor.

        Args:
            cursor: The cursor.
            drawn: The seed that an unseeded plan drew for this epoch.
            wanted: The steps to give.
        """
        self.began, self.samples, runs, self.end, _ = Place.of(cursor)
        self.steps = EpochPosition.of(cursor).steps if cursor["position"] else 0
        self.runs = runs or plan_hash(cursor["plan"])
        self._seeds, self._skipped = (cursor["epoch"], drawn), cursor["skipped"]
        if cursor["position"] is None or (not self.samples and self.end >= 0):
            self.runs, self.end = text_hash(self.runs, self.end), -1
        self._offset = cursor["step"] - self.steps  # a cursor counts the steps of a run
        self._first, self._until, _ = wanted

    @property
    def left(self) -> int | None:
        """The number of steps still wanted; None for all."""
        return None if self._until is None else max(self._until - self._offset - self.steps, 0)

    def gives(self, samples: int, *batches: Any) -> bool:
        """Count a step of so many samples; return True to give its feed, False to skip it.

        The position after it has these `rows`, `size` and `batches`.
        """
        step, self.steps = self.steps + self._offset, self.steps + 1
        given = not (self._skipped and self._is_skipped(step))
        if given and self.samples != self.end:
            self.runs = text_hash(self.runs, self.end, *self._seeds, self.samples)
        self.samples += samples
        if given:
            self.end = self.samples
        # no call, as every feed has a place
        self.place = self.began, self.samples, self.runs, self.end, (*batches, self.steps)
        return given and step >= self._first

    def _is_skipped(self, step: int) -> bool:
        return any(low <= step < high for low, high, _ in self._skipped)

    def note_place(self, *batches: Any) -> None:
        """Record a place without finishing a step, with these `rows`, `size` and `batches`."""
        self.place = self.began, self.samples, self.runs, self.end, (*batches, self.steps)


def epochs(
    begin: Callable[[Cursor], Pass[Any]],
    cursor: Cursor,
    until: int | None,
    *,
    continues: bool,
    turns: bool = False,
) -> Pass[Any]:
    """Return a pass over the feeds of a run: those of an epoch, of the next one, and so on.

    Prefetching above it crosses the end of an epoch: the first feed of the next epoch is ready when
    the loop has used the last feed of this one.

    Args:
        begin: Begins a pass over an epoch, at a cursor.
        cursor: The cursor that the run begins at.
        until: The number of the step to stop before; None for no end.
        continues: Whether an epoch begins where the previous one ended, as in parts of a stream.
        turns: Whether `TURN` separates two epochs, so that another thread may draw the second.

    Raises:
        ReaderError: An epoch has no feed, so the run would never end (while iterating).
    """
    here = begin(cursor)

    def deal() -> Generator[Any, None, None]:
        nonlocal here
        while True:
            yield from here.items
            ended = Place(*here.position()).cursor
            if until is not None and ended["step"] >= until:
                return
            _check_fed(ended)
            here.close()
            if turns:
                yield TURN
            here = begin({**next_epoch(ended, continues=continues), "step": ended["step"]})

    def position() -> Position:
        return here.position()

    def close() -> None:
        here.close()

    return Pass(deal(), position, close)


def _check_fed(ended: Cursor) -> None:
    if not EpochPosition.of(ended).steps:
        raise ReaderError(
            f"epoch {ended['epoch']} gave no feed, so steps(...) would never end: give data for at "
            "least one full batch, a smaller batch, or last='pad'"
        )


def next_epoch(ended: Cursor, *, continues: bool) -> Cursor:
    """Return the cursor of the next epoch, from one at an epoch's end; its steps begin at 0."""
    resumes = continues and ended["position"] is not None
    position = (*ended["position"][:3], 0) if resumes else None
    return {**ended, "epoch": ended["epoch"] + 1, "step": 0, "samples": 0, "position": position}
