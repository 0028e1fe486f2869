"""Short batches of a pipeline: left out and told, padded, made up for, or an error."""

import json

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sized_batches import lists, ten
from steps import stream, told

from jreader import (
    DataLoader,
    FeedMismatch,
    Pipeline,
    ShortEpoch,
    arrays,
    as_function,
    batch,
    map_batches,
)

TWO = jax.devices()[:2]
SPLIT = NamedSharding(Mesh(np.array(TWO), ("data",)), PartitionSpec("data"))


def numbers(many=10):
    return Pipeline(arrays(n=np.arange(many)))


def mask_of(feeds):
    return [told(feed).get("mask") for feed in feeds]


class TestPipelines:
    @pytest.mark.filterwarnings("ignore:same-left-out")
    def test_drop_where_nothing_is_said_and_pad_where_batch_keeps(self):
        assert len(list(numbers().batch(4).load())) == len(numbers().batch(4).load()) == 2
        kept = numbers().batch(4, drop_last=False)
        assert mask_of(kept.load())[-1] == [True, True, False, False]
        assert len(kept.load()) == 3
        assert (
            mask_of(kept.map_batches(dict).prefetch(2).load(resident=False))[-1][2:] == [False] * 2
        )
        assert told([*kept.load(last="wrap")][-1]) == {"n": [8, 9, 0, 1]}
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

    @pytest.mark.filterwarnings("ignore:same-left-out")
    def test_a_short_last_one_follows_last(self):
        plan = Pipeline(lists(4, 4, 2))
        assert len(list(plan.load())) == 2
        assert told([*plan.load(last="pad")][-1]) == ([8, 9, 0, 0], [True, True, False, False])
        with pytest.raises(ShortEpoch):
            list(plan.load(last="error"))


class TestTheSameSamplesLeftOutOfEveryEpoch:
    """By default, on a plan that is not shuffled: told once, with their number."""

    WORDS = r"each epoch leaves out the same 2 samples: .* is not shuffled. load\(last='pad'\)"

    @pytest.mark.parametrize("resident", [False, True])
    def test_are_told_of_once(self, resident):
        loader = Pipeline(arrays(n=np.arange(10))).batch(4).load(resident=resident)
        with pytest.warns(UserWarning, match=self.WORDS) as warned:
            first = stream(loader)
        assert stream(loader) == first
        assert len(warned) == 1

    @pytest.mark.parametrize("resident", [False, True])
    def test_are_told_of_by_a_whole_epoch_alone(self, resident):
        """One that was resumed in its middle, with another batch size perhaps, tells of others."""
        plan = Pipeline(arrays(n=np.arange(10))).batch(4)
        feeds = plan.load(resident=resident).epoch(0)
        next(feeds)
        assert len(stream(plan.load(resident=resident).epoch(0, at=feeds.cursor))) == 1

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
        assert told(padded) == {"n": [1, 2, 3, *[0] * 5], "mask": [True] * 3 + [False] * 5}
        (wrapped,) = self.three(kind).load(last="wrap")
        assert told(wrapped) == {"n": [1, 2, 3, 1, 2, 3, 1, 2]}
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
        whole = stream(loader.epoch(0))
        feeds = loader.epoch(0)
        for done, _ in enumerate(feeds, 1):
            cursor = json.loads(json.dumps(feeds.cursor))
            assert stream(loader.epoch(0, at=cursor)) == whole[done:]
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
            assert stream(resident.epoch(epoch)) == stream(streamed.epoch(epoch))
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
            assert stream(traced) == stream(plan.load(**said).epoch(1))

    def test_follow_the_other_words(self):
        plan = numbers(10).batch(4)
        data, batch_at = as_function(plan, last="wrap")
        assert told(batch_at(data, 0, 2)) == {"n": [8, 9, 0, 1]}
        assert len(as_function(plan)[1]) == 2
        with pytest.raises(ShortEpoch, match="would have 2 samples, not 4"):
            as_function(plan, last="error")
        assert len(as_function(numbers(10).batch(4, drop_last=False))[1]) == 3
