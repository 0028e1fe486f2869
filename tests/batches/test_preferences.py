"""Pairs of replies as DPO trainers batch them: those of TRL and MaxText, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from widths import examples

from jreader import Pipeline

PAD = 9
ids = st.lists(st.integers(1, 8), min_size=1, max_size=12)
pairs_of = st.lists(
    st.fixed_dictionaries({"prompt_ids": ids, "chosen_ids": ids, "rejected_ids": ids}),
    min_size=1,
    max_size=5,
)
SIDES = ("chosen", "rejected")


def joined(pair, most=None, keep="keep_start"):
    """Each reply behind its prompt, cut to `most` tokens, and where the reply is."""
    made = {}
    for side in SIDES:
        prompt, reply = pair["prompt_ids"], pair[f"{side}_ids"]
        kept = slice(most) if keep == "keep_start" else slice(-most if most else None, None)
        made[side] = (prompt + reply)[kept]
        made[f"{side}_reply"] = ([0] * len(prompt) + [1] * len(reply))[kept]
    return made


def stacked(feed):
    """The chosen replies above the rejected ones."""
    return {
        name: np.concatenate([feed[side + of] for side in SIDES]).astype(np.int64)
        for name, of in [
            ("input_ids", ""),
            ("attention_mask", "_mask"),
            ("completion_mask", "_reply"),
        ]
    }


def batch_of(pairs, most=None, keep="keep_start", multiple_of=None):
    fields = [side + of for side in SIDES for of in ("", "_reply")]
    options = {"fields": fields, "same_length": True, "multiple_of": multiple_of}
    options["pad"] = {"chosen": PAD, "rejected": PAD}
    plan = Pipeline(lambda: iter(pairs)).map(lambda pair: joined(pair, most, keep))
    (batch,) = plan.padded_batch(len(pairs), **options)
    return stacked(batch.columns)


def test_a_batch_is_that_of_trl_by_hand():
    pairs = [
        {"prompt_ids": [5, 6, 7], "chosen_ids": [1], "rejected_ids": [2, 3]},
        {"prompt_ids": [8], "chosen_ids": [4, 5, 6], "rejected_ids": [7]},
    ]
    assert {name: each.tolist() for name, each in batch_of(pairs).items()} == {
        "input_ids": [[5, 6, 7, 1, 9], [8, 4, 5, 6, 9], [5, 6, 7, 2, 3], [8, 7, 9, 9, 9]],
        "attention_mask": [[1, 1, 1, 1, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1], [1, 1, 0, 0, 0]],
        "completion_mask": [[0, 0, 0, 1, 0], [0, 1, 1, 1, 0], [0, 0, 0, 1, 1], [0, 1, 0, 0, 0]],
    }


@given(
    pairs_of,
    st.one_of(st.none(), st.integers(1, 30)),
    st.sampled_from(["keep_start", "keep_end"]),
    st.sampled_from([None, 4, 7]),
)
@examples(300)
def test_batches_are_those_of_the_collator_of_trl(pairs, most, keep, multiple_of):
    trainer = pytest.importorskip("trl.trainer.dpo_trainer")
    given = {"max_length": most, "truncation_mode": keep, "pad_to_multiple_of": multiple_of}
    theirs = trainer.DataCollatorForPreference(pad_token_id=PAD, **given)(pairs)
    ours = batch_of(pairs, most, keep, multiple_of)
    assert {*ours} == {*theirs}
    for name, expected in theirs.items():
        assert ours[name].dtype == expected.numpy().dtype
        np.testing.assert_array_equal(ours[name], expected.numpy(), name)


def padded(rows, pad, side):
    """Rows filled up on a side."""
    wide = max(map(len, rows))
    gaps = [[pad] * (wide - len(row)) for row in rows]
    pairs = zip(rows, gaps, strict=True)
    return [gap + row if side == "left" else row + gap for row, gap in pairs]


@given(pairs_of, st.lists(st.floats(0, 1, width=32), min_size=5, max_size=5))
@examples(60)
def test_prompts_are_padded_left_and_replies_right_as_older_versions_of_trl_did(pairs, margins):
    """`prompt_input_ids` and so on, with a margin for each pair."""
    samples = [{**p, "margin": np.float32(m)} for p, m in zip(pairs, margins, strict=False)]
    fields = ["prompt_ids", "chosen_ids", "rejected_ids"]
    options = {"fields": fields, "pad": PAD, "padding_side": {"prompt_ids": "left"}}
    (batch,) = Pipeline(lambda: iter(samples)).padded_batch(len(pairs), **options)
    for name, side in zip(fields, ["left", "right", "right"], strict=True):
        rows = [pair[name] for pair in pairs]
        assert batch.columns[name].tolist() == padded(rows, PAD, side)
        there = padded([[True] * len(row) for row in rows], pad=False, side=side)
        assert batch.columns[f"{name}_mask"].tolist() == there
    assert batch.columns["margin"].tolist() == [sample["margin"] for sample in samples]


def maxtext(pair, length):
    """The fields of a pair as MaxText's DPO loss takes them, padded with 0."""
    made = {}
    for side in SIDES:
        tokens = (pair["prompt_ids"] + pair[f"{side}_ids"])[:length]
        rest = [0] * (length - len(tokens))
        made[side] = tokens + rest
        made[f"{side}_segmentation"] = [1] * len(tokens) + rest
        made[f"{side}_position"] = [*range(len(tokens)), *rest]
    return made


@given(pairs_of, st.integers(1, 30), st.integers(0, 3))
@examples(300)
def test_pairs_in_rows_of_their_own_are_those_of_maxtext(pairs, length, seed):
    sizes = dict.fromkeys(SIDES, length)
    plan = (
        Pipeline(lambda: iter(pairs))
        .map(joined)
        .pack(sizes, documents=1, longer="truncate", seed=seed)
    )
    names = {"segment_ids": "segmentation", "positions": "position"}
    rows = []
    for row in plan:
        found = {name: each.tolist() for name, each in row.items()}
        for side in SIDES:
            for ours, theirs in names.items():
                found[f"{side}_{theirs}"] = found.pop(f"{side}_{ours}")
        rows.append(dict(sorted(found.items())))
    expected = [maxtext(pair, length) for pair in pairs]
    assert sorted(map(repr, rows)) == sorted(repr(dict(sorted(each.items()))) for each in expected)


@given(pairs_of, st.integers(24, 60), st.integers(1, 4))
@examples(60)
def test_both_replies_of_a_pair_lie_in_one_row_under_one_number(pairs, length, most):
    samples = [{**joined(pair), "pair": np.int32(at)} for at, pair in enumerate(pairs)]
    sizes = dict.fromkeys(["chosen", "rejected", "chosen_reply", "rejected_reply"], length)
    plan = Pipeline(lambda: iter(samples)).pack(
        sizes, documents=most, per_document=["pair"], pad={"pair": -1}, seed=0
    )
    seen = []
    for row in plan:
        for slot, number in enumerate(row["pair"].tolist(), 1):
            for name in sizes:
                found = row[name][row[f"{name}_segment_ids"] == slot].tolist()
                assert found == (samples[number][name] if number >= 0 else [])
            seen += [number] * (number >= 0)
    assert sorted(seen) == list(range(len(pairs)))
