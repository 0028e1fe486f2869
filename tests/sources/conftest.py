"""Files elsewhere: a server that the tests give its files."""

from __future__ import annotations

import pytest
from far_server import FarServer

from jreader.sources import far_systems, far_tries


@pytest.fixture
def quick(monkeypatch):
    """No pauses between tries, and files that are looked at whenever they are asked for."""
    monkeypatch.setattr(far_tries, "_PAUSE", 0.0)
    monkeypatch.setattr(far_systems, "_FRESH", -1.0)


@pytest.fixture
def server():
    """It is asked through aiohttp, and closed in the end."""
    pytest.importorskip("aiohttp")
    served = FarServer()
    yield served
    served.close()
