"""`padded_batch`: a length for each batch, masks of what is there, and what errors say."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from texts import as_lists, documents

from jreader import FeedMismatch, Pipeline, arrays, padded_batch, ragged

LENGTHS = [3, 1, 0, 5, 2]


def shapes(reader):
    return [batch.columns["tokens"].shape for batch in reader()]


class TestLengths:
    def test_longest_is_that_of_the_longest_row_of_each_batch(self):
        assert shapes(padded_batch(documents(LENGTHS), 2)) == [(2, 3), (2, 5), (1, 2)]

    def test_a_multiple_rounds_it_up(self):
        assert shapes(padded_batch(documents(LENGTHS), 2, multiple_of=4)) == [
            (2, 4),
            (2, 8),
            (1, 4),
        ]

    def test_of_a_list_a_batch_gets_the_first_that_is_long_enough(self):
        assert shapes(padded_batch(documents(LENGTHS), 2, to=[3, 6])) == [(2, 3), (2, 6), (1, 3)]

    def test_a_list_of_one_is_a_fixed_length(self):
        assert shapes(padded_batch(documents(LENGTHS), 2, to=[7])) == [(2, 7), (2, 7), (1, 7)]

    def test_a_batch_of_empty_rows_has_one_place_of_padding(self):
        assert shapes(padded_batch(documents([0, 0]), 2)) == [(2, 1)]

    def test_a_short_last_batch_can_be_left_out(self):
        assert len(shapes(padded_batch(documents(LENGTHS), 2, drop_last=True))) == 2

    def test_what_is_longer_is_an_error_by_default(self):
        with pytest.raises(
            ValueError, match=r"a row of 'tokens' has 5 values, more than 4: .*'trun"
        ):
            shapes(padded_batch(documents(LENGTHS), 2, to=[2, 4]))

    def test_what_is_longer_is_cut_if_the_user_says_so(self):
        *_, batch = padded_batch(documents([6]), 2, to=[4], longer="truncate")()
        assert batch.columns["tokens"].tolist() == [[1, 1, 1, 1]]
        assert batch.columns["tokens_mask"].all()


class TestMasks:
    @given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.integers(1, 4))
    def test_values_and_masks_are_those_of_the_rows(self, lengths, size):
        rows = [row.tolist() for row in documents(lengths)()]
        found = []
        for batch in padded_batch(documents(lengths), size, pad=7)():
            tokens, mask = batch.columns["tokens"], batch.columns["tokens_mask"]
            assert mask.dtype == bool
            assert (tokens[~mask] == 7).all()
            assert (np.diff(mask.astype(int), axis=1) <= 0).all()  # values first
            found += [row[there].tolist() for row, there in zip(tokens, mask, strict=True)]
        assert found == rows

    def test_a_stream_of_lists_gives_the_same(self):
        for one, other in zip(
            padded_batch(documents(LENGTHS), 2)(),
            padded_batch(as_lists(documents(LENGTHS)), 2)(),
            strict=True,
        ):
            for name in ("tokens", "tokens_mask"):
                assert one.columns[name].tolist() == other.columns[name].tolist()

    def test_several_ragged_fields_have_a_length_and_a_mask_each(self):
        rows = arrays(source=documents([1, 2]), target=documents([4, 0]), label=[5, 6])
        (batch,) = padded_batch(rows, 2)()
        columns = batch.columns
        assert {name: column.shape for name, column in columns.items()} == {
            "source": (2, 2),
            "target": (2, 4),
            "label": (2,),
            "source_mask": (2, 2),
            "target_mask": (2, 4),
        }
        assert columns["target_mask"].sum(1).tolist() == [4, 0]

    def test_fields_of_several_axes_are_padded_along_the_first(self):
        points = ragged(np.ones((5, 3), np.float32), [0, 4, 5])
        (batch,) = padded_batch(points, 2)()
        assert batch.columns["tokens"].shape == (2, 4, 3)
        assert batch.columns["tokens_mask"].shape == (2, 4)

    def test_tuples_get_their_masks_behind(self):
        (batch,) = padded_batch(arrays(documents([1, 2]), [5, 6]), 2)()
        tokens, label, mask = batch.columns
        assert tokens.shape == mask.shape == (2, 2)
        assert label.tolist() == [5, 6]

    def test_named_tuples_and_dataclasses_become_dicts(self):
        Row = namedtuple("Row", "text, label")  # noqa: PYI024  # what users have

        @dataclass
        class Typed:
            text: list
            label: int

        for kind in (Row, Typed):
            (batch,) = padded_batch(lambda kind=kind: [kind([1, 2], 3), kind([4], 5)], 2)()
            assert {*batch.columns} == {"text", "text_mask", "label"}

    def test_each_field_may_have_padding_of_its_own(self):
        rows = arrays(x=documents([1, 2]), labels=documents([1, 2], np.int32))
        (batch,) = padded_batch(rows, 2, pad={"labels": -100})()
        assert batch.columns["x"].tolist() == [[1, 0], [2, 2]]
        assert batch.columns["labels"].tolist() == [[1, -100], [2, 2]]

    def test_the_dtype_is_that_of_the_values(self):
        (batch,) = padded_batch(documents([0, 2], np.uint8), 2)()
        assert batch.columns["tokens"].dtype == np.uint8


class TestInALoader:
    def test_feeds_are_what_batches_are(self):
        rows = Pipeline(arrays(x=documents(LENGTHS), y=np.arange(5)))
        feeds = list(rows.padded_batch(2, to=[4, 8]).load(drop_last=True))
        assert [feed["x"].shape for feed in feeds] == [(2, 4), (2, 8)]
        assert feeds[0]["x_mask"].sum(1).tolist() == [3, 1]

    def test_a_short_last_batch_is_padded_with_rows_of_zeros(self):
        loader = Pipeline(documents(LENGTHS)).padded_batch(2, to=[8]).load(last="pad")
        *_, last = loader
        assert last["tokens"].shape == (2, 8)
        assert last["mask"].tolist() == [True, False]
        assert not last["tokens_mask"][1].any()

    def test_it_resumes_at_any_sample_with_another_batch_size(self):
        docs = Pipeline(documents([1] * 12)).shuffle(seed=1)
        feeds = iter(docs.padded_batch(2, to=[1]).load())
        next(feeds), next(feeds)
        rest = docs.padded_batch(4, to=[1]).load().epoch(0, at=feeds.cursor)
        expected = np.concatenate([np.asarray(feed["tokens"]) for feed in feeds])
        assert np.concatenate([np.asarray(f["tokens"]) for f in rest]).tolist() == expected.tolist()

    def test_it_can_be_indexed_and_printed(self):
        plan = Pipeline(documents(LENGTHS)).padded_batch(2, to=[4, 8])
        assert plan[1].columns["tokens"].shape == (2, 8)
        assert str(plan).endswith(".padded_batch(batch_size=2, to=(4, 8))")


class TestErrors:
    def test_a_number_is_told_to_be_a_length_or_a_multiple(self):
        with pytest.raises(TypeError, match=r"type to=\[64\] .* multiple_of=64 for"):
            padded_batch(documents(LENGTHS), 2, to=64)

    def test_a_list_and_a_multiple_are_not_both_needed(self):
        with pytest.raises(ValueError, match=r"not both: type to=\[128, 192\]"):
            padded_batch(documents(LENGTHS), 2, to=[100, 190], multiple_of=64)

    @pytest.mark.parametrize(
        ("to", "message"),
        [
            ([], r"empty: type lengths, for example to=\[128, 256, 512\]"),
            ([8, 4], r"increasing lengths, not \[8, 4\]: type to=\[4, 8\]"),
            ([4, 4], r"increasing lengths, not \[4, 4\]: type to=\[4\]"),
            ([0, 4], "whole number of at least 1"),
            ([1.5], "whole number of at least 1"),
            ("shortest", "'longest' or a list of lengths"),
            (None, r"list of lengths, such as to=\[128"),
        ],
    )
    def test_lengths_rise(self, to, message):
        with pytest.raises((TypeError, ValueError), match=message):
            padded_batch(documents(LENGTHS), 2, to=to)

    def test_longer_is_error_or_truncate(self):
        with pytest.raises(ValueError, match=r"not 'drop'; to leave samples out, type .filter"):
            padded_batch(documents(LENGTHS), 2, longer="drop")

    def test_samples_that_have_nothing_to_pad(self):
        with pytest.raises(TypeError, match=r"no list or array to pad: .* or use .batch\(n\)"):
            list(padded_batch(lambda: range(3), 2)())

    def test_of_several_fields_the_user_says_which(self):
        def rows():
            return [{"image": np.zeros((2, 2)), "text": [1, 2]}]

        with pytest.raises(
            ValueError, match=r"\['image', 'text'\] are lists .* fields=\['image'\]"
        ):
            list(padded_batch(rows, 2)())
        (batch,) = padded_batch(rows, 2, fields="text")()
        assert {*batch.columns} == {"image", "text", "text_mask"}

    def test_a_field_that_is_not_there(self):
        with pytest.raises(ValueError, match=r"no field 'txt': their fields are \['text'\]"):
            list(padded_batch(lambda: [{"text": [1]}], 2, fields=["txt"])())

    def test_a_field_with_the_name_of_a_mask(self):
        def rows():
            return [{"text": [1], "text_mask": 1}]

        with pytest.raises(FeedMismatch, match="the samples have a field 'text_mask'"):
            list(padded_batch(rows, 2, fields="text")())

    def test_padding_that_the_dtype_does_not_have(self):
        for pad in (-1, 0.5, 70000, "x"):
            with pytest.raises(
                ValueError, match="does not fit the dtype of field 'tokens', uint16"
            ):
                list(padded_batch(documents(LENGTHS), 2, pad=pad)())

    def test_rows_that_differ_in_more_than_their_length(self):
        def rows():
            return [np.zeros((2, 3)), np.zeros((2, 4))]

        with pytest.raises(FeedMismatch, match="differ in more than their length"):
            list(padded_batch(rows, 2)())

    def test_samples_of_another_structure(self):
        with pytest.raises(FeedMismatch, match="need one structure"):
            list(padded_batch(lambda: [{"a": [1]}, {"b": [1]}], 2)())
