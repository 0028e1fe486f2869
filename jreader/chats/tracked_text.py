"""Strings that track which message each character comes from, whatever a template does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex

from jreader.readers.trees import map_tree

STEP, OF_TOOL, GENERATED = 4, 2, 1
"""An owner is STEP times the message number (from 1; 0 is the template), plus two bits."""


class Tracked(str):
    r"""A str with an owner for each character; it equals any str with the same characters.

    Chat templates strip, split and join the texts of messages. The parts keep their owners, so a
    message is found in the rendered chat without guessing. Other `str` methods return a plain str:
    owners may be lost, but no character changes.

    >>> said = rejoined(["Q:", tracked(" 2 ", 4).strip(), ";"])
    >>> said, said.owners
    ('Q:2;', '\x00\x00\x04\x00')

    Args:
        text: The characters.
        owners: One character per character of the text; its code point is the owner.
    """

    __slots__ = ("owners",)
    owners: str

    def __new__(cls, text: str, owners: str) -> Tracked:  # noqa: D102  # as the class says
        made = super().__new__(cls, text)
        made.owners = owners
        return made

    def __str__(self) -> str:
        return self

    def __add__(self, other: str) -> str:
        return rejoined((self, other))

    def __radd__(self, other: str) -> str:
        return rejoined((other, self))

    def __getitem__(self, index: SupportsIndex | slice) -> Tracked:
        return Tracked(super().__getitem__(index), self.owners[index])


def _cutting(name: str) -> Callable[..., Any]:
    """Wrap a `str` method that returns a part of the text, or several parts in order."""
    plain = getattr(str, name)

    def cut(text: Tracked, *given: Any, **named: Any) -> Any:
        made, by = plain(text, *given, **named), [*given, named.get("sep")][0]
        parts, place = [], 0
        for part in [made] if isinstance(made, str) else made:
            place = text.find(part, place)
            parts.append(text[place : place + len(part)])
            place += len(part) + len(by or "")
        return parts[0] if isinstance(made, str) else parts

    return cut


for _name in ("strip", "lstrip", "rstrip", "split", "rsplit"):
    setattr(Tracked, _name, _cutting(_name))


def rejoined(parts: Iterable[str]) -> Tracked:
    r"""Join parts; those without owners belong to the template.

    >>> rejoined(["a", tracked("b", 4)]).owners
    '\x00\x04'
    """
    parts = list(parts)
    owners = (getattr(part, "owners", "\0" * len(part)) for part in parts)
    return Tracked("".join(parts), "".join(owners))


def tracked(value: Any, owner: int) -> Any:
    r"""Give all texts of a message, or of a part of one, an owner.

    >>> tracked({"role": "user", "n": [3, "Hi"]}, 4)["n"][1].owners
    '\x04\x04'
    """

    def owned(leaf: Any) -> Any:
        return Tracked(leaf, chr(owner) * len(leaf)) if isinstance(leaf, str) else leaf

    return map_tree(owned, value)
