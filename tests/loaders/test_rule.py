"""One rule for all doors: what becomes of batches that are short, or differ in size."""

import json
import warnings
from contextlib import contextmanager

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from steps import stream

from jreader import (
    DataLoader,
    FeedMismatch,
    NotResumable,
    Pipeline,
    PyReader,
    ShortEpoch,
    arrays,
    as_function,
    batch,
    map_batches,
    train,
)

TWO = jax.devices()[:2]
SPLIT = NamedSharding(Mesh(np.array(TWO), ("data",)), PartitionSpec("data"))


def plain(feed):
    return jax.tree.map(np.ndarray.tolist, jax.device_get(feed))


def given_by(feeds):
    return [plain(feed) for feed in feeds]


def ten():
    return iter(range(10))


def of_sizes(*sizes):
    """A reader of batches that are arrays, of consecutive numbers."""

    def batches():
        first = 0
        for size in sizes:
            yield np.arange(first, first + size)
            first += size

    return batches


def lists(*sizes):
    return lambda: (array.tolist() for array in of_sizes(*sizes)())


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
                assert given_by(loader) == given_by(loader) == expected

    def test_gets_the_short_last_batch_that_set_sample_generator_keeps(self):
        for said in ({}, {"drop_last": True}, {"drop_last": False}):
            loader = DataLoader.from_generator(**said).set_sample_generator(ten, 4, drop_last=False)
            assert given_by(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
            loader = DataLoader.from_generator(**said).set_sample_generator(ten, 4)
            assert given_by(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
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
        assert given_by(padded) == [
            ([0, 1], [True, True]),
            ([2, 0], [True, False]),
            ([3, 4, 5], [True, True, True]),
        ]
        wrapped = DataLoader.from_generator(last="wrap").set_sample_generator(ten, 4)
        assert given_by(wrapped)[-1] == [8, 9, 0, 1]

    def test_steps_of_one_size_are_a_word_away(self):
        loader = DataLoader.from_generator(last="drop").set_batch_generator(of_sizes(4, 4, 2))
        assert given_by(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        loader = DataLoader.from_generator(last="drop").set_batch_generator(of_sizes(4, 2, 4))
        with pytest.raises(FeedMismatch, match="only the last of an epoch may"):
            list(loader)
        loader = DataLoader.from_generator(last="error").set_batch_generator(of_sizes(4, 2))
        with pytest.raises(ShortEpoch, match="has 2 samples, not 4"):
            list(loader)

    def test_goes_on_in_the_middle_of_batches_of_any_size(self):
        loader = DataLoader.from_generator().set_batch_generator(of_sizes(4, 1, 6, 2))
        whole = given_by(loader.epoch(0))
        feeds = loader.epoch(0)
        for done, _ in enumerate(feeds, 1):
            cursor = json.loads(json.dumps(feeds.cursor))
            assert given_by(loader.epoch(0, at=cursor)) == whole[done:]

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
            assert given_by(self.loader((2, 2, 3, 3))) == [[[0, 1], [2, 3]], [[4, 5, 6], [7, 8, 9]]]

    @pytest.mark.parametrize(
        ("sizes", "told"), [((2, 2, 2), r"1 batch \(2 s"), ((2, 2, 2, 1, 3), r"3 batches \(6 s")]
    )
    def test_what_is_left_out_is_counted_once_an_epoch(self, sizes, told):
        loader = self.loader(sizes)
        for epoch in range(2):
            with pytest.warns(UserWarning, match=f"epoch {epoch}: {told}.*last='pad'") as caught:
                assert given_by(loader) == [[[0, 1], [2, 3]]]
            assert len(caught) == 1

    def test_is_left_out_in_silence_where_that_was_said(self):
        with silent():
            assert given_by(self.loader((2, 2, 2), drop_last=True)) == [[[0, 1], [2, 3]]]

    @pytest.mark.parametrize("said", [{"drop_last": False}, {"last": "pad"}])
    def test_is_padded_where_that_was_said(self, said):
        with silent():
            feeds = given_by(self.loader((2, 1, 3, 3, 1), **said))
        assert feeds[0] == ([[0, 1], [2, 0]], [[True, True], [True, False]])
        assert feeds[1] == ([[3, 4, 5], [6, 7, 8]], [[True] * 3] * 2)
        assert feeds[2] == ([[9, 0, 0], [0] * 3], [[True, False, False], [False] * 3])

    @pytest.mark.parametrize("places", [None, TWO, SPLIT])
    def test_padded_feeds_keep_their_shape_after_a_resume(self, places):
        loader = self.loader((4, 4, 2, 2, 4, 2), places, last="pad")
        whole = given_by(loader.epoch(0))
        feeds = loader.epoch(0)
        for done, _ in enumerate(feeds, 1):
            cursor = json.loads(json.dumps(feeds.cursor))
            assert given_by(loader.epoch(0, at=cursor)) == whole[done:]

    def test_a_cut_batch_has_to_be_divisible(self):
        with pytest.warns(UserWarning, match=r"2 batches \(4 samples\)"):
            assert given_by(self.loader((4, 3, 2, 1), SPLIT)) == [[0, 1, 2, 3], [7, 8]]
        padded = given_by(self.loader((3, 4), SPLIT, drop_last=False))
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
            assert plain(last) == ([[8, 9, 0, 0], [0] * 4], [[True] * 2 + [False] * 2, [False] * 4])
        assert plain([*DataLoader(range(3), 2, last="pad")][1]) == ([2, 0], [True, False])
        assert plain([*DataLoader(range(3), 2, drop_last=False)][1]) == [2]
        assert plain([*DataLoader(range(3), 2, last="wrap")][1]) == [2, 0]

    def test_keep_every_string_of_a_chunk(self):
        loader = DataLoader([(n, f"{n}") for n in range(4)], 2).chunk(2)
        ((numbers, names),) = list(loader)
        assert (plain(numbers), names) == ([[0, 1], [2, 3]], [["0", "1"], ["2", "3"]])


def numbers(many=10):
    return Pipeline(arrays(n=np.arange(many)))


def mask_of(feeds):
    return [plain(feed).get("mask") for feed in feeds]


class TestPipelines:
    @pytest.mark.filterwarnings("ignore:each epoch leaves out the same 2 samples")
    def test_drop_where_nothing_is_said_and_pad_where_batch_keeps(self):
        assert len(list(numbers().batch(4).load())) == len(numbers().batch(4).load()) == 2
        kept = numbers().batch(4, drop_last=False)
        assert mask_of(kept.load())[-1] == [True, True, False, False]
        assert len(kept.load()) == 3
        assert (
            mask_of(kept.map_batches(dict).prefetch(2).load(resident=False))[-1][2:] == [False] * 2
        )
        assert plain([*kept.load(last="wrap")][-1]) == {"n": [8, 9, 0, 1]}
        with pytest.raises(ShortEpoch):
            list(kept.load(last="error"))

    @pytest.mark.parametrize("said", [{"drop_last": True}, {"last": "drop"}])
    def test_contradictions_are_refused(self, said):
        with pytest.raises(ValueError, match=r"batch\(.*keeps .*leave one of them out"):
            numbers().batch(4, drop_last=False).load(**said)
        with pytest.raises(ValueError, match="means last='drop', and last='pad' was given"):
            numbers().batch(4).load(drop_last=True, last="pad")
        with pytest.raises(ValueError, match=r"leave one of them out"):
            DataLoader.from_generator(last="drop").set_sample_generator(ten, 4, drop_last=False)

    @pytest.mark.parametrize("said", [{}, {"last": "pad"}])
    def test_a_short_batch_that_is_not_the_last_is_an_error(self, said):
        feeds = iter(Pipeline(lists(16, 8, 8, 8)).load(capacity=0, **said))
        assert len(jax.tree.leaves(next(feeds))[0]) == 16
        with pytest.raises(FeedMismatch, match=r"fewer samples than 16.*\.batch\(n\)"):
            list(feeds)
        chunks = Pipeline(lists(4, 2, 4, 4)).load(**said).chunk(2)
        with pytest.raises(FeedMismatch, match="fewer samples than 4"):
            list(chunks)

    @pytest.mark.filterwarnings("ignore:each epoch leaves out the same 2 samples")
    def test_a_short_last_one_follows_last(self):
        plan = Pipeline(lists(4, 4, 2))
        assert len(list(plan.load())) == 2
        assert plain([*plan.load(last="pad")][-1]) == ([8, 9, 0, 0], [True, True, False, False])
        with pytest.raises(ShortEpoch):
            list(plan.load(last="error"))


class TestTheSameSamplesLeftOutOfEveryEpoch:
    """By default, on a plan that is not shuffled: told once, with their number."""

    WORDS = r"each epoch leaves out the same 2 samples: .* is not shuffled. load\(drop_last=False\)"

    @pytest.mark.parametrize("resident", [False, True])
    def test_are_told_of_once(self, resident):
        loader = Pipeline(arrays(n=np.arange(10))).batch(4).load(resident=resident)
        with pytest.warns(UserWarning, match=self.WORDS) as told:
            first = stream(loader)
        assert stream(loader) == first
        assert len(told) == 1

    def test_are_told_of_in_a_stream_at_its_end(self):
        feeds = iter(Pipeline(lambda: iter(range(10))).batch(4).load(capacity=0))
        next(feeds), next(feeds)
        with pytest.warns(UserWarning, match=self.WORDS):
            assert stream(feeds) == []

    @pytest.mark.parametrize(
        "options", [{"drop_last": True}, {"drop_last": False}, {"last": "drop"}, {"last": "wrap"}]
    )
    def test_are_not_told_of_where_the_user_has_said_what_becomes_of_them(self, options):
        stream(Pipeline(arrays(n=np.arange(10))).batch(4).load(**options))

    def test_are_not_told_of_where_batch_leaves_them_out(self):
        stream(Pipeline(arrays(n=np.arange(10))).batch(4, drop_last=True).load())

    @pytest.mark.parametrize("seed", [3, None])
    def test_are_others_in_a_plan_that_is_shuffled(self, seed):
        stream(Pipeline(arrays(n=np.arange(10))).shuffle(seed=seed).batch(4).load())
        stream(Pipeline(lambda: iter(range(10))).shuffle(5, seed=seed).batch(4).load())

    def test_are_the_same_where_a_shuffled_order_is_kept(self):
        kept = Pipeline(lambda: iter(range(10))).shuffle(5, seed=3).cache().batch(4).load()
        with pytest.warns(UserWarning, match=self.WORDS):
            stream(kept)


class TestFunctionsOfBatches:
    """The size that `batch` declares rules."""

    def three(self, kind, **said):
        rows = numbers(3) if kind == "indexed" else Pipeline(lambda: ({"n": n} for n in range(3)))
        return rows.batch(8, **said).map_batches(lambda columns: {"n": columns["n"] + 1})

    @pytest.mark.parametrize("kind", ["indexed", "stream"])
    def test_three_samples_of_eight(self, kind):
        with pytest.warns(UserWarning, match="this epoch is empty"):
            assert list(self.three(kind).load()) == []
        (padded,) = self.three(kind).load(last="pad")
        assert plain(padded) == {"n": [1, 2, 3, *[0] * 5], "mask": [True] * 3 + [False] * 5}
        (wrapped,) = self.three(kind).load(last="wrap")
        assert plain(wrapped) == {"n": [1, 2, 3, 1, 2, 3, 1, 2]}
        with pytest.raises(ShortEpoch, match="has 3 samples, not 8"):
            list(self.three(kind).load(last="error"))

    @pytest.mark.parametrize(("last", "many"), [("drop", 0), ("pad", 1), ("wrap", 1)])
    def test_their_number(self, last, many):
        assert len(self.three("indexed").load(last=last)) == many

    def test_epochs_of_different_sizes_have_feeds_of_one_shape(self):
        many = iter([7, 5, 2])
        plan = Pipeline(lambda: ({"n": n} for n in range(next(many)))).batch(4).map_batches(dict)
        loader = plan.load(last="pad")
        assert {feed["n"].shape for _ in range(3) for feed in loader} == {(4,)}

    def test_rows_that_a_function_adds_are_rows_and_samples_are_samples(self):
        twice = numbers(6).batch(4).map_batches(lambda columns: {"n": np.repeat(columns["n"], 2)})
        feeds = twice.load(last="pad").epoch(0)
        assert [len(feed["n"]) for feed in feeds] == [8, 8]
        feeds = twice.load(last="pad").epoch(0)
        assert [feeds.cursor["samples"] for _ in feeds] == [4, 6]

    def test_a_function_that_gives_other_numbers_of_rows_is_told(self):
        def some(columns):
            return {"n": columns["n"][columns["n"] != 5]}

        with pytest.raises(FeedMismatch, match="made 3 rows of 4 samples, and 4 before"):
            list(numbers(8).batch(4).map_batches(some).load())


class TestShortBatchesInside:
    """`batch` declares the size of all of them: a short one where it ends follows `last`."""

    @pytest.mark.parametrize(
        "make",
        [
            lambda: numbers().batch(4).epochs(2),
            lambda: numbers().batch(4).chain(numbers().batch(4)),
            lambda: numbers().batch(4).cache().epochs(2),
            lambda: batch(numbers(), 4).__class__(numbers(), 4),
            lambda: map_batches(dict, numbers().batch(4)),
        ],
        ids=["epochs", "chain", "cache", "batch", "map"],
    )
    @pytest.mark.parametrize("last", ["drop", "pad"])
    def test_a_cursor_goes_on_behind_it(self, make, last):
        loader = Pipeline(make()).load(last=last)
        whole = given_by(loader.epoch(0))
        feeds = loader.epoch(0)
        for done, _ in enumerate(feeds, 1):
            cursor = json.loads(json.dumps(feeds.cursor))
            assert given_by(loader.epoch(0, at=cursor)) == whole[done:]
        rounds = 1 + (len(whole) > 3)
        assert len(whole) == rounds * (2 if last == "drop" else 3)

    def test_is_an_error_where_that_was_said(self):
        with pytest.raises(ShortEpoch):
            list(numbers().batch(4).epochs(2).load(last="error"))


class TestResidentData:
    @pytest.mark.parametrize("said", [{"last": "pad"}, {"drop_last": False}])
    @pytest.mark.parametrize("where", [{}, {"sharding": SPLIT}, {"pmap": TWO}])
    def test_are_padded_as_streamed_ones_are(self, said, where):
        plan = numbers(10).shuffle(seed=1).batch(4)
        resident, streamed = (plan.load(**said, **where, resident=kind) for kind in (True, False))
        assert len(resident) == len(streamed) == 3
        for epoch in range(2):
            assert given_by(resident.epoch(epoch)) == given_by(streamed.epoch(epoch))
        cursors = []
        for loader in (resident, streamed):
            feeds = loader.epoch(0)
            cursors.append([(feeds.cursor["samples"], feeds.cursor["digest"]) for _ in feeds])
        assert cursors[0] == cursors[1]
        assert [samples for samples, _ in cursors[0]] == [4, 8, 10]

    def test_are_padded_where_batch_keeps(self):
        assert (
            mask_of(numbers().batch(4, drop_last=False).load(resident=True))[-1][2:] == [False] * 2
        )


class TestFunctions:
    def test_give_the_short_last_batch_under_a_mask(self):
        plan = numbers(10).shuffle(seed=1).batch(4).map_batches(lambda feed: {"n": feed["n"] + 1})
        for said in ({"last": "pad"}, {"drop_last": False}):
            data, batch_at = as_function(plan, **said)
            assert len(batch_at) == 3
            traced = [jax.jit(batch_at)(data, 1, step) for step in range(3)]
            assert given_by(traced) == given_by(plan.load(**said).epoch(1))

    def test_follow_the_other_words(self):
        plan = numbers(10).batch(4)
        data, batch_at = as_function(plan, last="wrap")
        assert plain(batch_at(data, 0, 2)) == {"n": [8, 9, 0, 1]}
        assert len(as_function(plan)[1]) == 2
        with pytest.raises(ShortEpoch, match="would have 2 samples, not 4"):
            as_function(plan, last="error")
        assert len(as_function(numbers(10).batch(4, drop_last=False))[1]) == 3


def test_the_sixth_argument_is_paddles():
    loader = DataLoader.from_generator(None, 2, True, True, False, False)  # noqa: FBT003  # its order
    assert given_by(loader.set_sample_generator(ten, 4, drop_last=False))[-1] == [8, 9]
    with pytest.raises(ValueError, match=r"use_multiprocess.*drop_last is given by its name"):
        DataLoader.from_generator(None, 2, True, True, False, True)  # noqa: FBT003  # likewise
