"""What Paddle's tests of its data sets check, of jreader."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from peer_datasets import Pictures, Stream

from jreader import DataLoader, Dataset, IterableDataset
from jreader.datasets import (
    ChainDataset,
    ComposeDataset,
    ConcatDataset,
    Subset,
    TensorDataset,
    random_split,
)

differs = pytest.mark.differs
INPUTS = np.random.default_rng(0).random((16, 3, 4), "float32")
LABELS = np.arange(16, dtype="int32")[:, None]
TENSORS = TensorDataset([INPUTS, LABELS])


def equal(one, other):
    return all(map(np.array_equal, one, other)) and len(one) == len(other)


class TestWhatIsNotDefined:
    @pytest.mark.parametrize("asked", [lambda dataset: dataset[0], len])
    def test_a_data_set_has_neither_samples_nor_a_length(self, asked):
        with pytest.raises(NotImplementedError):
            asked(Dataset())

    def test_an_iterable_one_has_no_passes(self):
        with pytest.raises(NotImplementedError):
            iter(IterableDataset())

    @differs
    @pytest.mark.parametrize("asked", [lambda dataset: dataset[0], len])
    def test_nor_has_it_what_it_can_never_have(self, asked):
        """Python's own TypeError, where Paddle's is a RuntimeError."""
        with pytest.raises(TypeError):
            asked(IterableDataset())


class TestTensors:
    def test_each_row_comes_with_its_label(self):
        assert len(TENSORS) == 16
        for number, (image, label) in enumerate(DataLoader(TENSORS, drop_last=True)):
            assert (image.shape, label.shape) == ((1, 3, 4), (1, 1))
            assert np.array_equal(image[0], INPUTS[number])
            assert label.tolist() == [[number]]

    @differs
    def test_nothing_at_all_is_refused_at_once(self):
        with pytest.raises(ValueError, match="at least one"):
            TensorDataset([])

    def test_lengths_that_differ_are_refused(self):
        with pytest.raises(ValueError, match="one length"):
            TensorDataset([INPUTS, LABELS[:-1]])


class TestCombinations:
    def test_composed_samples_have_the_fields_of_all(self):
        parts = Pictures(10), Pictures(10)
        composed = ComposeDataset(parts)
        assert len(composed) == 10
        for index in range(10):
            assert equal(composed[index], (*parts[0][index], *parts[1][index]))

    def test_a_chain_is_one_stream_after_another(self):
        samples = list(ChainDataset([Stream(10), Stream(10)]))
        assert len(samples) == 20
        assert all(map(equal, samples, chain(Stream(10), Stream(10))))

    @pytest.mark.parametrize(
        ("parts", "length", "known"),
        [
            ([[0], [1]], 2, {0: 0, 1: 1}),
            ([range(5), range(5, 10)], 10, {0: 0, 5: 5}),
            ([range(5), [], range(5, 10)], 10, {0: 0, 5: 5, -1: 9}),
        ],
    )
    def test_concatenated_samples_keep_their_order(self, parts, length, known):
        joined = ConcatDataset(parts)
        assert len(joined) == length
        assert {index: joined[index] for index in known} == known

    def test_beyond_the_end_there_is_nothing(self):
        with pytest.raises(IndexError):
            ConcatDataset([range(5), range(5, 10)])[11]

    @pytest.mark.parametrize(
        "parts", [[TENSORS, Stream(10), Stream(10)], [Stream(10)], [Stream(10), TENSORS]]
    )
    def test_streams_are_not_concatenated(self, parts):
        with pytest.raises(TypeError, match="ChainDataset"):
            ConcatDataset(parts)

    @differs
    def test_an_index_beyond_a_subset_is_refused_at_once(self):
        with pytest.raises(IndexError, match="index 5"):
            Subset(range(5), [0, 5])


class TestSplits:
    @pytest.mark.parametrize(("lengths", "sizes"), [([1, 4], [1, 4]), ([0.3, 0.0, 0.7], [2, 0, 3])])
    @pytest.mark.filterwarnings("ignore:part 1 of random_split has no samples")
    def test_parts_have_their_sizes_and_every_sample_once(self, lengths, sizes):
        parts = random_split(range(5), lengths)
        assert list(map(len, parts)) == sizes
        assert sorted(chain.from_iterable(parts)) == [*range(5)]

    @pytest.mark.parametrize("lengths", [[3, 8], [8], [], [-0.2, 1.2]])
    def test_lengths_that_do_not_fit_are_refused(self, lengths):
        with pytest.raises(ValueError, match="random_split"):
            random_split(range(5), lengths)

    @differs
    def test_one_is_a_length_and_a_float_a_fraction(self):
        with pytest.raises(ValueError, match="sum to 1"):
            random_split(range(5), [1])
        assert list(map(len, random_split(range(5), [1.0]))) == [5]

    @differs
    def test_a_seed_splits_again(self):
        first, again = (random_split(range(50), [25, 25], seed=3)[0] for _ in range(2))
        assert list(first) == list(again)

    def test_two_subsets_have_the_samples_of_the_whole(self):
        def labels(dataset):
            return [int(label[0, 0]) for _, label in DataLoader(dataset, 1, drop_last=True)]

        whole, even, odd = (
            TENSORS,
            Subset(TENSORS, range(0, 16, 2)),
            Subset(TENSORS, range(1, 16, 2)),
        )
        assert labels(even) == [*range(0, 16, 2)]
        assert sorted(labels(even) + labels(odd)) == labels(whole)


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
class TestTheRealOnes:
    @pytest.fixture(scope="class")
    def io(self):
        return pytest.importorskip("paddle").io

    @pytest.mark.parametrize("n", [1, 5, 17, 106])
    @pytest.mark.parametrize(
        "fractions", [[1.0], [0.5, 0.5], [0.1, 0.2, 0.3, 0.4], [0.33, 0.33, 0.34], [0.3, 0.0, 0.7]]
    )
    def test_parts_are_as_long_as_theirs(self, io, n, fractions):
        ours, theirs = random_split(range(n), fractions), io.random_split(range(n), fractions)
        assert list(map(len, ours)) == list(map(len, theirs))

    @pytest.mark.parametrize("lengths", [[3, 8], [8], [], [-0.2, 1.2], [0.5, 0.6]])
    def test_what_they_refuse_is_refused(self, io, lengths):
        for split in (random_split, io.random_split):
            with pytest.raises(ValueError, match=r"random_split|[Ss]um|not between"):
                split(range(5), lengths)
