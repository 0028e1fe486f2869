"""Loaders of streams in lanes: how epochs end, and where they go on."""

import json
import warnings

import jax
import numpy as np
import pytest
from graphs import number
from hypothesis import given
from hypothesis import strategies as st
from widths import examples

from jreader import NotResumable, Pipeline, ReaderError, ShortEpoch, source

pytestmark = pytest.mark.filterwarnings("ignore:.* left none of the samples")
MAY_BE_EMPTY = pytest.mark.filterwarnings("ignore:.* ended before its first step")


def samples(file):
    for place in range(int(file) % 7):
        yield {"file": int(file), "place": place}


def kept(sample):
    return number((sample["file"], sample["place"])) % 4 != 0


def plan(files=(3, 5, 2, 4, 1, 6, 5, 5), lanes=2, size=4, **options):
    return Pipeline(source(list(files))).read(samples, lanes=lanes).batch(size, **options)


def fed(loader, at=None, epoch=0):
    """The feeds of an epoch, as lists, and the cursor after each."""
    found = []
    with loader.epoch(epoch, at=at) as feeds:
        for feed in feeds:
            values = {name: np.asarray(column).tolist() for name, column in feed.items()}
            found.append((values, json.loads(json.dumps(feeds.cursor))))
    return found


lane_plans = st.builds(
    lambda lanes, each, more, seed, window: (
        lanes,
        lanes * each,
        Pipeline(source(list(range(20, 20 + lanes + more))))
        .shuffle(seed=seed)
        .read(samples, lanes=lanes)
        .filter(kept)
        .shuffle(window, seed=seed),
    ),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 9),
    st.integers(0, 3),
    st.integers(2, 5),
)
ENDS = [{"drop_last": True}, {"last": "pad"}, {"last": "wrap"}, {"last": "pad", "chunk": 2}]


def loaded(stream, size, last=None, chunk=None, **options):
    loader = stream.batch(size).load(sharding="host", last=last, **options)
    return loader.chunk(chunk) if chunk else loader


@MAY_BE_EMPTY
@examples(100)
@given(lane_plans, st.sampled_from(ENDS), st.integers(0, 2))
def test_every_end_goes_on_at_every_step(made, ends, epoch):
    _, size, stream = made
    try:
        whole = fed(loaded(stream, size, **ends), epoch=epoch)
    except ReaderError:  # an empty lane cannot wrap
        assert ends["last"] == "wrap"
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step, (_, cursor) in enumerate(whole, 1):
            rest = fed(loaded(stream, size, **ends), at=cursor, epoch=epoch)
            assert rest == whole[step:]


@examples(100)
@given(lane_plans)
def test_padding_gives_every_sample_once_and_lanes_keep_their_rows(made):
    lanes, size, stream = made
    rows = [[] for _ in range(size)]
    for feed, _ in fed(loaded(stream, size, last="pad")):
        for row in range(size):
            if feed["mask"][row]:
                rows[row].append((feed["file"][row], feed["place"][row]))
    dealt = [rows[lane * size // lanes : (lane + 1) * size // lanes] for lane in range(lanes)]
    everything = sorted((sample["file"], sample["place"]) for sample in stream)
    assert sorted(sample for lane in dealt for row in lane for sample in row) == everything
    file_lane = {file: k for k, lane in enumerate(dealt) for row in lane for file, _ in row}
    for k, lane in enumerate(dealt):
        assert all(file_lane[file] == k for row in lane for file, _ in row)


@MAY_BE_EMPTY
@examples(50)
@given(lane_plans)
def test_dropping_is_the_beginning_of_padding_and_of_wrapping(made):
    _, size, stream = made
    names = ("file", "place")
    dropped = [feed for feed, _ in fed(loaded(stream, size, drop_last=True))]
    padded = [feed for feed, _ in fed(loaded(stream, size, last="pad"))]
    assert dropped == [{name: feed[name] for name in names} for feed in padded[: len(dropped)]]
    assert not any(all(feed["mask"]) for feed in padded[len(dropped) :])
    try:
        wrapped = [feed for feed, _ in fed(loaded(stream, size, last="wrap"))]
    except ReaderError:
        return
    assert len(wrapped) == len(padded)
    for one, other in zip(wrapped, padded, strict=True):
        mask = np.array(other["mask"])
        for name in names:
            assert np.array(one[name])[mask].tolist() == np.array(other[name])[mask].tolist()


class TestTheEnd:
    def test_it_is_told_that_an_epoch_ended_with_the_first_lane_and_only_once(self):
        loader = plan().load(sharding="host")
        with pytest.warns(UserWarning, match=r"epoch 0 ended after 5 steps, since a lane had too"):
            assert len(list(loader)) == 5
        with warnings.catch_warnings(action="error"):
            assert len(list(loader)) == 5

    @pytest.mark.parametrize("options", [{"drop_last": True}, {"last": "drop"}])
    def test_it_is_not_told_where_it_was_asked_for(self, options):
        with warnings.catch_warnings(action="error"):
            assert len(list(plan().load(sharding="host", **options))) == 5

    def test_it_is_not_told_where_nothing_is_left_out(self):
        with warnings.catch_warnings(action="error"):
            assert len(list(plan([4, 4, 2, 2]).load(sharding="host"))) == 3

    def test_a_lane_that_a_filter_has_emptied_ends_the_epoch_at_once_and_that_is_told(self):
        emptied = Pipeline(source([3, 4])).read(samples, lanes=2)
        emptied = emptied.filter(lambda sample: sample["file"] == 4).batch(2)
        for options in ({}, {"drop_last": True}):
            with pytest.warns(UserWarning, match="epoch 0 ended before its first step"):
                assert list(emptied.load(sharding="host", **options)) == []
        assert len(list(emptied.load(sharding="host", last="pad"))) == 4
        with pytest.raises(ReaderError, match=r"no samples, so last='wrap' cannot fill"):
            list(emptied.load(sharding="host", last="wrap"))

    def test_uneven_lanes_can_be_an_error(self):
        assert len(list(plan([4, 4]).load(sharding="host", last="error"))) == 2
        with pytest.raises(ShortEpoch, match="the last step of this epoch has 1 samples, not 4"):
            list(plan([4, 5]).load(sharding="host", last="error"))


class TestStepsPerEpoch:
    def test_they_end_an_epoch_and_the_next_one_begins_anew(self):
        loader = plan().load(sharding="host", steps_per_epoch=1)
        first, second = (fed(loader, epoch=epoch) for epoch in range(2))
        assert len(first) == len(second) == 1
        assert first[0][0] == second[0][0]

    def test_too_many_are_an_error_that_says_how_many_there_are(self):
        loader = plan().load(sharding="host", steps_per_epoch=9)
        with pytest.raises(ShortEpoch, match=r"has 5 full steps until the first of its 2 lanes"):
            list(loader)

    def test_wrapping_fills_any_number(self):
        assert len(list(plan().load(sharding="host", last="wrap", steps_per_epoch=30))) == 30

    def test_epochs_in_lanes_go_on_where_the_last_ended(self):
        endless = Pipeline(source([3, 4])).read(samples, lanes=2).epochs().batch(2)
        loader = endless.load(sharding="host", steps_per_epoch=5)
        feeds = [feed["place"].tolist() for _ in range(2) for feed in loader]
        assert feeds == [[n % 3, n % 4] for n in range(10)]


class TestCursors:
    def test_another_number_of_lanes_is_refused(self):
        ((_, cursor), *_) = fed(plan().load(sharding="host", last="pad"))
        with pytest.raises(NotResumable, match="lanes=4"):
            fed(plan(lanes=4).load(sharding="host", last="pad"), at=cursor)

    def test_another_batch_size_goes_on_with_each_lane_where_it_was(self):
        (_, (_, cursor), *_) = fed(plan().load(sharding="host", last="pad"))
        rest = fed(plan(size=8).load(sharding="host", last="pad"), at=cursor)
        one = [feed for feed, _ in fed(plan().load(sharding="host", last="pad"))][2:]
        for lane in range(2):
            ours = [x for feed, _ in rest for x in _rows(feed, lane, 4)]
            assert ours == [x for feed in one for x in _rows(feed, lane, 2)]


def _rows(feed, lane, each):
    rows = slice(lane * each, (lane + 1) * each)
    columns = zip(feed["file"][rows], feed["place"][rows], feed["mask"][rows], strict=True)
    return [(file, place) for file, place, there in columns if there]


def test_lanes_go_to_the_devices_that_have_their_rows():
    mesh = jax.make_mesh((4,), ("data",))
    for feed in plan(lanes=4, size=8).load(sharding=mesh, last="pad"):
        for shard in feed["file"].addressable_shards:
            assert len(shard.data) == 2


def test_random_stages_number_rows_also_where_some_are_empty():
    def noted(feed, keys):
        return {**feed, "keys": jax.random.key_data(keys)}

    loader = plan(lanes=4, size=4).load(last="pad").on_device(noted, rng="sample", seed=0)
    keys = np.concatenate([np.asarray(feed["keys"]) for feed in loader])
    assert len(np.unique(keys, axis=0)) == len(keys)
