"""Real digits to begin with: MNIST where it lies or can be had, scikit-learn's digits anywhere.

>>> from jreader.datasets import mnist
>>> mnist.test()
map_readers(scaled, mnist.arrays('test'))
>>> len(mnist.test())
10000
"""

from jreader.datasets import digits, mnist

__all__ = ["digits", "mnist"]
