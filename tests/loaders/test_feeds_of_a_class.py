"""`load(into=cls)`: each feed is `cls(**fields)`, and nothing else of a loader changes."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from jreader import DataLoader, FeedMismatch, Pipeline, arrays, ragged, train

MESH = Mesh(np.array(jax.devices()), ("data",))


class Pair(NamedTuple):
    x: Any
    y: Any
    mask: Any = None


@dataclass(frozen=True)
class Plain:
    """One that jax does not know."""

    x: Any
    y: Any
    mask: Any = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Registered:
    x: Any
    y: Any
    mask: Any = None


@chex.dataclass(frozen=True)
class Chex:
    x: Any
    y: Any
    mask: Any = None


def unmasked(x, y, mask=None):
    """A function that is no class."""
    return Plain(x, y, mask)


def rows(many=44):
    return Pipeline(arrays(x=np.arange(float(many)), y=np.arange(many) * 2)).shuffle(seed=1)


def named(feed):
    """The fields of a feed, of any of these classes, that are there."""
    if isinstance(feed, dict) and type(feed) is dict:
        found = feed
    elif is_dataclass(feed):
        found = {each.name: getattr(feed, each.name) for each in fields(feed)}
    else:
        found = feed._asdict()
    return {name: np.asarray(each).tolist() for name, each in found.items() if each is not None}


@pytest.mark.parametrize("into", [Pair, Plain, Registered, Chex, unmasked])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"capacity": 0},
        {"last": "pad"},
        {"last": "wrap", "tune": True},
        {"sharding": "host"},
        {"sharding": {"x": jax.devices()[1], "y": "host"}},
        {"sharding": MESH},
        {"pmap": True, "last": "pad"},
        {"resident": True},
        {"steps_per_epoch": 3, "feed_list": {"x": "y", "y": "x"}},
    ],
    ids=repr,
)
def test_feeds_of_a_class_have_the_fields_of_feeds_that_are_dicts(into, options):
    plan = rows().batch(8)
    plain, loader = plan.load(**options), plan.load(into=into, **options)
    given, made = plain.steps(7), loader.steps(7)
    for feed in given:
        other = next(made)
        assert named(other) == named(feed)
        assert type(other) is (Plain if into is unmasked else into)
        assert made.cursor == given.cursor
    cursor = json.loads(json.dumps(plain.steps(3).cursor))
    assert [*map(named, loader.steps(7, at=cursor))] == [*map(named, plain.steps(7, at=cursor))]
    assert named(loader.peek()) == named(plain.peek())


def test_a_run_without_a_class_goes_on_with_one():
    plan = rows().batch(8)
    feeds = plan.load().steps(9)
    for _ in range(7):
        next(feeds)
    rest = plan.load(into=Pair).steps(9, at=feeds.cursor)
    assert [*map(named, rest)] == [*map(named, feeds)]


@pytest.mark.parametrize("options", [{}, {"sharding": MESH}, {"resident": True}], ids=repr)
@pytest.mark.parametrize("into", [Pair, Plain])
def test_the_first_function_on_the_device_gets_the_class(into, options):
    loader = rows().batch(8).load(into=into, **options)
    seen = []

    def total(feed):
        seen.append(type(feed))
        return {"both": feed.x + feed.y}

    staged = loader.on_device(total).on_device(lambda feed: feed["both"] * 2)
    for feed, plain in zip(staged.epoch(0), loader.epoch(0), strict=True):
        assert feed.tolist() == (2 * (plain.x + plain.y)).tolist()
    assert {*seen} == {into}


def test_a_random_function_on_the_device_gets_the_class_and_the_same_keys():
    def noisy(x, key):
        return x + jax.random.normal(key, x.shape)

    plan = rows().batch(8)
    plain = plan.load().on_device(lambda feed, key: noisy(feed["x"], key), "batch")
    made = plan.load(into=Plain).on_device(lambda feed, key: noisy(feed.x, key), "batch")
    for feed, other in zip(plain, made, strict=True):
        assert feed.tolist() == other.tolist()


def test_chunks_of_steps_are_of_the_class():
    loader = rows().batch(8).load(into=Pair).chunk(2)
    chunks = list(loader.epoch(0))
    assert [type(chunk) for chunk in chunks] == [Pair] * 2
    assert chunks[0].x.shape == (2, 8)
    _, sums = jax.lax.scan(lambda carry, feed: (carry, feed.x.sum()), 0, chunks[0])
    assert sums.tolist() == chunks[0].x.sum(1).tolist()
    staged = rows().batch(8).load(into=Plain).chunk(2).on_device(lambda feed: feed.x.sum())
    assert next(iter(staged)).tolist() == sums.tolist()


def test_a_function_may_return_the_class_if_jax_knows_it():
    loader = rows().batch(8).load(into=Pair).on_device(lambda feed: feed._replace(y=-feed.y))
    assert next(iter(loader)).y.tolist() == (-rows().batch(8).load(into=Pair).peek().y).tolist()
    unknown = rows().batch(8).load(into=Plain).on_device(lambda feed: replace(feed, y=-feed.y))
    with pytest.raises(TypeError, match="Plain") as raised:
        next(iter(unknown))
    assert "register it with jax.tree_util.register_dataclass" in raised.value.__notes__[0]


def test_specs_and_shapes_are_of_the_class():
    loader = rows().batch(8).load(into=Plain)
    assert loader.element_spec == Plain(
        jax.ShapeDtypeStruct((8,), jnp.float32), jax.ShapeDtypeStruct((8,), jnp.int32)
    )
    assert loader.shapes() == [loader.element_spec]
    staged = loader.on_device(lambda feed: feed.x)
    assert staged.shapes() == [staged.element_spec] == [loader.element_spec.x]
    documents = Pipeline(ragged(np.arange(9), [0, 1, 3, 7, 9]))
    buckets = documents.bucket([2, 4], tokens=4, seed=0)
    shapes = buckets.load(into=SimpleNamespace).shapes()
    assert [each.tokens.shape for each in shapes] == [(2, 2), (1, 4)]


def test_masks_of_padded_batches_are_fields_of_the_class():
    documents = Pipeline(arrays(tokens=ragged(np.arange(9), [0, 1, 3, 7, 9]))).padded_batch(2)
    made = documents.load(into=lambda tokens, tokens_mask: (tokens, tokens_mask))
    for feed, (tokens, there) in zip(documents.load(), made, strict=True):
        assert tokens.tolist() == feed["tokens"].tolist()
        assert there.tolist() == feed["tokens_mask"].tolist()


def test_a_step_of_the_class_is_compiled_ahead():
    loader = rows().batch(8).load(into=Pair)
    step = jax.jit(lambda total, feed: total + feed.x.sum())
    loader.warm(step, total := jnp.zeros(()))
    for feed in loader:
        total = step(total, feed)
    assert step._cache_size() == 1


def test_samples_that_are_taken_out_are_masked_in_the_class():
    loader = rows(8).batch(8).load(into=Pair)
    (feed,) = loader.without([5]).epoch(0)
    (whole,) = loader.epoch(0)
    assert whole.mask is None
    assert feed.x[~feed.mask].tolist() == [0]
    assert whole.x[~feed.mask].tolist() == [5]


def test_train_hands_the_class_to_the_step():
    def step(total, feed):
        return total + int(feed.y.sum()), type(feed)

    assert train(step, 0, rows(8).batch(4).load(into=Plain), progress=False) == (56, [Plain])


def test_loaders_of_a_generator_take_a_class_too():
    loader = DataLoader.from_generator(["x", "y"], into=Pair)
    loader.set_sample_generator(lambda: [(1, 2), (3, 4)], batch_size=2)
    assert [named(feed) for feed in loader] == [{"x": [1, 3], "y": [2, 4]}]


class TestWhatDoesNotFit:
    """A class that does not take the fields is refused, and the error says what fits."""

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({}, r"takes the fields \['tokens', 'x'\], and feeds have \['x', 'y'\]: missing.*"),
            ({"feed_list": {"tokens": "x"}}, r"feeds have \['tokens'\]: .*'x': \.\.\.}"),
            ({"feed_list": {"tokens": "x", "x": "y"}, "last": "pad"}, "'mask'.*'pad'.* add"),
        ],
    )
    def test_it_is_refused_at_once_where_fields_are_known(self, given, says):
        def training_input(tokens, x):
            raise AssertionError("it is called")

        with pytest.raises(FeedMismatch, match=says):
            rows().batch(8).load(into=training_input, **given)

    def test_what_to_type_takes_it(self):
        with pytest.raises(FeedMismatch, match=r"load\(\{'x': 'x', 'tokens': \.\.\.\}, into=") as e:
            rows().batch(8).load(into=lambda x, tokens: (x, tokens))
        assert "<lambda>" in str(e.value)
        rows().batch(8).load({"x": "x", "tokens": "y"}, into=lambda x, tokens: (x, tokens)).peek()

    def test_it_is_refused_at_the_first_feed_where_only_that_tells(self):
        loader = Pipeline(lambda: [{"x": 1, "z": 2}] * 4).batch(2).load(into=Pair)
        with pytest.raises(FeedMismatch, match=r"feeds have \['x', 'z'\]"):
            next(iter(loader))

    def test_feeds_without_names_are_refused(self):
        loader = Pipeline(lambda: [(1, 2)] * 4).batch(2).load(into=Pair)
        with pytest.raises(FeedMismatch, match=r"missing .*load\(\{'x': \.\.\., 'y': \.\.\."):
            next(iter(loader))

    def test_what_cannot_be_called_is_refused(self):
        with pytest.raises(TypeError, match=r"load\(into=cls\) needs .*not the int 3"):
            rows().batch(8).load(into=3)

    def test_an_error_of_the_class_is_its_own(self):
        def fussy(x, y):
            raise TypeError("it is Friday")

        loader = rows().batch(8).load(into=fussy)
        with pytest.raises(TypeError, match="it is Friday"):
            next(iter(loader))

    def test_a_class_that_does_not_say_what_it_takes_is_called(self):
        assert rows(8).batch(8).load(into=SimpleNamespace).peek().x.shape == (8,)
        assert rows(8).batch(8).load(into=dict).peek().keys() == {"x", "y"}
