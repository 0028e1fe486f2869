"""Which characters of a rendered chat the assistant says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from jreader.chats.tracked_text import GENERATED, OF_TOOL, STEP, owners_of, tracked

_REASONING = ("reasoning_content", "thinking", "reasoning")
_TURN = [{"role": role, "content": role} for role in ("user", "assistant")]


class Part(NamedTuple):
    """A part of a rendered chat that comes from one message: the first is 1, the template is 0."""

    begin: int
    end: int
    message: int


class Edges(NamedTuple):
    """What a template writes around a reply: a prompt that ends before it, and a marker behind."""

    prompt: str
    marker: str


def with_owners(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages whose texts have them as owner; without None, as transformers has them.

    Reasoning stands under each of the names that templates read.
    """
    made = []
    for number, message in enumerate(messages, 1):
        kept = {key: value for key, value in message.items() if value is not None}
        if reasoning := next((kept[name] for name in _REASONING if name in kept), None):
            kept = {"thinking": reasoning, **kept, "reasoning_content": reasoning}
        for key in kept.keys() - {"role", "name"}:
            kept[key] = tracked(kept[key], STEP * number + OF_TOOL * (key == "tool_calls"))
        made.append(kept)
    return made


def edges_of(call: str, render: Callable[..., str]) -> Edges:
    """What a template writes around replies, from how it renders two questions and answers.

    Args:
        call: The call that the template was given to, for errors.
        render: Renders messages.

    Raises:
        ValueError: It cannot be told where the marker ends.
    """
    asked, prompted, text = (
        render(with_owners(messages), add_generation_prompt=prompt)
        for messages, prompt in ((_TURN[:1], False), (_TURN[:1], True), (_TURN * 2, False))
    )
    parts = parts_of(text)
    marker = _marker(text, parts) if [part.message for part in parts] == [1, 2, 3, 4] else None
    if marker is None:
        raise ValueError(
            f"{call} cannot tell what ends a reply: the template renders two questions and answers "
            f"as {text!r}. Put {{% generation %}} and {{% endgeneration %}} around what the "
            "assistant says, in the template."
        )
    prompt = prompted[len(_shared(asked, prompted)) :]
    if not prompt:  # the template has none: a reply begins behind the question, or its own header
        prompt, header = prompted[parts_of(prompted)[-1].end :], text[parts[0].end : parts[1].begin]
        prompt = header if header.removeprefix(prompt).strip() else prompt
    return Edges(str.__str__(prompt), str.__str__(marker.rstrip()))  # they travel


def _marker(text: str, parts: Sequence[Part]) -> str | None:
    """What stands behind replies, whether a question follows or not; None if that is unclear."""
    between, at_end = text[parts[1].end : parts[2].begin], text[parts[3].end :]
    shared = _shared(between, at_end)
    if shared == at_end:
        return shared
    found = re.match(r"\s*<[^<>]+>", shared)  # the template writes more behind the last reply
    return found and found[0]


def _shared(first: str, second: str) -> str:
    """What two texts begin with alike."""
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return first[: len(list(alike))]


def parts_of(text: str) -> list[Part]:
    """The parts of a rendered chat, from the first to the last character of a message each."""
    owners = owners_of(text)
    numbers = owners.translate({ord(own): ord(own) // STEP for own in {*owners}})
    found = re.finditer(r"([^\0])\1*(?:\0+\1+)*", numbers)
    return [Part(*part.span(), ord(part[1])) for part in found]


def with_edges(text: str, parts: Sequence[Part], edges: Edges) -> list[Part]:
    """The parts, each from the end of the prompt before it to the end of the marker behind it."""
    found, before = [], 0
    for part, after in zip(parts, [*(part.begin for part in parts[1:]), len(text)], strict=True):
        prompt = text.rfind(edges.prompt, before, part.begin)
        begin = part.begin if prompt < 0 else prompt + len(edges.prompt)
        marker = text.find(edges.marker, part.end, after)
        end = part.end if marker < 0 else marker + len(edges.marker)
        found.append(Part(begin, end, part.message))
        before = part.end
    return found


def generated(text: str) -> list[Part]:
    """The parts that stand in `generation` blocks."""
    owners = owners_of(text)
    kinds = owners.translate({ord(own): "g" if ord(own) & GENERATED else "." for own in {*owners}})
    spans = [block.span() for block in re.finditer("g+", kinds)]
    return [Part(low, high, ord(max(owners[low:high])) // STEP) for low, high in spans]


def without_tools(text: str, part: Part) -> Part:
    """The part up to where it calls tools; empty, if it says nothing before."""
    owners = owners_of(text)[part.begin : part.end]
    bits = {
        ord(own): "t" if ord(own) & OF_TOOL else "m" if ord(own) >= STEP else "." for own in owners
    }
    said, calls, _ = owners.translate(bits).partition("t")
    return part._replace(end=part.begin + len(said.rstrip("."))) if calls else part
