"""What is known of a plan's batches is asked once, whatever ops hand them on."""

import numpy as np
import pytest
from texts import as_lists, documents

from jreader import (
    Pipeline,
    arrays,
    batch,
    bucket,
    buffered,
    cache,
    chain,
    epochs,
    filter,  # noqa: A004  # the field's word
    firstn,
    map_batches,
    map_readers,
    padded_batch,
    shard,
    shuffle,
    skip,
    xmap_readers,
)
from jreader.batches import Batching, batching, gives_batches
from jreader.datasets import BatchSampler

FOURS = batch(arrays(n=np.arange(10)), 4)


def same(batches):
    return batches


@pytest.mark.parametrize(
    "reader",
    [FOURS, Pipeline(FOURS), buffered(FOURS, 2), Pipeline(buffered(Pipeline(FOURS), 2))],
    ids=repr,
)
def test_ops_that_hand_batches_on_change_nothing(reader):
    assert batching(reader) == Batching(FOURS, 4, 4, whole=True, ordered=True, by_sample=True)


@pytest.mark.parametrize("op", [lambda reader: firstn(reader, 1), lambda reader: skip(reader, 1)])
def test_where_some_are_left_out_positions_count_batches(op):
    assert batching(op(FOURS)) == Batching(FOURS, 4, 4)


@pytest.mark.parametrize(
    "reader",
    [shard(FOURS, 2, 0), epochs(FOURS, 2), filter(bool, FOURS)],
    ids=repr,
)
def test_how_large_they_are_is_known_where_how_many_is_not(reader):
    found = batching(reader)
    assert (found.size, found.rows, found.whole, found.by_sample) == (4, 4, False, False)


def test_a_shuffle_of_batches_has_all_of_them_in_another_order():
    assert batching(shuffle(FOURS, seed=1)) == Batching(FOURS, 4, 4, whole=True)


def test_a_cache_keeps_their_order_and_counts_them():
    assert batching(cache(FOURS)) == Batching(FOURS, 4, 4, whole=True, ordered=True)


def test_functions_of_batches_may_change_the_rows_and_are_listed_in_order():
    inner = map_batches(same, FOURS)
    outer = map_batches(same, buffered(inner, 1))
    found = batching(outer)
    assert (found.size, found.rows, found.functions) == (4, None, (inner, outer))
    assert (found.whole, found.ordered, found.by_sample) == (True, True, True)


@pytest.mark.parametrize(
    "reader",
    [map_readers(same, FOURS), xmap_readers(same, FOURS, 2, 2, order=True)],
    ids=repr,
)
def test_of_what_a_map_makes_of_them_only_the_position_is_known(reader):
    assert batching(reader) == Batching(FOURS, by_sample=True)


def test_chained_batches_are_as_large_as_all_of_them_are():
    assert batching(chain(FOURS, firstn(FOURS, 1))) == Batching(size=4, rows=4)
    assert batching(chain(FOURS, map_batches(same, FOURS))) == Batching(size=4)
    assert batching(chain(FOURS, batch(lambda: "abc", 3))) == Batching()


@pytest.mark.parametrize("reader", [lambda: [[1]], arrays([1]), map_readers(same, lambda: [[1]])])
def test_of_other_readers_nothing_is_known(reader):
    assert batching(reader) == Batching()
    assert not gives_batches(reader)


def test_a_subclass_that_makes_batches_in_its_own_way_is_none():
    class Odd(BatchSampler):
        def __iter__(self):
            return iter([[0], [1, 2]])

    assert batching(Odd(range(3), batch_size=2)) == Batching()
    assert batching(BatchSampler(range(3), batch_size=2)).size == 2


def test_a_bucket_makes_batches_of_several_sizes():
    plan = bucket(documents([1, 2, 5]), [2, 5], 2, seed=0)
    found = batching(map_batches(same, Pipeline(plan).prefetch(2)))
    assert (found.buckets, found.op, found.size, found.rows) == (plan, None, None, None)
    assert found.by_batch
    assert found.indexed
    for behind in (cache, lambda reader: firstn(reader, 1), lambda reader: shuffle(reader, seed=1)):
        found = batching(behind(plan))
        assert (found.buckets, found.by_batch, found.indexed) == (plan, False, False)
    assert not batching(bucket(as_lists(documents([1, 2])), [2], 2)).indexed
    assert gives_batches(plan)


def test_padded_batches_are_those_of_batch():
    plan = padded_batch(documents([1, 2, 5]), 2)
    assert batching(plan) == Batching(plan, 2, 2, whole=True, ordered=True, by_sample=True)


def test_samples_and_indexed_are_those_of_now():
    rows = [1, 2, 3]
    found = batching(batch(BatchSampler(rows, batch_size=1).reader, 2))
    assert (found.samples, found.indexed) == (3, False)
    assert batching(FOURS).indexed
    assert batching(batch(shuffle(arrays([1, 2])), 2)).indexed
    assert not batching(batch(lambda: "abc", 2)).indexed
