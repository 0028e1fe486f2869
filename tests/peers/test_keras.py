"""What Keras makes of feeds whose last batch is padded."""

import os

import numpy as np
import pytest

from jreader import Pipeline, arrays

ROWS = (np.ones((10, 2), np.float32), np.arange(10, dtype=np.float32)[:, None])


@pytest.fixture
def loss_of():
    """A function that gives the mean square of the errors of a model that is always 0."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros")])
    squares = keras.metrics.MeanMetricWrapper(keras.losses.mean_squared_error, name="squares")
    model.compile(loss="mse", weighted_metrics=[squares])

    def loss_of(loader):
        feeds = (feed for feed in loader)  # Keras knows generators, and no other iterables
        return model.evaluate(feeds, steps=len(loader), return_dict=True, verbose=0)

    return loss_of


@pytest.mark.peers
def test_the_mask_of_inputs_and_targets_is_a_weight_of_samples(loss_of):
    batches = Pipeline(arrays(ROWS)).batch(4)
    exact = float(np.mean(ROWS[1] ** 2))
    padded, kept = loss_of(batches.load(last="pad")), loss_of(batches.load(last="keep"))
    assert padded["squares"] == pytest.approx(exact) == kept["squares"] == kept["loss"]
    assert padded["loss"] == pytest.approx(exact * 10 / 12)  # Keras divides by rows, not weights


@pytest.mark.peers
def test_the_mask_of_inputs_alone_would_be_their_targets(loss_of):
    batches = Pipeline(arrays((ROWS[0],))).batch(4)
    assert loss_of(batches.load(last="pad"))["loss"] == pytest.approx(10 / 12)  # ones, and 2 zeros
