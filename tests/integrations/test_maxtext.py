"""Batches for MaxText against its format, which is written out by hand."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jreader import FeedMismatch, Pipeline, ragged, source
from jreader.integrations.maxtext import batches

DOCUMENTS = [[11, 12, 13], [21], [31, 32]]
# what MaxText's ReformatPacking, Rekey and ShiftData(ignored_ids=[0]) make of rows of 4 tokens
PACKED = {
    "inputs": [[11, 12, 13, 21], [31, 32, 0, 0]],
    "inputs_segmentation": [[1, 1, 1, 2], [1, 1, 0, 0]],
    "inputs_position": [[0, 1, 2, 0], [0, 1, 0, 0]],
    "targets": [[12, 13, 21, 0], [32, 0, 0, 0]],
    "targets_segmentation": [[1, 1, 2, 0], [1, 0, 0, 0]],
    "targets_position": [[0, 1, 2, 0], [0, 1, 0, 0]],
}
# PadOrTrimToMaxLength(4, pad_id), which fills up segmentation and position with pad_id, too
PADDED = {
    0: {
        "inputs": [[11, 12, 13, 0], [21, 0, 0, 0], [31, 32, 0, 0]],
        "inputs_segmentation": [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0]],
        "inputs_position": [[0, 1, 2, 0], [0, 0, 0, 0], [0, 1, 0, 0]],
        "targets": [[12, 13, 0, 0], [0, 0, 0, 0], [32, 0, 0, 0]],
        "targets_segmentation": [[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]],
        "targets_position": [[0, 1, 2, 0], [0, 0, 0, 0], [0, 1, 0, 0]],
    },
    12: {
        "inputs": [[11, 12, 13, 12], [21, 12, 12, 12], [31, 32, 12, 12]],
        "inputs_segmentation": [[1, 0, 1, 12], [1, 12, 12, 12], [1, 1, 12, 12]],
        "inputs_position": [[0, 1, 2, 12], [0, 12, 12, 12], [0, 1, 12, 12]],
        "targets": [[12, 13, 12, 12], [12, 12, 12, 12], [32, 12, 12, 12]],
        "targets_segmentation": [[0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]],
        "targets_position": [[0, 1, 2, 12], [0, 12, 12, 12], [0, 1, 12, 12]],
    },
}


def documents(rows=DOCUMENTS):
    return Pipeline(ragged(np.concatenate(rows), np.cumsum([0, *map(len, rows)])))


def of(batch):
    assert {array.dtype.name for array in batch.values()} == {"int32"}
    return {name: array.tolist() for name, array in batch.items()}


def test_packed_rows_are_those_of_maxtext():
    assert of(next(batches(documents().pack(4, seed=0).batch(2)))) == PACKED


@pytest.mark.parametrize("pad_id", PADDED)
def test_padded_rows_are_those_of_maxtext(pad_id):
    rows = documents().padded_batch(3, to=[4], pad=pad_id)
    assert of(next(batches(rows, pad_id=pad_id))) == PADDED[pad_id]


def test_targets_of_their_own_are_packed_beside_the_inputs():
    """As `SFTPromptMasking` has them: what the model is not to learn is pad_id, 9."""
    pairs = [
        {"inputs": [1, 2, 3, 4], "targets": [9, 9, 3, 4]},
        {"inputs": [5, 6], "targets": [9, 6]},
    ]
    rows = Pipeline(source(pairs)).map(lambda pair: {k: np.array(v) for k, v in pair.items()})
    for size in (6, {"inputs": 6, "targets": 6}):
        batch = of(next(batches(rows.pack(size, seed=0).batch(1), pad_id=9)))
        assert batch["inputs"] == [[1, 2, 3, 4, 5, 6]]
        assert batch["inputs_segmentation"] == [[1, 1, 1, 1, 2, 2]]
        assert batch["targets"] == [[9, 3, 4, 9, 6, 9]]
        assert batch["targets_segmentation"] == [[0, 1, 1, 0, 2, 0]]
        assert batch["targets_position"] == [[0, 1, 2, 3, 0, 1]]


def test_batches_lie_on_all_devices_of_the_mesh():
    mesh = jax.make_mesh((2, 4), ("data", "fsdp"))
    rows = documents([[n] * 4 for n in range(1, 17)]).pack(4, seed=0).batch(8)
    placed, plain = batches(rows, mesh), batches(rows)
    for _ in range(4):
        one, other = next(placed), next(plain)
        assert of(one) == of(other)
        for array in one.values():
            assert array.sharding.spec == jax.sharding.PartitionSpec(("data", "fsdp"))
            assert {shard.data.shape for shard in array.addressable_shards} == {(1, 4)}


def test_a_checkpoint_has_the_state_of_the_local_iterator():
    """As MaxText's handler saves it: get_state().decode(), set_state(text.encode())."""
    rows = documents([[n] * 4 for n in range(1, 17)]).pack(4, seed=0).batch(2)
    running, other = batches(rows), batches(rows)
    for _ in range(11):
        next(running)
    text = running.local_iterator.get_state().decode()
    later = [of(next(running)) for _ in range(10)]
    other.local_iterator.set_state(text.encode())
    assert [of(next(other)) for _ in range(10)] == later


def test_an_evaluation_ends_and_begins_again():
    evaluation = batches(documents().pack(4, seed=0).batch(1), steps=2)
    first = [of(batch) for batch in evaluation]
    assert len(first) == 2
    assert list(evaluation) == []
    evaluation.reset()
    assert [of(batch) for batch in evaluation] == first


def test_rows_that_are_neither_packed_nor_padded_are_refused():
    rows = Pipeline(source([{"inputs": np.arange(4)}] * 2)).batch(2)
    with pytest.raises(
        FeedMismatch, match=r"needs rows of .pack\(length\).*these have \['inputs'\]"
    ):
        next(batches(rows))
