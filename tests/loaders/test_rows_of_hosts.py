"""Which rows a process has of every batch, and that nothing else is asked for."""

import tracemalloc

import jax
import numpy as np
import pytest
from widths import few

from jreader import NotResumable, arrays, batch, shuffle, source
from jreader.devices import Placement
from jreader.feeds.shards import dealt_to
from jreader.feeds.shares import Share
from jreader.readers import indexed, start


class TestShares:
    def test_rows_of_a_mesh_are_those_of_its_devices(self):
        mesh = jax.make_mesh((4,), ("data",))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
        assert not Placement(sharding).spans
        assert Placement(sharding).here(8) is None

    def test_slices_are_found_among_them(self):
        share = Share.over(16, {(4, 8), (8, 10), (12, 16)})
        assert share.spans == ((4, 10), (12, 16))
        assert share.rows()[share.found(slice(6, 9))].tolist() == [6, 7, 8]
        assert share.rows()[share.found(slice(12, None))].tolist() == [12, 13, 14, 15]
        with pytest.raises(IndexError, match="not among"):
            share.found(slice(9, 13))

    def test_rows_that_several_devices_have_are_counted_once(self):
        assert Share.over(9, {(1, 6), (2, 4), (5, 8), (8, 8)}).spans == ((1, 8),)
        assert Share.over(9, {(3, 3)}).spans == ()

    def test_nothing_is_a_share(self):
        assert (len(Share(8, ())), Share(8, ()).rows().tolist()) == (0, [])


class Numbers:
    """So many rows, none of which is in memory."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, rows):
        return rows


HOSTS, EACH = 4096, 3


def dealt(order, host, batches, at=None, hosts=HOSTS):
    """The rows that a host has of the batches from sample `at` on, how many all have, and where."""
    share = Share(hosts * EACH, ((host * EACH, host * EACH + EACH),))
    here = start(dealt_to(batch(order, hosts * EACH), share), at)
    for _ in range(batches):
        part = next(here.items)
        mine = [] if part.is_placeholder else part.columns.tolist()
        yield mine, part.rows, here.position()


@pytest.mark.parametrize(
    ("count", "hosts"),
    few([(10**12, 256), (10**12, HOSTS), (10**6, HOSTS), (2**48, HOSTS)], [(10**12, 256)]),
)
def test_a_trillion_indices_are_dealt_to_four_thousand_hosts(count, hosts):
    """Every place is somebody's once, and takes no memory before it is asked for."""
    order = shuffle(source(Numbers(count), batched=True), seed=0)
    size, whole = hosts * EACH, indexed(order)
    full, rest = divmod(count, size)
    assert rest

    def expected(number):
        return whole.rows(np.arange(number * size, min(number * size + size, count)))[0].tolist()

    for number in (0, 1, full // 3):
        every = expected(number)
        assert len(set(every)) == size  # an order that is dealt once, once everywhere
        for host in [*range(0, hosts, 97), hosts - 1]:
            mine = every[host * EACH : host * EACH + EACH]
            made = [*dealt(order, host, 1, number * size, hosts)]
            assert made == [(mine, size, number * size + size)]
    ends = [list(dealt(order, host, 2, (full - 1) * size, hosts)) for host in range(hosts)]
    assert {(len(rows), *place) for (rows, *place), _ in ends} == {(EACH, size, full * size)}
    assert {tuple(place) for _, (_, *place) in ends} == {(rest, count)}
    for number in (0, 1):  # the last whole batch, and the short one
        assert [row for end in ends for row in end[number][0]] == expected(full - 1 + number)


def test_hosts_take_no_more_memory_the_longer_the_order_is():
    def peak(count, hosts):
        order, peaks = shuffle(source(Numbers(count), batched=True), seed=0), []
        for _ in range(8):  # some count what is cached, and what other threads of this process make
            tracemalloc.start()
            assert len(list(dealt(order, 5, 3, hosts=hosts))) == 3
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        return min(peaks)

    block = 16384 * 8  # so many places are routed in one go, in words of 64 bits
    short = peak(10**6, 16)  # in words of 32 bits; on more hosts it is not even one block
    for count in (10**12, 2**48):
        few, many = peak(count, 16), peak(count, HOSTS)
        assert few < many + 0.1 * block
        assert many < 4 * short
        assert many < 12 * block  # ten of them at a time are what the arithmetic of an order holds


def test_batches_of_parts_are_batches():
    reader = shuffle(arrays(np.arange(30)), seed=4)
    for drop_last in (True, False):
        whole = list(batch(reader, 7, drop_last)())
        both = [
            list(dealt_to(batch(reader, 7, drop_last), Share(7, spans))())
            for spans in (((0, 2), (5, 7)), ((2, 5),))
        ]
        assert len(whole) == len(both[0]) == len(both[1])
        for expected, one, other in zip(whole, *both, strict=True):
            found = [int(row) for part in (one, other) for row in part if not part.is_placeholder]
            assert sorted(found) == sorted(map(int, expected))
            assert one.rows == other.rows == len(expected)


def test_a_long_pass_is_dealt_in_blocks_that_meet():
    order = shuffle(arrays(np.arange(70_001)), seed=3)
    every, share = indexed(order).rows(np.arange(70_001))[0], Share(8, ((2, 4),))
    parts = [part for part in dealt_to(batch(order, 8), share)() if not part.is_placeholder]
    found = np.concatenate([part.columns for part in parts])
    assert found.tolist() == every[np.isin(np.arange(70_001) % 8, [2, 3])].tolist()


@pytest.mark.parametrize("drop_last", [True, False])
def test_a_place_beyond_the_end_is_refused(drop_last):
    parts = dealt_to(batch(arrays(np.arange(30)), 7, drop_last), Share(7, ((0, 2),)))
    assert start(parts, 30).position() == 30
    assert list(start(parts, 30).items) == []
    with pytest.raises(NotResumable, match="cannot resume after sample 31"):
        start(parts, 31)
