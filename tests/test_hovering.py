"""What an editor shows for a name: the arguments that a call takes, and what it is for."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jreader
from jreader import DataLoader, Pipeline, PyReader
from tests.helpers.language_server import LanguageServer, installed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not installed(), reason="the language server needs `pyright[nodejs]`"),
]

PROGRAM = (Path(__file__).parent / "typed" / "every_name.py").read_text()
"""A program that uses every name; the methods are named after its last line."""

ANY_ARGUMENTS = [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]

METHODS = {
    f"{called}.{name}": getattr(kind, name)
    for called, kind, names in (
        ("pipeline", Pipeline, dir(Pipeline(list))),
        ("loader", DataLoader, dir(DataLoader)),
    )
    for name in names
    if not name.startswith("_") and callable(getattr(kind, name, None))
}


@pytest.fixture(scope="module")
def hover() -> Iterator[Callable[[str], str]]:
    """Shows what an editor shows for `jreader.NAME`, or for a method, `pipeline.NAME`."""
    methods = "".join(f"{name}\n" for name in METHODS)
    program = f"{PROGRAM}\npipeline = Pipeline(numbers)\nloader = pipeline.load()\n{methods}"
    with LanguageServer(program) as server:

        def shown(name: str) -> str:
            whole = name if name in METHODS else f"jreader.{name}"
            called = re.search(rf"\b{re.escape(whole)}\b", program)
            assert called, f"every_name.py does not name {name}"
            line = program[: called.start()].count("\n")
            column = called.end() - 1 - (program.rfind("\n", 0, called.end()) + 1)
            return server.hover(line, column)

        yield shown


def code_of(shown: str) -> str:
    """The signatures in what an editor shows: the first block of code."""
    found = re.search(r"```python\n(.*?)```", shown, re.DOTALL)
    return found.group(1) if found else ""


def parameters(shown: str, name: str) -> list[str]:
    """The names of the arguments, of the overload that has most; without `self`."""
    every: list[list[str]] = [[]]
    for text in re.split(rf"\b{name}(?=\()", code_of(shown))[1:]:
        each = arguments(text.replace(f"**P@{name}", "*args, **kwargs"))
        found = [re.match(r"\**(\w+)", argument) for argument in each]
        every.append([name[1] for name in found if name and name[1] not in ("self", "cls")])
    return max(every, key=len)


def arguments(text: str) -> list[str]:
    """What stands between the commas of the first brackets of a text."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0:
            break
        if letter == "," and depth == 1:
            found.append("")
        elif depth > 1 or letter != "(":
            found[-1] += letter
    return [each.strip() for each in found]


def expected(value: Any) -> list[str]:
    """The names of the arguments; none for `*args, **kwargs`, which pyright shows as `...`."""
    found = inspect.signature(value).parameters.values()
    if [each.kind for each in found] == ANY_ARGUMENTS:
        return []
    return [each.name for each in found if each.name not in ("self", "cls")]


def plain(text: str) -> str:
    """The words of a text: editors escape some characters of Markdown."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()


def first_sentence(value: Any) -> str:
    """What it is for: only a loader's `__init__` says that itself, with what it takes."""
    told = value.__init__ if value in (DataLoader, PyReader) else value
    return plain((inspect.getdoc(told) or "").partition("\n")[0])


CALLED = [
    name
    for name in jreader.__all__
    if name != "Reader" and f"jreader.{name}(" in PROGRAM and callable(getattr(jreader, name))
]


@pytest.mark.parametrize("name", CALLED)
def test_a_call_shows_the_arguments_of_its_name(hover, name):
    shown = hover(name)
    assert parameters(shown, name) == expected(getattr(jreader, name)), shown


@pytest.mark.parametrize("name", METHODS)
def test_a_method_shows_its_arguments(hover, name):
    shown = hover(name)
    assert parameters(shown, name.partition(".")[2]) == expected(METHODS[name]), shown


@pytest.mark.parametrize("name", [name for name in jreader.__all__ if name != "Reader"])
def test_a_name_shows_what_it_is_for(hover, name):
    if f"jreader.{name}" not in PROGRAM:
        pytest.skip("every_name.py has it without the package")
    shown = hover(name)
    assert first_sentence(getattr(jreader, name)) in plain(shown), shown


@pytest.mark.parametrize("name", METHODS)
def test_a_method_shows_what_it_is_for(hover, name):
    shown = hover(name)
    assert first_sentence(METHODS[name]) in plain(shown), shown
