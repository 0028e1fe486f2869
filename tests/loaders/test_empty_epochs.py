"""What would be nothing without a word: empty epochs, ended iterators, batches of batches."""

from __future__ import annotations

import numpy as np
import pytest

from jreader import Pipeline, arrays, batch


def rows(many=6):
    return Pipeline(arrays(x=np.arange(many)))


@pytest.mark.parametrize(
    "empty",
    [lambda: Pipeline(list), lambda: rows().firstn(0), lambda: Pipeline(arrays(x=[]))],
    ids=["a function", "firstn(0)", "arrays"],
)
@pytest.mark.parametrize("last", [None, "drop", "pad"])
def test_an_empty_epoch_is_told_with_the_plan(empty, last):
    loader = empty().batch(2).load(sharding="host", last=last)
    with pytest.warns(UserWarning, match=r"epoch 0 is empty: .*batch_size=2\) gave no batch"):
        assert not list(loader)


def test_a_run_that_resumes_at_the_end_of_an_epoch_is_not_told_of_an_empty_one():
    loader = rows().batch(2).load(sharding="host")
    feeds = iter(loader)
    for _ in range(3):
        next(feeds)
    cursor = loader.state_dict()
    feeds.close()
    again = rows().batch(2).load(sharding="host")
    again.load_state_dict(cursor)
    assert not list(again)
    assert len(list(again)) == 3


def test_an_iterator_of_feeds_that_is_used_again_says_that_it_has_ended():
    loader = rows().batch(2).load(sharding="host")
    feeds = iter(loader)
    assert len(list(feeds)) == 3
    with pytest.warns(UserWarning, match="`for feed in loader`, which starts the next epoch"):
        assert not list(feeds)
    assert len(list(loader)) == 3


def test_the_rest_of_an_iterator_of_feeds_is_read_without_a_word():
    feeds = iter(rows().batch(2).load(sharding="host"))
    next(feeds)
    assert len(list(feeds)) == 2


@pytest.mark.parametrize("again", [lambda p: p.batch(2), lambda p: p.firstn(2).batch(2)])
def test_batches_of_batches_are_told_with_what_to_type(again):
    with pytest.warns(UserWarning, match=r"lists of 2 batches. .* type .rebatch\(2\)"):
        again(rows().batch(2))


def test_lists_of_batches_come_without_a_word_where_they_are_meant():
    assert len(list(rows().batch(2).pipe(batch, 2))) == 2
    assert [len(each) for each in rows().batch(2).rebatch(3)] == [3, 3]


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (lambda: rows().shuffle(reshuffle_each_iteration=False), r"\.shuffle\(seed=0\)\.cache\(\)"),
        (lambda: rows().epochs(reseed_each_epoch=False), r"\.cache\(\) before \.epochs\(n\)"),
    ],
)
def test_one_order_in_all_epochs_is_not_said_to_be_the_default(typed, told):
    with pytest.raises(TypeError, match=told):
        typed()


def test_one_order_in_all_epochs_is_what_the_hint_says():
    loader = rows().shuffle(seed=0).cache().batch(6).load(sharding="host")
    first, second = ([feed["x"].tolist() for feed in loader] for _ in range(2))
    assert first == second
    assert first != [[*range(6)]]
