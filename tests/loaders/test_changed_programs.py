"""What a cursor says of a changed program: each row of the table in docs/cursors.md."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from pathlib import Path

import cloudpickle
import pytest
from changed_programs import CHANGES, FIRST, REFUSED, WARNED, loaded, written_as

from jreader import (
    DataLoader,
    NotResumable,
    Pipeline,
    arrays,
)
from jreader.readers import Node, fingerprint

PAGE = Path(__file__).parents[2] / "docs" / "cursors.md"


def loader_of(plan):
    return plan if isinstance(plan, DataLoader) else Pipeline(plan).batch(4).load()


def cursor_of(plan):
    feeds = loader_of(plan).epoch(0)
    next(feeds)
    return json.loads(json.dumps(feeds.cursor))


def cases():
    for row, (verdict, *pairs) in CHANGES.items():
        for number, make in enumerate(pairs):
            yield pytest.param(verdict, make, id=f"{row}-{number}")


@pytest.mark.parametrize(("verdict", "make"), list(cases()))
def test_a_change_is(verdict, make, tmp_path):
    before, after = make(tmp_path)
    again, _ = make(tmp_path)  # before a feed is read ahead: to write a file that is mapped kills
    cursor, again, other = cursor_of(before), loader_of(again), loader_of(after)
    again.load_state_dict(cursor)  # the same program is accepted without a word
    if verdict == REFUSED:
        with pytest.raises(NotResumable, match="of another plan"):
            other.load_state_dict(cursor)
    elif verdict == WARNED:
        with pytest.warns(
            UserWarning, match=r"not (what|made as) (it|they) (was|were)|other readers in its mix"
        ) as told:
            other.epoch(0, at=cursor).close()
        assert [each.filename for each in told] == [__file__]
    else:
        other.load_state_dict(cursor)


AHEAD = "the batch size, if steps that are left out are still to come"


def test_the_batch_size_while_steps_that_are_left_out_lie_ahead_is_refused():
    feeds = loaded().epoch(0, skip_steps=range(3, 5))
    next(feeds)
    with pytest.raises(NotResumable, match="so they would be other samples"):
        Pipeline(arrays(n=FIRST)).batch(8).load().epoch(0, at=feeds.cursor)


def test_the_page_has_every_row_and_no_other():
    row = r"^\| (.+?) \| (refused|\*\*warned\*\*|not noticed) \|"
    lines = re.findall(row, PAGE.read_text(), re.MULTILINE)
    assert sorted(lines) == sorted(
        [(row, verdict) for row, (verdict, *_) in CHANGES.items()] + [(AHEAD, REFUSED)]
    )


def test_hashes_are_the_same_after_a_journey(tmp_path):
    """By cloudpickle, as functions travel to workers, and cells of notebooks are written."""
    for make in (make for _, *pairs in CHANGES.values() for make in pairs):
        plan, _ = make(tmp_path)
        if isinstance(plan, Node):
            there = cloudpickle.loads(cloudpickle.dumps(plan))
            assert fingerprint(there) == fingerprint(plan), plan


class TestOptions:
    """A run that is resumed is called with another option: `--resume`."""

    def read(self, lines):
        def plan(**options):
            return written_as(lines, args=Namespace(**options))

        before = cursor_of(plan(scale=2, resume=None))
        loader_of(plan(scale=2, resume="run.npz")).load_state_dict(before)  # without a word
        with pytest.warns(UserWarning, match="is not what it was"):
            loader_of(plan(scale=3, resume=None)).load_state_dict(before)

    def test_those_that_no_function_reads_change_nothing(self):
        self.read("def read(n): return n * args.scale")
        self.read("def read(n): return sum(n * args.scale for _ in [n])")
        self.read("def made(args):\n  return lambda n: n * args.scale\nread = made(args)")

    def test_all_count_where_they_are_handed_on(self):
        def plan(**options):
            lines = "def times(n, args): return n * args.scale\ndef read(n): return times(n, args)"
            return written_as(lines, args=Namespace(**options))

        with pytest.warns(UserWarning, match="is not what it was"):
            loader_of(plan(scale=2)).load_state_dict(cursor_of(plan(scale=1)))
