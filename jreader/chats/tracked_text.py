"""Texts that know, for each character, which message it comes from, whatever a template does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex

from jreader.readers.trees import map_tree

STEP, OF_TOOL, GENERATED = 4, 2, 1
"""An owner is STEP times the number of a message from 1 (0 is the template), and two bits."""


class Tracked(str):
    r"""A text, equal to any other with its characters, that has an owner for each of them.

    Chat templates strip, split and join what messages say. Here the parts keep their owners, so
    where a message stands in a rendered chat need not be guessed. What else `str` does to it gives
    a plain text: an owner may be lost, but no character changes.

    >>> said = rejoined(["Q:", tracked(" 2 ", 4).strip(), ";"])
    >>> said, said.owners
    ('Q:2;', '\x00\x00\x04\x00')

    Args:
        text: The characters.
        owners: As many characters, whose code points are the owners.
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
    """A method of `str` that gives a part of a text, or parts in their order."""
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
    r"""The parts one after another; those without owners belong to the template.

    >>> rejoined(["a", tracked("b", 4)]).owners
    '\x00\x04'
    """
    parts = list(parts)
    owners = (getattr(part, "owners", "\0" * len(part)) for part in parts)
    return Tracked("".join(parts), "".join(owners))


def tracked(value: Any, owner: int) -> Any:
    r"""A message, or a part of it, whose texts have an owner.

    >>> tracked({"role": "user", "n": [3, "Hi"]}, 4)["n"][1].owners
    '\x04\x04'
    """

    def owned(leaf: Any) -> Any:
        return Tracked(leaf, chr(owner) * len(leaf)) if isinstance(leaf, str) else leaf

    return map_tree(owned, value)
