"""Traced functions of a batch of images, for `loader.on_device(fn, rng="sample")`.

Each folds its own constant into the keys, so you can pass one key to several of them. jax is
imported at the first call, since worker processes import this package to decode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, in RGB
_CROP, _FLIP = 0x63726F70, 0x666C6970


def random_resized_crop(
    images: Any,
    rng: Any,
    size: int | tuple[int, int],
    *,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Any:
    """A random part of each picture, scaled to a size: float32[..., height, width, colors].

    The share of the area is uniform in `scale`, the logarithm of width by height in that of
    `ratio`, and the position is uniform; a part that would be too wide or tall is cut to the image.
    Values keep their range, and scaling down is antialiased. (Szegedy et al., "Going deeper with
    convolutions", 2014; torchvision draws up to ten times instead of cutting.)

    >>> import jax, numpy as np
    >>> keys = jax.random.split(jax.random.key(0), 2)
    >>> made = random_resized_crop(np.full((2, 40, 30, 3), 7, np.uint8), keys, 16)
    >>> made.shape, str(made.dtype), round(float(made.min()), 3)
    ((2, 16, 16, 3), 'float32', 7.0)

    Args:
        images: [..., height, width, colors], of any numbers.
        rng: A key for each image, as `rng="sample"` passes them: the axes before the height.
        size: Pixels of both sides, or (height, width).
        scale: The smallest and the largest share of the area.
        ratio: The smallest and the largest ratio of width to height.

    Raises:
        ValueError: The number of keys is not that of images, or a range is invalid.
    """
    jax = _jax()
    jnp = jax.numpy

    for name, (low, high) in {"scale": scale, "ratio": ratio}.items():
        if not 0 < low <= high:
            raise ValueError(
                f"{name} of random_resized_crop(images, rng, size) needs 0 < low <= high, not "
                f"{(low, high)}."
            )
    tall, wide = size if isinstance(size, tuple) else (size, size)

    def crop(image: Any, key: Any) -> Any:
        height, width, colors = image.shape
        area, shape, down, across = jax.random.split(jax.random.fold_in(key, _CROP), 4)
        share = jax.random.uniform(area, minval=scale[0], maxval=scale[1])
        low, high = math.log(ratio[0]), math.log(ratio[1])
        by = jnp.exp(jax.random.uniform(shape, minval=low, maxval=high))
        pixels = share * height * width
        h = jnp.clip(jnp.sqrt(pixels / by), 1, height)
        w = jnp.clip(jnp.sqrt(pixels * by), 1, width)
        top = jax.random.uniform(down) * (height - h)
        left = jax.random.uniform(across) * (width - w)
        factors = jnp.stack([tall / h, wide / w])
        moved = -jnp.stack([top, left]) * factors
        target = (tall, wide, colors)
        floats = image.astype(jnp.float32)
        return jax.image.scale_and_translate(floats, target, (0, 1), factors, moved, "linear")

    return _each_picture("random_resized_crop(images, rng, size)", crop, images, rng)


def random_flip(images: Any, rng: Any, *, p: float = 0.5) -> Any:
    """Flip each image from left to right with probability p; keeps the dtype.

    >>> import jax, numpy as np
    >>> keys = jax.random.split(jax.random.key(0), 1)
    >>> random_flip(np.arange(3).reshape(1, 1, 3, 1), keys, p=1.0).ravel().tolist()
    [2, 1, 0]

    Args:
        images: [..., height, width, colors].
        rng: A key for each image, as `rng="sample"` passes them.
        p: The probability of a flip.

    Raises:
        ValueError: The number of keys is not that of images.
    """
    jax = _jax()
    jnp = jax.numpy

    def flip(image: Any, key: Any) -> Any:
        turned = jax.random.bernoulli(jax.random.fold_in(key, _FLIP), p)
        return jnp.where(turned, image[:, ::-1], image)

    return _each_picture("random_flip(images, rng)", flip, images, rng)


def normalize(
    images: Any, mean: Sequence[float] = _MEAN, std: Sequence[float] = _STD, *, most: float = 255.0
) -> Any:
    """Return the values as floats, `(images / most - mean) / std`: float32[..., colors].

    >>> import numpy as np
    >>> normalize(np.array([[0, 255, 51]], np.uint8), (0.0,) * 3, (1.0,) * 3).round(1).tolist()
    [[0.0, 1.0, 0.20000000298023224]]

    Args:
        images: [..., colors], with values up to `most`.
        mean: The mean of each color, for values scaled to 1; ImageNet's by default.
        std: The standard deviation of each color.
        most: The largest value.

    Raises:
        ValueError: There is not one mean and one deviation per color.
    """
    jnp = _jax().numpy

    if not len(mean) == len(std) == images.shape[-1]:
        raise ValueError(
            f"normalize(images, mean, std) needs a mean and a deviation for each of the "
            f"{images.shape[-1]} colours, not {len(mean)} and {len(std)}."
        )
    factor = jnp.asarray([1 / (most * each) for each in std], jnp.float32)
    first = jnp.asarray([a / b for a, b in zip(mean, std, strict=True)], jnp.float32)
    return images.astype(jnp.float32) * factor - first


def _each_picture(call: str, fn: Callable[[Any, Any], Any], images: Any, rng: Any) -> Any:
    """Apply the function to each image with its key."""
    jax = _jax()

    typed = jax.numpy.issubdtype(rng.dtype, jax.dtypes.prng_key)
    if not typed or images.shape[:-3] != rng.shape:
        raise ValueError(
            f"{call} needs pictures [..., height, width, colors] and a key for each, not "
            f"{images.shape} and {rng.dtype}{list(rng.shape)}: use it in "
            f"on_device(fn, rng='sample')."
        )
    for _ in rng.shape:
        fn = jax.vmap(fn)
    return fn(images, rng)


def _jax() -> Any:
    return import_module("jax")
