"""Columns that are read in blocks: each is decoded as a whole, once while it is open.

A format gives `BlockColumns` where its blocks begin, and what decodes one. They are few at a time,
and threads decode those that come next (`open_blocks`).
"""

from jreader.sources.blocks.block_columns import BlockColumns, keeping

__all__ = ["BlockColumns", "keeping"]
