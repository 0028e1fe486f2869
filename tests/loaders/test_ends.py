"""Samples that fill no step: left out, padded, made up for by the first ones, or an error."""

import json
import math
from dataclasses import dataclass
from itertools import count, islice

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from widths import examples

from jreader import DataLoader, Pipeline, ShortEpoch, arrays, start
from jreader.readers import Node, Pass, indexed
from jreader.readers.joined_columns import ENDLESS
from jreader.transforms import exactly

ENDS = ["drop", "pad", "wrap", "error"]


def numbers(many, kind="indexed"):
    """The same numbers, from arrays, a function that knows how many there are, or a stream."""
    indexed = Pipeline(arrays(n=np.arange(many))).shuffle(seed=2)
    order = [int(sample["n"]) for sample in indexed]

    class Known:
        def __call__(self):
            return ({"n": number} for number in order)

        def __len__(self):
            return many

    return {"indexed": indexed, "known": Pipeline(Known()), "stream": Pipeline(Known().__call__)}[
        kind
    ]


def expected(order, size, last, steps=None):
    """What an epoch is by its definition; None for an error."""
    full = [order[at : at + size] for at in range(0, len(order), size)]
    short = bool(full) and len(full[-1]) < size
    if steps is not None and len(full) - (short and last != "pad") < steps and last != "wrap":
        return None
    if last == "wrap" and order:
        wanted = steps or len(full)
        again = [order[place % len(order)] for place in range(wanted * size)]
        return [again[at : at + size] for at in range(0, len(again), size)]
    if steps is not None:
        return full[:steps] if order else None
    if short and last == "error":
        return None
    return full[:-1] if short and last == "drop" else full


def given_by(feeds):
    """The numbers of feeds, without those of padding."""
    return [feed["n"][feed.get("mask", slice(None))].tolist() for feed in feeds]


@pytest.mark.filterwarnings("ignore:this epoch is empty")
@examples(150)
@given(
    st.integers(0, 20),
    st.integers(1, 6),
    st.sampled_from(ENDS),
    st.sampled_from([None, None, 1, 3, 5]),
    st.sampled_from(["indexed", "known", "stream"]),
)
@pytest.mark.filterwarnings("ignore:epoch . is empty")
def test_an_epoch_ends_as_was_asked_from_every_place_on(many, size, last, steps, kind):
    order = [int(sample["n"]) for sample in numbers(many)]
    loader = numbers(many, kind).batch(size).load(sharding="host", last=last, steps_per_epoch=steps)
    wanted = expected(order, size, last, steps)
    if wanted is None:
        with pytest.raises(ShortEpoch):
            list(loader.epoch(0))
        return
    feeds = loader.epoch(0)
    cursors = [feeds.cursor, *(feeds.cursor for _ in feeds)]
    assert given_by(loader.epoch(0)) == wanted
    if kind != "stream" or steps:
        assert len(loader) == len(wanted)
    for done, cursor in enumerate(cursors[: len(wanted) + 1]):
        rest = loader.epoch(0, at=json.loads(json.dumps(cursor)))
        assert given_by(rest) == wanted[done:]


@pytest.mark.parametrize("kind", ["indexed", "known", "stream"])
class TestAnError:
    def test_comes_before_the_first_step_where_the_length_is_known(self, kind):
        loader = numbers(10, kind).batch(4).load(sharding="host", last="error", capacity=0)
        seen = []
        with pytest.raises(ShortEpoch, match=r"has 2 samples, not 4.*'pad'.*'wrap'"):
            seen.extend(loader)
        assert len(seen) == (2 if kind == "stream" else 0)

    def test_is_none_where_steps_are_whole(self, kind):
        loader = numbers(8, kind).batch(4).load(sharding="host", last="error")
        assert len(list(loader)) == 2
        assert kind == "stream" or len(loader) == 2

    def test_says_how_many_there_are_and_how_many_are_needed(self, kind):
        loader = numbers(10, kind).batch(4).load(sharding="host", steps_per_epoch=3, capacity=0)
        seen = []
        with pytest.raises(ShortEpoch, match=r"ended after 10, .* needs 12: 3 st.*'wrap'"):
            seen.extend(loader)
        assert len(seen) == (2 if kind == "stream" else 0)

    def test_counts_all_batches_of_a_step(self, kind):
        loader = numbers(30, kind).batch(5).load(last="error", capacity=0).chunk(4)
        seen = []
        with pytest.raises(ShortEpoch, match=r"has 10 samples, not 20"):
            seen.extend(loader)
        assert len(seen) == (kind == "stream")

    def test_is_none_where_what_is_left_fills_steps_of_another_size(self, kind):
        feeds = iter(numbers(10, kind).batch(2).load(sharding="host"))
        next(feeds)
        loader = numbers(10, kind).batch(4).load(sharding="host", last="error")
        assert [len(feed) for feed in given_by(loader.epoch(0, at=feeds.cursor))] == [4, 4]

    def test_comes_where_batch_would_have_dropped(self, kind):
        loader = DataLoader.from_generator(last="error")
        loader.set_sample_generator(numbers(10, kind), batch_size=4)
        with pytest.raises(ShortEpoch):
            list(loader)


class TestWrapping:
    def test_fills_up_devices_and_chunks(self):
        plan = numbers(10)
        order = [int(sample["n"]) for sample in plan]
        pmap = list(plan.batch(4).load(pmap=jax.devices()[:2], last="wrap"))
        assert [feed["n"].tolist() for feed in pmap][-1] == [order[8:], order[:2]]
        chunks = list(plan.batch(4).load(last="wrap").chunk(2))
        assert [feed["n"].shape for feed in chunks] == [(2, 4), (2, 4)]
        assert chunks[-1]["n"].ravel().tolist() == [*order[8:], *order[:6]]
        beside = DataLoader.from_generator(last="wrap")
        beside.set_sample_generator(plan, 4, places=jax.devices()[:2])
        assert [feed["n"].ravel().tolist() for feed in beside][-1] == [*order[8:], *order[:6]]

    def test_goes_round_as_often_as_it_takes(self):
        loader = numbers(3).batch(8).load(sharding="host", last="wrap")
        order = [int(sample["n"]) for sample in numbers(3)]
        assert given_by(loader) == [(order * 3)[:8]]

    def test_tells_which_samples_a_step_sees(self):
        loader = numbers(10).batch(4).load(sharding="host", last="wrap")
        for step, feed in enumerate(loader):
            assert loader.samples(step).rows["n"].tolist() == feed["n"].tolist()

    def test_is_there_for_resident_data_too(self):
        streamed = numbers(10).batch(4).load(last="wrap")
        resident = numbers(10).batch(4).load(last="wrap", resident=True)
        for epoch in range(2):
            pairs = zip(streamed.epoch(epoch), resident.epoch(epoch), strict=True)
            assert all(one["n"].tolist() == other["n"].tolist() for one, other in pairs)

    @pytest.mark.parametrize("ends", [{"last": "error"}, {"steps_per_epoch": 3}])
    def test_is_not_what_resident_data_are_dropped_for(self, ends):
        with pytest.raises(ShortEpoch):
            numbers(10).batch(4).load(resident=True, **ends)
        with pytest.raises(ShortEpoch):
            numbers(10).batch(4).load(**ends).samples(0)

    def test_keeps_what_is_done_to_whole_batches(self):
        doubled = numbers(5).batch(4).map_batches(lambda columns: {"n": columns["n"] * 2})
        plain = numbers(5).batch(4).load(sharding="host", last="wrap")
        loader = doubled.prefetch(2).load(sharding="host", last="wrap")
        assert [[n // 2 for n in feed] for feed in given_by(loader)] == given_by(plain)

    def test_is_refused_where_no_sample_can_be_added_to_a_batch(self):
        loader = DataLoader.from_generator(last="wrap")
        loader.set_batch_generator(lambda: [np.zeros(4)])
        with pytest.raises(ValueError, match=r"last='wrap' fills up .*jreader\.batch"):
            list(loader)


class TestRounds:
    def test_are_closed_one_by_one(self):
        closed = []

        @dataclass(frozen=True, eq=False, repr=False)
        class rounds(Node):
            def start(self, at):
                number = len(closed)
                return Pass(iter("abc"), lambda: None, lambda: closed.append(number))

        up = start(exactly(rounds(), 4, steps=2))
        assert [next(up.items) for _ in range(4)] == list("abca")
        assert closed == [0]
        up.close()
        assert closed == [0, 1]

    def test_have_the_length_of_their_steps(self):
        assert len(exactly(lambda: "abc", 2, steps=3)) == 6
        assert indexed(exactly(numbers(4).epochs(), 3)).length == ENDLESS

    def test_of_batches_are_batches(self):
        kept = numbers(10).batch(4).filter(bool).load(sharding="host", steps_per_epoch=2)
        assert kept._repr_html_().count("2 batches") == 1


@pytest.mark.filterwarnings("ignore:this epoch is empty")
@examples(150)
@given(
    st.integers(1, 20),
    st.lists(st.integers(1, 6), min_size=3, max_size=3),
    st.sampled_from(["drop", "wrap"]),
    st.sampled_from([None, 4]),
    st.sampled_from(["indexed", "stream"]),
    st.data(),
)
def test_another_batch_size_goes_on_at_the_same_sample(many, sizes, last, steps, kind, data):
    """In the middle of an epoch: what is left is dealt in steps of the new size, as was asked."""
    order = [int(sample["n"]) for sample in numbers(many)]
    if steps and last == "drop" and many < steps * max(sizes):
        return
    done, stepped, cursor = 0, 0, None
    for size in sizes:
        plan = numbers(many, kind).batch(size)
        loader = plan.load(sharding="host", last=last, steps_per_epoch=steps)
        feeds = loader.epoch(0, at=cursor)
        left = steps - stepped if steps else max(many - done, 0) / size
        left = int(left) if last == "drop" else math.ceil(left)
        taken = data.draw(st.integers(0, left))
        for feed in islice(feeds, taken):
            places = range(done, done + size)
            assert feed["n"].tolist() == [order[place % many] for place in places]
            if kind == "indexed":
                assert loader.samples(feeds.step - 1).rows["n"].tolist() == feed["n"].tolist()
            done, stepped = done + size, stepped + 1
        cursor = json.loads(json.dumps(feeds.cursor))
        if taken == left:
            assert list(feeds) == []


class TestStepsOfAnEpoch:
    def test_cut_a_stream_without_an_end(self):
        endless = Pipeline(lambda: ({"n": number} for number in count())).batch(3)
        loader = endless.load(sharding="host", steps_per_epoch=2)
        assert len(loader) == 2
        assert given_by(loader.epoch(0)) == given_by(loader.epoch(0)) == [[0, 1, 2], [3, 4, 5]]
        assert [feed["n"].shape for feed in endless.load(steps_per_epoch=2).chunk(2)] == [
            (2, 3)
        ] * 2

    def test_deal_each_epoch_anew(self):
        loader = numbers(40).batch(4).load(sharding="host", steps_per_epoch=3)
        plain = numbers(40).batch(4).load(sharding="host")
        for epoch in range(3):
            assert given_by(loader.epoch(epoch)) == given_by(islice(plain.epoch(epoch), 3))

    def test_count_batches_whose_samples_nobody_knows(self):
        def batches():
            for number in range(4):
                yield {"n": np.full(2 if number < 3 else 1, number)}

        loader = DataLoader.from_generator(steps_per_epoch=3, capacity=0)
        loader.set_batch_generator(batches)
        assert given_by(loader) == [[0, 0], [1, 1], [2, 2]]
        loader = DataLoader.from_generator(steps_per_epoch=4, capacity=0)
        assert given_by(loader.set_batch_generator(batches)) == [[0, 0], [1, 1], [2, 2], [3]]
        for last in (None, "pad"):
            loader = DataLoader.from_generator(steps_per_epoch=5, last=last, capacity=0)
            short = r"batches ended after 7, and epoch 0.* 5 steps.* that it can fill"
            with pytest.raises(ShortEpoch, match=short):
                list(loader.set_batch_generator(batches))
        loader = DataLoader.from_generator(steps_per_epoch=5, last="drop", capacity=0)
        with pytest.raises(ShortEpoch, match="has 1 samples, not 2"):
            list(loader.set_batch_generator(batches))
        loader = DataLoader.from_generator(steps_per_epoch=4, last="pad", capacity=0)
        assert given_by(loader.set_batch_generator(batches))[-1] == [3]

    def test_count_feeds_of_several_batches(self):
        loader = DataLoader.from_generator(steps_per_epoch=2)
        feeds = loader.set_batch_generator(lambda: np.arange(10).reshape(5, 2), jax.devices()[:2])
        assert len(loader) == 2
        assert [feed.tolist() for feed in feeds] == [
            [[0, 1], [2, 3]],
            [[4, 5], [6, 7]],
        ]

    def test_do_not_make_another_plan(self):
        cursor = self.after(numbers(40).batch(4).load(sharding="host", steps_per_epoch=5), 2)
        loader = numbers(40).batch(2).load(sharding="host", steps_per_epoch=8)
        order = [int(sample["n"]) for sample in numbers(40)]
        rest = given_by(loader.epoch(0, at=cursor))
        assert [number for feed in rest for number in feed] == order[8:20]

    @pytest.mark.parametrize("kind", ["indexed", "known", "stream"])
    def test_that_were_longer_leave_an_epoch_with_nothing_more(self, kind):
        cursor = self.after(numbers(10, kind).batch(4).load(sharding="host", last="wrap"), 3)
        shorter = numbers(10, kind).batch(5).load(sharding="host", last="wrap")
        assert list(shorter.epoch(0, at=cursor)) == []
        assert given_by(shorter.steps(4, at=cursor)) == given_by(shorter.epoch(1))[:1]

    @staticmethod
    def after(loader, steps):
        feeds = iter(loader)
        for _ in range(steps):
            next(feeds)
        return feeds.cursor


def test_other_ends_are_refused():
    plan = numbers(4).batch(2)
    with pytest.raises(
        ValueError, match=r"last='warp' does not say .* 'drop', 'pad', 'wrap', 'error' or 'keep'"
    ):
        plan.load(last="warp")
    with pytest.raises(ValueError, match="drop_last=False means last='pad', and last='wrap'"):
        plan.load(drop_last=False, last="wrap")
    with pytest.raises(ValueError, match="steps_per_epoch needs a whole number of at least 1"):
        plan.load(steps_per_epoch=0)
    with pytest.raises(TypeError, match="steps_per_epoch needs a whole number"):
        plan.load(steps_per_epoch=2.5)
    for timeout in (-1, None, True, "3", float("nan")):
        with pytest.raises(ValueError, match="timeout of a loader needs seconds, 0 or more"):
            plan.load(peer_timeout=timeout)


def test_what_batch_leaves_out_itself_is_not_padded():
    loader = numbers(10).batch(4, drop_last=True).load(sharding="host", last="pad")
    assert [len(feed) for feed in given_by(loader)] == [4, 4]


def test_words_for_what_drop_last_says_mean_the_same():
    plan = numbers(10).batch(4)
    assert list(plan.load(drop_last=False, last="pad", sharding="host").samples(2).places) == [8, 9]
    for word, flag in (("drop", True), ("pad", False)):
        said, meant = plan.load(last=word), plan.load(drop_last=flag)
        for one, other in zip(said, meant, strict=True):
            assert jax.tree.map(np.ndarray.tolist, jax.device_get([one])) == jax.tree.map(
                np.ndarray.tolist, jax.device_get([other])
            )
        assert len(said) == len(meant)
    assert jax.tree.map(np.ndarray.tolist, jax.device_get([one]))[0].keys() == {"n", "mask"}


@pytest.mark.parametrize(("last", "steps"), [("drop", 2), ("pad", 3)])
def test_a_short_batch_is_short_also_where_a_function_makes_as_many_rows_of_it(last, steps):
    plan = Pipeline(arrays(n=np.arange(10))).batch(4)
    loader = plan.map_batches(lambda columns: {"n": columns["n"][:2]}).load(last=last)
    feeds = loader.epoch(0)
    cursors, seen = [feeds.cursor], []
    for feed in feeds:
        seen.append(feed["n"].tolist())
        cursors.append(feeds.cursor)
    assert len(seen) == len(loader) == steps
    for step, cursor in enumerate(cursors[:-1]):  # and no cursor changes what is left out
        assert [feed["n"].tolist()[:2] for feed in loader.epoch(0, at=cursor)] == seen[step:]


@pytest.mark.parametrize("kind", ["indexed", "stream"])
def test_steps_of_an_epoch_may_become_fewer_than_are_done(kind):
    feeds = numbers(40, kind).batch(2).load(sharding="host", steps_per_epoch=10).epoch(0)
    cursor = [(next(feeds), feeds.cursor) for _ in range(6)][-1][1]
    loader = numbers(40, kind).batch(2).load(sharding="host", steps_per_epoch=4)
    loader.load_state_dict(cursor)
    assert list(loader) == []
    assert len(list(loader)) == 4
