"""The shapes of feeds are known, and compiled, before the loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bucketed import BOUNDS, LENGTHS, plan, shape_of
from texts import as_lists, documents, numbered

from jreader import DataLoader, FeedMismatch, Pipeline, arrays
from jreader.readers.ragged import Ragged

MESH = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
D = len(jax.devices())


@pytest.fixture
def compiled():
    """How many programs were compiled, as jax tells it."""
    count = [0]

    def listen(event, *_args, **_kwargs):
        count[0] += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield count
    jax.monitoring.unregister_event_duration_listener(listen)


class TestShapes:
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("options", [{"drop_last": True}, {"last": "pad"}])
    def test_shapes_are_those_of_the_feeds(self, stream, options):
        loader = plan(stream=stream).load(**options)
        found = [shape_of(feed) for feed in loader.shapes()]
        assert sorted(map(str, found)) == sorted({str(shape_of(feed)) for feed in loader})

    def test_a_bucket_without_a_batch_has_none(self):
        loader = Pipeline(documents([1, 1, 1, 4])).bucket([2, 5, 9], 2, seed=0)
        assert [f["tokens"].shape for f in loader.load(drop_last=True).shapes()] == [(2, 2)]
        padded = loader.load(last="pad").shapes()
        assert [f["tokens"].shape for f in padded] == [(2, 2), (2, 5)]

    def test_nothing_is_read_where_lengths_are_known(self):
        class Unreadable(np.ndarray):
            def __getitem__(self, index):
                raise AssertionError("read")

        offsets = np.cumsum([0, *LENGTHS])
        values = np.zeros(offsets[-1], np.uint16).view(Unreadable)
        rows = arrays(text=Ragged(values, offsets), id=np.arange(len(LENGTHS)))
        loader = Pipeline(rows).bucket(BOUNDS, tokens=36, seed=0).load()
        assert [feed["text"].shape for feed in loader.shapes()] == [(18, 2), (7, 5), (4, 9)]
        assert loader.shapes()[0]["text"].dtype == np.uint16
        with pytest.raises(AssertionError, match="read"):
            next(iter(loader))

    def test_shapes_move_no_epoch_and_no_pass(self):
        loader = plan().load()
        loader.shapes()
        assert loader.next_epoch == 0

    def test_shapes_have_the_shardings_of_feeds(self):
        loader = plan(tokens=None, batch_size=D).load(sharding=MESH)
        first = next(iter(loader))
        spec = next(f for f in loader.shapes() if f["text"].shape == first["text"].shape)
        assert spec["text"].sharding == first["text"].sharding

    def test_a_stage_on_the_devices_counts(self):
        loader = plan().load().on_device(lambda feed: {"x": feed["text"].astype(jnp.float32)})
        assert [feed["x"].shape for feed in loader.shapes()] == [(18, 2), (7, 5), (4, 9)]
        assert loader.shapes()[0]["x"].dtype == jnp.float32

    def test_batches_of_one_shape_have_one(self):
        rows = Pipeline(arrays(np.arange(7.0)))
        assert [spec.shape for spec in rows.batch(3).load(drop_last=True).shapes()] == [(3,)]
        assert [spec.shape for spec in rows.batch(3).load().chunk(2).shapes()] == [(2, 3)]
        paddle = DataLoader.from_generator().set_sample_list_generator(rows.batch(3))
        assert [spec.shape for spec in paddle.shapes()] == [(3,), (1,)]

    @pytest.mark.parametrize("options", [{"drop_last": True}, {"last": "pad"}])
    @pytest.mark.parametrize("how", [{}, {"multiple_of": 4}, {"to": [4, 9]}, {"to": [9]}], ids=str)
    def test_padded_batches_have_those_of_the_next_epoch(self, how, options):
        rows = Pipeline(numbered(LENGTHS[:20])).shuffle(seed=1)
        loader = rows.padded_batch(3, **how).load(**options)
        for _ in range(2):
            found = {str(shape_of(feed)) for feed in loader.shapes()}
            assert found == {str(shape_of(feed)) for feed in loader}

    def test_of_a_stream_padded_batches_may_have_all_of_the_list(self):
        loader = Pipeline(as_lists(documents([1, 2, 8]))).padded_batch(1, to=[4, 9]).load()
        assert [f["tokens"].shape for f in loader.shapes()] in ([(1, 4), (1, 9)], [(1, 9), (1, 4)])
        longest = Pipeline(as_lists(documents([1, 2, 8]))).padded_batch(1).load()
        with pytest.raises(
            TypeError, match=r"\.padded_batch\(n, to=\[128, 256, 512\]\), or \.bucket"
        ):
            longest.shapes()

    def test_samples_that_are_no_batches(self):
        with pytest.raises(FeedMismatch):
            Pipeline(documents([1, 2])).load().shapes()


class TestWarm:
    @pytest.mark.parametrize("sharding", [None, MESH], ids=["one device", "mesh"])
    @pytest.mark.parametrize("last", ["drop", "pad"])
    def test_the_loop_compiles_nothing(self, compiled, sharding, last):
        loader = plan(tokens=None, batch_size=D).load(sharding=sharding, last=last)

        @jax.jit
        def step(weights, count, feed):
            return weights + feed["text"].sum(), count + 1

        weights, count = loader.replicate((jnp.ones(3, jnp.int32), jnp.zeros((), jnp.int32)))
        jax.block_until_ready(weights)
        before = compiled[0]
        loader.warm(step, weights, count)
        first, *_ = feeds = list(loader)
        assert compiled[0] - before == len(BOUNDS) == len(loader.shapes())
        for feed in [first, *feeds]:
            weights, count = step(weights, count, feed)
        assert compiled[0] - before == step._cache_size() == len(BOUNDS)
        assert int(count) == len(feeds) + 1

    def test_without_it_there_are_as_many_programs_as_bounds(self, compiled):
        step = jax.jit(lambda feed: feed["text"].sum())
        before = compiled[0]
        for feed in plan().load():
            step(feed)
        assert compiled[0] - before == step._cache_size() == len(BOUNDS)

    def test_it_does_not_run_the_step_nor_use_up_its_state(self):
        ran = []

        def step(weights, feed):
            jax.debug.callback(lambda: ran.append(1))
            return weights + feed["text"].sum()

        step = jax.jit(step, donate_argnums=0)
        weights = jnp.zeros((), jnp.int32)
        loader = plan().load()
        loader.warm(step, weights)
        feeds = iter(loader)
        next(feeds)
        jax.effects_barrier()
        assert not ran
        assert int(weights) == 0  # it was not donated

    def test_a_stage_is_compiled_too(self, compiled):
        loader = plan().load().on_device(lambda feed: feed["text"] * 2)
        step = jax.jit(lambda feed: feed.sum())
        loader.warm(step)
        feeds = iter(loader)
        next(feeds)
        before = compiled[0]
        for feed in feeds:
            step(feed)
        assert compiled[0] == before

    def test_an_error_of_the_step_is_raised_where_it_is_warmed(self):
        loader = plan().load()
        with pytest.raises(TypeError, match="bad") as caught:
            loader.warm(jax.jit(bad))
        assert "loader.warm" in caught.value.__notes__[-1]

    def test_a_step_that_is_not_jitted(self):
        with pytest.raises(TypeError, match=r"is not one: .* step = jax.jit\(step\)"):
            plan().load().warm(lambda feed: feed)

    def test_several_steps_are_compiled_for_one_loop(self, compiled):
        loader = plan().load()
        steps = [jax.jit(lambda feed, by=by: feed["text"].sum() * by) for by in (2, 3)]
        for step in steps:
            loader.warm(step)
        feeds = iter(loader)
        next(feeds)
        before = compiled[0]
        for feed in feeds:
            steps[0](feed), steps[1](feed)
        assert compiled[0] == before

    def test_every_kind_of_pass_waits_for_it(self, compiled):
        step = jax.jit(lambda feed: feed["text"].sum())
        for begin in (iter, lambda loader: loader.steps(3), lambda loader: loader.epoch(1)):
            loader = plan().load(capacity=0)
            loader.warm(step)
            feeds = begin(loader)
            next(feeds)
            before = compiled[0]
            for feed in feeds:
                step(feed)
            assert compiled[0] == before

    def test_an_error_of_the_compiler_is_raised_with_the_first_feed(self):
        class Broken:
            def lower(self, feed):
                return self

            def compile(self):
                raise RuntimeError("out of memory")

        loader = plan().load()
        loader.warm(Broken())
        with pytest.raises(RuntimeError, match="out of memory"):
            next(iter(loader))


def bad(_feed):
    raise TypeError("bad")
