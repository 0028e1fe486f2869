"""A log of data generated during training (replay, rollouts), sampled by step.

A log only grows, and each row and priority records the step from which it takes effect. So the
sample of a step is a function of the seed, the step, and earlier entries: a killed run replays
exactly, and its cursor is small, however long the log is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import numpy as np

from jreader.errors import NotResumable, ReaderError, check_number
from jreader.orders import key
from jreader.orders.keys import as_seed
from jreader.readers import Node, Pass, Position, argument, checked_position, counted, described, op
from jreader.readers.trees import Columns, leaves, leaves_in_order, map_tree, rebuilt

Array = np.ndarray[Any, Any]

_AT_LEAST = 1 << 10  # rows to allocate at first
_BLOCK = 64  # priorities per partial sum
_LEAST, _MOST = 1e-300, 1e300  # bounds of priorities: sums stay finite, no share rounds to 0


class replay:
    """A replay buffer: a log of rows that grows during training, sampled uniformly or by priority.

    Appended rows and new priorities take effect at the next step, or a later one that you give. So
    a run that resumes from `cursor` samples the same rows again.

    >>> log = replay({"observation": np.zeros(2, np.float32), "reward": 0}, seed=0)
    >>> log.append({"observation": np.ones((3, 2)), "reward": np.array([10, 11, 12])})
    3
    >>> log.sample(0, 6)["reward"].tolist()
    [11, 10, 10, 10, 10, 11]
    >>> log.set_priorities(np.arange(3), np.array([0, 5, 0]))
    >>> log.sample(1, 6)["reward"].tolist()
    [11, 11, 11, 11, 11, 11]

    Cost: beside the rows, 8 bytes per row, and 24 per priority set. In a folder, they are
    memory-mapped files.

    Args:
        example: One sample, as a tree: it defines the fields, shapes and dtypes.
        seed: An int >= 0, or a jax key.
        newest: Sample only this many of the newest rows; None for all. All are stored.
        folder: The folder to store the rows in, so that a run can resume; None for in memory.
        at: The `cursor` of a run to resume in its folder. Rows appended after it are dropped.

    Attributes:
        step: The last step that was sampled; -1 before the first.

    Raises:
        FileExistsError: The folder holds files, and `at` is not given.
        NotResumable: The cursor belongs to another log, or the folder has fewer rows.
    """

    def __init__(
        self,
        example: Any,
        seed: Any,
        *,
        newest: int | None = None,
        folder: str | Path | None = None,
        at: Mapping[str, Any] | None = None,
    ) -> None:
        self._example, seed = map_tree(np.asarray, example), as_seed(seed, "replay(example, seed)")
        self._newest = check_number("newest of replay", newest, 1) if newest is not None else None
        given = {"log": described(self._example), "seed": seed, "newest": self._newest}
        begin = {"step": -1, "rows": 0, "changes": 0}
        self._kinds = _checked_leaves(self._example)
        if at is not None and (folder is None or not _is_cursor(at, given, begin)):
            raise NotResumable(
                f"this cursor, {at}, is of another log than {given} in {folder}: give "
                f"what its run gave, and its folder."
            )
        self._saved = {**given, **(at or begin)}
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            if at is None and any(Path(folder).iterdir()):
                raise FileExistsError(f"{folder} holds files: give at=cursor, or another folder.")
        self.step: int = self._saved["step"]
        self._rows = _Table("rows", self._kinds, folder, self._saved["rows"])
        self._changes = _Table("changes", (0, 0.0), folder, self._saved["changes"])
        low, high = key(seed)
        self._random = np.random.Philox(key=[0, low.item() << 32 | high.item()])
        self._begin: Any = self._random.state
        self._priorities, self._read = _Priorities(), False

    def __repr__(self) -> str:
        return f"replay({self._saved['log']}, seed={self._saved['seed']})"

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._rows.held

    @property
    def cursor(self) -> dict[str, Any]:
        """Return the state to save beside the model, as JSON; flushes the folder to disk."""
        counts = {"step": self.step, "rows": self._rows.flush(), "changes": self._changes.flush()}
        return {**self._saved, **counts}

    def append(self, batch: Any, step: int | None = None) -> int:
        """Append rows, which can be sampled from a step on.

        Args:
            batch: A tree of arrays like `example`, with a leading axis of rows.
            step: The step; None for the one after the last sampled step.

        Returns:
            The number of rows of the log.

        Raises:
            ValueError: The step was sampled already; or the batch has other fields or shapes,
                columns of different lengths, or values that the dtypes of `example` cannot hold.
        """
        parts = list(map(np.asarray, leaves_in_order(self._example, batch)))
        many = parts[0].shape[:1] or (1,)
        if [each.shape for each in parts] != [(*many, *kind.shape) for kind in self._kinds]:
            raise ValueError(
                f"append(batch) of replay needs {described(self._example)} with an axis of rows in "
                f"front, not {described(batch)}: stack the rows, or type x[None] for one."
            )
        if not all(map(_holds, self._kinds, parts)):
            raise ValueError(
                f"replay keeps {described(self._example)}, which does not hold all values of "
                f"{described(batch)}: give an example of a dtype that does, or convert the batch."
            )
        return self._rows.append(self._from_step(step, self._rows), parts)

    def set_priorities(self, rows: Any, values: Any, step: int | None = None) -> None:
        """Set the priorities of rows from a step on.

        The probability of a row is its share of the sum of all priorities; the default is 1.

        Args:
            rows: Row numbers, as `rows(step, size)` returns them. The last of duplicates counts.
            values: A number of at least 0 per row.
            step: The step; None for the one after the last sampled step.

        Raises:
            ValueError: The step was sampled already; a row does not exist; or a value is missing,
                or neither 0 nor from 1e-300 to 1e300.
        """
        where, given = np.asarray(rows), np.asarray(values)
        first = self._from_step(step, self._changes)
        held = self._rows.at_step(first)
        if where.shape != given.shape or not (_are_rows(where, held) and _are_priorities(given)):
            raise ValueError(
                f"set_priorities(rows, values) needs numbers of rows below {held}, those of step "
                f"{first}, and a value for each, 0 or from {_LEAST} to {_MOST}, not "
                f"{described(where)} and {described(given)}."
            )
        self._changes.append(first, [where.ravel(), given.ravel()])

    def _from_step(self, step: int | None, table: _Table) -> int:
        if step is None and self._read:
            raise TypeError(
                "a loader may sample steps of replay ahead: give the step from which on this "
                "counts, step=feeds.step for the next feed."
            )
        least = max(self.step + 1, table.last)
        if step is not None and check_number("step of replay", step) < least:
            raise ValueError(
                f"what a step samples must not change once it was sampled, or declared for a later "
                f"one: give a step of at least {least}, not {step}. If a loader samples, type "
                f".load(capacity=0)."
            )
        return least if step is None else step

    def rows(self, step: int, size: int) -> Array:
        """Return the numbers of the rows that a step samples, with replacement.

        Raises:
            ReaderError: There are no rows at that step, or all priorities are 0.
            ValueError: `step` or `size` is below 0.
        """
        step, size = check_number("step of replay", step), check_number("size of replay", size)
        held, changed = self._rows.at_step(step), self._changes.at_step(step)
        if not held:
            raise ReaderError(f"replay has no rows at step {step}: append some before.")
        self.step = max(self.step, step)
        self._begin["state"]["key"][0] = step
        self._random.state = self._begin
        places = (self._random.random_raw(size) >> np.uint64(11)) * 2.0**-53
        first = max(held - (self._newest or held), 0)
        if changed:
            self._priorities.follow(first, held, changed, self._changes)
            return self._priorities.find(places)
        drawn: Array = first + (places * (held - first)).astype(np.int64)
        return drawn

    def take(self, rows: Array) -> Any:
        """Return the rows with these numbers, as a tree of arrays.

        Raises:
            IndexError: A row does not exist.
        """
        rows = np.asarray(rows)
        if not _are_rows(rows, len(self)):
            raise IndexError(
                f"take(rows) of replay needs numbers of rows below {len(self)}, not "
                f"{described(rows)}: give what log.rows(step, size) returned."
            )
        return rebuilt(self._example, (each.take(rows, 0) for each in self._rows.arrays[1:]))

    def sample(self, step: int, size: int) -> Any:
        """Return the rows that a step samples, as a tree of arrays: `take(rows(step, size))`."""
        return self.take(self.rows(step, size))

    def samples(self, size: int) -> Node[Any]:
        """Read the samples of consecutive steps, `size` per step.

        Type `Pipeline(log.samples(size)).batch(size).load(capacity=0)`: append the rows that a step
        samples before its feed is made. From then on, pass a `step` to `append` and
        `set_priorities`.
        """
        self._read = True
        return _Replayed(self, check_number("samples(size) of replay", size, 1))


def _checked_leaves(example: Any) -> list[Any]:
    kinds = leaves(example)
    if not kinds or any(np.asarray(kind).dtype.hasobject for kind in kinds):
        raise TypeError(
            f"replay(example, seed) needs a tree of arrays or numbers, not {described(example)}: "
            f"type {{'reward': 0}}, say."
        )
    return kinds


def _is_cursor(at: Any, given: Mapping[str, Any], begin: Mapping[str, int]) -> bool:
    if not isinstance(at, Mapping) or {**at, **given} != at or {*at} != {*given, *begin}:
        return False
    return all(type(at[name]) is int and at[name] >= least for name, least in begin.items())


def _are_rows(rows: Array, below: int) -> bool:
    """Return whether all are row numbers below `below`."""
    whole = rows.dtype.kind in "iu" or not rows.size
    return whole and bool(((rows >= 0) & (rows < below)).all())


def _are_priorities(values: Array) -> bool:
    if not np.can_cast(values.dtype, float):
        return False
    values = values.astype(float)
    return bool(((values == 0) | ((values >= _LEAST) & (values <= _MOST))).all())


def _holds(kind: Array, part: Array) -> bool:
    """Return whether an example's dtype can hold the values; floats may be rounded."""
    if part.dtype == kind.dtype:
        return True
    if kind.dtype.kind in "fc" or part.dtype.kind not in f"biuf{kind.dtype.kind}":
        return np.can_cast(part.dtype, kind.dtype, "same_kind")
    with np.errstate(invalid="ignore"):
        return np.array_equal(part.astype(kind.dtype), part)


@op
class _Replayed(Node[Any]):
    """Yield the samples of a log, step by step; a position is their number."""

    log: Any = argument(cursor="never")
    size: int

    def start(self, at: Position) -> Pass[Any]:
        """Start a pass, perhaps inside a step."""
        done = checked_position(at, 0)
        batches = self._steps(done // self.size)
        items, given = counted(islice(chain.from_iterable(batches), done % self.size, None), done)
        return Pass(items, given, lambda: None)

    def batches(self, size: int, at: Position) -> Pass[Sequence[Any]] | None:
        """Yield whole steps as batches, without separate samples."""
        first, inside = divmod(checked_position(at, 0), self.size)
        items, given = counted(self._steps(first), first)
        whole = size == self.size and not inside
        return Pass(items, lambda: given() * size, lambda: None) if whole else None

    def may_be_endless(self) -> bool:
        """True: it has no end."""
        return True

    def _steps(self, first: int) -> Any:
        return (Columns(self.log.sample(step, self.size)) for step in count(first))


class _Table:
    """Growing arrays of rows; the first holds the step from which each row takes effect.

    Attributes:
        arrays: The arrays, which are longer than the rows that they hold.
        held: The number of rows.
        last: The step from which the last row takes effect.
    """

    def __init__(self, name: str, kinds: Sequence[Any], folder: Any, held: int) -> None:
        self.held, self._folder, self._name = held, folder, name
        self.arrays: list[Array] = [np.array(kind)[None][:0] for kind in (0, *kinds)]
        self._extend(held)
        self.last = int(self.arrays[0][held - 1]) if held else 0

    def append(self, step: int, parts: Sequence[Array]) -> int:
        """Add rows that take effect at a step; return the number of rows."""
        end = self.held + len(parts[0])
        if end > len(self.arrays[0]):
            self._extend(end)
        for array, part in zip(self.arrays, (step, *parts), strict=True):
            array[self.held : end] = part
        self.last = step if end > self.held else self.last
        self.held = end
        return end

    def at_step(self, step: int) -> int:
        """Return the number of rows in effect at a step."""
        known = step >= self.last
        return self.held if known else int(self.arrays[0][: self.held].searchsorted(step, "right"))

    def flush(self) -> int:
        """Write mapped arrays to disk; return the number of rows."""
        for array in self.arrays:
            if isinstance(array.base, np.memmap):
                array.base.flush()
        return self.held

    def _extend(self, many: int) -> None:
        for number, array in enumerate(self.arrays):
            shape = (max(_AT_LEAST, 2 * many), *array.shape[1:])
            if self._folder is None:
                longer = np.empty(shape, array.dtype)
                longer[: self.held] = array[: self.held]
            else:
                file = Path(self._folder, f"{self._name}.{number}")
                file.touch()
                if file.stat().st_size < self.held * np.dtype((array.dtype, shape[1:])).itemsize:
                    raise NotResumable(f"{file} has fewer than {self.held} {self._name}.")
                longer = np.memmap(file, array.dtype, "r+", shape=shape).view(np.ndarray)
            self.arrays[number] = longer


class _Priorities:
    """Priorities of rows, with a sum per block.

    A sum is recomputed from its block, so it does not depend on the order of changes.
    """

    def __init__(self) -> None:
        self._by_row, self._sums, self._applied = np.zeros(0), np.zeros(0), (0, 0, 0)

    def follow(self, first: int, held: int, changed: int, changes: _Table) -> None:
        """Move to the priorities of rows `first` to `held`, after `changed` changes."""
        if held < self._applied[1] or changed < self._applied[2]:
            self._by_row, self._sums, self._applied = (
                np.zeros(0),
                np.zeros(0),
                (0, 0, 0),
            )
        left, here, done = self._applied
        if held > len(self._by_row):
            self._sums.resize(2 * held // _BLOCK + 1, refcheck=False)
            self._by_row.resize(len(self._sums) * _BLOCK, refcheck=False)
        _, rows, values = (array[done:changed] for array in changes.arrays)
        every = np.concatenate([np.arange(here, held), rows, np.arange(left, first)])
        self._by_row[every] = np.concatenate([np.ones(held - here), values, np.zeros(first - left)])
        self._by_row[rows[rows < first]] = 0
        blocks = every // _BLOCK
        self._sums[blocks] = self._by_row.reshape(-1, _BLOCK)[blocks].sum(1)
        self._applied = first, held, changed

    def find(self, places: Array) -> Array:
        """Return the rows at these fractions of the sum of all priorities.

        Raises:
            ReaderError: All priorities are 0.
        """
        ends = self._sums.cumsum()
        if not ends[-1]:
            raise ReaderError("all priorities of replay are 0: set one above 0.")
        left = places * ends[-1]
        block = ends.searchsorted(left, "right")
        left = np.maximum(left - (ends[block] - self._sums[block]), 0)
        ends = self._by_row.reshape(-1, _BLOCK)[block].cumsum(1)
        left = np.minimum(left, np.nextafter(ends[:, -1], 0))  # these sums are rounded differently
        return np.asarray(block * _BLOCK + (ends <= left[:, None]).sum(1))
