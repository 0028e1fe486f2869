"""One global order, dealt to any number of processes: here they are played one after another."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jreader import Pipeline, arrays, batch, shuffle, source
from jreader.devices import Placement, Share
from jreader.loaders.cursors import beginning
from jreader.loaders.groups import hosted
from jreader.loaders.hosts import dealt_to
from jreader.readers import indexed, start

COUNT = 44


def rows(count=COUNT, seed=1, size=8, **options):
    return (
        Pipeline(arrays(n=np.arange(count), double=np.arange(count) * 2))
        .shuffle(seed=seed)
        .batch(size, **options)
    )


def even(size, hosts):
    """The shares of hosts that have equal parts, side by side."""
    each = size // hosts
    return [Share(size, ((host * each, host * each + each),)) for host in range(hosts)]


def feeds_of(pipeline, share, cursor=None, drop_last=True, chunk=None):
    """What one of the hosts makes, and its cursors."""
    loader = pipeline.load(sharding="host", drop_last=drop_last)
    loader = loader.chunk(chunk) if chunk else loader
    kind, grouping = loader._grouping()
    grouping = replace(grouping, share=share)
    cursor = loader._named(cursor or beginning(0))
    host = hosted(kind, grouping, cursor)
    for step, (feed, first) in enumerate(host.items, cursor["step"] + 1):
        samples, position, digest = host.position()
        moved = {"step": step, "samples": samples, "position": position, "digest": digest}
        yield feed, first, json.loads(json.dumps({**cursor, **moved}))


def joined(hosts, shares):
    """The global feeds of what several hosts made."""
    for each in zip(*hosts, strict=True):
        whole = {}
        for (feed, _, cursor), share in zip(each, shares, strict=True):
            assert cursor == each[0][2]
            for name, column in feed.items():
                axis = column.ndim - 1
                shape = (*column.shape[:axis], share.size)
                out = whole.setdefault(name, np.full(shape, -1, column.dtype))
                out[..., share.rows()] = column
        yield {name: column.tolist() for name, column in whole.items()}, each[0][2]


def alone(pipeline, **options):
    return [
        {name: column.tolist() for name, column in feed.items()}
        for feed in pipeline.load(sharding="host", **options)
    ]


@pytest.mark.parametrize("hosts", [1, 2, 4, 8])
@pytest.mark.parametrize("count", [*range(40, 49), 3])
@pytest.mark.parametrize("drop_last", [True, False])
def test_hosts_together_read_what_one_reads(hosts, count, drop_last):
    pipeline, shares = rows(count), even(8, hosts)
    made = [feeds_of(pipeline, share, drop_last=drop_last) for share in shares]
    if count == 3 and drop_last:
        with pytest.warns(UserWarning, match="this epoch is empty"):
            together = list(joined(made, shares))
        with pytest.warns(UserWarning, match="this epoch is empty"):
            assert alone(pipeline) == together == []
        return
    assert [feed for feed, _ in joined(made, shares)] == alone(pipeline, drop_last=drop_last)


@pytest.mark.parametrize("drop_last", [True, False])
def test_a_batch_that_is_cut_by_batch_itself_is_so_everywhere(drop_last):
    pipeline, shares = rows(drop_last=True), even(8, 4)
    made = [feeds_of(pipeline, share, drop_last=drop_last) for share in shares]
    together = [feed for feed, _ in joined(made, shares)]
    assert together == alone(pipeline, drop_last=drop_last)
    assert len(together) == COUNT // 8


def test_chunks_of_hosts_are_chunks():
    pipeline, shares = rows(), even(8, 4)
    for drop_last in (True, False):
        made = [feeds_of(pipeline, share, drop_last=drop_last, chunk=4) for share in shares]
        whole = pipeline.load(sharding="host", drop_last=drop_last).chunk(4)
        expected = [{name: c.tolist() for name, c in feed.items()} for feed in whole]
        assert [feed for feed, _ in joined(made, shares)] == expected


def test_fewer_hosts_go_on_where_more_stopped_at_any_step():
    pipeline = rows()
    whole = alone(pipeline, drop_last=False)
    made = [feeds_of(pipeline, share, drop_last=False) for share in even(8, 8)]
    for step, (_, cursor) in enumerate(joined(made, even(8, 8)), 1):
        for hosts in (1, 2, 4):
            shares = even(8, hosts)
            rest = [feeds_of(pipeline, share, cursor, drop_last=False) for share in shares]
            assert [feed for feed, _ in joined(rest, shares)] == whole[step:]
        placed = pipeline.load(drop_last=False).epoch(0, at=cursor)
        assert [feed["n"].tolist() for feed in placed] == [feed["n"] for feed in whole[step:]]


def test_another_batch_size_on_other_hosts_goes_on_at_the_same_sample():
    made = [feeds_of(rows(), share) for share in even(8, 4)]
    cursor = list(joined(made, even(8, 4)))[2][1]
    shares = even(5, 5)
    rest = [feeds_of(rows(size=5), share, cursor) for share in shares]
    flat = [number for feed, _ in joined(rest, shares) for number in feed["n"]]
    expected = [number for feed in alone(rows(), drop_last=False) for number in feed["n"]]
    assert flat == expected[24:44]


def test_a_place_between_batches_ends_alike_on_every_host():
    (*_, last) = joined([feeds_of(rows(size=3), Share(3, ((0, 3),)))], [Share(3, ((0, 3),))])
    cursor = {**last[1], "samples": 15, "step": 5, "position": [3, 3, 15]}
    shares = even(8, 4)
    made = [feeds_of(rows(drop_last=True), share, cursor, drop_last=False) for share in shares]
    steps = [feed["n"] for feed, _ in joined(made, shares)]
    expected = [number for feed in alone(rows(), drop_last=False) for number in feed["n"]]
    assert steps == [expected[15:23], expected[23:31], expected[31:39]]


@settings(max_examples=60)
@given(st.integers(1, 60), st.integers(1, 12), st.data())
def test_any_rows_can_be_anyones(count, size, data):
    """Rows may lie in several ranges, and belong to several hosts."""
    owner = data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
    spans = [{(row, row + 1) for row in range(size) if owner[row] == host} for host in range(3)]
    spans[0] |= {(0, 1)}
    shares = [share for share in (Share.over(size, part) for part in spans) if len(share)]
    pipeline = rows(count, size=size)
    made = [feeds_of(pipeline, share, drop_last=False) for share in shares]
    assert [feed for feed, _ in joined(made, shares)] == alone(pipeline, drop_last=False)


def test_only_the_rows_of_a_host_are_read():
    asked = []

    class Noted:
        def __len__(self):
            return COUNT

        def __getitem__(self, rows):
            asked.append(len(rows))
            return {"n": rows}

    noted = Pipeline(source(Noted(), batched=True)).shuffle(seed=0).batch(8)
    share = even(8, 4)[1]
    made = [feed for feed, *_ in feeds_of(noted, share, drop_last=False)]
    assert len(made) == 6
    assert asked == [2, 2, 2, 2, 2, 2]


class TestWhatCannotBeDealt:
    @pytest.mark.parametrize(
        "pipeline",
        [
            Pipeline(lambda: iter(range(9))).batch(8),
            rows().map_batches(lambda columns: columns),
            rows().shuffle(3, seed=1),
            rows().firstn(2),
            Pipeline(lambda: [[1] * 8]),
            rows(size=4),
        ],
    )
    def test_is_read_whole(self, pipeline):
        assert dealt_to(pipeline, even(8, 2)[0]) is None

    def test_look_ahead_and_draws_are_no_hindrance(self):
        assert dealt_to(rows(seed=None).buffered(3), even(8, 2)[0]) is not None


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

    def test_nothing_is_a_share(self):
        assert (len(Share(8, ())), Share(8, ()).rows().tolist()) == (0, [])


def test_a_trillion_indices_are_dealt_to_four_thousand_hosts():
    """Every place is somebody's once, and takes no memory before it is asked for."""

    class Trillion:
        def __len__(self):
            return 10**12

        def __getitem__(self, rows):
            return rows

    hosts, each = 4096, 3
    order = shuffle(source(Trillion(), batched=True), seed=0)
    whole, size = indexed(order), hosts * each
    batches = 10**12 // size
    for number in (0, 1, batches // 3, batches - 1, batches):
        count = min(size, 10**12 - number * size)
        expected = whole.rows(np.arange(number * size, number * size + count))[0]
        assert len(np.unique(expected)) == count  # an order that is dealt once, once everywhere
        dealt = []
        for host in [*range(0, hosts, 97), hosts - 1]:
            share = Share(size, ((host * each, host * each + each),))
            here = start(dealt_to(batch(order, size), share), number * size)
            part = next(here.items)
            assert part.total == count
            assert here.position() == number * size + count
            mine = part.samples.columns[: 0 if part.stands_in else each]
            assert mine.tolist() == expected[host * each : host * each + each].tolist()
            dealt += mine.tolist()
        assert len(set(dealt)) == len(dealt)
    assert batches * size + count == 10**12


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
            found = [
                int(row) for part in (one, other) for row in part.samples if not part.stands_in
            ]
            assert sorted(found) == sorted(map(int, expected))
            assert one.total == other.total == len(expected)
