"""`chat`: messages as tokens, with a mask of what the assistant says."""

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
    """What a tokenizer does: a function from a text to tokens and offsets, and one back.

    Args:
        call: The call that it was given to, for errors.
        tokenizer: Of tokenizers or of transformers; or a pair of functions.

    Raises:
        TypeError: It is none of these.
        ValueError: It truncates or pads.
    """
    if isinstance(tokenizer, tuple) and len(tokenizer) == 2 and all(map(callable, tokenizer)):
        return tokenizer
    known = getattr(tokenizer, "backend_tokenizer", tokenizer)  # that of transformers is inside
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
    """Makes tokens and a mask of a chat; its arguments are those of `chat`."""

    tokenizer: Any
    template: str
    turns: Literal["all", "last"] = choice("all", "last", default="all")
    tool_calls: bool = flag(default=True)
    variables: Mapping[str, Any] = field(default_factory=dict)
    edges: masks.Edges | None = field(default=None, init=False)
    shown_call: ClassVar[str] = _CALL

    def __post_init__(self) -> None:
        """Checks the arguments, and that the template shows what ends a reply."""
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
        if not re.search(r"\{%[-+]?\s*generation\s*[-+]?%\}", self.template):  # which says it
            set_fields(self, edges=masks.edges_of(_CALL, self.render))

    def render(self, messages: Sequence[Any], **given: Any) -> Tracked:
        """The text of messages."""
        known = {**getattr(self.tokenizer, "special_tokens_map", {}), **given, **self.variables}
        text: Tracked = _templates().compiled(self.template).render(known, messages=messages)
        return text

    def __call__(self, sample: Any) -> dict[str, Array]:
        """The tokens of a chat, and whether the assistant says each of them."""
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
        """The parts of a rendered chat that count."""
        said = [n for n, each in enumerate(messages, 1) if each.get("role") == "assistant"]
        for number in said:
            _check_rendered(messages[number - 1], STEP * number, text.owners)
        counted = said[-1:] if self.turns == "last" else [0, *said]
        parts = masks.with_edges(text, self.edges) if self.edges else masks.generated(text)
        cut = (lambda _, part: part) if self.tool_calls else masks.without_tools
        return [cut(text, part) for part in parts if part.message in counted]

    def __repr__(self) -> str:
        """What errors and traces call it."""
        return "chat"


@op
class chat(map_samples[dict[str, Any]]):
    """Renders and tokenizes chats, with a mask of what the assistant says.

    Samples are dicts with `messages` (dicts with `role`, `content` or `tool_calls`), and perhaps
    `tools`. It makes dicts of `tokens` (int32[n]) and `loss_mask` (bool[n]); other fields are left
    out. True is what the model has to say: content, reasoning and tool calls, with the marker that
    ends the reply; not the header before it, nor the line break behind it.

    >>> from jreader import marked_text
    >>> letters = lambda text: (list(text.encode()), [(n, n + 1) for n in range(len(text))])
    >>> tokenizer = letters, lambda tokens: bytes(tokens).decode()
    >>> template = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}"
    >>> ask = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}
    >>> chats = chat(lambda: [{"messages": ask}], tokenizer, template)
    >>> [marked_text(sample, tokenizer) for sample in chats()]
    ['u:2+2?;a:⟦4;⟧']

    The template is rendered once, as transformers does, with texts that know which message they
    come from, whatever the template does to them. If it has `{% generation %}` blocks, these are
    what is said, as in `return_assistant_tokens_mask` of transformers. A token counts if one of its
    characters does. An unclear mask is an error, never a guess.

    Cost: the tokenizer takes more than half of it (docs/measurements.md). Tokenizers of
    `tokenizers` release the GIL, so threads help. Resuming costs what it costs in
    `reader`.

    Args:
        reader: Any reader of chats.
        tokenizer: One of `tokenizers`, or a fast one of transformers; or a pair of functions
            `(encode, decode)`, where `encode(text)` gives tokens and the (begin, end) of each in
            the text.
        template: A Jinja template as text, as models ship it; None for that of the tokenizer.
        turns: Whether "all" replies count, or only the "last" one.
        tool_calls: Whether calls of tools count. Without them, a reply counts up to its first one.
        variables: What the template reads besides, as in `{"enable_thinking": False}`; also
            `bos_token` and `eos_token`, which only tokenizers of transformers know.
        threads: The number of threads, as in `map_samples`; 0 uses the thread that iterates.
        processes: The number of worker processes, instead of threads.
        on_error: "raise", or "skip" to leave out up to 100 chats that raise, and warn of them.

    Raises:
        ModuleNotFoundError: `python -m pip install 'jreader[chat]'` is needed.
        TypeError: `tokenizer` is none of these, or there is no template.
        ValueError: The tokenizer truncates, the template reads a special token that is not given,
            or it is unclear what ends a reply.
        FeedMismatch: A sample is no chat; none of its tokens counts, or all do; or the template
            leaves out what the assistant says (while iterating).
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
        """The arguments of a map, and those of the chats, but for defaults."""
        made: Any = self.fn
        yield from super().written(made, *but)
        for each in fields(made)[:-1]:
            if (value := getattr(made, each.name)) not in (each.default, {}):
                yield f"{each.name}={described(value)}"


def marked_text(
    sample: Mapping[str, Any], tokenizer: Any, marks: tuple[str, str] = ("⟦", "⟧")
) -> str:
    """The text of a sample of `chat`, with marks around what counts in the loss.

    A row of `pack` has the same fields, and is shown as well.

    >>> letters = lambda text: (list(text.encode()), [(n, n + 1) for n in range(len(text))])
    >>> sample = {"tokens": np.array([72, 105, 33]), "loss_mask": np.array([False, True, True])}
    >>> marked_text(sample, (letters, lambda tokens: bytes(tokens).decode()))
    'H⟦i!⟧'

    Args:
        sample: Has `tokens` and `loss_mask`, one-dimensional, of one length.
        tokenizer: The one that made the tokens.
        marks: What stands before and behind it: `("<mark>", "</mark>")` colours HTML.

    Raises:
        FeedMismatch: The sample has no such fields.
        TypeError: `tokenizer` is none that `chat` takes.
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
        part = decode(tokens[:end].tolist())[done:]  # a first token may be decoded in its own way
        text += f"{marks[0]}{part}{marks[1]}" if mask[:end].any() and mask[end - 1] else part
        done += len(part)
    return text


def decoder_of(reader: Reader[Any]) -> Callable[..., str] | None:
    """What makes a text of the tokens of a plan; None, if it tokenizes no chats."""
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
    """Raises FeedMismatch if a template leaves out content or calls of a message."""
    for key, own in ("content", owner), ("tool_calls", owner + OF_TOOL):
        texts = (str(leaf) for leaf in leaves(message.get(key)) if leaf is not None)
        said = any(text.rpartition("</think>")[2].strip() for text in texts)  # may be dropped
        if said and chr(own) not in owners and chr(own | GENERATED) not in owners:
            raise FeedMismatch(
                f"{_CALL} does not find {key} of {described(message)} in the rendered chat: the "
                "template leaves it out, or rewrites it. Leave it out, or take another template."
            )
