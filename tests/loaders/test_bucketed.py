"""Loaders of `bucket`: a remainder for each bucket, and every step is found at once."""

from __future__ import annotations

import json
from itertools import islice

import jax
import numpy as np
import pytest
from bucketed import LENGTHS, plan, shape_of
from texts import documents, numbered
from together import processes

import jreader
from jreader import (
    BatchNotDivisible,
    DataLoader,
    NotResumable,
    Pipeline,
    ShortEpoch,
    as_function,
)

MESH = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
D = len(jax.devices())


def ids(feeds):
    return [int(i) for feed in feeds for i in np.asarray(feed["id"])[there(feed)]]


def there(feed):
    return np.asarray(feed.get("mask", np.ones(len(feed["id"]), bool)))


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

    def test_wrap_raises_for_buckets(self):
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
        with pytest.raises(ValueError, match=r"chunk\(k\) needs .* to=\[length\]\), or .pack"):
            plan().load().chunk(2)
        with pytest.raises(ValueError, match=r"a batch for each place needs"):
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
        dealt = {len(share) for share in loader._loaded.here.shares}
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
    assert processes(PROCESSES, 4) == [alone] * 4
    for kind, (seen, rest, shapes, programs, _) in alone.items():
        assert sorted({tuple(shape) for shape, *_ in seen}) == [tuple(shape) for shape in shapes]
        assert programs == len(shapes)
        assert len(shapes) == 3 or kind.startswith("padded")
        assert rest == [shape for shape, *_ in seen[len(seen) // 2 :]][3:]
