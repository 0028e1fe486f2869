"""Tokenizers of other libraries as two functions, and the text of tokens with their mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from jreader.errors import FeedMismatch
from jreader.readers import described


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
            f"{call} needs a tokenizer of tokenizers, a fast one of transformers, or a pair of "
            f"functions (encode, decode), not {described(tokenizer)}."
        )
    if known.truncation or known.padding:
        raise ValueError(
            f"{call} would lose tokens: type no_truncation() and no_padding() of the tokenizer."
        )

    def encode(text: str) -> tuple[list[int], list[tuple[int, int]]]:
        made = known.encode(text, add_special_tokens=False)
        return made.ids, made.offsets

    return encode, partial(known.decode, skip_special_tokens=False)


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
