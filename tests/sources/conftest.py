"""A server of files elsewhere, to which tests give its files; and a cache folder of a test."""

from __future__ import annotations

import pytest
from placed import Placed
from remote_server import RemoteServer

from jreader import Store
from jreader.sources import remote, retries


@pytest.fixture
def quick(monkeypatch):
    """No pauses between tries, and files that are looked at whenever they are asked for."""
    monkeypatch.setattr(retries, "_PAUSE", 0.0)
    monkeypatch.setattr(remote, "_FRESH", -1.0)


@pytest.fixture
def server():
    """It is asked through aiohttp, and closed in the end."""
    pytest.importorskip("aiohttp")
    served = RemoteServer()
    yield served
    served.close()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache folder of its own for each test, in which indices of small files are kept too."""
    monkeypatch.setattr("jreader.sources.files.index_cache._WORTH", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "jreader" / "documents"


@pytest.fixture(params=["here", "in memory", "served"])
def placed(request, tmp_path, tmp_path_factory):
    """Files lie here, in fsspec's memory, or on a server, of which a store keeps small blocks."""
    if request.param == "here":
        yield Placed(tmp_path)
        return
    request.getfixturevalue("quick")
    if request.param == "served":
        server = request.getfixturevalue("server")
        store = Store(tmp_path_factory.mktemp("store"), "1MB", block=64)
        yield Placed(tmp_path, server.url, server.put, store=store)
        return
    memory = pytest.importorskip("fsspec").filesystem("memory")

    def put(name, data):
        path = f"/placed/{name}"
        memory.rm_file(path) if data is None else memory.pipe(path, data)

    yield Placed(tmp_path, "memory://placed", put)
    if memory.exists("/placed"):
        memory.rm("/placed", recursive=True)
