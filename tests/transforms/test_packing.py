"""Packed rows: every token once, in a segment of its document, at its position; full; any place."""

from __future__ import annotations

import itertools
import json
from itertools import islice, pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seen import see
from texts import documents, streamed
from together import processes
from widths import examples, few

from jreader import (
    FeedMismatch,
    NotResumable,
    Pipeline,
    arrays,
    as_function,
    at_epoch,
    chain,
    compose,
    epochs,
    pack,
    ragged,
    shuffle,
    skip,
    start,
)
from jreader.readers import indexed
from jreader.readers.ragged import Ragged
from jreader.transforms.packing.cut_documents import shuffled
from jreader.transforms.packing.whole_documents import best_fit, dealt

some_lengths = st.lists(st.integers(0, 40), max_size=60)
sizes = st.integers(1, 24)
LOG_NORMAL = np.clip(np.random.default_rng(0).lognormal(5.5, 1.1, 20_000), 1, 2048).astype(int)


def tokens(lengths):
    """Documents of these lengths in which every token is another number: 1, 2, ..."""
    offsets = np.cumsum([0, *lengths])
    return ragged(np.arange(1, offsets[-1] + 1), offsets)


def segments(row):
    """The segments of a row, which is checked to be one."""
    ids, positions = row["segment_ids"], row["positions"]
    assert ids.dtype == positions.dtype == np.int32
    used = np.count_nonzero(ids)
    assert used
    assert ids[used:].tolist() == positions[used:].tolist() == [0] * (len(ids) - used)
    assert ids[:used].tolist() == sorted(ids[:used])
    assert set(ids[:used].tolist()) == set(range(1, ids.max() + 1))
    found = []
    for number in range(1, ids.max() + 1):
        here = ids == number
        assert positions[here].tolist() == list(range(np.count_nonzero(here)))
        found.append(row["tokens"][here].tolist())
    assert not row["tokens"][used:].any()
    return found


def packed(reader):
    return [segments(row) for row in reader()]


def together(rows):
    """All segments, in the order of the tokens."""
    return sorted(segment for row in rows for segment in row)


def pieces(lengths, size):
    """What whole documents become where longer ones are split."""
    document = [row.tolist() for row in tokens(lengths)()]
    return [row[at : at + size] for row in document for at in range(0, len(row), size)]


def read(reader):
    """The same documents as a plain function."""
    return streamed(reader)


SOURCES = {"found by place": lambda reader: reader, "a stream": read}


@pytest.mark.parametrize("source", SOURCES)
@given(some_lengths, sizes, st.integers(0, 3), st.integers(0, 5))
@examples(200)
def test_whole_documents_lie_in_one_row_each_once(source, lengths, size, seed, epoch):
    if not any(lengths):
        return
    reader = SOURCES[source](tokens(lengths))
    rows = packed(at_epoch(pack(reader, size, longer="split", seed=seed), epoch))
    assert together(rows) == pieces(lengths, size)


@pytest.mark.parametrize("source", SOURCES)
@given(some_lengths, sizes, st.integers(0, 3), st.integers(0, 5))
@examples(200)
def test_cut_documents_lie_end_to_end_and_are_cut_where_rows_end(
    source, lengths, size, seed, epoch
):
    if not any(lengths):
        return
    reader = SOURCES[source](tokens(lengths))
    rows = packed(at_epoch(pack(reader, size, "always", seed=seed), epoch))
    assert list(itertools.chain.from_iterable(together(rows))) == list(range(1, sum(lengths) + 1))
    assert len(rows) == -(-sum(lengths) // size)
    assert sum(sum(map(len, row)) < size for row in rows) <= 1
    edges = set(np.cumsum([0, *lengths]).tolist())
    for row in rows:
        for before, after in pairwise(row):
            assert before[-1] in edges
            assert after[0] - 1 in edges
        for segment in row:  # within one document
            assert segment == list(range(segment[0], segment[-1] + 1))
            assert edges.isdisjoint(segment[:-1])


@given(some_lengths, sizes, st.sampled_from(["never", "always"]), st.integers(1, 7))
@examples(250)
def test_windows_are_packed_one_after_another_as_if_each_were_all(lengths, size, split, window):
    longer = "split" if split == "never" else "error"
    full = [length for length in lengths if length]
    options = {"split": split, "longer": longer, "seed": 3}
    rows = packed(pack(tokens(full), size, window=window, **options))
    done = 0
    for low in range(0, len(full), window):
        here = full[low : low + window]
        alone = pack(tokens(here), size, **options)
        many = len(alone)
        shifted = [[[t - sum(full[:low]) for t in s] for s in row] for row in rows[done:][:many]]
        assert together(shifted) == together(packed(alone)) if split == "never" else True
        assert list(itertools.chain.from_iterable(together(shifted))) == list(
            range(1, sum(here) + 1)
        )
        done += many
    assert done == len(rows)


@given(some_lengths, sizes, st.sampled_from(["never", "always"]), st.integers(0, 5))
def test_a_stream_is_packed_as_the_same_documents_found_by_place(lengths, size, split, epoch):
    longer = "truncate" if split == "never" else "error"
    plan, other = (
        at_epoch(pack(reader, size, split, longer, seed=1), epoch)
        for reader in (tokens(lengths), read(tokens(lengths)))
    )
    assert see(plan).samples == see(other).samples


@given(some_lengths, sizes, st.sampled_from(["never", "always"]))
@examples(60)
def test_any_rows_are_gathered_in_any_order(lengths, size, split):
    plan = pack(tokens(lengths), size, split, "split" if split == "never" else "error", seed=5)
    plane = indexed(plan)
    if plane is None:
        assert not any(lengths)
        return
    rows = packed(plan)
    assert len(rows) == plane.length == len(plan)
    drawn = np.random.default_rng(len(rows))
    for places in (drawn.permutation(len(rows)), drawn.integers(0, len(rows), 5)):
        assert [segments(row) for row in plane.take(places)] == [rows[place] for place in places]


@pytest.mark.parametrize("split", ["never", "always"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_pass_resumes_from_every_row(source, split):
    plan = pack(SOURCES[source](tokens([3, 8, 0, 5, 5, 1] * 6)), 8, split, seed=2)
    if source == "a stream":
        plan = pack(plan.reader, 8, split, window=7, seed=2)
    whole = see(plan)
    for place, position in enumerate(whole.positions):
        assert see(plan, position).samples == whole.samples[place:]


def test_an_unseeded_pass_resumes_in_the_order_that_it_drew():
    plan = pack(tokens([3, 8, 5, 5, 1] * 30), 8)
    first = start(plan)
    head = [next(first.items) for _ in range(10)]
    rest = [*start(plan, json.loads(json.dumps(first.position()))).items]
    assert together(map(segments, head + rest)) == pieces([3, 8, 5, 5, 1] * 30, 8)
    assert packed(plan) != packed(plan)


def pairs(rows):
    """Which documents share a row, each by its first token."""
    return {
        (one[0], other[0])
        for row in map(sorted, rows)
        for place, one in enumerate(row)
        for other in row[place + 1 :]
    }


@pytest.mark.parametrize("split", ["never", "always"])
@pytest.mark.parametrize(
    "lengths",
    [pytest.param(LOG_NORMAL // 8 + 1, marks=pytest.mark.slow), [32] * 1000, [24, 40] * 400],
    ids=["many", "one", "two"],
)
def test_who_shares_a_row_differs_from_epoch_to_epoch(split, lengths):
    plan = pack(tokens(lengths), 257, split, seed=0)
    plans = plan, at_epoch(plan, 1), pack(plan.reader, 257, split, seed=1)
    first, second, other = map(pairs, map(packed, plans))
    assert len(first & second) < 0.1 * len(first)
    assert len(first & other) < 0.1 * len(first)


@pytest.mark.parametrize("split", few(["never", "always"], ["never"]))
def test_the_order_of_rows_is_another_in_each_epoch_and_none_is_by_length(split):
    plan = pack(tokens(LOG_NORMAL[:3000]), 2048, split, seed=0)
    orders = [[len(row) for row in packed(at_epoch(plan, epoch))] for epoch in range(3)]
    assert len({tuple(order) for order in orders}) == 3
    for order in orders:
        assert abs(np.corrcoef(order, range(len(order)))[0, 1]) < 0.15


@pytest.mark.parametrize("split", ["never", "always"])
def test_fill_is_known_before_the_first_row_and_at_least_0_999(split):
    plan = Pipeline(tokens(LOG_NORMAL)).pack(2048, split, seed=0)
    assert plan.fill >= 0.999
    assert plan.fill == LOG_NORMAL.sum() / (len(plan) * 2048)
    used = sum(np.count_nonzero(batch.columns["segment_ids"]) for batch in plan.batch(64))
    assert used == LOG_NORMAL.sum()
    assert plan.shuffle(seed=0).fill == plan.fill
    assert f"fill {plan.fill:.4f}" in plan._repr_html_()


def test_windows_of_a_stream_are_nearly_as_full():
    plan = pack(read(tokens(LOG_NORMAL)), 2048, seed=0)
    assert plan.fill is None
    filled = [np.count_nonzero(row["segment_ids"]) for row in plan()]
    assert sum(filled) == LOG_NORMAL.sum()
    assert np.mean(filled) / 2048 > 0.995


@pytest.mark.parametrize(
    ("longer", "found"),
    [
        ("split", [[1, 2, 3, 4], [5, 6], [7], [8, 9, 10, 11]]),
        ("truncate", [[1, 2, 3, 4], [7], [8, 9, 10, 11]]),
        ("drop", [[7], [8, 9, 10, 11]]),
    ],
)
@pytest.mark.parametrize("source", SOURCES)
def test_documents_that_are_longer_than_a_row_become_what_was_asked_for(source, longer, found):
    reader = SOURCES[source](tokens([6, 1, 0, 4]))
    assert together(packed(pack(reader, 4, longer=longer, seed=0))) == found


@pytest.mark.parametrize("source", SOURCES)
def test_a_document_that_is_longer_than_a_row_is_an_error_that_says_which_and_what_to_type(source):
    plan = pack(SOURCES[source](tokens([1, 2, 6])), 4, seed=0)
    with pytest.raises(FeedMismatch, match=r"document 2 has 6 tokens.*longer='split'.*'always'"):
        list(plan())
    with pytest.raises(FeedMismatch, match=r"document 5 has 6 tokens"):
        list(pack(read(tokens([1, 2, 3, 4, 1, 6])), 4, window=2, seed=0)())


def test_fields_are_packed_together_under_their_names():
    text = tokens([3, 2, 4])
    weights = ragged(np.linspace(0, 1, 9, dtype=np.float32), [0, 3, 5, 9])
    pairs_of = ragged(np.arange(18).reshape(9, 2), [0, 3, 5, 9])
    docs = arrays(text=text, weights=weights, pairs=pairs_of)
    for reader in (docs, read(docs)):
        rows = list(pack(reader, 6, pad={"text": -1, "weights": 0.5}, seed=0)())
        assert [list(row) for row in rows] == [
            ["text", "weights", "pairs", "segment_ids", "positions"]
        ] * len(rows)
        for row in rows:
            there = row["segment_ids"] > 0
            assert row["weights"].dtype == np.float32
            np.testing.assert_allclose(row["weights"][there], (row["text"][there] - 1) / 8)
            assert (row["pairs"][there, 1] == row["text"][there] * 2 - 1).all()
            assert set(row["text"][~there]) <= {-1}
            assert set(row["weights"][~there]) <= {0.5}
            assert not row["pairs"][~there].any()
        assert sum(np.count_nonzero(row["segment_ids"]) for row in rows) == 9


def test_fields_that_have_no_tokens_are_left_out_by_name():
    docs = arrays(tokens=tokens([3, 2]), label=np.arange(2))
    for reader in (docs, read(docs)):
        assert together(packed(pack(reader, 4, fields=["tokens"], seed=0))) == [[1, 2, 3], [4, 5]]
    assert len(pack(docs, 4, fields=["tokens"])) == 2


@pytest.mark.parametrize("split", ["never", "always"])
def test_what_moves_documents_below_is_packed_too(split):
    lengths = [3, 1, 4, 1, 5, 2]
    moved = skip(chain(tokens(lengths), epochs(tokens(lengths), 2)), 2)
    expected = [row.tolist() for row in moved()]
    plan = pack(moved, 9, split, seed=1)
    assert len(plan) == indexed(plan).length
    found = together(packed(plan))
    assert sum(map(len, found)) == sum(map(len, expected))
    if split == "never":
        assert found == sorted(expected)


def test_shuffled_documents_are_packed_in_windows_and_none_is_lost():
    plan = pack(shuffle(tokens(LOG_NORMAL[:500]), seed=0), 2048, window=100, seed=0)
    assert indexed(plan) is None
    assert plan.fill is None
    for epoch in range(2):
        rows = packed(at_epoch(plan, epoch))
        assert together(rows) == pieces(LOG_NORMAL[:500], 2048)


class Counting(Ragged):
    """A ragged column that counts how often lengths are looked up."""

    asked = 0

    def lengths(self, rows=None):
        self.asked += 1
        return super().lengths(rows)


def test_lengths_are_looked_at_once_for_all_epochs_and_passes():
    column = Counting(np.arange(100), np.arange(0, 101, 5))
    rows = Pipeline(arrays(tokens=column)).pack(16)
    assert rows.fill
    asked = column.asked
    for epoch in range(3):
        assert len(list(at_epoch(rows, epoch))) == len(rows) == 7
        list(rows.shuffle().batch(2))
    assert column.asked == asked


def test_memory_maps_and_small_dtypes_are_packed_as_they_are(tmp_path):
    lengths = LOG_NORMAL[:300]
    reader = documents(lengths)
    np.save(tmp_path / "tokens.npy", reader.columns.values)
    mapped = np.load(tmp_path / "tokens.npy", mmap_mode="r")
    rows = list(pack(ragged(mapped, reader.columns.offsets), 2048, seed=0)())
    assert {row["tokens"].dtype for row in rows} == {np.dtype(np.uint16)}
    assert [row["tokens"].tolist() for row in rows] == [
        row["tokens"].tolist() for row in pack(reader, 2048, seed=0)()
    ]


class TestOnDevices:
    @pytest.mark.parametrize("split", few(["never", "always"], ["never"]))
    @pytest.mark.parametrize("size", few([7, 64], [7]))
    def test_a_function_gathers_the_rows_of_the_loader(self, split, size):
        lengths = np.random.default_rng(size).integers(0, size + 1, 300)
        text = tokens(lengths)
        docs = arrays(
            text=text,
            pairs=ragged(
                np.arange(text.columns.offsets[-1] * 2).reshape(-1, 2), text.columns.offsets
            ),
        )
        plan = Pipeline(chain(docs, skip(docs, 9))).pack(size, split, pad=3, seed=4).batch(8)
        data, batch_at = as_function(plan)
        traced = jax.jit(batch_at)
        loader = plan.load(last="drop")
        assert len(batch_at) == len(loader)
        for epoch in range(3):
            for step, feed in enumerate(islice(loader.epoch(epoch), 5)):
                jax.tree.map(np.testing.assert_array_equal, traced(data, epoch, step), feed)

    @pytest.mark.slow
    def test_an_epoch_is_one_scan(self):
        plan = Pipeline(tokens([3, 8, 5, 5, 1] * 20)).pack(8, seed=0).shuffle(seed=1).batch(4)
        data, batch_at = as_function(plan, last="pad")

        @jax.jit
        def tokens_of(epoch):
            steps = jnp.arange(len(batch_at))
            return jax.lax.scan(lambda _, step: (0, batch_at(data, epoch, step)), 0, steps)[1]

        for epoch in range(2):
            feed = tokens_of(epoch)
            there = feed["segment_ids"] > 0
            assert sorted(feed["tokens"][there].tolist()) == list(range(1, 22 * 20 + 1))

    @pytest.mark.slow
    def test_seeds_that_are_traced_choose_the_rows(self):
        plan = Pipeline(tokens([3, 8, 5, 5, 1] * 20)).pack(8, seed=0).batch(4)
        data, batch_at = as_function(plan)
        runs = jax.vmap(lambda seed: batch_at(data, 1, 2, seed))(jnp.arange(3))
        for seed in range(3):
            rows = Pipeline(tokens([3, 8, 5, 5, 1] * 20)).pack(8, seed=seed).batch(4)
            feed = [*islice(rows.load().epoch(1), 3)][-1]
            jax.tree.map(lambda a, b, n=seed: np.testing.assert_array_equal(a[n], b), runs, feed)

    def test_more_tokens_than_32_bits_count_are_an_error(self):
        values = np.broadcast_to(np.uint16(1), 1 << 32)
        docs = ragged(values, np.arange(0, (1 << 32) + 1, 1 << 20))
        assert len(pack(docs, 1 << 20)) == 1 << 12
        with pytest.raises(ValueError, match=r"2\*\*31 tokens.*\.load"):
            as_function(Pipeline(docs).pack(1 << 20, seed=0).batch(2))


def a_tuple():
    yield np.arange(3), 1


def texts():
    yield "to be"


def strings():
    yield ["to", "be"]


def numbers():
    yield 3


def unequal():
    yield {"text": [1, 2], "weights": [1.0, 0.5]}
    yield {"text": [1, 2], "weights": [1.0]}


def other_dtypes():
    yield np.arange(3)
    yield np.arange(2.0)


def named_like_rows():
    yield {"tokens": [1], "positions": [5]}


def lacks_a_field():
    yield {"text": [1], "weights": [1.0]}
    yield {"text": [1]}


@pytest.mark.parametrize(
    ("reader", "says"),
    [
        (a_tuple, r"arrays\(tokens=\.\.\., \.\.\.\)"),
        (compose(documents([2]), documents([2])), r"arrays\(tokens=\.\.\., \.\.\.\)"),
        (texts, r"\.map\(tokenize\)"),
        (strings, r"\.map\(tokenize\)"),
        (numbers, r"'tokens': 3.*fields=\[\.\.\.\]"),
        (arrays(text=documents([2]), label=[1]), r"'label'.*fields=\[\.\.\.\]"),
        (unequal, r"document 1 has 2 of 'text' and 1 of 'weights'.*fields=\['text'\]"),
        (
            arrays(text=documents([2, 2]), weights=documents([2, 1])),
            r"document 1 has 2 of 'text' and 1 of 'weights'",
        ),
        (other_dtypes, r"one dtype and shape.*float64.*int64"),
        (named_like_rows, r"'positions'.*rename"),
        (arrays(segment_ids=documents([2])), r"'segment_ids'.*rename"),
        (lacks_a_field, r"no 'weights'"),
        (documents([0, 0]), r"none of the documents.*has a token"),
        (lambda: [[], []], r"none of the documents.*has a token"),
    ],
)
def test_samples_that_are_no_documents_are_errors_with_what_to_type(reader, says):
    with pytest.raises(FeedMismatch, match=says):
        list(pack(reader, 8, seed=0)())


def test_documents_of_which_none_is_kept_are_an_error():
    with pytest.raises(FeedMismatch, match="nothing to pack"):
        list(pack(documents([9, 9]), 8, longer="drop")())


def test_no_documents_make_no_rows():
    assert list(pack(documents([]), 8)()) == list(pack(list, 8)()) == []


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"split": "sometimes"}, ValueError, "'never' or 'always', not 'sometimes'"),
        ({"longer": "cut"}, ValueError, "'truncate' or 'drop', not 'cut'"),
        ({"split": "always", "longer": "drop"}, ValueError, "leave longer='drop' out"),
        ({"fields": "text"}, TypeError, r"as fields=\['tokens'\], not 'text'"),
        ({"fields": []}, TypeError, "a list of names"),
        ({"window": 0}, ValueError, "at least 1"),
        ({"size": 0}, ValueError, "at least 1"),
        ({"seed": "a"}, TypeError, "seed"),
    ],
)
def test_bad_arguments_are_errors_where_they_are_written(options, error, says):
    with pytest.raises(error, match=says):
        pack(documents([1]), **{"size": 8, **options})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"pad": -1}, r"pad=-1.*uint16"),
        ({"pad": 0.5}, r"pad=0\.5.*uint16"),
        ({"pad": "x"}, "uint16"),
        ({"pad": [1, 2]}, "one number"),
        ({"pad": {"text": 1}}, "'text'.*'tokens'"),
        ({"fields": ["text"]}, "'tokens'"),
    ],
)
def test_arguments_that_do_not_fit_the_documents_are_errors(options, says):
    for reader in (documents([3, 2]), read(documents([3, 2]))):
        with pytest.raises(FeedMismatch, match=says):
            list(pack(reader, 8, seed=0, **options)())


def test_a_position_behind_the_rows_of_a_window_is_refused():
    plan = pack(read(documents([3, 2])), 8, seed=0)
    with pytest.raises(NotResumable):
        list(start(plan, (None, 0, 99)).items)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40).filter(any))
def test_every_document_of_the_histogram_has_a_slot_and_no_row_is_too_long(histogram):
    found = best_fit(np.array([0, *histogram]))
    edges = np.cumsum([0, *found.slots])
    held = np.zeros(len(histogram) + 1, int)
    for rows, low, high in zip(found.rows, edges, edges[1:], strict=False):
        assert found.lengths[low:high].sum() <= len(histogram)
        np.add.at(held, found.lengths[low:high], rows)
    assert held[1:].tolist() == histogram


def keyed_maps(namespace, n, variant, number):
    words = [namespace.asarray([each], np.uint32) for each in (variant, number)]
    ranks = namespace.arange(n).astype(np.uint32)
    return dealt(ranks, np.uint32(n), *words), shuffled(n, *words)[0]


@given(st.integers(1, 3000), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_keyed_maps_are_permutations(n, variant, number):
    for order in keyed_maps(np, n, variant, number):
        assert sorted(order.tolist()) == list(range(n))


@pytest.mark.parametrize("n", few([1, 2, 10, 63, 64, 257, 1000, 2999], [10, 2999]))
def test_keyed_maps_are_the_same_under_jax(n):
    """Of few numbers, since each is compiled."""
    for words in np.random.default_rng(n).integers(0, 2**32, (20, 2)):
        both = (keyed_maps(namespace, n, *map(int, words)) for namespace in (np, jnp))
        jax.tree.map(np.testing.assert_array_equal, *both)


@pytest.mark.parametrize("n", [2**31 - 1, 2**32 - 1])
def test_keyed_maps_stay_in_32_bits(n):
    ranks = np.array([0, 1, n // 2, n - 2, n - 1], np.uint32)
    words = np.array([3], np.uint32), np.array([4], np.uint32)
    found = dealt(ranks, np.uint32(n), *words)
    assert len({*found.tolist()}) == len(ranks)
    assert (found < n).all()
    one, n = np.uint32(1), 1 << 16
    np.testing.assert_array_equal(dealt(one[None] - one, one, *words), [0])
    assert sorted(shuffled(n, *words)[0].tolist()) == list(range(n))


PROCESSES = """
from jreader import Pipeline, ragged
lengths = np.random.default_rng(0).integers(0, 30, 200)
text = ragged(np.arange(1, lengths.sum() + 1), np.cumsum([0, *lengths]))
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
found = {}
for split in ("never", "always"):
    loader = Pipeline(text).pack(32, split, seed=0).batch(8).load(sharding=mesh, last="pad")
    step = jax.jit(lambda feed: jax.tree.map(lambda leaf: (leaf.astype(int) ** 2).sum(), feed))
    sums = []
    for epoch in range(2):
        feeds = loader.epoch(epoch)
        for feed in feeds:
            sums.append([int(each) for each in jax.tree.leaves(step(feed))])
            if feeds.step == 3:
                cursor = feeds.cursor
    rest = [int(feed["tokens"].sum()) for feed in loader.epoch(1, at=cursor)]
    found[split] = len(loader), sums, rest
say(found)
"""


@pytest.mark.slow
def test_all_processes_have_the_same_steps_and_rows():
    (alone,) = processes(PROCESSES, 1, devices=4)
    assert processes(PROCESSES, 4) == [alone] * 4
    for steps, sums, rest in alone.values():
        assert len(sums) == 2 * steps
        assert len(rest) == steps - 3
