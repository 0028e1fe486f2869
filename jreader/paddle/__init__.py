"""Paddle's names for what jreader spells in another way: older doors over the public loader.

`PyReader` is `DataLoader.from_generator` by its older name, and `train` the loop of Paddle's guide.
Paddle's other names are ops (`map_readers`, `xmap_readers`, `buffered`, `multiprocess_reader`,
`mnist_json`) or methods of `DataLoader` (`from_generator`, `set_*_generator`, `start`, `next`,
`reset`), and stand where their kind does.
"""

from jreader.paddle.py_reader import PyReader
from jreader.paddle.training import train

__all__ = ["PyReader", "train"]
