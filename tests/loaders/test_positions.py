"""Places that a source keeps in words of its own, and passes that have none."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from steps import stream, told

from jreader import Node, NotResumable, Pipeline, chain, compose, epochs, multiprocess_reader, start
from jreader.readers import Pass

pytestmark = [
    pytest.mark.usefixtures("by_value"),
    pytest.mark.filterwarnings("ignore:same-left-out"),  # of plans in their order
]

COUNT = 30

KEPT: dict[str, Callable[[int], Any]] = {
    "texts": lambda done: f"token-{done}",
    "floats": lambda done: done / 2,
    "dicts": lambda done: {"page": [done // 7, None], "offset": done % 7, "left": {"x": 0.5}},
    "lists": lambda done: ["a", [done, None], True],
    "what is false": lambda done: ["", 0, 0.0, False, {}, []][done % 6] if done < 6 else done,
}


@dataclass(frozen=True, eq=False, repr=False)
class Pages(Node[np.ndarray]):
    """A source that goes on after a token, as those of data bases do."""

    kind: str

    def start(self, at: Any) -> Pass[np.ndarray]:
        told_of = KEPT[self.kind]
        done = 0
        if at is not None:
            (done,) = (n for n in range(COUNT + 1) if same(told_of(n), at))

        def deal():
            nonlocal done
            while done < COUNT:
                done += 1
                yield np.int64(done)

        return Pass(deal(), lambda: told_of(done), lambda: None)


def same(one: Any, other: Any) -> bool:
    return json.dumps(one) == json.dumps(other)


def loaded(reader):
    return Pipeline(reader).batch(4).load()


OVER = {
    "bare": lambda source: source,
    "shuffled": lambda source: Pipeline(source).shuffle(7, seed=1),
    "drawn": lambda source: Pipeline(source).shuffle(7),
    "some": lambda source: Pipeline(source).skip(1).firstn(27).shard(1, 0),
    "ahead": lambda source: Pipeline(source).prefetch(3).map(np.negative, threads=2),
    "beside": lambda source: compose(source, source),
    "after": lambda source: chain(source, source),
    "kept": lambda source: Pipeline(source).cache().filter(lambda n: n % 3),
    "again": lambda source: epochs(source, 3),
    "apart": lambda source: multiprocess_reader([source, source]),
}


def cases():
    """Slow where every pass begins processes: there, of all kinds, those that nest or are false."""
    for kind, over in product(KEPT, OVER):
        if over != "apart":
            yield kind, over
        elif kind in ("dicts", "what is false"):
            yield pytest.param(kind, over, marks=pytest.mark.slow)


@pytest.mark.parametrize(("kind", "over"), [*cases()])
def test_any_value_of_json_is_a_place(kind, over):
    feeds = loaded(OVER[over](Pages(kind))).epoch(0)
    for step, _ in enumerate(feeds):
        if step in (0, 2):
            cursor = json.loads(json.dumps(feeds.cursor))
            with loaded(OVER[over](Pages(kind))).epoch(0, at=cursor) as rest:
                expected = next(rest, None)
            with loaded(OVER[over](Pages(kind))).epoch(0, at=feeds.cursor) as again:
                assert told(next(again)) == told(expected)
    fixed = over != "drawn"
    if fixed:
        whole = stream(loaded(OVER[over](Pages(kind))).epoch(0))
        assert stream(loaded(OVER[over](Pages(kind))).epoch(0, at=cursor)) == whole[3:]


@pytest.mark.parametrize("kind", KEPT)
def test_a_pass_goes_on_at_it(kind):
    whole = list(Pages(kind)())
    one = start(Pages(kind))
    for done in range(COUNT):
        assert list(start(Pages(kind), one.position()).items) == whole[done:]
        next(one.items)


@dataclass(frozen=True, eq=False, repr=False)
class Given(Node[int]):
    """A source with one place, whatever that is."""

    place: Any

    def start(self, at):
        return Pass(iter(range(COUNT)), lambda: self.place, lambda: None)


class TestRefusedWhenTheyAreMade:
    @pytest.mark.parametrize(
        ("make", "advice"),
        [
            (lambda: Pipeline(lambda: range(COUNT)).xmap(abs, 2, 2), "order=True"),
            (lambda: multiprocess_reader([lambda: range(9)], use_pipe=False), "use_pipe=True"),
            (lambda: Pipeline(lambda: range(COUNT)).xmap(abs, 2, 2).shuffle(5).skip(1), "order=Tr"),
        ],
    )
    def test_an_order_of_arrival_has_no_cursor(self, make, advice):
        loader = loaded(make())
        with loader.epoch(0) as feeds:
            next(feeds)
            for ask in (lambda: feeds.cursor, loader.state_dict):
                with pytest.raises(NotResumable, match=rf"hands samples over as they.*{advice}"):
                    ask()
            next(feeds)  # and goes on

    @pytest.mark.parametrize(
        "place", [np.int64(3), {1, 2}, {1: "a"}, [{"a": {2: 0}}], b"token", object()]
    )
    def test_what_json_does_not_keep_is_told(self, place):
        loader = loaded(Given(place))
        with loader.epoch(0) as feeds:
            next(feeds)
            for ask in (lambda: feeds.cursor, loader.state_dict):
                with pytest.raises(NotResumable, match=r"JSON.*int\(\.\.\.\)"):
                    ask()


@pytest.mark.parametrize(
    ("written", "here"),
    [
        (lambda r: Pipeline(r).shard(4, 1), lambda r: Pipeline(r).shard(2, 1)),
        (lambda r: Pipeline(r).shard(4, 1), lambda r: Pipeline(r).shard(4, 2)),
        (lambda r: Pipeline(r).skip(4), lambda r: Pipeline(r).skip(5)),
        (lambda r: Pipeline(r).firstn(9), lambda r: Pipeline(r).firstn(5)),
        (lambda r: Pipeline(r).skip(4).batch(2), lambda r: Pipeline(r).skip(5).batch(2)),
    ],
)
def test_a_place_of_a_part_is_no_place_of_another(written, here):
    one = start(written(lambda: range(40)))
    next(one.items)
    at = json.loads(json.dumps(one.position()))
    with pytest.raises(NotResumable, match=r"position is of .*, and here it is"):
        start(here(lambda: range(40)), at)
    assert list(start(written(lambda: range(40)), at).items) == list(one.items)
