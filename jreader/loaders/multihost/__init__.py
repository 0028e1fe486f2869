"""Several processes that feed one global array: who feeds which rows, and that none is left behind.

`shards` deals the rows of each batch to processes, by the sharding; `agreement` has the processes
hand over a feed only when all of them have one; `board` is the place where they leave word, the
key-value store of `jax.distributed`.
"""
