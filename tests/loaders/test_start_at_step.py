"""Any step of a run, without a cursor: found where samples are, read up to elsewhere."""

from __future__ import annotations

import json
from itertools import islice

import jax
import numpy as np
import pytest
from steps import stream, told
from widths import few

from jreader import DataLoader, Pipeline, ShortEpoch, arrays, source

COUNT, STEPS = 50, 40
PLACES = jax.devices()


def numbers():
    return iter(range(COUNT))


def rows():
    return Pipeline(arrays(n=np.arange(COUNT))).shuffle(seed=1)


def beside(row, rng):
    return {**row, "drawn": rng.integers(99)}


def in_places(count):
    loader = DataLoader.from_generator()
    return loader.set_sample_generator(rows(), 3, places=PLACES[:count])


FOUND = {
    "rows": lambda: rows().batch(4).load(),
    "padded": lambda: rows().batch(4).load(last="pad"),
    "wrapped": lambda: rows().batch(4).load(last="wrap"),
    "counted": lambda: rows().batch(4).load(steps_per_epoch=7),
    "epochs inside": lambda: rows().epochs(3).batch(4).load(),
    "no end": lambda: rows().epochs().batch(4).load(),
    "mapped": lambda: rows().batch(4).map_batches(dict).prefetch(2).load(),
    "threads": lambda: rows().map(dict, threads=2).batch(4).load(capacity=0),
    "maps below": lambda: rows().map(dict).skip(1).shuffle(7, seed=3).batch(4).load(last="wrap"),
    "chunks": lambda: rows().batch(4).load().chunk(2),
    "pmap": lambda: rows().batch(4).load(pmap=PLACES[:2]),
    "places": lambda: in_places(4),
    "resident": lambda: rows().batch(4).load(resident=True),
    "a data set": lambda: DataLoader(list(range(COUNT)), 4, shuffle=True, seed=1),
    "the data set's last": lambda: DataLoader(list(range(COUNT)), 4, drop_last=True),
}
READ = {
    "a stream": lambda: Pipeline(numbers).shuffle(9, seed=1).batch(4).load(),
    "a padded stream": lambda: Pipeline(numbers).shuffle(9, seed=1).batch(4).load(last="pad"),
    "a filter": lambda: rows().filter(lambda row: row["n"] % 3).batch(4).load(),
    "a random map": lambda: rows().map(beside, rng=True, seed=2).batch(4).load(),
    "lists": lambda: DataLoader(range(COUNT), batch_sampler=[[0, 1], [2], [3, 4]] * 5),
}
ALL = FOUND | READ
QUICK = [name for name in ALL if name not in ("resident", "no end")]
of_most = pytest.mark.parametrize("name", few(ALL, QUICK))
FEW = ("rows", "chunks", "maps below", "a stream")
of_few = pytest.mark.parametrize(  # and in CI of all
    "name", few(ALL, FEW)
)


@of_few
def test_a_run_begins_at_any_step(name):
    loader = ALL[name]()
    whole, cursors = [], []
    feeds = loader.steps(STEPS)
    for feed in feeds:
        whole.append(told(feed))
        cursors.append(json.dumps(feeds.cursor))
    for start in (0, 1, 2, 5, 11, 12, 13, 24, 25, 26, STEPS - 1, STEPS):
        feeds = ALL[name]().steps(STEPS, start=start)
        assert (feeds.step if name in FOUND else start) == start
        for step, feed in enumerate(feeds, start):
            assert feeds.step == step + 1
            assert told(feed) == whole[step]
        assert feeds.step == STEPS
        rest = loader.steps(STEPS, start=start)
        if start < STEPS - 1:
            assert feeds.cursor["digest"] == json.loads(cursors[-1])["digest"]
            next(rest)
            assert json.loads(json.dumps(rest.cursor)) == json.loads(cursors[start])


@of_most
def test_an_epoch_begins_at_any_step(name):
    loader = ALL[name]()
    for epoch in (0, 2):
        whole = stream(loader.epoch(epoch)) if name != "no end" else told_of(loader.epoch(epoch))
        for start in (1, 3, len(whole) - 1, len(whole)):
            rest = ALL[name]().epoch(epoch, start=start)
            assert told_of(rest, len(whole) - start) == whole[start:]
            assert rest.step in (0, len(whole))


def told_of(feeds, most=30):
    return [told(feed) for feed in islice(feeds, most)]


@of_few
def test_a_pass_goes_to_any_step_and_back(name):
    whole = told_of(ALL[name]().steps(STEPS), STEPS)
    feeds = ALL[name]().steps(STEPS)
    for step in (3, 0, 26, 27, 13, 12, 39, 1):
        feeds.seek(step)
        assert told(next(feeds)) == whole[step]
        assert feeds.step == step + 1
    assert stream(feeds) == whole[2:]
    feeds.seek(38)
    assert stream(feeds) == whole[38:]
    feeds.seek(STEPS)
    assert stream(feeds) == []


@pytest.mark.parametrize("source", [numbers, arrays(np.arange(COUNT))], ids=["read", "found"])
def test_an_unseeded_pass_goes_forward_in_the_order_that_it_drew(source):
    loader = Pipeline(source).shuffle(COUNT).batch(4).load()
    feeds = loader.steps()
    next(feeds)
    rest = told_of(loader.steps(at=feeds.cursor), 8)
    feeds.seek(5)
    assert told_of(feeds, 4) == rest[4:]
    with pytest.raises(ValueError, match="draws new numbers"):
        feeds.seek(2)


def test_steps_that_are_left_out_stay_so():
    loader = rows().batch(4).load()
    whole = told_of(loader.steps(STEPS), STEPS)
    left = loader.steps(STEPS, start=8, skip_steps=range(10, 20))
    assert stream(left) == whole[8:10] + whole[20:]
    left.seek(9)
    assert stream(left) == whole[9:10] + whole[20:]


def test_nothing_is_read_before_it():
    class Billions:
        def __len__(self):
            return 10**12

        def __getitem__(self, row):
            asked.append(row)
            return row % 1000

    asked = []
    loader = Pipeline(source(Billions())).shuffle(seed=1).batch(4).load(capacity=0)
    feeds = loader.steps(start=3 * 10**11)
    assert (feeds.epoch, feeds.step, feeds.cursor["samples"]) == (1, 3 * 10**11, 2 * 10**11)
    next(feeds)
    assert len(asked) == 4


def test_no_map_is_called_before_it():
    called = []

    def noted(row):
        called.append(row)
        return row

    plan = Pipeline(arrays(np.arange(COUNT))).map(noted).shuffle(seed=1)
    feeds = plan.batch(4).load(capacity=0).steps(start=20)
    next(feeds)
    assert len(called) == 4


class TestRefusals:
    def test_an_epoch_has_so_many_steps(self):
        with pytest.raises(ValueError, match=r"epoch 3 has 12 steps.*start=13"):
            rows().batch(4).load().epoch(3, start=13)
        with pytest.raises(ValueError, match=r"epoch 3 has 12 steps.*start=13"):
            list(READ["a stream"]().epoch(3, start=13))

    def test_what_is_drawn_anew_needs_a_seed(self):
        for plan in (Pipeline(arrays(n=np.arange(9))).shuffle(), Pipeline(numbers).shuffle(9)):
            with pytest.raises(ValueError, match=r"draws new numbers.*give its shuffles .* a seed"):
                plan.batch(2).load().steps(start=1)
            plan.batch(2).load().steps(start=0)

    def test_a_place_is_said_once(self):
        loader = rows().batch(4).load()
        cursor = loader.epoch(0).cursor
        for call in (loader.steps, lambda **given: loader.epoch(0, **given)):
            with pytest.raises(ValueError, match=r"at=cursor or start=3"):
                call(at=cursor, start=3)

    @pytest.mark.parametrize(("start", "error"), [(-1, ValueError), (1.5, TypeError)])
    def test_it_is_a_number_of_steps(self, start, error):
        loader = rows().batch(4).load()
        for call in (
            lambda: loader.steps(9, start=start),
            lambda: loader.epoch(0, start=start),
            lambda: loader.steps(9).seek(start),
        ):
            with pytest.raises(error, match=r"start|seek"):
                call()

    def test_an_epoch_that_will_be_short_is_refused_as_ever(self):
        with pytest.raises(ShortEpoch):
            rows().batch(4).load(last="error").steps(start=3)

    def test_a_pass_does_not_go_back_over_steps_of_another_size(self):
        feeds = rows().batch(4).load().steps()
        for _ in range(6):
            next(feeds)
        other = rows().batch(8).load().steps(at=feeds.cursor)
        with pytest.raises(ValueError, match="another size"):
            other.seek(2)

    def test_a_stream_does_not_go_back_before_its_cursor(self):
        feeds = READ["a stream"]().steps()
        for _ in range(6):
            next(feeds)
        other = READ["a stream"]().steps(at=feeds.cursor)
        other.seek(8)
        with pytest.raises(ValueError, match=r"began at step 6.*start=2"):
            other.seek(2)


def test_a_pass_of_a_later_epoch_goes_to_a_step_of_that_epoch():
    loader = rows().batch(4).load(drop_last=True)
    whole = [stream(loader.epoch(epoch)) for epoch in range(3)]
    for epoch in range(3):
        feeds = iter(loader)
        next(feeds)
        feeds.seek(5)
        assert (feeds.epoch, feeds.step) == (epoch, 5)
        assert stream(feeds) == whole[epoch][5:]
