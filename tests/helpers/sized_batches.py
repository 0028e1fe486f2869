"""Readers of ten numbers, and of batches of given sizes."""

import numpy as np


def ten():
    return iter(range(10))


def of_sizes(*sizes):
    """A reader of batches that are arrays, of consecutive numbers."""

    def batches():
        first = 0
        for size in sizes:
            yield np.arange(first, first + size)
            first += size

    return batches


def lists(*sizes):
    return lambda: (array.tolist() for array in of_sizes(*sizes)())
