"""`padded_batch`: a length for each batch, masks of what is there, and what errors say."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from texts import as_lists, documents
from widths import examples

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


def only(batches):
    (batch,) = batches()
    return {name: np.asarray(column).tolist() for name, column in batch.columns.items()}


class TestSides:
    @given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.booleans())
    def test_left_padding_stands_before_the_values(self, lengths, known):
        rows = [row.tolist() for row in documents(lengths)()]
        reader = documents(lengths) if known else as_lists(documents(lengths))
        (batch,) = padded_batch(reader, len(lengths), pad=7, padding_side="left")()
        tokens, mask = batch.columns["tokens"], batch.columns["tokens_mask"]
        assert (np.diff(mask.astype(int), axis=1) >= 0).all()  # values last
        assert (tokens[~mask] == 7).all()
        assert [row[there].tolist() for row, there in zip(tokens, mask, strict=True)] == rows

    def test_what_is_cut_is_the_end_on_either_side(self):
        for side in ("left", "right"):
            batches = padded_batch(
                lambda: [[1, 2, 3, 4]], 1, to=[2], longer="truncate", padding_side=side
            )
            assert only(batches)["tokens"] == [[1, 2]]

    def test_another_word_is_refused(self):
        for side in ("before", {"x": "before"}):
            with pytest.raises(ValueError, match="'right' or 'left', not 'before'"):
                padded_batch(lambda: [[1]], 1, padding_side=side)

    def test_each_field_has_its_own_side_and_one_without_is_filled_on_the_right(self):
        options = {"fields": ["x", "y"], "padding_side": {"x": "left"}}
        batch = only(padded_batch(lambda: PAIRS, 2, **options))
        assert batch["x"] == [[1, 2, 3], [0, 0, 5]]
        assert batch["x_mask"] == [[True] * 3, [False, False, True]]
        assert batch["y"] == [[4, 0], [6, 7]]


PAIRS = [{"x": [1, 2, 3], "y": [4]}, {"x": [5], "y": [6, 7]}]


class TestLengthsByField:
    def test_each_field_has_its_own_lengths_and_its_name_is_enough(self):
        batch = only(padded_batch(lambda: PAIRS, 2, to={"x": [2, 4], "y": 3}))
        assert batch["x"] == [[1, 2, 3, 0], [5, 0, 0, 0]]
        assert batch["y"] == [[4, 0, 0], [6, 7, 0]]

    def test_a_field_without_a_length_is_as_long_as_its_longest_row(self):
        batch = only(padded_batch(lambda: PAIRS, 2, to={"x": 4}, fields=["x", "y"]))
        assert batch["y"] == [[4, 0], [6, 7]]

    def test_a_field_of_to_or_pad_or_axes_that_is_not_padded_is_refused(self):
        with pytest.raises(ValueError, match=r"names 'y', and fields are \['x'\]: name it there"):
            padded_batch(lambda: PAIRS, 2, to={"y": 4}, fields=["x"])
        for options in ({"pad": {"z": 1}}, {"axes": {"z": 1}}, {"padding_side": {"z": "left"}}):
            with pytest.raises(ValueError, match=r"names 'z', and the fields that are padded"):
                list(padded_batch(lambda: PAIRS, 2, fields=["x", "y"], **options)())

    def test_lengths_of_a_field_rise_and_are_said_once(self):
        with pytest.raises(ValueError, match=r"to\['x'\] of padded_batch.* needs increasing"):
            padded_batch(lambda: PAIRS, 2, to={"x": [4, 2]})
        with pytest.raises(ValueError, match=r"not both: type to=\{'x': \[8\], 'y': 'longest'\}"):
            padded_batch(lambda: PAIRS, 2, to={"x": 7, "y": "longest"}, multiple_of=4)

    def test_shapes_are_those_of_the_feeds(self):
        for reader in (lambda: PAIRS, arrays(x=documents([3, 1]), y=documents([1, 2]))):
            loader = Pipeline(reader).padded_batch(2, to={"x": [2, 4], "y": 3}).load()
            (feed,) = loader
            found = [{name: spec.shape for name, spec in each.items()} for each in loader.shapes()]
            assert {name: array.shape for name, array in feed.items()} in found
            assert all(each["y"] == (2, 3) for each in found)


class TestOneLength:
    @given(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6),
        st.sampled_from([{}, {"multiple_of": 4}, {"to": [3, 6, 9]}]),
        st.integers(1, 3),
    )
    @examples(40)
    def test_all_fields_are_as_long_as_the_longest_row_of_any(self, lengths, rule, size):
        docs = arrays(
            **{
                name: documents(each)
                for name, each in zip("xy", zip(*lengths, strict=True), strict=True)
            }
        )
        lists = [{name: row.tolist() for name, row in sample.items()} for sample in docs()]
        shapes = []
        for reader in (docs, lambda: iter(lists)):
            options = {"fields": ["x", "y"], "same_length": True, **rule}
            batches = list(padded_batch(reader, size, **options)())
            for low, batch in zip(range(0, len(lists), size), batches, strict=True):
                here = lists[low : low + size]
                longest = max(len(row) for sample in here for row in sample.values())
                alone = padded_batch(lambda n=longest: [[1] * n], 1, **rule)
                wide = only(alone)["tokens"]
                for name in "xy":
                    column, mask = batch.columns[name], batch.columns[f"{name}_mask"]
                    assert column.shape == mask.shape == (len(here), len(wide[0]))
                    rows = zip(column, mask, strict=True)
                    assert [row[there].tolist() for row, there in rows] == [s[name] for s in here]
            shapes += [{name: each.shape for name, each in b.columns.items()} for b in batches]
        loader = Pipeline(docs).padded_batch(size, **options).load(sharding="host", last="keep")
        told = [{name: spec.shape for name, spec in each.items()} for each in loader.shapes()]
        assert {str(each) for each in told} == {str(each) for each in shapes}

    def test_lengths_of_their_own_do_not_go_with_it(self):
        with pytest.raises(ValueError, match=r"same_length=True, and to=\{'x'.*type to=\[\.\.\.\]"):
            padded_batch(lambda: PAIRS, 2, to={"x": 4, "y": 4}, same_length=True)

    def test_shapes_of_a_stream_are_those_of_one_length(self):
        options = {"fields": ["x", "y"], "to": [2, 4], "same_length": True}
        shapes = Pipeline(lambda: PAIRS).padded_batch(2, **options).load().shapes()
        assert [(each["x"].shape, each["y"].shape) for each in shapes] == [
            ((2, length), (2, length)) for length in (2, 4)
        ]


class TestSeveralAxes:
    @given(
        st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=5),
        st.sampled_from(["left", "right"]),
    )
    def test_each_axis_is_padded_and_the_mask_has_them_all(self, shapes, side):
        rows = [np.arange(np.prod(shape)).reshape(shape) + 1 for shape in shapes]
        (batch,) = padded_batch(lambda: rows, len(rows), pad=-1, axes=2, padding_side=side)()
        tokens, mask = batch.columns["tokens"], batch.columns["tokens_mask"]
        longest = [max(sizes, default=0) for sizes in zip(*shapes, strict=True)]
        assert tokens.shape == mask.shape == (len(rows), longest[0], max(longest[1], 1))
        assert (tokens[~mask] == -1).all()
        for row, found, there in zip(rows, tokens, mask, strict=True):
            assert found[there].tolist() == row.ravel().tolist()

    def test_lengths_hold_for_each_axis_and_what_is_longer_is_an_error(self):
        rows = [np.ones((3, 1, 2)), np.ones((1, 5, 2))]
        (batch,) = padded_batch(lambda: rows, 2, to=[4, 8], axes={"tokens": 2})()
        assert batch.columns["tokens"].shape == (2, 4, 8, 2)
        with pytest.raises(ValueError, match="a row of 'tokens' has 1 x 5 values, more than 4 x 4"):
            list(padded_batch(lambda: rows, 2, to=[4], axes=2)())

    def test_shapes_lists_all_of_them(self):
        loader = Pipeline(lambda: [np.ones((3, 1))]).padded_batch(1, to=[2, 4], axes=2).load()
        assert {spec["tokens"].shape for spec in loader.shapes()} == {
            (1, high, wide) for high in (2, 4) for wide in (2, 4)
        }

    def test_rows_of_fewer_axes_are_named(self):
        with pytest.raises(FeedMismatch, match="axes=2 of 'tokens' are padded, and a row has 1"):
            list(padded_batch(lambda: [[1, 2]], 1, axes=2)())

    def test_rows_of_other_inner_shapes_are_not_broadcast(self):
        with pytest.raises(FeedMismatch, match="differ in more than their length"):
            list(padded_batch(lambda: [np.ones((2, 3)), np.ones((2, 1))], 2)())


NESTED = [
    {"q": {"text": [1, 2], "id": 7}, "label": 0},
    {"q": {"text": [3], "id": 8}, "label": 1},
]


class TestDictsInDicts:
    def test_a_mask_lies_beside_its_field(self):
        (batch,) = padded_batch(lambda: NESTED, 2, fields=["q.text"])()
        assert list(batch.columns) == ["q", "label"]
        assert {name: part.tolist() for name, part in batch.columns["q"].items()} == {
            "text": [[1, 2], [3, 0]],
            "id": [7, 8],
            "text_mask": [[True, True], [True, False]],
        }

    def test_ragged_columns_are_found_in_them(self):
        rows = arrays({"q": {"text": documents([2, 1])}, "label": np.arange(2)})
        loader = Pipeline(rows).padded_batch(2, to=[4]).load()
        (feed,) = loader
        assert feed["q"]["text"].tolist() == [[1, 1, 0, 0], [2, 0, 0, 0]]
        assert [spec["q"]["text_mask"].shape for spec in loader.shapes()] == [(2, 4)]
        (bucketed,) = Pipeline(rows).bucket([4], 2, seed=0)
        assert bucketed.columns["q"]["text"].shape == (2, 4)

    def test_two_fields_of_one_name_are_refused(self):
        with pytest.raises(FeedMismatch, match=r"two fields of a sample are named 'a\.b'"):
            list(padded_batch(lambda: [{"a.b": [1], "a": {"b": [1]}}], 1, fields=["a.b"])())

    def test_a_field_that_only_later_samples_have_is_not_lost(self):
        for more in ({"a": [1], "b": 2}, {"a": [1], "b": {}}):
            with pytest.raises(FeedMismatch, match="need one structure"):
                list(padded_batch(lambda more=more: [{"a": [1]}, more], 2, fields="a")())
        two = [{"a": {"b": [1]}}, {"a": {"b": [1], "c": 2}}]
        with pytest.raises(FeedMismatch, match="need one structure"):
            list(padded_batch(lambda: two, 2, fields="a.b")())


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
    def test_a_bare_number_for_lengths_is_refused_with_both_spellings(self):
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
