"""Find the characters of a rendered chat that the assistant says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jreader.chats.tracked_text import GENERATED, OF_TOOL, STEP, Tracked, tracked

Edges: TypeAlias = tuple[str, str]
"""What a template writes around a reply: the prompt before it, and the marker that ends it."""

_TURN = [{"role": role, "content": role} for role in ("user", "assistant")]


class Span(NamedTuple):
    """A part of a rendered chat that comes from one message: 1 is the first, 0 the template.

    Attributes:
        begin: The index of its first character.
        end: The index after its last character.
        message: The number of the message.
        ended: True if the end of the reply was found.
    """

    begin: int
    end: int
    message: int
    ended: bool = True


def with_owners(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mark the texts of messages with their owner; drop None values, as transformers does.

    Also copy reasoning to the names under which templates read it.
    """
    made = []
    for number, message in enumerate(messages, 1):
        kept = {key: value for key, value in message.items() if value is not None}
        thought = kept.get("reasoning_content", kept.get("thinking", kept.get("reasoning")))
        if thought is not None:
            kept = {"thinking": thought, **kept, "reasoning_content": thought}
        for key in kept.keys() - {"role", "name"}:
            kept[key] = tracked(kept[key], STEP * number + OF_TOOL * (key == "tool_calls"))
        made.append(kept)
    return made


def edges_of(call: str, render: Callable[..., Tracked]) -> Edges:
    """Infer what a template writes around replies by rendering two questions and answers.

    Args:
        call: The call that received the template, for errors.
        render: Renders messages.

    Raises:
        ValueError: It is unclear where the marker ends.
    """
    asked, prompted = (
        render(with_owners(_TURN[:1]), add_generation_prompt=prompt) for prompt in (False, True)
    )
    text = render(with_owners(_TURN * 2))
    parts = parts_of(text)
    marker = _marker(text, parts) if [part.message for part in parts] == [1, 2, 3, 4] else None
    if not marker or marker.isspace():
        raise ValueError(
            f"{call} cannot tell what ends a reply in {text!r}: put {{% generation %}} and "
            "{% endgeneration %} around what the assistant says, in the template."
        )
    header = text[parts[0].end : parts[1].begin].rstrip(" ")  # no generation prompt
    prompt = prompted[len(_shared_begin(asked, prompted)) :] or header
    return str.__str__(prompt), str.__str__(marker.rstrip())  # plain str, to pickle


def _marker(text: Tracked, parts: Sequence[Span]) -> str | None:
    """Return what follows replies, with or without another question; None if that is unclear."""
    at_end = text[parts[3].end :]
    shared = _shared_begin(text[parts[1].end : parts[2].begin], at_end)
    if shared == at_end:
        return shared
    found = re.match(r"\s*<[^<>]+>", shared)  # the template adds more after the last reply
    return found and found[0]


def _shared_begin(first: str, second: str) -> str:
    """Return the common prefix of two texts."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return first[: len(list(pairs))]


def parts_of(text: Tracked) -> list[Span]:
    """Return the span of each message in a rendered chat, from its first to its last character."""
    codes = np.frombuffer(text.owners.encode("utf-32-le", "surrogatepass"), np.uint32)
    places = np.flatnonzero(codes >= STEP)
    runs = np.split(places, np.flatnonzero(np.diff(codes[places] // STEP)) + 1)
    owned = ((int(run[0]), int(run[-1]) + 1) for run in runs if len(run))
    return [Span(begin, end, int(codes[begin]) // STEP) for begin, end in owned]


def with_edges(text: Tracked, edges: Edges) -> Iterator[Span]:
    """Extend each part from the end of the prompt before it to the end of the marker after it."""
    parts, before, (prompt, marker) = parts_of(text), 0, edges
    for part, after in zip(parts, [*(part.begin for part in parts[1:]), len(text)], strict=False):
        begins, ends = text.rfind(prompt, before, part.begin), text.find(marker, part.end, after)
        begin = part.begin if begins < 0 else begins + len(prompt)
        yield Span(begin, part.end if ends < 0 else ends + len(marker), part.message, ends >= 0)
        before = part.end


def generated(text: Tracked) -> Iterator[Span]:
    """Yield the parts inside `generation` blocks."""
    bits = {ord(own): ord(own) & GENERATED for own in {*text.owners}}
    for block in re.finditer(r"\x01+", text.owners.translate(bits)):
        yield Span(*block.span(), ord(max(text.owners[slice(*block.span())])) // STEP)


def without_tools(text: Tracked, part: Span) -> Span:
    """Cut a part where it starts to call tools; the result is empty if it says nothing before."""
    owners = [ord(own) for own in text.owners[part.begin : part.end]]
    calls = next((n for n, own in enumerate(owners) if own & OF_TOOL), None)
    said = [n for n, own in enumerate(owners[:calls], part.begin + 1) if own >= STEP]
    return part if calls is None else Span(part.begin, max(said, default=part.begin), part.message)
