"""What a loader counts are samples, whoever makes the batches."""

import json

import jax
import numpy as np
import pytest

from jreader import DataLoader, Pipeline, arrays
from jreader.datasets import BatchSampler, RandomSampler, collate

TWO = jax.devices()[:2]


def keys_of(loader, steps=None):
    """The words of the keys that samples get, in the order of the samples."""
    seen = loader.on_device(lambda feed, keys: (feed, jax.random.key_data(keys)), rng="sample")
    feeds = list(seen.steps(steps) if steps else seen)
    rows = [jax.device_get(jax.tree.leaves(feed)) for feed in feeds]
    samples = [sample for first, *_ in rows for sample in np.ravel(first).tolist()]
    words = [tuple(word) for *_, keys in rows for word in keys.reshape(-1, 2).tolist()]
    return dict(zip(samples, words, strict=True))


def twelve(**options):
    return DataLoader(range(12), **options)


MADE = {
    "plain": lambda size, **o: twelve(batch_size=size, **o),
    "collate_fn": lambda size, **o: twelve(batch_size=size, collate_fn=np.array, **o),
    "batch_sampler": lambda size, **o: twelve(
        batch_sampler=BatchSampler(range(12), batch_size=size), **o
    ),
    "lists": lambda size, **o: twelve(
        batch_sampler=[list(range(low, low + size)) for low in range(0, 12, size)], **o
    ),
    "both": lambda size, **o: twelve(
        batch_sampler=BatchSampler(range(12), batch_size=size), collate_fn=np.array, **o
    ),
    "workers": lambda size, **o: twelve(batch_size=size, collate_fn=np.array, num_workers=2, **o),
    "pipeline": lambda size, **o: DataLoader.from_generator().set_sample_list_generator(
        Pipeline(arrays(np.arange(12))).batch(size), **o
    ),
}
of_every_kind = pytest.mark.parametrize("make", MADE.values(), ids=MADE)
of_few_kinds = pytest.mark.parametrize(  # and in CI of every one
    "make",
    [pytest.param(MADE[kind], marks=[pytest.mark.slow] * (kind != "workers")) for kind in MADE],
    ids=MADE,
)


@of_few_kinds
def test_every_sample_has_a_key_of_its_own(make):
    keys = keys_of(make(2))
    assert len(set(keys.values())) == len(keys) == 12
    assert keys == keys_of(MADE["plain"](2))


@of_few_kinds
def test_keys_are_the_same_in_other_batches_on_two_devices_and_after_a_resume(make):
    keys = keys_of(make(2))
    assert keys_of(make(4)) == keys
    assert keys_of(make(2, places=TWO)) == keys
    loader = make(2).on_device(lambda feed, keys: jax.random.key_data(keys), rng="sample")
    feeds = loader.epoch(0)
    next(feeds)
    rest = list(loader.epoch(0, at=json.loads(json.dumps(feeds.cursor))))
    words = [tuple(word) for feed in rest for word in np.asarray(feed).tolist()]
    assert words == [keys[sample] for sample in range(2, 12)]


@of_every_kind
def test_cursors_count_samples(make):
    feeds = make(3).epoch(0)
    assert [feeds.cursor["samples"] for _ in feeds] == [3, 6, 9, 12]


@pytest.mark.parametrize("make", [MADE[kind] for kind in MADE if kind != "lists"])
def test_digests_are_those_of_the_samples(make):
    digests = []
    for size in (2, 4):
        feeds = make(size).epoch(0)
        list(zip(range(8 // size), feeds, strict=False))
        digests.append(feeds.cursor["digest"])
    assert digests[0] == digests[1]


def test_a_sampler_of_samplers_goes_on_at_the_same_sample_in_batches_of_another_size():
    def loader(size):
        sampler = BatchSampler(sampler=RandomSampler(range(12), seed=3), batch_size=size)
        return DataLoader(range(12), batch_sampler=sampler, collate_fn=np.array)

    whole = [n for feed in loader(4).epoch(0) for n in feed.tolist()]
    feeds = loader(4).epoch(0)
    next(feeds)
    rest = [n for feed in loader(2).epoch(0, at=feeds.cursor) for n in feed.tolist()]
    assert rest == whole[4:]


@pytest.mark.slow
def test_functions_that_make_more_rows_of_samples_leave_each_row_a_key():
    def both(samples):
        return np.array([(n, -n - 1) for n in samples]).ravel()

    twice = DataLoader(range(12), 3, collate_fn=both)
    keys = keys_of(twice)
    assert len(set(keys.values())) == len(keys) == 24
    assert keys_of(DataLoader(range(12), 4, collate_fn=both)) == keys
    mapped = Pipeline(arrays(np.arange(12))).batch(3).map_batches(lambda rows: both(rows.tolist()))
    assert keys_of(mapped.load()) == keys
    feeds = mapped.load().epoch(0)
    assert [feeds.cursor["samples"] for _ in feeds] == [3, 6, 9, 12]


def test_a_collate_fn_that_leaves_samples_out_is_counted_by_what_it_was_given():
    odd = DataLoader(range(12), 4, collate_fn=lambda batch: collate([n for n in batch if n % 2]))
    keys = keys_of(odd)
    assert (len(keys), len(set(keys.values()))) == (6, 6)
    feeds = odd.epoch(0)
    assert [feeds.cursor["samples"] for _ in feeds] == [4, 8, 12]


class TestSamplesOfAStep:
    def loader(self, **said):
        return (
            Pipeline(arrays(n=np.arange(10)))
            .shuffle(seed=1)
            .batch(4, said.pop("batch", None))
            .load(**said)
        )

    @pytest.mark.parametrize("said", [{}, {"last": "drop"}, {"batch": True, "last": "pad"}])
    def test_there_are_none_of_a_step_that_is_left_out(self, said):
        loader = self.loader(**said)
        assert len(loader) == 2
        assert loader.samples(1).places.tolist() == [4, 5, 6, 7]
        with pytest.raises(ValueError, match=r"no step 2; .* fill none may be left out"):
            loader.samples(2)

    @pytest.mark.parametrize("said", [{"last": "pad"}, {"batch": False}])
    def test_there_are_those_of_a_step_that_is_padded(self, said):
        assert self.loader(**said).samples(2).places.tolist() == [8, 9]

    def test_chunks_and_places_count_whole_steps(self):
        loader = self.loader().chunk(2)
        assert loader.samples(0).places.tolist() == list(range(8))
        with pytest.raises(ValueError, match="no step 1"):
            loader.samples(1)
        rows = Pipeline(arrays(n=np.arange(10))).batch(2)
        for said, last in (({"drop_last": True}, None), ({"drop_last": False}, [8, 9])):
            beside = DataLoader.from_generator(**said).set_sample_list_generator(rows, TWO)
            assert beside.samples(1).places.tolist() == [4, 5, 6, 7]
            if last:
                assert beside.samples(2).places.tolist() == last
            else:
                with pytest.raises(ValueError, match="no step 2"):
                    beside.samples(2)

    def test_one_place_sees_a_short_one(self):
        rows = Pipeline(arrays(n=np.arange(10))).batch(4)
        loader = DataLoader.from_generator().set_sample_list_generator(rows)
        assert loader.samples(2).rows["n"].tolist() == [8, 9]

    def test_after_another_batch_size_it_is_the_end_of_what_is_left(self):
        rows = Pipeline(arrays(n=np.arange(10)))
        feeds = rows.batch(3).load().epoch(0)
        next(feeds)
        loader = rows.batch(2).load()
        rest = loader.epoch(0, at=feeds.cursor)
        assert [feed["n"].tolist() for feed in rest] == [[3, 4], [5, 6], [7, 8]]
