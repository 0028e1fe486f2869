"""Weights of a mixture as an argument of a program, so that one program runs many mixtures.

A traced weight is an int: a trace has 32 bits, and the exact proportion of floats, which `mix`
takes as they are printed, needs more. Numbers on the host become the same ints as in `mix`, or an
error says that they are too large.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from jreader.orders.turns import TRACED_SUM
from jreader.readers import Reader, described
from jreader.readers.nodes import ops_of
from jreader.readers.rewriting import rewritten
from jreader.transforms import mix
from jreader.transforms.mixture_weights import whole_weights

_CALL = "batch_at(data, epoch, step, weights=...)"


def weighted(reader: Reader[Any], weights: Any) -> Reader[Any]:
    """Return the plan with other weights of its mixture, traced or not.

    Raises:
        TypeError: Traced weights are not ints, or there is no mixture that takes them.
        ValueError: Some reader of the mixture has none; or as in `whole_numbers`.
    """
    mixture = mixture_of(reader)
    if isinstance(weights, jax.core.Tracer):
        traced = _checked_trace(weights, mixture)
    else:
        traced = jnp.asarray(whole_numbers(reader, weights))
    return rewritten(reader, lambda op: {"weights": traced} if op is mixture else {})


def whole_numbers(reader: Reader[Any], weights: Any) -> np.ndarray[Any, Any]:
    """Convert weights to the ints that a mixture makes from them, as int32.

    Raises:
        TypeError: They have another form than the weights of `mix`.
        ValueError: As in `mix`; or their sum is 2**30 or more.
    """
    mixture = mixture_of(reader)
    whole = whole_weights(weights, mixture.names, len(mixture.readers))
    if (total := sum(whole)) >= TRACED_SUM:
        raise ValueError(
            f"{_CALL} has 32 bits, and the weights {described(weights)} are whole numbers only "
            f"with a sum of {total:,}, where less than 2**30 is needed: round them, with "
            f"round(weight, 6) for each, here and in mix."
        )
    return np.array(whole, np.int32)


def mixture_of(reader: Reader[Any]) -> mix[Any]:
    """Return the mixture of a plan that can take other weights without ending elsewhere.

    Raises:
        TypeError: There is none, there are several, it ends, or its weights change.
    """
    found = [op for op in ops_of(reader, pinned=False) if isinstance(op, mix)]
    if len(found) != 1:
        raise TypeError(
            f"{_CALL} needs a pipeline with one mix, and {described(reader)} has {len(found)}: "
            f"leave weights out."
        )
    (mixture,) = found
    if mixture.stop != "repeat" or mixture.at:
        why = "weights that change" if mixture.at else "an end that follows from its weights"
        raise TypeError(
            f"{_CALL} changes the weights of a mixture, and {described(mixture)} has {why}: type "
            f"mix(readers, weights, stop='repeat'), without at."
        )
    return mixture


def _checked_trace(weights: jax.Array, mixture: mix[Any]) -> jax.Array:
    many = len(mixture.readers)
    if not jnp.issubdtype(weights.dtype, jnp.integer):
        raise TypeError(
            f"{_CALL} traces whole numbers, not {weights.dtype}: make them before, with "
            f"batch_at.weights([0.7, 0.3])."
        )
    if weights.shape != (many,):
        raise ValueError(
            f"{_CALL} needs {many} numbers, one for each of {list(mixture.names or range(many))}, "
            f"not an array of shape {weights.shape}: for several mixtures, use jax.vmap."
        )
    return weights
