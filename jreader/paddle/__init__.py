"""Paddle's names for features that jreader spells differently: aliases over the public loader.

`PyReader` is an older name of `DataLoader.from_generator`, and `train` is the loop of Paddle's
guide. Paddle's other names are ops (`map_readers`, `xmap_readers`, `buffered`,
`multiprocess_reader`, `mnist_json`) or methods of `DataLoader` (`from_generator`,
`set_*_generator`, `start`, `next`, `reset`), and live with their kind.
"""

from jreader.paddle.py_reader import PyReader
from jreader.paddle.training import train

__all__ = ["PyReader", "train"]
