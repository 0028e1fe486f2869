"""Data sets: classes to extend and combine, samplers, and handwritten digits to start with.

`mnist` reads the MNIST digits, and downloads them if necessary; `digits` come with scikit-learn:

>>> from jreader.datasets import mnist
>>> mnist.test()
map_readers(scaled, mnist.arrays('test'))
>>> len(mnist.test())
10000

A data set finds samples by index, and a sampler is a reader of indices:

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
