"""`train`: one loop for a loader or a batch reader, and what it says of Paddle's order."""

from __future__ import annotations

import pytest

from jreader import batch, train

FIELDS = {"image": 0, "label": 1}


def reader():
    return ((float(n), n) for n in range(6))


def step(total, feed):
    return total + int(feed["label"].sum()), feed["label"].shape


def test_train_returns_the_last_state_and_the_metrics_of_each_epoch():
    batches = batch(reader, 2)
    assert train(step, 0, batches, FIELDS, 3, progress=False) == (45, [(2,)] * 3)


@pytest.mark.parametrize(
    ("given", "call"),
    [
        ((reader, FIELDS, 128, 10), "train(step, state, batch(reader, 128), {fields}, 10)"),
        ((reader, FIELDS, 128), "train(step, state, batch(reader, 128), {fields}, 1)"),
    ],
)
def test_the_order_of_paddles_guide_is_told_with_the_call_that_does_it(given, call):
    with pytest.raises(TypeError) as raised:
        train(*given)
    assert str(raised.value) == (
        "train(step, state, batch_reader, mapping, total_pass) needs a step first, as in `state, "
        "metrics = step(state, feed)`, and the order of Paddle's guide was given: type "
        f"{call.format(fields=FIELDS)}."
    )


@pytest.mark.parametrize("wrong", [128, None, [[(1.0, 2)]], "reader"])
def test_what_is_no_batch_reader_is_told_before_its_fields(wrong):
    with pytest.raises(
        TypeError, match=r"^train\(step, state, batch_reader\) needs a reader, that"
    ):
        train(step, 0, wrong, {"image": "wrong"})
