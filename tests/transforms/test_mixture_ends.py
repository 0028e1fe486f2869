"""Where a mixture ends, of arrays and of streams whose lengths nobody tells, against counting."""

from __future__ import annotations

import json
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from widths import examples

from jreader import NotResumable, Pipeline, arrays, at_epoch, mix, start
from jreader.readers.nodes import may_not_end

sizes = st.lists(st.integers(1, 40), min_size=1, max_size=4)
kinds = st.sampled_from(["arrays", "streams", "both"])


def source(which, n, kind):
    numbers = np.arange(n) + 1000 * which
    if kind == "arrays" or (kind == "both" and which % 2):
        return arrays(numbers)
    return lambda: iter(numbers)


@st.composite
def mixtures(draw, stops):
    """A mixture with weights that change, some of them 0."""
    ns = draw(sizes)
    shares = st.lists(st.integers(0, 5), min_size=len(ns), max_size=len(ns)).filter(any)
    weights, at = draw(shares), draw(st.dictionaries(st.integers(1, 70), shares, max_size=2))
    kind, stop = draw(kinds), draw(st.sampled_from(stops))
    sources = [source(which, n, kind) for which, n in enumerate(ns)]
    last = at[max(at)] if at else weights
    return mix(sources, weights, seed=draw(st.integers(0, 9)), stop=stop, at=at), ns, last


@given(mixtures(["first", "all", "once"]))
@examples(200)
def test_all_epochs_are_equally_long(mixture):
    """The case of the issue: epochs of 36 and 37 samples of two generators."""
    mixed, *_ = mixture
    lengths = {len(list(at_epoch(mixed, epoch)())) for epoch in range(6)}
    assert len(lengths) == 1
    assert mixed.length() in (None, *lengths)


@given(mixtures(["once"]), st.integers(0, 3))
@examples(200)
def test_once_gives_each_sample_of_a_source_once(mixture, epoch):
    mixed, ns, last = mixture
    seen = [int(sample) for sample in at_epoch(mixed, epoch)()]
    assert len(seen) == len(set(seen))
    for which, (n, share) in enumerate(zip(ns, last, strict=True)):
        given_ = [each for each in seen if each // 1000 == which]
        assert given_ == [*range(1000 * which, 1000 * which + len(given_))], "in its own order"
        assert len(given_) == n or not share


@given(mixtures(["first", "all", "once"]), st.integers(0, 3), st.data())
@examples(200)
def test_it_resumes_from_every_place(mixture, epoch, data):
    mixed = at_epoch(mixture[0], epoch)
    whole = list(mixed())
    up = start(mixed)
    cut = data.draw(st.integers(0, len(whole)))
    head = [next(up.items) for _ in range(cut)]
    at = json.loads(json.dumps(up.position()))
    assert head + list(start(mixed, at).items) == whole


def test_once_keeps_the_proportion_while_a_source_lasts():
    mixed = mix(
        [arrays(np.zeros(300, int)), arrays(np.ones(1000, int))], [3, 1], stop="once", seed=0
    )
    seen = [int(sample) for sample in mixed()]
    assert (len(mixed), seen.count(0), seen.count(1)) == (1300, 300, 1000)
    assert sum(seen[:400]) in (99, 100, 101)
    assert set(seen[404:]) == {1}


def test_once_resumes_and_shuffles_as_any_indexed_plan():
    plan = Pipeline(mix([arrays(np.arange(30)), arrays(np.arange(100, 190))], seed=0, stop="once"))
    assert sorted(int(n) for n in plan.shuffle(seed=1)) == [*range(30), *range(100, 190)]
    feeds = plan.batch(10).load().steps()
    before = [next(feeds).tolist() for _ in range(8)]
    after = plan.batch(10).load().steps(12, at=feeds.cursor)
    rest = [feed.tolist() for feed in after]
    assert sorted(chain.from_iterable(before + rest)) == [*range(30), *range(100, 190)]


def test_other_weights_are_refused_where_once_resumes():
    def loader(weights):
        rows = [arrays(np.arange(30)), arrays(np.arange(90))]
        return Pipeline(mix(rows, weights, seed=0, stop="once")).batch(10).load()

    feeds = loader([1, 1]).steps()
    next(feeds)
    with pytest.raises(NotResumable, match="not with stop='once'"):
        next(loader([1, 2]).steps(at=feeds.cursor))
    assert next(loader([1, 1]).steps(at=feeds.cursor)) is not None


def test_weights_of_0_switch_a_source_off_and_on():
    web, code = arrays(np.zeros(500, int)), arrays(np.arange(1, 501))
    schedule = {100: [0, 1], 200: [1, 1]}
    mixed = mix([web, code], [1, 0], at=schedule, seed=0, stop="repeat")
    up = mixed()
    shares = [np.count_nonzero([next(up) for _ in range(100)]) for _ in range(3)]
    assert shares[:2] == [0, 100]
    assert shares[2] in (49, 50, 51)
    assert "weights=[1, 0]" in repr(mixed)


def test_an_empty_source_is_left_out_with_once():
    mixed = mix([lambda: iter(()), lambda: iter([1, 2])], seed=0, stop="once")
    assert [*mixed()] == [1, 2] == [*mixed()]


def test_weights_that_are_all_0_are_refused():
    with pytest.raises(ValueError, match=r"weights of mix are all 0: give at least one"):
        mix([lambda: "a", lambda: "b"], [0, 0])
    with pytest.raises(ValueError, match=r"at=\{9: \.\.\.\} of mix are all 0"):
        mix([lambda: "a"], at={9: [0]})


@pytest.mark.parametrize(
    ("stop", "endless"), [("first", False), ("all", True), ("once", True), ("repeat", True)]
)
def test_a_reader_without_a_known_end_keeps_a_mixture_from_ending_where_it_waits_for_it(
    stop, endless
):
    readers = [lambda: "abc", arrays(np.arange(3))]
    assert may_not_end(mix(readers, seed=0, stop=stop)) is endless
