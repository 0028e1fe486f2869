"""Data sets, and data sets made of them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jreader
from jreader import Dataset, IterableDataset
from jreader.datasets import (
    ChainDataset,
    ComposeDataset,
    ConcatDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from jreader.datasets.fetching import fetch
from jreader.errors import FeedMismatch


class Counted(Dataset):
    """Squares, without an end of their own."""

    def __init__(self, n):
        self.n = n

    def __getitem__(self, index):
        return index**2

    def __len__(self):
        return self.n


class Several(Counted):
    """Fetches several at once, and tells how often."""

    calls = ()

    def __getitems__(self, indices):
        self.calls = (*self.calls, list(indices))
        return [index**2 for index in indices]


class Stream(IterableDataset):
    def __iter__(self):
        yield from "ab"


words = st.text("abcdef", max_size=6)


class TestDataset:
    def test_it_ends_where_its_length_says_though_its_indices_do_not(self):
        assert list(Counted(4)) == [0, 1, 4, 9]

    def test_it_is_a_reader(self):
        assert list(jreader.batch(Counted(3), 2)()) == [[0, 1], [4]]
        assert len(jreader.batch(Counted(3), 2)) == 2
        assert list(jreader.Pipeline(Stream()).map(str.upper)) == ["A", "B"]

    def test_it_is_true_also_empty(self):
        assert Counted(0)

    def test_what_is_not_defined_says_so(self):
        for asked in (len, iter, lambda dataset: dataset[0]):
            with pytest.raises(NotImplementedError, match=r"Dataset must define __\w+__"):
                list(asked(Dataset()))
        with pytest.raises(NotImplementedError, match="IterableDataset must define __iter__"):
            iter(IterableDataset())


class TestTensors:
    def test_rows_are_tuples_and_several_are_gathered(self):
        dataset = TensorDataset([np.arange(6).reshape(3, 2), [7, 8, 9]])
        assert len(dataset) == 3
        assert [array.tolist() for array in dataset[2]] == [[4, 5], 9]
        together = fetch(dataset, [2, 0])
        assert [column.tolist() for column in together.columns] == [[[4, 5], [0, 1]], [9, 7]]

    @pytest.mark.parametrize(
        ("tensors", "error", "says"),
        [
            ([], ValueError, "at least one column"),
            ([np.zeros(3), np.zeros(4)], ValueError, "columns of one length"),
            ([3], ValueError, "axis of rows"),
        ],
    )
    def test_what_has_no_rows_is_refused(self, tensors, error, says):
        with pytest.raises(error, match=says):
            TensorDataset(tensors)

    def test_torchs_spelling_and_paddles_are_one(self):
        images, labels = np.arange(6).reshape(3, 2), [7, 8, 9]
        for dataset in (
            TensorDataset([images, labels]),
            TensorDataset((images, labels)),
            TensorDataset(tensors=[images, labels]),
            TensorDataset(images, np.array(labels)),
        ):
            assert [array.tolist() for array in dataset[1]] == [[2, 3], 8]
            assert len(dataset) == 3
        assert TensorDataset(images)[2][0].tolist() == [4, 5]
        with pytest.raises(TypeError, match="not both"):
            TensorDataset(images, tensors=[labels])


class TestStacks:
    def test_samples_side_by_side_are_tuples_or_dicts(self):
        assert list(StackDataset("ab", [1, 2])) == [("a", 1), ("b", 2)]
        named = StackDataset(letter="ab", number=[1, 2])
        assert (named[-1], len(named)) == ({"letter": "b", "number": 2}, 2)
        assert repr(named) == "StackDataset(letter='ab', number=[1, 2])"
        (feed,) = jreader.DataLoader(named, 2)
        assert (feed["letter"], feed["number"].tolist()) == (["a", "b"], [1, 2])

    def test_each_is_asked_once_for_a_batch(self):
        one, two = Several(3), Several(3)
        assert fetch(StackDataset(one, two), [2, 0]) == [
            (4, 4),
            (0, 0),
        ]
        assert (one.calls, two.calls) == (([2, 0],), ([2, 0],))

    @pytest.mark.parametrize(
        ("make", "error", "says"),
        [
            (lambda: StackDataset("ab", "abc"), ValueError, r"one length, not \[2, 3\]"),
            (lambda: StackDataset("ab", n="ab"), TypeError, "not both"),
            (StackDataset, ValueError, "at least one"),
            (lambda: StackDataset(Stream()), TypeError, "has none"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, make, error, says):
        with pytest.raises(error, match=says):
            make()


class TestSums:
    def test_data_sets_add_up(self):
        both = Counted(2) + Counted(3)
        assert (type(both), list(both)) == (ConcatDataset, [0, 1, 0, 1, 4])
        assert list(both + "a") == [0, 1, 0, 1, 4, "a"]
        streams = Stream() + Stream()
        assert (type(streams), "".join(streams)) == (ChainDataset, "abab")

    def test_where_each_ends_is_known(self):
        joined = ConcatDataset(["abc", "de"])
        assert joined.cumulative_sizes == [3, 5]
        rows = [1]
        grown = ConcatDataset([rows, "ab"])
        rows.append(2)
        assert grown.cumulative_sizes == [2, 4]

    def test_streams_that_know_their_lengths_have_one_together(self):
        class Told(Stream):
            def __len__(self):
                return 2

        assert len(ChainDataset([Told(), Told()])) == 4
        assert len(jreader.DataLoader(ChainDataset([Told(), Told()]), 3)) == 2
        with pytest.raises(TypeError, match=r"Stream\(\) has none"):
            len(ChainDataset([Told(), Stream()]))
        assert list(jreader.DataLoader(ChainDataset([Told(), Stream()]), 3)) == [
            ["a", "b", "a"],
            ["b"],
        ]


class TestCombinations:
    @given(st.lists(words, min_size=1, max_size=4))
    def test_joined_data_sets_are_their_samples_in_turn(self, parts):
        joined, together = ConcatDataset(parts), "".join(parts)
        assert list(joined) == list(together)
        for index in range(-len(together), len(together)):
            assert joined[index] == together[index]
        order = list(range(len(together)))[::-1]
        assert fetch(joined, order) == list(together[::-1])

    def test_joined_data_sets_are_each_asked_once(self):
        one, two = Several(3), Several(3)
        assert fetch(ConcatDataset([one, two]), [5, 0, 3]) == [4, 0, 0]
        assert (one.calls, two.calls) == (([0],), ([2, 0],))

    @pytest.mark.parametrize("index", [3, -4])
    def test_an_index_beyond_is_an_index_error(self, index):
        for dataset in (ConcatDataset(["ab", "c"]), Subset("abcd", [0, 1, 2])):
            with pytest.raises(IndexError, match=f"index {index} is beyond"):
                dataset[index]

    def test_streams_are_begun_when_their_turn_comes(self):
        begun = []

        class Noted(IterableDataset):
            def __iter__(self):
                begun.append(self)
                yield from "xy"

        items = iter(ChainDataset([Noted(), Noted()]))
        assert (next(items), len(begun)) == ("x", 1)
        assert (list(items), len(begun)) == (["y", "x", "y"], 2)

    def test_fields_are_laid_side_by_side_one_level_deep(self):
        dataset = ComposeDataset([[(1, (2,)), (3, (4,))], "ab", [[5], [6]], [None, None]])
        assert list(dataset) == [(1, (2,), "a", 5, None), (3, (4,), "b", 6, None)]

    @given(words, st.data())
    def test_a_subset_is_what_its_indices_say(self, text, data):
        known = st.integers(-len(text), len(text) - 1) if text else st.nothing()
        indices = data.draw(st.lists(known))
        assert list(Subset(text, indices)) == [text[index] for index in indices]
        assert list(Subset(Subset(text, indices), range(len(indices)))) == [
            text[index] for index in indices
        ]

    def test_columns_stay_columns_through_a_subset(self):
        rows = Subset(TensorDataset([np.arange(5) * 10]), [4, 3, 2])
        assert fetch(rows, [0, 2]).columns[0].tolist() == [40, 20]
        assert fetch(Subset(jreader.arrays(x=np.arange(5)), [4]), [0]).columns["x"].tolist() == [4]

    @pytest.mark.parametrize(
        ("make", "error", "says"),
        [
            (lambda: ConcatDataset([]), ValueError, "at least one"),
            (lambda: ConcatDataset([Stream()]), TypeError, "has none"),
            (lambda: ChainDataset([[1, 2]]), TypeError, "use ConcatDataset"),
            (lambda: ChainDataset([5]), TypeError, "needs a data set"),
            (lambda: ComposeDataset(["ab", "abc"]), ValueError, r"one length, not \[2, 3\]"),
            (lambda: Subset("abc", [3]), IndexError, "index 3, and 'abc' has 3 samples"),
            (lambda: Subset("abc", [0.5]), TypeError, "list of ints"),
            (lambda: Subset(5, [0]), TypeError, "needs a data set"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, make, error, says):
        with pytest.raises(error, match=says):
            make()


class TestSplits:
    @given(st.lists(st.integers(0, 8), min_size=1, max_size=4), st.integers(0, 3))
    def test_parts_partition(self, lengths, seed):
        n = sum(lengths)
        parts = random_split(range(n), lengths, seed=seed)
        assert list(map(len, parts)) == lengths
        assert sorted(sample for part in parts for sample in part) == list(range(n))

    @given(st.integers(0, 30), st.sampled_from([[0.5, 0.5], [0.1, 0.2, 0.7], [1.0]]))
    def test_fractions_lose_nothing(self, n, fractions):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parts = random_split(range(n), fractions, seed=0)
        assert sum(map(len, parts)) == n
        assert all(
            abs(len(part) - n * each) <= 1 for part, each in zip(parts, fractions, strict=True)
        )

    def test_a_seed_splits_again_and_none_anew(self):
        def first(seed):
            return list(random_split(range(100), [50, 50], seed=seed)[0])

        assert first(1) == first(1) != first(2)
        assert first(None) != first(None)
        assert first(1) != list(range(50))

    def test_whole_numbers_are_lengths_and_never_fractions(self):
        with pytest.raises(ValueError, match="sum to the 5 samples"):
            random_split(range(5), [1])
        assert [len(part) for part in random_split(range(5), [1.0])] == [5]

    def test_an_empty_part_of_a_fraction_is_warned_of(self):
        with pytest.warns(UserWarning, match="part 1 of random_split has no samples"):
            random_split(range(2), [0.9, 0.1], seed=0)

    @pytest.mark.parametrize("lengths", [[0.5, 0.6], [1.5, -0.5], [3, 3], [6, -1]])
    def test_what_does_not_sum_up_is_refused(self, lengths):
        with pytest.raises(ValueError, match="sum to"):
            random_split(range(5), lengths)

    def test_what_is_no_number_is_refused(self):
        with pytest.raises(TypeError, match="needs numbers"):
            random_split(range(5), ["a"])


class TestFetching:
    def test_a_vectorised_getitems_is_used(self):
        dataset = Several(9)
        assert fetch(dataset, [3, 1]) == [9, 1]
        assert dataset.calls == ([3, 1],)

    def test_a_getitems_that_loses_samples_is_refused(self):
        class Lossy(Counted):
            def __getitems__(self, indices):
                return [0]

        with pytest.raises(FeedMismatch, match="returned 1 samples for 2 indices"):
            fetch(Lossy(5), [1, 2])

    def test_an_error_names_the_index(self):
        with pytest.raises(IndexError) as caught:
            fetch([1, 2], [0, 7])
        assert caught.value.__notes__ == ["raised by list[7]"]
