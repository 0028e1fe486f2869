"""Batches that grow at steps: slices of the samples, from every cursor, on any number of hosts."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from played_hosts import feeds_of_loader
from seen import through_json

from jreader import (
    BatchNotDivisible,
    DataLoader,
    NotResumable,
    Pipeline,
    Processes,
    ShortEpoch,
    arrays,
    batch,
    padded_batch,
    read,
)
from jreader.feeds.shares import Share
from jreader.loaders import as_function
from jreader.readers import length, start

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

growing = st.builds(
    lambda first, later: dict(sorted({0: first, **later}.items())),
    st.integers(1, 6),
    st.dictionaries(st.integers(1, 7), st.integers(1, 6), min_size=1, max_size=3),
)
counts = st.integers(1, 60)


def size_at(by_step, step):
    return by_step[max(each for each in by_step if each <= step)]


def slices(samples, by_step):
    """What a loop would write: the slices of one step after another."""
    found, begin = [], 0
    while begin < len(samples):
        size = size_at(by_step, len(found))
        found.append(samples[begin : begin + size])
        begin += size
    return found


def full(made, by_step):
    return [each for step, each in enumerate(made) if len(each) == size_at(by_step, step)]


def gathered(count):
    return Pipeline(arrays(np.arange(count))).shuffle(seed=3)


def mapped(count):
    return gathered(count).map(lambda n: int(n) + 1)


def drawn(count):
    return gathered(count).map(
        lambda n, rng: int(n) * 999 + int(rng.integers(999)), rng=True, seed=5
    )


def streamed(count):
    return Pipeline(lambda: range(count)).filter(lambda n: n % 7 != 3).shuffle(4, seed=1)


PLANS = [gathered, mapped, drawn, streamed]


@pytest.mark.parametrize("plan", PLANS)
@given(count=counts, by_step=growing, drop_last=st.booleans())
@settings(max_examples=30, deadline=None)
def test_batches_are_slices_of_the_samples_from_every_position(plan, count, by_step, drop_last):
    batches, expected = plan(count).batch(by_step, drop_last), slices(list(plan(count)()), by_step)
    expected = full(expected, by_step) if drop_last else expected
    up = start(batches)
    for step, made in enumerate(up.items):
        assert list(made) == expected[step]
        rest = start(batches, through_json(up.position()))
        assert [list(each) for each in rest.items] == expected[step + 1 :]
    if plan is not streamed:
        assert length(batches) == len(expected)
        assert [list(batches[step]) for step in range(len(expected))] == expected


@pytest.mark.parametrize("plan", PLANS)
@given(count=counts, by_step=growing, last=st.sampled_from(["drop", "pad", "keep"]))
@settings(max_examples=20, deadline=None)
def test_feeds_resume_at_every_step(plan, count, by_step, last):
    made = slices([int(each) for each in plan(count)()], by_step)
    made = full(made, by_step) if last == "drop" else made
    feeds = plan(count).batch(by_step).load(sharding="host", last=last).epoch(0)
    for step, expected in enumerate(made):
        assert given_of(next(feeds), last, size_at(by_step, step)) == expected
        loader = plan(count).batch(by_step).load(sharding="host", last=last)
        rest = loader.epoch(0, at=through_json(feeds.cursor))
        assert rest.step == step + 1
        rests = [given_of(feed, last) for feed in rest]
        assert rests == made[step + 1 :]
    assert next(feeds, None) is None


def given_of(feed, last, size=None):
    """The samples of a feed that its mask shows, of a feed with so many rows."""
    if last != "pad":
        return feed.tolist()
    feed, mask = feed
    assert size is None or len(feed) == len(mask) == size
    return feed[mask].tolist()


@given(count=counts, by_step=growing, last=st.sampled_from(["drop", "pad", "keep"]))
@settings(max_examples=25, deadline=None)
def test_every_step_is_found_by_its_number(count, by_step, last):
    made = slices(list(range(count)), by_step)
    made = full(made, by_step) if last == "drop" else made
    loader = mapped(count).batch(by_step).load(sharding="host", last=last)
    assert len(loader) == len(made)
    walked = loader.epoch(0)
    for step, places in enumerate(made):
        assert loader.samples(step, 0).places.tolist() == places
        assert loader.epoch(0, start=step).cursor == walked.cursor
        next(walked)
    if len(made) > 1:
        walked.seek(1)
        assert loader.samples(0).places.tolist() == made[0]  # of the pass under way
        assert loader.samples(1).places.tolist() == made[1]


@given(
    count=counts, by_step=growing, last=st.sampled_from(["drop", "pad"]), hosts=st.integers(2, 3)
)
@settings(max_examples=25, deadline=None)
def test_hosts_read_their_rows_of_batches_of_every_size(count, by_step, last, hosts):
    by_step = {step: size * hosts for step, size in by_step.items()}
    batches = Pipeline(arrays(n=np.arange(count))).shuffle(seed=3).map(dict).batch(by_step)
    alone = [feed["n"].tolist() for feed in batches.load(sharding="host", last=last)]

    def played(host, cursor=None):
        shares = tuple(
            Share(size, ((host * size // hosts, (host + 1) * size // hosts),))
            for size in {*by_step.values()}
        )
        loader = batches.load(sharding="host", last=last)
        return feeds_of_loader(loader, None, cursor, shares=shares)

    def together(cursor=None):
        """The global feeds, and the cursors after them."""
        for each in zip(*(played(host, cursor) for host in range(hosts)), strict=True):
            feeds, _, cursors = zip(*each, strict=True)
            assert all(cursor == cursors[0] for cursor in cursors)
            yield np.concatenate([feed["n"] for feed in feeds]).tolist(), cursors[0]

    made = [*together()]
    assert [feed for feed, _ in made] == alone
    for step, (_, cursor) in enumerate(made):
        assert [feed for feed, _ in together(cursor)] == alone[step + 1 :]


@pytest.mark.parametrize("plan", PLANS)
@given(count=counts, by_step=growing, size=st.integers(1, 6), steps=st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_runs_of_one_size_go_on_with_growing_batches_and_back(plan, count, by_step, size, steps):
    samples = [int(each) for each in plan(count)()]
    begins = [0]  # the sample at which batches have each size
    for step, later in zip([*by_step], [*by_step][1:], strict=False):
        begins.append(begins[-1] + (later - step) * by_step[step])
    feeds = plan(count).batch(size).load(sharding="host", last="keep").epoch(0)
    for _ in range(steps):
        if next(feeds, None) is None:
            return
    cursor, done = through_json(feeds.cursor), min(steps * size, len(samples))
    grown = plan(count).batch(by_step).load(sharding="host", last="keep").epoch(0, at=cursor)
    for feed in grown:
        wanted = [*by_step.values()][max(n for n, begin in enumerate(begins) if begin <= done)]
        assert feed.tolist() == samples[done : done + wanted]
        done += len(feed)
        back = plan(count).batch(size).load(sharding="host", last="keep")
        rest = back.epoch(0, at=through_json(grown.cursor))
        assert [n for each in rest for n in each.tolist()] == samples[done:]
    assert done == len(samples)


@pytest.mark.parametrize("plan", PLANS)
def test_a_run_over_epochs_below_the_batches_is_one_schedule(plan):
    run = plan(20).epochs().batch({0: 4, 3: 16}).load(sharding="host").steps(6)
    assert [len(feed) for feed in run] == [4, 4, 4, 16, 16, 16]


def test_every_epoch_of_a_loader_begins_at_step_0():
    feeds = gathered(12).batch({0: 4, 1: 8}).load(sharding="host").steps(4)
    assert [len(feed) for feed in feeds] == [4, 8, 4, 8]


@pytest.mark.parametrize("last", ["drop", "pad", "wrap"])
@given(count=counts, by_step=growing, steps=st.integers(1, 9))
@settings(max_examples=20, deadline=None)
def test_epochs_have_the_steps_that_were_asked_for(last, count, by_step, steps):
    loader = gathered(count).batch(by_step).load(sharding="host", last=last, steps_per_epoch=steps)
    wanted = sum(size_at(by_step, step) for step in range(steps))
    samples = list(gathered(count)())
    if last == "wrap":
        samples = samples * -(-wanted // count)
    least = wanted - (size_at(by_step, steps - 1) - 1 if last == "pad" else 0)
    if len(samples) < least:
        with pytest.raises(ShortEpoch):
            list(loader.epoch(0))
        return
    made = [given_of(feed, last) for feed in loader.epoch(0)]
    assert made == slices(samples[:wanted], by_step)
    assert len(loader) == steps


@given(count=counts, by_step=growing)
@settings(max_examples=20, deadline=None)
def test_a_last_step_is_filled_up_with_the_first_samples(count, by_step):
    made = [
        feed.tolist() for feed in gathered(count).batch(by_step).load(sharding="host", last="wrap")
    ]
    assert full(made, by_step) == made
    samples = list(gathered(count)())
    seen = [n for each in made for n in each]
    assert seen[:count] == samples
    assert seen[count:] == (samples * 7)[: len(seen) - count]
    assert len(made) == len(slices(samples, by_step))


@pytest.mark.parametrize("by_step", [{0: 3, 1: 7, 2: 8}, {0: 8, 1: 2}])
def test_an_epoch_whose_last_step_was_filled_up_has_ended(by_step):
    plan = gathered(5).batch(by_step)
    feeds = plan.load(sharding="host", last="wrap").epoch(0)
    made = [next(feeds).tolist() for _ in slices(range(5), by_step)]
    loader, cursor = plan.load(sharding="host", last="wrap"), through_json(feeds.cursor)
    assert list(loader.epoch(0, at=cursor)) == []
    found = loader.where(range(5), until=cursor)
    assert [made[step][row] for _, _, step, row in found] == found.sample.tolist()
    assert len(found) == sum(map(len, made))


def test_workers_make_batches_of_every_size():
    batches = gathered(50).batch({0: 4, 3: 8})
    with Processes(2) as workers:
        made = [feed.tolist() for feed in batches.load(sharding="host", workers=workers)]
    assert made == [feed.tolist() for feed in batches.load(sharding="host")]


def test_all_shapes_of_an_epoch_are_known():
    def rows(loader):
        return [spec["n"].shape[0] for spec in loader.shapes()]

    plan = Pipeline(arrays(n=np.arange(50))).batch({0: 4, 3: 8, 90: 16})
    assert rows(plan.load()) == [4, 8]
    assert rows(plan.load(last="keep")) == [4, 8, 6]
    documents = Pipeline(lambda: ([n] for n in range(9))).padded_batch({0: 2, 1: 4}, to=[3])
    assert [spec["tokens"].shape for spec in documents.load().shapes()] == [(2, 3), (4, 3)]


def test_every_size_is_split_evenly_over_the_devices():
    mesh = jax.make_mesh((2,), ("data",))
    with pytest.raises(BatchNotDivisible, match="a batch of 7 samples"):
        gathered(50).batch({0: 4, 3: 7}).load(sharding=mesh)
    feeds = gathered(50).batch({0: 4, 3: 8}).load(sharding=mesh)
    assert [feed.shape for feed in feeds][2:4] == [(4,), (8,)]
    feeds = gathered(50).batch({0: 4, 3: 8}).load(pmap=jax.devices()[:2])
    assert [feed.shape for feed in feeds][2:4] == [(2, 2), (2, 4)]


class TestSteps:
    def test_that_are_left_out_are_those_of_the_same_sizes(self):
        loader = gathered(50).batch({0: 4, 3: 8}).load(sharding="host")
        feeds = loader.epoch(0, skip_steps=range(2, 4))
        seen = [next(feeds).tolist()]
        cursor = through_json(feeds.cursor)
        every = slices(list(gathered(50)()), {0: 4, 3: 8})
        assert seen + [feed.tolist() for feed in loader.epoch(0, at=cursor)] == [
            *every[:2],
            *every[4:7],
        ]
        with pytest.raises(NotResumable, match=r"of \{0: 4, 3: 8\} samples each"):
            gathered(50).batch({0: 4, 2: 8}).load().epoch(0, at=cursor)

    def test_before_a_change_of_sizes_are_asked_of_the_loader_that_made_them(self):
        feeds = gathered(50).batch({0: 4, 3: 8}).load().epoch(0)
        next(feeds)
        cursor = feeds.cursor
        other = gathered(50).batch({0: 2, 3: 8}).load()
        with other.epoch(0, at=cursor), pytest.raises(ValueError, match=r"\{0: 4, 3: 8\} samples"):
            other.samples(0)


class TestErrors:
    @pytest.mark.parametrize(
        ("sizes", "kind", "words"),
        [
            ({5: 2}, ValueError, r"none for step 0: type \{0: 2, ...\}"),
            ({}, ValueError, r"none for step 0: type \{0: 32, ...\}"),
            ({0: 2, 5: 0}, ValueError, "whole number of at least 1"),
            ({0: 2, -5: 3}, ValueError, "whole number of at least 0"),
            ({0: 2, 5: 2.5}, TypeError, "whole number of at least 1"),
            ({0: 2, "5": 3}, TypeError, "whole number of at least 0"),
            ([2, 3], TypeError, "whole number of at least 1"),
            (0, ValueError, "whole number of at least 1"),
        ],
    )
    def test_sizes_are_whole_numbers_by_step_from_0_on(self, sizes, kind, words):
        for make in (batch, padded_batch):
            with pytest.raises(kind, match=words):
                make(lambda: [[1]], sizes)

    def test_what_needs_one_size_says_so(self):
        plan = gathered(50).batch({0: 4, 3: 8})
        with pytest.raises(ValueError, match="several shapes"):
            plan.load().chunk(2)
        with pytest.raises(TypeError, match="several sizes"):
            plan.load(resident=True)
        with pytest.raises(TypeError, match="several sizes"):
            as_function(plan)
        with pytest.raises(ValueError, match="lanes=1, or one batch size"):
            batch(read(str.split, lambda: ["a b", "c d"], lanes=2), {0: 2, 3: 4})
        with pytest.raises(ValueError, match="last='pad'"):
            next(iter(streamed(50).batch({0: 4, 3: 8}).load(last="wrap")))
        with pytest.raises(ValueError, match="several shapes"):
            DataLoader.from_generator().set_sample_generator(
                gathered(50), {0: 4, 3: 8}, places=jax.devices()[:2]
            )

    def test_a_stream_that_goes_on_in_the_next_epoch_does_not_begin_to_grow(self):
        def endless():
            while True:
                yield from range(100)

        feeds = Pipeline(endless).batch(4).load(steps_per_epoch=3).steps(5)
        for _ in feeds:
            pass
        grown = Pipeline(endless).batch({0: 4, 9: 8}).load(steps_per_epoch=3)
        with pytest.raises(NotResumable, match="with one batch size"):
            next(grown.steps(9, at=feeds.cursor))
        sizes = [
            len(feed)
            for feed in Pipeline(endless).batch({0: 1, 5: 2}).load(steps_per_epoch=3).steps(7)
        ]
        assert sizes == [1] * 5 + [2] * 2


def test_one_size_by_step_is_one_size():
    assert batch(lambda: "abc", {0: 2}).batch_size == 2
