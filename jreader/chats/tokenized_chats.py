"""`chat`: turn messages into tokens, with a mask of what the assistant says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Literal

import numpy as np

from jreader.chats import masks
from jreader.chats.tracked_text import GENERATED, OF_TOOL, STEP, Tracked
from jreader.errors import FeedMismatch
from jreader.extras import extra
from jreader.readers import Reader, choice, described, flag, op, set_fields
from jreader.readers.columns import Array
from jreader.readers.declarations import convert_fields
from jreader.readers.nodes import ops_of
from jreader.readers.trees import leaves
from jreader.workers import map_samples

_CALL = "chat(reader, tokenizer, template)"


def coder_of(call: str, tokenizer: Any) -> tuple[Callable[..., Any], Callable[..., str]]:
    """Return a tokenizer's functions: one from text to tokens and offsets, and one back.

    Args:
        call: The call that received the tokenizer, for errors.
        tokenizer: A tokenizer of tokenizers or transformers; or a pair of functions.

    Raises:
        TypeError: The tokenizer is none of these.
        ValueError: The tokenizer truncates or pads.
    """
    if isinstance(tokenizer, tuple) and len(tokenizer) == 2 and all(map(callable, tokenizer)):
        return tokenizer
    known = getattr(tokenizer, "backend_tokenizer", tokenizer)  # transformers wraps it
    if not hasattr(known, "to_str"):
        raise TypeError(
            f"{call} needs a tokenizer of tokenizers, a fast one of transformers, or functions "
            f"(encode, decode), not {described(tokenizer)}."
        )
    if known.truncation or known.padding:
        raise ValueError(
            f"{call} would lose tokens: type no_truncation() and no_padding() of the tokenizer."
        )

    def encode(text: str) -> tuple[list[int], list[tuple[int, int]]]:
        made = known.encode(text, add_special_tokens=False)
        return made.ids, made.offsets

    return encode, partial(known.decode, skip_special_tokens=False)


@dataclass(frozen=True, repr=False)
class ChatTokens:
    """Turns a chat into tokens and a mask; takes the arguments of `chat`."""

    tokenizer: Any
    template: str
    turns: Literal["all", "last"] = choice("all", "last", default="all")
    tool_calls: bool = flag(default=True)
    variables: Mapping[str, Any] = field(default_factory=dict)
    edges: masks.Edges | None = field(default=None, init=False)
    shown_call: ClassVar[str] = _CALL

    def __post_init__(self) -> None:
        """Check the arguments, and that the template shows where a reply ends."""
        convert_fields(self)
        coder_of(_CALL, self.tokenizer)
        if not isinstance(self.template, str) or not isinstance(self.variables, Mapping):
            wrong = described((self.template, self.variables))
            raise TypeError(
                f"{_CALL} needs the text of a template, variables as a dict: not {wrong}."
            )
        read = sorted(_templates().names_read(self.template) - self.variables.keys())
        missing = [name for name in read if name.endswith("_token")]
        if missing and not hasattr(self.tokenizer, "special_tokens_map"):
            raise ValueError(
                f"{_CALL} has a template that reads a token that is not given: type "
                f"variables={{{missing[0]!r}: '...'}}, with its text."
            )
        if not re.search(r"\{%[-+]?\s*generation\s*[-+]?%\}", self.template):  # none marks replies
            set_fields(self, edges=masks.edges_of(_CALL, self.render))

    def render(self, messages: Sequence[Any], **given: Any) -> Tracked:
        """Render messages to text."""
        known = {**getattr(self.tokenizer, "special_tokens_map", {}), **given, **self.variables}
        text: Tracked = _templates().compiled(self.template).render(known, messages=messages)
        return text

    def __call__(self, sample: Any) -> dict[str, Array]:
        """Return the tokens of a chat, and whether the assistant says each of them."""
        messages = _messages_of(sample)
        text = self.render(masks.with_owners(messages), tools=sample.get("tools"))
        tokens, offsets = coder_of(_CALL, self.tokenizer)[0](str.__str__(text))
        begins, ends = np.fromiter(chain.from_iterable(offsets), np.int64).reshape(-1, 2).T
        mask = np.zeros(len(tokens), bool)
        for part in self._parts(text, messages):
            if not part.ended:
                raise FeedMismatch(
                    f"{_CALL} does not find what ends {described(messages[part.message - 1])}: "
                    "put {% generation %} and {% endgeneration %} around replies, in the template."
                )
            mask |= (begins < part.end) & (ends > part.begin)
        if mask.all() or not mask.any():
            raise FeedMismatch(
                f"{_CALL} {'counts every token' if mask.any() else 'counts no token'} of "
                f"{described(sample)}: leave it out, with .filter(fn), or with on_error='skip'."
            )
        return {"tokens": np.asarray(tokens, np.int32), "loss_mask": mask}

    def _parts(self, text: Tracked, messages: Sequence[Mapping[str, Any]]) -> list[masks.Span]:
        """Return the parts of a rendered chat that count."""
        said = [n for n, each in enumerate(messages, 1) if each.get("role") == "assistant"]
        for number in said:
            _check_rendered(messages[number - 1], STEP * number, text.owners)
        counted = said[-1:] if self.turns == "last" else [0, *said]
        parts = masks.with_edges(text, self.edges) if self.edges else masks.generated(text)
        cut = (lambda _, part: part) if self.tool_calls else masks.without_tools
        return [cut(text, part) for part in parts if part.message in counted]

    def __repr__(self) -> str:
        """Return the name that errors and traces use."""
        return "chat"


@op
class chat(map_samples[dict[str, Any]]):
    """Render and tokenize chats, with a mask of what the assistant says.

    Samples are dicts with `messages` (dicts with `role`, `content` or `tool_calls`) and optional
    `tools`. The result is a dict of `tokens` (int32[n]) and `loss_mask` (bool[n]); other fields are
    dropped. The mask is true for what the model has to say: content, reasoning and tool calls, with
    the marker that ends the reply; not the header before it, nor the line break after it.

    >>> from jreader import marked_text
    >>> letters = lambda text: (list(text.encode()), [(n, n + 1) for n in range(len(text))])
    >>> tokenizer = letters, lambda tokens: bytes(tokens).decode()
    >>> template = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}"
    >>> ask = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}
    >>> chats = chat(lambda: [{"messages": ask}], tokenizer, template)
    >>> [marked_text(sample, tokenizer) for sample in chats()]
    ['u:2+2?;a:⟦4;⟧']

    The template is rendered once, as transformers does, with strings that know which message they
    come from, whatever the template does to them. If it has `{% generation %}` blocks, these count,
    as in `return_assistant_tokens_mask` of transformers. A token counts if any of its characters
    does. An unclear mask raises an error; it is never guessed.

    Cost: the tokenizer takes more than half of the time (docs/measurements.md). Those of
    `tokenizers` release the GIL, so threads help. Resuming costs as much as resuming `reader`.

    Args:
        reader: Any reader of chats.
        tokenizer: One of `tokenizers`, or a fast one of transformers; or a pair of functions
            `(encode, decode)`, where `encode(text)` returns tokens and the (begin, end) of each in
            the text.
        template: A Jinja template as text, as models ship it; None for the tokenizer's own.
        turns: Whether "all" replies count, or only the "last" one.
        tool_calls: Whether tool calls count. If not, a reply counts up to its first one.
        variables: Other names that the template reads, as in `{"enable_thinking": False}`; also
            `bos_token` and `eos_token`, which only tokenizers of transformers define.
        threads: The number of threads, as in `map_samples`; 0 uses the thread that iterates.
        processes: The number of worker processes, instead of threads.
        on_error: "raise", or "skip" to leave out up to 100 chats that raise, and warn of them.

    Raises:
        ModuleNotFoundError: `python -m pip install 'jreader[chat]'` is needed.
        TypeError: `tokenizer` is none of these, or there is no template.
        ValueError: The tokenizer truncates, the template reads a special token that is not given,
            or it is unclear where a reply ends.
        FeedMismatch: A sample is not a chat; none or all of its tokens count; or the template drops
            what the assistant says (while iterating).
    """

    shown_call = _CALL

    def __init__(
        self,
        reader: Reader[Any],
        tokenizer: Any,
        template: str | None = None,
        *,
        turns: Literal["all", "last"] = "all",
        tool_calls: bool = True,
        variables: Mapping[str, Any] | None = None,
        threads: int = 0,
        processes: int = 0,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> None:
        text: Any = template or getattr(tokenizer, "chat_template", None)
        made = ChatTokens(tokenizer, text, turns, tool_calls, variables or {})
        super().__init__(made, reader, threads=threads, processes=processes, on_error=on_error)

    def written(self, *but: object) -> Iterator[str]:
        """Yield the map's arguments and those of the chat, except defaults."""
        made: Any = self.fn
        yield from super().written(made, *but)
        for each in fields(made)[:-1]:
            if (value := getattr(made, each.name)) not in (each.default, {}):
                yield f"{each.name}={described(value)}"


def marked_text(
    sample: Mapping[str, Any], tokenizer: Any, marks: tuple[str, str] = ("⟦", "⟧")
) -> str:
    """Return the text of a `chat` sample, with marks around what counts in the loss.

    Rows of `pack` have the same fields, and work as well.

    >>> letters = lambda text: (list(text.encode()), [(n, n + 1) for n in range(len(text))])
    >>> sample = {"tokens": np.array([72, 105, 33]), "loss_mask": np.array([False, True, True])}
    >>> marked_text(sample, (letters, lambda tokens: bytes(tokens).decode()))
    'H⟦i!⟧'

    Args:
        sample: Has `tokens` and `loss_mask`, one-dimensional and of equal length.
        tokenizer: The tokenizer that made the tokens.
        marks: Written before and after: `("<mark>", "</mark>")` highlights in HTML.

    Raises:
        FeedMismatch: The sample lacks these fields.
        TypeError: `chat` does not accept this `tokenizer`.
    """
    call = "marked_text(sample, tokenizer)"
    tokens, mask = (np.asarray(sample.get(name)) for name in ("tokens", "loss_mask"))
    if tokens.ndim != 1 or tokens.shape != mask.shape:
        raise FeedMismatch(
            f"{call} needs tokens and loss_mask of one sample of chat, not {described(sample)}."
        )
    decode = coder_of(call, tokenizer)[1]
    text, done = "", 0
    for end in [*np.flatnonzero(np.diff(mask)) + 1, len(mask)]:
        part = decode(tokens[:end].tolist())[done:]  # a first token may decode differently
        text += f"{marks[0]}{part}{marks[1]}" if mask[:end].any() and mask[end - 1] else part
        done += len(part)
    return text


def decoder_of(reader: Reader[Any]) -> Callable[..., str] | None:
    """Return the function that decodes the tokens of a plan; None if it tokenizes no chats."""
    made: Any = (op.fn for op in ops_of(reader) if isinstance(op, chat))
    return next((coder_of(_CALL, each.tokenizer)[1] for each in made), None)


def _templates() -> Any:
    return extra("jreader.chats.templates", "chat", "chat templates need Jinja")


def _messages_of(sample: Any) -> Any:
    messages: Any = sample.get("messages") if isinstance(sample, Mapping) else None
    several = isinstance(messages, (list, tuple)) and len(messages) > 0
    if not several or not all(isinstance(each, Mapping) for each in messages):
        raise FeedMismatch(
            f"{_CALL} needs dicts with messages, a list of dicts with role and content, and got "
            f"{described(sample)}: make them with .map(fn)."
        )
    return messages


def _check_rendered(message: Mapping[str, Any], owner: int, owners: str) -> None:
    """Raise FeedMismatch if the template drops content or calls of a message."""
    for key, own in ("content", owner), ("tool_calls", owner + OF_TOOL):
        texts = (str(leaf) for leaf in leaves(message.get(key)) if leaf is not None)
        said = any(text.rpartition("</think>")[2].strip() for text in texts)  # may be dropped
        if said and chr(own) not in owners and chr(own | GENERATED) not in owners:
            raise FeedMismatch(
                f"{_CALL} does not find {key} of {described(message)} in the rendered chat: the "
                "template leaves it out, or rewrites it. Leave it out, or take another template."
            )
