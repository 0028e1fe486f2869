"""What the loaders of stored cursors read: functions, data sets and an op, under this very name.

Cursors know them by their code and by the name of this module: nothing here may change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import jreader
from jreader import IterableDataset, Node, Pass

COUNT = 22


def numbers() -> Iterator[int]:
    return iter(range(COUNT))


def tens() -> Iterator[int]:
    return iter(range(0, 10 * COUNT, 10))


def endless() -> Iterator[int]:
    return iter(range(10**9))


def batches() -> Iterator[list[int]]:
    for first in range(0, COUNT, 4):
        yield list(range(first, min(first + 4, COUNT)))


def columns() -> Iterator[Any]:
    for first in range(0, COUNT - 4, 4):
        yield (np.arange(first, first + 4),)


def odd(n: int) -> bool:
    return n % 2 == 1


def twice(n: int) -> list[int]:
    return [n, n + 100]


def negative(n: Any) -> Any:
    return -n


def noisy(n: int, rng: np.random.Generator) -> int:
    return n + 100 * int(rng.integers(10))


def doubled(feed: Any) -> Any:
    return {"n": feed["n"] * 2}


def keyed(feed: Any, key: Any) -> Any:
    import jax  # noqa: PLC0415  # workers import this module too

    return {**feed, "key": jax.random.key_data(key)}


def keyed_each(feed: Any, keys: Any) -> Any:
    import jax  # noqa: PLC0415  # likewise

    return {**feed, "key": jax.random.key_data(keys)[:, 0]}


class Squares:
    """A data set by index."""

    def __init__(self, many: int = COUNT) -> None:
        self.many = many

    def __len__(self) -> int:
        return self.many

    def __getitem__(self, index: int) -> int:
        return index * index


class Streamed(IterableDataset):
    """A data set that is read from its beginning."""

    def __init__(self, many: int = COUNT) -> None:
        self.many = many

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.many))


class Tokens:
    """A source of the user's, whose place is a text."""

    def __call__(self) -> Iterator[int]:
        return self.start(None).items

    def start(self, at: Any) -> Pass[int]:
        done = int(at.removeprefix("token ")) if at else 0

        def items() -> Iterator[int]:
            nonlocal done
            while done < COUNT:
                done += 1
                yield done - 1

        return Pass(items(), lambda: f"token {done}", lambda: None)


class pairs(Node[Any]):  # an op
    """An op of the user's."""

    reader: Any

    def __init__(self, reader: Any) -> None:
        object.__setattr__(self, "reader", reader)

    def start(self, at: Any) -> Pass[Any]:
        up = jreader.start(self.reader, at)

        def items() -> Iterator[int]:
            for one in up.items:
                yield one + 1000 * next(up.items, 0)

        return Pass(items(), up.position, up.close)
