"""Positions that are none of a plan: refused when a pass begins, or a pass begins and goes well."""

from __future__ import annotations

import re
from itertools import islice

import numpy as np
import pytest
from graphs import Recipe, recipes
from hypothesis import given
from hypothesis import strategies as st
from seen import see, through_json
from widths import examples

import jreader
from jreader import (
    Node,
    NotResumable,
    Pipeline,
    Reader,
    arrays,
    cache,
    chain,
    compose,
    datasets,
    epochs,
    firstn,
    flat_map,
    map_readers,
    map_samples,
    multiprocess_reader,
    shard,
    shuffle,
    skip,
    start,
)
from jreader.errors import ReaderError
from jreader.readers import at_epoch, op
from jreader.readers.passes import checked_position
from jreader.transforms.sample_rng import keyed
from jreader.transforms.slices import exactly

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* left none of the samples"),
    pytest.mark.filterwarnings("ignore:.*leaves out .* tokens of"),
]

REFUSED = r"is not a position of this pipeline|cannot resume after|this position is of"
FIRST = 7

numbers = st.one_of(
    st.integers(-3, 20), st.sampled_from([2**62, 2**62 + 1, 2**63, 2**64, -(2**64), 10**30])
)
atoms = st.one_of(st.none(), st.booleans(), numbers, st.floats(), st.sampled_from(["", "0", "at"]))
wrong = st.recursive(
    atoms,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


def numbered():
    return iter(range(9))


def paths(position, path=()):
    """Where a position has parts, itself among them."""
    yield path
    if isinstance(position, list):
        for index, part in enumerate(position):
            yield from paths(part, (*path, index))


def changed(position, path, part):
    """The position with another part at that place."""
    if not path:
        return part
    first, *rest = path
    return [
        changed(each, rest, part) if index == first else each for index, each in enumerate(position)
    ]


def goes_well_or_is_refused(plan, at):
    try:
        up = start(plan, at)
    except NotResumable as error:
        assert re.search(REFUSED, str(error))  # noqa: PT017  # it may as well begin
        return
    try:
        list(islice(up.items, FIRST))
        up.position()
    except ReaderError:  # fewer samples than the position has, say
        pass
    finally:
        up.close()


@given(recipes(), wrong)
def test_what_is_no_position_is_refused_or_goes_well(recipe, at):
    goes_well_or_is_refused(recipe.build(), at)


@given(recipes(), recipes())
@examples(250)
def test_positions_of_another_plan_are_refused_or_go_well(recipe, other):
    for at in see(other.build(), limit=FIRST).positions:
        goes_well_or_is_refused(recipe.build(), at)


@given(recipes(), wrong, st.data())
def test_a_changed_position_is_refused_or_goes_well(recipe, part, data):
    at = data.draw(st.sampled_from(see(recipe.build(), limit=FIRST).positions))
    path = data.draw(st.sampled_from(list(paths(at))))
    for plan in (recipe, Recipe(epochs, {"n": None}, (recipe,))):
        goes_well_or_is_refused(plan.build(), at)
        goes_well_or_is_refused(plan.build(), changed(at, path, part))


BAD = [0, True, "", "0", [], {}, {"a": 1}, 2.0, [0], [0] * 5, [[0, None]]]
ROWS = arrays(np.arange(9))
OPS = {
    "a function": (numbered, [-1, True, 1.0, "1", [], [1], 2**63]),
    "a function of an op": (Pipeline(numbered), [-1, "1", []]),
    "arrays": (ROWS, [-1, 10, True, 1.0, "1", [], [1]]),
    "a sampler": (datasets.SequenceSampler(range(9)), [-1, 10, True, 1.0, "1", [1]]),
    "chain": (chain(numbered, numbered), [*BAD, [3, None], [-1, None], [True, None], [0, "a"]]),
    "compose": (compose(numbered, numbered), [*BAD, [1, "1"], [1, 1, 1], [-1, 1]]),
    "map_readers": (map_readers(max, numbered, numbered), [*BAD, [1, "1"]]),
    "epochs": (epochs(numbered, 3), [*BAD, [True, 0, None], [1.0, 0, None], [4, 0, None]]),
    "epochs without an end": (
        epochs(numbered),
        [*BAD, [-1, 0, None], [0, -1, None], [2**64, 0, 0]],
    ),
    "epochs of arrays": (epochs(ROWS, 2), [-1, 19, True, [0, 0, None]]),
    "shuffle": (shuffle(numbered, 4, 1), [*BAD, [0, 0, 4], [0, -1, 0], [0, 0, None], ["a", 0, 0]]),
    "an unseeded shuffle": (
        shuffle(numbered, 4),
        [*BAD, [None, None], [[], None], ["7", None], [[7, -1], None], [7, [0, 0]]],
    ),
    "cache": (cache(numbered), [*BAD, [0, None], [0, -1], [0, 1.5], ["a", 0]]),
    "flat_map": (flat_map(range, numbered), [*BAD, [0, -1], [0, None], ["a", 0]]),
    "firstn": (
        firstn(numbered, 4),
        [*BAD, [0, 0, None], [5, 5, [4]], [0, 0, [4, 4]], [0, 0, ["4"]]],
    ),
    "skip": (skip(numbered, 1), [*BAD, [0, 0, [1]], [False, 0, [True]], [False, 0, 1]]),
    "shard": (shard(numbered, 2, 1), [*BAD, [1, 0, [2, 1]], [True, 0, [2]]]),
    "exactly": (exactly(numbered, 2), [*BAD, [0, -1, None], [0, 0, "a"]]),
    "keyed": (keyed(numbered, 1), [*BAD, [-1, 0], [None, 0], [0, "a"]]),
    "a random map": (
        map_samples(lambda n, rng: n, arrays(np.arange(9)), rng=True, seed=1),
        [*BAD, [1, 10], [-1, 1], [1, True]],
    ),
    "multiprocess_reader": (
        multiprocess_reader([numbered, numbered]),
        [
            *[at for at in BAD if not isinstance(at, str)],
            [2, [[False, 0], [False, 0]]],
            [0, [[False, 0]]],
            [0, [[0, 0], [False, 0]]],
            [0, [False, False]],
        ],
    ),
}
CASES = [
    pytest.param(plan, at, id=f"{name} {at!r}") for name, (plan, bad) in OPS.items() for at in bad
]


@pytest.mark.parametrize(("plan", "at"), CASES)
def test_a_wrong_position_is_refused_where_the_pass_begins(plan, at):
    with pytest.raises(NotResumable, match=REFUSED):
        start(plan, at)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name == "multiprocess_reader"))
        for name in OPS
    ],
)
def test_what_refuses_wrong_positions_resumes_from_its_own(name):
    plan = OPS[name][0]
    up = start(plan)
    next(up.items)
    at = through_json(up.position())
    rest = start(plan, at)
    assert through_json(rest.position()) == at
    assert repr(next(rest.items)) == repr(next(up.items))
    rest.close()
    up.close()


def test_lines_of_files_are_refused_likewise(tmp_path):
    (tmp_path / "lines").write_text("a\nb\n")
    lines = jreader.text(tmp_path / "lines")
    for at in (*BAD, [2, 0], [0, -1], [0, 2.0], [True, 0], [0, None]):
        with pytest.raises(NotResumable, match=REFUSED):
            start(lines, at)
    assert list(start(lines, [0, 2]).items) == ["b"]
    assert list(start(lines, [1, 0]).items) == []


def test_a_cache_of_fewer_samples_than_its_position_has_says_so():
    kept = cache(numbered)
    for _ in range(2):  # while it is read, and once it has been
        with pytest.raises(NotResumable, match=r"after sample 12 of cache.* it gave 9 samples"):
            list(start(kept, [0, 12]).items)
        assert list(start(kept, [0, 8]).items) == [8]
        assert list(start(kept, [0, 9]).items) == []
        assert len(list(kept())) == 9


def test_a_key_in_another_place_than_its_sample_is_refused():
    rows = Pipeline(arrays(np.arange(9)))
    noisy = rows.map(lambda n, rng: n, processes=2, rng=True, seed=1).batch(2)
    with pytest.raises(NotResumable, match=REFUSED):
        start(noisy, [4, 2])


@op
class picky(Node):
    """An op of a user's, which takes positions apart by itself."""

    reader: Reader

    def start(self, at):
        done, inner = checked_position(at, (0, None))
        up = start(self.reader, inner)
        return up._replace(position=lambda: (done, up.position()))


def test_an_op_of_the_user_refuses_by_the_same_function():
    assert list(start(picky(numbered), [0, 7]).items) == [7, 8]
    with pytest.raises(NotResumable, match=r"\[0\] is not a position .* such as \(0, None\)"):
        start(picky(numbered), [0])


@pytest.mark.parametrize("kind", [TypeError, ValueError, IndexError, KeyError])
@pytest.mark.parametrize("at", [None, 3])
def test_an_error_of_the_users_own_reader_passes_as_it_is(kind, at):
    def broken():
        raise kind("mine")

    with pytest.raises(kind, match="mine"):
        start(Pipeline(broken), at)


def test_what_was_refused_says_what_was_seen_and_what_to_type():
    with pytest.raises(NotResumable) as refused:
        start(at_epoch(shuffle(numbered, 4, 1), 1), [7, "x"])
    assert str(refused.value) == (
        "[7, 'x'] is not a position of this pipeline, or a part of one, such as (None, 0, 0). "
        "It was changed, or another pipeline wrote it. Give an earlier position, or cursor, as it "
        "was written, or start over, without at=."
    )


class TestResuming:
    """What has no position, or not that one any longer, says so, and what to do."""

    def test_a_plain_reader_that_became_shorter_is_refused(self):
        data = [*range(5)]
        reader = jreader.batch(lambda: iter(data), 2)
        under_way = start(reader)
        assert list(islice(under_way.items, 2)) == [[0, 1], [2, 3]]
        del data[2:]
        rest = start(reader, under_way.position())
        with pytest.raises(NotResumable, match=r"after sample 4 .* gave 2 samples"):
            next(rest.items)

    @pytest.mark.parametrize(
        ("op", "advice"),
        [
            (lambda reader: jreader.xmap_readers(abs, reader, 2, 2), "order=True"),
            (lambda reader: jreader.multiprocess_reader([reader], use_pipe=False), "use_pipe=True"),
        ],
    )
    def test_an_order_of_arrival_has_no_position(self, op, advice):
        made = op(lambda: range(10))
        position = start(made).position()
        with pytest.raises(NotResumable, match=rf"{__file__}:\d+, hands .* use {advice}"):
            start(made, position)
        plan = epochs(jreader.batch(made, 2))
        with pytest.raises(NotResumable, match=advice):
            start(plan, start(plan).position())
