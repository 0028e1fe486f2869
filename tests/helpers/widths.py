"""How many examples a law has whose examples are costly, and which cases wait for CI."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

USUAL = 500  # the scale of the numbers that tests give: CI has a third of them


def examples(usual: int, least: int = 5) -> settings:
    """So many where the other laws have 500, and fewer where they have fewer.

    `least` is how many there are at any width: 3 where each compiles, or starts processes.
    """
    width = settings.default.max_examples
    return settings(max_examples=min(usual, max(usual * width // USUAL, least)))


def few(every: Iterable[Any], quick: Iterable[Any]) -> list[Any]:
    """The cases of a test, of which all but the quick ones wait for CI: they show the same.

    A tuple is a case of several parameters.
    """
    return [case if case in quick else _later(case) for case in every]


def _later(case: Any) -> Any:
    arguments = case if isinstance(case, tuple) else (case,)
    return pytest.param(*arguments, marks=pytest.mark.slow)
