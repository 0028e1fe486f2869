"""One global order, dealt to any number of processes: here they are played one after another."""

import json
from contextlib import nullcontext
from functools import partial
from itertools import chain, islice

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from movers import Rows, fast, moving_alike
from played_hosts import alone, even, feeds_of, feeds_of_loader, joined, side_by_side
from widths import examples

from jreader import (
    DataLoader,
    Dataset,
    Pipeline,
    arrays,
    at_epoch,
    batch,
    epochs,
    firstn,
    map_readers,
    map_samples,
    shuffle,
    source,
)
from jreader.feeds.shards import dealt_to
from jreader.feeds.shares import Share
from jreader.loaders.checkpoints.cursors import beginning
from jreader.readers import Node, Pass, Reader, itself, leaves, lookup_of, op, start

pytestmark = pytest.mark.filterwarnings("ignore:.*leaves out .* tokens of")

COUNT = 44


def rows(count=COUNT, seed=1, size=8, **options):
    return (
        Pipeline(arrays(n=np.arange(count), double=np.arange(count) * 2))
        .shuffle(seed=seed)
        .batch(size, **options)
    )


def catching(words, *, when):
    """The warning is expected at times."""
    return pytest.warns(UserWarning, match=words) if when else nullcontext()


@pytest.mark.parametrize("hosts", [1, 2, 4, 8])
@pytest.mark.parametrize("count", [*range(40, 49), 3])
@pytest.mark.parametrize("drop_last", [True, False])
def test_hosts_together_read_what_one_reads(hosts, count, drop_last):
    pipeline, shares = rows(count), even(8, hosts)
    made = [feeds_of(pipeline, share, drop_last=drop_last) for share in shares]
    with catching("this epoch is empty", when=drop_last and count < 8):
        together = [feed for feed, _ in joined(made, shares)]
    with catching("this epoch is empty", when=drop_last and count < 8):
        assert together == alone(pipeline, drop_last=drop_last)


@pytest.mark.parametrize("drop_last", [True, False])
def test_a_batch_that_is_cut_by_batch_itself_is_so_everywhere(drop_last):
    pipeline, shares = rows(drop_last=True), even(8, 4)
    made = [feeds_of(pipeline, share, drop_last=drop_last) for share in shares]
    together = [feed for feed, _ in joined(made, shares)]
    assert together == alone(pipeline, drop_last=drop_last)
    assert len(together) == COUNT // 8


@pytest.mark.parametrize("count", [44, 32, 28, 4])  # 28: as many batches, the last one short
@pytest.mark.parametrize("drop_last", [True, False])
def test_chunks_of_hosts_are_chunks(count, drop_last):
    pipeline, shares = rows(count), even(8, 4)
    made = [feeds_of(pipeline, share, drop_last=drop_last, chunk=4) for share in shares]
    whole = pipeline.load(sharding="host", drop_last=drop_last).chunk(4)
    with catching("this epoch is empty", when=drop_last and count < 32):
        expected = [{name: c.tolist() for name, c in feed.items()} for feed in whole]
    with catching("this epoch is empty", when=drop_last and count < 32):
        assert [feed for feed, _ in joined(made, shares, 4)] == expected
    assert len(expected) == (count // 32 if drop_last else -(-count // 32))


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
    cursor = {**last[1], "samples": 15, "step": 5, "position": [3, 3, 15, 5]}
    shares = even(8, 4)
    made = [feeds_of(rows(drop_last=True), share, cursor, drop_last=False) for share in shares]
    steps = [feed["n"] for feed, _ in joined(made, shares)]
    expected = [number for feed in alone(rows(), drop_last=False) for number in feed["n"]]
    assert steps == [expected[15:23], expected[23:31], expected[31:39]]


@examples(60)
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


MOST = 16
hosts = st.fixed_dictionaries(
    {
        "parts": st.sampled_from([1, 2, 3, 4, 8]),
        "each": st.integers(1, 3),
        "apart": st.booleans(),
        "chunk": st.sampled_from([None, None, 2]),
    }
)
devices = st.fixed_dictionaries(
    {
        "parts": st.sampled_from([1, 2, 4]),
        "each": st.integers(1, 3),
        "pmap": st.booleans(),
        "capacity": st.sampled_from([0, 1, 5]),
        "chunk": st.sampled_from([None, None, 2]),
    }
)


def on_hosts(pipeline, layout, cursor):
    """The global feeds that several hosts make, each with its cursor."""
    parts, each, chunk = layout["parts"], layout["each"], layout["chunk"]
    size = parts * each
    shares = even(size, parts)
    if layout["apart"]:
        spans = [{(row, row + 1) for row in range(host, size, parts)} for host in range(parts)]
        shares = [Share.over(size, rows) for rows in spans]
    made = [feeds_of(pipeline, share, cursor, drop_last=False, chunk=chunk) for share in shares]
    yield from side_by_side(made, shares, chunk)


def on_devices(pipeline, layout, cursor):
    """Those of one host, on its devices."""
    here = jax.devices()[: layout["parts"]]
    where = {"pmap": here} if layout["pmap"] else {"sharding": jax.make_mesh((len(here),), ("d",))}
    loader = pipeline.load(capacity=layout["capacity"], drop_last=False, **where)
    loader = loader.chunk(layout["chunk"]) if layout["chunk"] else loader
    with loader.epoch(1, at=cursor) as feeds:
        for feed in feeds:
            yield feed, json.loads(json.dumps(feeds.cursor))


def sequence(plan, layout, cursor=None):
    """The samples that are left, and the cursor after each step with how many were given."""
    pipeline = Pipeline(plan).batch(layout["parts"] * layout["each"])
    on = on_devices if "pmap" in layout else on_hosts
    begun = cursor or (beginning(1) if on is on_hosts else None)
    found, cursors = [], []
    for feed, after in on(pipeline, layout, begun):
        *columns, mask = map(np.asarray, leaves(feed))
        if layout.get("pmap") and layout["chunk"]:  # devices are in front of steps
            *columns, mask = (column.swapaxes(0, 1) for column in (*columns, mask))
        found += zip(*(column[mask].tolist() for column in columns), strict=True)
        cursors.append((len(found), after))
    return found, cursors


def drawn_beside(sample, rng):
    return sample, int(rng.integers(2**30))


MAPPED = {
    "no map": itself,
    "a map": partial(map_samples, itself),
    "a map on a thread": partial(map_samples, itself, threads=1),
    "a random map": partial(map_samples, drawn_beside, rng=True, seed=4),
    "a map below a shuffle": lambda plan: shuffle(map_readers(itself, plan), seed=3),
    "a random map below windows": lambda plan: shuffle(
        map_samples(drawn_beside, plan, rng=True, seed=4), 5, seed=3
    ),
}


@pytest.mark.filterwarnings("ignore:the feeds of this loader")  # other chunks
@pytest.mark.filterwarnings("ignore::jreader.LintWarning")  # of random plans
@pytest.mark.filterwarnings("ignore:epoch . is empty")
@examples(100)  # each begins up to 33 passes
@given(
    moving_alike,
    st.sampled_from(sorted(MAPPED)),
    hosts,
    st.one_of(hosts, devices),
    st.one_of(hosts, devices),
)
def test_the_rest_of_any_plan_follows_on_any_hosts(recipe, mapped, layout, other, last):
    """Stops at every place, goes on on others, stops there, and goes on on others again."""
    plan = MAPPED[mapped](firstn(epochs(fast(recipe), 4), MOST))  # plans are short
    expected, cursors = sequence(plan, layout)
    naive = [leaves(row) for row in at_epoch(plan, 1)()]
    assert expected == [tuple(np.asarray(leaf).tolist() for leaf in row) for row in naive]
    for done, cursor in cursors:
        rest, again = sequence(plan, other, cursor)
        assert rest == expected[done:]
        assert all(after["samples"] == done + more for more, after in again)
        if again:
            more, stopped = again[len(again) // 2]
            assert sequence(plan, last, stopped)[0] == expected[done + more :]
            assert again[-1][1]["digest"] == cursors[-1][1]["digest"]


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


def noted(calls, sample):
    calls.append(int(sample["n"]))
    return sample


def noted_and_drawn(calls, sample, rng):
    return {**noted(calls, sample), "drawn": rng.integers(2**30)}


@pytest.mark.parametrize("hosts", [2, 4])
@pytest.mark.parametrize(
    "plan",
    [
        lambda rows, calls: rows.map(partial(noted, calls)),
        lambda rows, calls: rows.shuffle(seed=1).map(partial(noted, calls), threads=2),
        lambda rows, calls: rows.map(partial(noted, calls)).shuffle(seed=1).prefetch(2),
        lambda rows, calls: rows.map(partial(noted, calls), threads=2).shuffle(9, seed=1)[:40],
        lambda rows, calls: rows.map(partial(noted_and_drawn, calls), rng=True, seed=2),
        lambda rows, calls: rows.map(partial(noted_and_drawn, calls), rng=True, seed=2).shuffle(
            seed=1
        ),
        lambda rows, calls: (
            rows.map(partial(noted, calls))
            .map(partial(noted_and_drawn, []), rng=True, seed=2)
            .map(partial(noted_and_drawn, []), rng=True, seed=3)
        ),
        lambda rows, calls: rows.xmap(partial(noted, calls), 2, 4, order=True).shuffle(seed=1),
    ],
)
def test_a_map_is_called_on_one_host_for_each_row(plan, hosts):
    calls = [[] for _ in range(hosts)]
    rows = Pipeline(arrays(n=np.arange(40)))
    made = [
        feeds_of(plan(rows, mine).batch(8), share)
        for mine, share in zip(calls, even(8, hosts), strict=True)
    ]
    together = [feed for feed, _ in joined(made, even(8, hosts))]
    assert together == alone(plan(rows, []).batch(8))
    assert [len(mine) for mine in calls] == [40 // hosts] * hosts
    assert sorted(chain.from_iterable(calls)) == list(range(40))


def test_a_run_that_read_its_maps_in_order_goes_on_with_hosts_that_do_not():
    def over(rows):
        return shuffle(map_samples(int, rows), seed=1)

    before = start(over(Rows(COUNT, 0, "bare")))
    first = list(islice(before.items, 16))
    position = json.loads(json.dumps(before.position()))
    plan = batch(over(arrays(np.arange(COUNT))), 8)
    one, other = (list(start(dealt_to(plan, share), position).items) for share in even(8, 2))
    assert [part.rows for part in one] == [part.rows for part in other] == [8, 8, 8, 4]
    assert [part.is_placeholder for part in other] == [False, False, False, True]
    rest = chain.from_iterable([*mine, *others] for mine, others in zip(one, other, strict=True))
    assert [*first, *rest][:COUNT] == list(over(Rows(COUNT, 0, "bare"))())


@pytest.mark.parametrize("op", ["cache", "filter"])
@pytest.mark.parametrize("hosts", [2, 4])
def test_hosts_go_on_by_index_where_one_that_read_in_order_stopped(tmp_path, op, hosts):
    def plan():
        numbers = Pipeline(arrays(n=np.arange(COUNT))).map(lambda row: {"n": row["n"] * 2})
        if op == "cache":
            return numbers.cache(str(tmp_path / "kept")).batch(8)
        return numbers.filter(lambda row: row["n"] % 6, keep=str(tmp_path / "kept")).batch(8)

    feeds = plan().load(sharding="host", drop_last=False).epoch(0)
    seen = [next(feeds)["n"].tolist() for _ in range(2)]
    cursor = json.loads(json.dumps(feeds.cursor))
    rest = [feed["n"].tolist() for feed in feeds]  # now all is kept
    shares = even(8, hosts)
    made = [feeds_of(plan(), share, cursor, drop_last=False) for share in shares]
    assert [feed["n"] for feed, _ in joined(made, shares)] == rest
    assert len(seen + rest) > 3


def test_passes_that_hosts_begin_are_closed():
    open_now = []

    @op
    class watched(Node):
        reader: Reader
        in_cursor = "never"
        moves = "samples"

        def start(self, at):
            up = start(self.reader, at)
            open_now.append(up)
            return Pass(up.items, up.position, lambda: (open_now.remove(up), up.close()))

        def lookup(self):
            return lookup_of(self.reader)

    plan = batch(watched(arrays(np.arange(COUNT))), 8)
    for share in even(8, 2):
        up = start(dealt_to(plan, share))
        assert len(list(up.items)) == 6
        up.close()
    assert open_now == []


class Named(Dataset):
    """Rows with a text, of which it notes those that are asked for."""

    def __init__(self, asked=None):
        self.asked = [] if asked is None else asked

    def __len__(self):
        return COUNT

    def __getitem__(self, row):
        self.asked.append(row)
        return {"n": row, "name": f"row {row}"}


@pytest.mark.parametrize("hosts", [1, 2, 4])
@pytest.mark.parametrize("workers", [0, 2])
def test_each_host_fetches_its_samples_of_a_data_set_and_goes_on_anywhere(hosts, workers):
    def loader(asked=None):
        given = {"batch_size": 8, "shuffle": True, "seed": 1, "return_list": False}
        return DataLoader(Named(asked), num_workers=workers, last="pad", **given)

    shares, asked = even(8, hosts), [[] for _ in range(hosts)]
    made = [
        list(feeds_of_loader(loader(mine), share))
        for share, mine in zip(shares, asked, strict=True)
    ]
    whole = list(loader())
    for step, (feed, *parts) in enumerate(zip(whole, *made, strict=True)):
        here = np.concatenate([np.asarray(part["n"]) for part, *_ in parts])
        assert here.tolist() == np.asarray(feed["n"]).tolist()
        for (part, _, cursor), share in zip(parts, shares, strict=True):
            held = np.asarray(part["n"])[np.asarray(part["mask"])]
            assert part["name"] == [f"row {row}" for row in held]
            rest = list(feeds_of_loader(loader(), share, cursor))
            assert [each["n"].tolist() for each, *_ in rest] == [
                np.asarray(later["n"])[share.rows()].tolist() for later in whole[step + 1 :]
            ]
    if not workers:
        assert sorted({row for mine in asked for row in mine}) == list(range(COUNT))
        without_rows = hosts // 2  # of the last batch, which has 4
        assert sum(map(len, asked)) == COUNT + without_rows


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
        assert dealt_to(rows(seed=None).prefetch(3), even(8, 2)[0]) is not None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::jreader.LintWarning")  # of random plans
@pytest.mark.filterwarnings("ignore:epoch . is empty")
def test_the_plans_of_this_law_give_samples():
    counts = []

    @settings(max_examples=100, database=None)
    @given(moving_alike, hosts)
    def collect(recipe, layout):
        counts.append(len(sequence(firstn(epochs(fast(recipe), 4), MOST), layout)[0]))

    collect()
    assert sum(count > 5 for count in counts) > 20, counts
