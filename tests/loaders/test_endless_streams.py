"""`steps_per_epoch` over a stream that may have no end: it goes on where it was."""

import json
from itertools import count, islice

import jax
import numpy as np
import pytest

from jreader import DataLoader, Pipeline, ShortEpoch, arrays


def stream(feeds):
    return [np.ravel(jax.tree.leaves(jax.device_get(feed))[0]).tolist() for feed in feeds]


class Noted:
    """An endless reader that says how often it was begun, and how much of it was read."""

    def __init__(self):
        self.begun, self.read = 0, 0

    def __call__(self):
        self.begun += 1
        for number in count():
            self.read += 1
            yield number


def numbers():
    yield from count()


def lists(reader, size=2):
    def batches():
        numbers = reader()
        yield from iter(lambda: list(islice(numbers, size)), [])

    return batches


DOORS = {
    "load": lambda reader, steps=3, **o: Pipeline(reader).batch(2).load(steps_per_epoch=steps, **o),
    "samples": lambda reader, steps=3, **o: DataLoader.from_generator(
        steps_per_epoch=steps, **o
    ).set_sample_generator(reader, 2),
    "lists": lambda reader, steps=3, **o: DataLoader.from_generator(
        steps_per_epoch=steps, **o
    ).set_sample_list_generator(lists(reader)),
    "workers": lambda reader, steps=3, **o: (
        Pipeline(reader).map(int, threads=2).batch(2).load(steps_per_epoch=steps, **o)
    ),
}
of_every_door = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
ROWS = [[2 * step, 2 * step + 1] for step in range(12)]


@of_every_door
@pytest.mark.parametrize("capacity", [0, 2])
def test_epoch_after_epoch_and_is_begun_once(door, capacity):
    reader = Noted()
    loader = door(reader, capacity=capacity)
    assert [stream(loader) for _ in range(4)] == [ROWS[:3], ROWS[3:6], ROWS[6:9], ROWS[9:]]
    assert reader.begun == 1
    assert len(loader) == 3


@of_every_door
def test_step_after_step(door):
    reader = Noted()
    feeds = door(reader).steps(10)
    assert stream(feeds) == ROWS[:10]
    assert (feeds.epoch, reader.begun) == (3, 1)


@of_every_door
def test_an_epoch_can_be_had_by_its_number(door):
    loader = door(Noted())
    assert stream(loader.epoch(2)) == ROWS[6:9]
    assert stream(loader.epoch(0)) == ROWS[:3]


@of_every_door
def test_after_a_break_where_it_was(door):
    loader = door(Noted())
    for _ in zip(range(2), loader, strict=False):
        pass
    assert stream(loader) == ROWS[2:5]


@of_every_door
def test_a_cursor_goes_on_from_every_place_also_between_epochs(door):
    loader = door(numbers)
    feeds = loader.steps(10)
    cursors = [feeds.cursor, *(feeds.cursor for _ in feeds)]
    for done, cursor in enumerate(cursors):
        rest = door(numbers).steps(10, at=json.loads(json.dumps(cursor)))
        assert stream(rest) == ROWS[done:10]
        assert rest.cursor["digest"] == cursors[-1]["digest"]
    between = door(numbers)
    list(between)
    again = door(numbers)
    again.load_state_dict(json.loads(json.dumps(between.state_dict())))
    assert stream(again) == ROWS[3:6]


def test_another_batch_size_goes_on_at_the_same_sample_between_epochs():
    loader = Pipeline(numbers).batch(2).load(steps_per_epoch=3)
    list(loader)
    other = Pipeline(numbers).batch(4).load(steps_per_epoch=2)
    other.load_state_dict(loader.state_dict())
    assert stream(other) == [[6, 7, 8, 9], [10, 11, 12, 13]]
    assert stream(other) == [[14, 15, 16, 17], [18, 19, 20, 21]]


@of_every_door
@pytest.mark.parametrize("done", [2, 3])
def test_an_epoch_that_is_shorter_now_than_what_is_done_of_it_is_over(door, done):
    def shorter():
        return door(numbers, steps=2)

    feeds = door(numbers).steps(10)
    assert stream(islice(feeds, done)) == ROWS[:done]
    cursor = json.loads(json.dumps(feeds.cursor))
    assert stream(shorter().steps(done + 4, at=cursor)) == ROWS[done : done + 4]
    loader = shorter()
    loader.load_state_dict(cursor)
    assert [stream(loader), stream(loader)] == [[], ROWS[done : done + 2]]


def test_peek_shows_the_next_feed_of_a_stream():
    loader = Pipeline(Noted()).batch(2).load(steps_per_epoch=3)
    list(loader)
    assert stream([loader.peek()]) == [ROWS[3]]
    assert stream(loader) == ROWS[3:6]


def test_rounds_without_an_end_go_on_by_place():
    rows = Pipeline(arrays(np.arange(50))).shuffle(seed=1).epochs().batch(20)
    whole = list(islice(rows, 9))
    loader = rows.load(steps_per_epoch=3)
    expected = [samples.columns.tolist() for samples in whole]
    assert [*stream(loader), *stream(loader), *stream(loader)] == expected
    assert stream(loader.epoch(2)) == expected[6:]


def test_firstn_is_the_word_for_beginning_anew():
    reader = Noted()
    loader = Pipeline(reader).firstn(6).batch(2).load(steps_per_epoch=3)
    assert stream(loader) == stream(loader) == ROWS[:3]
    behind = Pipeline(reader).batch(2).firstn(3).load(steps_per_epoch=3)
    assert stream(behind) == stream(behind) == ROWS[:3]


def test_what_has_an_end_is_dealt_anew():
    rows = Pipeline(arrays(np.arange(40))).shuffle(seed=1).filter(lambda n: n > 3).batch(4)
    loader = rows.load(steps_per_epoch=3)
    plain = rows.load()
    for epoch in range(3):
        assert stream(loader.epoch(epoch)) == stream(islice(plain.epoch(epoch), 3))


def test_an_end_is_an_error_that_says_what_to_write():
    loader = Pipeline(lambda: iter(range(8))).batch(2).load(steps_per_epoch=3, capacity=0)
    assert stream(loader) == ROWS[:3]
    seen = []
    with pytest.raises(
        ShortEpoch, match=r"ended after 2, and epoch 1.*\.epochs\(\).*\.firstn\(n\)"
    ):
        seen.extend(loader)
    assert stream(seen) == ROWS[3:4]


def test_wrap_begins_it_again_where_it_ends():
    loader = Pipeline(lambda: iter(range(8))).batch(2).load(steps_per_epoch=3, last="wrap")
    assert [*stream(loader), *stream(loader), *stream(loader)] == [*ROWS[:4], *ROWS[:4], ROWS[0]]


def test_leaves_no_pass_behind_when_its_block_is_left():
    closed = []

    def reader():
        try:
            yield from count()
        finally:
            closed.append(True)

    with Pipeline(reader).batch(2).load(steps_per_epoch=3) as loader:
        assert stream(loader) == ROWS[:3]
        assert not closed
    assert closed


@pytest.mark.parametrize("sizes", [(4, 2), (2, 4), (3, 5)])
@pytest.mark.parametrize("many", [None, 40])
def test_an_epoch_has_as_many_steps_after_a_resume_in_another_size(sizes, many):
    before, after = sizes
    source = arrays(np.arange(many)) if many else numbers
    first = Pipeline(source).batch(before).load(steps_per_epoch=5)
    feeds = first.epoch(0)
    next(feeds), next(feeds)
    second = Pipeline(source).batch(after).load(steps_per_epoch=5)
    rest = stream(second.epoch(0, at=feeds.cursor))
    assert [len(rows) for rows in rest] == [after] * 3
    assert [n for rows in rest for n in rows] == list(range(2 * before, 2 * before + 3 * after))
