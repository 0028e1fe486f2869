"""Workers that are begun once."""

from __future__ import annotations

import pytest

from jreader.workers import Processes


@pytest.fixture(scope="module")
def two():
    """The same two workers for all tests of a file."""
    with Processes(2) as workers:
        yield workers
