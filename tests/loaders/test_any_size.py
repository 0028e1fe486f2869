"""Batches of any size at the doors of Paddle: on one place as they are, on several equally many."""

import json
import warnings
from contextlib import contextmanager

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sized_batches import lists, of_sizes, ten
from steps import stream, told

from jreader import (
    DataLoader,
    FeedMismatch,
    NotResumable,
    Pipeline,
    PyReader,
    ShortEpoch,
    arrays,
    train,
)

TWO = jax.devices()[:2]
SPLIT = NamedSharding(Mesh(np.array(TWO), ("data",)), PartitionSpec("data"))


@contextmanager
def silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


class TestOnePlace:
    """As Paddle does: every batch as it comes."""

    @pytest.mark.parametrize("said", [{}, {"drop_last": True}, {"drop_last": False}])
    @pytest.mark.parametrize("place", [None, TWO[1], TWO[:1]])
    @pytest.mark.parametrize("sizes", [(16, 8, 8, 8), (4, 8), (3,), (5, 1, 5)])
    def test_gets_batches_of_any_size_and_no_mask(self, said, place, sizes):
        expected = [array.tolist() for array in of_sizes(*sizes)()]
        if place == TWO[:1]:
            expected = [[numbers] for numbers in expected]
        for setter, reader in (
            ("set_batch_generator", of_sizes(*sizes)),
            ("set_sample_list_generator", lists(*sizes)),
        ):
            loader = getattr(DataLoader.from_generator(**said), setter)(reader, place)
            with silent():
                assert stream(loader) == stream(loader) == expected

    def test_gets_the_short_last_batch_that_set_sample_generator_keeps(self):
        for said in ({}, {"drop_last": True}, {"drop_last": False}):
            loader = DataLoader.from_generator(**said).set_sample_generator(ten, 4, drop_last=False)
            assert stream(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
            loader = DataLoader.from_generator(**said).set_sample_generator(ten, 4)
            assert stream(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        old = PyReader()
        old.decorate_sample_generator(ten, 4, drop_last=False)
        assert [len(feed) for feed in old] == [4, 4, 2]

    def test_counts_them(self):
        known = Pipeline(arrays(np.arange(10)))
        loader = DataLoader.from_generator().set_sample_generator(known, 4, drop_last=False)
        assert len(loader) == len(list(loader)) == 3

    def test_trains_on_every_sample(self):
        sizes = train(
            lambda state, feed: (state + len(feed["n"]), None),
            0,
            lambda: ([(n,) for n in part] for part in lists(3, 5, 2)()),
            {"n": 0},
            progress=False,
        )
        assert sizes == (10, [None])

    def test_pads_and_wraps_where_that_is_said(self):
        padded = DataLoader.from_generator(last="pad").set_batch_generator(of_sizes(2, 1, 3))
        assert stream(padded) == [
            ([0, 1], [True, True]),
            ([2, 0], [True, False]),
            ([3, 4, 5], [True, True, True]),
        ]
        wrapped = DataLoader.from_generator(last="wrap").set_sample_generator(ten, 4)
        assert stream(wrapped)[-1] == [8, 9, 0, 1]

    def test_steps_of_one_size_are_a_word_away(self):
        loader = DataLoader.from_generator(last="drop").set_batch_generator(of_sizes(4, 4, 2))
        assert stream(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        loader = DataLoader.from_generator(last="drop").set_batch_generator(of_sizes(4, 2, 4))
        with pytest.raises(FeedMismatch, match="only the last of an epoch may"):
            list(loader)
        loader = DataLoader.from_generator(last="error").set_batch_generator(of_sizes(4, 2))
        with pytest.raises(ShortEpoch, match="has 2 samples, not 4"):
            list(loader)

    @pytest.mark.parametrize("as_batch", [tuple, lambda row: dict(zip("ab", row, strict=True))])
    def test_counts_the_rows_of_fields_that_are_fed(self, as_batch):
        def batches():
            return (as_batch((np.zeros(4), array)) for array in of_sizes(4, 4, 2, 4)())

        fields = {"x": 1 if as_batch is tuple else "b"}
        loader = DataLoader.from_generator(fields, last="drop").set_batch_generator(batches)
        with pytest.raises(FeedMismatch, match="only the last of an epoch may"):
            list(loader)
        loader = DataLoader.from_generator(fields, last="keep").set_batch_generator(batches)
        feeds = loader.epoch(0)
        assert [feeds.cursor["samples"] for _ in feeds] == [4, 8, 10, 14]

    def test_goes_on_in_the_middle_of_batches_of_any_size(self):
        loader = DataLoader.from_generator().set_batch_generator(of_sizes(4, 1, 6, 2))
        whole = stream(loader.epoch(0))
        feeds = loader.epoch(0)
        for done, _ in enumerate(feeds, 1):
            cursor = json.loads(json.dumps(feeds.cursor))
            assert stream(loader.epoch(0, at=cursor)) == whole[done:]

    def test_refuses_a_place_that_other_sizes_have_moved(self):
        sizes = [4, 4, 4]

        def batches():
            return of_sizes(*sizes)()

        loader = DataLoader.from_generator().set_batch_generator(batches)
        feeds = loader.epoch(0)
        next(feeds)
        sizes[:] = [2] * 6
        with pytest.raises(NotResumable, match=r"has 4 samples .* gives 2 up to there"):
            list(loader.epoch(0, at=feeds.cursor))


class TestSeveralPlaces:
    """Parts have to be equal."""

    def loader(self, sizes, places=TWO, **said):
        return DataLoader.from_generator(**said).set_batch_generator(of_sizes(*sizes), places)

    def test_groups_of_any_size_are_handed_over(self):
        with silent():
            assert stream(self.loader((2, 2, 3, 3))) == [[[0, 1], [2, 3]], [[4, 5, 6], [7, 8, 9]]]

    @pytest.mark.parametrize(
        ("sizes", "told"), [((2, 2, 2), r"1 batch \(2 s"), ((2, 2, 2, 1, 3), r"3 batches \(6 s")]
    )
    def test_what_is_left_out_is_counted_once_an_epoch(self, sizes, told):
        loader = self.loader(sizes)
        for epoch in range(2):
            with pytest.warns(UserWarning, match=f"epoch {epoch}: {told}.*last='pad'") as caught:
                assert stream(loader) == [[[0, 1], [2, 3]]]
            assert len(caught) == 1

    def test_is_left_out_in_silence_where_that_was_said(self):
        with silent():
            assert stream(self.loader((2, 2, 2), drop_last=True)) == [[[0, 1], [2, 3]]]

    @pytest.mark.parametrize("said", [{"drop_last": False}, {"last": "pad"}])
    def test_is_padded_where_that_was_said(self, said):
        with silent():
            feeds = stream(self.loader((2, 1, 3, 3, 1), **said))
        assert feeds[0] == ([[0, 1], [2, 0]], [[True, True], [True, False]])
        assert feeds[1] == ([[3, 4, 5], [6, 7, 8]], [[True] * 3] * 2)
        assert feeds[2] == ([[9, 0, 0], [0] * 3], [[True, False, False], [False] * 3])

    @pytest.mark.parametrize("places", [None, TWO, SPLIT])
    def test_padded_feeds_keep_their_shape_after_a_resume(self, places):
        loader = self.loader((4, 4, 2, 2, 4, 2), places, last="pad")
        whole = stream(loader.epoch(0))
        feeds = loader.epoch(0)
        for done, _ in enumerate(feeds, 1):
            cursor = json.loads(json.dumps(feeds.cursor))
            assert stream(loader.epoch(0, at=cursor)) == whole[done:]

    def test_a_cut_batch_has_to_be_divisible(self):
        with pytest.warns(UserWarning, match=r"2 batches \(4 samples\)"):
            assert stream(self.loader((4, 3, 2, 1), SPLIT)) == [[0, 1, 2, 3], [7, 8]]
        padded = stream(self.loader((3, 4), SPLIT, drop_last=False))
        assert padded == [
            ([0, 1, 2, 0], [True, True, True, False]),
            ([3, 4, 5, 6], [True] * 4),
        ]


class TestDataSets:
    def test_feed_the_same_tree_on_one_device_and_on_two(self):
        pairs = [(n, float(n)) for n in range(10)]
        one = list(DataLoader(pairs, 2))
        with pytest.warns(UserWarning, match=r"1 batch \(2 samples\)"):
            two = list(DataLoader(pairs, 2, places=TWO))
        assert jax.tree.structure(one[0]) == jax.tree.structure(two[0])
        assert [np.ravel(feed[0]).tolist() for feed in two] == [[0, 1, 2, 3], [4, 5, 6, 7]]

    def test_are_padded_where_that_is_said(self):
        for said in ({"drop_last": False}, {"last": "pad"}):
            *_, last = DataLoader(range(10), 4, places=TWO, **said)
            assert told(last) == ([[8, 9, 0, 0], [0] * 4], [[True] * 2 + [False] * 2, [False] * 4])
        assert told([*DataLoader(range(3), 2, last="pad")][1]) == ([2, 0], [True, False])
        assert told([*DataLoader(range(3), 2, drop_last=False)][1]) == [2]
        assert told([*DataLoader(range(3), 2, last="wrap")][1]) == [2, 0]

    def test_keep_every_string_of_a_chunk(self):
        loader = DataLoader([(n, f"{n}") for n in range(4)], 2).chunk(2)
        ((numbers, names),) = list(loader)
        assert (told(numbers), names) == ([[0, 1], [2, 3]], [["0", "1"], ["2", "3"]])


def test_the_sixth_argument_is_paddles():
    loader = DataLoader.from_generator(None, 2, True, True, False, False)  # noqa: FBT003  # its order
    assert stream(loader.set_sample_generator(ten, 4, drop_last=False))[-1] == [8, 9]
    with pytest.raises(ValueError, match=r"use_multiprocess.*drop_last is given by its name"):
        DataLoader.from_generator(None, 2, True, True, False, True)  # noqa: FBT003  # likewise
