"""Data comes in: arrays, array files, and lines of text, each a reader that knows its place.

What is in memory or mapped into it is a `Table`: its samples are the rows of its `columns`, its
length is known, and it goes on from any row at once. Lines go on from a byte offset. Building any
of them reads nothing; a file that is not there is refused where its name was written, a file that
is damaged when it is read (`DamagedData`).
"""

from jreader.sources.array_files import idx, mnist_json, npy, npz
from jreader.sources.columns import Table, arrays
from jreader.sources.random_access import source
from jreader.sources.text_files import jsonl, text

__all__ = ["Table", "arrays", "idx", "jsonl", "mnist_json", "npy", "npz", "source", "text"]
