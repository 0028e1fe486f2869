"""Weights of a mixture change while the loop runs: what brute force deals, after any changes."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from played_hosts import even, feeds_of_loader, joined
from together import processes
from widths import examples

from jreader import NotResumable, Pipeline, ReaderError, arrays, at_epoch, mix, read
from jreader.loaders.multihost.agreement import Agreement
from jreader.orders.turns import Turns

NAMES = ("web", "code", "math")


def rows(source, many=70):
    return arrays(of=np.full(many, source), n=np.arange(many))


def stream(source, many=70):
    return lambda: ({"of": np.int64(source), "n": np.int64(n)} for n in range(many))


def documents(source, many=70):
    """Documents of lengths from 1 to 9, whose tokens say which they are."""
    return lambda: (np.full(1 + n * 7 % 9, 1000 * source + n) for n in range(many))


def shuffled(source, many=70):
    return Pipeline(rows(source, many)).shuffle(seed=source)


def lanes(source, many=70):
    """A stream in two lanes, which the mixture reads in turn."""
    parts = [(source, first, many) for first in (0, 1)]
    return Pipeline(read(in_part, lambda: parts, lanes=2))


def in_part(part):
    source, first, many = part
    return [{"of": np.int64(source), "n": np.int64(n)} for n in range(first, many, 2)]


def not_every_third(sample):
    return sample["n"] % 3 > 0


ABOVE = {
    "nothing": lambda mixed: mixed,
    "a map on threads": lambda mixed: mixed.map(dict, threads=2),
    "prefetch": lambda mixed: mixed.prefetch(5),
    "a filter": lambda mixed: mixed.filter(not_every_third),
    "a filter, prefetched": lambda mixed: mixed.filter(not_every_third).prefetch(3),
    "a shuffle buffer": lambda mixed: mixed.shuffle(20, seed=3),
    "two buffers": lambda mixed: mixed.shuffle(7, seed=3).map(dict, threads=2).shuffle(11, seed=4),
    "packs": lambda mixed: mixed.pack(24, window=16, seed=5),
    "windows": lambda mixed: mixed.windows(5),
    "buffers of windows": lambda mixed: mixed.windows(5).shuffle(9, seed=6),
}
INDEXED = ["nothing", "a map on threads", "prefetch", "a filter", "a filter, prefetched"]
OF_DOCUMENTS = ["packs", "windows", "buffers of windows"]
CASES = [
    *((rows, above) for above in INDEXED),
    *((shuffled, above) for above in INDEXED),
    *((stream, above) for above in ABOVE if above not in OF_DOCUMENTS),
    *((lanes, above) for above in ABOVE if above not in OF_DOCUMENTS),
    *((documents, above) for above in OF_DOCUMENTS),
]


def loader(make, above="nothing", weights=(1, 1, 1), *, size=4, mixed=None, **options):
    sources = {name: make(number) for number, name in enumerate(NAMES)}
    mixed = mixed or mix(sources, list(weights), seed=0, stop="repeat")
    return ABOVE[above](Pipeline(mixed)).batch(size).load(sharding="host", **options)


def lists(feed):
    feed = feed if isinstance(feed, dict) else {"tokens": feed}
    return {name: column.tolist() for name, column in feed.items()}


def dealt(make, changes):
    """The samples of a mixture by brute force: turn by turn, each source one after another."""
    sources = [samples_of(make(number)) for number in range(len(NAMES))]
    seeds = 1 + (make is shuffled)
    for (begin, weights), (end, _) in zip(changes, [*changes[1:], (3000, None)], strict=True):
        active = [source for source, weight in enumerate(weights) if weight]
        turns = Turns([weights[source] for source in active])
        which = turns.at(np.arange(end - begin), (0, 0, seeds, begin))[0] if end > begin else ()
        for source in (active[each] for each in which):
            yield next(sources[source])


def samples_of(source):
    """Those of its epochs, one after another."""
    for epoch in count():
        yield from at_epoch(source, epoch)()


def by_brute_force(make, above, changes, steps):
    mixed = Pipeline(mix([lambda: dealt(make, changes)], seed=0))  # as many seeds below buffers
    plan = ABOVE[above](mixed).batch(4).load(sharding="host")
    return [lists(feed) for feed in islice(plan, steps)]


weights_of = st.lists(st.sampled_from([0, 1, 2, 5]), min_size=3, max_size=3).filter(any)
events = st.lists(st.tuples(st.integers(0, 5), weights_of, st.booleans()), max_size=4)


@given(st.sampled_from(CASES), events, st.integers(0, 3))
@examples(60)
def test_changes_and_kills_give_what_brute_force_deals(case, script, capacity):
    """After some steps, other weights; and perhaps another process that goes on from a cursor."""
    make, above = case
    feeds, got, changes = loader(make, above, capacity=capacity).steps(), [], [(0, (1, 1, 1))]
    for steps, weights, killed in script:
        got += [lists(next(feeds)) for _ in range(steps)]
        changes.append((feeds.set_weights(weights), weights))
        if killed:
            cursor = json.loads(json.dumps(feeds.cursor))
            feeds = loader(make, above, capacity=3 - capacity).steps(at=cursor)
    got += [lists(next(feeds)) for _ in range(8)]
    assert got == by_brute_force(make, above, changes, len(got))


@given(st.sampled_from(CASES), st.integers(0, 6), weights_of)
@examples(30)
def test_the_sample_of_a_change_follows_from_the_step_alone(case, steps, weights):
    """It is the same after a kill, for any number of prefetched feeds."""
    make, above = case
    turns = set()
    for capacity in (0, 4):
        feeds = loader(make, above, capacity=capacity).steps()
        for _ in range(steps):
            next(feeds)
        again = loader(make, above, capacity=capacity).steps(at=feeds.cursor)
        turns |= {feeds.set_weights(weights), again.set_weights(weights)}
    assert len(turns) == 1


@given(st.sampled_from(CASES), st.lists(st.integers(0, 4), min_size=1, max_size=4))
@examples(20)
def test_a_cursor_of_any_step_goes_on_the_same(case, gaps):
    make, above = case
    feeds, cursors, got = loader(make, above).steps(), [], []
    for number, gap in enumerate([*gaps, 4]):
        for _ in range(gap):
            cursors.append(feeds.cursor)
            got.append(lists(next(feeds)))
        feeds.set_weights([1 + number, 1, 0] if number % 2 else [0, 1, 4])
    for step, cursor in enumerate(cursors):
        before = sum(np.cumsum(gaps) <= step)
        rest = loader(make, above).steps(at=cursor)
        known = [lists(next(rest)) for _ in range(sum(gaps[: before + 1]) - step)]
        assert known == got[step : step + len(known)]


LONG = (400, 300, 200)


def finite(make, weights=(8, 1, 1), at=None, stop="first", seed=0, **options):
    sources = {name: make(*pair) for name, pair in zip(NAMES, enumerate(LONG), strict=True)}
    mixed = mix(sources, list(weights), at=at, seed=seed, stop=stop)
    return Pipeline(mixed).batch(10).load(sharding="host", **options)


def took(feeds, steps=None):
    return [lists(feed) for feed in islice(feeds, steps)]


def share_of(source, feeds):
    return np.mean([of == source for feed in feeds for of in feed["of"]])


BY_NAME = {"web": 1, "code": 0, "math": 9}


@pytest.mark.parametrize("make", [rows, stream])
@pytest.mark.parametrize("stop", ["first", "all"])
def test_it_is_what_a_resume_with_other_weights_gives(make, stop):
    feeds = finite(make, stop=stop).epoch(0)
    took(feeds, 5)
    cursor = feeds.cursor
    assert feeds.set_weights(BY_NAME) == 50
    rest = took(feeds)
    assert rest == took(finite(make, [1, 0, 9], stop=stop).epoch(0, at=cursor))
    assert share_of(2, rest[:10]) == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("make", [rows, stream])
def test_later_epochs_have_the_new_weights_until_they_change_again(make):
    run = finite(make)
    feeds = iter(run)
    took(feeds, 3)
    feeds.set_weights(BY_NAME)
    first = took(feeds)
    assert run.peek()["of"].tolist() == took(finite(make, [1, 0, 9]).epoch(1), 1)[0]["of"]
    ended = run.state_dict()
    expected = took(finite(make, [1, 0, 9]).epoch(1))
    assert took(iter(run)) == expected
    again = finite(make)
    again.load_state_dict(json.loads(json.dumps(ended)))
    assert took(iter(again)) == expected
    endless = finite(make).steps()
    took(endless, 3)
    endless.set_weights(BY_NAME)
    assert took(endless, len(first)) == first
    assert took(endless, len(expected)) == expected
    cursor = endless.cursor
    assert took(finite(make).steps(at=cursor), 3) == took(endless, 3)
    assert took(run.epoch(1)) == took(finite(make).epoch(1))  # by its number, as it was written


@pytest.mark.parametrize("make", [rows, stream])
def test_before_the_first_feed_it_changes_the_whole_epoch(make):
    feeds = finite(make, at={100: [0, 1, 0]}).epoch(2)
    assert feeds.set_weights([1, 0, 9]) == 0
    assert took(feeds) == took(finite(make, [1, 0, 9]).epoch(2))


@pytest.mark.parametrize("make", [rows, stream])
def test_a_plan_with_other_weights_goes_on_with_those_and_an_equal_one_with_what_was_set(make):
    feeds = finite(make).epoch(0)
    took(feeds, 5)
    feeds.set_weights(BY_NAME)
    took(feeds, 5)
    cursor = feeds.cursor
    equal, other = finite(make).epoch(0, at=cursor), finite(make, [0, 1, 0]).epoch(0, at=cursor)
    assert took(equal) == took(feeds)
    assert share_of(1, took(other)) == 1


@pytest.mark.parametrize("make", [rows, stream])
def test_a_plan_without_seeds_may_change_too(make):
    feeds = finite(make, seed=None).epoch(0)
    before = took(feeds, 5)
    feeds.set_weights(BY_NAME)
    cursor, rest = feeds.cursor, took(feeds)
    assert took(finite(make, seed=None).epoch(0, at=cursor)) == rest
    every = [pair for feed in before + rest for pair in zip(feed["of"], feed["n"], strict=True)]
    assert len({*every}) == len(every)


def test_the_samples_of_every_step_are_known_before_and_after_a_change():
    run = finite(rows)
    feeds = iter(run)
    fed = took(feeds, 4)
    feeds.set_weights(BY_NAME)
    fed += took(feeds, 4)
    feeds.set_weights([1, 1, 1])
    later = [run.samples(step) for step in range(12)]
    fed += took(feeds, 4)
    for step, (feed, samples) in enumerate(zip(fed, later, strict=True)):
        names = [NAMES[of] for of in feed["of"]]
        assert samples.sources.tolist() == names, step
        assert (samples.rows["n"] - np.cumsum([0, *LONG])[feed["of"]]).tolist() == feed["n"]


@pytest.mark.parametrize("hosts", [2, 5])
def test_several_hosts_feed_what_one_does_after_changes(hosts):
    run = finite(rows)
    feeds = run.epoch(0)
    for weights in (BY_NAME, [1, 1, 1], [0, 0, 1]):
        took(feeds, 3)
        feeds.set_weights(weights)
    cursor = feeds.cursor
    shares = even(10, hosts)
    together = joined([feeds_of_loader(finite(rows), share, cursor) for share in shares], shares)
    alone = [(lists(feed), feeds.cursor) for feed in feeds]
    assert [feed for feed, _ in together] == [feed for feed, _ in alone]


def test_a_part_of_an_epoch_without_an_end_goes_on_with_what_was_set():
    for make in (rows, stream):
        options = {"stop": "repeat", "steps_per_epoch": 4}
        feeds = finite(make, **options).steps()
        took(feeds, 4)
        feeds.set_weights(BY_NAME)
        cursor, rest = feeds.cursor, took(feeds, 7)
        assert took(finite(make, **options).steps(at=cursor), 7) == rest
        assert share_of(2, rest) == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize("wrong", [[1, 1], {"web": 1}, {"wab": 1}, [0, 0, 0], 3])
def test_wrong_weights_change_nothing(wrong):
    feeds, same = finite(rows).epoch(0), finite(rows).epoch(0)
    took(feeds, 2), took(same, 2)
    with pytest.raises((TypeError, ValueError), match="set_weights"):
        feeds.set_weights(wrong)
    assert took(feeds) == took(same)


@pytest.mark.parametrize(
    "plan",
    [
        Pipeline(rows(0)),
        Pipeline(mix([rows(0), rows(1)], seed=0)).shuffle(seed=1),
        Pipeline(mix([rows(0), rows(1)], seed=0)).firstn(40),
        Pipeline(mix([stream(0), stream(1)], seed=0)).cache(),
        Pipeline(mix([stream(0), stream(1)], seed=0)).epochs(2),
        Pipeline(mix([stream(0), stream(1)], seed=0)).chain(stream(2)),
    ],
)
def test_plans_without_a_mixture_to_change_are_refused(plan):
    feeds = iter(plan.batch(4).load(sharding="host"))
    with pytest.raises(TypeError, match="shuffle, shard or pack the readers of the mix instead"):
        feeds.set_weights([1, 2])


def test_what_cannot_be_changed_is_refused_by_what_to_type():
    once = finite(rows, stop="once").epoch(0)
    with pytest.raises(ValueError, match="another stop"):
        once.set_weights(BY_NAME)
    ended = finite(rows).epoch(0)
    took(ended)
    with pytest.raises(RuntimeError, match="before the first feed of the next epoch"):
        ended.set_weights(BY_NAME)
    mixed = Pipeline(mix([rows(0), rows(1)], seed=0)).batch(4)
    with pytest.raises(NotResumable, match="leave resident=True out"):
        iter(mixed.load(resident=True)).set_weights([1, 2])
    feeds = finite(rows).epoch(0)
    took(feeds, 2)
    feeds.set_weights(BY_NAME)
    with pytest.raises(ValueError, match=r"loader\.steps\(at=cursor\)"):
        feeds.seek(1)


def test_weights_may_be_losses_that_a_step_returned():
    """Scalars of jax, and of NumPy, in any dtype that is a number."""
    feeds, others = loader(rows).steps(), loader(rows).steps()
    given = {"web": jnp.float32(0.5), "code": np.float16(0.25), "math": jnp.int32(1)}
    assert feeds.set_weights(given) == others.set_weights([0.5, 0.25, 1]) == 0
    assert lists(next(feeds)) == lists(next(others))
    feeds.set_weights(jnp.array([0.5, 0.25, 0.0]))
    others.set_weights([0.5, 0.25, 0])
    assert lists(next(feeds)) == lists(next(others))


def test_weights_change_in_the_thread_of_the_loop_alone():
    """Another one would take feeds away, or double them."""
    feeds = loader(rows).steps()
    next(feeds)
    with (
        ThreadPoolExecutor(1) as other,
        pytest.raises(RuntimeError, match=r"another thread .*between two feeds"),
    ):
        other.submit(feeds.set_weights, [1, 0, 0]).result()
    assert feeds.set_weights([1, 0, 0]) == 4


def test_where_ops_hold_samples_a_resume_with_other_weights_is_refused_as_ever():
    feeds = loader(stream, "a shuffle buffer").steps()
    next(feeds)
    feeds.set_weights([1, 0, 0])
    with pytest.raises(NotResumable, match="another plan"):
        loader(stream, "a shuffle buffer", [1, 0, 0]).steps(at=feeds.cursor)


def test_a_hundred_changes_are_some_kilobytes_in_a_cursor():
    feeds, sizes = loader(rows).steps(), []
    for number in range(101):
        next(feeds)
        sizes.append(len(json.dumps(feeds.cursor)))
        feeds.set_weights([1 + number % 3, 1, 1 + number % 2])
    assert sizes[100] - sizes[1] < 60 * 100


def test_processes_that_set_other_weights_at_one_step_stop_before_its_feed(board):
    def after(weights):
        feeds = finite(rows).epoch(0)
        took(feeds, 3)
        feeds.set_weights(weights)
        return feeds.cursor

    mine, same, other = after(BY_NAME), after([1, 0, 9]), after([1, 1, 9])
    Agreement(board(0, processes=range(3)), mine, 1)
    Agreement(board(1, processes=range(3)), same, 1)
    with pytest.raises(ReaderError, match=r"line 1 is .*,\[1,0,9\],.* here .*,\[1,1,9\],"):
        Agreement(board(2, processes=range(3)), other, 1)


FOUR = (*NAMES, "news")


def of_names(make, names, weights=None, size=10, **options):
    """A mixture of some of four readers, each of which says which one it is."""
    known = {name: make(number, 90 * (4 - number)) for number, name in enumerate(FOUR)}
    known["news"] = Pipeline(known["news"]).shuffle(5, seed=3).shuffle(9, seed=4)
    mixed = mix({name: known[name] for name in names}, weights, **{"seed": 0, **options})
    return Pipeline(mixed).batch(size).load(sharding="host")


def of_source(source, feeds):
    return [
        n
        for feed in feeds
        for of, n in zip(feed["of"], feed["n"], strict=True)
        if FOUR[of] == source
    ]


OTHERS = pytest.mark.filterwarnings("ignore:this run resumes with other readers in its mix")
SOME = st.lists(st.sampled_from(FOUR), min_size=1, unique=True)


@OTHERS
@given(st.sampled_from([rows, stream]), st.lists(SOME, min_size=2, max_size=5), st.booleans())
@examples(30)
def test_readers_come_and_go_by_name_where_a_run_resumes(make, script, killed):
    """Each goes on where it is; one that was dropped and comes back begins anew."""
    orders = {name: of_source(name, took(of_names(make, [name]).epoch(0))) for name in FOUR}
    given, cursor = dict.fromkeys(FOUR, 0), None
    for names in script:
        feeds = of_names(make, names).epoch(0, at=cursor)
        if killed:
            feeds = of_names(make, names).epoch(0, at=json.loads(json.dumps(feeds.cursor)))
        fed = took(feeds, 2)
        for name in FOUR:
            mine, done = of_source(name, fed), given[name] if name in names else 0
            assert mine == orders[name][done : done + len(mine)]
            assert abs(len(mine) - 20 / len(names) * (name in names)) <= 3
            given[name] = done + len(mine)
        cursor = json.loads(json.dumps(feeds.cursor))


@OTHERS
@pytest.mark.parametrize("make", [rows, stream])
def test_readers_may_change_after_weights_did_and_before(make):
    feeds = of_names(make, NAMES).epoch(0)
    took(feeds, 4)
    feeds.set_weights({"web": 1, "code": 3, "math": 0})
    took(feeds, 4)
    more = of_names(make, FOUR[::-1], {"web": 1, "code": 1, "math": 1, "news": 7})
    feeds = more.epoch(0, at=feeds.cursor)
    assert len(of_source("news", took(feeds, 2))) in range(12, 17)
    feeds.set_weights({"web": 0, "code": 0, "math": 1, "news": 0})
    cursor = feeds.cursor
    rest = took(feeds, 3)
    assert of_source("math", rest) == list(range(of_source("math", rest)[0], 90 * 2))[:30]
    again = of_names(make, FOUR[::-1], {"web": 1, "code": 1, "math": 1, "news": 7})
    assert took(again.epoch(0, at=cursor), 3) == rest


@OTHERS
def test_samples_are_known_from_the_step_on_at_which_readers_changed():
    feeds = of_names(rows, NAMES).epoch(0)
    took(feeds, 5)
    run = of_names(rows, ["web", "news"])
    feeds = run.epoch(0, at=feeds.cursor)
    fed = took(feeds, 2)
    assert run.samples(6).sources.tolist() == [FOUR[of] for of in fed[1]["of"]]
    with pytest.raises(ValueError, match=r"before number 50 .* other readers"):
        run.samples(4)


def test_a_resume_warns_of_readers_that_came_and_went_and_not_of_their_order():
    feeds = of_names(rows, NAMES).epoch(0)
    took(feeds, 2)
    of_names(rows, NAMES[::-1]).epoch(0, at=feeds.cursor)
    with pytest.warns(UserWarning, match="reader 'math' not read any more; reader 'news' new"):
        of_names(rows, ["web", "code", "news"]).epoch(0, at=feeds.cursor)


def test_readers_that_are_not_what_they_were_are_refused_by_name():
    feeds = of_names(rows, NAMES).epoch(0)
    took(feeds, 2)
    sources = {"web": rows(0, 360), "code": Pipeline(rows(1, 270)).shuffle(seed=1)}
    other = Pipeline(mix(sources, seed=0)).batch(10).load(sharding="host")
    with pytest.raises(
        NotResumable, match=r"reader 'code': arrays.* here it is reader 'code': .*sh"
    ):
        other.epoch(0, at=feeds.cursor)
    for seed, stop in ((1, "first"), (0, "all")):
        with pytest.raises(NotResumable, match="another plan"):
            of_names(rows, FOUR, seed=seed, stop=stop).epoch(0, at=feeds.cursor)


@pytest.mark.parametrize("make", [rows, stream])
def test_readers_of_a_plan_that_draws_its_seeds_stay_what_they_are(make):
    feeds = of_names(make, NAMES, seed=None).epoch(0)
    took(feeds, 2)
    with pytest.raises(NotResumable, match="another plan, whose line"):
        of_names(make, FOUR, seed=None).epoch(0, at=feeds.cursor)


@OTHERS
def test_with_every_sample_once_readers_stay_what_they_are():
    feeds = of_names(rows, NAMES, stop="once").epoch(0)
    took(feeds, 2)
    with pytest.raises(NotResumable, match="weights and readers of mix may change"):
        of_names(rows, FOUR, stop="once").epoch(0, at=feeds.cursor)


@OTHERS
@pytest.mark.parametrize("steps", range(1, 9))
def test_a_new_reader_with_more_seeds_moves_no_other_one(steps):
    """Orders have the number of seeds below as a key, and that was another one up to here."""
    weights = {"web": 5, "code": 3, "math": 1}
    feeds = of_names(rows, NAMES, weights, size=7).epoch(0)
    before = took(feeds, steps)
    feeds = of_names(rows, FOUR, {**weights, "news": 4}, size=7).epoch(0, at=feeds.cursor)
    after = took(feeds, 8)
    for name in NAMES:
        given = of_source(name, before + after)
        assert given == list(range(len(given)))


@pytest.mark.filterwarnings("ignore:the data of this pipeline")  # it has counted
def test_a_change_reads_only_what_the_next_batch_needs():
    read = 0

    def counting():
        nonlocal read
        for sample in stream(0, 1000)():
            read += 1
            yield sample

    mixed = Pipeline(mix([counting, stream(1)], seed=0)).filter(not_every_third).prefetch(500)
    feeds = mixed.batch(4).load(sharding="host", capacity=0).epoch(0)
    next(feeds)
    feeds.close()
    feeds = mixed.batch(4).load(sharding="host", capacity=0).epoch(0, at=feeds.cursor)
    read = 0
    turn = feeds.set_weights([1, 3])
    assert 0 < read <= 2 * turn < 40


def test_the_steps_of_a_sample_are_found_before_and_after_changes():
    run, asked = finite(rows), list(range(0, 200, 7))
    feeds = iter(run)
    fed = took(feeds, 4)
    feeds.set_weights(BY_NAME)
    fed += took(feeds, 4)
    feeds.set_weights([1, 1, 1])
    fed += took(feeds, 4)
    cursor = feeds.cursor
    of_math = [[n if of == 2 else -1 for of, n in zip(*feed.values(), strict=True)] for feed in fed]
    held = [
        (n, 0, step, row)
        for n in asked
        for step, every in enumerate(of_math)
        for row, each in enumerate(every)
        if each == n
    ]
    assert list(run.where(asked, source="math", until=cursor)) == held
    took(feeds)
    feeds = iter(run)
    fed = took(feeds, 3)
    found = run.where(asked, source="code", epochs=[1], until=feeds.cursor)
    assert [
        (n, 1, step, row)
        for n in asked
        for step, feed in enumerate(fed)
        for row, (of, each) in enumerate(zip(*feed.values(), strict=True))
        if (of, each) == (1, n)
    ] == list(found)


GROWING = {0: 4, 3: 8, 6: 12}


@pytest.mark.parametrize("make", [rows, stream])
def test_batches_may_grow_meanwhile(make):
    def grows():
        sources = {name: make(number, 400) for number, name in enumerate(NAMES)}
        return Pipeline(mix(sources, seed=0)).batch(GROWING).load(sharding="host")

    feeds = grows().epoch(0)
    took(feeds, 2)
    assert feeds.set_weights(BY_NAME) == 8
    took(feeds, 3)
    assert feeds.set_weights([1, 1, 1]) == 12 + 2 * 8
    cursor = feeds.cursor
    assert took(feeds, 4) == took(grows().epoch(0, at=cursor), 4)


STEERED = """
import os
from jreader import Pipeline, arrays, mix

def rows(source):
    return arrays(n=np.arange(source * 1000, source * 1000 + 400))

def stream(source):
    return lambda: ({"n": np.int64(n)} for n in range(source * 1000, source * 1000 + 400))

mesh = jax.make_mesh((many * devices,), ("data",)) if many > 1 else None
said = []
for make in (rows, stream):
    for hold in (False, True):
        mixed = Pipeline(mix({"web": make(0), "code": make(1)}, seed=0))
        if hold: mixed = mixed.filter(lambda sample: sample["n"] % 3).shuffle(20, seed=1)
        try:
            feeds = mixed.batch(8).load(sharding=mesh).epoch(0)
            turns, mine = [], []
            for feed in feeds:
                shards = feed["n"].addressable_shards
                mine.append([[shard.index[0].start or 0, shard.data.tolist()] for shard in shards])
                if feeds.step in (3, 7):
                    turns.append(feeds.set_weights({"web": 1, "code": feeds.step % 5}))
                if feeds.step == 12: break
            said.append([turns, mine])
        finally:
            feeds.close()
failed = ""
mixed = Pipeline(mix({"web": rows(0), "code": rows(1)}, seed=0))
feeds = mixed.batch(8).load(sharding=mesh).epoch(0)
next(feeds)
if many > 1:
    try:
        feeds.set_weights({"web": 1 + me, "code": 1})
        next(feeds)
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"
    feeds.close()
said.append(failed)
say(said)
"""


@pytest.mark.slow
def test_real_processes_feed_what_one_does_and_notice_other_weights():
    (alone,) = processes(STEERED, 1)
    together = processes(STEERED, 2)
    for number, (turns, fed) in enumerate(alone[:-1]):
        assert [each[number][0] for each in together] == [turns] * 2
        for step, (whole,) in enumerate(fed):
            parts = sorted(part for each in together for part in each[number][1][step])
            assert [n for _, part in parts for n in part] == whole[1]
    assert any("told: " in each[-1] or "stopped" in each[-1] for each in together)
