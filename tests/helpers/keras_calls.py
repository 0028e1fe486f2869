"""The calls that Keras 3.15 makes of a `PyDataset` on jax; tests/peers/test_keras.py compares."""

from __future__ import annotations

import random
from itertools import islice


class Calls:
    """What one `fit`, or several validations of one, calls.

    Numbers of batches are shuffled, as `fit` does by default.
    """

    def __init__(self, data, steps=None):
        assert data.num_batches
        assert data.workers == 1
        assert not data.use_multiprocessing
        self.data, self.steps = data, steps
        self.batches, self.many, self.seen = None, data.num_batches, 0

    def look(self):
        """A model that is not built yet is given a batch."""
        self.data.on_epoch_begin()
        return next(self.dealt())

    def reset(self):
        self.batches, self.many, self.seen = None, self.data.num_batches, 0
        self.data.on_epoch_end()

    def dealt(self):
        assert self.data.num_batches
        return self.numbered()

    def numbered(self):
        numbers = [*range(self.data.num_batches)]
        random.Random(0).shuffle(numbers)
        for number in numbers:
            yield self.data[number]

    def epoch(self):
        """The batches of an epoch; if it is not exhausted, Keras has stopped in its middle."""
        self.data.on_epoch_begin()
        if self.batches is None or self.steps is None:
            self.batches, self.seen = self.dealt(), 0
        for _ in range(self.steps or self.many):
            if self.seen >= self.many:
                break
            self.seen += 1
            try:
                yield next(self.batches)
            except StopIteration:  # as Keras warns: "Your input ran out of data"
                self.batches = None
                break
        if self.seen >= self.many:
            self.batches, self.seen = self.dealt(), 0
        self.data.on_epoch_end()


def fit(data, epochs=1, steps=None, built=True, stop=None):
    """The batches of each epoch; `stop` is how many batches the last one gives."""
    calls = Calls(data, steps)
    if not built:
        calls.look()
    calls.reset()
    seen = [[*calls.epoch()] for _ in range(epochs - (stop is not None))]
    return seen if stop is None else [*seen, [*islice(calls.epoch(), stop)]]


def validations(data, times=1, built=True, steps=None):
    """The batches of each validation of one `fit`, or of one `evaluate`."""
    calls = Calls(data, steps)
    if not built:
        calls.look()
    seen = []
    for _ in range(times):
        calls.reset()
        seen.append([*calls.epoch()])
    return seen


def predict(data, built=True):
    """The batches of a `predict`, which does not begin as `fit` and `evaluate` do."""
    calls = Calls(data)
    if not built:
        calls.look()
        calls.reset()
    return [*calls.epoch()]
