"""A cursor is at a sample: batches of another size go on there, where batches count samples."""

import warnings
from functools import cache
from itertools import chain

import jax
import numpy as np
import pytest
from plans import COUNT, cursor_of, numbers, plan, streamed
from seen import through_json
from steps import told

from jreader import (
    DataLoader,
    NotResumable,
    Pipeline,
    batch,
    shuffle,
)

DEVICES = jax.devices()


class TestBatchSizes:
    def sizes(self, make, sizes, start=0):
        """The numbers of one epoch, where each feed is of another size than the one before."""
        found, cursor, make = [], None, cache(make)  # a resident one is compiled
        for size in chain(sizes, [sizes[-1]] * COUNT):
            feeds = make(size).epoch(0, at=cursor) if cursor else make(size).epoch(0)
            feed = next(feeds, None)
            if feed is None:
                return found
            found += np.ravel(jax.tree.leaves(told(feed))).tolist()
            cursor = through_json(feeds.cursor)
            assert cursor["samples"] == len(found)
            feeds.close()
        return found

    @pytest.mark.parametrize(
        "make",
        [
            lambda n: plan().batch(n).load(),
            lambda n: plan().batch(n).load(resident=True),
            lambda n: streamed().batch(n).load(),
            lambda n: streamed().batch(n).map_batches(abs).prefetch(2).load(),
            lambda n: streamed().filter(bool).filter(lambda n: n != 7).batch(n).load(),
            lambda n: DataLoader.from_generator().set_sample_generator(
                shuffle(numbers, 9, 1), n, places=DEVICES[:2]
            ),
            lambda n: DataLoader.from_generator().set_batch_generator(
                Pipeline(numbers).batch(n).map_batches(lambda column: (column,))
            ),
            lambda n: DataLoader(range(COUNT), n, shuffle=True, seed=1),
            lambda n: plan(seed=1).batch(n).load().chunk(2),
        ],
    )
    def test_another_size_goes_on_at_the_same_sample(self, make):
        together = self.sizes(make, [1])
        assert self.sizes(make, [4, 2, 1, 8, 1]) == together
        assert len(together) > COUNT - 4

    def test_a_short_end_is_padded_to_the_new_size(self):
        def make(size):
            return plan().batch(size).load(drop_last=False)

        (*_, last) = make(20).epoch(0, at=cursor_of(make(4), 3))
        assert last["n"].shape == last["mask"].shape == (20,)
        assert int(last["mask"].sum()) == (COUNT - 12) % 20

    def test_functions_that_change_the_length_of_batches_keep_their_factor(self):
        def make(size):
            twice = streamed().batch(size).map_batches(lambda column: np.repeat(column, 2))
            return twice.load(drop_last=False)

        feed = next(make(5).epoch(0, at=cursor_of(make(4), 11)))
        assert feed[0].shape == (10,)
        assert int(feed[1].sum()) == 8

    def test_batches_of_the_users_own_keep_theirs(self):
        size = 4

        class Batches:
            def __call__(self):
                return iter(batch(numbers, size)())

        loader = DataLoader.from_generator().set_sample_list_generator(Batches())
        cursor = cursor_of(loader)
        for smaller in (2, 1):
            size = smaller
            with pytest.raises(NotResumable, match="counted in batches"):
                list(loader.epoch(0, at=cursor))


class TestPlaces:
    """Those in samples and those in batches are not taken for one another."""

    def in_batches(self):
        def lists():
            return iter(batch(numbers, 4)())

        return DataLoader.from_generator().set_sample_list_generator(lists)

    def in_samples(self, size=4):
        return Pipeline(numbers).batch(size).load()

    def refused(self, loader, cursor):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(the data|the feeds) of this", UserWarning)
            with pytest.raises(NotResumable, match="in batches"):
                list(loader.epoch(0, at=cursor))

    @pytest.mark.parametrize("size", [4, 8])
    def test_a_cursor_of_batches_is_refused_where_samples_are_counted(self, size):
        self.refused(self.in_samples(size), cursor_of(self.in_batches()))

    def test_a_cursor_of_samples_is_refused_where_batches_are_counted(self):
        self.refused(self.in_batches(), cursor_of(self.in_samples()))


def test_a_cursor_is_the_same_for_every_size_once_it_is_at_the_same_sample():
    one, two = (plan().batch(size).load(drop_last=False) for size in (4, 8))
    assert cursor_of(one, 6)["digest"] == cursor_of(two, 3)["digest"]
    assert cursor_of(one, 6)["plan"] == cursor_of(two, 3)["plan"]
