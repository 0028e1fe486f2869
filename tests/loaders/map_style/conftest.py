"""Workers that stay while many loaders ask for them."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from jreader import Processes


@pytest.fixture(scope="class")
def held():
    """Crews of one to four, or each example of a law would begin its own."""
    with ExitStack() as stack:
        for count in (1, 2, 3, 4):
            stack.enter_context(Processes(count)).submit(int).result()
        yield
