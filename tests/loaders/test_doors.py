"""Both doors and both kinds of step give one stream, one training, one compilation."""

import copy

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from steps import CLASSES, FIELDS, WIDTH, Step, beginning, pictures, stream, told
from terminals import looked_at
from widths import few

from jreader import BatchNotDivisible, DataLoader, FeedMismatch, Pipeline, arrays, data, train

DEVICES = jax.devices()
MESH = Mesh(np.array(DEVICES), ("data",))
IMAGES = np.sin(np.arange(100.0 * WIDTH)).reshape(100, WIDTH)
LABELS = np.arange(100) % CLASSES


def digits(count=100):
    return Pipeline(arrays(image=IMAGES[:count], label=LABELS[:count]))


def shuffled():
    return digits().shuffle(seed=3).batch(16)


def seeds_door(places, **options):
    loader = DataLoader.from_generator(FIELDS, capacity=2, **options)
    return loader.set_sample_generator(digits().shuffle(seed=3), 2, drop_last=False, places=places)


KINDS = {
    "jit": lambda **options: (shuffled().load(FIELDS, sharding=MESH, **options), Step()),
    "one device": lambda **options: (shuffled().load(FIELDS, **options), Step()),
    "a device": lambda **options: (shuffled().load(FIELDS, sharding=DEVICES[2], **options), Step()),
    "pmap": lambda **options: (shuffled().load(FIELDS, pmap=True, **options), Step("data")),
    "seeds": lambda drop_last=True, **options: (
        seeds_door(DEVICES, drop_last=drop_last, **options),
        Step("data"),
    ),
}
of_every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
ended = pytest.mark.parametrize("drop_last", [True, False])


def flat(feed):
    """A feed without the axis of devices."""
    return {
        name: np.asarray(array).reshape(16, *array.shape[array.ndim - (name != "mask") :])
        for name, array in feed.items()
    }


def trained(kind, epochs=2, **options):
    """The losses of every step, all of them one compiled program."""
    loader, step = kind(**options)
    feeds = (feed for _ in range(epochs) for feed in loader)
    return step.losses(loader.replicate(beginning()), feeds)


@ended
def test_all_doors_give_one_stream(drop_last):
    first, *others = [
        [told(flat(feed)) for feed in kind(drop_last=drop_last)[0]] for kind in KINDS.values()
    ]
    assert len(first) == (6 if drop_last else 7)
    assert others == [first] * (len(KINDS) - 1)


@pytest.mark.parametrize("drop_last", few([True, False], [False]))
def test_all_doors_and_steps_give_the_same_losses_and_compile_once(drop_last):
    # a mean of masked means depends on how a short end falls on devices
    kinds = KINDS if drop_last else {"jit", "one device", "a device"}
    first, *others = [trained(KINDS[kind], drop_last=drop_last) for kind in kinds]
    assert len(first) == 2 * (6 if drop_last else 7)
    np.testing.assert_allclose(others, [first] * len(others), rtol=1e-5)


@of_every_kind
def test_short_ends_do_not_compile_a_step_again(kind):
    loader, step = kind(drop_last=False)
    assert len(step.losses(loader.replicate(beginning()), loader)) == 7


def test_without_replicate_a_step_on_many_devices_would_compile_twice():
    loader, step = KINDS["jit"]()
    with pytest.raises(AssertionError, match="Compiling"):
        step.losses(beginning(), loader)


@pytest.mark.parametrize("axis", ["data", "batch"])
def test_replicate_knows_pmaps_of_another_axis(axis):
    loader = shuffled().load(FIELDS, pmap=True)
    assert len(Step(axis).losses(loader.replicate(beginning(), axis), loader)) == 6


def test_a_masked_loss_is_the_loss_of_the_samples_there_are():
    loader = digits(5).batch(16).load(FIELDS, sharding=MESH, drop_last=False)
    (padded,) = Step().losses(loader.replicate(beginning()), loader)
    (whole,) = Step().losses(beginning(), digits(5).batch(5).load(FIELDS))
    np.testing.assert_allclose(padded, whole, rtol=1e-6)


class TestJaxDoor:
    def test_the_batch_is_the_global_batch(self):
        assert shuffled().load(sharding=MESH).peek()["image"].shape == (16, WIDTH)
        assert shuffled().load(pmap=True).peek()["image"].shape == (8, 2, WIDTH)
        assert shuffled().load(pmap=DEVICES[:4]).peek()["image"].shape == (4, 4, WIDTH)

    def test_pmap_takes_rows_in_order_and_device_i_has_part_i(self):
        array = Pipeline(arrays(n=np.arange(16))).batch(16).load(pmap=True).peek()["n"]
        assert np.asarray(array).tolist() == np.arange(16).reshape(8, 2).tolist()
        assert [shard.device for shard in array.addressable_shards] == DEVICES

    @pytest.mark.parametrize("place", [{"sharding": MESH}, {"pmap": True}])
    def test_a_batch_that_devices_cannot_divide_is_refused_at_load(self, place):
        with pytest.raises(BatchNotDivisible, match=r"250 .* 248 or 256"):
            digits().batch(250).load(**place)

    def test_it_is_refused_through_ops_that_hand_batches_on(self):
        with pytest.raises(BatchNotDivisible, match=r"250 .* 248 or 256"):
            digits().batch(250).prefetch(2).firstn(3).load(sharding=MESH)

    def test_a_size_that_only_a_batch_can_tell_is_refused_when_it_comes(self):
        loader = digits().batch(9).map_batches(lambda columns: columns).load(sharding=MESH)
        with pytest.raises(BatchNotDivisible, match=r"a batch of 9 .* 8 or 16"):
            next(iter(loader))

    def test_feeds_have_the_tree_of_the_samples_without_a_feed_list(self):
        feed = next(iter(Pipeline(pictures(4)).batch(2).load()))
        assert (type(feed), feed[0].shape, feed[1].tolist()) == (tuple, (2, WIDTH), [0, 1])

    def test_a_mapping_picks_fields(self):
        feed = next(iter(Pipeline(pictures(4)).batch(2).load({"a": 1, "b": 1})))
        assert told(feed) == {"a": [0, 1], "b": [0, 1]}

    def test_host_feeds_are_numpy(self):
        for feed in digits().batch(50).load(FIELDS, sharding="host"):
            assert type(feed["image"]) is np.ndarray
            assert feed["label"].dtype == np.int64

    def test_shardings_for_each_field(self):
        rows = NamedSharding(MESH, PartitionSpec("data"))
        whole = NamedSharding(MESH, PartitionSpec())
        loader = shuffled().load(sharding={"image": rows, "label": whole}, drop_last=False)
        *_, last = loader
        assert [array.sharding for array in last.values()] == [rows, whole, rows]

    def test_a_mask_beside_blocks(self):
        mesh = Mesh(np.array(DEVICES).reshape(4, 2), ("data", "model"))
        blocks = NamedSharding(mesh, PartitionSpec("data", "model"))
        loader = Pipeline(arrays(IMAGES[:6])).batch(4).load(sharding=blocks, drop_last=False)
        image, mask = list(loader)[-1]
        assert image.sharding == blocks
        assert mask.tolist() == [True, True, False, False]

    def test_bare_samples_with_a_mask_are_pairs(self):
        feeds = Pipeline(lambda: iter(range(3))).batch(2).load(drop_last=False)
        assert stream(feeds) == [([0, 1], [True, True]), ([2, 0], [True, False])]


class TestWhatIsKnown:
    @pytest.mark.parametrize("drop_last", [True, False])
    @pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 32, 100])
    def test_len_is_the_number_of_feeds(self, count, drop_last):
        source = digits(count)
        seeds = DataLoader.from_generator(drop_last=drop_last)
        loaders = [
            source.batch(16).load(drop_last=drop_last),
            source.batch(16).prefetch(2).load(pmap=True, drop_last=drop_last),
            seeds.set_sample_generator(source, 2, drop_last=False, places=DEVICES),
        ]
        for loader in loaders:
            if len(loader):
                assert len(loader) == len(list(loader))
            else:
                with pytest.warns(UserWarning, match="empty"):
                    assert list(loader) == []

    def test_len_looks_through_functions_of_batches(self):
        loader = digits().batch(16).map_batches(lambda columns: columns).load(drop_last=True)
        assert len(loader) == len(list(loader)) == 6

    def test_a_plain_generator_has_no_length(self):
        with pytest.raises(TypeError, match="not known before it is read"):
            len(Pipeline(pictures(4)).batch(2).load())

    @ended
    @of_every_kind
    def test_element_spec_is_what_feeds_are(self, kind, drop_last):
        loader, _ = kind(drop_last=drop_last)
        spec, feed = loader.element_spec, next(iter(loader))
        assert jax.tree.structure(spec) == jax.tree.structure(feed)
        for said, array in zip(jax.tree.leaves(spec), jax.tree.leaves(feed), strict=True):
            assert (said.shape, said.dtype) == (array.shape, array.dtype)
            assert said.sharding in (None, array.sharding)

    def test_element_spec_initialises_a_model(self):
        loader, step = KINDS["jit"]()
        params, value = jax.eval_shape(step.compiled, beginning(), loader.element_spec)
        assert (params["weights"].shape, value.shape) == ((WIDTH, CLASSES), ())

    @of_every_kind
    def test_peek_shows_the_first_feed_and_disturbs_nothing(self, kind):
        loader, _ = kind()
        feeds = iter(loader)
        next(feeds)
        before = feeds.cursor
        seen = told(loader.peek())
        assert (feeds.cursor, loader.next_epoch) == (before, 1)
        assert seen == stream(loader.epoch(1))[0] == told(next(iter(loader)))

    def test_a_copy_has_passes_of_its_own(self):
        loader = digits(96).batch(16).load()
        other = copy.copy(loader)
        assert [len(list(loader)), loader.next_epoch, other.next_epoch] == [6, 1, 0]
        assert told(next(iter(other))) == told(loader.peek())

    @pytest.mark.filterwarnings("ignore:epoch . is empty")
    def test_there_is_nothing_to_peek_at_in_an_empty_loader(self):
        with pytest.raises(ValueError, match="no full batch"):
            DataLoader.from_generator().set_sample_generator(tuple, 1).peek()


class TestFeedsAreChecked:
    @pytest.mark.parametrize(
        ("sample", "words"),
        [
            ((np.ones(WIDTH), 2**40), "'label' holds 1099511627776 .* int32"),
            ((np.ones(WIDTH + 1), 1), "'image' is declared"),
            ((np.ones(WIDTH),), "'label', is missing"),
            ((np.ones(WIDTH), 1, 2), "not in the feed_list"),
            (({"a": 1}, 1), "'image'"),
            (("image", 1), "'image' .* strings"),
            ((np.ones(WIDTH), [1, 2]), "'label'"),
        ],
    )
    def test_a_bad_sample_is_refused_after_the_good_batches(self, sample, words):
        def source():
            yield from pictures(4)()
            yield from (sample, sample)

        feeds = iter(Pipeline(source).batch(2).load(FIELDS))
        assert [len(next(feeds)["image"]) for _ in range(2)] == [2, 2]
        with pytest.raises(FeedMismatch, match=words):
            next(feeds)
        assert next(feeds, "over") == "over"

    def test_a_ragged_field_is_refused_by_name(self):
        ragged = lambda: [(np.ones(2), 0), (np.ones(3), 0)]  # noqa: E731  # a one-line reader
        with pytest.raises(FeedMismatch, match="'x' is ragged"):
            next(iter(Pipeline(ragged).batch(2).load({"x": 0})))

    def test_what_does_not_fit_fits_with_x64(self):
        loader = DataLoader.from_generator([data("n", [None], "int64")])
        loader.set_sample_generator(lambda: [(2**40,)], 1)
        with pytest.raises(FeedMismatch, match="jax_enable_x64"):
            list(loader)
        with jax.enable_x64(new_val=True):
            assert stream(loader) == [{"n": [2**40]}]


class TestTrain:
    def expected(self):
        loader, step = KINDS["one device"]()
        losses = step.losses(loader.replicate(beginning()), [*loader, *loader])
        return [losses[5], losses[11]]

    def test_a_loader_feeds_the_step(self):
        loader, step = KINDS["pmap"]()
        _, history = train(step, loader.replicate(beginning()), loader, total_pass=2)
        np.testing.assert_allclose(history, self.expected(), rtol=1e-5)

    def test_a_batch_reader_with_a_mapping_feeds_the_step(self):
        mapping = {FIELDS[0]: "image", FIELDS[1]: "label"}
        whole = digits().shuffle(seed=3).batch(16, drop_last=True)
        _, history = train(Step(), beginning(), whole, mapping, 2, progress=False)
        np.testing.assert_allclose(history, self.expected(), rtol=1e-5)

    @of_every_kind
    def test_the_bar_counts_samples_and_the_share_of_waiting(self, kind, monkeypatch):
        terminal = looked_at(monkeypatch)
        loader, step = kind()
        train(step, loader.replicate(beginning()), loader)
        *_, shown = terminal.getvalue().split("\r")
        assert "pass 1/1: 96 samples" in shown
        assert "waited" in shown

    def test_no_bar_is_shown_without_progress(self, capsys):
        train(lambda state, feed: (state, None), 0, shuffled(), progress=False)
        assert capsys.readouterr().err == ""

    @pytest.mark.filterwarnings("ignore:epoch . is empty")
    def test_an_epoch_without_feeds_has_no_metrics(self):
        assert train(Step(), 7, list, FIELDS, 2, progress=False) == (7, [None, None])

    def test_a_mapping_for_a_loader_is_refused(self):
        loader, step = KINDS["jit"]()
        with pytest.raises(TypeError, match="has a feed_list"):
            train(step, beginning(), loader, FIELDS)
