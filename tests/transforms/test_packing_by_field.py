"""Rows with a length for each field, some documents, a token in front: all of it by counting."""

from __future__ import annotations

from itertools import combinations, islice

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seen import see
from texts import streamed
from widths import examples

from jreader import FeedMismatch, Pipeline, arrays, as_function, at_epoch, pack, ragged
from jreader.readers import indexed
from jreader.transforms.packing.bounded_documents import best_fit_of_several

NAMES = "abc"
FRONT, PAD = -7, -1


def documents(lengths):
    """Documents with a field for each column of lengths, in which every token tells where it is."""
    lengths = np.asarray(lengths).reshape(len(lengths), -1)
    fields = {}
    for name, each in zip(NAMES, lengths.T, strict=False):
        values = [100 * number + place for number, many in enumerate(each) for place in range(many)]
        fields[name] = ragged(np.array(values, int), np.cumsum([0, *each]))
    weights = np.arange(2 * len(lengths), dtype=np.float32).reshape(-1, 2)
    return arrays(**fields, label=np.arange(len(lengths), dtype=np.int16), weights=weights)


@st.composite
def cases(draw):
    """Lengths of documents, and arguments of `pack` that fit them."""
    fields = draw(st.integers(1, 3))
    sizes = draw(st.lists(st.integers(2, 20), min_size=fields, max_size=fields))
    longer = draw(st.sampled_from(["error", "truncate", "drop"]))
    front = draw(st.sampled_from([None, FRONT, {"a": FRONT}]))
    led = [front is not None and (front == FRONT or name == "a") for name in NAMES[:fields]]
    most = [size - one + (longer != "error") * 9 for size, one in zip(sizes, led, strict=True)]
    each = st.tuples(*[st.integers(0, length) for length in most])
    lengths = draw(st.lists(each, min_size=1, max_size=40))
    given = {"longer": longer, "begin": front, "pad": dict.fromkeys(NAMES[:fields], PAD)}
    given["documents"] = draw(st.one_of(st.none(), st.integers(1, 5)))
    if given["documents"]:
        given["per_document"] = ["label", "weights"]
        given["pad"]["label"] = PAD
    if longer == "truncate":
        given["truncation_side"] = draw(st.sampled_from(["left", "right"]))
    return lengths, dict(zip(NAMES, sizes, strict=False)), given


def kept(lengths, sizes, given):
    """The tokens of each document that is kept, field by field."""
    found = {}
    for number, document in enumerate(lengths):
        tokens = {}
        for (name, size), many in zip(sizes.items(), document, strict=True):
            front = given["begin"]
            room = size - (front == FRONT or (isinstance(front, dict) and name in front))
            every = [100 * number + place for place in range(many)]
            cut = every[-room:] if given.get("truncation_side") == "left" else every[:room]
            tokens[name] = cut if given["longer"] == "truncate" else every
            if len(tokens[name]) > room:
                tokens = {}
                break
        if any(tokens.values()):
            found[number] = tokens
    return found


def unpacked(row, sizes, given):
    """The documents of a row, by their segments: the tokens of each field, and its slot."""
    found, front = {}, given["begin"]
    for name in sizes:
        tokens, ids = row[name].tolist(), row[f"{name}_segment_ids"].tolist()
        positions = row[f"{name}_positions"].tolist()
        assert len(tokens) == sizes[name]
        assert row[f"{name}_segment_ids"].dtype == row[f"{name}_positions"].dtype == np.int32
        if any(ids) and (front == FRONT or (isinstance(front, dict) and name in front)):
            assert (tokens[0], positions[0], ids[0]) == (FRONT, 0, ids[1])
            own = [place - (each == ids[0]) for place, each in zip(positions, ids, strict=True)]
            tokens, ids, positions = tokens[1:], ids[1:], own[1:]
        used = np.count_nonzero(ids)
        assert ids[used:] == [0] * (len(ids) - used)
        assert set(tokens[used:]) <= {PAD}
        assert ids[:used] == sorted(ids[:used])
        for number in set(ids[:used]):
            here = [place for place, each in enumerate(ids) if each == number]
            assert [positions[place] for place in here] == list(range(len(here)))
            found.setdefault(number, {each: [] for each in sizes})
            found[number] = {**found[number], name: [tokens[place] for place in here]}
    assert sorted(found) == list(range(1, len(found) + 1))
    return found


def numbers(row, sizes, given):
    """The numbers of the documents of a row, whose slots and tokens are checked to be theirs."""
    found = unpacked(row, sizes, given)
    first = [min(next(filter(None, found[at].values()))) // 100 for at in sorted(found)]
    if given["documents"]:
        assert len(found) <= given["documents"]
        empty = given["documents"] - len(found)
        assert row["label"].tolist() == first + [PAD] * empty
        assert row["weights"].tolist() == [[2 * n, 2 * n + 1] for n in first] + [[0, 0]] * empty
    return {number: found[at + 1] for at, number in enumerate(first)}


SOURCES = {"found by place": lambda reader: reader, "a stream": streamed}


@pytest.mark.parametrize("source", SOURCES)
@given(cases(), st.integers(0, 3))
@examples(150)
def test_every_document_lies_in_one_row_in_all_of_its_fields(source, case, epoch):
    lengths, sizes, given = case
    expected = kept(lengths, sizes, given)
    plan = pack(SOURCES[source](documents(lengths)), sizes, seed=3, **given)
    if not expected:
        with pytest.raises(FeedMismatch, match="nothing to pack"):
            list(plan())
        return
    rows = [numbers(row, sizes, given) for row in at_epoch(plan, epoch)()]
    found = {number: tokens for row in rows for number, tokens in row.items()}
    assert sum(map(len, rows)) == len(found)
    assert found == expected
    led = [given["begin"] == FRONT or (given["begin"] and name == "a") for name in sizes]
    room = np.array([*sizes.values()]) - np.array(led, bool)
    used = [np.sum([[*map(len, each.values())] for each in row.values()], 0) for row in rows]
    for (one, held), (other, more) in combinations(zip(rows, used, strict=True), 2):
        many = len(one) + len(other)
        assert (held + more > room).any() or many > (given["documents"] or many)


@given(cases())
@examples(60)
def test_a_pass_resumes_from_every_row_and_any_row_is_found(case):
    lengths, sizes, given = case
    if not kept(lengths, sizes, given):
        return
    plan = pack(documents(lengths), sizes, seed=5, **given)
    whole = see(plan)
    for place, position in enumerate(whole.positions):
        assert see(plan, position).samples == whole.samples[place:]
    plane, places = indexed(plan), np.random.default_rng(0).permutation(len(whole.samples))
    assert see(lambda: plane.take(places)).samples == [whole.samples[place] for place in places]
    assert see(pack(streamed(documents(lengths)), sizes, seed=5, **given)).samples == whole.samples


@given(cases(), st.integers(0, 2), st.data())
@examples(60)
def test_where_documents_lie_is_computed_and_removed_ones_leave_padding(case, epoch, data):
    lengths, sizes, given = case
    if not kept(lengths, sizes, given):
        return
    loader = Pipeline(documents(lengths)).pack(sizes, seed=1, **given).batch(3)
    loader = loader.load(sharding="host", last="keep")
    gone = data.draw(st.sets(st.integers(0, len(lengths) - 1), max_size=4))
    before, after = (list(each.epoch(epoch)) for each in (loader, loader.without([*gone])))
    held = {}
    for step, (feed, less) in enumerate(zip(before, after, strict=True)):
        for row in range(len(feed["a"])):
            one, other = ({name: each[row] for name, each in f.items()} for f in (feed, less))
            there = numbers(one, sizes, given)
            for slot, number in enumerate(there, 1):
                held[number] = step, row
                if number in gone:
                    for name in sizes:
                        here = one[f"{name}_segment_ids"] == slot
                        assert not other[f"{name}_segment_ids"][here].any()
                        assert set(other[name][here].tolist()) <= {PAD}
                    assert not given["documents"] or other["label"][slot - 1] == PAD
            left = [other[f"{name}_segment_ids"] for name in sizes]
            slots = {at for at, number in enumerate(there, 1) if number not in gone}
            assert {*np.concatenate(left).tolist()} - {0} == slots
    found = loader.where(range(len(lengths)), [epoch])
    assert {sample: (step, row) for sample, _, step, row in found} == held
    for sample, step, row, begin, end in zip(
        found.sample, found.step, found.row, found.begin, found.end, strict=True
    ):
        assert (before[step]["a"][row, begin:end] // 100 == sample).all()


@pytest.mark.parametrize("front", [None, FRONT, {"a": FRONT}], ids=["none", "all", "one"])
@pytest.mark.parametrize("sizes", [{"a": 9, "b": 5}, 9], ids=["by field", "one"])
def test_a_function_on_the_devices_gathers_the_rows_of_the_loader(sizes, front):
    lengths = np.random.default_rng(0).integers(0, 12, (40, 2 if isinstance(sizes, dict) else 1))
    given = {"longer": "truncate", "truncation_side": "left", "documents": 3, "begin": front}
    given |= {"per_document": ["label", "weights"], "pad": {"a": 2, "label": PAD}}
    if not isinstance(sizes, dict):
        given["fields"] = ["a"]
    plan = Pipeline(documents(lengths)).pack(sizes, seed=2, **given).batch(4)
    data, batch_at = as_function(plan)
    traced, loader = jax.jit(batch_at), plan.load(last="drop")
    for step, feed in enumerate(islice(loader.epoch(1), 4)):
        jax.tree.map(np.testing.assert_array_equal, traced(data, 1, step), feed)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 4), st.booleans())
@examples(60)
def test_rows_of_one_length_hold_no_more_documents_than_asked_for(lengths, most, fronts):
    docs = documents(np.array(lengths)[:, None])
    front = {"begin": FRONT} if fronts else {}
    plan = pack(docs, 31, fields=["a"], documents=most, per_document=["label"], seed=0, **front)
    seen = []
    for row in plan():
        count = int(row["segment_ids"].max())
        assert count <= most
        inside = row["a"][row["a"] != FRONT]
        assert inside[row["segment_ids"][len(row["a"]) - len(inside) :] > 0].tolist() == [
            100 * number + place
            for number in row["label"][:count].tolist()
            for place in range(lengths[number])
        ]
        assert (row["a"][0] == FRONT) == fronts
        seen += row["label"][:count].tolist()
    assert sorted(seen) == list(range(len(lengths)))


@pytest.mark.parametrize("split", ["never", "always"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_token_at_the_begin_of_rows_is_of_the_document_that_it_precedes(split, source):
    docs = documents([[6], [5], [2]])
    options = {"fields": ["a"], "seed": 0, "begin": FRONT}
    rows = list(pack(SOURCES[source](docs), 8, split, **options)())
    tokens = [token for row in rows for token in row["a"][1:][row["segment_ids"][1:] > 0].tolist()]
    assert sorted(tokens) == [*range(6), *range(100, 105), *range(200, 202)]
    for row in rows:
        assert row["a"][0] == FRONT
        assert (row["segment_ids"][0], row["positions"][0]) == (1, 0)
        first = row["segment_ids"] == 1
        assert row["positions"][first].tolist() == list(range(np.count_nonzero(first)))


def test_documents_of_equal_lengths_change_places_from_epoch_to_epoch():
    plan = pack(documents([[3, 1], [5, 3]] * 50), {"a": 8, "b": 4}, seed=0, documents=2)
    pairs = [
        {tuple(sorted(set((row["a"] // 100).tolist()))) for row in at_epoch(plan, epoch)()}
        for epoch in range(3)
    ]
    assert len(plan) == 50
    assert len(pairs[0] & pairs[1]) < 10 > len(pairs[1] & pairs[2])


def test_fill_counts_the_tokens_of_all_fields():
    plan = Pipeline(documents([[3, 1], [5, 3], [8, 1]])).pack({"a": 8, "b": 4}, seed=0)
    assert (len(plan), plan.fill) == (2, 21 / 24)


def test_packs_of_several_lengths_are_nearly_as_full_as_can_be():
    rng = np.random.default_rng(0)
    inputs = np.clip(rng.lognormal(4.3, 0.9, 3000), 1, 512).astype(int)
    targets = np.clip(inputs * rng.lognormal(-1.4, 0.5, 3000), 1, 128).astype(int)
    offsets = (np.cumsum([0, *each]) for each in (inputs, targets))
    docs = arrays(
        **{n: ragged(np.zeros(o[-1], int), o) for n, o in zip("ab", offsets, strict=True)}
    )
    least = max(inputs.sum() / 512, targets.sum() / 128)
    assert len(pack(docs, {"a": 512, "b": 128}, seed=0)) < 1.06 * least


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), min_size=1, max_size=30))
def test_documents_of_equal_needs_are_placed_as_if_one_by_one(needs):
    kinds, counts = np.unique(np.array(needs), axis=0, return_counts=True)
    found = best_fit_of_several(kinds, counts, np.array([6, 7]))
    edges = np.cumsum([0, *found.slots])
    held = np.zeros(len(kinds), int)
    for rows, low, high in zip(found.rows, edges, edges[1:], strict=False):
        assert (kinds[found.lengths[low:high]].sum(0) <= [6, 7]).all()
        np.add.at(held, found.lengths[low:high], rows)
    assert held.tolist() == counts.tolist()


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"size": {}}, ValueError, "type {'inputs': 512, 'targets': 128}"),
        ({"size": {"a": 0}}, ValueError, r"'a' of size of pack\(.*at least 1"),
        ({"split": "always"}, ValueError, "type longer='truncate'"),
        ({"longer": "split"}, ValueError, "type longer='truncate'"),
        ({"size": 8, "documents": 2, "split": "always"}, ValueError, "type longer='truncate'"),
        ({"fields": ["a"]}, ValueError, "leave fields= out"),
        ({"per_document": ["label"]}, ValueError, "as documents=8"),
        ({"per_document": ["a"], "documents": 2}, ValueError, "name each once"),
        ({"begin": 1, "size": {"a": 1}}, ValueError, "rows of 2 or more"),
        ({"truncation_side": "left"}, ValueError, "type longer='truncate' too"),
        ({"documents": 0}, ValueError, "documents of pack.*at least 1"),
        ({"per_document": "label"}, TypeError, "a list of names"),
    ],
)
def test_arguments_that_do_not_go_together_are_errors_where_they_are_written(given, error, says):
    with pytest.raises(error, match=says):
        pack(documents([[1, 1]]), **{"size": {"a": 8, "b": 8}, **given})


def strings():
    yield {"a": [1], "b": [2], "label": "web"}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"size": {"a": 8, "d": 8}}, "the field 'd'.*'a', 'b'.*name some of these"),
        ({"size": {"a": 8, "label": 8}}, r"'label'.*per_document=\[...\], with documents=n"),
        ({"size": 8}, r"'label'.*per_document=\[...\].*fields=\[...\]"),
        ({"pad": {"label": 0}}, "a pad for 'label'.*name one of these"),
        ({"begin": {"label": 0}}, "a begin for 'label'.*name one of these"),
        ({"begin": 0.5}, r"begin=0\.5\) cannot lead 'a', which is int64"),
        ({"size": 8, "fields": ["a", "b"], "begin": 1}, r"leads .*type begin={'a': 1}"),
        ({"size": {"a": 1, "b": 8}}, r"document 1 has 3 tokens, more than a row of 'a'"),
        ({"size": 8, "fields": ["a", "b"]}, r"document 1 .*each a length, as in pack\({'a': 512"),
    ],
)
def test_documents_that_do_not_fit_are_errors_with_what_to_type(source, given, says):
    lengths = [[1, 1], [3, 3 if "begin" in given else 2]]
    reader = SOURCES[source](documents(lengths))
    with pytest.raises(FeedMismatch, match=says):
        list(pack(reader, **{"size": {"a": 8, "b": 8}, "seed": 0, **given})())


def test_a_text_beside_documents_is_an_error_that_says_what_to_type():
    plan = pack(strings, {"a": 8, "b": 8}, documents=2, per_document=["label"], seed=0)
    with pytest.raises(FeedMismatch, match=r"numbers in per_document=\['label'\].*'web'"):
        list(plan())
