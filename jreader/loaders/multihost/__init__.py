"""Several processes that feed one global array: the rows of each, and how they agree.

shards: Which rows of each batch a process feeds, by the sharding.
agreement: A process gives a feed to its loop only when all processes have one.
board: Where processes post messages to each other: the key-value store of `jax.distributed`.
"""
