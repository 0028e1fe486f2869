"""Handwritten digits that come with scikit-learn, for programs that should run without MNIST.

These are not MNIST. They are 1,797 scans from another collection (the test set of the UCI "optical
recognition of handwritten digits", by 13 of its 43 writers), stored as 8x8 pixels of 17 levels, and
upsampled to 28x28 here. They are real handwriting and quick to learn, but easier, fewer and
blurred, so an accuracy on them says nothing about MNIST. Every fifth digit is held out for testing;
the same writers appear in both parts, so the test is easier than one on new writers.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np

from jreader.datasets import images
from jreader.datasets.images import Array, Mode, Sample
from jreader.readers import Node

_TRAIN, _TEST = 1438, 359
_STORED, _SIDE, _LEVELS = 8, 28, 16


def train() -> Node[Sample]:
    """Read 1,438 training digits: four fifths of scikit-learn's, upsampled to 28x28.

    >>> train()
    map_readers(scaled, digits.arrays('train'))

    Returns:
        A reader of pairs: an image, float32[784] from -1 (paper) to 1 (ink), and its label, an
        int64 from 0 to 9. It loads the digits when the first pass begins.
    """
    return images.reader(arrays, "train", _TRAIN)


def test() -> Node[Sample]:
    """Read 359 test digits: one fifth of scikit-learn's, upsampled to 28x28.

    >>> next(test()())[1]
    np.int64(4)

    Returns:
        A reader of pairs: an image, float32[784] from -1 (paper) to 1 (ink), and its label, an
        int64 from 0 to 9. It loads the digits when the first pass begins.
    """
    return images.reader(arrays, "test", _TEST)


def arrays(mode: Mode) -> tuple[Array, Array]:
    """Load scikit-learn's digits (not MNIST) as arrays, upsampled to 28x28.

    >>> images, labels = arrays("test")
    >>> images.shape, images.dtype, labels.shape
    ((359, 28, 28), dtype('uint8'), (359,))

    Args:
        mode: "train" or "test".

    Returns:
        Images, uint8[n, 28, 28] from 0 (paper) to 255 (ink), and labels, uint8[n].

    Raises:
        ValueError: The mode is neither of these.
        ImportError: scikit-learn is not installed.
    """
    images.check_mode("digits.arrays(mode)", mode)
    try:
        load_digits = import_module("sklearn.datasets").load_digits
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
    """Upsample images of 8x8 levels from 0 to 16 to 28x28 bytes, by bilinear interpolation.

    It uses integer arithmetic, so the result is the same on every machine.

    >>> set(upsampled(np.full((1, 8, 8), 16)).ravel().tolist())
    {255}
    """
    # the centre of pixel i of 28 lies at (4 i - 5) / 14 on the scale of the 8 pixels; pixels beyond
    # the outermost centres get the outermost values
    centres = np.clip(4 * np.arange(_SIDE) - 5, 0, 14 * (_STORED - 1))
    weights = np.maximum(0, 14 - abs(centres[:, None] - 14 * np.arange(_STORED)))
    totals, whole = weights @ stored @ weights.T, _LEVELS * 14 * 14
    brightest: Array = (255 * totals + whole // 2) // whole
    return brightest.astype(np.uint8)
