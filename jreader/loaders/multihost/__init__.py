"""Several processes that feed one global array, and how they agree.

Which rows of each batch a process feeds is in `feeds/shards.py`: workers need it too.

counts: How far all processes are, counted in the store.
agreement: A process gives a feed to its loop only when all processes have one.
board: Where processes post messages to each other: the key-value store of `jax.distributed`.
neighbours: A process that is killed is noticed by the one before it, whose connection ends.
"""
