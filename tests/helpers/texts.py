"""Documents of given lengths, for tests of what makes batches of them."""

from __future__ import annotations

import numpy as np

from jreader import arrays, ragged


def documents(lengths, dtype=np.uint16):
    """Documents of these lengths: document i is filled with i + 1."""
    offsets = np.cumsum([0, *lengths])
    return ragged(np.repeat(np.arange(len(lengths)) + 1, lengths).astype(dtype), offsets)


def numbered(lengths):
    """Such documents in dicts, with their numbers."""
    return arrays(text=documents(lengths, np.int64), id=np.arange(len(lengths)))


def as_lists(reader):
    """A plain function of the same documents as lists."""
    return lambda: [row.tolist() for row in reader()]


def streamed(reader):
    """A plain function of the same samples."""
    return lambda: iter(list(reader()))
