"""The positions of lanes: each process knows those that it reads; a cursor has all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from jreader.feeds.shares import Share
from jreader.loaders.checkpoints.cursors import Scattered
from jreader.loaders.checkpoints.positions import EpochPosition, Place
from jreader.readers import Position

Places: TypeAlias = Sequence[tuple[int, Position]]
"""The numbers of some lanes, and the position of each."""


class Filler(NamedTuple):
    """A feed for which this process lacks samples, given only if another one has some.

    Attributes:
        feed: The feed, or SKIPPED.
    """

    feed: Any


@dataclass(frozen=True)
class LanesHere:
    """The lanes that this process reads.

    Attributes:
        numbers: Their numbers.
        ends: When an epoch ends: with the "first" lane that ends on any process, with the "last"
            one, or "together", if all must end at once.
        steps: The number of remaining steps of the epoch; None for as many as there are.
    """

    numbers: Sequence[int]
    ends: Literal["first", "last", "together"]
    steps: int | None = None


def lanes_read(share: Share, lanes: int) -> list[int]:
    """Return the numbers of the lanes whose rows a process feeds.

    >>> lanes_read(Share(8, ((0, 2), (4, 5))), 4)
    [0, 2]
    """
    found: list[int] = np.unique(share.rows() // (share.size // lanes)).tolist()
    return found


def places(place: tuple[Any, ...], numbers: Iterable[int]) -> Places:
    """Return the positions of some lanes in the fields of a `Place`."""
    of_all = EpochPosition(*Place(*place).position).batches
    return [(number, of_all[number]) for number in numbers]


def scattered(
    place: tuple[Any, ...], others: Callable[[], Iterable[tuple[int, Position]]]
) -> Place:
    """Return the `Place` whose cursor asks for the positions of the lanes that others read."""
    here = Place(*place)
    position = EpochPosition(*here.position)
    batches = Scattered(position.batches)
    batches.others = others
    return here._replace(position=tuple(position._replace(batches=batches)))
