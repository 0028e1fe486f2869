"""Handwritten digits that come with scikit-learn: what runs where MNIST cannot be had.

These are not MNIST. They are 1,797 scans of another collection (the test set of the UCI "optical
recognition of handwritten digits", by 13 of its 43 writers), stored as 8x8 pixels of 17 levels,
here upsampled to 28x28. They are real and quickly learned, but easier, fewer and blurred:
accuracies on them say nothing about MNIST. Every fifth is held out for testing; the same writers
appear in both parts, so the test is easier than one on new writers.
"""

from __future__ import annotations

import numpy as np

from jreader.datasets import images
from jreader.datasets.images import Array, Mode, Sample
from jreader.readers import Node

_TRAIN, _TEST = 1438, 359
_STORED, _SIDE, _LEVELS = 8, 28, 16


def train() -> Node[Sample]:
    """Four of five of scikit-learn's 8x8 digits (not MNIST), upsampled to 28x28: 1,438 samples.

    >>> train()
    map_readers(scaled, digits.arrays('train'))

    Returns:
        A reader of float32[784] from -1 (paper) to 1 (ink) and an int64 from 0 to 9.
    """
    return images.reader(arrays, "train", _TRAIN)


def test() -> Node[Sample]:
    """Every fifth of scikit-learn's 8x8 digits (not MNIST), upsampled to 28x28: 359 samples.

    >>> next(test()())[1]
    np.int64(4)

    Returns:
        A reader of float32[784] from -1 (paper) to 1 (ink) and an int64 from 0 to 9.
    """
    return images.reader(arrays, "test", _TEST)


def arrays(mode: Mode) -> tuple[Array, Array]:
    """Images uint8[n, 28, 28] and labels uint8[n] of scikit-learn's digits (not MNIST), upsampled.

    >>> images, labels = arrays("test")
    >>> images.shape, images.dtype, labels.shape
    ((359, 28, 28), dtype('uint8'), (359,))

    Args:
        mode: "train" or "test".

    Raises:
        ImportError: scikit-learn is not installed.
    """
    images.check_mode("digits.arrays(mode)", mode)
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise ImportError(
            "the digits come with scikit-learn, which is not installed: type "
            "python -m pip install 'jreader[demo]'"
        ) from error
    pixels, labels = load_digits(return_X_y=True)
    tested = np.arange(1, len(labels) + 1) % 5 == 0
    chosen = tested if mode == "test" else ~tested
    stored = pixels[chosen].reshape(-1, _STORED, _STORED).astype(np.int64)
    return upsampled(stored), labels[chosen].astype(np.uint8)


def upsampled(stored: Array) -> Array:
    """Bytes of 28x28 for levels 0 to 16 of 8x8, bilinear; in whole numbers, so equal everywhere.

    >>> set(upsampled(np.full((1, 8, 8), 16)).ravel().tolist())
    {255}
    """
    # centre i of 28 lies at (4 i - 5) / 14 of 8; beyond the outermost centres, their values
    centres = np.clip(4 * np.arange(_SIDE) - 5, 0, 14 * (_STORED - 1))
    weights = np.maximum(0, 14 - abs(centres[:, None] - 14 * np.arange(_STORED)))
    totals, whole = weights @ stored @ weights.T, _LEVELS * 14 * 14
    brightest: Array = (255 * totals + whole // 2) // whole
    return brightest.astype(np.uint8)
