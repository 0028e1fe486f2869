"""What Grain's tests check of what has a counterpart here."""

from __future__ import annotations

import json
import warnings
from itertools import chain, combinations, product

import numpy as np
import pytest

from jreader import (
    FeedMismatch,
    Pipeline,
    ReaderError,
    arrays,
    batch,
    compose,
    epochs,
    firstn,
    shard,
    shuffle,
)
from jreader import start as begin
from jreader.datasets import SequenceSampler, collate

differs = pytest.mark.differs
WINDOW = 10


def numbers(count, first=0):
    return arrays(np.arange(first, first + count))


def plain(reader):
    return [np.asarray(sample).tolist() for sample in reader()]


def epochs_of(reader, count=2):
    return np.reshape(plain(epochs(reader, count)), (count, -1)).tolist()


class TestShuffle:
    def test_each_epoch_has_every_sample_in_another_order(self):
        first, second = epochs_of(shuffle(numbers(400), seed=42))
        assert sorted(first) == sorted(second) == [*range(400)]
        assert first != second

    def test_a_seed_deals_again_and_another_otherwise(self):
        first, again, other = (plain(shuffle(numbers(400), seed=n)) for n in (42, 42, 43))
        assert first == again != other

    @differs
    @pytest.mark.parametrize("seed", [None, 2**32, 2**64 + 1])
    def test_a_seed_may_be_large_and_none_draws_one(self, seed):
        assert sorted(plain(shuffle(numbers(40), seed=seed))) == [*range(40)]

    def test_a_negative_seed_is_refused(self):
        with pytest.raises(ValueError, match="seed"):
            shuffle(numbers(40), seed=-1)

    @pytest.mark.parametrize("kind", ["indexed", "stream"])
    def test_a_window_keeps_what_it_holds_and_each_is_dealt_otherwise(self, kind):
        source = numbers(400) if kind == "indexed" else lambda: iter(range(400))
        for dealt in epochs_of(shuffle(source, WINDOW, seed=42)):
            windows = np.reshape(dealt, (-1, WINDOW))
            assert np.sort(windows).ravel().tolist() == [*range(400)]
            assert len({tuple(window % WINDOW) for window in windows}) > 30

    @pytest.mark.parametrize("window", [4, None])
    def test_a_pass_goes_on_from_each_of_its_states(self, window):
        reader = shuffle(numbers(30), window, seed=42)
        running, states, seen = begin(reader), [], []
        for _ in range(30):
            states.append(json.dumps(running.position()))
            seen.append(int(next(running.items)))
        for done, state in enumerate(states):
            again = begin(reader, json.loads(state))
            assert json.dumps(again.position()) == state
            assert [int(n) for n in again.items] == seen[done:]

    def test_the_end_stays_the_end(self):
        items = iter(shuffle(numbers(30), WINDOW, seed=42)())
        assert len(list(items)) == 30
        assert [next(items, "over") for _ in range(3)] == ["over"] * 3

    def test_a_slice_is_shuffled_as_what_it_holds(self):
        dealt = Pipeline(arrays(list("abcdef"))).skip(1).firstn(4).shuffle(seed=1)
        assert sorted(map(str, dealt)) == list("bcde")
        assert sorted(map(str, dealt.shuffle(seed=10))) == list("bcde")


class TestBatch:
    @pytest.mark.parametrize(
        ("size", "drop_last", "batches"),
        [
            (2, False, [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]),
            (3, True, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
            (3, False, [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]),
        ],
    )
    @pytest.mark.parametrize("kind", ["indexed", "stream"])
    def test_a_short_end_is_kept_or_dropped_and_counted(self, kind, size, drop_last, batches):
        source = numbers(10) if kind == "indexed" else lambda: iter(range(10))
        made = batch(source, size, drop_last)
        assert [[int(n) for n in samples] for samples in made()] == batches
        if kind == "indexed":
            assert len(made) == len(batches)

    @pytest.mark.parametrize(("drop_last", "sizes"), [(True, [3] * 6), (False, [3, 3, 3, 1] * 2)])
    def test_epochs_of_batches_each_have_a_short_end(self, drop_last, sizes):
        repeated = epochs(batch(numbers(10), 3, drop_last), 2)
        assert [len(samples) for samples in repeated()] == sizes
        assert len(repeated) == len(sizes)

    @pytest.mark.parametrize(("drop_last", "sizes"), [(True, [3] * 6), (False, [3] * 6 + [2])])
    def test_batches_of_epochs_have_one_in_the_end(self, drop_last, sizes):
        made = batch(epochs(numbers(10), 2), 3, drop_last)
        batches = [[int(n) for n in samples] for samples in made()]
        assert [len(samples) for samples in batches] == sizes
        assert batches[3] == [9, 0, 1]

    def test_one_sample_is_a_batch_of_one(self):
        assert collate([np.array([1, 2, 3])]).shape == (1, 3)

    @pytest.mark.parametrize(
        "samples",
        [
            [],
            [{"a": np.arange(3)}, {"a": np.arange(2)}],
            [{"a": np.arange(3)}, {"b": np.array(0.5)}],
            [{"a": 1}, {"b": 2}, {"c": True}],
        ],
        ids=["nothing", "shapes", "keys", "three"],
    )
    def test_samples_that_differ_are_refused(self, samples):
        with pytest.raises(FeedMismatch):
            collate(samples)

    @differs
    def test_a_padded_end_carries_a_mask(self):
        loader = Pipeline(arrays(x=np.arange(1, 10))).batch(4).load(last="pad")
        *_, last = loader
        assert (last["x"].tolist(), last["mask"].tolist()) == (
            [9, 0, 0, 0],
            [True, False, False, False],
        )

    @differs
    def test_what_a_filter_left_is_batched(self):
        evens = Pipeline(numbers(10)).filter(lambda n: n % 2 == 0).batch(3)
        assert [[int(n) for n in samples] for samples in evens] == [[0, 2, 4], [6, 8]]


class TestZip:
    @pytest.mark.parametrize(
        "firsts",
        [*chain.from_iterable(combinations(range(3), size) for size in (1, 2, 3))],
        ids=str,
    )
    def test_samples_lie_side_by_side(self, firsts):
        joined = compose(*(numbers(20, first) for first in firsts))
        assert len(joined) == 20
        assert [list(map(int, row)) for row in joined()] == [
            [n + first for first in firsts] for n in range(20)
        ]

    @pytest.mark.parametrize("done", [0, 1, 5, 8])
    def test_a_pass_goes_on_where_it_was(self, done):
        joined = compose(
            *(lambda first=first: iter(range(first, first + 20)) for first in range(3))
        )
        running = begin(joined)
        for _ in range(done):
            next(running.items)
        rest = list(begin(joined, json.loads(json.dumps(running.position()))).items)
        assert rest == [(n, n + 1, n + 2) for n in range(done, 20)]


class TestSlices:
    @pytest.mark.parametrize("step", [1, 2, 3])
    def test_a_pipeline_is_sliced_as_a_list_is(self, step):
        pipeline, whole = Pipeline(numbers(20)), [*range(20)]
        for first, last in product(range(-8, 8), range(-9, 8)):
            part = pipeline[first:last:step]
            assert len(part) == len(whole[first:last:step])
            assert [int(n) for n in part] == whole[first:last:step]

    @differs
    def test_backwards_it_is_reversed_and_not_sliced(self):
        pipeline = Pipeline(numbers(5))
        with pytest.raises(ValueError, match=r"reversed\(pipeline\)"):
            pipeline[::-1]
        assert [int(n) for n in reversed(pipeline)] == [4, 3, 2, 1, 0]

    def test_a_slice_of_a_slice(self):
        part = Pipeline(numbers(20))[2:18:2][1:6:2]
        assert [int(n) for n in part] == [4, 8, 12]

    @differs
    @pytest.mark.parametrize("index", [5, -6])
    def test_beyond_the_end_there_is_no_next_epoch(self, index):
        pipeline = Pipeline(numbers(5))
        assert [int(pipeline[n]) for n in (0, 4, -1)] == [0, 4, 4]
        with pytest.raises(IndexError):
            pipeline[index]


class TestSamplers:
    @pytest.mark.parametrize(
        ("n", "shares"), [(4, [[0, 2], [1, 3]]), (8, [[0, 3, 6], [1, 4, 7], [2, 5]])]
    )
    def test_shards_take_turns(self, n, shares):
        for index, share in enumerate(shares):
            assert plain(shard(numbers(n), len(shares), index)) == share

    def test_as_many_for_each_are_had_by_cutting_the_rest_off(self):
        even = [shard(firstn(numbers(8), 8 // 3 * 3), 3, index) for index in range(3)]
        assert [len(plain(share)) for share in even] == [2, 2, 2]

    @differs
    def test_no_samples_are_an_empty_epoch(self):
        assert list(SequenceSampler(range(0))) == []


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
class TestTheRealOne:
    @pytest.fixture(scope="class")
    def ten(self):
        return pytest.importorskip("grain").MapDataset.range(10)

    @pytest.mark.parametrize("drop", [False, True])
    @pytest.mark.parametrize("size", [1, 3, 10, 11])
    def test_batches_and_epochs_in_either_order_are_theirs(self, ten, size, drop):
        theirs = [
            ten.batch(size, drop_remainder=drop).repeat(2),
            ten.repeat(2).batch(size, drop_remainder=drop),
        ]
        ours = [
            epochs(batch(numbers(10), size, drop), 2),
            batch(epochs(numbers(10), 2), size, drop),
        ]
        for one, other in zip(ours, theirs, strict=True):
            assert len(one) == len(other)
            assert [[int(n) for n in samples] for samples in one()] == [
                samples.tolist() for samples in other
            ]

    def test_slices_are_theirs(self, ten):
        for part in (
            slice(2, 8),
            slice(-3, None),
            slice(None, None, 3),
            slice(7, 2),
            slice(1, 99, 4),
        ):
            assert [int(n) for n in Pipeline(numbers(10))[part]] == list(ten[part])

    @pytest.mark.parametrize("begin", ["epoch", "steps", "iter"])
    def test_feeds_pass_their_test_of_checkpoints(self, begin):
        grain = pytest.importorskip("grain")
        loader = Pipeline(numbers(10)).shuffle(seed=1).batch(2).load(sharding="host")

        class Feeds:
            def __iter__(self):
                passes = {"epoch": lambda: loader.epoch(2), "steps": lambda: loader.steps(12)}
                return passes.get(begin, loader.__iter__)()

        grain.experimental.assert_equal_output_after_checkpoint(Feeds())

    def test_their_handler_saves_feeds_with_orbax_and_restores_them(self, tmp_path):
        grain, ocp = pytest.importorskip("grain"), pytest.importorskip("orbax.checkpoint")
        loader = Pipeline(numbers(10)).shuffle(seed=1).batch(2).load()
        feeds, other = loader.steps(12), loader.steps(12)
        done = [next(feeds).tolist() for _ in range(7)]
        next(other)
        with ocp.CheckpointManager(tmp_path) as manager:
            save = grain.checkpoint.CheckpointSave(feeds)
            manager.save(7, args=ocp.args.Composite(data=save))
            manager.wait_until_finished()
            restore = grain.checkpoint.CheckpointRestore(other)
            restored = manager.restore(7, args=ocp.args.Composite(data=restore))
        assert restored["data"] is other
        rest = [feed.tolist() for feed in other]
        assert rest == [feed.tolist() for feed in feeds]
        assert sorted(np.ravel((done + rest)[5:10]).tolist()) == [*range(10)]

    def test_each_epoch_of_a_map_dataset_is_theirs(self, ten):
        dealt = ten.seed(3).shuffle().random_map(lambda n, rng: n + 10 * int(rng.integers(100)))
        every = [dealt[n] for n in range(40)]
        assert list(Pipeline(dealt).epochs(4)) == every == list(dealt.repeat(4))
        loader = Pipeline(dealt).batch(5).load()
        assert [n for feed in loader.steps(8) for n in feed.tolist()] == every
        again = json.loads(json.dumps(loader.epoch(2, start=1).cursor))
        assert [feed.tolist() for feed in loader.epoch(2, at=again)] == [every[25:30]]
        shares = [list(Pipeline(dealt).shuffle(seed=1).shard(2, index)) for index in range(2)]
        assert sorted(shares[0] + shares[1]) == sorted(every[:10])

    @pytest.mark.parametrize("streamed", [False, True])
    def test_a_cursor_knows_what_a_plan_of_theirs_is_made_of(self, ten, streamed):
        def loader(seed=3, data=ten, add=1):
            plan = data.seed(seed).shuffle().map(lambda n: n + add)
            return Pipeline(plan.to_iter_dataset() if streamed else plan).batch(2).load()

        feeds = loader().epoch(0)
        next(feeds)
        cursor, rest = feeds.cursor, [feed.tolist() for feed in feeds]
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            assert [feed.tolist() for feed in loader().epoch(0, at=cursor)] == rest
        for changed in ({"seed": 4}, {"add": 2}, {"data": ten.map(abs)}):
            with pytest.warns(UserWarning, match="data of this pipeline are not what they were"):
                loader(**changed).epoch(0, at=cursor)

    def test_what_their_filter_drops_is_an_error_by_index_and_left_out_of_a_stream(self, ten):
        odd = ten.filter(lambda n: n % 2)
        with pytest.raises(ReaderError, match="None for row 0 of a FilterMapDataset"):
            list(Pipeline(odd))
        assert list(Pipeline(odd.to_iter_dataset())) == [1, 3, 5, 7, 9]

    @pytest.mark.parametrize("kind", ["filtered", "window", "loader"])
    def test_their_streams_resume_by_their_own_state(self, ten, kind):
        grain = pytest.importorskip("grain")

        def made():
            if kind == "loader":
                sampler = grain.samplers.IndexSampler(
                    10,
                    shard_options=grain.sharding.NoSharding(),
                    shuffle=True,
                    num_epochs=2,
                    seed=3,
                )
                return grain.DataLoader(data_source=ten, sampler=sampler, operations=[])
            stream = ten.repeat(2).to_iter_dataset().filter(lambda n: n != 4)
            if kind == "filtered":
                return stream
            return grain.experimental.WindowShuffleIterDataset(stream, window_size=5, seed=1)

        feeds = Pipeline(made()).batch(3).load(last="keep").epoch(0)
        cursors, seen = [], []
        for feed in feeds:
            cursors.append(json.loads(json.dumps(feeds.cursor)))
            seen.append(feed.tolist())
        assert sum(map(len, seen)) == (20 if kind == "loader" else 18)
        for done, cursor in enumerate(cursors, 1):
            loader = Pipeline(made()).batch(3).load(last="keep")
            assert [feed.tolist() for feed in loader.epoch(0, at=cursor)] == seen[done:]

    def test_their_transforms_give_what_they_give_there(self, ten):
        transforms = pytest.importorskip("grain").transforms

        class Triple(transforms.Map):
            def map(self, element):
                return element * 3

        class Even(transforms.Filter):
            def filter(self, element):
                return element % 2 == 0

        class Numbered(transforms.MapWithIndex):
            def map_with_index(self, index, element):
                return {"index": index, "number": element}

        chosen = [Triple(), Even(), Numbered(), transforms.Batch(2, drop_remainder=True)]
        theirs, ours = ten.to_iter_dataset(), Pipeline(numbers(10))
        for transform in chosen:
            theirs, ours = theirs.apply(transform), ours.pipe(transform)
        feeds = list(ours.load(sharding="host"))
        for feed, other in zip(feeds, theirs, strict=True):
            np.testing.assert_equal(feed, other)
        assert len(feeds) == 2

    def test_a_plan_is_a_source_of_theirs_also_for_worker_processes(self, ten):
        grain = pytest.importorskip("grain")
        plan = Pipeline(numbers(10)).shuffle(seed=1)
        assert isinstance(plan, grain.sources.RandomAccessDataSource)
        inside = grain.MapDataset.source(plan)
        assert (len(inside), list(inside)) == (len(ten), list(plan))
        assert repr(Pipeline(numbers(10)).shuffle(seed=1)) == repr(plan)
        pytest.importorskip("absl.flags").FLAGS.mark_as_parsed()  # their workers ask for one
        loaded = grain.DataLoader(
            data_source=plan,
            sampler=grain.samplers.SequentialSampler(10),
            operations=[grain.transforms.Batch(5)],
            worker_count=1,
        )
        assert [n for batch in loaded for n in batch.tolist()] == list(plan)
