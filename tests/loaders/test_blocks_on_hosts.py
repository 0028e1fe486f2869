"""Blocks that lanes own, on several processes: one stream, and each block decoded once by all."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from block_sources import Blocks
from hypothesis import given
from hypothesis import strategies as st
from played_hosts import alone, even, feeds_of, feeds_of_loader, joined
from widths import examples, few

import jreader
from jreader import Pipeline, shuffle
from jreader.feeds.shards import dealt_to
from jreader.readers import indexed, start
from jreader.readers.lanes import by_lane

uneven = st.lists(st.one_of(st.integers(0, 3), st.integers(0, 12)), min_size=1, max_size=12)
LANES = 8


def doubled(sample):
    return {"n": 2 * int(sample["n"])}


def drawn(sample, rng):
    return {"n": int(sample["n"]), "drawn": int(rng.integers(2**30))}


ABOVE = {
    "nothing": lambda plan: plan,
    "a map": lambda plan: plan.map(doubled),
    "a random map": lambda plan: plan.map(drawn, rng=True, seed=3),
    "prefetch": lambda plan: plan.prefetch(3),
    "skip and firstn": lambda plan: plan.skip(3).firstn(61),
    "epochs": lambda plan: plan.epochs(3),
}


def owned(data, above="nothing", size=16, blocks=LANES, lanes=LANES):
    plan = Pipeline(data.reader()).shuffle(seed=1, blocks=blocks, lanes=lanes)
    return ABOVE[above](plan).batch(size)


def on_hosts(count, make, cursor=None, *, size=16):
    """The global feeds of so many hosts, each with the cursor after it."""
    shares = even(size, count)
    made = [feeds_of(make(), share, cursor, drop_last=False) for share in shares]
    return list(joined(made, shares))


@pytest.mark.parametrize("above", ABOVE)
@given(uneven, st.integers(1, 3), st.data())
@examples(30)
def test_any_number_of_hosts_has_the_stream_of_one_and_goes_on_in_it(above, sizes, each, data):
    def make():
        return owned(Blocks(sizes), above, 8 * each)

    if sum(sizes) < 4:  # an empty epoch is an error
        return
    whole = alone(make(), drop_last=False)
    cursors = [cursor for _, cursor in on_hosts(8, make, size=8 * each)]
    for hosts in (1, 2, 4, 8):
        feeds = on_hosts(hosts, make, size=8 * each)
        assert [feed for feed, _ in feeds] == whole
        assert [cursor for _, cursor in feeds] == cursors
    step = data.draw(st.integers(0, len(whole) - 1))
    for hosts in (1, 2, 4):
        rest = on_hosts(hosts, make, cursors[step], size=8 * each)
        assert [feed for feed, _ in rest] == whole[step + 1 :]


@given(uneven, st.integers(1, 40), st.sampled_from([8, 16, 24]), st.sampled_from([8, 16, 24]))
@examples(60)
def test_another_batch_size_goes_on_at_the_same_sample(sizes, step, before, after):
    def numbers(feeds):
        return [
            n for feed in feeds for n, here in zip(feed["n"], feed["mask"], strict=True) if here
        ]

    def make(size):
        return owned(Blocks(sizes), size=size)

    if not sum(sizes):
        return
    begun = on_hosts(4, lambda: make(before), size=before)[:step]
    rest = on_hosts(2, lambda: make(after), begun[-1][1], size=after)
    seen = numbers([feed for feed, _ in begun]) + numbers([feed for feed, _ in rest])
    assert sorted(seen) == list(range(sum(sizes)))
    # whatever rows a sample has, the samples that were given are the first ones of the order
    order = [int(sample["n"]) for sample in make(8).wrapped().reader()]
    done = len(numbers([feed for feed, _ in begun]))
    assert sorted(seen[:done]) == sorted(order[:done])


@pytest.mark.parametrize("hosts", [1, 2, 4, 8])
@pytest.mark.parametrize("above", ["nothing", "a map", "a random map"])
@pytest.mark.parametrize("blocks", [LANES, 3 * LANES])
def test_each_block_is_decoded_once_by_all_hosts_together(hosts, above, blocks):
    sizes, every = [40, 41, 0, 25, 39, 1, 47] * 40 + [27], []  # the last batch has 3 samples
    for share in even(64, hosts):
        data = Blocks(sizes)
        list(feeds_of(owned(data, above, 64, blocks), share, drop_last=False))
        every.append(data.decoded)
    filled = len(Blocks(sizes).filled)
    assert set().union(*every) == set(Blocks(sizes).filled)
    assert sum(map(len, every)) <= filled + LANES - 1
    assert max(map(len, every)) <= filled / hosts * 1.15 + LANES


@pytest.mark.parametrize("options", [{"last": "wrap"}, {"steps_per_epoch": 100}], ids=str)
def test_steps_that_are_counted_keep_blocks_with_their_owners(options):
    sizes, decoded = [40, 41, 0, 25, 39, 1, 47] * 40, 0
    for share in even(64, 4):
        data = Blocks(sizes)
        list(feeds_of_loader(owned(data, size=64).load(sharding="host", **options), share))
        decoded += len(data.decoded)
    # a batch that is filled up has samples of the first group of each lane again
    assert decoded <= len(Blocks(sizes).filled) + LANES - 1 + LANES * ("last" in options)


@given(uneven, st.integers(0, 60), st.sampled_from([8, 16]))
@examples(60)
def test_lanes_keep_their_rows_wherever_a_batch_begins(sizes, done, size):
    plan = owned(Blocks(sizes), size=size)
    order = [int(sample["n"]) for sample in plan.wrapped().reader()]
    if done > len(order):
        return
    whole, shares = list(start(plan, done).items), even(size, 8)
    parts = [list(start(dealt_to(plan, share), done).items) for share in shares]
    for number, samples in enumerate(whole):
        places = range(done + number * size, min(done + (number + 1) * size, len(order)))
        mine = [[order[place] for place in places if place % 8 == lane] for lane in range(8)]
        assert [int(sample["n"]) for sample in samples] == [n for lane in mine for n in lane]
        for lane, part in enumerate(parts):
            if not part[number].is_placeholder:
                assert [int(sample["n"]) for sample in part[number]] == mine[lane]


def test_epochs_that_follow_one_another_in_a_plan_decode_each_block_once_each():
    """Also where 3 lanes of 8 go to another host with each epoch: 80,003 samples."""
    decoded, sizes = 0, [99] * 10 + [101] * 10 + [103] + [100] * 779
    for share in even(64, 2):
        data = Blocks(sizes)
        plan = Pipeline(data.reader()).shuffle(seed=1, blocks=LANES, lanes=LANES).epochs(3)
        for _ in dealt_to(plan.batch(64), share)():
            pass
        decoded += len(data.decoded)
    assert decoded <= 1.1 * 3 * len(sizes)


@pytest.mark.parametrize("hosts", [2, 4])
def test_without_lanes_all_hosts_decode_nearly_all_blocks(hosts):
    """What lanes are for; or the test above shows nothing."""
    sizes = [40, 41, 0, 25, 39, 1, 47] * 40
    decoded = 0
    for share in even(64, hosts):
        data = Blocks(sizes)
        list(feeds_of(owned(data, size=64, blocks=24, lanes=1), share))
        decoded += len(data.decoded)
    assert decoded > 0.8 * hosts * len(Blocks(sizes).filled)


@pytest.mark.parametrize("hosts", [1, 2, 4, 8])
def test_a_host_has_the_blocks_of_its_lanes_open_and_a_few_more(hosts):
    data = Blocks([20] * 400)
    # samples that are mapped are read from the blocks themselves, which stay alive so long
    plan = owned(data, "a map", 64, 4 * LANES)
    list(dealt_to(plan, even(64, hosts)[-1])())
    assert data.most <= 4 * LANES // hosts + 4 + 1


@pytest.mark.parametrize("hosts", few([1, 64, 512, 4096], [4096]))
def test_four_thousand_hosts_read_each_block_about_once(hosts):
    blocks, size, lanes = 45_000, 8192, 4096
    data = Blocks([64] * blocks)  # nothing of which is decoded
    plane = indexed(shuffle(data.reader(), seed=1, blocks=lanes, lanes=lanes))
    (rows,) = plane.rows(np.arange(plane.length // size * size))
    every = rows.reshape(-1, size)[:, by_lane(size, lanes, 0)]
    read = sum(len(np.unique(every[:, mine] // 64)) for mine in np.split(np.arange(size), hosts))
    assert read <= 1.1 * blocks
    assert not data.decoded


@given(uneven, st.integers(1, 3), st.sampled_from(["drop", "pad", "wrap"]), st.integers(1, 3))
@examples(60)
def test_ends_of_epochs_are_those_of_the_plan_without_hosts(sizes, each, last, blocks):
    size = LANES * each
    if sum(sizes) < size:
        return
    plan = owned(Blocks(sizes), size=size, blocks=blocks * LANES)
    seen = [n for feed in alone(plan, last=last) for n in feed["n"]]
    order = [int(sample["n"]) for sample in plan.wrapped().reader()]
    whole = len(order) // size * size
    assert sorted(seen[:whole]) == sorted(order[:whole])
    if last == "wrap" and whole < len(order):
        assert sorted(seen[whole:]) == sorted(order[whole:] + order[: whole + size - len(order)])
    if last == "drop":
        assert len(seen) == whole


def test_a_lane_has_its_rows_of_every_batch_also_of_a_short_one():
    plan = owned(Blocks([7] * 5), size=16)  # 35 samples: 16, 16, and 3 of the first three lanes
    order = [int(sample["n"]) for sample in plan.wrapped().reader()]
    feeds = alone(plan, last="pad")
    for number, feed in enumerate(feeds):
        for row, (n, here) in enumerate(zip(feed["n"], feed["mask"], strict=True)):
            place = 16 * number + row // 2 + 8 * (row % 2)  # two rows of each of eight lanes
            assert here == (place < 35)
            assert n == (order[place] if here else 0)


@pytest.mark.parametrize(
    "sizes", few([[3, 0, 20, 7, 1, 30], [40], [4] * 12], [[3, 0, 20, 7, 1, 30]])
)
@pytest.mark.parametrize("last", ["drop", "pad"])
def test_a_trace_has_the_feeds_of_the_loader(sizes, last):
    plan = owned(Blocks(sizes), size=16)
    data, batch_at = jreader.as_function(plan, last=last)
    traced = jax.jit(batch_at)
    for epoch in (0, 3):
        feeds = list(plan.load(sharding="host", last=last).epoch(epoch))
        assert len(feeds) == len(batch_at)
        for step, feed in enumerate(feeds):
            made = traced(data, epoch, step)
            for name, column in feed.items():
                np.testing.assert_array_equal(made[name], column)


def test_the_samples_of_a_step_are_named_in_the_order_of_their_rows():
    loader = owned(Blocks([7] * 9), size=16).load(sharding="host", last="pad")
    for step, feed in enumerate(loader.epoch(2)):
        named = loader.samples(step, epoch=2)
        assert feed["n"][feed["mask"]].tolist() == named.rows.tolist()


def test_a_batch_is_found_by_its_number_as_a_pass_gives_it():
    plan = owned(Blocks([7] * 5), size=16)
    find = jreader.readers.lookup_of(plan)
    for number, samples in enumerate(plan):
        assert [int(s["n"]) for s in find(number)] == [int(s["n"]) for s in samples]
    assert sorted(int(s["n"]) for s in jreader.unbatch(plan)()) == list(range(35))
    assert [int(s["n"]) for s in jreader.unbatch(plan)()] == [
        int(s["n"]) for samples in plan for s in samples
    ]


class TestWhereNobodyOwnsBlocks:
    """The plan is right, and its batches may have any size."""

    @pytest.mark.parametrize(
        "above",
        {
            "mix": lambda plan: plan.mix(plan, weights=[1, 1], seed=0),
            "chain": lambda plan: plan.chain(plan),
            "filter": lambda plan: plan.filter(lambda sample: sample["n"] % 3),
            "shard": lambda plan: plan.shard(2, 1),
            "shuffle": lambda plan: plan.shuffle(5, seed=2),
            "cache": lambda plan: plan.cache(),
        }.items(),
        ids=lambda pair: pair[0],
    )
    def test_samples_keep_their_order(self, above):
        plan = above[1](Pipeline(Blocks([7] * 5).reader()).shuffle(seed=1, blocks=8, lanes=8))
        order = [int(sample["n"]) for sample in plan]
        assert [int(s["n"]) for samples in plan.batch(5) for s in samples] == order
        for hosts in (1, 5):
            made = [feeds_of(plan.batch(5), share, drop_last=False) for share in even(5, hosts)]
            if above[0] not in ("filter", "cache"):
                feeds = [feed for feed, _ in joined(made, even(5, hosts))]
                assert [n for feed in feeds for n in feed["n"]][: len(order)] == order


class TestErrors:
    def test_a_batch_that_lanes_do_not_divide_is_refused(self):
        plan = Pipeline(Blocks([7] * 5).reader()).shuffle(seed=1, blocks=8, lanes=8)
        for above in ABOVE.values():
            with pytest.raises(jreader.BatchNotDivisible, match="type batch_size=8 or 16"):
                above(plan).batch(12)

    def test_lanes_need_blocks_of_which_each_has_as_many(self):
        reader = Blocks([7] * 5).reader()
        with pytest.raises(ValueError, match="type blocks=8, or blocks=16"):
            shuffle(reader, seed=1, blocks=12, lanes=8)
        with pytest.raises(ValueError, match="type blocks=8, or blocks=16"):
            shuffle(reader, seed=1, blocks=3, lanes=8)
        with pytest.raises(ValueError, match=r"type shuffle\(reader, seed=0, blocks=64, lanes=8\)"):
            shuffle(reader, seed=1, lanes=8)
        with pytest.raises(ValueError, match="at least 1"):
            shuffle(reader, seed=1, blocks=8, lanes=0)


def test_one_lane_is_the_order_without_lanes():
    plans = [
        Pipeline(Blocks([7] * 5).reader()).shuffle(seed=1, blocks=3, **given).batch(4)
        for given in ({}, {"lanes": 1})
    ]
    one, other = [list(on_hosts(1, lambda plan=plan: plan, size=4)) for plan in plans]
    assert one == other
