"""What processes tell one another, counted for up to 4,096 of them.

    python -m tests.benchmarks.host_messages [processes ...]

The coordination service of `jax.distributed` is real, and so are the boards and agreements of all
processes; they live in this one, share its connection, and take turns.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import jax
from jax._src import distributed

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from together import free_port

from jreader.loaders.checkpoints.cursors import beginning
from jreader.loaders.multihost import board as boards
from jreader.loaders.multihost.agreement import Agreement
from jreader.loaders.multihost.lane_places import LanesHere
from jreader.readers import Pass

PLAN = {"ops": [f"op {number} {'x' * 60}" for number in range(30)], "functions": []}
STEPS = 8


class Counted:
    """A store that counts what is asked of it, and the characters that travel."""

    def __init__(self, store: Any) -> None:
        self.store, self.calls, self.letters = store, 0, 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            said: Any = ""
            try:
                said = getattr(self.store, name)(*given, **options)
            finally:
                self.calls += 1
                self.letters += sum(len(str(each)) for each in (*given, said))
            return said

        return call


class Lanes:
    """The places of all lanes after some feeds."""

    def __init__(self, given: int) -> None:
        self.given = given

    def __getitem__(self, number: int) -> tuple[int, int]:
        return number, self.given


def host_feeds() -> Pass[int]:
    """Feeds without end, made of nothing."""
    given = [0]

    def position() -> Any:
        return beginning(0), given[0], "", 0, (None, None, Lanes(given[0]), given[0])

    def deal() -> Any:
        while True:
            given[0] += 1
            yield given[0]

    return Pass(deal(), position, lambda: None)


def of_one(stores: list[Counted], began: float, steps: int = 1) -> str:
    """The calls, bytes and CPU of one process, for one step; counting begins anew."""
    many = len(stores) * steps
    calls, letters = (sum(getattr(each, name) for each in stores) / many for name in FIELDS)
    for store in stores:
        store.calls = store.letters = 0
    return f"{calls:.2f} | {letters:,.0f} | {1000 * (time.process_time() - began) / many:.2f}"


FIELDS = "calls", "letters"


def played(many: int) -> str:
    """A row of the table."""
    numbers: Any = defaultdict(lambda: defaultdict(count))
    every = []
    for me in range(many):
        jax.process_index = lambda me=me: me  # type: ignore[assignment, misc]  # they take turns
        boards._NUMBERS = numbers[me]
        every.append(boards.Board(set(range(many)), "train.py:7"))
    stores = [Counted(board._store) for board in every]
    for board, store in zip(every, stores, strict=True):
        board._store = store
    cursor: Any = {**beginning(0), "plan": PLAN}
    began = time.process_time()
    lanes = [LanesHere([board.me], "first") for board in every]
    sides = [
        Agreement(each, cursor, 300, (), here) for each, here in zip(every, lanes, strict=True)
    ]
    begin = of_one(stores, began)
    posted = [side.posting(host_feeds(), 2) for side in sides]
    for side in sides:
        side._listen = lambda: None  # type: ignore[method-assign]  # nobody else runs meanwhile
    began = time.process_time()
    for _ in range(STEPS // 2):
        for told in posted:
            next(told.items), next(told.items)
        for side in sides:
            side._taken += 1
            assert side._is_given(streamed=True)
            side._taken += 1
    steps = of_one(stores, began, STEPS)
    assert len(list(sides[0]._places_of_others(STEPS))) == many - 1
    return f"| {many:,} | {begin} | {steps} | {stores[0].letters:,} |"


def main(counts: list[int]) -> None:
    """Prints a row for each number of processes."""
    state = distributed.State()
    state.initialize(f"127.0.0.1:{free_port()}", num_processes=1, process_id=0)
    distributed.global_state = state
    boards._watch_next = lambda *_: None
    print("| processes | an epoch's begin: calls | bytes | ms, both sides ", end="")
    print("| a step of lanes: calls | bytes | ms, both sides | a cursor: bytes |")
    print("|---" * 8 + "|")
    for many in counts:
        print(played(many), flush=True)
    state.shutdown()


if __name__ == "__main__":
    main([*map(int, sys.argv[1:])] or [2, 8, 64, 512, 4096])
