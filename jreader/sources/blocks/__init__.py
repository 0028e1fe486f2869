"""Columns read in blocks: each block is decoded as a whole, once while it is open.

A format passes to `BlockColumns` where its blocks begin, and a function that decodes one. Few are
open at a time, and threads decode the next ones (`open_blocks`).
"""

from jreader.sources.blocks.block_columns import BlockColumns, BlocksInMemory, keeping

__all__ = ["BlockColumns", "BlocksInMemory", "keeping"]
