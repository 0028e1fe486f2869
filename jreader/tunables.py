"""Tunables: what may be changed while a pass runs, since the stream is the same for any value.

Whoever has one (a map on threads, the look-ahead of a loader) joins it when its pass is begun, and
is turned by the thread of the loop, whenever a loader sees a gain in that. The same line of a
program is one tunable: parts that it restarts, for the next epoch, begin with the value found.
"""

from __future__ import annotations

from typing import Any, Protocol
from weakref import ref


class TunedPart(Protocol):
    """A part of a pass that has a tunable value."""

    def tune(self, value: int) -> None:
        """Has this value from now on; it may be over, or closed."""

    def held_bytes(self) -> float:
        """Bytes prefetched ahead of the consumer, as far as known."""


class Tunable:
    """A value that may be changed while passes run.

    Attributes:
        name: "threads" or "capacity".
        function: The name of the user's function; "" for none.
        made_at: The file and line that made the op, or the loader.
        value: What it is now.
        most: What it may be at most, for its own reasons; None for anything.
        spent: The seconds that its parts have worked, all together.
        parts: What has this value, in the passes that run.
    """

    def __init__(
        self, name: str, function: str, made_at: str, value: int, most: int | None = None
    ) -> None:
        self.name, self.function, self.made_at = name, function, made_at
        self.value, self.most, self.spent = value, most, 0.0
        self.parts: list[ref[Any]] = []

    def join(self, part: TunedPart, has: int) -> None:
        """Turns a part with the others from now on, whose value is `has` until then."""
        self.parts.append(ref(part, self.parts.remove))
        if has != self.value:  # it was turned meanwhile
            part.tune(self.value)

    def running(self) -> list[TunedPart]:
        """Its parts that are still referenced."""
        return [part for each in list(self.parts) if (part := each()) is not None]

    def tune(self, value: int) -> None:
        """Gives all parts another value."""
        self.value = value
        for part in self.running():
            part.tune(value)

    def held_bytes(self) -> float:
        """Bytes prefetched in all parts."""
        return sum(part.held_bytes() for part in self.running())


class Tunables:
    """The tunables of a loader, each by its op and its line.

    >>> tunables = Tunables()
    >>> tunables.of("threads", "decode", "train.py:31", 4).value
    4
    >>> tunables.of("threads", "decode", "train.py:31", 4).tune(8)
    >>> [(each.function, each.value) for each in tunables]
    [('decode', 8)]
    """

    def __init__(self) -> None:
        self.known: dict[tuple[str, str, str], Tunable] = {}

    def of(
        self, name: str, function: str, made_at: str, value: int, most: int | None = None
    ) -> Tunable:
        """The one of this line, as it is by now; `value` is what it begins with."""
        key = name, function, made_at
        return self.known.setdefault(key, Tunable(*key, value, most))

    def __len__(self) -> int:
        """How many there are; none before the first pass."""
        return len(self.known)

    def __iter__(self) -> Any:
        """All of them, in the order of their passes."""
        return iter(list(self.known.values()))
