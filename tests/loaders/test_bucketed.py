"""Loaders of `bucket`: few shapes, known and compiled before the loop; steps are found at once."""

from __future__ import annotations

import json
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from texts import as_lists, documents, numbered, streamed
from together import processes

import jreader
from jreader import (
    BatchNotDivisible,
    DataLoader,
    FeedMismatch,
    NotResumable,
    Pipeline,
    ShortEpoch,
    arrays,
    as_function,
)
from jreader.readers.ragged import Ragged

BOUNDS = [2, 5, 9]
LENGTHS = [1, 4, 9, 3, 2, 7, 5] * 11
MESH = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
D = len(jax.devices())


def plan(seed=0, stream=False, **options):
    rows = numbered(LENGTHS)
    return Pipeline(streamed(rows) if stream else rows).bucket(
        BOUNDS, **({"tokens": 36} | options), seed=seed
    )


def ids(feeds):
    return [int(i) for feed in feeds for i in np.asarray(feed["id"])[there(feed)]]


def there(feed):
    return np.asarray(feed.get("mask", np.ones(len(feed["id"]), bool)))


def shape_of(feed):
    return {name: (leaf.shape, leaf.dtype.name) for name, leaf in feed.items()}


@pytest.fixture
def compiled():
    """How many programs were compiled, as jax tells it."""
    count = [0]

    def listen(event, *_args, **_kwargs):
        count[0] += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield count
    jax.monitoring.unregister_event_duration_listener(listen)


class TestEnds:
    @pytest.mark.parametrize("stream", [False, True])
    def test_by_default_short_batches_are_left_out(self, stream):
        loader = plan(stream=stream).load(drop_last=True)
        feeds = list(loader)
        assert {feed["text"].shape for feed in feeds} == {(18, 2), (7, 5), (4, 9)}
        assert len(set(ids(feeds))) == len(ids(feeds)) == sum(map(len, (f["id"] for f in feeds)))
        assert len(ids(feeds)) == sum(n // r * r for n, r in [(22, 18), (33, 7), (22, 4)])
        if not stream:
            assert len(loader) == len(feeds)

    @pytest.mark.parametrize("stream", [False, True])
    def test_padded_every_sample_is_there_once_and_there_is_no_other_shape(self, stream):
        loader = plan(stream=stream).load(last="pad")
        feeds = list(loader)
        assert {feed["text"].shape for feed in feeds} == {(18, 2), (7, 5), (4, 9)}
        assert sorted(ids(feeds)) == list(range(len(LENGTHS)))
        assert not any(np.asarray(feed["text_mask"])[~there(feed)].any() for feed in feeds)
        if not stream:
            assert len(loader) == len(feeds)

    def test_the_plan_may_say_so_as_well(self):
        assert sorted(ids(plan(drop_last=False).load())) == list(range(len(LENGTHS)))
        assert len(plan(drop_last=True).load()) == len(plan().load())
        with pytest.raises(ValueError, match=r"bucket\(..., drop_last=False\) keeps"):
            plan(drop_last=False).load(drop_last=True)

    def test_a_short_batch_can_be_an_error_before_the_first_step(self):
        loader = plan().load(last="error")
        with pytest.raises(ShortEpoch, match="has 4 samples, not 18"):
            next(iter(loader))
        whole = Pipeline(documents([1] * 8 + [4] * 6)).bucket([2, 5], 2, seed=0)
        assert len(list(whole.load(last="error"))) == 7

    def test_a_short_batch_of_a_stream_is_an_error_when_it_comes(self):
        with pytest.raises(ShortEpoch, match="not 18"):
            list(plan(stream=True).load(last="error"))

    def test_there_is_no_wrap(self):
        with pytest.raises(ValueError, match="belong to other buckets: give last='pad' or 'drop'"):
            list(plan().load(last="wrap"))

    def test_a_stream_that_leaves_out_the_same_samples_warns(self):
        with pytest.warns(UserWarning, match="each epoch leaves out the same"):
            list(plan(stream=True).load())

    def test_a_bucket_whose_samples_are_in_no_epoch_is_told_of(self):
        rare = Pipeline(documents([1] * 9 + [4, 8])).bucket([2, 5, 9], 3, seed=0)
        with pytest.warns(UserWarning, match=r"the buckets 5, 9 have fewer .* theirs \(3, 3\)"):
            assert len(list(rare.load())) == 3
        assert len(list(rare.load(drop_last=True))) == 3
        assert len(list(rare.load(last="pad"))) == 5

    def test_one_place_of_paddle_gets_short_batches_as_they_are(self):
        loader = DataLoader.from_generator().set_sample_list_generator(plan())
        assert sorted(ids(loader)) == list(range(len(LENGTHS)))
        assert len(loader.shapes()) == len({str(shape_of(feed)) for feed in loader}) > 3

    def test_steps_per_epoch_counts_batches(self):
        assert len(list(plan().load(steps_per_epoch=3))) == 3


class TestPlaces:
    @pytest.mark.parametrize("stream", [False, True])
    def test_a_cursor_of_any_step_goes_on_there(self, stream):
        loader = plan(stream=stream).load(last="pad")
        whole = ids(loader.epoch(0))
        feeds, head = loader.epoch(0), []
        for feed in feeds:
            head += ids([feed])
            cursor = json.loads(json.dumps(feeds.cursor))
            again = plan(stream=stream).load(last="pad").epoch(0, at=cursor)
            assert head + ids(again) == whole

    def test_a_step_is_found_at_once_with_the_cursor_that_a_pass_has_there(self):
        loader = plan(seed=3).load(last="pad")
        feeds = loader.steps()
        for step in range(2 * len(loader) + 3):
            begun = loader.steps(start=step)
            assert ids([next(begun)]) == ids([next(feeds)])
            assert begun.cursor == feeds.cursor
        with pytest.raises(ValueError, match=f"epoch 0 has {len(loader)} steps"):
            loader.epoch(0, start=len(loader) + 1)

    def test_the_samples_of_any_step_are_known(self):
        loader = plan(seed=3).load(last="pad")
        for epoch in (0, 2):
            for step, feed in enumerate(loader.epoch(epoch)):
                found = loader.samples(step, epoch=epoch)
                assert found.rows["id"].tolist() == ids([feed]) == found.places.tolist()
        with pytest.raises(ValueError, match=f"no step {len(loader)}"):
            loader.samples(len(loader), epoch=0)

    def test_batches_in_another_order_are_read_to_be_found(self):
        loader = Pipeline(plan().shuffle(5, seed=1)).load(last="pad")
        with pytest.raises(TypeError, match="needs an indexed plan"):
            loader.samples(1)
        whole = [ids([feed]) for feed in loader.epoch(0)]
        assert [ids([feed]) for feed in loader.epoch(0, start=3)] == whole[3:]
        few = plan().firstn(4).load(last="pad")
        assert [ids([feed]) for feed in few.epoch(0, start=1)] == [
            ids([feed]) for feed in plan().load(last="pad").epoch(0)
        ][1:4]

    @pytest.mark.parametrize("last", ["drop", "pad"])
    def test_what_hands_batches_on_changes_neither_steps_nor_shapes(self, last):
        full = {feed["text"].shape for feed in plan().load(last=last)}
        for behind in (
            plan().cache(),
            plan().firstn(9),
            plan().prefetch(3),
            plan().shuffle(4, seed=1),
            Pipeline(plan()).map_batches(lambda columns: columns),
        ):
            loader = behind.load(last=last)
            feeds = list(loader.epoch(0))
            assert {feed["text"].shape for feed in feeds} <= full
            try:
                assert len(loader) == len(feeds)
            except TypeError:
                assert (last, behind.reader.__class__) == ("drop", jreader.cache)
            cursors = loader.epoch(0)
            next(cursors), next(cursors)
            assert ids(loader.epoch(0, at=cursors.cursor)) == ids(feeds[2:])
            assert ids(loader.epoch(0, start=2)) == ids(feeds[2:])

    def test_without_a_seed_those_of_the_epoch_under_way_are(self):
        loader = plan(seed=None).load()
        feeds = iter(loader)
        assert [loader.samples(s).rows["id"].tolist() for s in range(3)] == [
            ids([feed]) for feed in islice(feeds, 3)
        ]

    def test_epochs_have_other_batches(self):
        loader = plan().load(last="pad")
        one, other = ids(loader), ids(loader)
        assert sorted(one) == sorted(other)
        assert one != other

    def test_a_cursor_of_other_bounds_is_refused(self):
        feeds = iter(plan().load())
        next(feeds)
        rows = Pipeline(numbered(LENGTHS))
        with pytest.raises(NotResumable, match="another plan"):
            rows.bucket([2, 6, 9], tokens=36, seed=0).load().epoch(0, at=feeds.cursor)

    def test_functions_of_batches_keep_the_shapes_of_buckets(self):
        def doubled(columns):
            return {name: np.repeat(column, 2, 0) for name, column in columns.items()}

        loader = plan().map_batches(doubled).load(last="pad")
        assert {f["text"].shape for f in loader} == {(36, 2), (14, 5), (8, 9)}
        assert {f["text"].shape for f in loader.shapes()} == {(36, 2), (14, 5), (8, 9)}
        assert sorted(ids(loader)) == sorted([*range(len(LENGTHS))] * 2)


class TestDevices:
    def test_batches_are_split_over_a_mesh(self):
        loader = plan(tokens=9 * D, divisible_by=D).load(sharding=MESH, last="pad")
        feeds = list(loader)
        assert sorted(ids(feeds)) == list(range(len(LENGTHS)))
        for feed in feeds:
            assert {s.data.shape[0] for s in feed["text"].addressable_shards} == {
                len(feed["id"]) // D
            }

    def test_a_pmap_layout_has_an_axis_of_devices(self):
        loader = plan(tokens=9 * D, divisible_by=D).load(pmap=True, last="pad")
        assert {feed["text"].shape for feed in loader.shapes()} >= {(D, 1, 9)}
        assert {feed["text"].shape for feed in loader} == {
            feed["text"].shape for feed in loader.shapes()
        }

    def test_rows_that_devices_do_not_divide_say_what_to_type(self):
        with pytest.raises(BatchNotDivisible, match=rf"samples of length 2 .* divisible_by={D}\)"):
            plan(tokens=9 * D).load(sharding=MESH)

    def test_several_batches_do_not_make_a_feed(self):
        with pytest.raises(ValueError, match=r"chunk\(k\) stacks .* to=\[length\]\), or .pack"):
            plan().load().chunk(2)
        with pytest.raises(ValueError, match=r"a batch for each place stacks"):
            DataLoader.from_generator().set_sample_list_generator(plan(), jax.devices())
        with pytest.raises(ValueError, match=r"several shapes"):
            Pipeline(documents([1, 2])).padded_batch(1).load().chunk(2)
        fixed = Pipeline(documents([1, 2])).padded_batch(1, to=[3]).load().chunk(2)
        assert [feed["tokens"].shape for feed in fixed] == [(2, 1, 3)]

    def test_a_function_of_one_shape_refuses_them(self):
        for batched in (plan(), Pipeline(documents([1, 2])).padded_batch(1)):
            with pytest.raises(
                TypeError, match=r"type \.pack\(size\).* loader.warm\(step, \*state\)"
            ):
                as_function(batched)
            with pytest.raises(TypeError, match="one shape"):
                batched.load(resident=True)


class TestShapes:
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("options", [{"drop_last": True}, {"last": "pad"}])
    def test_they_are_those_of_the_feeds(self, stream, options):
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

    def test_no_epoch_or_pass_moves(self):
        loader = plan().load()
        loader.shapes()
        assert loader.next_epoch == 0

    def test_they_are_placed_as_feeds_are(self):
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
        with pytest.raises(TypeError, match=r"is none: .* step = jax.jit\(step\)"):
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


PROCESSES = """
from texts import numbered, streamed
from jreader import Pipeline

mesh = jax.make_mesh((jax.device_count(),), ("data",))
lengths = [1, 4, 9, 3, 2, 7, 5] * 11
found = {}
for kind in ("indexed", "staged", "stream", "mapped", "padded"):
    for last in ("drop", "pad"):
        rows = numbered(lengths)
        plan = Pipeline(streamed(rows) if kind == "stream" else rows)
        if kind == "padded":
            plan = plan.shuffle(seed=1).padded_batch(8, to=[4, 9])
        else:
            plan = plan.bucket([2, 5, 9], tokens=36, divisible_by=4, seed=0)
        if kind == "mapped":
            plan = plan.map_batches(lambda columns: {**columns, "id": columns["id"] + 1})
        loader = plan.load(sharding=mesh, last=last)
        if kind == "staged":
            loader = loader.on_device(lambda feed: {**feed, "twice": feed["text"] * 2})
        dealt = {len(share) for share in loader._loaded.shape.shares}
        deals = many > 1 and kind in ("indexed", "staged")
        assert dealt == ({16 // many, 4 // many} if deals else set())
        step = jax.jit(lambda total, feed: (total + feed["text"].sum(), (feed["id"] ** 2).sum()))
        total = loader.replicate(np.int32(0))
        loader.warm(step, total)
        seen, mine = [], []
        for epoch in range(2):
            feeds = loader.epoch(epoch)
            for feed in feeds:
                total, sums = step(total, feed)
                seen.append([feed["text"].shape, int(sums), feed["text"].addressable_data(0).shape])
                mine.append([shard.index[0].start or 0 for shard in feed["id"].addressable_shards])
                if feeds.step == 3:
                    cursor = feeds.cursor
        rest = [feed["text"].shape for feed in loader.epoch(1, at=cursor)]
        shapes = [feed["text"].shape for feed in loader.shapes()]
        found[kind + last] = seen, rest, sorted(shapes), step._cache_size(), int(total)
        assert mine
say(found)
"""


@pytest.mark.slow
def test_all_processes_see_the_same_shapes_and_steps():
    """And the same sums of the same samples as one process, with four devices, does."""
    (alone,) = processes(PROCESSES, 1, devices=4)
    for many in (2, 4):
        assert processes(PROCESSES, many, devices=4 // many) == [alone] * many
    for kind, (seen, rest, shapes, programs, _) in alone.items():
        assert sorted({tuple(shape) for shape, *_ in seen}) == [tuple(shape) for shape in shapes]
        assert programs == len(shapes)
        assert len(shapes) == 3 or kind.startswith("padded")
        assert rest == [shape for shape, *_ in seen[len(seen) // 2 :]][3:]


def bad(_feed):
    raise TypeError("bad")
