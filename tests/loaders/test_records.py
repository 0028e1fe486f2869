"""What a step saw, steps that are left out, and a digest that says that two runs saw the same."""

import time
from dataclasses import replace
from itertools import islice
from tempfile import TemporaryFile

import jax
import numpy as np
import pytest
from graphs import Recipe, op_recipes
from hypothesis import given
from hypothesis import strategies as st
from movers import MOVERS, fast, moves
from movers import rows as source_rows
from seen import through_json
from steps import stream, told
from widths import examples

from jreader import (
    NotResumable,
    Pipeline,
    arrays,
    at_epoch,
    chain,
    compose,
    idx,
    mix,
    npy,
    shuffle,
    source,
)

COUNT = 50


def numbers():
    return iter(range(COUNT))


def columns():
    return arrays(n=np.arange(COUNT) * 3, half=np.arange(COUNT) / 2)


def negative(row):
    return {"n": -row["n"]}


def noisy(row, rng):
    return {"n": -row["n"], "noise": rng.random()}


def indexed(seed=1, size=4, **options):
    return Pipeline(columns()).shuffle(seed=seed).batch(size).load(**options)


def streamed(seed=1, size=4, **options):
    return Pipeline(numbers).shuffle(9, seed).batch(size).load(**options)


HANDING_ON = [op for op in MOVERS if op.from_reader in ("all", "some")]


@st.composite
def mixed_rows(draw):
    """Up to three ops that hand on samples of a mixture, the number of whose reader they tell."""
    recipe = draw(op_recipes(mix, source_rows).filter(lambda recipe: not recipe.given["source"]))
    leaves = [
        replace(each.leaf, base=n, form=recipe.below[0].leaf.form)
        for n, each in enumerate(recipe.below)
    ]
    recipe = replace(recipe, below=tuple(Recipe(None, {}, leaf=leaf) for leaf in leaves))
    for op in draw(st.lists(st.sampled_from(HANDING_ON), max_size=3)):
        recipe = draw(op_recipes(op, st.just(recipe)))
    return recipe


@pytest.mark.filterwarnings("ignore::UserWarning")
@given(mixed_rows().filter(moves), st.integers(0, 2))
@examples(250)
def test_the_reader_of_each_sample_of_a_mixture_is_told_through_every_op(recipe, epoch):
    loader = Pipeline(fast(recipe)).firstn(40).batch(3).load(sharding="host", last="keep")
    for step, feed in enumerate(loader.epoch(epoch)):
        read_from = jax.tree.leaves(feed)[0] // 100
        told = loader.samples(step, epoch=epoch).sources
        assert told.tolist() == read_from.reshape(len(read_from), -1)[:, 0].tolist()


class TestSamples:
    @pytest.mark.parametrize("seed", [1, None])
    @pytest.mark.parametrize("drop_last", [True, False])
    def test_the_rows_of_every_step_make_its_feed(self, seed, drop_last):
        loader = indexed(seed, drop_last=drop_last)
        for number, feed in enumerate(feeds := loader.epoch(2)):
            seen = loader.samples(number)
            assert (feeds.step, seen.epoch, seen.step) == (number + 1, 2, number)
            assert seen.places.tolist() == list(range(number * 4, min(number * 4 + 4, COUNT)))
            assert (seen.rows["n"] * 3).tolist() == feed["n"].tolist()[: len(seen.places)]
            assert (seen.rows["half"] / 2).tolist() == feed["half"].tolist()[: len(seen.places)]

    def test_any_epoch_can_be_asked_before_it_came_and_after(self):
        loader = indexed()
        whole = [[feed["n"].tolist() for feed in loader.epoch(epoch)] for epoch in range(3)]
        for epoch in range(3):
            for step, feed in enumerate(whole[epoch]):
                for asked in (loader, indexed()):
                    assert (asked.samples(step, epoch=epoch).rows["n"] * 3).tolist() == feed

    def test_the_next_epoch_is_meant_before_it_began(self):
        loader = indexed()
        assert loader.samples(0).epoch == 0
        list(loader)
        assert (loader.samples(0).rows["n"] * 3).tolist() == told(next(iter(loader)))["n"]

    def test_steps_of_a_run_are_those_of_the_epoch_under_way(self):
        loader = indexed()
        feeds = loader.steps(40)
        for number, feed in enumerate(feeds):
            assert (loader.samples(number).rows["n"] * 3).tolist() == feed["n"].tolist()
        assert loader.samples(36).epoch == 3
        with pytest.raises(ValueError, match=r"epoch 3 has no step 35.*epoch step // len"):
            loader.samples(35)

    def test_after_another_batch_size_steps_count_on(self):
        feeds = indexed(size=4).epoch(0)
        for _ in range(3):
            next(feeds)
        loader = indexed(size=10)
        rest = loader.epoch(0, at=through_json(feeds.cursor))
        for number, feed in enumerate(rest, 3):
            assert (loader.samples(number).rows["n"] * 3).tolist() == feed["n"].tolist()
            with pytest.raises(ValueError, match=r"batches of 4 .* have 10, from step 3 on"):
                loader.samples(2)

    def test_files_and_offsets_are_those_of_the_rows(self, tmp_path):
        for name, count in [("a", 20), ("b", 30)]:
            np.save(tmp_path / f"{name}.npy", np.arange(count * 3).reshape(count, 3))
        both = chain(npy(tmp_path / "a.npy"), npy(tmp_path / "b.npy"))
        loader = Pipeline(compose(both, arrays(np.arange(50)))).shuffle(seed=3).batch(8).load()
        for step, (feed, _) in enumerate(loader):
            files, other = loader.samples(step).files
            assert other is None
            for row, (path, offset) in zip(feed.tolist(), files, strict=True):
                stored = np.fromfile(path, np.int64, 3, offset=offset)
                assert stored.tolist() == row

    def test_a_file_that_begins_with_something_else_is_counted_from_its_beginning(self, tmp_path):
        path = tmp_path / "labels-idx2-ubyte"
        head = bytes([0, 0, 0x08, 2, 0, 0, 0, 10, 0, 0, 0, 2])
        path.write_bytes(head + bytes(range(20)))
        loader = Pipeline(idx(path)).shuffle(seed=1).batch(3).load()
        for step, feed in enumerate(loader):
            for row, (name, offset) in zip(feed.tolist(), loader.samples(step).files, strict=True):
                assert np.fromfile(name, np.uint8, 2, offset=offset).tolist() == row

    def test_rows_of_a_part_of_a_mapped_file_are_counted_from_its_beginning(self, tmp_path):
        path = tmp_path / "rows.npy"
        np.save(path, np.arange(90).reshape(30, 3))
        loader = (
            Pipeline(arrays(np.load(path, mmap_mode="r")[5::2])).shuffle(seed=1).batch(4).load()
        )
        for step, feed in enumerate(loader):
            for row, (name, offset) in zip(feed.tolist(), loader.samples(step).files, strict=True):
                assert name == str(path)
                assert np.fromfile(name, np.int64, 3, offset=offset).tolist() == row

    def test_rows_of_which_some_are_in_no_named_file_have_none(self, tmp_path):
        path = tmp_path / "rows.npy"
        np.save(path, np.arange(8))
        with TemporaryFile() as nameless:
            nameless.write(bytes(64))
            mapped = np.memmap(nameless, np.int64)
        for other in (np.arange(8), mapped):
            both = chain(npy(path), arrays(other))
            assert Pipeline(both).batch(16).load().samples(0).files is None
        assert Pipeline(arrays(mapped)).batch(4).load().samples(0).files is None

    def test_a_chunk_is_one_step(self):
        loader = indexed().chunk(3)
        for number, feed in enumerate(loader.epoch(0)):
            assert (loader.samples(number).rows["n"] * 3).tolist() == feed["n"].ravel().tolist()

    def test_functions_and_look_ahead_change_nothing(self):
        mapped = Pipeline(columns()).shuffle(seed=1).prefetch(3).batch(4).map_batches(dict).load()
        assert mapped.samples(5).rows["n"].tolist() == indexed().samples(5).rows["n"].tolist()

    @pytest.mark.filterwarnings("ignore:map-below-shuffle")
    @pytest.mark.parametrize("seed", [1, None])
    @pytest.mark.parametrize(
        "plan",
        [
            lambda rows, seed: rows.shuffle(seed=seed).map(negative),
            lambda rows, seed: rows.map(negative).shuffle(seed=seed),
            lambda rows, seed: rows.map(negative).shuffle(7, seed=seed).firstn(40),
            lambda rows, seed: rows.map(negative, threads=2).shuffle(seed=seed).prefetch(3),
            lambda rows, seed: rows.shuffle(seed=seed).map(noisy, rng=True, seed=seed),
            lambda rows, seed: (
                rows.map(negative).chain(rows.skip(30).map(negative)).shuffle(seed=seed)
            ),
        ],
    )
    def test_maps_of_samples_leave_the_rows_that_they_read(self, plan, seed):
        loader = plan(Pipeline(columns()), seed).batch(4).load(last="wrap")
        for number, feed in enumerate(loader.epoch(1)):
            seen = loader.samples(number)
            assert (-3 * (seen.rows["n"] % COUNT)).tolist() == feed["n"].tolist()
            assert (-seen.columns["n"][seen.rows["n"]]).tolist() == feed["n"].tolist()

    def test_rows_that_random_maps_below_a_shuffle_read_cannot_be_asked(self):
        plan = Pipeline(columns()).map(noisy, rng=True, seed=2).shuffle(seed=1)
        with pytest.raises(TypeError, match=r"needs an indexed plan"):
            plan.batch(4).load().samples(0)
        skipping = Pipeline(columns()).map(negative, on_error="skip")
        with pytest.raises(TypeError, match=r"needs an indexed plan"):
            skipping.batch(4).load().samples(0)

    @pytest.mark.parametrize(
        "rows",
        [
            lambda: chain(arrays(np.arange(9) * 10), arrays(np.arange(7) * 100)),
            lambda: chain(source([*range(9)]), source([*range(20, 27)])),
            lambda: mix([arrays(np.arange(9)), arrays(np.arange(20, 30))], [1, 2], seed=0),
            lambda: mix([source([*range(9)]), source([*range(20, 30)])], [1, 2], seed=0),
            lambda: source([*range(16)]),
        ],
    )
    def test_columns_are_indexed_by_rows(self, rows):
        loader = Pipeline(rows()).batch(4).load(sharding="host")
        for number, feed in enumerate(loader):
            seen = loader.samples(number)
            assert list(seen.columns[seen.rows]) == feed.tolist()
            assert [seen.columns[row] for row in seen.rows] == feed.tolist()

    def test_columns_take_slices_and_negative_rows_as_arrays_do(self):
        one = Pipeline(chain(arrays(np.arange(9)), arrays(np.arange(9, 14))))
        column = one.batch(4).load().samples(0).columns
        assert (len(column), column[-1], column[7:11].tolist()) == (14, 13, [7, 8, 9, 10])
        assert column[np.array([[0, -2], [3, 4]])][0].tolist() == [0, 12]
        with pytest.raises(IndexError, match="one of the 14"):
            column[[3, 14]]

    def test_what_is_read_cannot_be_asked(self):
        with pytest.raises(TypeError, match=r"needs an indexed plan.*begin with jreader\.arrays"):
            streamed().samples(0)

    def test_what_draws_anew_is_known_while_it_is_under_way(self):
        loader = indexed(seed=None)
        with pytest.raises(ValueError, match="give its shuffles a seed"):
            loader.samples(0)
        feeds = iter(loader)
        assert (loader.samples(0).rows["n"] * 3).tolist() == next(feeds)["n"].tolist()
        with pytest.raises(ValueError, match="give its shuffles a seed"):
            loader.samples(0, epoch=1)

    @pytest.mark.parametrize(("size", "step"), [(4, 13), (4, 10**9), (5, 10)])
    def test_steps_that_are_not_there_are_refused(self, size, step):
        words = f"has no step {step}; it has 50 samples, {size} a step"
        with pytest.raises(ValueError, match=words):
            indexed(size=size).samples(step)

    def test_nothing_is_read_of_a_trillion_samples(self):
        class Trillion:
            def __len__(self):
                return 10**12

            def __getitem__(self, row):
                raise AssertionError("it was read")

        loader = Pipeline(source(Trillion())).shuffle(seed=0).batch(1024).load()
        best = min(self.seconds(loader, 10**8 + k) for k in range(20))
        assert best < 0.05  # a tenth of a millisecond where nobody else runs

    def seconds(self, loader, step):
        began = time.thread_time()
        assert len(loader.samples(step, epoch=7).rows) == 1024
        return time.thread_time() - began


of_both = pytest.mark.parametrize("make", [indexed, streamed])


class TestSkippedSteps:
    @of_both
    @pytest.mark.parametrize("capacity", [0, 3])
    def test_skipped_steps_are_counted(self, make, capacity):
        loader = make(capacity=capacity)
        whole = stream(loader.epoch(0))
        feeds = loader.epoch(0, skip_steps=range(3, 6))
        steps, seen = [], []
        for feed in feeds:
            steps.append(feeds.step - 1)
            seen.append(told(feed))
        assert steps == [0, 1, 2, *range(6, 12)]
        assert seen == whole[:3] + whole[6:]

    @of_both
    def test_cursors_remember_them(self, make):
        whole = stream(make().epoch(0))
        feeds = make().epoch(0, skip_steps=range(3, 6))
        for _ in range(2):
            next(feeds)
        cursor = through_json(feeds.cursor)
        rest = whole[2:3] + whole[6:]
        assert stream(make().epoch(0, at=cursor)) == rest
        loader = make()
        loader.load_state_dict(cursor)
        assert stream(loader) == rest
        assert stream(loader) == stream(make().epoch(1))
        feeds = make().epoch(0, at=cursor)
        assert list(feeds)
        assert (feeds.cursor["epoch"], feeds.cursor["skipped"]) == (1, [])
        more = make().epoch(0, at=cursor, skip_steps=range(6, 8))
        assert stream(more) == whole[2:3] + whole[8:]
        for skipped in (range(3, 6), range(2)):
            cursor = through_json(make().epoch(0, at=cursor, skip_steps=skipped).cursor)
        assert [span[:2] for span in cursor["skipped"]] == [[0, 2], [3, 6]]

    @of_both
    @pytest.mark.parametrize("skipped", [range(10, 14), range(11, 12), range(12, 24), range(40)])
    def test_they_may_be_at_the_end_of_an_epoch_and_beyond(self, make, skipped):
        whole = stream(make().steps(40))
        feeds = make().steps(40, skip_steps=skipped)
        steps = [feeds.step - 1 for _ in feeds]
        assert steps == [step for step in range(40) if step not in skipped]
        assert stream(make().steps(40, skip_steps=skipped)) == [whole[step] for step in steps]

    def test_resident_loaders_leave_them_out_too(self):
        loaders = indexed(), indexed(resident=True)
        one, other = (stream(loader.steps(30, skip_steps=range(5, 20))) for loader in loaders)
        assert one == other
        assert len(one) == 15
        digests = [digest(loader.steps(30, skip_steps=range(5, 20))) for loader in loaders]
        assert digests[0] == digests[1]

    def test_skipped_steps_are_not_placed(self):
        placed = []
        loader = indexed(capacity=0)
        begun = loader._loaded.placement
        assert begun.target is None
        noted = indexed(capacity=0).on_device(
            lambda feed: jax.debug.callback(placed.append, 1) or feed
        )
        list(noted.epoch(0, skip_steps=range(2, 12)))
        jax.effects_barrier()
        assert len(placed) == 2

    @pytest.mark.filterwarnings("ignore:the feeds of this loader are not made as they were")
    def test_they_are_not_taken_for_others_after_another_batch_size(self):
        def make(size):
            return Pipeline(arrays(n=np.arange(40))).batch(size).load()

        feeds = make(4).steps(skip_steps=range(6, 8))
        next(feeds), next(feeds)
        cursor = through_json(feeds.cursor)
        for begin in (
            lambda: make(2).steps(at=cursor),
            lambda: make(2).epoch(0, at=cursor),
            lambda: make(2).load_state_dict(cursor),
            lambda: make(4).chunk(2).steps(at=cursor),
        ):
            with pytest.raises(
                NotResumable, match=r"from 6 to 7, of 4 .* here a step has [28].*again"
            ):
                begin()
        anew = make(2).epoch(0, at=cursor, skip_steps=range(3, 4))
        assert [step["n"] for step in stream(anew)][:3] == [[8, 9], [12, 13], [14, 15]]
        assert len(stream(make(2).epoch(0, at=cursor, skip_steps=range(0)))) == 16
        assert [feeds.step for _ in zip(range(4), feeds, strict=False)] == [3, 4, 5, 6]
        next(feeds)  # step 8: those that were left out lie behind
        assert len(stream(make(2).epoch(0, at=feeds.cursor))) == 2

    @pytest.mark.parametrize("skip", [3, [3, 4], range(0, 9, 2), range(-3, 4)])
    def test_what_is_no_range_of_steps_is_refused(self, skip):
        with pytest.raises(TypeError, match=r"range\(300, 310\)"):
            indexed().epoch(0, skip_steps=skip)


def digest(feeds, n=None):
    for _ in islice(feeds, n):
        pass
    return feeds.cursor["digest"]


class TestDigest:
    @pytest.mark.filterwarnings("ignore:small-window")  # of batches of 12
    @of_both
    def test_it_does_not_depend_on_batches_devices_or_restarts(self, make):
        expected = digest(make().epoch(0), 12)
        assert digest(make(size=8).epoch(0), 6) == expected
        assert digest(make(size=12, capacity=0).epoch(0), 4) == expected
        assert digest(make(sharding=jax.make_mesh((2,), ("data",))).epoch(0), 12) == expected
        assert digest(make(drop_last=False, pmap=jax.devices()[:2]).epoch(0), 12) == expected
        feeds = make().epoch(0)
        for _ in range(12):
            cursor = through_json(feeds.cursor)
            feeds.close()
            feeds = make().epoch(0, at=cursor)
            next(feeds)
        assert feeds.cursor["digest"] == expected

    @of_both
    def test_a_run_of_several_epochs_is_one(self, make):
        expected = digest(make().steps(30))
        feeds = make().steps(30)
        for _ in range(3):
            next(islice(feeds, 4, 4), None)
            digest(feeds, 5)
            cursor = through_json(feeds.cursor)
            feeds.close()
            feeds = make(capacity=5).steps(30, at=cursor)
        assert digest(feeds) == expected

    @of_both
    def test_other_samples_or_another_order_have_another(self, make):
        found = [
            digest(make().epoch(0), 3),
            digest(make().epoch(0), 4),
            digest(make().epoch(1), 3),
            digest(make(seed=2).epoch(0), 3),
            digest(make(seed=None).epoch(0), 3),
            digest(make(seed=None).epoch(0), 3),
            digest(make().epoch(0, skip_steps=range(1, 2)), 3),
            digest(make().epoch(0, skip_steps=range(2, 3)), 3),
            digest(make().epoch(0, skip_steps=range(1, 3)), 2),
            digest(make().epoch(0, skip_steps=range(2)), 3),
            digest(make().steps(), 15),
            digest(make().steps(skip_steps=range(12, 13)), 15),
            digest(make().steps(skip_steps=range(11, 12)), 14),
        ]
        assert len(set(found)) == len(found)

    def test_a_resident_loader_has_the_same(self):
        assert digest(indexed(resident=True).steps(30)) == digest(indexed().steps(30))


def test_an_epoch_that_was_written_into_the_plan_is_part_of_it():
    one, other = (
        Pipeline(at_epoch(Pipeline(columns()).shuffle(seed=1), epoch)).batch(4).load()
        for epoch in (0, 3)
    )
    assert digest(one.epoch(0), 2) != digest(other.epoch(0), 2)


def test_rows_of_data_sets_side_by_side_are_told_for_each():
    first, second = source(np.arange(9), batched=True), source(list("abcdefghi"))
    both = Pipeline(shuffle(first, seed=1)).compose(second).batch(4)
    samples = both.load().samples(1)
    order, plain = samples.rows
    assert plain.tolist() == [4, 5, 6, 7]
    assert order.tolist() == [int(row) for row in list(shuffle(first, seed=1)())[4:8]]
    assert samples.files == (None, None)
