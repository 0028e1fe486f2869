"""Tunables: values that may change while a pass runs, since they do not change the stream.

The owner of one (a map on threads, the look-ahead of a loader) joins it when its pass begins, and
the loop's thread tunes it whenever a loader sees a gain. The same line of a program is one tunable:
parts that it restarts, for the next epoch, begin with the value found.
"""

from __future__ import annotations

from typing import Any, Protocol
from weakref import ref


class TunedPart(Protocol):
    """A part of a pass that has a tunable value."""

    def tune(self, value: int) -> None:
        """Use this value from now on; the part may be over, or closed."""

    def held_bytes(self) -> float:
        """Return the bytes prefetched ahead of the consumer, as far as known."""


class Tunable:
    """A value that may change while passes run.

    Attributes:
        name: "threads" or "capacity".
        function: The name of the user's function; "" for none.
        made_at: The file and line that made the op, or the loader.
        value: The present value.
        most: The part's own maximum; None for no limit.
        spent: The seconds that its parts have worked, in total.
        parts: The parts with this value, in the passes that run.
    """

    def __init__(
        self, name: str, function: str, made_at: str, value: int, most: int | None = None
    ) -> None:
        self.name, self.function, self.made_at = name, function, made_at
        self.value, self.most, self.spent = value, most, 0.0
        self.parts: list[ref[Any]] = []

    def join(self, part: TunedPart, has: int) -> None:
        """Tune a part along with the others from now on; its value until then is `has`."""
        self.parts.append(ref(part, self.parts.remove))
        if has != self.value:  # it was tuned meanwhile
            part.tune(self.value)

    def running(self) -> list[TunedPart]:
        """Return its parts that are still referenced."""
        return [part for each in list(self.parts) if (part := each()) is not None]

    def tune(self, value: int) -> None:
        """Set the value of all parts."""
        self.value = value
        for part in self.running():
            part.tune(value)

    def held_bytes(self) -> float:
        """Return the bytes prefetched in all parts."""
        return sum(part.held_bytes() for part in self.running())


class Tunables:
    """The tunables of a loader, by op and line.

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
        """Return the tunable of this line in its present state; `value` is its first value."""
        key = name, function, made_at
        return self.known.setdefault(key, Tunable(*key, value, most))

    def __len__(self) -> int:
        """Return their number; 0 before the first pass."""
        return len(self.known)

    def __iter__(self) -> Any:
        """Return all of them, in the order of their passes."""
        return iter(list(self.known.values()))
