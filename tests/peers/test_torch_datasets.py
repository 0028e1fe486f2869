"""What torch's tests of its data sets check, of jreader; and the same through the real ones."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from peer_datasets import Counting

from jreader import DataLoader, Dataset, IterableDataset, datasets
from jreader.datasets import ChainDataset, ConcatDataset, Subset, TensorDataset, random_split

differs = pytest.mark.differs
RANDOM = np.random.default_rng(0)
IMAGES, LABELS = RANDOM.random((15, 4, 5)), RANDOM.permutation(15)


class Gathering(Dataset):
    """Gives several samples at once, and may lose some."""

    def __init__(self, lost=0):
        self.data, self.lost = RANDOM.random(4), lost

    def __getitem__(self, index):
        return self.data[index]

    def __getitems__(self, indices):
        return self.data[indices][: len(indices) - self.lost]

    def __len__(self):
        return 4


class TestTensorDataset:
    @pytest.mark.parametrize("columns", [(IMAGES, LABELS), (LABELS, LABELS), (IMAGES,)], ids=len)
    def test_arrays_by_place_are_its_columns(self, columns):
        dataset = TensorDataset(*columns)
        assert len(dataset) == 15
        for index in range(15):
            row = dataset[index]
            assert len(row) == len(columns)
            assert all(
                np.array_equal(value, column[index])
                for value, column in zip(row, columns, strict=True)
            )

    def test_a_slice_of_it_has_the_rows_of_each_column(self):
        found = TensorDataset([IMAGES, LABELS])[1:9:3]
        assert np.array_equal(found[0], IMAGES[1:9:3])
        assert np.array_equal(found[1], LABELS[1:9:3])


class TestStackDataset:
    def test_nothing_at_all_is_refused(self):
        with pytest.raises(ValueError, match="at least one"):
            datasets.StackDataset()

    def test_places_and_names_together_are_refused(self):
        with pytest.raises((TypeError, ValueError), match="StackDataset"):
            datasets.StackDataset("ab", a="cd")

    @pytest.mark.parametrize("named", [False, True])
    def test_members_of_other_lengths_are_refused(self, named):
        with pytest.raises(ValueError, match="one length"):
            datasets.StackDataset(a="ab", b="abc") if named else datasets.StackDataset("ab", "abc")

    @pytest.mark.parametrize("members", [(LABELS,), (IMAGES, LABELS)], ids=len)
    def test_a_sample_has_one_of_each_by_place_or_by_name(self, members):
        placed = datasets.StackDataset(*members)
        named = datasets.StackDataset(**dict(zip("ab", members, strict=False)))
        assert len(placed) == len(named) == 15
        for index in range(15):
            assert type(placed[index]) is tuple
            assert list(named[index]) == list("ab"[: len(members)])
            for found in (placed[index], named[index].values()):
                assert all(
                    np.array_equal(value, of[index])
                    for value, of in zip(found, members, strict=True)
                )

    def test_several_at_once_are_gathered_where_they_can_be(self):
        gathering, plain = Gathering(), [1, 2, 3, 4]
        found = datasets.StackDataset(gathering, plain).__getitems__([0, 3, 1])
        assert [tuple(row) for row in found] == [(gathering[n], plain[n]) for n in (0, 3, 1)]

    def test_an_index_beyond_a_stack_is_an_index_error(self):
        with pytest.raises(IndexError):
            datasets.StackDataset(Gathering(), [1, 2, 3, 4]).__getitems__([0, 4])

    def test_a_member_that_loses_samples_is_refused(self):
        with pytest.raises(ValueError, match="3 samples for 4 indices"):
            datasets.StackDataset(Gathering(lost=1), [1, 2, 3, 4]).__getitems__([0, 1, 2, 3])


class TestConcatDataset:
    @pytest.mark.parametrize("parts", [[[0], [1]], [range(5), range(5)], [range(5), [], range(5)]])
    def test_it_is_its_parts_in_turn(self, parts):
        joined, expected = ConcatDataset(parts), [*chain.from_iterable(parts)]
        assert (len(joined), list(joined)) == (len(expected), expected)
        assert [joined[index] for index in range(-len(expected), 0)] == expected

    def test_it_tells_where_its_parts_end(self):
        assert ConcatDataset(["abc", "", "de"]).cumulative_sizes == [3, 3, 5]

    def test_beyond_the_end_there_is_nothing(self):
        with pytest.raises(IndexError):
            ConcatDataset([range(5), range(5, 10)])[11]

    def test_data_sets_are_added(self):
        parts = [TensorDataset([RANDOM.random((7, 3))]) for _ in range(3)]
        whole = parts[0] + parts[1] + parts[2]
        assert len(whole) == 21
        for index, part in ((0, parts[0]), (7, parts[1]), (14, parts[2])):
            assert np.array_equal(whole[index][0], part[0][0])

    @pytest.mark.parametrize("parts", [[[1], Counting(5)], [Counting(5)], [Counting(5), [1]]])
    def test_streams_are_not_concatenated(self, parts):
        with pytest.raises(TypeError, match="ChainDataset"):
            ConcatDataset(parts)


class TestChainDataset:
    @pytest.mark.parametrize("workers", [0, 1])
    @pytest.mark.parametrize("how", ["added", "chained"])
    def test_one_stream_follows_another(self, how, workers):
        one, other = Counting(8), Counting(5)
        joined = one + other if how == "added" else ChainDataset([one, other])
        feeds = DataLoader(joined, num_workers=workers)
        assert [int(feed[0]) for feed in feeds] == [*range(8), *range(5)]

    def test_its_length_is_that_of_all_where_they_say_it(self):
        assert len(ChainDataset([Counting(20), Counting(15)])) == 35

    def test_what_has_indices_is_not_chained(self):
        with pytest.raises(TypeError, match="ConcatDataset"):
            ChainDataset([Counting(5), TensorDataset([LABELS])])


class TestRandomSplit:
    @pytest.mark.parametrize(
        ("n", "lengths", "sizes"),
        [
            (6, [2, 4], [2, 4]),
            (6, [0.5, 0.5], [3, 3]),
            (3, [0.5, 0.5], [2, 1]),
            (106, [0.1, 0.2, 0.3, 0.4], [11, 22, 31, 42]),
            (6, [0.33, 0.67], [2, 4]),
            (4, [0.25, 0.75], [1, 3]),
        ],
    )
    def test_parts_have_their_sizes_and_share_nothing(self, n, lengths, sizes):
        parts = random_split(range(n), lengths)
        assert list(map(len, parts)) == sizes
        assert sorted(chain.from_iterable(parts)) == [*range(n)]

    @pytest.mark.parametrize("lengths", [[1, 2], [0.1], [1.1]])
    def test_lengths_that_do_not_sum_up_are_refused(self, lengths):
        with pytest.raises(ValueError, match="random_split"):
            random_split([1, 2, 3, 4], lengths)

    @pytest.mark.parametrize("lengths", [[5], [1.0]])
    def test_indices_are_whole_numbers_of_python(self, lengths):
        asked = []

        class Asked(Dataset):
            def __getitem__(self, index):
                asked.append(type(index))
                return index

            def __len__(self):
                return 5

        (part,) = random_split(Asked(), lengths)
        list(DataLoader(part))
        assert asked == [int] * 5

    @pytest.mark.parametrize("lengths", [[60, 40], [0.5, 0.5], [0.33, 0.33, 0.34]])
    def test_a_seed_splits_again_and_asks_no_global_generator(self, lengths):
        before = np.random.get_state()[1].tolist()  # noqa: NPY002  # the point
        first, again, other = (random_split(range(100), lengths, seed=n) for n in (42, 42, 43))
        assert list(map(list, first)) == list(map(list, again)) != list(map(list, other))
        assert np.random.get_state()[1].tolist() == before  # noqa: NPY002  # likewise


class TestSubset:
    @differs
    @pytest.mark.parametrize("dataset", [Subset(range(5), [3, 1, 4]), ConcatDataset(["ab", "c"])])
    def test_a_slice_of_it_is_spelled_as_a_subset(self, dataset):
        with pytest.raises(TypeError, match=r"a part of it is Subset\(dataset, range\(1, 3\)\)"):
            dataset[1:]
        assert list(Subset(dataset, range(1, 3))) == list(dataset)[1:]

    def test_a_subset_of_a_subset_has_the_samples_of_its_samples(self):
        outer = Subset(TensorDataset([LABELS]), [4, 3, 2, 1])
        assert [int(row[0]) for row in Subset(outer, [3, 0])] == [LABELS[1], LABELS[4]]

    def test_it_knows_its_data_set_and_its_indices(self):
        part = Subset("abcdef", [4, 0])
        assert (part.dataset, list(part.indices)) == ("abcdef", [4, 0])


def test_a_data_set_has_a_type_of_samples():
    class Pairs(Dataset[tuple[int, str]]):
        pass

    class Stream(IterableDataset[int]):
        pass

    assert issubclass(Pairs, Dataset)
    assert issubclass(Stream, IterableDataset)


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
class TestTheRealOnes:
    @pytest.fixture(scope="class")
    def data(self):
        return pytest.importorskip("torch").utils.data

    @pytest.mark.parametrize("n", [1, 3, 6, 106])
    @pytest.mark.parametrize("lengths", [[1.0], [0.5, 0.5], [0.1, 0.2, 0.3, 0.4], [0.25, 0.75]])
    def test_parts_are_as_long_as_theirs(self, data, n, lengths):
        ours, theirs = random_split(range(n), lengths), data.random_split(range(n), lengths)
        assert list(map(len, ours)) == list(map(len, theirs))

    def test_stacks_and_sums_are_theirs(self, data):
        for parts in (["abc", [1, 2, 3]], [[(1, 2)], ["a"]]):
            ours, theirs = datasets.StackDataset(*parts), data.StackDataset(*parts)
            assert [ours[n] for n in range(len(ours))] == [theirs[n] for n in range(len(theirs))]
        ours, theirs = ConcatDataset(["abc", "de"]), data.ConcatDataset(["abc", "de"])
        assert ours.cumulative_sizes == theirs.cumulative_sizes
