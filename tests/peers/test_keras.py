"""Models of Keras train on feeds as on arrays: `loader.for_keras()`, and what needs no call."""

import os
from contextlib import suppress
from itertools import chain

import keras_calls
import numpy as np
import pytest

from jreader import Pipeline, arrays

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore:Your input ran out of data"),  # where an epoch is short
    pytest.mark.filterwarnings("ignore:__array__ implementation"),  # of its variables
]
os.environ.setdefault("KERAS_BACKEND", "jax")
keras = pytest.importorskip("keras")
pytest.importorskip("h5py")

ROWS = (np.ones((10, 2), np.float32), np.arange(10, dtype=np.float32)[:, None])
rng = np.random.default_rng(0)
X, Y = rng.random((42, 3), dtype=np.float32), rng.integers(0, 4, 42).astype(np.int32)
WEIGHTS = rng.random(42, dtype=np.float32)
ROW = np.arange(42, dtype=np.float32)
PLAN = Pipeline(arrays(x=X, y=Y, w=WEIGHTS)).shuffle(seed=1)


def model(*, built=False):
    keras.utils.set_random_seed(0)
    made = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(4)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile("adam", loss, metrics=["accuracy"], weighted_metrics=["accuracy"])
    if built:
        made.build((None, 3))
    return made


def weights(of):
    return np.concatenate([each.numpy().ravel() for each in of.weights])


def epoch_of(loader, epoch=0):
    """The fields of an epoch, each as one array."""
    feeds = [*loader.epoch(epoch)]
    return {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}


@pytest.fixture
def loss_of():
    """A function that gives the mean square of the errors of a model that is always 0."""
    made = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros")])
    squares = keras.metrics.MeanMetricWrapper(keras.losses.mean_squared_error, name="squares")
    made.compile(loss="mse", weighted_metrics=[squares])

    def loss_of(loader):
        feeds = (feed for feed in loader)  # Keras knows generators, and no other iterables
        return made.evaluate(feeds, steps=len(loader), return_dict=True, verbose=0)

    return loss_of


class TestGenerators:
    def test_the_mask_of_inputs_and_targets_is_a_weight_of_samples(self, loss_of):
        batches = Pipeline(arrays(ROWS)).batch(4)
        exact = float(np.mean(ROWS[1] ** 2))
        padded, kept = loss_of(batches.load(last="pad")), loss_of(batches.load(last="keep"))
        assert padded["squares"] == pytest.approx(exact) == kept["squares"] == kept["loss"]
        assert padded["loss"] == pytest.approx(exact * 10 / 12)  # Keras divides by rows

    def test_the_mask_of_inputs_alone_would_be_their_targets(self, loss_of):
        batches = Pipeline(arrays((ROWS[0],))).batch(4)
        assert loss_of(batches.load(last="pad"))["loss"] == pytest.approx(10 / 12)  # 2 zeros


class TestTraining:
    def test_it_is_that_of_a_loop_by_hand_bit_by_bit(self):
        loader, fitted, looped = PLAN.batch(6).load(), model(), model()
        fitted.fit(loader.for_keras("x", "y"), epochs=3, verbose=0)
        for epoch in range(3):
            for feed in loader.epoch(epoch):
                looped.train_on_batch(feed["x"], feed["y"])
        assert np.array_equal(weights(fitted), weights(looped))

    @pytest.mark.parametrize("last", ["keep", "pad"])
    @pytest.mark.parametrize(
        "given", [{}, {"sample_weight": "w"}, {"class_weight": {0: 2.0, 3: 0.5}}]
    )
    def test_it_is_that_on_arrays_bit_by_bit(self, last, given):
        """Also of the short last batch; losses and metrics too."""
        loader, fitted, other = PLAN.batch(8).load(last=last), model(), model()
        weight, classes = given.get("sample_weight"), given.get("class_weight")
        data = loader.for_keras("x", "y", weight)
        ours = fitted.fit(data, epochs=2, class_weight=classes, verbose=0).history
        for epoch in range(2):
            rows = epoch_of(PLAN.batch(8).load(last="keep"), epoch)
            theirs = other.fit(
                *(rows["x"], rows["y"], 8),
                sample_weight=rows[weight] if weight else None,
                class_weight=classes,
                shuffle=False,
                verbose=0,
            ).history
            assert {name: [values[epoch]] for name, values in ours.items()} == theirs
        assert np.array_equal(weights(fitted), weights(other))

    def test_validation_evaluate_and_predict_have_every_sample_once(self):
        fitted, loader = model(), PLAN.batch(16).load(last="pad")
        test, rows = loader.for_keras("x", "y", epoch=0), epoch_of(PLAN.batch(16).load(last="keep"))
        data = PLAN.batch(6).load().for_keras("x", "y")
        history = fitted.fit(data, epochs=3, validation_data=test, verbose=0).history
        exact = fitted.evaluate(rows["x"], rows["y"], 16, return_dict=True, verbose=0)
        assert {f"val_{name}": value for name, value in exact.items()} == {
            name: values[-1] for name, values in history.items() if name.startswith("val_")
        }
        for _ in range(2):
            assert fitted.evaluate(test, return_dict=True, verbose=0) == exact
            expected = fitted.predict(rows["x"], 16, verbose=0)
            assert np.array_equal(fitted.predict(test, verbose=0), expected)

    def test_the_mask_as_weights_makes_weighted_metrics_exact(self):
        fitted, loader = model(), Pipeline(arrays(x=X, y=Y)).batch(16).load(last="pad")
        exact = fitted.evaluate(X, Y, return_dict=True, verbose=0)
        test = loader.for_keras("x", "y", "mask")
        seen = fitted.evaluate(test, return_dict=True, verbose=0)
        assert seen["weighted_accuracy"] == pytest.approx(exact["accuracy"])
        assert seen["loss"] == pytest.approx(exact["loss"] * 42 / 48)

    def test_models_of_several_inputs_and_outputs_take_lists_and_dicts_of_names(self):
        inputs = [keras.Input((3,), name="a"), keras.Input((1,), name="b")]
        both = keras.layers.Concatenate()(inputs)
        outputs = {"p": keras.layers.Dense(1, name="p")(both), "q": keras.layers.Dense(1)(both)}
        made = keras.Model(inputs, outputs)
        made.compile("sgd", {"p": "mse", "q": "mae"})
        fields = {"x": X, "w": WEIGHTS[:, None], "y": Y[:, None].astype(np.float32)}
        loader = Pipeline(arrays(fields)).batch(6).load()
        weight = made.get_weights()
        names = [["x", "w"], {"a": "x", "b": "w"}]
        losses = []
        for name in names:
            made.set_weights(weight)
            data = loader.for_keras(name, {"p": "y", "q": "w"}, epoch=0)
            losses.append(made.evaluate(data, verbose=0))
        assert losses[0] == losses[1]

    def test_data_parallel_training_is_that_on_arrays_bit_by_bit(self):
        devices = keras.distribution.list_devices("cpu")[:8]
        spread = keras.distribution.DataParallel(devices=devices)
        loader = PLAN.batch(16).load(sharding=spread.device_mesh.backend_mesh)
        with spread.scope():
            fitted, other = model(), model()
            fitted.fit(loader.for_keras("x", "y"), epochs=2, verbose=0)
            for epoch in range(2):
                rows = epoch_of(loader, epoch)
                other.fit(rows["x"], rows["y"], batch_size=16, shuffle=False, verbose=0)
            assert np.array_equal(weights(fitted), weights(other))
            padded = PLAN.batch(16).load(last="pad")
            masked = padded.for_keras("x", "y", "mask")
            seen = fitted.evaluate(masked, return_dict=True, verbose=0)
            rows = epoch_of(PLAN.batch(16).load(last="keep"))
            right = fitted.predict(rows["x"][:32], verbose=0).argmax(1) == rows["y"][:32]
            right = np.append(
                right, fitted.predict(rows["x"][-16:], verbose=0).argmax(1)[6:] == rows["y"][-10:]
            )
            assert seen["weighted_accuracy"] == pytest.approx(right.mean())
            with pytest.raises(ValueError, match="leaves 10 rows of step 2 for 8 devices"):
                fitted.evaluate(padded.for_keras("x", "y"), verbose=0)


class Killed(keras.callbacks.Callback):
    """Raises after some steps of this `fit`."""

    def __init__(self, after):
        super().__init__()
        self.left = after

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


class Seen(keras.callbacks.Callback):
    """What a model has trained on, feed by feed, once Keras has trained on it."""

    def __init__(self, data):
        super().__init__()
        self.data, self.steps = data, []

    def on_train_batch_end(self, batch, logs=None):
        self.steps.append(self.data.step - 1)


class TestResuming:
    def run(self, folder, kills=(), steps=None, save_freq="epoch", epochs=4):
        """Trains a model that is killed after some steps of each start; the steps it had."""
        seen = []
        for kill in [*kills, None]:
            data = PLAN.batch(6).load().for_keras("x", "y")  # of seven steps
            made, watch = model(built=True), Seen(data)
            backup = keras.callbacks.BackupAndRestore(folder, save_freq)
            callbacks = [backup, data.callback, watch, *([Killed(kill)] if kill else [])]
            given = {"epochs": epochs, "steps_per_epoch": steps, "verbose": 0}
            with suppress(KeyboardInterrupt):
                made.fit(data, callbacks=callbacks, **given)
            seen.append(watch.steps)
        return weights(made), seen

    @pytest.mark.parametrize("killed", [3, 7, 9, 17])
    def test_a_killed_fit_goes_on_with_the_epoch_that_keras_goes_on_with(self, killed, tmp_path):
        whole, _ = self.run(tmp_path / "a")
        resumed, (before, after) = self.run(tmp_path / "b", [killed])
        assert before == [*range(killed)]
        assert after == [*range(max(killed - 1, 0) // 7 * 7, 28)]
        assert np.array_equal(resumed, whole)

    @pytest.mark.parametrize("killed", [3, 8, 9, 17])
    @pytest.mark.parametrize("every", [1, 3])
    def test_in_the_middle_of_an_epoch_it_goes_on_with_the_next_sample(
        self, killed, every, tmp_path
    ):
        whole, _ = self.run(tmp_path / "a")
        resumed, (_, after) = self.run(tmp_path / "b", [killed], save_freq=every)
        saved = killed // every * every
        assert after == [*range(saved, 28)]
        assert np.array_equal(resumed, whole)

    @pytest.mark.parametrize("kills", [[7], [9, 3]])
    def test_no_sample_is_seen_twice_where_keras_counts_an_epoch_twice(self, kills, tmp_path):
        """It does, if it is killed before the end of an epoch is noted, or twice in one."""
        _, starts = self.run(tmp_path, kills, save_freq=1)
        assert [*chain(*starts)] == [*range(35)]

    def test_with_steps_per_epoch_too(self, tmp_path):
        _, (seen,) = self.run(tmp_path / "a", steps=3)
        _, (_, after) = self.run(tmp_path / "b", [5], steps=3, save_freq=1)
        assert seen == [*range(len(seen))]
        assert after == [*range(5, 5 + len(after))]

    def test_a_new_optimizer_begins_at_the_initial_epoch(self):
        loader, made = PLAN.batch(6).load(), model()
        data = loader.for_keras("x", "y")
        watch = Seen(data)
        made.fit(data, initial_epoch=2, epochs=3, callbacks=[data.callback, watch], verbose=0)
        assert watch.steps == [*range(14, 21)]


class TestCalls:
    """tests/integrations relies on what Keras calls: this is what it does call."""

    @pytest.fixture
    def logged(self):
        class Logged(keras.utils.PyDataset):
            def __init__(self):
                super().__init__()
                self.calls = []

            workers = property(lambda self: self.calls.append("workers") or 1)
            num_batches = property(lambda self: self.calls.append("many") or 3)

            def on_epoch_begin(self):
                self.calls.append("begin")

            def on_epoch_end(self):
                self.calls.append("end")

            def __getitem__(self, index):
                self.calls.append("get")
                return X[:4], Y[:4]

        def calls(of):
            data = Logged()
            of(data)
            text = " ".join(data.calls)
            while "many many" in text:
                text = text.replace("many many", "many")
            return text

        return calls

    @pytest.mark.parametrize("built", [False, True])
    @pytest.mark.parametrize("steps", [None, 2, 3, 5])
    def test_fit(self, logged, built, steps):
        made = model()
        if built:
            made.fit(X, Y, verbose=0)
        theirs = logged(lambda data: made.fit(data, epochs=3, steps_per_epoch=steps, verbose=0))
        assert theirs == logged(lambda data: keras_calls.fit(data, 3, steps, built=built))
