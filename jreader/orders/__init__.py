"""Random orders that are computed, not drawn: a permutation is a function of (index, n, key).

So the order of any number of samples takes no memory, and any part of it can be computed directly.

How it works. `permutation` lays out the n indices row by row, in a grid of 2**k columns whose last
row may not be full. Then it rotates, in alternation, every column by a number of rows that is a
hash of the column, and every row by a number of columns that is a hash of the row. Each rotation
can be undone, so every index occurs exactly once. This is an alternating Feistel network, as in
format-preserving encryption (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"; NIST
SP 800-38G). Where n fits no full grid, the usual way is to encrypt again until the result is in
range ("cycle walking"), a loop whose length depends on the data, which neither NumPy nor a trace
can vectorise. Here the columns may differ in height by one, and the last row is left out when rows
rotate, so every n costs a fixed number of operations per index. A network of up to 16 indices would
have too few rotations to choose from; such an order is made by Fisher-Yates insertion instead,
where every choice is fair to within one part in 10**6.

All of it is arithmetic on uint32 words, the two of the key and the indices, with the same bits
under NumPy and jax.numpy, eager or traced. From n = 2**31 to 2**48 the host computes with uint64.

Guarantee: under one `STREAM_VERSION` an order never changes, on any machine, in any release.
Cursors carry the version; `tests/orders/test_pinned.py` pins exact orders.

Keys: `key(seed, epoch, place, window)`. The place of a seeded op is the number of seeded ops
*below* it, towards the source, itself included. Ops above it do not count, so adding an op on top
of a plan does not change the order below. Two branches with the same seed get the same order, which
is what `compose(shuffle(images, seed=7), shuffle(labels, seed=7))` needs. `permutation` adds the
length n to the key: orders of n and n + 1 samples have nothing in common.

Measured on two noisy cores, in ns per index with blocks of 8,192 to 32,768 indices: 13-26 from
n = 1,000 to 2**31, 23-30 at 10**10, up to 40 below 1,000 (blocks of 512: 140-320; small windows:
60-140). Fairness was tested over 2 * 10**6 to 2 * 10**8 samples at 33 lengths from 8 to 10**12:
the z-scores of positions, of neighbours along row, column and diagonal, of their inverses, and of
consecutive keys looked like those of NumPy's generator (the largest of some 500 was 3.5, and 1.1 in
ten times the sample).
"""

from jreader.orders.keys import STREAM_VERSION, Key, as_seed, key, random_seed
from jreader.orders.permutations import order, permutation, windows

__all__ = [
    "STREAM_VERSION",
    "Key",
    "as_seed",
    "key",
    "order",
    "permutation",
    "random_seed",
    "windows",
]
