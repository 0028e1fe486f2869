"""Render the chat templates that models ship, as transformers does, into tracked strings.

Imports Jinja, so only code that renders imports this module.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError, meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from jreader.chats.tracked_text import GENERATED, Tracked, rejoined
from jreader.readers.trees import leaves


class _Generation(Extension):
    """The block `{% generation %}`: the model says its content."""

    tags = {"generation"}  # noqa: RUF012  # as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("generated"), [], [], body).set_lineno(line)

    @staticmethod
    def generated(caller: Any) -> str:
        """Render the block, marked as generated."""
        text = caller()
        owners = {ord(own): ord(own) | GENERATED for own in {*text.owners}}
        return Tracked(text, text.owners.translate(owners))


class _Environment(ImmutableSandboxedEnvironment):
    concat = staticmethod(rejoined)  # joins outputs, blocks and macros


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)  # templates print the user's date


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """Convert to JSON without HTML escapes; the result belongs to the owner of its first text."""
    text = json.dumps(value, ensure_ascii=ensure_ascii, **options)
    owners = (leaf.owners[0] for leaf in leaves(value) if isinstance(leaf, Tracked) and leaf)
    return Tracked(text, next(owners, "\0") * len(text))


_environment = _Environment(
    trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
)
_environment.filters["tojson"] = _to_json
_environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
_environment.globals |= {"tools": None, "documents": None, "add_generation_prompt": False}


@lru_cache(32)  # plans pickle only the text
def compiled(text: str) -> Template:
    """Compile a template."""
    made = _environment.from_string(text)
    made.root_render_func.__globals__["str_join"] = _joined_all  # for `a ~ b`
    return made


def _joined_all(parts: Iterable[Any]) -> str:
    return rejoined(map(str, parts))


def names_read(text: str) -> set[str]:
    """Return the names that a template reads and does not set.

    >>> sorted(names_read("{% set a = b %}{{ a ~ bos_token }}"))
    ['b', 'bos_token']
    """
    return meta.find_undeclared_variables(_environment.parse(text))
