"""What Paddle's tests of from_generator and PyReader check, of jreader."""

from __future__ import annotations

import itertools
import warnings

import jax
import numpy as np
import pytest
from steps import FIELDS, WIDTH, Step, beginning, pictures, stream

from jreader import DataLoader, EOFException, FeedMismatch, PyReader, batch, cache, data

differs = pytest.mark.differs
CPU = jax.devices()[0]
BATCH = 16


def counting(batches=None):
    """A reader of batches that hold their own number, endless without a count."""

    def reader():
        for number in itertools.count() if batches is None else range(batches):
            yield (np.full((3, 4), number, np.float32),)

    return reader


def first_values(feeds):
    return [int(feed["input"].ravel()[0]) for feed in feeds]


def until_eof(loader, at_most=10_000):
    """An epoch of a loader that is started, nexted and reset."""
    loader.start()
    try:
        for _ in range(at_most):
            yield loader.next()
    except EOFException:
        pass
    finally:
        loader.reset()


def passes(loader, iterable, at_most=10_000):
    """An epoch either way, left behind after so many feeds."""
    if iterable:
        return itertools.islice(loader(), at_most)
    return until_eof(loader, at_most)


@pytest.fixture(params=[True, False], ids=["iterable", "started"])
def iterable(request):
    return request.param


class TestSampleGenerator:
    """165, 160, 200 and 159 samples in batches of 32, from samples or lists of them."""

    @pytest.mark.parametrize("count", [165, 160, 200, 159])
    @pytest.mark.parametrize("drop_last", [False, True])
    @pytest.mark.parametrize("door", ["samples", "sample lists"])
    def test_feeds_are_the_batches_that_batch_makes(self, count, drop_last, door):
        reader, feeds = pictures(count), PyReader(FIELDS, capacity=16, use_double_buffer=False)
        batches = batch(reader, 32, drop_last)
        if door == "samples":
            feeds.decorate_sample_generator(reader, 32, drop_last)
        else:
            feeds.decorate_sample_list_generator(batches)
        expected = [np.array([image for image, _ in samples], "float32") for samples in batches()]
        for _ in range(2):
            found = list(feeds())
            assert len(found) == (count // 32 if drop_last else -(-count // 32))
            for feed, images in zip(found, expected, strict=True):
                assert np.array_equal(feed["image"], images)
                assert feed["label"].shape == (len(images), 1)

    @pytest.mark.parametrize("return_list", [True, False])
    def test_ten_samples_in_a_batch_of_32_are_one_feed_of_ten(self, return_list):
        feeds = PyReader([data("image", [-1, WIDTH])], capacity=4, return_list=return_list)
        feeds.decorate_sample_list_generator(
            batch(lambda: ((image,) for image, _ in pictures(10)()), 32), CPU
        )
        for _ in range(2):
            (feed,) = feeds()
            assert feed[0 if return_list else "image"].shape == (10, WIDTH)

    @differs
    def test_an_epoch_that_is_dropped_whole_is_warned_of(self):
        feeds = PyReader(capacity=2)
        feeds.decorate_sample_generator(pictures(10), batch_size=32, places=CPU)
        with pytest.warns(UserWarning, match="empty"):
            assert list(feeds()) == []


class TestTraining:
    @pytest.mark.parametrize("double", [True, False])
    def test_both_ways_to_loop_give_the_same_losses(self, double):
        losses = []
        for way in (True, False):
            feeds = PyReader(FIELDS, capacity=4, iterable=way, use_double_buffer=double)
            feeds.decorate_sample_list_generator(batch(pictures(BATCH * 10), BATCH), CPU)
            step, params = Step(), feeds.replicate(beginning())
            epochs = itertools.chain.from_iterable(passes(feeds, way) for _ in range(3))
            losses.append(step.losses(params, epochs))
        assert len(losses[0]) == 30
        assert losses[0] == losses[1]

    def test_feeds_have_the_declared_shapes_and_lie_where_they_were_sent(self):
        place = jax.devices()[3]
        feeds = PyReader(FIELDS, capacity=4)
        feeds.decorate_sample_list_generator(batch(pictures(BATCH * 3), BATCH), place)
        for feed in feeds():
            assert (feed["image"].shape, feed["label"].shape) == ((BATCH, WIDTH), (BATCH, 1))
            assert feed["image"].device == feed["label"].device == place

    @differs
    def test_feeds_of_several_places_are_one_array_with_an_axis_for_them(self):
        feeds = PyReader(FIELDS, capacity=4)
        places = jax.devices()[:2]
        feeds.decorate_sample_list_generator(batch(pictures(BATCH * 4), BATCH), places)
        for feed in feeds():
            assert feed["image"].shape == (2, BATCH, WIDTH)
            assert [part.device for part in feed["image"].addressable_shards] == places

    @differs
    def test_a_batch_that_lacks_others_is_told_of_or_padded(self):
        def five():
            yield from ((np.full(2, number),) for number in range(5))

        def feeds(**options):
            loader = DataLoader.from_generator({"x": 0}, 2, **options)
            return stream(loader.set_batch_generator(five, places=jax.devices()[:2]))

        with pytest.warns(UserWarning, match=r"1 batch \(2 samples\) left out"):
            dropped = feeds()
        assert [feed["x"] for feed in dropped] == [[[0, 0], [1, 1]], [[2, 2], [3, 3]]]
        *full, last = feeds(drop_last=False)
        assert [feed["x"] for feed in full] == [feed["x"] for feed in dropped]
        assert last == {"x": [[4, 4], [0, 0]], "mask": [[True, True], [False, False]]}

    @differs
    @pytest.mark.parametrize("by_place", [True, False])
    def test_a_process_that_reads_is_said_by_the_reader(self, by_place):
        given = (None, 2, True, True, False, True) if by_place else ()
        options = {} if by_place else {"use_multiprocess": True}
        with pytest.raises(ValueError, match="multiprocess_reader"):
            DataLoader.from_generator(*given, **options)
        assert DataLoader.from_generator(use_multiprocess=False)

    @differs
    def test_what_does_not_iterate_is_not_iterated(self):
        """Where Paddle runs eagerly, iterable=False is put aside with a warning."""
        loader = DataLoader.from_generator(capacity=5, iterable=False)
        loader.set_sample_generator(pictures(8), 4, places=CPU)
        with pytest.raises(TypeError, match="iterable=False"):
            loader()


class TestTwoLoaders:
    @pytest.mark.parametrize(("first", "second"), [(10, 20), (20, 10), (10, 10)])
    def test_their_feeds_are_those_of_their_own_readers(self, first, second):
        def drawn(count):
            random = np.random.default_rng(count)

            def reader():
                for _ in range(count):
                    yield random.random((count, 3), "float32"), random.integers(9, size=(count, 1))

            return cache(reader)

        readers = [drawn(first), drawn(second)]
        loaders = [PyReader([data("x", [-1, 3]), data("y", [-1, 1], "int64")], 16) for _ in "ab"]
        for loader, reader in zip(loaders, readers, strict=True):
            loader.decorate_batch_generator(reader, places=CPU)
        for _ in range(3):
            rows = list(zip(readers[0](), loaders[0](), readers[1](), loaders[1](), strict=False))
            assert len(rows) == min(first, second)
            for one, feed, other, fed in rows:
                for arrays, found in ((one, feed), (other, fed)):
                    assert np.array_equal(found["x"], arrays[0])
                    assert np.array_equal(found["y"], arrays[1])


class TestOrder:
    """40 batches in three epochs, each left behind after 100 (so not at all), 2 or 0 of them."""

    @pytest.mark.parametrize("at_most", [100, 2, 0])
    def test_each_epoch_begins_at_its_first_batch_and_keeps_the_order(self, iterable, at_most):
        loader = DataLoader.from_generator({"input": 0}, capacity=16, iterable=iterable)
        loader.set_batch_generator(counting(40))
        for _ in range(3):
            found = first_values(passes(loader, iterable, at_most))
            assert found == [*range(min(40, at_most))]

    def test_an_endless_source_is_left_behind_again_and_again(self, iterable):
        loader = DataLoader.from_generator({"input": 0}, capacity=10, iterable=iterable)
        loader.set_batch_generator(counting(), places=CPU)
        for _ in range(10):
            assert first_values(passes(loader, iterable, 10)) == [*range(10)]

    @pytest.mark.parametrize("double", [True, False])
    def test_every_reset_begins_an_epoch_of_as_many_steps(self, double):
        def numbered():
            yield from ((np.full(3, n), n) for n in range(100))

        fields = [data("image", [-1, 3]), data("label", [-1, 1], "int64")]
        feeds = PyReader(fields, 16, iterable=False, use_double_buffer=double)
        feeds.decorate_sample_list_generator(batch(numbered, 5))
        for _ in range(5):
            steps = list(until_eof(feeds))
            assert len(steps) == 20
            for feed in steps:
                assert np.array_equal(feed["image"], np.broadcast_to(feed["label"], (5, 3)))


class TestFeeding:
    """What the executor and the feeder check of data."""

    @pytest.mark.parametrize("any_size", [-1, None])
    def test_sizes_that_may_vary_are_minus_one_or_none(self, any_size):
        fields = [data("data", [any_size, 3, 4, 5]), data("label", [any_size, 1], "int64")]
        loader = DataLoader.from_generator(fields, capacity=2)
        loader.set_batch_generator(lambda: [(np.ones((10, 3, 4, 5)), np.ones((10, 1), int))])
        (feed,) = loader
        assert (feed["data"].shape, feed["label"].shape) == ((10, 3, 4, 5), (10, 1))

    def test_a_flat_sample_takes_the_declared_shape(self):
        fields = [data("image", [-1, 1, 28, 28]), data("label", [-1, 1], "int64")]
        loader = DataLoader.from_generator(fields, capacity=2)
        loader.set_sample_list_generator(lambda: [[([0] * 784, [9]), ([1] * 784, [1])]])
        (feed,) = loader
        assert (feed["image"].shape, feed["label"].tolist()) == ((2, 1, 28, 28), [[9], [1]])

    def test_a_sample_of_another_size_is_an_error(self):
        loader = DataLoader.from_generator([data("image", [-1, 1, 28, 28])], capacity=2)
        loader.set_sample_list_generator(lambda: [[([0] * 783,), ([1] * 783,)]])
        with pytest.raises(ValueError, match="'image'"):
            next(loader())

    def test_a_batch_of_another_shape_is_refused_by_name_with_both_shapes(self):
        loader = DataLoader.from_generator([data("data", [-1, 3, 4, 8])], capacity=2)
        loader.set_batch_generator(lambda: [(np.ones((10, 3, 4, 5)),)])
        with pytest.raises(ValueError, match=r"'data'.*3, 4, 8.*10, 3, 4, 5"):
            next(loader())

    @differs
    def test_a_batch_of_another_dtype_is_cast_where_nothing_is_lost(self):
        def labelled(value):
            loader = DataLoader.from_generator([data("label", [-1, 1], "int64")], capacity=2)
            return loader.set_batch_generator(lambda: [(np.full((10, 1), value),)])

        assert next(labelled(3.0)())["label"].dtype == np.int32
        with pytest.raises(FeedMismatch, match=r"'label' holds 0\.5"):
            next(labelled(0.5)())

    @differs
    @pytest.mark.parametrize(
        ("sample", "says"), [((1,), "'label'"), ((1, 2, 3), "not in the feed_list")]
    )
    def test_samples_with_fewer_or_more_fields_are_refused(self, sample, says):
        fields = [data("image", [-1, 1]), data("label", [-1, 1], "int64")]
        loader = DataLoader.from_generator(fields, capacity=2)
        loader.set_sample_generator(lambda: [sample], 1)
        with pytest.raises(FeedMismatch, match=says):
            next(loader())

    @differs
    @pytest.mark.parametrize("wrong", [None, [[[1, 2], [1]]]], ids=["None", "ragged"])
    def test_a_batch_that_is_none_or_ragged_is_an_error_of_its_own(self, wrong):
        loader = DataLoader.from_generator({"x": 0}, capacity=5)
        loader.set_batch_generator(lambda: [wrong] * 4)
        with pytest.raises(FeedMismatch):
            next(loader())


class TestCalls:
    @differs
    def test_capacity_has_a_default_and_is_never_none(self):
        assert DataLoader.from_generator()
        with pytest.raises(TypeError, match="capacity"):
            DataLoader.from_generator(capacity=None)

    def test_no_places_are_the_default_device(self):
        loader = DataLoader.from_generator(capacity=5).set_sample_generator(pictures(32), 8)
        for image, label in loader():
            assert (image.shape, label.shape) == ((8, WIDTH), (8,))
            assert image.device == CPU

    def test_a_loader_without_a_source_says_so(self):
        with pytest.raises(RuntimeError, match="set_sample_generator"):
            DataLoader.from_generator(capacity=2)()

    @differs
    def test_the_end_stays_the_end(self):
        feeds = DataLoader.from_generator(capacity=2).set_sample_generator(pictures(4), 2)()
        assert len(list(feeds)) == 2
        assert [next(feeds, "over") for _ in range(3)] == ["over"] * 3

    @differs
    def test_two_passes_of_one_loader_are_independent(self):
        loader = DataLoader.from_generator({"input": 0}, capacity=2)
        loader.set_batch_generator(counting(5))
        first, second = loader(), loader()
        next(first)
        assert first_values(second) == [*range(5)]
        assert first_values(first) == [*range(1, 5)]


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
class TestTheRealOne:
    @pytest.fixture(scope="class")
    def paddle(self):
        paddle = pytest.importorskip("paddle")
        paddle.set_device("cpu")
        return paddle

    @pytest.mark.parametrize("count", [0, 3, 8, 10])
    @pytest.mark.parametrize("door", ["samples", "samples, kept", "sample lists", "batches"])
    def test_each_door_gives_the_batches_that_theirs_gives(self, paddle, count, door):
        def filled(loader, places):
            if door.startswith("samples"):
                return loader.set_sample_generator(pictures(count), 4, door == "samples", places)
            lists = batch(pictures(count), 4)
            if door == "sample lists":
                return loader.set_sample_list_generator(lists, places)
            columns = lambda: map(columned, lists())  # noqa: E731  # a one-line reader
            return loader.set_batch_generator(columns, places)

        def columned(samples):
            images, labels = zip(*samples, strict=True)
            return np.array(images, "float32"), np.array(labels)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = filled(paddle.base.io.DataLoader.from_generator(capacity=4), paddle.CPUPlace())
            ours = filled(DataLoader.from_generator(capacity=4), CPU)
            found, expected = (
                [[np.asarray(part) for part in feed] for feed in each()] for each in (ours, theirs)
            )
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert all(map(np.allclose, one, other))
            assert [part.shape for part in one] == [part.shape for part in other]
