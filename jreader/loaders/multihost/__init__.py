"""Several processes that feed one global array, and how they agree.

`feeds/shards.py` decides which rows of each batch a process feeds: workers need it too.

counts: The progress of all processes, counted in the store.
agreement: A process gives a feed to its loop only when all processes have one.
board: Where processes post messages to each other: the key-value store of `jax.distributed`.
neighbours: When a process is killed, its connection to the previous one ends, which reports it.
"""
