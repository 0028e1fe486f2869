"""The feeds that Keras gets, by the calls that Keras makes; it need not be installed here."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from itertools import chain, islice
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import keras_calls
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras_calls import fit, predict, validations
from together import processes
from widths import examples

from jreader import Pipeline, arrays
from jreader.errors import BatchNotDivisible, FeedMismatch
from jreader.integrations.keras import KerasFeeds

NUMBERS = np.arange(23, dtype=np.int32)
LABELS = (NUMBERS * 7 % 5).astype(np.int32)


class Masked(NamedTuple):
    mask: Any
    x: Any
    y: Any


def rows_of(plan="arrays"):
    if plan == "arrays":
        return Pipeline(arrays(x=NUMBERS, y=LABELS)).shuffle(seed=3)
    stream = Pipeline(lambda: ({"x": x, "y": y} for x, y in zip(NUMBERS, LABELS, strict=True)))
    return stream.epochs()


def fed(loader, names=("x", None, None), epoch=None, at=None):
    return KerasFeeds(loader, names, epoch, loader._loaded, at)


def numbers(epochs):
    return [[batch[0].tolist() for batch in epoch] for epoch in epochs]


def flat(epochs):
    return [batch[0].tolist() for epoch in epochs for batch in epoch]


def stream(loader, n):
    return [feed["x"].tolist() for feed in islice(loader.steps(), n)]


@pytest.fixture
def keras(monkeypatch):
    """What the bridge needs of Keras; the real one is in tests/peers/test_keras.py."""

    class LambdaCallback:
        def __init__(self, on_epoch_begin):
            self.on_epoch_begin = on_epoch_begin

    keras = SimpleNamespace(
        config=SimpleNamespace(backend=lambda: "jax"),
        utils=SimpleNamespace(PyDataset=type("PyDataset", (), {})),
        callbacks=SimpleNamespace(LambdaCallback=LambdaCallback),
        distribution=SimpleNamespace(distribution=lambda: None),
    )
    monkeypatch.setitem(sys.modules, "keras", keras)
    return keras


class TestOrder:
    def test_an_epoch_of_fit_is_the_next_epoch_of_the_loader(self):
        loader = rows_of().batch(4).load()
        seen = numbers(fit(fed(loader), epochs=3))
        assert seen == [[feed["x"].tolist() for feed in loader.epoch(e)] for e in range(3)]
        assert seen[0] != seen[1]

    @examples(100)
    @given(
        plan=st.sampled_from(["arrays", "stream"]),
        size=st.integers(3, 23),
        calls=st.lists(
            st.builds(
                dict,
                epochs=st.integers(1, 3),
                built=st.booleans(),
                steps=st.none() | st.integers(1, 9),
                stop=st.none() | st.integers(1, 3),
            ),
            max_size=4,
        ),
    )
    def test_fits_lose_nothing_and_repeat_nothing(self, plan, size, calls):
        """Whatever `steps_per_epoch` they have, wherever they stop, whether or not they look."""
        loader = rows_of(plan).batch(size).load(steps_per_epoch=23 // size, sharding="host")
        data = fed(loader)
        seen = [batch for call in calls for batch in flat(fit(data, **call))]
        assert seen == stream(loader, len(seen))
        assert data.step == len(seen)

    def test_steps_per_epoch_goes_on_where_the_epoch_before_stopped(self):
        loader = rows_of().batch(4).load()  # of five steps
        seen = numbers(fit(fed(loader), epochs=4, steps=2))
        assert [len(epoch) for epoch in seen] == [2, 2, 1, 2]
        assert [*chain(*seen)] == stream(loader, 7)

    def test_a_fit_begins_with_the_rest_of_an_epoch_that_was_stopped(self):
        data = fed(rows_of().batch(4).load())
        assert [len(epoch) for epoch in fit(data, epochs=2, stop=3)] == [5, 3]
        assert [len(epoch) for epoch in fit(data, epochs=2)] == [2, 5]

    def test_the_first_epoch_is_the_next_one_of_the_loader(self):
        loader = rows_of().batch(4).load()
        loader.next_epoch = 3
        assert flat(fit(fed(loader))) == [feed["x"].tolist() for feed in loader.epoch(3)]

    @pytest.mark.parametrize("plan", ["arrays", "stream"])
    @pytest.mark.parametrize("built", [False, True])
    def test_the_first_epoch_is_the_rest_of_the_one_that_a_cursor_is_of(self, plan, built):
        loader = rows_of(plan).batch(4).load(steps_per_epoch=5)
        feeds = loader.steps()
        for step in range(1, 12):
            next(feeds)
            seen = fit(fed(loader, at=feeds.cursor), epochs=2, built=built)
            assert [len(epoch) for epoch in seen] == [5 - step % 5, 5]
            assert flat(seen) == stream(loader, 30)[step:][: 10 - step % 5]

    def test_a_cursor_leads_to_the_order_that_its_pass_drew(self):
        loader = Pipeline(arrays(x=NUMBERS)).shuffle().batch(4).load()
        feeds = loader.epoch(0)
        first = next(feeds)["x"].tolist()
        seen = [first, *numbers(fit(fed(loader, at=feeds.cursor)))[0]]
        assert seen[1:] == [feed["x"].tolist() for feed in feeds]

    def test_validation_begins_where_the_cursor_is_each_time(self):
        loader = rows_of().batch(4).load()
        feeds = loader.epoch(2)
        next(feeds)
        data = fed(loader, at=feeds.cursor)
        first, *others = numbers(validations(data, 3, built=False))
        assert others == [first, first] == [[feed["x"].tolist() for feed in feeds]] * 2

    def test_a_cursor_of_another_batch_size_is_refused_in_the_middle_of_an_epoch(self):
        feeds = rows_of().batch(4).load().steps()
        next(feeds)
        loader = rows_of().batch(2).load()
        with pytest.raises(
            ValueError, match="resumes steps of 4 samples, and here steps have 2: load"
        ):
            fed(loader, at=feeds.cursor)
        assert fed(loader, at=loader.epoch(1).cursor).step == 0

    def test_it_reads_nothing_before_keras_asks(self):
        read = []
        rows = Pipeline(lambda: read.append(0) or iter(NUMBERS)).batch(4)
        fed(rows.load(steps_per_epoch=2), (0, None, None))
        assert read == []


class TestTheSameEpoch:
    def test_validations_of_a_fit_see_the_same_epoch(self):
        loader = rows_of().batch(4).load()
        first, *others = numbers(validations(fed(loader), 3, built=False))
        assert others == [first, first] == [[feed["x"].tolist() for feed in loader.epoch(0)]] * 2

    @examples(40)
    @given(epoch=st.integers(0, 3), built=st.booleans(), steps=st.none() | st.integers(1, 5))
    def test_with_an_epoch_each_evaluate_and_predict_sees_that_one(self, epoch, built, steps):
        loader = rows_of().batch(4).load()
        data = fed(loader, epoch=epoch)
        feeds = [feed["x"].tolist() for feed in loader.epoch(epoch)]
        for _ in range(2):
            assert numbers(validations(data, 2, built, steps)) == [feeds[:steps]] * 2
            assert flat([predict(data, built)]) == feeds

    def test_with_an_epoch_each_fit_begins_with_that_one(self):
        loader = rows_of().batch(4).load()
        data = fed(loader, epoch=2)
        assert flat(fit(data, epochs=2)) == stream(loader, 20)[10:] == flat(fit(data, epochs=2))

    def test_predict_of_a_built_model_leaves_the_epoch_to_the_next_call(self):
        data = fed(rows_of().batch(4).load())
        assert numbers([predict(data)]) == numbers([predict(data)]) == numbers(fit(data))

    def test_a_pinned_epoch_reads_no_batch_of_the_next(self):
        read = []
        rows = Pipeline(arrays(x=NUMBERS)).map(lambda row: read.append(0) or row).batch(4)
        validations(fed(rows.load(), epoch=0))
        assert len(read) == 20


class TestBatches:
    @pytest.mark.parametrize(
        ("names", "made"),
        [
            (("x", None, None), "x"),
            (("x", "y", None), "xy"),
            (("x", "y", "w"), "xyw"),
            ((["x", "w"], {"out": "y"}, None), ({"x": 0}, "y")),
        ],
    )
    def test_names_make_what_keras_takes(self, names, made):
        loader = Pipeline(arrays(x=NUMBERS, y=LABELS, w=NUMBERS / 23)).batch(4).load()
        batch, feed = fed(loader, names)[0], loader.peek()
        if isinstance(made, str):
            assert len(batch) == len(made)
            parts = dict(zip(made, batch, strict=True))
        else:
            (x, w), targets = batch
            parts = {"x": x, "w": w, "y": targets["out"]}
        for name, part in parts.items():
            assert isinstance(part, jax.Array)
            assert part.tolist() == feed[name].tolist()

    def test_feeds_of_tuples_are_named_by_their_places(self):
        loader = Pipeline(arrays((NUMBERS, LABELS))).batch(4).load()
        x, y = fed(loader, (0, 1, None))[0]
        assert (x.tolist(), y.tolist()) == ([0, 1, 2, 3], LABELS[:4].tolist())

    def test_padded_rows_are_left_out(self, keras):
        loader = Pipeline(arrays((NUMBERS, LABELS))).batch(8).load(last="pad")
        (epoch,) = validations(fed(loader, (0, 1, None), epoch=0))
        assert np.concatenate([x for x, _ in epoch]).tolist() == NUMBERS.tolist()
        assert [len(y) for _, y in epoch] == [8, 8, 7]

    def test_the_mask_is_a_weight_where_it_is_named_so(self):
        loader = Pipeline(arrays((NUMBERS, LABELS))).batch(8).load(last="pad")
        (epoch,) = validations(fed(loader, (0, 1, "mask"), epoch=0))
        assert [mask.sum() for *_, mask in epoch] == [8, 8, 7]
        assert {len(part) for batch in epoch for part in batch} == {8}

    @pytest.mark.parametrize("last", ["drop", "keep"])
    def test_without_padding_there_is_no_such_weight(self, last):
        loader = rows_of().batch(8).load(last=last)
        assert len(fed(loader, ("x", "y", "mask"))[0]) == 2

    @pytest.mark.parametrize("into", [Masked, lambda mask, x, y: {"mask": mask, "x": x, "y": y}])
    def test_the_mask_is_found_by_its_name(self, keras, into):
        loader = rows_of().batch(8).load(last="pad", into=into)
        (epoch,) = validations(fed(loader, ("x", None, None), epoch=0))
        assert sorted(np.concatenate([x for (x,) in epoch]).tolist()) == NUMBERS.tolist()

    def test_the_mask_is_not_taken_for_a_field_that_a_device_function_sorts_behind_it(self, keras):
        loader = rows_of().batch(8).load(last="pad").on_device(dict)
        (epoch,) = validations(fed(loader, epoch=0))
        assert sorted(np.concatenate([x for (x,) in epoch]).tolist()) == NUMBERS.tolist()

    @pytest.mark.parametrize("kept", [lambda feed: {"x": feed["x"]}, lambda feed: (feed["x"],)])
    def test_a_device_function_has_to_keep_the_mask(self, kept):
        loader = rows_of().batch(8).load(last="pad").on_device(kept)
        with pytest.raises(FeedMismatch, match="needs the mask of padded rows, beside "):
            fed(loader, (0, None, None))[0]

    def test_the_mask_is_neither_input_nor_target(self):
        loader = Pipeline(arrays((NUMBERS,))).batch(8).load(last="pad")
        with pytest.raises(FeedMismatch, match=r"names 1, and the fields are \[0\]"):
            fed(loader, (0, 1, None))[0]

    def test_a_field_that_is_not_there_is_an_error_that_lists_them(self):
        with pytest.raises(FeedMismatch, match=r"names 'image', and the fields are \['x', 'y'\]"):
            fed(rows_of().batch(4).load(), ("image", "y", None))[0]

    def test_after_an_error_the_same_feed_comes_again(self):
        bad = [True]

        def once(row):
            if bad and row["x"] == 5:
                bad.clear()
                raise ValueError("a bad row")
            return row

        data = fed(Pipeline(arrays(x=NUMBERS)).map(once).batch(4).load())
        assert data[0][0].tolist() == [0, 1, 2, 3]
        with pytest.raises(ValueError, match="a bad row"):
            data[0]
        assert data[0][0].tolist() == [4, 5, 6, 7]

    def test_rows_that_are_left_have_to_fit_the_devices(self, keras):
        keras.distribution.distribution = lambda: SimpleNamespace(num_model_replicas=4)
        data = fed(Pipeline(arrays(x=NUMBERS)).batch(8).load(last="pad"))
        assert [len(data[0][0]) for _ in range(2)] == [8, 8]
        with pytest.raises(BatchNotDivisible, match="leaves 7 rows of step 2 for 4 devices"):
            data[0]

    def test_a_batch_without_samples_is_an_error(self, keras):
        loader = Pipeline(arrays(x=NUMBERS)).batch(8).load().without(range(8))
        with pytest.raises(BatchNotDivisible, match="leaves 0 rows of step 0"):
            fed(loader)[0]


@pytest.mark.usefixtures("keras")
class TestForKeras:
    def test_it_is_a_dataset_of_keras(self, keras):
        data = rows_of().batch(4).load().for_keras("x", "y")
        assert isinstance(data, keras.utils.PyDataset)
        assert data.num_batches == 5

    def test_it_needs_the_backend_of_jax(self, keras):
        keras.config.backend = lambda: "torch"
        with pytest.raises(RuntimeError, match="KERAS_BACKEND=jax"):
            rows_of().batch(4).load().for_keras("x")

    def test_it_needs_a_length(self):
        with pytest.raises(TypeError, match="give steps_per_epoch"):
            rows_of("stream").batch(4).load().for_keras("x")

    def test_it_goes_on_from_the_state_that_the_loader_was_given(self):
        loader = rows_of().batch(4).load()
        feeds = iter(loader)
        next(feeds)
        other = rows_of().batch(4).load()
        other.load_state_dict(feeds.cursor)
        assert flat(fit(other.for_keras("x", None))) == [feed["x"].tolist() for feed in feeds]
        assert other.for_keras("x", None, epoch=0).step == 0

    @pytest.mark.parametrize("option", ["chunk", "pmap"])
    def test_feeds_with_more_axes_are_refused(self, option):
        pmap = jax.devices()[:2] if option == "pmap" else None
        loader = rows_of().batch(4).load(pmap=pmap)
        with pytest.raises(ValueError, match=r"needs feeds of \[B, ...\]: load without"):
            (loader.chunk(2) if option == "chunk" else loader).for_keras("x")

    def test_a_loader_without_feeds_is_an_error(self):
        with pytest.raises(ValueError, match="at least 1"):
            Pipeline(arrays(x=NUMBERS[:0])).batch(4).load().for_keras("x")

    @pytest.mark.parametrize("option", ["workers", "use_multiprocessing"])
    def test_the_loader_is_not_copied_to_workers_of_keras(self, option):
        with pytest.raises(AttributeError, match=option):
            setattr(rows_of().batch(4).load().for_keras("x"), option, 2)


@pytest.mark.usefixtures("keras")
class TestCallback:
    def resumed(self, done, epoch, steps=None, epochs=2, accumulated=None):
        """The batches of a `fit` whose optimizer has done some steps."""
        data = rows_of().batch(4).load().for_keras("x", None)
        callback = data.callback
        optimizer = SimpleNamespace(iterations=done, gradient_accumulation_steps=accumulated)
        callback.model = SimpleNamespace(optimizer=optimizer)
        callback.params = {"steps": steps or 5}
        calls, seen = keras_calls.Calls(data, steps), []
        calls.look()
        calls.reset()
        for number in range(epoch, epoch + epochs):
            callback.on_epoch_begin(number, None)
            seen.append([batch[0].tolist() for batch in calls.epoch()])
        return seen

    @pytest.mark.parametrize("done", [0, 5, 7, 14])
    def test_a_run_goes_on_after_the_steps_of_the_optimizer(self, done):
        loader = rows_of().batch(4).load()
        seen = self.resumed(done, done // 5)
        assert [len(epoch) for epoch in seen] == [5 - done % 5, 5]
        assert [*chain(*seen)] == stream(loader, 20)[done : done + 10 - done % 5]

    @pytest.mark.parametrize("done", range(5))
    def test_epochs_of_some_steps_go_on_too(self, done):
        loader = rows_of().batch(4).load()
        seen = self.resumed(done, done // 2, steps=2, epochs=3)
        assert len(seen[0]) == 2 - done % 2
        assert [*chain(*seen)] == stream(loader, done + sum(map(len, seen)))[done:]

    def test_an_initial_epoch_is_that_of_the_loader_where_the_optimizer_is_new(self):
        loader = rows_of().batch(4).load()
        seen = self.resumed(0, 3)
        assert seen == [[feed["x"].tolist() for feed in loader.epoch(e)] for e in (3, 4)]

    def test_steps_whose_gradients_are_accumulated_count(self):
        loader = rows_of().batch(4).load()
        assert [*chain(*self.resumed(3, 1, accumulated=2))] == stream(loader, 15)[6:]


ON_SEVERAL = """
import os
from typing import Any, NamedTuple
os.environ["KERAS_BACKEND"] = "jax"
import keras
from jreader import Pipeline, arrays

class Pair(NamedTuple):
    x: Any
    y: Any

x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
plan = Pipeline(arrays(x=x, y=x.sum(1))).shuffle(seed=1)
mesh = jax.make_mesh((jax.device_count(),), ("batch",))
loader = plan.batch(16).load(sharding=mesh)
total = jax.jit(lambda x: x.sum())
made = [float(total(pair.x)) for pair in plan.batch(16).load(sharding=mesh, into=Pair)]
assert made == [float(total(feed["x"])) for feed in loader]
refused = ""
try:
    loader.for_keras("x", "y")
except ValueError as error:
    refused = str(error)
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
here = plan.shard(many, me).batch(16 // many).load(sharding="host").for_keras("x", "y")
say([made, model.fit(here, epochs=2, verbose=0).history["loss"], refused])
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("keras") is None, reason="Keras is not installed")
def test_two_processes_train_as_one_does_and_make_classes_of_feeds():
    one, *_ = processes(ON_SEVERAL, 1)
    for sums, losses, refused in processes(ON_SEVERAL, 2):
        np.testing.assert_allclose(sums, one[0], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(losses, one[1], rtol=1e-5)
        assert "where several processes train, as .shard(" in refused
