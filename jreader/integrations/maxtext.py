"""Batches for MaxText: its names, targets shifted to the left, arrays over its mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jreader.errors import FeedMismatch
from jreader.pipelines import Pipeline
from jreader.readers import Reader


class Batches(Iterator[Any]):
    """The iterator that MaxText's `create_data_iterator` returns; it can restart.

    Attributes:
        local_iterator: The feeds, whose state MaxText stores in its checkpoints.
    """

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin
        self.reset()

    def reset(self) -> None:
        """Restart, as MaxText does before each evaluation."""
        self.local_iterator = self._begin()

    def __next__(self) -> Any:
        """Return the next batch."""
        return next(self.local_iterator)


def batches(
    rows: Reader[Any],
    mesh: Mesh | None = None,
    *,
    pad_id: int = 0,
    steps: int | None = None,
    **options: Any,
) -> Batches:
    """Create MaxText's data iterator from batches of packed or padded rows.

    A batch is a dict of int32 arrays of shape [batch, length]: `inputs`, `targets`, and both with
    `_segmentation` and `_position`, like the output of `ShiftData` in MaxText's Grain pipeline.

    >>> from jreader import Pipeline, ragged
    >>> documents = Pipeline(ragged([11, 12, 13, 21, 31, 32], [0, 3, 4, 6]))
    >>> for name, array in next(batches(documents.pack(4, seed=0).batch(1))).items():
    ...     print(name, *array.tolist())
    inputs [11, 12, 13, 21]
    inputs_segmentation [1, 1, 1, 2]
    inputs_position [0, 1, 2, 0]
    targets [12, 13, 21, 0]
    targets_segmentation [1, 1, 2, 0]
    targets_position [0, 1, 2, 0]

    Args:
        rows: Batches of `.pack(length).batch(n)`, or `.padded_batch(n, to=[length], pad=pad_id)`.
            Documents are arrays of tokens, or dicts of `inputs` and `targets`. n is the global
            batch size on any number of processes. Other fields are dropped.
        mesh: MaxText's mesh: batches are split over all its devices. None for the default device.
        pad_id: The token that ends targets and is never a target itself: MaxText's `pad_id`.
        steps: The number of batches, for an evaluation; None for endless.
        **options: Arguments of `Pipeline.load`.

    Raises:
        FeedMismatch: The rows are neither packed nor padded (while iterating).
    """
    sharding = mesh and NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    plan = Pipeline(rows).map_batches(partial(_as_maxtext, pad_id))
    return Batches(partial(plan.load(sharding=sharding, **options).steps, steps))


def _as_maxtext(pad_id: int, columns: Any) -> dict[str, Any]:
    """Rename the fields of a batch to MaxText's names."""
    feed: dict[str, Any] = {}
    for name in ("inputs", "targets"):
        given = name if name in columns else "tokens"
        tokens, there = columns.get(given), columns.get(f"{given}_mask")
        own = f"{given}_" if f"{given}_segment_ids" in columns else ""
        segments, positions = columns.get(f"{own}segment_ids"), columns.get(f"{own}positions")
        if there is not None:  # a document a row, of which MaxText fills up all fields alike
            segments = np.where(there, tokens != pad_id, pad_id)
            positions = np.where(there, np.arange(tokens.shape[1]), pad_id)
        if tokens is None or segments is None:
            raise FeedMismatch(
                "maxtext.batches(rows) needs rows of .pack(length).batch(n), or of .padded_batch(n,"
                f" to=[length]), with tokens, or inputs and targets; these have {sorted(columns)}."
            )
        feed |= {name: tokens, f"{name}_segmentation": segments, f"{name}_position": positions}
    for name, end in (("targets", pad_id), ("targets_segmentation", 0)):
        feed[name] = np.pad(feed[name][:, 1:], ((0, 0), (0, 1)), constant_values=end)
    feed["targets_segmentation"][feed["targets"] == pad_id] = 0
    return {name: array.astype(np.int32) for name, array in feed.items()}
