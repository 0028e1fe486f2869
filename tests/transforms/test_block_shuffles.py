"""`shuffle(blocks=)`: blocks in random order, samples among a few, each block decoded once."""

from __future__ import annotations

import gc
import threading
from itertools import islice

import jax
import numpy as np
import pytest
from block_sources import Blocks, in_blocks, numbers
from hypothesis import given
from hypothesis import strategies as st
from programs import PATIENCE
from seen import LIMIT, canonical, see
from widths import examples, few

import jreader
from jreader import (
    arrays,
    at_epoch,
    batch,
    chain,
    compose,
    epochs,
    firstn,
    map_readers,
    mix,
    shard,
    skip,
)
from jreader import shuffle as shuffled
from jreader.errors import ReaderError
from jreader.feeds.shards import dealt_to
from jreader.feeds.shares import Share
from jreader.readers import start
from jreader.sources.blocks import BlockColumns

uneven = st.lists(st.one_of(st.integers(0, 3), st.integers(0, 12)), min_size=1, max_size=9)
together = st.integers(1, 12)
moved = st.lists(
    st.sampled_from(
        [
            lambda reader: firstn(reader, 17),
            lambda reader: skip(reader, 5),
            lambda reader: chain(reader, Blocks([2, 0, 5], 100).reader()),
            lambda reader: jreader.buffered(reader, 2),
            lambda reader: jreader.Pipeline(reader).skip(1),
        ]
    ),
    max_size=3,
)
above = st.lists(
    st.sampled_from(
        [
            lambda reader: firstn(reader, 11),
            lambda reader: skip(reader, 3),
            lambda reader: shard(reader, 2, 1),
            lambda reader: epochs(reader, 2),
            lambda reader: chain(reader, shuffled(Blocks([3, 4], 200).reader(), seed=1, blocks=1)),
            lambda reader: mix([reader, Blocks([9, 2], 300).reader()], [2, 1], seed=3),
            lambda reader: shuffled(reader, 4, seed=5),
        ]
    ),
    max_size=2,
)


@st.composite
def plans(draw, ops=above):
    """Random plans around a block shuffle, and how to build an equal one cold."""
    sizes, blocks = draw(uneven), draw(together)
    before, after = draw(moved), draw(ops)

    def build():
        reader = Blocks(sizes).reader()
        for each in before:
            reader = each(reader)
        reader = shuffled(reader, seed=7, blocks=blocks)
        for each in after:
            reader = each(reader)
        return reader

    return build


@given(plans(st.just([])), st.integers(0, 2))
@examples(250)
def test_the_plane_gives_what_the_plain_pass_gives(build, epoch):
    plan = at_epoch(build(), epoch)
    plain = [int(sample["n"]) for sample in plan.start(None).items]
    assert numbers(plan) == plain
    assert [int(sample["n"]) for samples in batch(plan, 4)() for sample in samples] == plain


@given(plans(), st.integers(1, 5))
@examples(100)
def test_a_position_is_a_place(build, size):
    for plan in (build(), batch(build(), size)):
        whole = see(plan)
        assert whole.error in (None, ReaderError)  # of a mix with a source that has no samples
        for place, position in enumerate(whole.positions[::3]):
            rest = see(plan, position, LIMIT - 3 * place)
            assert rest.samples == whole.samples[3 * place :]


@given(uneven, together, st.integers(0, 3), st.integers(1, 7))
@examples(200)
def test_each_block_is_decoded_once_an_epoch_and_few_are_open(sizes, blocks, epoch, size):
    data = Blocks(sizes)
    plan = at_epoch(shuffled(data.reader(), seed=1, blocks=blocks), epoch)
    for read in (lambda: numbers(plan), lambda: list(batch(plan, size)())):
        data.decoded.clear()
        read()
        assert sorted(data.decoded) == data.filled
    assert data.most <= blocks + 4 + 1


@given(plans(), st.integers(1, 6), st.integers(1, 4))
@examples(60)
def test_hosts_read_one_sequence_and_only_the_blocks_of_their_rows(build, size, hosts):
    whole = list(batch(build(), size * hosts)())
    for host in range(hosts):
        share = Share(size * hosts, ((host * size, (host + 1) * size),))
        parts = list(dealt_to(batch(build(), size * hosts), share)())
        for part, samples in zip(parts, whole, strict=True):
            mine = list(samples)[host * size : (host + 1) * size]
            if mine:
                assert [int(each["n"]) for each in part] == [int(s["n"]) for s in mine]


@pytest.mark.parametrize("hosts", [1, 2, 4])
def test_a_host_decodes_only_blocks_that_its_rows_need_and_each_once(hosts):
    sizes = [1, 0, 2, 40, 3, 1, 64, 1, 1, 30] * 3
    for host in range(hosts):
        data = Blocks(sizes)
        share = Share(8 * hosts, ((host * 8, host * 8 + 8),))
        plan = batch(shuffled(data.reader(), seed=3, blocks=4), 8 * hosts)
        rows = [int(each["n"]) for part in dealt_to(plan, share)() for each in part]
        needed = np.unique(np.searchsorted(np.cumsum(sizes), rows, "right")).tolist()
        assert sorted(data.decoded) == needed
        if hosts == 4:
            assert len(needed) < len(data.filled)


@pytest.mark.parametrize("sizes", few([[3, 0, 20, 7, 1, 30], [5], [4] * 10], [[4] * 10]))
def test_a_trace_has_the_same_samples(sizes):
    plan = batch(shuffled(Blocks(sizes).reader(), seed=2, blocks=3), 4)
    data, batch_at = jreader.as_function(plan, drop_last=True)
    for epoch in (0, 3):
        expected = [samples.columns["n"] for samples in at_epoch(plan, epoch)()]
        traced = jax.jit(batch_at)
        for step in range(len(batch_at)):
            np.testing.assert_array_equal(traced(data, epoch, step)["n"], expected[step])


def test_samples_stay_in_their_group_and_epochs_differ():
    data = Blocks([10] * 20)
    plan = shuffled(data.reader(), seed=0, blocks=5)
    orders = [numbers(at_epoch(plan, epoch)) for epoch in range(3)]
    assert len(set(map(tuple, orders))) == 3
    for order in orders:
        assert sorted(order) == list(range(200))
        for group in np.reshape(order, (4, 50)):
            assert len({*(group // 10).tolist()}) == 5


def test_a_pass_that_is_dropped_leaves_no_thread_and_no_block():
    data = Blocks([50] * 20)
    before = {*threading.enumerate()}
    for items in (
        shuffled(data.reader(), seed=0, blocks=3)(),
        batch(shuffled(data.reader(), seed=0, blocks=3), 8)(),
    ):
        next(items)
    del items
    gc.collect()
    for thread in {*threading.enumerate()} - before:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_workers_give_the_same_stream():
    plan = shuffled(Blocks([5, 0, 9, 30, 1, 20]).reader(), seed=4, blocks=2)
    mapped = jreader.Pipeline(plan).map(doubled, processes=2)
    assert list(mapped) == [2 * number for number in numbers(plan)]


def doubled(sample):
    return 2 * int(sample["n"])


def drawn(sample, rng):
    return sample, rng.random()


def test_a_map_below_it_is_called_for_what_is_handed_over_in_the_order_of_one_above_it():
    rows, called = Blocks([3, 4, 2, 5]).reader(), []

    def noted(row):
        called.append(row)
        return row

    below = shuffled(map_readers(noted, rows), seed=1, blocks=2)
    first = list(islice(below(), 3))
    assert canonical(first) == canonical(called)
    assert canonical(list(below())) == canonical(
        list(map_readers(noted, shuffled(rows, seed=1, blocks=2))())
    )


class TestErrors:
    def test_readers_without_blocks_raise_and_say_what_to_type(self):
        for reader in (arrays(n=np.arange(9)), lambda: range(9)):
            with pytest.raises(ValueError, match=r"has none: type shuffle\(reader, seed=0\)"):
                shuffled(reader, seed=0, blocks=2)

    @pytest.mark.parametrize(
        ("name", "moved"),
        [
            ("shard", lambda reader: shard(reader, 2, 0)),
            ("epochs", lambda reader: epochs(reader, 2)),
            ("shuffle", lambda reader: shuffled(reader, 3, seed=0)),
            ("mix", lambda reader: mix([reader, reader], seed=0)),
            ("interleave", lambda reader: jreader.interleave(reader, reader)),
            ("keyed", lambda reader: jreader.map_samples(drawn, reader, rng=True, seed=0)),
            ("chain", lambda reader: chain(reader, arrays(n=np.arange(3)))),
            ("compose", lambda reader: compose(reader, Blocks([4, 4, 1]).reader())),
            ("filter", lambda reader: skip(jreader.filter(bool, reader), 1)),
        ],
    )
    def test_an_op_that_takes_samples_out_of_their_blocks_is_named(self, name, moved):
        reader = moved(Blocks([4, 5]).reader())
        with pytest.raises(ValueError, match=rf"and {name}, made at .*test_block_shuffles"):
            shuffled(reader, seed=0, blocks=2)

    def test_a_window_and_blocks_are_not_both_given(self):
        with pytest.raises(ValueError, match="takes only one of the two"):
            shuffled(Blocks([4]).reader(), 3, seed=0, blocks=2)

    def test_no_blocks_are_refused(self):
        with pytest.raises(ValueError, match="at least 1"):
            shuffled(Blocks([4]).reader(), seed=0, blocks=0)

    def test_labels_beside_blocks_are_shuffled_with_them(self):
        data = Blocks([3, 4, 2])
        pairs = compose(data.reader(), arrays(np.arange(9) * 10))
        found = [(int(a["n"]), int(b)) for a, b in shuffled(pairs, seed=0, blocks=2)()]
        assert all(b == 10 * a for a, b in found)
        assert len(found) == 9
        assert sorted(data.decoded) == [0, 1, 2]

    def test_an_error_comes_with_the_sample_of_its_block_and_not_before(self):
        data = Blocks([6] * 8)

        def decode(block):
            if block == 3:
                raise OSError("block 3 is gone")
            return data(block)

        broken = in_blocks(BlockColumns(np.arange(8) * 6, 48, decode))
        whole = numbers(shuffled(data.reader(), seed=5, blocks=3))
        good = next(place for place, n in enumerate(whole) if n // 6 == 3)
        here = start(shuffled(broken, seed=5, blocks=3))
        assert [int(next(here.items)["n"]) for _ in range(good)] == whole[:good]
        with pytest.raises(OSError, match="block 3 is gone"):
            next(here.items)


class TestCursors:
    def test_a_cursor_resumes_where_the_blocks_are_the_same(self):
        def loader(sizes=(3, 9, 5, 8, 1, 4), blocks=2):
            reader = shuffled(Blocks(list(sizes)).reader(), seed=1, blocks=blocks)
            return jreader.Pipeline(reader).batch(4).load(sharding="host")

        first = iter(loader())
        for _ in range(3):
            next(first)
        cursor, left = first.cursor, [feed["n"].tolist() for feed in first]
        assert [feed["n"].tolist() for feed in loader().epoch(0, at=cursor)] == left
        for other in (loader(blocks=3), loader((9, 3, 5, 8, 1, 4))):
            with pytest.raises(jreader.NotResumable, match="blocks"):
                list(other.epoch(0, at=cursor))
