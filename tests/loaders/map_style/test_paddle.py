"""The same data sets through the real Paddle: the same batches, the same lengths."""

from __future__ import annotations

import numpy as np
import pytest
from steps import stream

from jreader import DataLoader, Dataset, IterableDataset, datasets

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

CASES = [(seed, size, drop_last) for seed in range(6) for size in (1, 3, 8) for drop_last in (0, 1)]


@pytest.fixture(scope="module")
def paddle():
    paddle = pytest.importorskip("paddle")
    paddle.set_device("cpu")
    return paddle


def samples_of(seed):
    """Random samples of one random structure."""
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(1, 4, size=int(random.integers(0, 3))))
    kinds = [
        lambda n: random.random(shape).astype("float32"),
        lambda n: int(random.integers(0, 99)),
        lambda n: f"name {n}",
        lambda n: bool(random.integers(0, 2)),
        lambda n: {"a": float(n), "b": (n, random.random(2).astype("float32"))},
    ]
    chosen = random.permutation(len(kinds))[: int(random.integers(1, 5))]
    rows = [tuple(kinds[kind](n) for kind in chosen) for n in range(int(random.integers(1, 20)))]
    return [row[0] for row in rows] if seed == 0 else rows


def plain(value):
    """Values of either library as plain Python ones, floats of single precision."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(plain, value))
    if isinstance(value, (str, bytes)):
        return value
    array = np.asarray(value)
    return array.astype("float32").tolist() if array.dtype.kind == "f" else array.tolist()


def theirs(paddle, samples, **options):
    class Samples(paddle.io.Dataset):
        def __getitem__(self, index):
            return samples[index]

        def __len__(self):
            return len(samples)

    loader = paddle.io.DataLoader(Samples(), **options)
    return [plain(feed) for feed in loader], len(loader)


def ours(samples, **options):
    class Samples(Dataset):
        def __getitem__(self, index):
            return samples[index]

        def __len__(self):
            return len(samples)

    loader = DataLoader(Samples(), **options)
    return [plain(feed) for feed in loader], len(loader)


@pytest.mark.parametrize(("seed", "size", "drop_last"), CASES)
@pytest.mark.filterwarnings("ignore")
def test_batches_and_lengths_are_the_same(paddle, seed, size, drop_last):
    samples = samples_of(seed)
    options = {"batch_size": size, "drop_last": bool(drop_last)}
    assert ours(samples, **options) == theirs(paddle, samples, **options)


def test_samples_without_batches_are_the_same(paddle):
    samples = [(np.arange(n, dtype="float32"), np.full((2,), n)) for n in range(1, 4)]
    found, expected = (
        ours(samples, batch_size=None),
        theirs(paddle, samples, batch_size=None),
    )
    assert found == expected


@pytest.mark.parametrize("n", range(1, 14))
def test_batches_of_ranks_are_the_same(paddle, n):
    for size in (1, 2, 3):
        for ranks in (1, 2, 3):
            for rank in range(ranks):
                given = (range(n), size, ranks, rank)
                found = datasets.DistributedBatchSampler(*given)
                expected = paddle.io.DistributedBatchSampler(*given)
                assert (list(found), len(found)) == (list(expected), len(expected))


def test_data_sets_are_the_same(paddle):
    io = paddle.io
    for text in ("abc", ""):
        joined = [text, "de"]
        assert list(datasets.ConcatDataset(joined)) == [
            io.ConcatDataset(joined)[index] for index in range(len(text) + 2)
        ]
    pairs = [[(1, 2), (3, 4)], [5, 6]]
    assert [*datasets.ComposeDataset(pairs)] == [
        io.ComposeDataset(list(map(wrapped(io), pairs)))[index] for index in range(2)
    ]
    assert [len(part) for part in datasets.random_split(range(10), [0.55, 0.45])] == [
        len(part) for part in io.random_split(range(10), [0.55, 0.45])
    ]
    assert list(datasets.Subset("abcd", [3, 0])) == [
        io.Subset("abcd", [3, 0])[index] for index in range(2)
    ]


def wrapped(io):
    def wrap(samples):
        class Samples(io.Dataset):
            def __getitem__(self, index):
                return samples[index]

            def __len__(self):
                return len(samples)

        return Samples()

    return wrap


def test_streams_are_the_same(paddle):
    class Theirs(paddle.io.IterableDataset):
        def __iter__(self):
            yield from (np.float32(n) for n in range(7))

    class Ours(IterableDataset):
        __iter__ = Theirs.__iter__

    for drop_last in (False, True):
        expected = [
            plain(feed)
            for feed in paddle.io.DataLoader(Theirs(), batch_size=3, drop_last=drop_last)
        ]
        assert [plain(feed) for feed in DataLoader(Ours(), 3, drop_last=drop_last)] == expected
        assert [plain(feed) for feed in DataLoader(Theirs(), 3, drop_last=drop_last)] == expected


def test_its_data_sets_and_samplers_are_taken(paddle):
    dataset = paddle.io.TensorDataset([paddle.arange(5), np.arange(5.0)])
    sampler = paddle.io.BatchSampler(dataset, batch_size=2, drop_last=True)
    loader = DataLoader(dataset, batch_sampler=sampler)
    assert (stream(loader), len(loader)) == ([[[0, 1], [0, 1]], [[2, 3], [2, 3]]], 2)
