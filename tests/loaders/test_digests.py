"""Runs whose samples differ have different digests, wherever they begin to differ."""

import warnings
from itertools import islice

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seen import through_json
from widths import examples

from jreader import Pipeline, arrays, mix, ragged

ROWS = 48


def scaled_by(factor):
    return lambda n: n * factor


def not_divided_by(number):
    return lambda n: n % number != 0


def rows_of(first):
    return Pipeline(arrays(np.arange(first, first + ROWS)))


def numbers():
    return iter(range(ROWS))


def packed(longer, pad):
    lengths = [2, 3, 4] * 8
    lengths[longer], lengths[-1] = lengths[longer] + 1, lengths[-1] - 1
    offsets = np.cumsum([0, *lengths])
    documents = Pipeline(ragged(np.arange(offsets[-1]), offsets))
    return documents.pack(7, seed=0, pad=pad).map(lambda row: row["tokens"])


def mixed(streamed):
    def of(weights):
        sources = [[*range(first, first + ROWS)] for first in (0, 500)]
        readers = [each.__iter__ if streamed else arrays(np.array(each)) for each in sources]
        return Pipeline(mix(readers, weights, seed=0))

    return of


VARIED = {  # plans with an argument that changes samples, and two or more values of it
    "data": (rows_of, [0, 1, 2]),
    "a map": (lambda k: rows_of(0).shuffle(seed=1).map(scaled_by(k)), [1, 2]),
    "a filter": (lambda k: rows_of(0).filter(not_divided_by(k)), [2, 3]),
    "a filter of a stream": (lambda k: Pipeline(numbers).filter(not_divided_by(k)), [2, 3]),
    "a compiled function": (lambda fn: rows_of(0).map(lambda n: fn(n, 2)), [np.add, np.multiply]),
    "weights": (mixed(streamed=False), [(1, 1), (3, 1), (1, 4)]),
    "weights of streams": (mixed(streamed=True), [(1, 1), (3, 1), (1, 4)]),
    "lengths": (lambda longer: packed(longer, 0), [0, 5, 9]),
    "padding": (lambda pad: packed(0, pad), [0, 9]),
}
RESUMED = [name for name in VARIED if name != "lengths"]  # others are refused


def read(values, make, steps):
    """The samples, and the digest, of a run that goes on with another value after some steps."""
    samples, cursor = [], None
    with warnings.catch_warnings(action="ignore"):
        for value, many in zip(values, steps, strict=True):
            feeds = make(value).batch(2).load(sharding="host").epoch(0, at=cursor)
            samples += [feed.tolist() for feed in islice(feeds, many)]
            cursor = through_json(feeds.cursor)
            feeds.close()
    return samples, cursor["digest"]


@examples(40)
@given(st.data())
def test_runs_whose_samples_differ_have_different_digests(data):
    make, values = VARIED[data.draw(st.sampled_from(RESUMED))]
    steps = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    value = st.lists(st.sampled_from(values), min_size=len(steps), max_size=len(steps))
    one, other = data.draw(value), data.draw(value)
    (samples, digest), (others, another) = read(one, make, steps), read(other, make, steps)
    if samples != others:
        assert digest != another
    if one == other:
        assert digest == another


@pytest.mark.parametrize("name", VARIED)
def test_runs_of_other_values_have_other_digests_from_the_beginning(name):
    make, values = VARIED[name]
    found = [read([value], make, [3]) for value in values]
    assert len(found) == len({str(samples) for samples, _ in found})
    assert len(found) == len({digest for _, digest in found})


@pytest.mark.parametrize("name", RESUMED)
def test_runs_that_go_on_with_other_values_from_one_cursor_have_other_digests(name):
    make, values = VARIED[name]
    digests = {read([values[0], value], make, [2, 2])[1] for value in values}
    assert len(digests) == len(values)


@pytest.mark.parametrize("name", RESUMED)
def test_a_run_that_is_resumed_with_the_same_values_has_the_digest_of_one_that_was_not(name):
    make, values = VARIED[name]
    whole = read(values[:1], make, [5])
    assert read(values[:1] * 3, make, [2, 1, 2]) == whole


def test_functions_of_feeds_change_no_digest():
    add = jnp.add
    plan = rows_of(0).batch(2)
    loaders = plan.load(), plan.load().on_device(lambda feed: add(feed, 1))
    digests = set()
    for loader in loaders:
        feeds = loader.epoch(0)
        next(feeds)
        digests.add(feeds.cursor["digest"])
    assert len(digests) == 1
