"""Chat templates as models ship them, rendered as transformers does, into tracked texts.

It imports Jinja, so that only what renders imports it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError, meta, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from jreader.chats.tracked_text import GENERATED, Tracked, joined, owners_of


class _Generation(Extension):
    """The block `{% generation %}`: what stands in it is what the model says."""

    tags = {"generation"}  # noqa: RUF012  # as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("generated"), [], [], body).set_lineno(line)

    @staticmethod
    def generated(caller: Any) -> str:
        """What the block renders, marked as said."""
        text = caller()
        owners = owners_of(text)
        return Tracked(text, owners.translate({ord(own): ord(own) | GENERATED for own in owners}))


def _write_join(codes: CodeGenerator, node: nodes.Concat, frame: Frame) -> None:
    """Writes the code of `a ~ b`: it joins as all else does."""
    codes.write("concat((")
    for part in node.nodes:
        codes.write("str(")
        codes.visit(part, frame)
        codes.write("), ")
    codes.write("))")


class _Environment(ImmutableSandboxedEnvironment):
    code_generator_class = type("_Codes", (CodeGenerator,), {"visit_Concat": _write_join})
    concat = staticmethod(joined)  # of blocks, macros and all


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)  # templates tell the user's day


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """As JSON, with nothing escaped for HTML; it belongs to whom its first text belongs to."""
    text = json.dumps(value, ensure_ascii=ensure_ascii, **options)
    return Tracked(text, next(_owners_in(value), "\0") * len(text))


def _owners_in(value: Any) -> Iterator[str]:
    """The first owner of each text in a value."""
    if isinstance(value, Tracked):
        yield from value.owners[:1]
    elif isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _owners_in(part)


_environment = _Environment(
    trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
)
_environment.filters["tojson"] = _to_json
_environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}


@lru_cache(32)  # plans travel with the text alone
def compiled(text: str) -> Template:
    """The template of a text."""
    return _environment.from_string(text)


def names_read(text: str) -> set[str]:
    """The names that a template reads and does not set.

    >>> sorted(names_read("{% set a = b %}{{ a ~ bos_token }}"))
    ['b', 'bos_token']
    """
    return meta.find_undeclared_variables(_environment.parse(text))
