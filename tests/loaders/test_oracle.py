"""Random runs of each door against an oracle that counts samples: none is lost without a word.

Handed over, and declared as left out (by a word, or by a warning that counts), is what was given.
JREADER_RUNS=2000 makes as many runs of each door.
"""

import json
import os
import random
import re
import warnings

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jreader import BatchNotDivisible, DataLoader, FeedMismatch, Pipeline, PyReader, arrays, train
from jreader.datasets import BatchSampler

RUNS = int(os.environ.get("JREADER_RUNS", "60"))
DEVICES = jax.devices()
COUNTED = re.compile(r"epoch.*: (\d+) batch(?:es)? \((\d+) samples\) left out")


class Run:
    """What was drawn for one run, and what came of it."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.given = 0  # samples of an epoch
        self.batches = []  # the sizes of the batches that are made of them, in their order
        self.said = {}  # the words of the loader
        self.parts, self.divisor = 1, 1  # how many batches a feed has, and what divides each

    def pick(self, *these):
        return self.random.choice(these)

    def odds(self, many):
        """Once in so many times."""
        return not self.random.randrange(many)

    def sizes(self):
        """Sizes of batches, most of them equal."""
        size, many = self.random.randint(1, 6), self.random.randint(0, 9)
        sizes = [size] * many + [self.random.randint(1, size)] * self.pick(0, 1)
        if self.odds(3):
            sizes = [self.random.randint(1, 6) for _ in sizes]
        self.given, self.batches = sum(sizes), sizes
        return sizes

    def batched(self, size, *, drops=False):
        """Some samples, in batches of one size."""
        self.given = self.random.randint(0, 40)
        full, rest = divmod(self.given, size)
        self.batches = [size] * full + [rest] * (rest > 0 and not drops)

    def expected(self):
        """How many samples are handed over; None where words ask for batches of one size."""
        cut = self.parts > 1 or self.divisor > 1
        if self.said.get("last") == "drop":
            return None
        if not cut or self.said.get("last") == "pad" or self.said.get("drop_last") is False:
            return sum(self.batches)
        low = range(0, len(self.batches), self.parts)
        groups = [self.batches[at : at + self.parts] for at in low]
        return sum(
            sum(group)
            for group in groups
            if len(group) == self.parts and len(set(group)) == 1 and group[0] % self.divisor == 0
        )

    def place(self):
        """Where feeds go."""
        self.parts, self.divisor = self.pick((1, 1), (1, 1), (2, 1), (3, 1), (1, 2))
        if self.parts > 1:
            return DEVICES[: self.parts]
        mesh = NamedSharding(Mesh(np.array(DEVICES[:2]), ("data",)), PartitionSpec("data"))
        return mesh if self.divisor > 1 else self.pick(None, DEVICES[1], DEVICES[:1])


def batches_of(sizes, made):
    def reader():
        first = 0
        for size in sizes:
            yield made(range(first, first + size))
            first += size

    return reader


def asked(run, door):
    """A loader of one door, with words of all kinds."""
    if door == "load":
        return loaded(run)
    if door == "data set":
        return over_data(run)
    words = [{}, {}, {"drop_last": True}, {"drop_last": False}, {"last": "pad"}, {"last": "drop"}]
    run.said = {} if door in ("PyReader", "train") else run.pick(*words)
    loader = PyReader() if door == "PyReader" else DataLoader.from_generator(**run.said)
    place = None if door == "train" else run.place()
    kind = "lists" if door == "train" else run.pick("samples", "lists", "arrays", "batch")
    size = run.random.randint(1, 6)
    if kind == "samples":
        drops = run.odds(2)
        run.batched(size, drops=drops and run.said.get("last") != "pad")
        loader.set_sample_generator(lambda: range(run.given), size, drops, place)
    elif kind == "arrays":
        loader.set_batch_generator(batches_of(run.sizes(), np.array), place)
    elif kind == "lists":
        loader.set_sample_list_generator(batches_of(run.sizes(), list), place)
    else:
        run.batched(size)
        loader.set_sample_list_generator(Pipeline(arrays(np.arange(run.given))).batch(size), place)
    return loader


def over_data(run):
    size = run.random.randint(1, 6)
    run.said = run.pick({}, {}, {"drop_last": True}, {"drop_last": False}, {"last": "pad"})
    run.batched(size, drops=run.said.get("drop_last") is True)
    dataset, places = range(run.given), run.place()
    collate_fn = run.pick(None, np.array)
    if "drop_last" not in run.said and run.odds(2):
        lists = [list(dataset)[low : low + size] for low in range(0, run.given, size)]
        sampler = BatchSampler(dataset, batch_size=size)
        if run.odds(2):
            run.random.shuffle(lists)
            run.batches, sampler = list(map(len, lists)), lists
        return DataLoader(
            dataset, batch_sampler=sampler, collate_fn=collate_fn, places=places, **run.said
        )
    seed = run.pick(None, 1) if run.given else None
    return DataLoader(
        dataset, size, seed is not None, collate_fn=collate_fn, seed=seed, places=places, **run.said
    )


def loaded(run):
    size = run.random.randint(1, 6)
    run.batched(size)
    rows = run.pick(
        Pipeline(arrays(np.arange(run.given))),
        Pipeline(lambda: iter(range(run.given))),
        Pipeline(arrays(np.arange(run.given))).filter(lambda n: n >= 0),
    )
    kept = run.pick(None, None, *(True, False))
    batches = rows.batch(size, kept)
    if run.odds(2):
        batches = batches.map_batches(lambda column: column + 0)
    if run.odds(3):
        batches = batches.prefetch(2)
    run.said = run.pick({}, {}, {"drop_last": True}, {"drop_last": False}, {"last": "pad"})
    if kept is False and run.said.get("drop_last") is True:
        run.said = {}
    pads = run.said.get("drop_last") is False or run.said.get("last") == "pad"
    if kept or not (pads or kept is False):  # as was said, or is the rule of this door
        run.batches = [many for many in run.batches if many == size]
    where = run.pick(
        {},
        {"sharding": "host"},
        {"pmap": DEVICES[:2]},
        {"sharding": Mesh(np.array(DEVICES[:2]), ("data",))},
    )
    return batches.load(**run.said, **where)


def numbers_of(feed):
    """The samples of a feed, without those of padding."""
    first, *mask = jax.tree.leaves(jax.device_get(feed))
    return (first[mask[0]] if mask else first).ravel().tolist()


def epoch_of(run, loader):
    """The samples that were handed over, how many the warnings count, and all cursors."""
    cut = run.random.randint(0, 12)
    feeds = loader.epoch(0)
    cursors, seen, masks = [feeds.cursor], [], set()
    for feed in feeds:
        seen.append(numbers_of(feed))
        masks.add(len(jax.tree.leaves(feed)) > 1)
        cursors.append(feeds.cursor)
    at = min(cut, len(seen))
    cursor = json.loads(json.dumps(cursors[at]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rest = [numbers_of(feed) for feed in loader.epoch(0, at=cursor)]
    assert rest == seen[at:], "what follows a cursor"
    return [n for numbers in seen for n in numbers], masks, cursors[: len(seen) + 1]


@pytest.mark.parametrize("door", ["from_generator", "PyReader", "train", "data set", "load"])
def test_what_is_handed_over_and_what_is_declared_are_all(door):
    tried = refused = told = 0
    for seed in range(RUNS):
        run = Run(f"{door} {seed}")
        try:
            loader = asked(run, door)
        except (BatchNotDivisible, ValueError):  # told at once
            refused += 1
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                seen, masks, cursors = epoch_of(run, loader)
            except (FeedMismatch, BatchNotDivisible):  # sizes differ, and words ask for one
                refused += 1
                if door == "load" or run.said.get("last") == "drop":
                    continue
                raise
        found = [match for each in caught if (match := COUNTED.search(str(each.message)))]
        counted = sum(int(match[2]) for match in found)
        tried, told = tried + 1, told + bool(counted)
        assert len(set(seen)) == len(seen), seed
        assert set(seen) <= set(range(run.given)), seed
        expected = run.expected()
        if expected is not None:
            assert len(seen) == expected, (seed, run.said, run.batches)
            lost = sum(run.batches) - expected
            if run.said.get("drop_last") or door == "load":  # said, and told where nothing is left
                assert not (counted and seen), seed
            else:
                assert counted == lost, (seed, run.said, run.batches)
        pads = run.said.get("drop_last") is False or run.said.get("last") == "pad"
        assert len(masks) < 2, seed
        assert pads or door == "load" or True not in masks, seed
        assert cursors[-1]["samples"] == len(seen), seed
        try:
            known = len(loader)
        except TypeError:
            continue
        assert known == len(cursors) - 1, (seed, known)
    assert tried > RUNS // 3, (tried, refused)
    assert told or door in ("PyReader", "train", "load") or RUNS < 60


@pytest.mark.filterwarnings("ignore:epoch . is empty")
def test_train_sees_every_sample():
    for seed in range(min(RUNS, 200)):
        run = Run(seed)
        sizes = run.sizes()
        reader = batches_of(sizes, lambda numbers: [(n,) for n in numbers])
        total, _ = train(
            lambda seen, feed: (seen + feed["n"].tolist(), None),
            [],
            reader,
            {"n": 0},
            1,
            progress=False,
        )
        assert total == list(range(run.given)), seed
