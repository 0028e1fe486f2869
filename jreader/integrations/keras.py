"""A loader's feeds as a `keras.utils.PyDataset`.

Keras asks a `PyDataset` for batches by number, and `fit` shuffles these numbers unless told not to.
The loader already defines the order, so the numbers are ignored: each request returns the next
feed.

The calls of Keras show which feed is next. `fit`, `evaluate` and `predict` first read `workers`.
They may then peek at a batch to build the model, and immediately end that epoch; the peek is
undone. `fit` ends an epoch that has not begun before it validates; each validation starts where the
first one did.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from jreader.errors import BatchNotDivisible, FeedMismatch, check_number
from jreader.loaders.checkpoints.cursors import beginning
from jreader.loaders.checkpoints.positions import EpochPosition
from jreader.loaders.loading import Loading
from jreader.readers import Cursor, branches, leaves, map_tree


class KerasFeeds:
    """Yields a loader's feeds, epoch after epoch, as `fit`, `evaluate` and `predict` request them.

    Attributes:
        steps: The number of steps in an epoch.
        step: The step whose feed comes next, counted from the start of the run.
        use_multiprocessing: False, since each process would read its own copy of the loader.
    """

    use_multiprocessing = property(lambda _: False)

    def __init__(
        self, loader: Any, names: Any, epoch: int | None, loading: Loading, at: Cursor | None
    ) -> None:
        """Store the arguments; reads nothing.

        Args:
            loader: The loader.
            names: The field names of the inputs, the targets and the sample weights.
            epoch: The epoch that each `fit`, `evaluate` or `predict` starts with; None to continue.
            loading: The loader's settings.
            at: The cursor that the loader resumes, if it has one and `epoch` is None.

        Raises:
            ValueError: An epoch has no feed, feeds have an axis of devices or steps, or the steps
                before the cursor had another size.
        """
        super().__init__()  # PyDataset's
        self._loader, self._names, self._masked = loader, names, loading.masked
        self.steps = check_number("for_keras() of the len(loader)", len(loader), 1)
        if loading.axes > 1 or loading.placement.spans:
            raise ValueError(
                "for_keras() needs feeds of [B, ...]: load without pmap=, places=[...] and chunk(k)"
                "; where several processes train, as .shard(jax.process_count(), "
                "jax.process_index()).batch(n).load(sharding='host'), n rows for each of them."
            )
        first = loader.next_epoch if epoch is None else check_number("for_keras(epoch)", epoch)
        position = EpochPosition.of(at or beginning(first))
        if position.steps and position.rows != (loading.source.rows or position.rows):
            raise ValueError(
                f"for_keras() resumes steps of {position.rows} samples, and here steps have "
                f"{loading.source.rows}: load with the batch size of that run, or give "
                "data.callback to fit and no state to the loader."
            )
        self.step = self._start = self._first = first * self.steps + position.steps
        self._resumed = at
        self._one_epoch, self._peeks, self._in_epoch = epoch is not None, False, False
        self._steps_of_fit = self.steps  # `steps_per_epoch` of `fit`, once the callback knows it
        self._feeds: Any = None
        self._next_step = -1  # the step of the next one of these

    @property
    def workers(self) -> int:
        """Return 1: batches come in order. Keras asks first in `fit`, `evaluate`, `predict`."""
        if not self._one_epoch:
            self._start = self.step
        self.step, self._peeks, self._in_epoch = self._start, True, False
        return 1

    @property
    def num_batches(self) -> int:
        """The steps of an epoch, or those left in one that starts in the middle."""
        return (self._in_epoch and -self.step % self._steps_of_fit) or self.steps

    def on_epoch_begin(self) -> None:
        """Note that Keras begins an epoch or a peek."""
        self._in_epoch = not self._peeks

    def on_epoch_end(self) -> None:
        """Note that Keras ended an epoch or a peek, or is about to begin or validate."""
        if not self._in_epoch:
            self.step = self._start
        self._peeks = self._in_epoch = False

    def __getitem__(self, _index: int) -> tuple[Any, ...]:
        """Return the next batch."""
        step, done = self.step, self.step % self.steps
        if self._next_step != step or (self._one_epoch and not done):
            until = step - done + self.steps if self._one_epoch else None
            at = self._resumed if step == self._first else None
            self._feeds = self._loader.steps(until, at, start=0 if at else step)
        self._next_step = -1  # stays so if this raises
        batch = self._batch(next(self._feeds))
        self._next_step = self.step = step + 1
        return batch

    def _batch(self, feed: Any) -> tuple[Any, ...]:
        """Return the named fields, without the rows that the mask hides: Keras would count them."""
        fields: dict[Any, Any] = {
            **(branches(feed) or {0: feed}),
            **getattr(feed, "_asdict", dict)(),
        }
        mask = _popped_mask(fields) if self._masked else None
        try:
            pair = map_tree(fields.__getitem__, self._names[:2])
            weights = map_tree({"mask": mask, **fields}.__getitem__, self._names[2])
        except KeyError as error:
            raise FeedMismatch(
                f"for_keras{self._names} names {error}, and the fields are {[*fields]}: name some "
                "of these, or lists or dicts of them, and None for targets that there are not."
            ) from None
        batch = (*pair, weights) if weights is not None else pair[: 2 - (pair[1] is None)]
        if mask is None or any(part is mask for part in leaves(weights)):
            return batch
        kept = np.asarray(mask)
        return batch if kept.all() else self._cut(batch, kept)

    def _cut(self, batch: tuple[Any, ...], kept: Any) -> tuple[Any, ...]:
        split = import_module("keras").distribution.distribution()
        rows, parts = kept.sum(), getattr(split, "num_model_replicas", 1)
        if not rows or rows % parts:
            raise BatchNotDivisible(
                f"the mask leaves {rows} rows of step {self.step} for {parts} devices: type load("
                "last='drop') or 'wrap'; or sample_weight='mask', and compile(weighted_metrics=...)"
            )
        return tuple(map_tree(lambda part: np.asarray(part)[kept], batch))

    @property
    def callback(self) -> Any:
        """Return a callback for `fit` that resumes a stopped run at the very next sample.

        The number of steps that the optimizer has counted is the position in the data.
        `BackupAndRestore` saves it with the weights, even in the middle of an epoch.
        """

        def begin(epoch: int, _logs: object) -> None:
            if self.step == self._start:  # the first epoch of this `fit`
                optimizer, self._steps_of_fit = made.model.optimizer, made.params["steps"]
                done = int(optimizer.iterations) * (optimizer.gradient_accumulation_steps or 1)
                self.step = done or epoch * self._steps_of_fit

        made = import_module("keras").callbacks.LambdaCallback(on_epoch_begin=begin)
        return made


def _popped_mask(fields: dict[Any, Any]) -> Any:
    """Pop the mask of a feed, by its name or as a tuple's last field; the other fields stay."""
    mask = fields.pop("mask" if "mask" in fields else [*fields][-1])
    if mask.dtype != bool:
        raise FeedMismatch(
            f"for_keras() needs the mask of padded rows, beside {[*fields]}: return it, too."
        )
    return mask


def keras_feeds(*given: Any) -> KerasFeeds:
    """Return the feeds as a `PyDataset`, a class made here because Keras is optional.

    Raises:
        RuntimeError: Keras runs on a backend other than jax.
    """
    keras = import_module("keras")
    if keras.config.backend() != "jax":
        raise RuntimeError(
            "for_keras() needs Keras on jax: set KERAS_BACKEND=jax before its import"
        )
    feeds: KerasFeeds = type("KerasFeeds", (KerasFeeds, keras.utils.PyDataset), {})(*given)
    return feeds
