"""Words that users of Paddle, PyTorch, Grain and tf.data type, and what to type here instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from tomllib import loads
from typing import Any

_METHOD_OF = {"buffered": "prefetch", "map_samples": "map"}


@cache
def known_words() -> dict[str, dict[str, Any]]:
    """Return other libraries' words, and what to type instead (`hints.toml`); read at a mistake.

    >>> known_words()["methods"]["take"], known_words()["keywords"]["skip"]["count"]
    ('.firstn(n)', 'n=count')
    """
    return loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def missing_attribute(kind: type, name: str, words: str = "methods") -> str:
    """Return the error message for an attribute that a class lacks.

    >>> from jreader import DataLoader, Pipeline
    >>> missing_attribute(Pipeline, "take")
    "Pipeline has no 'take': type .firstn(n)."
    >>> missing_attribute(DataLoader, "shuffle", "loader")
    "DataLoader has no 'shuffle': type .shuffle(...) before .load()."

    Args:
        kind: The class.
        name: The attribute.
        words: The table of `hints.toml` that says what to type instead.
    """
    if instead := known_words()[words].get(name):
        return f"{kind.__name__} has no {name!r}: {_to_type(instead)}."
    return f"{kind.__name__!r} object has no attribute {name!r}"


def missing_name(name: str) -> str | None:
    """Return the error message for a name that other libraries have; None if none is known.

    >>> missing_name("from_tensor_slices")
    "jreader has no 'from_tensor_slices': type Pipeline(jreader.arrays(images, labels))."
    """
    instead = known_words()["names"].get(name)
    return f"jreader has no {name!r}: {_to_type(instead)}." if instead else None


def check_keywords(call: str, fn: Callable[..., Any], given: Collection[str]) -> None:
    """Raise TypeError if a function does not take a keyword; the error says what to type instead.

    >>> check_keywords("Pipeline.shuffle", lambda buf_size, seed: None, ["buffer_size"])
    Traceback (most recent call last):
    TypeError: Pipeline.shuffle(...) takes no buffer_size=: type buf_size=n.

    Args:
        call: The call, as users type it.
        fn: The function.
        given: The keywords of a call.
    """
    takes = _keywords_of(fn)
    for name in given:
        if takes is not None and name not in takes:
            raise TypeError(f"{call}(...) takes no {name}=: {accepted_keyword(call, takes, name)}")


def accepted_keyword(call: str, takes: list[str], name: str) -> str:
    """Return what to type instead of a keyword that a call does not take.

    >>> accepted_keyword("Pipeline.shuffle", ["buf_size", "seed"], "sed")
    'did you mean seed=?'
    """
    method = call.rpartition(".")[2]
    words = known_words()
    own = words["keywords"].get(_METHOD_OF.get(method, method), {})
    if known := own.get(name) or words["anywhere"].get(name):
        return f"{_to_type(known)}."
    if close := get_close_matches(name, takes, 1):
        return f"did you mean {close[0]}=?"
    return f"it takes {', '.join(takes)}." if takes else "it takes no argument."


def _to_type(instead: str) -> str:
    return instead if instead.startswith("leave") else f"type {instead}"


@lru_cache(256)  # every new op asks
def _keywords_of(fn: Callable[..., Any]) -> list[str] | None:
    """Return the names of keyword arguments; None if any name is accepted."""
    parameters = inspect.signature(fn).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    named = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    return [each.name for each in parameters if each.kind in named and each.name != "self"]
