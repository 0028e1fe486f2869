"""Every warning is on its page, goes one way, and can be found there by what it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from jreader import errors

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "warnings.md").read_text()
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text() for path in ROOT.glob("jreader/**/*.py")
}


def calls(name):
    """Each call of a function of that name, and the constant parts of what it says."""
    for path, text in SOURCES.items():
        tree = ast.parse(text if f"{name}(" in text else "")  # to parse all takes a second
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (name, f"errors.{name}"):
                yield f"{path}:{node.lineno}", said(node.args[0])


def said(text):
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    return "".join(part.value if isinstance(part, ast.Constant) else "..." for part in parts)


def table(title, page=PAGE):
    """The first column of the table of a section."""
    section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)
    return [fragment for row in rows for fragment in re.findall(r"`(.+?)`", row)]


WARNED = {  # the linter's are in docs/linting.md: tests/linting/test_planted_faults.py
    place: text for place, text in calls("warn") if not place.startswith("jreader/linting/")
}
ERRORS = (ROOT / "docs" / "errors.md").read_text()
TABLES = [
    *("Building a plan", "Samples and batches", "Devices and epochs"),
    *("Stopping and resuming", "Files", "Threads and processes"),
]
RAISED = [fragment for title in TABLES for fragment in table(title, ERRORS)]
TOLD, REFUSED = table("Every warning"), table("Errors that need an explanation")


def test_the_tables_and_the_code_have_warnings_and_errors():
    assert len(WARNED) >= len(TOLD) >= 10
    assert len(REFUSED) >= 8
    assert len(RAISED) >= 40


@pytest.mark.parametrize("place", WARNED)
def test_every_warning_is_on_the_page(place):
    assert [fragment for fragment in TOLD if fragment in WARNED[place]], WARNED[place]


@pytest.mark.parametrize("fragment", TOLD)
def test_what_the_page_says_of_warnings_is_said(fragment):
    assert [place for place, text in WARNED.items() if fragment in text]


JOINED = re.sub(r'"\s*f?"', "", " ".join(SOURCES.values()))  # texts that go over lines


@pytest.mark.parametrize("fragment", REFUSED + RAISED)
def test_what_the_pages_say_of_refusals_and_errors_is_said(fragment):
    assert fragment in JOINED


def test_the_page_of_errors_has_every_exception():
    listed = table("Exceptions", ERRORS)
    raised = {name for name, kind in vars(errors).items() if isinstance(kind, type)}
    ours = {name for name in raised if issubclass(getattr(errors, name), Exception)}
    assert {*listed} >= ours - {"LintWarning"}


def test_warnings_go_one_way():
    """Or some would be without the user's line, or be told again and again."""
    others = [path for path, text in SOURCES.items() if "warnings.warn" in text]
    assert others == ["jreader/errors.py"]
