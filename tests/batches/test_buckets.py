"""`bucket`: each batch has the length of its bucket, nothing is lost, and every place is exact."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from texts import as_lists, documents, numbered, streamed

import jreader
from jreader import NotResumable, Pipeline, arrays, at_epoch, bucket, epochs, ragged, start, tokens
from jreader.batches.bucket_bounds import chosen_bounds
from jreader.readers import fingerprint

BOUNDS = [2, 5, 9]
LENGTHS = [3, 1, 0, 5, 2]
many = st.lists(st.integers(0, 9), max_size=60)
seeds = st.integers(0, 3)


def given_by(batches):
    """The ids in the order of the samples."""
    return [int(number) for batch in batches for number in batch.columns["id"]]


def canonical(batch):
    return {name: column.tolist() for name, column in batch.columns.items()}


class TestBuckets:
    @given(many, st.integers(1, 5), seeds, st.booleans(), st.booleans())
    def test_a_batch_has_the_length_of_its_bucket_and_nothing_is_lost(
        self, lengths, size, seed, stream, drop_last
    ):
        reader = numbered(lengths)
        plan = bucket(
            streamed(reader) if stream else reader, BOUNDS, size, drop_last=drop_last, seed=seed
        )
        batches = list(plan())
        for batch in batches:
            columns = batch.columns
            bound = columns["text"].shape[1]
            below = max([0, *(b for b in BOUNDS if b < bound)])
            there = columns["text_mask"].sum(1)
            assert bound in BOUNDS
            assert ((there <= bound) & ((there > below) | (bound == BOUNDS[0]))).all()
            assert [lengths[i] for i in columns["id"]] == there.tolist()
            for row, mask, number in zip(
                columns["text"], columns["text_mask"], columns["id"], strict=True
            ):
                assert (row[mask] == number + 1).all()
                assert (row[~mask] == 0).all()
        rests = 0
        for low, high in zip([-1, *BOUNDS], BOUNDS, strict=False):
            in_it = sum(low < length <= high for length in lengths)
            rests += in_it % size
        found = Counter(given_by(batches))
        assert set(found.values()) <= {1}
        assert len(found) == len(lengths) - (rests if drop_last else 0)
        full = [batch for batch in batches if len(batch) == size]
        assert len(batches) - len(full) <= (0 if drop_last else len(BOUNDS))

    @given(many, st.integers(9, 40), st.integers(1, 3), seeds)
    def test_with_tokens_a_batch_has_as_many_rows_as_fit(self, lengths, tokens, each, seed):
        tokens *= each
        plan = bucket(numbered(lengths), BOUNDS, tokens=tokens, divisible_by=each, seed=seed)
        assert plan.rows == tuple(tokens // bound // each * each for bound in BOUNDS)
        for batch in plan():
            rows, bound = batch.columns["text"].shape
            assert rows * bound <= tokens
            assert batch.full == plan.rows[BOUNDS.index(bound)] >= rows

    def test_samples_are_shuffled_in_each_bucket_and_batches_mixed(self):
        plan = bucket(numbered([1, 5] * 50), [2, 5], 5, seed=0)
        ids = given_by(plan())
        lengths = [batch.columns["text"].shape[1] for batch in plan()]
        assert sorted(ids) == list(range(100)) != ids
        assert lengths not in (sorted(lengths), sorted(lengths)[::-1])
        partners = {frozenset(batch.columns["id"].tolist()) for batch in plan()}
        later = {frozenset(batch.columns["id"].tolist()) for batch in at_epoch(plan, 1)()}
        assert len(partners) == len(later) == 20
        assert not partners & later

    def test_bounds_count_themselves(self):
        found = [
            b.columns["tokens"].shape[1] for b in bucket(documents([2, 3]), [2, 3], 1, seed=0)()
        ]
        assert sorted(found) == [2, 3]

    def test_the_longest_of_several_fields_chooses_the_bucket_or_the_one_that_is_named(self):
        rows = arrays(a=documents([1, 4]), b=documents([3, 1]))
        (one, other) = bucket(rows, [2, 4], 1, seed=0)()
        assert one.columns["a"].shape == other.columns["b"].shape == (1, 4)
        named = bucket(rows, [2, 4], 1, by="a", longer="truncate", seed=0)
        assert sorted(batch.columns["b"].shape for batch in named()) == [(1, 2), (1, 4)]
        by_stream = bucket(streamed(rows), [2, 4], 1, by="a", fields=["a", "b"], longer="truncate")
        assert sorted(map(repr, map(canonical, by_stream()))) == sorted(
            map(repr, map(canonical, named()))
        )

    @pytest.mark.parametrize("stream", [False, True])
    def test_what_is_longer_than_the_last_bound(self, stream):
        def plan(longer):
            reader = documents([1, 7, 3])
            return bucket(as_lists(reader) if stream else reader, [2, 4], 1, longer=longer, seed=0)

        with pytest.raises(ValueError, match=r"(sample 1 with|has) 7.*'truncate' .*'drop'"):
            list(plan("error")())
        assert sorted(b.columns["tokens_mask"].sum() for b in plan("truncate")()) == [1, 3, 4]
        assert sorted(b.columns["tokens_mask"].sum() for b in plan("drop")()) == [1, 3]

    def test_an_empty_reader_has_no_batch(self):
        assert list(bucket(documents([]), [2], 2, seed=0)()) == []
        assert list(bucket(list, [2], 2)()) == []


class TestPlaces:
    @given(many, st.integers(1, 5), seeds, st.booleans(), st.integers(0, 2))
    def test_each_position_is_exact_through_json(self, lengths, size, seed, stream, epoch):
        reader = numbered(lengths)
        plan = bucket(streamed(reader) if stream else reader, BOUNDS, size, seed=seed)
        plan = at_epoch(plan, epoch)
        whole = list(map(canonical, plan()))
        here = start(plan)
        for place in range(len(whole) + 1):
            position = json.loads(json.dumps(here.position()))
            again = start(
                cloudpickle.loads(cloudpickle.dumps(plan)) if not stream else plan, position
            )
            assert again.position() == here.position() or place == len(whole)
            assert list(map(canonical, again.items)) == whole[place:]
            next(here.items, None)

    @given(many, st.integers(1, 5), seeds)
    def test_a_batch_is_found_by_its_index(self, lengths, size, seed):
        plan = Pipeline(numbered(lengths)).bucket(BOUNDS, size, seed=seed)
        whole = list(map(canonical, plan))
        assert len(plan) == len(whole)
        assert [canonical(plan[place]) for place in range(len(plan))] == whole

    def test_the_order_is_the_same_in_another_process(self, python):
        plan = bucket(numbered([1, 4, 9, 3] * 9), BOUNDS, 3, seed=5)
        script = """
            import numpy as np
            from jreader import arrays, bucket, ragged
            offsets = np.cumsum([0, *[1, 4, 9, 3] * 9])
            rows = arrays(text=ragged(np.zeros(offsets[-1], int), offsets), id=np.arange(36))
            print([b.columns["id"].tolist() for b in bucket(rows, [2, 5, 9], 3, seed=5)()])
        """
        assert python(script).stdout.strip() == str([b.columns["id"].tolist() for b in plan()])

    def test_without_a_seed_each_pass_is_another_and_can_be_resumed(self):
        plan = bucket(numbered([1] * 50), [2], 5)
        here = start(plan)
        head = [*islice(here.items, 3)]
        rest = start(plan, json.loads(json.dumps(here.position())))
        ids = given_by([*head, *rest.items])
        assert sorted(ids) == list(range(50)) != given_by(plan())

    def test_a_stream_needs_no_seed(self):
        plan = bucket(as_lists(documents([1] * 4)), [2], 2)
        assert start(plan).position() == (None, 0, (0,))

    def test_a_position_of_other_lengths_is_refused(self):
        here = start(bucket(documents([1, 1, 5]), BOUNDS, 1, seed=0))
        next(here.items)
        with pytest.raises(NotResumable, match="with other lengths"):
            start(bucket(documents([1, 5, 5]), BOUNDS, 1, seed=0), here.position())

    def test_the_order_of_a_bucket_is_pinned(self):
        ids = given_by(bucket(numbered([1, 4, 9] * 4), BOUNDS, 2, seed=1)())
        assert ids == [5, 11, 10, 7, 8, 2, 9, 0, 6, 3, 4, 1]

    def test_a_shuffled_reader_is_a_stream_and_so_every_epoch_differs(self):
        plan = Pipeline(numbered([1, 4] * 20)).shuffle(seed=3).bucket([2, 4], 4, seed=0)
        two = [given_by(at_epoch(plan, epoch)()) for epoch in (0, 1)]
        assert sorted(two[0]) == sorted(two[1]) == list(range(40))
        assert two[0] != two[1]
        assert given_by(epochs(plan, 2)()) == two[0] + two[1]

    @given(many, st.integers(1, 5), st.integers(0, 9))
    def test_what_waits_of_a_stream_is_bounded(self, lengths, size, taken):
        pulled = []

        def source():
            for length in lengths:
                pulled.append(length)
                yield [0] * length

        here = start(bucket(source, BOUNDS, size))
        handed = sum(len(batch) for batch in islice(here.items, taken))
        assert len(pulled) - handed <= len(BOUNDS) * (size - 1) or pulled == lengths

    def test_a_rare_bucket_keeps_few_marks_of_a_long_stream(self):
        def source():
            yield [0] * 9
            for _ in range(20_000):
                yield [0]

        plan = bucket(source, [1, 9], 4)
        here = start(plan)
        batches = list(islice(here.items, 4990))
        waiting = here.items.gi_frame.f_locals["self"]
        marks = {id(mark) for samples in waiting.waiting for _, mark, _ in samples}
        assert len(marks) <= 20
        rest = list(map(canonical, start(plan, here.position()).items))
        assert rest == list(map(canonical, here.items))
        assert len(rest) + len(batches) == 5001

    def test_it_sorts_once_for_all_epochs(self):
        plan = bucket(numbered([1, 4] * 20), BOUNDS, 4, seed=0)
        orders = {id(at_epoch(plan, epoch).known().order) for epoch in range(4)}
        assert orders == {id(plan.known().order)}


class TestSpecs:
    def test_the_axes_that_vary_have_no_length(self):
        for batched in (
            Pipeline(numbered([1, 4])).bucket(BOUNDS, 2, seed=0),
            Pipeline(numbered([1, 4])).padded_batch(2, drop_last=False),
        ):
            specs = batched.element_spec
            assert specs["text"].shape[1] is specs["text_mask"].shape[1] is None
            assert len(specs["id"].shape) == 1
        fixed = Pipeline(numbered([1, 4])).padded_batch(2, to=[8])
        assert fixed.element_spec["text"].shape == (2, 8)

    def test_columns_tell_which_fields_differ_also_where_they_are_shuffled(self):
        rows = arrays(image=np.zeros((3, 2, 2)), text=documents([1, 2, 3]))
        for seed in (0, None):
            for batched in (
                Pipeline(rows).shuffle(seed=seed).bucket([4], 3),
                Pipeline(rows).shuffle(seed=seed).padded_batch(3),
            ):
                (batch,) = batched
                assert {*batch.columns} == {"image", "text", "text_mask"}
                assert batch.columns["image"].shape == (3, 2, 2)

    def test_a_field_may_be_a_tree(self):
        rows = arrays({"text": documents([1, 4]), "about": {"id": [1, 2], "at": [3, 4]}})
        (batch,) = bucket(rows, [4], 2, seed=0)()
        assert sorted(batch.columns["about"]["id"].tolist()) == [1, 2]
        named = bucket(rows, [4], 2, by="text", seed=0)
        assert canonical_text(named) == canonical_text(bucket(rows, [4], 2, seed=0))

    def test_a_notebook_shows_it(self):
        plan = Pipeline(numbered([1, 4])).bucket(BOUNDS, 2, seed=0)
        assert "2 batches" in plan._repr_html_()
        assert "bucket" in plan.load()._repr_html_()


def canonical_text(reader):
    return [batch.columns["text"].tolist() for batch in reader()]


class TestErrors:
    @pytest.mark.parametrize(
        ("bounds", "message"),
        [
            ([], r"empty: type lengths, for example bounds=\[128, 256, 512\]"),
            ([8, 4], r"increasing lengths, not \[8, 4\]: type bounds=\[4, 8\]"),
            ("8", r"list of lengths, such as bounds=\[128"),
            (0, "whole number of at least 1"),
            (True, "whole number of at least 1"),
            ([-1], "whole number of at least 1"),
        ],
    )
    def test_bounds_rise(self, bounds, message):
        with pytest.raises((TypeError, ValueError), match=message):
            bucket(documents(LENGTHS), bounds, 2)

    def test_batch_size_or_tokens(self):
        with pytest.raises(
            TypeError, match=r"not neither: type bucket\(\[8\], batch_size=32\), or tok"
        ):
            bucket(documents(LENGTHS), [8])
        with pytest.raises(TypeError, match="not both"):
            bucket(documents(LENGTHS), [8], 2, 16)

    def test_tokens_that_hold_no_row(self):
        with pytest.raises(ValueError, match=r"no room for a sample of 16, .* at least tokens=16"):
            bucket(documents(LENGTHS), [4, 16], tokens=15)
        with pytest.raises(ValueError, match=r"no room for 8 samples of 16, .* least tokens=128"):
            bucket(documents(LENGTHS), [4, 16], tokens=100, divisible_by=8)

    def test_a_batch_size_that_devices_do_not_divide(self):
        with pytest.raises(
            ValueError, match=r"not a multiple of divisible_by=8: type batch_size=8 or 16"
        ):
            bucket(documents(LENGTHS), [8], 12, divisible_by=8)

    def test_samples_of_one_shape(self):
        with pytest.raises(TypeError, match=r"differ in length, and those of int64\[4, 3\] do not"):
            bucket(arrays(np.zeros((4, 3), int)), [8], 2)

    def test_streams_of_what_has_no_length(self):
        with pytest.raises(TypeError, match="no list or array to pad"):
            list(bucket(lambda: range(3), [8], 2)())

    def test_a_field_that_does_not_differ_in_length(self):
        rows = numbered([1, 2])
        with pytest.raises(ValueError, match=r"by='id' .* those are \['text'\]"):
            bucket(rows, [8], 2, by="id")
        with pytest.raises(ValueError, match=r"by='id' .* name it there too"):
            bucket(rows, [8], 2, by="id", fields="text")

    def test_longer_is_one_of_three(self):
        with pytest.raises(ValueError, match="'error', 'truncate' or 'drop', not 'pad'"):
            bucket(documents(LENGTHS), [8], 2, longer="pad")

    def test_a_field_beyond_the_bucket_that_another_field_chose(self):
        rows = arrays(a=documents([1, 4]), b=documents([3, 1]))
        with pytest.raises(ValueError, match="a row of 'b' has 3 values, more than 2"):
            list(bucket(rows, [2, 4], 1, by="a", seed=0)())

    def test_what_others_call_it(self):
        plan = Pipeline(documents(LENGTHS))
        with pytest.raises(AttributeError, match=r"type \.bucket\(bounds, batch_size=n\)"):
            plan.bucket_by_sequence_length([8])

    def test_an_object_array_is_read(self):
        rows = np.empty(2, object)
        rows[:] = [[1, 2], [3]]
        assert len(list(bucket(jreader.arrays(rows), [2], 2)())) == 1

    def test_ragged_columns_of_no_rows(self):
        assert len(bucket(ragged(np.zeros(0, int), [0]), [2], 2, seed=0)) == 0


class TestChosenBounds:
    @given(many.filter(any), st.integers(1, 5), st.integers(1, 4), seeds)
    def test_a_number_of_bounds_is_the_op_with_those_bounds(self, lengths, number, size, seed):
        reader = numbered(lengths)
        plan = bucket(reader, number, size, seed=seed)
        assert plan.bounds == chosen_bounds(np.array(lengths), number)
        given = bucket(reader, list(plan.bounds), size, seed=seed)
        assert list(map(canonical, plan())) == list(map(canonical, given()))
        assert repr(plan) == repr(given)
        assert fingerprint(plan) == fingerprint(given)

    def test_the_field_that_chooses_the_bucket_chooses_the_bounds(self):
        rows = arrays(a=documents([1, 4, 2]), b=documents([3, 1, 9]))
        assert bucket(rows, 3, 2, seed=0).bounds == (3, 4, 9)
        assert bucket(rows, 3, 2, by="a", longer="truncate", seed=0).bounds == (1, 2, 4)

    def test_they_are_multiples_and_have_room_for_rows(self):
        plan = bucket(documents([3, 17, 40, 41]), 2, tokens=96, multiple_of=16, seed=0)
        assert (plan.bounds, plan.rows) == ((16, 48), (6, 2)) or plan.bounds == (32, 48)
        with pytest.raises(ValueError, match=r"no room .* at least tokens=48"):
            bucket(documents([3, 17, 40, 41]), 2, tokens=40, multiple_of=16)
        with pytest.raises(ValueError, match=r"\[8, 20\] are multiples .* type bounds=\[16, 32\]"):
            bucket(documents([3]), [8, 20], 2, multiple_of=16)

    def test_they_stay_in_a_part_and_in_another_epoch(self):
        plan = bucket(documents([1, 2, 3, 9, 9, 9]), 2, 2, seed=0)
        assert plan.bounds == at_epoch(plan, 3).bounds == (3, 9)
        again = cloudpickle.loads(cloudpickle.dumps(plan))
        assert again.bounds == plan.bounds
        loader = Pipeline(documents([1, 2, 3, 9, 9, 9])).bucket(2, 1, seed=0).load()
        assert sorted(shape["tokens"].shape for shape in loader.shapes()) == [(1, 3), (1, 9)]
        assert "bounds=(3, 9)" in repr(Pipeline(plan))

    def test_of_a_stream_they_are_not_known(self):
        with pytest.raises(
            ValueError,
            match=r"bounds=8 .* not known before it is read: .* or type the bounds themselves, as",
        ):
            bucket(streamed(documents([1, 2])), 8, 2)
        with pytest.raises(ValueError, match="not known before it is read"):
            bucket(jreader.shuffle(documents([1, 2]), seed=0), 8, 2)

    def test_of_no_samples_none_are_chosen(self):
        with pytest.raises(ValueError, match="has no samples: give it some data, or type the bou"):
            bucket(ragged(np.zeros(0, int), [0]), 8, 2)


def test_a_stream_resumes_after_samples_that_no_longer_wait():
    """Buckets fill evenly, so what is read again begins later and later."""
    texts = [np.full(length, number) for number, length in enumerate([1, 4] * 60)]
    plan = bucket(lambda: iter(texts), [2, 5], batch_size=4)
    whole, positions, up = [], [], start(plan)
    for batch in up.items:
        whole.append(np.asarray(batch.columns["tokens"])[:, 0].tolist())
        positions.append(up.position())
    assert positions[-3][0] > 50  # the place where the reader goes on
    for done, position in enumerate(positions, 1):
        rest = start(plan, position).items
        assert [np.asarray(batch.columns["tokens"])[:, 0].tolist() for batch in rest] == whole[
            done:
        ]


def test_a_batch_without_a_seed_is_refused_before_lengths_are_looked_at(tmp_path):
    np.array([1, 1, 1, 9], np.uint16).tofile(tmp_path / "a.bin")
    plan = Pipeline(tokens(tmp_path / "a.bin", np.uint16, eos=9)).bucket([2], batch_size=2)
    with pytest.raises(Exception, match="a seed is missing"):
        plan[0]
