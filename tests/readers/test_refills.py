"""A source that fills one array anew for each sample: every op that holds samples tells of it."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest

from jreader import (
    DataLoader,
    Pipeline,
    arrays,
    batch,
    buffered,
    cache,
    map_readers,
    map_samples,
    shuffle,
    source,
    xmap_readers,
)
from jreader.readers import described

COUNT = 40


def bare(turns=1):
    rooms = [np.zeros(3, int) for _ in range(turns)]
    for number in range(COUNT):
        rooms[number % turns][:] = number
        yield rooms[number % turns]


def views():
    room = np.zeros(5, int)
    for number in range(COUNT):
        room[:] = number
        yield room[: 2 + number % 2]


def pairs():
    for number, room in enumerate(bare()):
        yield room, number


def trees():
    for room in bare():
        yield {"inner": {"x": room}}


def one_dict():
    sample = {}
    for number in range(COUNT):
        sample["x"] = np.full(3, number)
        yield sample


def one_list():
    sample = [None]
    for number in range(COUNT):
        sample[0] = number
        yield sample


def large():
    room = np.zeros((300, 300), np.uint8)
    drawn = np.random.default_rng(0)
    for _ in range(COUNT):
        room[:] = drawn.integers(0, 256, room.shape)
        yield room


def by_turns():
    return bare(turns=3)


FILLED = [bare, by_turns, views, pairs, trees, one_dict, one_list, large]


def passed(sample):
    return sample


HOLDERS = {
    "batch": lambda reader: batch(reader, 4),
    "shuffle": lambda reader: shuffle(reader, 8, seed=0),
    "cache": cache,
    "buffered": lambda reader: buffered(reader, 4),
    "xmap_readers": lambda reader: xmap_readers(passed, reader, 2, 4),
    "map_samples": lambda reader: map_samples(passed, reader, threads=2),
    "processes": lambda reader: map_samples(passed, reader, processes=1),
    "batches of processes": lambda reader: batch(map_samples(passed, reader, processes=1), 4),
}


def told(reader):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            for _ in reader():
                pass
    return [(str(each.message), each.filename, each.lineno) for each in caught]


@pytest.mark.parametrize("source", FILLED)
@pytest.mark.parametrize("name", HOLDERS)
def test_an_op_that_holds_samples_warns_once_if_they_are_the_same(name, source):
    reader = HOLDERS[name](source)
    caught = told(reader)
    assert len(caught) == 1
    ((text, file, line),) = caught
    assert "copy" in text
    assert f"{file}:{line}" == reader.made_at or name == "batches of processes"


@pytest.mark.parametrize("source", FILLED)
@pytest.mark.parametrize("name", HOLDERS)
def test_with_the_line_that_it_says_all_samples_are_there(name, source):
    copied = map_readers(
        np.copy if source in (bare, by_turns, views, large) else copy.deepcopy, source
    )
    assert told(HOLDERS[name](copied)) == []


class Refilling:
    """A data set whose samples are one array."""

    def __init__(self):
        self.room = np.zeros(3, int)

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        self.room[:] = index
        return self.room


def test_batches_of_a_data_set_that_refills_one_array_warn():
    reader = source(Refilling())
    for order in (reader, shuffle(reader, seed=0), Pipeline(reader).chain(reader)):
        reader.__dict__.pop("columns", None)
        with pytest.warns(UserWarning, match="the same memory"):
            next(iter(batch(order, 4)()))
    assert told(batch(source([np.zeros(2)] * 9), 3)) == []


def test_a_loader_of_a_data_set_that_refills_one_array_warns_once():
    loader = DataLoader(Refilling(), batch_size=4)
    with warnings.catch_warnings(record=True, action="always") as caught:
        for _ in range(2):
            list(loader)
    assert ["a batch of Refilling holds" in str(each.message) for each in caught] == [True]
    with warnings.catch_warnings(action="error"):
        list(DataLoader([np.zeros(3)] * 8, batch_size=4))


def repeated():
    rows = np.arange(12).reshape(4, 3)
    for number in range(COUNT):
        yield rows[number % 2]


def constant():
    mask = np.ones(3, bool)
    for number in range(COUNT):
        yield {"x": np.full(3, number), "mask": mask}


def strided():
    yield from np.arange(3 * COUNT).reshape(3, COUNT).T


def same_tuple():
    for _ in range(COUNT):
        yield (1, "a")


def read_only():
    row = np.arange(3)
    row.flags.writeable = False
    for _ in range(COUNT):
        yield row


def plain():
    yield from range(COUNT)


def objects():
    yield from [object()] * COUNT


LEGAL = [
    repeated,
    constant,
    strided,
    same_tuple,
    read_only,
    plain,
    objects,
    arrays(np.arange(COUNT)),
]


@pytest.mark.parametrize("source", LEGAL, ids=described)
@pytest.mark.parametrize("name", [name for name in HOLDERS if "processes" not in name])
def test_a_sample_given_twice_on_purpose_does_not_warn(name, source):
    assert told(HOLDERS[name](source)) == []


def test_changing_a_sample_that_was_handed_over_does_not_warn():
    for reader in (buffered(strided, 2), buffered(map_readers(np.copy, bare), 3)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for sample in reader():
                sample[:] = -1


def test_an_op_that_holds_one_sample_does_not_warn():
    for reader in (batch(bare, 1), map_readers(passed, bare), buffered(bare, 0)):
        assert told(reader) == []


def test_no_sample_is_drawn_for_it():
    drawn = []

    def counted():
        for room in bare():
            drawn.append(int(room[0]))
            yield room.copy()

    items = batch(counted, 3)()
    next(items)
    assert drawn == [0, 1, 2]


def test_feeds_of_a_batch_generator_that_refills_its_arrays_are_right():
    loader = DataLoader.from_generator(capacity=4, feed_list={"x": 0})
    loader.set_batch_generator(lambda: ((room,) for room in bare()))
    assert [feed["x"].tolist() for feed in loader] == [[number] * 3 for number in range(COUNT)]


class TestHostFeedsOfACache:
    def batches(self):
        rows = Pipeline(map_readers(np.copy, bare)).batch(4)
        return rows.map_batches(lambda rows: {"x": rows * 2})

    @pytest.mark.parametrize(
        "above",
        [passed, lambda cached: cached.map_batches(passed), lambda cached: cached.prefetch(2)],
    )
    def test_who_writes_to_one_does_not_change_the_next_epoch(self, above):
        loader = above(self.batches().cache()).load(sharding="host")
        epochs = []
        for _ in range(3):
            epochs.append([feed["x"].tolist() for feed in loader])
            for feed in loader:
                feed["x"][:] = -1
        assert epochs[0][0][0] == [0, 0, 0]
        assert epochs[1] == epochs[2] == epochs[0]

    def test_a_reader_that_gives_its_own_batches_keeps_them(self):
        from jreader import Columns  # noqa: PLC0415  # beside its use

        own = [Columns({"x": np.arange(4.0)})] * 2
        for feed in Pipeline(lambda: iter(own)).load(sharding="host"):
            feed["x"][:] = -1
        assert own[0].columns["x"].tolist() == [0, 1, 2, 3]
