"""Streams in lanes, dealt to any number of processes: here they are played one after another."""

import json
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laned import in_lanes, lanes_of
from widths import examples, few

from jreader import Pipeline, ReaderError, files, jsonl, source
from jreader.feeds.shards import dealt_to
from jreader.feeds.shares import Share
from jreader.loaders.checkpoints.cursors import beginning, gathered, sealed
from jreader.loaders.host_feeds import HostFeeds
from jreader.loaders.multihost.lane_places import Filler, lanes_read, places, scattered
from jreader.readers import map_tree

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* left none of the samples"),
    pytest.mark.filterwarnings("ignore:.* ended before its first step"),
    pytest.mark.filterwarnings("ignore:.*leaves out .* tokens of"),
]
_END = object()


def samples(file):
    for place in range(int(file) % 7):
        yield {"file": int(file), "place": place}


def stream(files=(6, 3, 1, 5, 2, 4, 6, 6, 3, 5, 13, 4), lanes=4):
    return (
        Pipeline(source(list(files)))
        .shuffle(seed=1)
        .read(samples, lanes=lanes)
        .filter(lambda sample: sample["place"] % 3 != 2)
        .shuffle(3, seed=2)
    )


def even(size, hosts):
    """The shares of hosts that have equal parts, side by side."""
    each = size // hosts
    return [Share(size, ((host * each, host * each + each),)) for host in range(hosts)]


class Host:
    """One of several processes: its feeds, and the lanes whose places it knows."""

    def __init__(self, pipeline, share, cursor, last):
        self.share = share
        loading = pipeline.load(sharding="host", last=last)._loaded
        cursor = {**cursor, "plan": loading.plan()}
        self.lanes = lanes_read(share, loading.source.batching.lanes)
        here = replace(loading.here, share=share)
        feeds = HostFeeds(here, loading.of_epoch(cursor), cursor)
        feeds.numbered = True
        self.up = feeds.begun()
        self.ends_with_first = last in ("drop", "error")

    def next(self):
        return next(self.up.items, _END)


MOST = 80  # feeds of plans that may have no end


def together(pipeline, shares, last, cursor=None, most=MOST):
    """The global feeds that hosts make, and their cursor after each, as they tell one another."""
    hosts = [Host(pipeline, share, cursor or beginning(0), last) for share in shares]
    for _ in range(most):
        made = [host.next() for host in hosts]
        if any(item is _END for item in made) or all(isinstance(item, Filler) for item in made):
            break
        items = [item.feed if isinstance(item, Filler) else item for item in made]
        assert len({(first, epoch) for _, first, epoch in items}) == 1
        told = [places(host.up.position(), host.lanes) for host in hosts]
        every = partial(chain.from_iterable, told)
        wholes = [scattered(host.up.position(), every).cursor for host in hosts]
        wholes = [{**each, "position": gathered(each["position"])} for each in wholes]
        assert all(json.dumps(each) == json.dumps(wholes[0]) for each in wholes)
        yield (
            joined([feed for feed, *_ in items], shares),
            json.loads(json.dumps(sealed(wholes[0]))),
        )
    for host in hosts:
        host.up.close()


def joined(feeds, shares):
    def whole(*columns):
        out = np.zeros((shares[0].size, *columns[0].shape[1:]), columns[0].dtype)
        for column, share in zip(columns, shares, strict=True):
            out[share.rows()] = column
        return out.tolist()

    return map_tree(whole, *feeds)


def alone(pipeline, last):
    found = []
    with pipeline.load(sharding="host", last=last).epoch(0) as feeds:
        for feed in feeds:
            found.append((map_tree(np.ndarray.tolist, feed), json.loads(json.dumps(feeds.cursor))))
            if len(found) == MOST:
                break
    return found


ENDS = ["drop", "pad", "wrap"]


@pytest.mark.parametrize("last", ENDS)
@pytest.mark.parametrize("hosts", [1, 2, 4, 8])
def test_hosts_together_give_what_one_gives(hosts, last):
    pipeline = stream().batch(8)
    expected = alone(pipeline, last)
    assert len(expected) > 3
    found = list(together(pipeline, even(8, hosts), last))
    assert [feed for feed, _ in found] == [feed for feed, _ in expected]
    assert [cursor for _, cursor in found] == [cursor for _, cursor in expected]


@pytest.mark.parametrize("last", few(ENDS, ["drop"]))
def test_eight_hosts_go_on_as_four_and_these_as_sixteen_at_every_stop(last):
    pipeline = stream(range(1, 60), lanes=16).batch(16)
    expected = [feed for feed, _ in alone(pipeline, last)]
    on_eight = list(together(pipeline, even(16, 8), last))
    assert [feed for feed, _ in on_eight] == expected
    for step, (_, cursor) in enumerate(on_eight, 1):
        on_four = list(together(pipeline, even(16, 4), last, cursor))
        assert [feed for feed, _ in on_four] == expected[step:]
        if on_four:
            more = len(on_four) // 2
            rest = list(together(pipeline, even(16, 16), last, on_four[more][1]))
            assert [feed for feed, _ in rest] == expected[step + more + 1 :]


@examples(50)
@given(in_lanes, st.integers(1, 3), st.sampled_from(ENDS), st.data())
def test_any_plan_in_lanes_is_the_same_on_any_hosts(recipe, each, last, data):
    plan = Pipeline(recipe.build()).map(lambda sample: hash(repr(sample)) % 1000)
    lanes = lanes_of(plan)
    pipeline, size = plan.batch(lanes * each), lanes * each
    hosts = data.draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
    try:
        expected = alone(pipeline, last)
    except ReaderError:  # an empty lane cannot wrap
        return
    try:
        found = list(together(pipeline, even(size, hosts), last))
    except ReaderError as error:  # nor does it say which shape its rows have
        if "none of the lanes" in str(error) and last == "pad":
            return
        if not expected and "has no samples" in str(error) and last == "wrap":
            return  # a process cannot know that the lanes of the others are empty too
        raise
    assert found == expected
    if found:
        step = data.draw(st.integers(1, len(found)))
        other = data.draw(st.sampled_from([n for n in range(1, lanes + 1) if lanes % n == 0]))
        try:
            shares, cursor = even(size, other), found[step - 1][1]
            rest = list(together(pipeline, shares, last, cursor, MOST - step))
        except ReaderError as error:
            if "none of the lanes" in str(error) and last == "pad":
                return
            raise
        assert rest == found[step:]


def test_a_host_opens_only_the_files_of_its_lanes():
    opened = []

    def noted(file):
        opened.append(int(file))
        yield from samples(file)

    pipeline = Pipeline(source(list(range(1, 17)))).read(noted, lanes=4).batch(4)
    for number, share in enumerate(even(4, 4)):
        opened.clear()
        list(together(pipeline, [share], "drop"))
        assert opened
        assert {(file - 1) % 4 for file in opened} == {number}


@pytest.mark.parametrize("last", ENDS)
def test_parts_of_one_file_are_shared_by_hosts_and_resumed_at_every_stop(tmp_path, last):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"n": n, "more": "x" * (n % 13)}) for n in range(60)))
    parts = files(path, parts=16).shuffle(seed=0)
    pipeline = parts.read(jsonl, lanes=4).map(lambda sample: sample["n"]).batch(8)
    expected = alone(pipeline, last)
    found = list(together(pipeline, even(8, 4), last))
    assert found == expected
    for step, (_, cursor) in enumerate(found, 1):
        assert list(together(pipeline, even(8, 2), last, cursor)) == expected[step:]


def test_rows_may_lie_apart_and_belong_to_several_hosts():
    pipeline = stream().batch(8)
    expected = [feed for feed, _ in alone(pipeline, "pad")]
    shares = [Share(8, ((0, 3), (6, 7))), Share(8, ((2, 6),)), Share(8, ((7, 8),))]
    assert [feed for feed, _ in together(pipeline, shares, "pad")] == expected


def test_what_looks_at_whole_batches_is_read_whole():
    share = even(8, 2)[0]
    assert dealt_to(stream().batch(8), share) is not None
    assert dealt_to(stream().batch(8).prefetch(2), share) is not None
    assert dealt_to(stream().batch(8).map_batches(lambda columns: columns), share) is None
    assert dealt_to(stream().cache().batch(8), share) is None
