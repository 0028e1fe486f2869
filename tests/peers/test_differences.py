"""Every row of docs/differences.md names a test that exists, and every such test has its row."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/differences.md"


def rows():
    """The cells of each row of each table of the page, without the heads."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if not line.startswith("| where |")
    ]


def marked():
    """The names of all tests that are marked as differences."""
    found = []
    for file in [*HERE.glob("test_*.py"), *HERE.parent.glob("integrations/test_*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef):
                marks = [ast.unparse(mark) for mark in node.decorator_list]
                found += [node.name] * ("differs" in marks)
    return found


def test_rows_and_tests_of_differences_are_the_same():
    named = [name for row in rows() for name in re.findall(r"`(test_\w+)`", row[-1])]
    assert Counter(named) == Counter(marked())
    assert set(Counter(named).values()) == {1}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_row_says_what_differs_and_why(row):
    assert len(row) == 5
    assert all(row)
