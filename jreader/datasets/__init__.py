"""Data sets: classes to extend and combine, orders to read them in, and digits to begin with.

Digits are MNIST where it lies or can be had, and scikit-learn's digits anywhere:

>>> from jreader.datasets import mnist
>>> mnist.test()
map_readers(scaled, mnist.arrays('test'))
>>> len(mnist.test())
10000

A data set has samples by index, and a sampler is a reader of indices:

>>> from jreader.datasets import BatchSampler, Subset
>>> list(BatchSampler(Subset("abcdef", [5, 4, 3]), batch_size=2))
[[0, 1], [2]]
"""

from jreader.batches import collate
from jreader.datasets import digits, mnist
from jreader.datasets.batch_samplers import BatchSampler, DistributedBatchSampler
from jreader.datasets.combinators import (
    ChainDataset,
    ComposeDataset,
    ConcatDataset,
    StackDataset,
    Subset,
    random_split,
)
from jreader.datasets.dataset import Dataset, IterableDataset, TensorDataset
from jreader.datasets.samplers import (
    RandomSampler,
    Sampler,
    SequenceSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ComposeDataset",
    "ConcatDataset",
    "Dataset",
    "DistributedBatchSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequenceSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "collate",
    "digits",
    "mnist",
    "random_split",
]
