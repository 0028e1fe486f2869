"""Mixtures: shares, ends, schedules, positions and mistakes, over indexed readers and streams."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seen import canonical, see
from widths import examples

import jreader
from jreader import (
    Pipeline,
    ReaderError,
    arrays,
    at_epoch,
    firstn,
    mix,
    shuffle,
    sliding_window,
    start,
)
from jreader.orders.turns import Turns
from jreader.readers import indexed, length
from tests.benchmarks.one_feed import counting


def rows(source, many):
    """Samples that tell which source they are of, and their number in it."""
    return arrays(of=np.full(many, source), n=np.arange(many))


def stream(source, many):
    return lambda: ({"of": source, "n": n} for n in range(many))


def pairs(reader, limit=None):
    return [(int(sample["of"]), int(sample["n"])) for sample in islice(reader(), limit)]


def counts(given_):
    return [sum(of == source for of, _ in given_) for source in range(max(given_)[0] + 1)]


lengths = st.lists(st.integers(1, 90), min_size=1, max_size=5)
weights = st.lists(st.integers(1, 40), min_size=5, max_size=5)
stops = st.sampled_from(["first", "all"])
changes = st.dictionaries(st.integers(1, 200), weights, max_size=3)


class Sized:
    """A stream that knows its length: what is indexed elsewhere."""

    def __init__(self, source, many):
        self.source, self.many = source, many

    def __call__(self):
        return stream(self.source, self.many)()

    def __len__(self):
        return self.many


def mixed(make, lengths, weights, at=None, **given_):
    many = len(lengths)
    at = {turn: each[:many] for turn, each in (at or {}).items()}
    return mix([make(*pair) for pair in enumerate(lengths)], weights[:many], at=at, **given_)


@given(lengths, weights, changes, stops, st.integers(0, 3), st.integers(0, 2))
def test_an_indexed_mix_is_the_streamed_one_in_every_epoch(lengths, weights, at, stop, seed, epoch):
    fast, naive = (
        at_epoch(mixed(make, lengths, weights, at, stop=stop, seed=seed), epoch)
        for make in (rows, Sized)
    )
    assert indexed(fast) is not None is indexed(naive)
    assert pairs(fast) == pairs(naive)
    assert len(fast) == len(naive) == len(pairs(fast))


@given(lengths, weights, changes, stops)
@examples(6, least=3)  # each compiles for a second; test_planes has traces of any plan
def test_a_traced_mix_is_the_indexed_one(lengths, weights, at, stop):
    plan = mixed(rows, lengths, weights, at, stop=stop, seed=3)
    places = np.arange(len(plan))

    @jax.jit
    def traced(places, epoch):
        return indexed(at_epoch(plan, epoch)).route(places)

    for epoch in (0, 4):
        expected = indexed(at_epoch(plan, epoch)).route(places)
        for mine, other in zip(expected, traced(jnp.asarray(places), epoch), strict=True):
            np.testing.assert_array_equal(mine, other)


@given(lengths, weights, changes, st.booleans(), stops)
@examples(60)
def test_a_position_of_a_mix_is_a_place(lengths, weights, at, is_indexed, stop):
    def plan():
        return mixed(rows if is_indexed else stream, lengths, weights, at, stop=stop)

    whole = see(plan(), limit=200)
    for place in range(0, len(whole.positions), 9):
        assert see(plan(), whole.positions[place], 200 - place).samples == whole.samples[place:]
    if whole.after is not None:
        assert see(plan(), whole.after).samples == []


@given(lengths, weights, changes)
@examples(200)
def test_the_first_source_without_a_sample_ends_a_mix(lengths, weights, at):
    given_ = pairs(mixed(rows, lengths, weights, at, seed=1))
    endless = pairs(mixed(rows, lengths, weights, at, seed=1, stop="repeat"), len(given_) + 1)
    assert [(of, n) for of, n in endless[:-1]] != [] or not given_
    for source, many in enumerate(lengths):
        mine = [n for of, n in given_ if of == source]
        assert mine == list(range(len(mine)))
        assert len(mine) <= many
    assert any(given_.count((of, lengths[of] - 1)) for of in range(len(lengths)))


@given(lengths, weights, changes)
@examples(200)
def test_all_sources_are_given_whole_where_all_of_them_end_a_mix(lengths, weights, at):
    given_ = pairs(mixed(rows, lengths, weights, at, seed=1, stop="all"))
    for source, many in enumerate(lengths):
        mine = [n for of, n in given_ if of == source]
        assert mine == [n % many for n in range(len(mine))]
        assert len(mine) >= many
    ended = min(
        len([n for of, n in given_ if of == source]) - many for source, many in enumerate(lengths)
    )
    assert ended == 0  # the turn after the last sample would be that of the last one


def test_all_and_first_are_the_same_for_one_source():
    for stop in ("first", "all"):
        assert pairs(mix([rows(0, 9)], seed=0, stop=stop)) == [(0, n) for n in range(9)]


def test_sources_that_end_begin_again_with_their_next_epoch():
    few = shuffle(rows(1, 10), seed=5)
    plan = mix([rows(0, 1000), few], [1, 1], seed=0, stop="repeat")
    streamed = mix([stream(0, 1000), shuffle(stream(1, 10), 10, seed=5)], seed=0, stop="repeat")
    mine = [n for of, n in pairs(plan, 100) if of == 1]
    again = [[int(sample["n"]) for sample in at_epoch(few, epoch)()] for epoch in range(5)]
    assert mine == [n for each in again for n in each]
    assert len({tuple(each) for each in again}) == 5
    assert [n for of, n in pairs(streamed, 100) if of == 1][:10] == [
        sample["n"] for sample in shuffle(stream(1, 10), 10, seed=5)()
    ]
    assert length(plan) is None


def test_an_epoch_of_a_mix_reshuffles_its_sources_and_its_turns():
    plan = mix([shuffle(rows(0, 300), seed=5), rows(1, 200)], [3, 2], seed=0)
    one, two = pairs(plan), pairs(at_epoch(plan, 1))
    for given_, other in ((one, two), (two, one)):
        assert [n for of, n in given_ if of == 0] != [n for of, n in other if of == 0]
    assert [of for of, _ in one] != [of for of, _ in two]


def test_an_unseeded_mix_deals_other_turns_in_each_pass():
    plan = mix([rows(0, 100), rows(1, 100)])
    assert len({tuple(pairs(plan)) for _ in range(4)}) == 4


def test_a_mix_of_millions_of_samples_is_found_anywhere_at_once():
    class Rows:
        def __init__(self, source, many):
            self.source, self.many = source, many

        def __len__(self):
            return self.many

        def __getitem__(self, places):
            return {"of": np.full(len(places), self.source), "n": places}

    sizes, shares = (10**12, 10**11, 10**10), (90, 9, 2)
    sources = [jreader.source(Rows(*pair), batched=True) for pair in enumerate(sizes)]
    plan = mix(sources, shares, seed=0, stop="all")
    turn = 10**12 // 64 * 64
    turns = Turns(shares)
    for (of, n), place in zip(pairs(lambda: start(plan, turn).items, 64), range(64), strict=True):
        assert n < sizes[of]
        assert plan.plane().nth(turn + place)["n"] == n
    given_ = turns.counts(turn)
    assert all(
        abs(many - Fraction(turn * share, 101)) < 1
        for many, share in zip(given_, shares, strict=True)
    )


class TestSchedules:
    def test_weights_change_at_a_sample_and_sources_go_on_where_they_are(self):
        plan = mix([rows(0, 5000), rows(1, 5000)], [9, 1], at={640: [1, 1], 1280: [1, 9]}, seed=2)
        given_ = pairs(plan, 1920)
        assert counts(given_[:640]) == [576, 64]
        assert counts(given_[640:1280]) == [320, 320]
        assert counts(given_[1280:]) == [64, 576]
        for source in (0, 1):
            mine = [n for of, n in given_ if of == source]
            assert mine == list(range(len(mine)))

    def test_what_comes_before_a_block_with_a_change_is_as_without_it(self):
        before = pairs(mix([rows(0, 500), rows(1, 500)], seed=2), 128)
        plan = mix([rows(0, 500), rows(1, 500)], seed=2, at={150: [1, 5]})
        assert pairs(plan, 128) == before

    def test_a_change_that_no_pass_reaches_changes_nothing_but_the_last_run(self):
        plan = mix([rows(0, 50), rows(1, 50)], seed=2)
        assert pairs(mix([rows(0, 50), rows(1, 50)], seed=2, at={10**6: [1, 9]})) == pairs(plan)

    def test_names_stand_for_sources_in_changes_too(self):
        named = {"web": rows(0, 500), "code": rows(1, 500)}
        plan = mix(named, {"code": 1, "web": 9}, seed=2, at={64: {"web": 1, "code": 1}})
        listed = mix(list(named.values()), [9, 1], seed=2, at={64: [1, 1]})
        assert pairs(plan) == pairs(listed)

    def test_a_stream_resumes_where_each_source_is_with_other_weights(self):
        sources = [stream(0, 10**4), stream(1, 10**4)]
        one, other = mix(sources, [9, 1], seed=0), mix(sources, [1, 9], seed=0)
        first = start(one)
        head = [(each["of"], each["n"]) for each in islice(first.items, 640)]
        rest = pairs(lambda: start(other, first.position()).items, 640)
        for source in (0, 1):
            mine = [n for of, n in head + rest if of == source]
            assert mine == list(range(len(mine)))
        assert counts(rest) == [64, 576]


class TestWeights:
    @pytest.mark.parametrize(
        ("given_", "whole"),
        [
            ([7, 3], (7, 3)),
            ([0.7, 0.3], (7, 3)),
            ([70, 30], (7, 3)),
            ([Fraction(1, 3), Fraction(2, 3)], (1, 2)),
            (np.array([0.25, 0.75]), (1, 3)),
            (np.array([7, 3]), (7, 3)),
            ([np.float32(0.5), 1], (1, 2)),
            ([1e-6, 1.0], (1, 10**6)),
            (None, (1, 1)),
        ],
    )
    def test_they_are_whole_numbers_in_the_proportion_in_which_they_were_written(
        self, given_, whole
    ):
        assert mix([rows(0, 3), rows(1, 3)], given_).weights == whole

    def test_real_ones_are_exact_to_one_in_ten_to_the_twelve(self):
        given_ = np.random.default_rng(0).random(50)
        made = mix([rows(source, 3) for source in range(50)], given_).weights
        shares = np.array(made) / sum(made)
        np.testing.assert_allclose(shares, given_ / given_.sum(), rtol=1e-10)

    def test_a_temperature_gives_small_sources_more(self):
        several = {"large": rows(0, 9000), "small": rows(1, 1000)}
        assert mix(several, temperature=1).weights == (9, 1)
        assert mix(several, temperature=2).weights == (3, 1)
        hot = mix(several, temperature=5.5).weights
        assert hot[0] / hot[1] == pytest.approx(9 ** (1 / 5.5))
        assert 1 < hot[0] / hot[1] < 3

    def test_an_infinite_temperature_is_what_no_weights_are(self):
        with pytest.raises(ValueError, match="temperature is inf"):
            mix([rows(0, 9), rows(1, 3)], temperature=math.inf)


class TestNames:
    def test_a_field_says_which_source_a_row_is_of(self):
        for make in (rows, stream):
            plan = mix({"web": make(0, 70), "code": make(1, 30)}, [7, 3], seed=0, source="source")
            samples = list(plan())
            assert [sample["source"] for sample in samples] == [sample["of"] for sample in samples]
            assert {type(sample["source"]) for sample in samples} == {np.int32}
        (feed,) = islice(Pipeline(plan).batch(32).load(sharding="host"), 1)
        assert feed["source"].tolist() == feed["of"].tolist()
        assert feed["source"].dtype == np.int32

    @pytest.mark.filterwarnings("ignore:small-window")  # of batches of 8
    def test_a_loader_finds_the_source_of_each_sample_of_a_step(self):
        for readers, names in (
            ({"web": WEB, "code": CODE}, ["web", "code"]),
            ([WEB, CODE], [0, 1]),
        ):
            for above in (
                lambda plan: plan,
                lambda plan: plan.shuffle(seed=1),
                lambda plan: plan.shuffle(5, seed=1).skip(3).firstn(32).epochs(2),
            ):
                plan = above(Pipeline(mix(readers, [3, 1], seed=0)))
                loader = plan.batch(8).load(sharding="host")
                for step, feed in enumerate(loader.epoch(2)):
                    told = loader.samples(step, epoch=2)
                    assert told.sources.tolist() == [names[of] for of in feed["of"]]
        assert "sources=array([" in repr(told)
        assert Pipeline(WEB).batch(8).load().samples(0).sources is None

    def test_it_is_traced_with_the_other_fields(self):
        plan = mix([rows(0, 70), rows(1, 30)], [7, 3], seed=0, source="source")
        data, batch_at = jreader.as_function(Pipeline(plan).shuffle(seed=1).batch(16))
        feed = jax.jit(batch_at)(data, 3, 2)
        assert feed["source"].tolist() == feed["of"].tolist()

    @pytest.mark.parametrize("make", [lambda: arrays(np.arange(9)), lambda: lambda: range(9)])
    def test_samples_without_names_have_no_room_for_it(self, make):
        with pytest.raises(TypeError, match=r"name their fields, as arrays\(x=...\)"):
            list(mix([make(), make()], source="source")())

    @pytest.mark.parametrize("make", [rows, stream])
    def test_a_field_of_that_name_is_not_written_over(self, make):
        with pytest.raises(ValueError, match="give another name"):
            list(mix([make(0, 9), make(1, 9)], source="of")())

    def test_a_plan_is_printed_as_it_was_written(self):
        web, code = rows(0, 3), rows(1, 3)
        plan = mix(
            {"web": web, "code": code},
            {"code": 3, "web": 7},
            seed=0,
            stop="all",
            at={9: [1, 2]},
            source="source",
        )
        form = "arrays(of=int64[3], n=int64[3])"
        assert repr(plan) == (
            f"mix({{'web': {form}, 'code': {form}}}, weights={{'web': 7, 'code': 3}}, seed=0, "
            f"stop='all', at={{9: {{'web': 1, 'code': 2}}}}, source='source')"
        )
        assert repr(Pipeline(web).mix(code, weights=[7, 3])) == (
            f"Pipeline({form}).mix({form}, weights=[7, 3])"
        )
        assert repr(mix([web, code])) == f"mix([{form}, {form}])"
        assert "mix(" in Pipeline(plan)._repr_html_()


WEB, CODE = rows(0, 30), rows(1, 30)
NAMED = {"web": WEB, "code": CODE}


@pytest.mark.parametrize(
    ("made", "error", "advice"),
    [
        (
            lambda: mix(NAMED, {"web": 1, "code": -1}),
            ValueError,
            "'code' is -1, .*or 0 for no samples",
        ),
        (
            lambda: mix(NAMED, {"web": 1, "code": -2}),
            ValueError,
            "'code' is -2, and a number above",
        ),
        (lambda: mix(NAMED, {"web": math.nan, "code": 1}), ValueError, "'web' is nan"),
        (lambda: mix(NAMED, {"web": math.inf, "code": 1}), ValueError, "'web' is inf"),
        (lambda: mix(NAMED, {"web": "7", "code": 1}), TypeError, "'web' is '7'"),
        (lambda: mix(NAMED, {"web": True, "code": 1}), TypeError, "'web' is True"),
        (lambda: mix(NAMED, {"web": 1, "cod": 1}), ValueError, "has 'cod', .*Was 'code' meant"),
        (lambda: mix(NAMED, {"web": 1}), ValueError, r"no number for \['code'\]"),
        (
            lambda: mix(NAMED, {"web": 1, "code": 1e-12}),
            ValueError,
            "leaves 'code' a share of 1.0e",
        ),
        (lambda: mix(NAMED, [1, 2, 3]), ValueError, "needs 2 numbers"),
        (lambda: mix(NAMED, [1, -1]), ValueError, "'code' is -1"),
        (lambda: mix(NAMED, "73"), TypeError, "a number for each source"),
        (lambda: mix(NAMED, 7), TypeError, "a number for each source"),
        (lambda: mix([WEB, CODE], {"web": 1, "code": 2}), TypeError, "as a dict with these names"),
        (lambda: mix([WEB, CODE], [1, math.nan]), ValueError, "that of 1 is nan"),
        (lambda: mix(WEB), TypeError, r"type mix\(\[web, code\]\)"),
        (lambda: mix({}), ValueError, "at least one reader"),
        (lambda: mix([]), ValueError, "at least one reader"),
        (lambda: mix({1: WEB}), TypeError, "texts for names"),
        (lambda: mix([WEB, [1, 2]]), TypeError, r"mix\(readers\)"),
        (
            lambda: mix(NAMED, stop="last"),
            ValueError,
            "'first', 'all', 'once' or 'repeat', not 'last'",
        ),
        (lambda: mix(NAMED, seed=1.5), TypeError, "seed of mix"),
        (lambda: mix(NAMED, source=3), TypeError, "name of a new field"),
        (lambda: mix(NAMED, at=[1, 2]), TypeError, "dict of weights by the number"),
        (lambda: mix(NAMED, at={0: [1, 2]}), ValueError, "at least 1"),
        (lambda: mix(NAMED, at={9: {"web": 1}}), ValueError, r"at=\{9: ...\} of mix has no number"),
        (lambda: mix(NAMED, at={9: {"web": 1, "code": -1}}), ValueError, r"at=\{9: .*'code' is -1"),
        (lambda: mix(NAMED, [1, 2], temperature=2), TypeError, "not both"),
        (lambda: mix(NAMED, temperature=0), ValueError, "temperature is 0"),
        (lambda: mix(NAMED, temperature=-1), ValueError, "temperature is -1"),
        (lambda: mix(NAMED, temperature="hot"), TypeError, "temperature is 'hot'"),
        (lambda: mix([WEB, stream(1, 3)], temperature=2), ValueError, "1 has no length .*weights="),
        (lambda: mix([WEB, rows(1, 0)], temperature=2), ValueError, "1 has no samples"),
        (lambda: mix(NAMED, wieghts=[1, 2]), TypeError, "did you mean weights="),
    ],
)
def test_a_mistake_raises_where_it_was_written_and_says_what_to_type(made, error, advice):
    with pytest.raises(error, match=advice):
        made()


@pytest.mark.parametrize("stop", ["first", "all", "repeat"])
@pytest.mark.parametrize("make", [rows, stream])
def test_a_source_without_samples_raises_with_its_name(make, stop):
    plan = mix({"web": make(0, 90), "code": make(1, 0)}, [7, 3], stop=stop, seed=0)
    with pytest.raises(ReaderError, match=r"reader 'code' of mix, .*has no samples.*leave it out"):
        list(firstn(plan, 100)())
    assert indexed(plan) is None


def test_sources_of_other_forms_are_read_one_by_one():
    plan = mix([arrays(np.arange(4)), arrays(np.arange(4.0))], seed=0)
    assert indexed(plan) is None
    assert sorted(map(canonical, plan())) == sorted(
        map(canonical, [*arrays(np.arange(4))(), *arrays(np.arange(4.0))()])
    )


def test_a_mix_of_mixes_is_a_mix():
    inner = mix([rows(0, 900), rows(1, 900)], [2, 1], seed=1, stop="repeat")
    plan = mix([inner, rows(2, 900)], [3, 1], seed=2)
    assert indexed(plan) is not None
    assert counts(pairs(plan, 1024))[2] == 256
    streamed = mix(
        [mix([stream(0, 900), stream(1, 900)], [2, 1], seed=1, stop="repeat"), Sized(2, 900)],
        [3, 1],
        seed=2,
    )
    assert pairs(streamed, 1000) == pairs(plan, 1000)
    assert len(plan) == indexed(plan).length


def documents(source, many):
    lengths = 1 + np.random.default_rng(source).integers(0, 30, many)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Pipeline(jreader.ragged(np.arange(offsets[-1], dtype=np.int32) * 2 + source, offsets))


def packed(source):
    return documents(source, 300).pack(32, seed=source)


def cut(source):
    return documents(source, 300).windows(16)


@pytest.mark.slow
@pytest.mark.parametrize("make", [packed, cut])
def test_rows_that_are_made_when_they_are_asked_for_are_mixed_by_their_index_and_traced(make):
    name = "source" if make is packed else None
    plan = mix([make(0), make(1)], [2, 1], seed=0, source=name)
    batches = Pipeline(plan).shuffle(seed=3).batch(16, drop_last=True)
    assert indexed(plan) is not None
    fields = [field for batch in batches for field in [batch.columns]]
    data, batch_at = jreader.as_function(batches)
    for step in (0, 2):
        feed = jax.jit(batch_at)(data, 0, step)
        jax.tree.map(np.testing.assert_array_equal, feed, fields[step])
    if make is packed:
        tokens = np.concatenate([columns["tokens"] for columns in fields])
        of = np.concatenate([columns["source"] for columns in fields])
        assert (tokens % 2 == of[:, None])[tokens > 0].all()
        assert abs(of.mean() - 1 / 3) < 0.05


def test_documents_are_mixed_and_batched_by_length():
    plan = mix({"web": documents(0, 300), "code": documents(1, 300)}, [2, 1], seed=0)
    assert indexed(plan) is not None
    feeds = list(Pipeline(plan).padded_batch(8, to=[32]).load(sharding="host"))
    given_ = np.concatenate([feed["tokens"][:, 0] % 2 for feed in feeds])
    assert abs(given_.mean() - 1 / 3) < 0.01


class Things(list):
    """Samples of any kind, found by their index."""


@pytest.mark.parametrize("name", [None, "source"])
def test_data_sets_whose_samples_only_rows_show_say_their_source_too(name):
    one, other = (
        jreader.source(Things({"of": of, "text": "a" * n} for n in range(30))) for of in (0, 1)
    )
    plan = mix([one, other], [2, 1], seed=0, source=name)
    assert indexed(plan) is not None
    samples = list(plan())
    assert samples == [sample for part in Pipeline(plan).batch(7) for sample in part]
    assert samples == [Pipeline(plan)[index] for index in range(len(plan))]
    if name:
        assert all(sample["of"] == sample["source"] for sample in samples)


@pytest.mark.parametrize("stop", ["first", "all"])
def test_a_part_of_a_reader_without_an_end_is_as_long_as_it_is_cut(stop):
    endless = mix([arrays(np.arange(3))], seed=0, stop="repeat")
    cut = mix([firstn(endless, 20)], seed=0, stop=stop)
    assert len(cut) == len(list(cut())) == indexed(cut).length == 20


@pytest.mark.parametrize(
    "made", [lambda n: arrays(np.arange(n, n + 3)), lambda n: lambda: iter([n])]
)
def test_a_mix_of_many_sources_begins_in_a_few_calls_for_each(made):
    def calls(many):
        plan = mix([made(number) for number in range(many)], seed=0)
        with counting() as since:
            since()
            next(iter(plan()))
            return len(since().own)

    assert calls(200) - calls(100) < 100 * 100  # some 65 for each


def test_a_traced_route_of_windows_over_objects_is_the_route():
    plane = indexed(sliding_window(mix(list(map(jreader.source, ["abc", "xyz"])), seed=0), 2))
    indices = np.arange(plane.length)
    (expected,) = plane.route(indices)
    (traced,) = jax.jit(plane.route)(jnp.asarray(indices))
    assert expected.tolist() == traced.tolist()
