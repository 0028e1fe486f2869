"""`windows`: what is in them, over columns and streams in every order, and where they go on."""

from __future__ import annotations

import warnings
from itertools import chain as end_to_end

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seen import canonical, see
from widths import examples

import jreader
from jreader import Pipeline, arrays, as_function, at_epoch, cache, chain, ragged, shuffle, windows
from jreader.readers import indexed, length, start

told = pytest.mark.filterwarnings("ignore:windows.*leaves out .* tokens")

documents = st.lists(st.integers(0, 9), max_size=8).map(
    lambda lengths: [np.arange(length) + 10 * number for number, length in enumerate(lengths)]
)
cuts = st.tuples(st.integers(1, 6), st.one_of(st.none(), st.integers(1, 8)), st.booleans())


def columns(some):
    values = np.concatenate([np.zeros(0, int), *some])
    return ragged(values, np.cumsum([0, *map(len, some)]))


def by_hand(some, size, stride, across):
    """The windows, by Python's own slices."""
    streams = [list(end_to_end(*some))] if across else list(map(list, some))
    return [
        stream[at : at + size]
        for stream in streams
        for at in range(0, len(stream) - size + 1, stride or size)
    ]


def listed(samples):
    return [np.asarray(sample).tolist() for sample in samples]


@told
@given(documents, cuts)
def test_windows_are_the_slices_of_the_tokens(some, cut):
    expected = by_hand(some, *cut)
    indexed_, streamed = windows(columns(some), *cut), windows(lambda: some, *cut)
    assert listed(indexed_()) == listed(streamed()) == expected
    assert length(indexed_) == len(expected)
    plane = indexed(indexed_)
    assert listed(plane.take(np.arange(plane.length)[::-1])) == expected[::-1]
    assert indexed(streamed) is None


@told
@given(documents, cuts, st.integers(0, 3))
@examples(200)
def test_a_stream_of_windows_resumes_anywhere_in_a_document(some, cut, threads):
    plan = windows(jreader.buffered(lambda: some, threads), *cut)
    whole = see(plan)
    for place, position in enumerate(whole.positions):
        assert see(plan, position).samples == whole.samples[place:]


@told
@given(documents, cuts, st.integers(0, 2), st.integers(0, 2))
@examples(200)
def test_over_documents_in_a_random_order_they_are_those_of_that_order(some, cut, epoch, seed):
    dealt = at_epoch(shuffle(columns(some), seed=seed), epoch)
    plan = windows(dealt, *cut)
    assert indexed(plan) is None
    assert listed(plan()) == by_hand(list(dealt()), *cut)
    whole = see(plan)
    for place, position in enumerate(whole.positions):
        assert see(plan, position).samples == whole.samples[place:]


@told
@given(documents, cuts, st.integers(0, 5), st.integers(0, 5))
@examples(200)
def test_over_a_fixed_order_they_are_indexed(some, cut, skipped, taken):
    part = Pipeline(columns(some)).skip(skipped).firstn(taken)
    turned = cache(shuffle(columns(some), seed=3))
    for order in (part, turned, chain(columns(some), columns(some)), part.chain(columns(some))):
        plan = windows(order, *cut)
        plane, expected = indexed(plan), by_hand(list(order()), *cut)
        assert plane.length == len(expected)
        assert listed(plane.take(np.arange(plane.length))) == expected
        assert listed(plan()) == expected


@told
@given(documents, cuts, st.integers(1, 4), st.booleans())
@examples(40)  # each compiles
def test_inside_xla_they_are_the_same(some, cut, size, turned):
    order = cache(shuffle(columns(some), seed=1)) if turned else columns(some)
    plan = Pipeline(windows(order, *cut)).shuffle(seed=2).batch(size, drop_last=True)
    if not len(plan):
        return
    data, batch_at = as_function(plan)
    traced = jax.jit(batch_at)
    for epoch in range(2):
        expected = [batch.columns.tolist() for batch in at_epoch(plan, epoch)()]
        assert [traced(data, epoch, step).tolist() for step in range(len(plan))] == expected


def test_fields_are_cut_together():
    weights = np.arange(9.0)
    both = arrays(
        tokens=ragged(np.arange(9, dtype=np.uint16), [0, 4, 9]),
        weights=ragged(np.append(weights, [99.0]), [0, 4, 9]),
    )
    (first, second) = windows(both, 4)()
    assert {name: field.tolist() for name, field in second.items()} == {
        "tokens": [4, 5, 6, 7],
        "weights": [4.0, 5.0, 6.0, 7.0],
    }
    assert first["tokens"].dtype == np.uint16
    streamed = [*windows(lambda: list(both()), 4)()]
    assert list(map(canonical, streamed)) == list(map(canonical, (first, second)))
    (batch,) = Pipeline(both).windows(4).batch(2)
    assert batch.columns["weights"].shape == (2, 4)


def test_fields_may_begin_elsewhere_in_their_values():
    both = arrays(ragged(np.arange(9), [2, 4, 8]), ragged(np.arange(9) * 10, [0, 2, 6]))
    assert [(a.tolist(), b.tolist()) for a, b in windows(both, 3)()] == [
        ([2, 3, 4], [0, 10, 20]),
        ([5, 6, 7], [30, 40, 50]),
    ]


def test_values_of_several_axes_are_cut_along_the_first():
    points = ragged(np.arange(18.0).reshape(9, 2), [0, 4, 9])
    (first, *_, last) = windows(points, 2)()
    assert first.shape == (2, 2)
    assert last.tolist() == [[12.0, 13.0], [14.0, 15.0]]
    (batch, *_) = Pipeline(points).windows(2).batch(3)
    assert batch.columns.shape == (3, 2, 2)


def test_lists_and_dicts_of_lists_are_documents_as_tokenizers_give_them():
    rows = [{"input_ids": [1, 2, 3], "mask": [1, 1, 0]}, {"input_ids": [], "mask": []}]
    rows += [{"input_ids": [4], "mask": [1]}]
    cut = [{name: x.tolist() for name, x in each.items()} for each in windows(lambda: rows, 2)()]
    assert cut == [{"input_ids": [1, 2], "mask": [1, 1]}, {"input_ids": [3, 4], "mask": [0, 1]}]


def test_a_window_is_a_view_where_its_tokens_lie_together():
    values = np.arange(9)
    for window in windows(ragged(values, [0, 4, 9]), 3)():
        assert np.shares_memory(window, values)


def test_a_pass_begins_anywhere_at_once():
    reads = []

    class Counted(np.ndarray):
        def __getitem__(self, index):
            reads.append(index)
            return super().__getitem__(index)

    values = np.arange(10**6).view(Counted)
    plan = windows(ragged(values, [0, 500_000, 10**6]), 100)
    reads.clear()
    assert next(start(plan, 9000).items)[0] == 900_000
    assert len(reads) < 3


class TestWhatIsLeftOut:
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize(
        ("size", "stride", "left"), [(3, None, 4), (3, 1, 1), (2, None, 1), (4, None, 1), (5, 2, 6)]
    )
    def test_within_documents_it_warns_once_how_many_tokens_are_left_out(
        self, size, stride, left, stream
    ):
        some = [np.arange(4), np.arange(1), np.arange(8)]
        reader = (lambda: some) if stream else columns(some)
        plan = Pipeline(reader).windows(size, stride, across=False)
        with pytest.warns(UserWarning, match=f"leaves out {left} tokens of 3 documents") as seen:
            list(plan.chain(plan))
        assert len({str(each.message) for each in seen}) == 1  # which Python shows once
        assert "across=True" in str(seen[0].message)
        assert f".pack({size})" in str(seen[0].message)

    @pytest.mark.parametrize("stream", [False, True])
    def test_it_does_not_warn_where_nothing_is_left_out(self, stream):
        some = [np.arange(4), np.arange(0), np.arange(8)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            list(windows((lambda: some) if stream else columns(some), 4, across=False)())
            list(windows(columns(some), 5)())


class TestErrors:
    def test_a_field_of_one_value_for_each_document_is_refused(self):
        rows = arrays(text=ragged(np.arange(4), [0, 1, 4]), label=[0, 1])
        for reads in (lambda: len(windows(rows, 2)), lambda: list(windows(rows, 2)())):
            with pytest.raises(
                TypeError, match=r"'label' has one row for each document, int64\[2\]"
            ):
                reads()
        with pytest.raises(TypeError, match=r"'label': .* has 0, which has no axis of tokens"):
            list(windows(lambda: list(rows()), 2)())

    @pytest.mark.parametrize("sample", [5, "text", None, {"text": "words"}])
    def test_a_sample_that_is_no_document_is_refused(self, sample):
        with pytest.raises(TypeError, match="needs documents, arrays or lists of tokens, and"):
            list(windows(lambda: [sample], 2)())

    def test_fields_of_several_lengths_are_refused(self):
        rows = arrays(ragged(np.arange(4), [0, 1, 4]), ragged(np.arange(4), [0, 2, 4]))
        for plan in (windows(rows, 2), windows(lambda: list(rows()), 2)):
            with pytest.raises(ValueError, match="field 0 has 1 tokens, and field 1 2"):
                list(plan())

    def test_numbers_are_checked_where_they_are_written(self):
        with pytest.raises(ValueError, match="size of windows"):
            windows(list, 0)
        with pytest.raises(ValueError, match="stride of windows"):
            windows(list, 2, 0)
        with pytest.raises(TypeError, match="across of windows"):
            windows(list, 2, across="no")


def test_it_is_printed_as_it_was_written():
    reader = columns([np.arange(9)])
    plan = Pipeline(reader).windows(4, stride=2).windows(2, across=False)
    assert repr(plan) == (
        "Pipeline(ragged(int64[1, ...])).windows(size=4, stride=2).windows(size=2, across=False)"
    )


class TestTraining:
    T, B = 8, 4

    @pytest.fixture
    def loader(self, tmp_path):
        drawn = np.random.default_rng(0).integers(0, 50, 1000).astype(np.uint16)
        for number, part in enumerate(np.split(drawn, [300, 310])):
            part.tofile(tmp_path / f"{number}.bin")
        plan = Pipeline(jreader.tokens(tmp_path)).windows(self.T + 1, stride=self.T)
        return plan.shuffle(seed=5).batch(self.B)

    def test_an_epoch_of_nanogpt_is_one_scan_on_the_stream_of_the_loader(self, loader):
        """Bigram counts stand for the model: they are wrong if one token is."""
        data, batch_at = as_function(loader)

        def step(model, batch):
            x, y = batch[:, :-1].astype(int), batch[:, 1:].astype(int)
            return model.at[x, y].add(model[y, x] * 0.5 + 1.0)

        empty = jnp.zeros((50, 50))

        @jax.jit
        def trained(model, epoch):
            def one(model, number):
                return step(model, batch_at(data, epoch, number)), None

            return jax.lax.scan(one, model, jnp.arange(len(batch_at)))[0]

        feeds = loader.load(last="drop")
        for epoch in range(2):
            model = empty
            for batch in feeds:
                assert batch.dtype == np.uint16
                model = jax.jit(step)(model, batch)
            np.testing.assert_array_equal(trained(empty, epoch), model)

    def test_uint16_travels_and_the_device_widens(self, loader):
        feeds = loader.load(last="drop").on_device(
            lambda batch: (batch[:, :-1].astype(np.int32), batch[:, 1:].astype(np.int32))
        )
        x, y = next(iter(feeds))
        assert x.dtype == y.dtype == np.int32
        assert x.shape == (self.B, self.T)
        np.testing.assert_array_equal(x[:, 1:], y[:, :-1])

    def test_a_mesh_is_fed_and_holds_the_data_of_a_function(self, loader):
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("data",))
        whole = [np.asarray(batch) for batch in loader.load(last="drop")]
        split = [np.asarray(batch) for batch in loader.load(sharding=mesh, last="drop")]
        np.testing.assert_array_equal(whole, split)
        everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        data, batch_at = as_function(loader, sharding=everywhere)
        np.testing.assert_array_equal(batch_at(data, 0, 0), whole[0])

    def test_too_many_tokens_for_a_device_are_refused(self, tmp_path):
        with (tmp_path / "a.bin").open("wb") as file:
            file.truncate(2**32)
        plan = Pipeline(jreader.tokens(tmp_path / "a.bin")).windows(1024).batch(8)
        with pytest.raises(ValueError, match="the documents have 2,147,483,648"):
            as_function(plan)
