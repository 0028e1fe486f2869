"""What Paddle's examples do with a loader, they do with the import changed."""

import jax
import numpy as np
import pytest
from steps import CLASSES, FIELDS, WIDTH, Step, beginning, pictures, stream, told

from jreader import DataLoader, EOFException, PyReader, batch, data, shuffle
from jreader.errors import FeedMismatch

BATCH_SIZE, BATCHES = 4, 5
EIGHT = jax.devices()
PLACES = {"eight places": EIGHT, "a list of one": EIGHT[:1], "a place": EIGHT[3], "no place": None}
everywhere = pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)


def random_sample(count=BATCH_SIZE * BATCHES * 8):
    return pictures(count)


def batched_arrays(reader):
    """Batches that are arrays already, as `set_batch_generator` takes them."""

    def batches():
        for samples in batch(reader, BATCH_SIZE, drop_last=True)():
            images, labels = zip(*samples, strict=True)
            yield np.array(images, "float32"), np.array(labels, "int64").reshape(-1, 1)

    return batches


def three_loaders(places, **options):
    """One data set from a reader of samples, of sample lists, and of batches."""
    fresh = [DataLoader.from_generator(FIELDS, capacity=2, **options) for _ in range(3)]
    fresh[0].set_sample_generator(random_sample(), BATCH_SIZE, places=places)
    fresh[1].set_sample_list_generator(batch(random_sample(), BATCH_SIZE), places=places)
    fresh[2].set_batch_generator(batched_arrays(random_sample()), places=places)
    return fresh


def rows(feeds, name="label"):
    """The values of a field in the order of the samples, however they lie on devices."""
    return [value for feed in feeds for value in np.asarray(feed[name]).ravel().tolist()]


@everywhere
def test_the_three_generators_give_one_stream(places):
    first, *others = map(stream, three_loaders(places))
    assert others == [first, first]
    assert len(first) == BATCHES * 8 // (8 if places is EIGHT else 1)


@everywhere
def test_order_is_kept_across_places(places):
    loader = DataLoader.from_generator([data("n", [None])], capacity=4)
    loader.set_sample_generator(lambda: iter(range(64)), BATCH_SIZE, places=places)
    assert rows(loader(), "n") == list(range(64))


@pytest.mark.parametrize("count", [1, 2, 8])
def test_the_total_batch_is_batch_times_devices(count):
    for loader in three_loaders(EIGHT[:count]):
        feed = next(iter(loader))
        assert feed["image"].shape == (count, BATCH_SIZE, WIDTH)
        assert feed["label"].shape == (count, BATCH_SIZE, 1)


@pytest.mark.parametrize("places", [None, EIGHT[3]])
def test_one_place_that_is_no_list_has_no_axis_of_devices(places):
    for loader in three_loaders(places):
        assert next(iter(loader))["image"].shape == (BATCH_SIZE, WIDTH)


def test_fields_are_cast_and_reshaped_as_declared():
    for loader in three_loaders(None):
        feed = next(loader())
        assert list(feed) == ["image", "label"]
        assert (feed["image"].dtype, feed["label"].dtype) == (np.float32, np.int32)


@everywhere
def test_return_list_gives_lists_in_the_order_of_the_feed_list(places):
    both = zip(three_loaders(places), three_loaders(places, return_list=True), strict=True)
    for named, listed in both:
        assert [list(feed.values()) for feed in stream(named)] == stream(listed)


def test_training_and_testing_have_their_own_loaders_and_share_parameters():
    training, testing = three_loaders(EIGHT)[:2]
    step, before = Step("data"), beginning()
    params = training.replicate(before)
    for _ in range(3):
        for feed in training():
            params, _ = step(params, feed)
    losses = [Step("data").losses(testing.replicate(each), testing()) for each in (before, params)]
    assert losses[1][0] < losses[0][0]
    assert step.traced == 1


def test_every_epoch_is_shuffled_anew_by_the_reader():
    reader = shuffle(random_sample(32), buf_size=32, seed=7)
    loader = DataLoader.from_generator(FIELDS, capacity=2).set_sample_generator(reader, BATCH_SIZE)
    first, second = rows(loader(), "image"), rows(loader(), "image")
    assert first != second
    assert sorted(first) == sorted(second)


class TestNotIterable:
    def test_start_next_reset_give_an_epoch_each(self):
        for loader in three_loaders(EIGHT, iterable=False):
            for _ in range(2):
                loader.start()
                for _ in range(BATCHES):
                    assert loader.next()["image"].shape == (8, BATCH_SIZE, WIDTH)
                with pytest.raises(EOFException, match=r"reset\(\) the loader"):
                    loader.next()
                loader.reset()

    def test_reset_in_the_middle_begins_the_next_epoch_at_its_first_sample(self):
        loader = three_loaders(None, iterable=False)[0]
        loader.start()
        first = told(loader.next())
        loader.reset()
        loader.start()
        assert told(loader.next()) == first

    def test_the_end_stays_the_end_until_reset(self):
        loader = DataLoader.from_generator(iterable=False)
        loader.set_sample_generator(lambda: [1, 2], 2).start()
        loader.next()
        for _ in range(3):
            with pytest.raises(EOFException):
                loader.next()

    @pytest.mark.parametrize(
        ("verbs", "words"),
        [
            (["next"], "call start"),
            (["reset"], "reset\\(\\) follows start"),
            (["start", "start"], "call reset\\(\\) before start"),
            (["start", "reset", "reset"], "was not started"),
            (["start", "reset", "next"], "was not started"),
            (["__iter__"], "iterable=False"),
            (["__call__"], "iterable=False"),
        ],
    )
    def test_verbs_in_the_wrong_order_are_refused(self, verbs, words):
        loader = three_loaders(None, iterable=False)[0]
        for verb in verbs[:-1]:
            getattr(loader, verb)()
        with pytest.raises((RuntimeError, TypeError), match=words):
            getattr(loader, verbs[-1])()

    @pytest.mark.parametrize("verb", ["start", "next", "reset"])
    def test_an_iterable_loader_has_none_of_them(self, verb):
        with pytest.raises(TypeError, match=rf"{verb}\(\) is for loaders with iterable=False"):
            getattr(three_loaders(None)[0], verb)()

    def test_a_with_block_ends_what_was_started(self):
        with three_loaders(None, iterable=False)[0] as loader:
            loader.start()
        with pytest.raises(RuntimeError, match="was not started"):
            loader.next()

    def test_an_error_of_the_source_is_no_eof(self):
        def source():
            yield 1
            raise KeyError("label")

        loader = DataLoader.from_generator(iterable=False).set_sample_generator(source, 1)
        loader.start()
        assert loader.next().tolist() == [1]
        with pytest.raises(KeyError, match="label"):
            loader.next()


class TestShortEnds:
    """11 samples in batches of 2 on 2 places: five full batches and a short one."""

    def feeds(self, places, dropped, **options):
        dropped_groups, dropped_batches = (what in dropped for what in ("groups", "batches"))
        loader = DataLoader.from_generator(
            [data("n", [None], "int32")], capacity=2, drop_last=dropped_groups, **options
        )
        reader = lambda: iter(range(1, 12))  # noqa: E731  # the field of a dozen tests
        loader.set_sample_generator(reader, 2, drop_last=dropped_batches, places=places)
        assert len(list(loader)) == len(list(loader))
        return stream(loader)

    def test_both_drop(self):
        two = [{"n": [[1, 2], [3, 4]]}, {"n": [[5, 6], [7, 8]]}]
        assert self.feeds(EIGHT[:2], "groups and batches") == two
        assert self.feeds(EIGHT[:2], "groups") == two

    def test_a_dropped_batch_leaves_a_group_to_be_padded(self):
        *_, last = self.feeds(EIGHT[:2], "batches")
        assert last == {"n": [[9, 10], [0, 0]], "mask": [[True, True], [False, False]]}

    def test_a_short_batch_is_padded(self):
        *full, last = self.feeds(EIGHT[:2], "nothing")
        assert last == {"n": [[9, 10], [11, 0]], "mask": [[True, True], [True, False]]}
        assert [feed["mask"] for feed in full] == [[[True, True]] * 2] * 2

    def test_one_place_gets_every_batch_as_it_comes(self):
        for dropped in ("groups", "nothing"):
            *full, last = self.feeds(None, dropped)
            assert (len(full), full[0], last) == (5, {"n": [1, 2]}, {"n": [11]})

    def test_one_place_has_a_flat_mask_where_padding_is_asked_for(self):
        loader = DataLoader.from_generator(last="pad").set_sample_generator(lambda: range(3), 2)
        assert stream(loader) == [([0, 1], [True, True]), ([2, 0], [True, False])]

    def test_the_mask_is_last_in_a_list(self):
        *_, last = self.feeds(EIGHT[:2], "nothing", return_list=True)
        assert last == [[[9, 10], [11, 0]], [[True, True], [True, False]]]

    def test_the_mask_is_on_the_devices_of_the_fields(self):
        loader = DataLoader.from_generator(drop_last=False)
        loader.set_sample_generator(lambda: [{"n": 1}] * 3, 2, drop_last=False, places=EIGHT[:2])
        feed = next(iter(loader))
        assert feed["mask"].sharding == feed["n"].sharding

    @pytest.mark.parametrize("batch_size", [4, 100])
    @pytest.mark.parametrize("dropped_batches", [True, False])
    def test_an_epoch_emptied_by_dropping_warns(self, batch_size, dropped_batches):
        loader = DataLoader.from_generator()
        loader.set_sample_generator(
            lambda: iter(range(7)), batch_size, dropped_batches, places=EIGHT[:2]
        )
        with pytest.warns(UserWarning, match="this epoch is empty.*drop_last=False"):
            assert list(loader) == []

    def test_an_empty_source_gives_an_empty_epoch_and_a_warning(self):
        with pytest.warns(UserWarning, match=r"epoch 0 is empty: batch\(tuple, batch_size=4"):
            assert list(DataLoader.from_generator().set_sample_generator(tuple, 4)) == []

    def test_a_field_called_mask_is_refused_where_one_is_added(self):
        loader = DataLoader.from_generator(last="pad")
        loader.set_sample_generator(lambda: [{"mask": 1}], 1)
        with pytest.raises(FeedMismatch, match="rename the field"):
            list(loader)

    def test_a_batch_that_grows_is_refused_where_steps_have_one_size(self):
        loader = DataLoader.from_generator(last="drop").set_batch_generator(
            lambda: [np.arange(2), np.arange(3)]
        )
        feeds = iter(loader)
        next(feeds)
        with pytest.raises(FeedMismatch, match="a batch of 3 samples came after batches of 2"):
            next(feeds)


class TestLoader:
    def test_a_loader_without_a_source_says_so(self):
        with pytest.raises(RuntimeError, match="set_sample_generator"):
            iter(DataLoader.from_generator(FIELDS, 2))

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"capacity": -1}, ValueError),
            ({"capacity": 1.5}, TypeError),
            ({"capacity": None}, TypeError),
            ({"feed_list": [0]}, TypeError),
            ({"feed_list": []}, ValueError),
        ],
    )
    def test_wrong_arguments_are_refused_where_they_are_given(self, arguments, error):
        with pytest.raises(error):
            DataLoader.from_generator(**arguments)

    def test_a_generator_that_was_called_is_no_reader(self):
        samples = random_sample()
        for name in ("set_sample_list_generator", "set_batch_generator"):
            with pytest.raises(TypeError, match="needs a reader"):
                getattr(DataLoader.from_generator(), name)(samples())
        with pytest.raises(TypeError, match="needs a reader"):
            DataLoader.from_generator().set_sample_generator(samples(), 4)

    def test_setting_a_generator_again_replaces_the_source(self):
        loader = DataLoader.from_generator(capacity=2)
        assert loader.set_sample_generator(lambda: [1], 1) is loader
        loader.set_sample_generator(lambda: [2], 1)
        assert stream(loader) == [[2]]

    def test_a_loader_is_true_also_where_its_length_is_unknown_or_nothing(self):
        assert DataLoader.from_generator()
        assert DataLoader.from_generator().set_sample_generator(tuple, 1)


class TestPyReader:
    def readers(self, **options):
        first, second, third = (PyReader(FIELDS, capacity=2, **options) for _ in range(3))
        first.decorate_sample_generator(random_sample(), BATCH_SIZE, places=EIGHT)
        second.decorate_sample_list_generator(batch(random_sample(), BATCH_SIZE), places=EIGHT)
        third.decorate_batch_generator(batched_arrays(random_sample()), places=EIGHT)
        return first, second, third

    def test_it_gives_the_stream_of_the_loader(self):
        expected = stream(three_loaders(EIGHT)[0])
        assert [stream(reader()) for reader in self.readers()] == [expected] * 3

    def test_it_starts_and_ends_like_the_loader(self):
        for reader in self.readers(iterable=False, return_list=True):
            reader.start()
            image, label = reader.next()
            assert (image.shape[:2], label.shape[:2]) == ((8, BATCH_SIZE), (8, BATCH_SIZE))
            reader.reset()

    def test_labels_are_what_the_samples_said(self):
        assert rows(self.readers()[0]())[:CLASSES] == list(range(CLASSES))
