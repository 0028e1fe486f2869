"""What processes tell one another of lanes: where these are, and when they have ended."""

from itertools import chain, islice, repeat

import pytest
from words import Side

from jreader import ReaderError, ShortEpoch
from jreader.loaders.checkpoints.cursors import beginning, gathered
from jreader.loaders.checkpoints.positions import EpochPosition, Place
from jreader.loaders.multihost.lane_places import Filler, LanesHere
from jreader.readers import Pass

LANES = 4


def lanes_of(numbers, items):
    """The host feeds of a process that reads some lanes, each of which gives one sample a feed."""
    given = 0

    def deal():
        nonlocal given
        for item in items:
            given += 1
            yield item

    def position():
        places = tuple((0, given if lane in numbers else None) for lane in range(LANES))
        return tuple(Place(beginning(0), given, "", 0, (None, None, places, given)))

    return Pass(deal(), position, lambda: None)


def sides(board, ends, *items, steps=None, window=2):
    """Two processes, of which each reads two lanes."""
    return [
        Side(
            board(me),
            host=lanes_of(numbers, each),
            lanes=LanesHere(numbers, ends, steps),
            window=window,
        )
        for me, (numbers, each) in enumerate(zip([(0, 1), (2, 3)], items, strict=True))
    ]


def ending(many):
    """So many feeds of its own, and then spare ones without end."""
    return chain(range(many), map(Filler, repeat("spare")))


def test_an_epoch_ends_everywhere_with_the_first_lane(board):
    one, other = sides(board, "first", range(3), range(6))
    one.ahead(9)
    other.ahead(9)
    assert one.takes() == other.takes() == [0, 1, 2]


@pytest.mark.parametrize("window", [1, 2, 4])
def test_or_with_the_last_and_who_has_none_gives_spare_feeds_till_then(board, window):
    one, other = sides(board, "last", ending(2), ending(5), window=window)
    one.ahead(9)
    other.ahead(9)
    assert other.takes(2) == [0, 1]
    assert one.takes() == [0, 1, *["spare"] * 3]
    assert other.takes() == [2, 3, 4]


def test_lanes_that_have_to_end_together_and_do_not_are_an_error_on_all(board):
    one, other = (side.ahead(9) for side in sides(board, "together", range(3), range(6)))
    for side in (one, other):
        assert side.takes(3) == [0, 1, 2]
        with pytest.raises(ShortEpoch, match="Their lanes end at different steps"):
            side.takes()


def test_fewer_steps_than_an_epoch_needs_are_an_error_on_all(board):
    one, other = (side.ahead(9) for side in sides(board, "last", ending(2), ending(3), steps=5))
    for side in (one, other):
        assert len(side.takes(3)) == 3
        with pytest.raises(ShortEpoch, match="ended 2 steps before the end"):
            side.takes()


@pytest.mark.parametrize("ahead", [2, 4, 8])
def test_the_places_of_all_lanes_are_known_at_every_feed(board, ahead):
    one, other = sides(board, "first", range(8), range(8))
    other.ahead(ahead)
    for taken in range(1, ahead + 1):
        one.takes(1)
        of_other = EpochPosition(*gathered(one.feeds.position()[-1])).batches[2:]
        assert list(map(list, of_other)) == [[0, taken]] * 2


def test_places_are_told_of_few_feeds_only(board):
    (one, _) = sides(board, "first", range(60), range(60))
    list(islice(one.told.items, 60))
    assert len(one.agreement._own.places) < 20


@pytest.mark.parametrize("wide", [0, 1])
def test_places_are_known_at_every_feed_also_to_one_that_looks_further_ahead(board, wide):
    every = [
        Side(
            board(me),
            host=lanes_of(numbers, range(200)),
            lanes=LanesHere(numbers, "first"),
            window=40 if me == wide else 1,
        )
        for me, numbers in enumerate([(0, 1), (2, 3)])
    ]
    every[wide].ahead(40)
    for _ in range(40):
        every[1 - wide].takes(1)
    for taken in range(1, 41):
        every[wide].takes(1)
        places = EpochPosition(*gathered(every[wide].feeds.position()[-1])).batches
        assert [each[1] for each in places[2 * (1 - wide) :][:2]] == [taken] * 2


def test_a_cursor_whose_places_are_deleted_is_refused(board):
    one, other = sides(board, "first", range(60), range(60))
    other.ahead(2)
    one.takes(1)
    long_ago = one.feeds.position()[-1]
    one.agreement._board.delete("0")
    with pytest.raises(ReaderError, match="process 1 is far ahead, and no longer keeps the places"):
        gathered(long_ago)
