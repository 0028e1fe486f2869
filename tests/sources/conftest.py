"""A server of files elsewhere, to which tests give its files; and a cache folder of a test."""

from __future__ import annotations

import pytest
from far_server import FarServer

from jreader.sources import far_retries, far_systems


@pytest.fixture
def quick(monkeypatch):
    """No pauses between tries, and files that are looked at whenever they are asked for."""
    monkeypatch.setattr(far_retries, "_PAUSE", 0.0)
    monkeypatch.setattr(far_systems, "_FRESH", -1.0)


@pytest.fixture
def server():
    """It is asked through aiohttp, and closed in the end."""
    pytest.importorskip("aiohttp")
    served = FarServer()
    yield served
    served.close()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache folder of its own for each test, in which indices of small files are kept too."""
    monkeypatch.setattr("jreader.sources.files.kept_indices._WORTH", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "jreader" / "documents"
