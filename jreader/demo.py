"""Train a small classifier of handwritten digits on all local devices: `jreader demo`.

The same pipeline feeds jit and pmap. The batch is global, so samples, losses and accuracy do not
depend on the number of devices.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jreader.datasets import digits, mnist
from jreader.errors import BatchNotDivisible
from jreader.feeds import data
from jreader.loaders import DataLoader
from jreader.pipelines import Pipeline
from jreader.progress import Bar

Parameters: TypeAlias = list[tuple[jax.Array, jax.Array]]
State: TypeAlias = tuple[Parameters, Parameters]  # parameters and their momentum
Mean: TypeAlias = Callable[
    [Any], Any
]  # averages over the devices of a pmap; the identity under jit

SIZES = [784, 200, 200, 10]
FEED_LIST = [data("image", [None, 784], "float32"), data("label", [None, 1], "int64")]


class DemoFailed(Exception):
    """An error that the demo prints on one line before it exits with 1."""


def run(name: str | None, pmap: bool, epochs: int | None, batch: int, seed: int) -> None:
    """Train the classifier, and print a line after each epoch.

    It prints the mean loss, the test accuracy, and for all steps but the first, which compiles and
    waits for the pipeline to start, the samples per second and the share of time spent waiting.

    Args:
        name: "mnist" or "digits"; None for MNIST if its files are on this machine, else the digits.
        pmap: Whether to use pmap instead of jit and a sharding.
        epochs: The number of epochs; None for 3 with MNIST, 20 with the digits.
        batch: Samples per step, over all devices together.
        seed: The seed of the initial parameters and of the order.

    Raises:
        DemoFailed: An error that users can fix: scikit-learn, which has the digits, is not
            installed; MNIST could not be downloaded; the batch is larger than the training digits,
            or cannot be split evenly over the devices.
    """
    try:
        _train(name, pmap, epochs, batch, seed)
    except BatchNotDivisible as error:
        raise DemoFailed(f"{error} (--batch)") from error
    except (ImportError, FileNotFoundError) as error:
        raise DemoFailed(error) from error


def _train(name: str | None, pmap: bool, epochs: int | None, batch: int, seed: int) -> None:
    devices = jax.local_devices()
    print(f"{len(devices)} x {devices[0].device_kind}, {'pmap' if pmap else 'jit'}")
    source = _dataset_module(name)
    samples = Pipeline(source.train())
    if batch > len(samples):
        raise DemoFailed(
            f"a batch of {batch} is more than all {len(samples)} digits: give a smaller --batch"
        )
    where: dict[str, Any] = (
        {"pmap": devices} if pmap else {"sharding": Mesh(np.array(devices), ("data",))}
    )
    train = samples.shuffle(seed=seed).batch(batch, drop_last=True)
    test = Pipeline(source.test()).batch(batch)
    trained = train.load(FEED_LIST, capacity=4, **where)
    tested = test.load(FEED_LIST, capacity=4, drop_last=False, **where)
    step, count = _programs(pmap)
    state: State = trained.replicate(initial(seed))
    for epoch in range(epochs or (3 if source is mnist else 20)):
        with Bar(f"epoch {epoch + 1}", len(trained), " steps") as bar:
            state, loss, speed, waiting = _train_epoch(step, state, trained, batch, bar)
        right = _accuracy(count, state, tested)
        print(
            f"epoch {epoch + 1:2}: loss {loss:.4f}, test accuracy {right:.2%}, "
            f"{speed:,.0f} samples/s, waited for data {waiting:.0%} of the time"
        )


def _dataset_module(name: str | None) -> ModuleType:
    if name == "mnist" or (name is None and mnist.found()):
        print("data: MNIST, 60,000 digits to train on and 10,000 to test on")
        return mnist
    why = "" if name else " (MNIST is not on this machine: --data mnist downloads it)"
    print(f"data: scikit-learn's 8x8 digits upsampled, 1,438 to train on, 359 to test on{why}")
    return digits


def _train_epoch(
    step: Any, state: State, loader: DataLoader, batch: int, bar: Bar
) -> tuple[State, float, float, float]:
    """Train one epoch; return the state, the mean loss, samples per second and share of waiting."""
    began = waited = total = 0.0
    with iter(loader) as feeds:
        for number, feed in enumerate(feeds, 1):
            state, loss = step(state, feed)
            total += (float(loss) - total) / number
            bar.add()
            if number == 1:
                began, waited = time.perf_counter(), feeds.waited
        took = time.perf_counter() - began
        return state, total, (number - 1) * batch / took, (feeds.waited - waited) / took


def _accuracy(count: Any, state: State, loader: DataLoader) -> float:
    counts = [count(state, feed) for feed in loader]
    right, rows = np.sum(np.array(counts, float), axis=0)
    return float(right / rows)


def _programs(pmap: bool) -> tuple[Any, Any]:
    """Return the training step and the counter of right answers, compiled for all devices."""
    if not pmap:
        return jax.jit(_sgd_step(lambda value: value)), jax.jit(_right_answers(lambda value: value))

    def mean(value: Any) -> Any:
        return jax.lax.pmean(value, "data")

    whole: Any = {"axis_name": "data", "in_axes": (None, 0), "out_axes": None}
    return jax.pmap(_sgd_step(mean), **whole), jax.pmap(_right_answers(mean), **whole)


def initial(seed: int) -> State:
    """Return the initial parameters, and a momentum of zeros."""
    keys = jax.random.split(jax.random.key(seed), len(SIZES) - 1)
    parameters = [
        (jax.random.normal(key, (rows, columns)) / rows**0.5, jnp.zeros(columns))
        for key, rows, columns in zip(keys, SIZES, SIZES[1:], strict=False)
    ]
    return parameters, jax.tree.map(jnp.zeros_like, parameters)


def _logits(parameters: Parameters, images: jax.Array) -> jax.Array:
    *hidden, (weights, bias) = parameters
    for inner, offset in hidden:
        images = jnp.tanh(images @ inner + offset)
    return images @ weights + bias


def _sgd_step(mean: Mean) -> Callable[[State, Any], tuple[State, jax.Array]]:
    """Return a function for one step of gradient descent with momentum on the cross entropy."""

    def loss_of(parameters: Parameters, feed: Any) -> jax.Array:
        logs = jax.nn.log_softmax(_logits(parameters, feed["image"]))
        return -jnp.take_along_axis(logs, feed["label"], axis=1).mean()

    def step(state: State, feed: Any) -> tuple[State, jax.Array]:
        parameters, momentum = state
        loss, slopes = mean(jax.value_and_grad(loss_of)(parameters, feed))
        momentum = jax.tree.map(lambda kept, slope: 0.9 * kept + slope, momentum, slopes)
        parameters = jax.tree.map(lambda value, kept: value - 0.02 * kept, parameters, momentum)
        return (parameters, momentum), loss

    return step


def _right_answers(mean: Mean) -> Callable[[State, Any], tuple[jax.Array, jax.Array]]:
    """Return a counter of right answers and of samples in a batch, without padding."""

    def count(state: State, feed: Any) -> tuple[jax.Array, jax.Array]:
        answers = _logits(state[0], feed["image"]).argmax(axis=1)
        right = (answers == feed["label"][:, 0]) & feed["mask"]
        counts: tuple[jax.Array, jax.Array] = mean((right.mean(), feed["mask"].mean()))
        return counts

    return count
