"""`fit` of Keras over a loader, beside the same rows and order as arrays, and as a `PyDataset`.

    KERAS_BACKEND=jax python -m tests.benchmarks.peers.keras_fit

All train the same small model on the same batches, and take turns, epoch by epoch. Printed are the
medians of the processor time of a step, and of its ratio to that of arrays in the same turn.
"""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from jreader import Pipeline, arrays

ROWS, SIZE, TURNS = 60_000, 128, 7


def main() -> None:
    import keras

    rng = np.random.default_rng(0)
    x, y = rng.random((ROWS, 784), np.float32), rng.integers(0, 10, ROWS).astype(np.int32)

    class ByHand(keras.utils.PyDataset):
        num_batches = ROWS // SIZE

        def on_epoch_begin(self) -> None:
            self.order = rng.permutation(ROWS)

        def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
            rows = self.order[index * SIZE : (index + 1) * SIZE]
            return x[rows], y[rows]

    plan, by_hand = Pipeline(arrays(x=x, y=y)).shuffle(seed=0).batch(SIZE), ByHand()
    placed = plan.load(last="drop").for_keras("x", "y")
    unthreaded = plan.load(last="drop", capacity=0).for_keras("x", "y")
    whole = ROWS // SIZE * SIZE
    ways = {
        "arrays": lambda model: model.fit(x[:whole], y[:whole], batch_size=SIZE, verbose=0),
        "PyDataset by hand": lambda model: model.fit(by_hand, verbose=0),
        "jreader": lambda model: model.fit(placed, verbose=0),
        "jreader, capacity=0": lambda model: model.fit(unthreaded, verbose=0),
    }
    models = {}
    for name, fit in ways.items():
        models[name] = keras.Sequential([keras.Input((784,)), keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        models[name].compile("sgd", loss)
        fit(models[name])
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TURNS):
        for name, fit in ways.items():
            began = time.process_time()
            fit(models[name])
            took[name].append((time.process_time() - began) / (ROWS // SIZE))
    for name, times in took.items():
        ratio = median(a / b for a, b in zip(times, took["arrays"], strict=True))
        print(f"{name}: {1e6 * median(times):.0f} us a step, {ratio:.2f} x arrays")


if __name__ == "__main__":
    main()
