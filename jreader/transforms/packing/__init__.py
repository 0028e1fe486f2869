"""Packing: place documents of many lengths in rows of one length, by arithmetic.

Lengths alone decide which documents share a row. With `split="never"`, the *histogram* of lengths
determines the number of rows, and the lengths in each; documents of equal length are assigned to
these slots in a keyed order (`whole_documents`). With `split="always"`, documents are concatenated
in small groups with known token counts, in random order within each group (`cut_documents`). Either
way, row i of an epoch is a function of i: the number of rows is known before the first step,
nothing is replayed, and jax can trace it (`packed_rows`).

If lengths are not known, a window of documents at a time is read and packed in the same way, as if
it were the whole data set (`packs`).
"""

from jreader.transforms.packing.packs import pack

__all__ = ["pack"]
