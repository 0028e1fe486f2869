"""One epoch number for two: epochs inside epochs, and lanes inside an epoch."""

from __future__ import annotations

from typing import Any

import numpy as np

_FOLD = 0x9E3779B1  # odd, far from small numbers: (outer, inner) epochs do not meet for small ones


def folded_epoch(before: Any, epoch: Any) -> Any:
    """One number for two epochs, each an int or a jax array, traced or not."""
    if isinstance(before, int) and isinstance(epoch, int):
        # word by word: a trace has one of them, and to it epoch 2**32 would be epoch 0
        low = (before * _FOLD + epoch) % 2**32
        return low | ((before >> 32) * _FOLD + (epoch >> 32)) % 2**32 << 32
    if any(isinstance(number, int) and number >> 32 for number in (before, epoch)):
        raise ValueError(
            f"epochs that jax traces have 32 bits, and one of {before!r} and {epoch!r} has more: "
            f"give ints below 2**32."
        )
    outer, inner = (
        np.array([number], np.uint32) if isinstance(number, int) else number.astype(np.uint32)
        for number in (before, epoch)
    )
    return (outer * np.uint32(_FOLD) + inner).reshape(
        np.broadcast_shapes(*map(np.shape, (before, epoch)))
    )
