"""A GPT of 118,000 parameters to train in tests, whose rows may hold several documents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

ROW, WIDTH, LAYERS, HEADS, BYTES = 64, 64, 2, 4, 256


def beginning() -> dict[str, Any]:
    """Parameters to begin with, and a velocity for each."""
    keys = iter(jax.random.split(jax.random.key(0), 6))

    def normal(*shape: int) -> jax.Array:
        return jax.random.normal(next(keys), shape) / shape[-2] ** 0.5

    parameters = {
        "token": normal(BYTES, WIDTH),
        "position": normal(ROW, WIDTH),
        "layers": {
            "attention": normal(LAYERS, WIDTH, 3 * WIDTH),
            "projection": normal(LAYERS, WIDTH, WIDTH),
            "up": normal(LAYERS, WIDTH, 4 * WIDTH),
            "down": normal(LAYERS, 4 * WIDTH, WIDTH),
        },
    }
    return {"parameters": parameters, "velocity": jax.tree.map(jnp.zeros_like, parameters)}


def in_segments(feed: Any) -> Any:
    """Windows of a stream in the form of packed rows, which stay as they are."""
    if isinstance(feed, dict):
        return feed
    positions = jnp.broadcast_to(jnp.arange(ROW), feed.shape)
    return {"tokens": feed, "segment_ids": jnp.ones_like(positions), "positions": positions}


def normed(x: jax.Array) -> jax.Array:
    """Vectors whose elements have a mean square of one."""
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)


def logits(parameters: Any, feed: Any) -> jax.Array:
    """Of each byte that may follow a token, which sees those before it in its own segment."""
    segments = feed["segment_ids"]
    mask = (segments[:, None, :, None] == segments[:, None, None, :]) & jnp.tri(ROW, dtype=bool)

    def layer(x: jax.Array, weights: Any) -> tuple[jax.Array, None]:
        heads = (normed(x) @ weights["attention"]).reshape(*x.shape[:2], HEADS, -1)
        seen = jax.nn.dot_product_attention(*jnp.split(heads, 3, axis=-1), mask=mask)
        x += seen.reshape(x.shape) @ weights["projection"]
        return x + jax.nn.gelu(normed(x) @ weights["up"]) @ weights["down"], None

    x = parameters["token"][feed["tokens"]] + parameters["position"][feed["positions"]]
    x, _ = jax.lax.scan(layer, x, parameters["layers"])
    return normed(x) @ parameters["token"].T


def loss_of(parameters: Any, feed: Any) -> jax.Array:
    """The cross entropy of the tokens that follow another one of their segment."""
    logs = jax.nn.log_softmax(logits(parameters, feed)[:, :-1])
    each = jnp.take_along_axis(logs, feed["tokens"][:, 1:, None], axis=2)[..., 0]
    before, segments = feed["segment_ids"][:, :-1], feed["segment_ids"][:, 1:]
    return -each.mean(where=(segments == before) & (segments > 0))


@jax.jit
def step(state: Any, feed: Any) -> tuple[Any, jax.Array]:
    """One step of gradient descent with momentum, and the loss before it."""
    loss, slopes = jax.value_and_grad(loss_of)(state["parameters"], feed)
    velocity = jax.tree.map(lambda v, s: 0.9 * v - 0.02 * s, state["velocity"], slopes)
    parameters = jax.tree.map(jnp.add, state["parameters"], velocity)
    return {"parameters": parameters, "velocity": velocity}, loss


def trained(state: Any, feeds: Iterable[Any]) -> tuple[Any, list[float]]:
    """The state after these feeds, and their losses."""
    losses = []
    for feed in feeds:
        state, loss = step(state, feed)
        losses.append(float(loss))
    return state, losses
