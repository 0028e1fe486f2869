"""Packing: documents of many lengths in rows of one length, as arithmetic on places.

Who shares a row follows from lengths alone. With `split="never"`, the *histogram* of lengths says
how many rows there are and which lengths each has; documents of equal length are dealt to these
slots in a keyed order (`whole_documents`). With `split="always"`, documents lie end to end,
in small groups whose numbers of tokens are known, and each group is in random order
(`cut_documents`). Either way, row i of an epoch is a function of i: the number of rows is known
before the first step, nothing is replayed, and jax can trace it (`packed_rows`).

Where lengths are not known, a window of documents is read at a time and packed in the same way, as
if it were the whole data set (`packs`).
"""

from jreader.transforms.packing.packs import pack

__all__ = ["pack"]
