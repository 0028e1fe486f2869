"""Orders are computed, not drawn: an index's place is a function of index, length and key.

`permutation` lays the indices out as a grid of 2**k columns, the n % 2**k left over in a last row
that is not full, and turns it: every column by a number of rows hashed from the column, every row
by a number of columns hashed from the row, in alternation. Each turn can be undone, so every index
appears once. That is an alternating Feistel network, as in format-preserving encryption (Black and
Rogaway 2002, "Ciphers with arbitrary finite domains"; NIST SP 800-38G). The usual way to a length
that fits no grid, to encrypt until the result is in range ("cycle walking"), is a loop whose length
depends on the data: neither NumPy nor a trace can vectorise it. Here columns may differ in height
by one, and the short row sits out the turns of the rows, so that any n, prime or not, costs a fixed
number of operations per index. Up to 16 indices, where a network has few turns to choose from, an
order is made by Fisher-Yates insertion, every choice fair to within one part in 10**6.

All is arithmetic on uint32 words, the key's two and the indices: the same bits under NumPy and
jax.numpy, eager or traced. Beyond n = 2**31, up to 2**48, the host computes in 64-bit words.

The guarantee: under one `STREAM_VERSION` an order never changes, on any machine, in any release.
Cursors carry the version; `tests/orders/test_pinned.py` pins exact orders.

What belongs in a key: `key(seed, epoch, place, window)`. A seeded op's place counts the seeded ops
*below* it, towards the sources, never those above, so that an op put on top of a plan leaves its
order alone. Parallel branches given the same seed therefore deal alike, which is what
`compose(shuffle(images, seed=7), shuffle(labels, seed=7))` needs. `permutation` adds the
length: orders of n and n + 1 samples have nothing in common.

Measured on two noisy cores, ns an index in blocks of 8,192-32,768: 13-26 from n = 1,000 to 2**31,
23-30 at 10**10, 16-40 at most below 1,000 (blocks of 512: 140-320; small windows: 60-140). Over
2 * 10**6 to 2 * 10**8 samples at 33 lengths from 8 to 10**12, the z-scores of positions, of
neighbours along row, column and diagonal, of their inverses, and of consecutive keys looked like
those of NumPy's generator (the largest of some 500 was 3.5, and 1.1 in ten times the sample).
"""

from jreader.orders.keys import STREAM_VERSION, Key, as_seed, key
from jreader.orders.permutations import order, permutation, windows

__all__ = ["STREAM_VERSION", "Key", "as_seed", "key", "order", "permutation", "windows"]
