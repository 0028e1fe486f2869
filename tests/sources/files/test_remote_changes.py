"""A far file that another one replaces is an error, whatever its server says or leaves out."""

from __future__ import annotations

import pytest

import jreader
from jreader import Pipeline, Store
from jreader.errors import DamagedData, NotResumable
from jreader.loaders.checkpoints.cursors import checked, sealed
from jreader.sources import remote
from jreader.sources.files import open_file

pytest.importorskip("fsspec")

MONDAY, TUESDAY = "Mon, 23 Nov 2026 08:00:00 GMT", "Tue, 24 Nov 2026 08:00:00 GMT"


def lines(letter, many=1000):
    return b"".join(b'"%s%05d"\n' % (letter, number) for number in range(many))


@pytest.fixture
def small(monkeypatch):
    """So little is read ahead that a pass asks for ranges until its end."""
    monkeypatch.setattr("jreader.sources.files.records._BYTES", 500)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("etags", "dates"), [("weak", False), (False, True), (True, False), ("weak", True)]
)
def test_a_file_that_is_replaced_while_it_is_read_is_never_mixed_with_the_new_one(
    server, etags, dates
):
    """The server looks at no `If-Match`, and nothing is looked at again within 30 s."""
    server.etags, server.heeds = etags, False
    server.files["a.jsonl"] = lines(b"a")
    server.dates = {"a.jsonl": MONDAY} if dates else {}
    items = jreader.jsonl(f"{server.url}/a.jsonl")()
    given = [next(items)]
    server.files["a.jsonl"] = lines(b"b")
    server.dates = {"a.jsonl": TUESDAY} if dates else {}
    with pytest.raises(DamagedData, match=r"a\.jsonl was replaced by another file"):
        given.extend(items)
    assert given == [f"a{number:05d}" for number in range(len(given))]


@pytest.mark.usefixtures("small")
def test_a_file_that_grows_is_noticed_by_the_range_that_comes(server):
    """Where neither an ETag nor a date says so."""
    server.etags = False
    server.files["a.jsonl"] = lines(b"a")
    items = jreader.jsonl(f"{server.url}/a.jsonl")()
    next(items)
    server.files["a.jsonl"] = lines(b"b", 1001)
    with pytest.raises(DamagedData, match="had 9,000 bytes, and has 9,009 now"):
        list(items)


@pytest.mark.usefixtures("small")
def test_a_file_of_another_system_is_looked_at_while_it_is_read(monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setattr(remote, "_FRESH", -1.0)
    memory = fsspec.filesystem("memory")
    memory.pipe("/changes/a.jsonl", lines(b"a"))
    items = jreader.jsonl("memory://changes/a.jsonl")()
    next(items)
    memory.pipe("/changes/a.jsonl", lines(b"b"))
    with pytest.raises(DamagedData, match="was replaced by another file"):
        list(items)


def test_a_new_reader_reads_what_is_there_now(server):
    server.files["a.jsonl"] = lines(b"a", 80)
    assert len(jreader.jsonl(f"{server.url}/a.jsonl")) == 80
    server.files["a.jsonl"] = lines(b"b", 100)
    expected = [f"b{number:05d}" for number in range(100)]
    assert list(jreader.jsonl(f"{server.url}/a.jsonl")()) == expected


@pytest.mark.parametrize("etags", [False, "weak"])
def test_a_store_gives_a_new_reader_no_block_of_an_earlier_file(server, tmp_path, etags):
    server.etags = etags
    for letter in (b"a", b"b"):
        server.files["a.jsonl"] = lines(letter)
        rows = jreader.jsonl(f"{server.url}/a.jsonl", store=Store(tmp_path / "store"))
        expected = [f"{letter.decode()}{number:05d}" for number in range(1000)]
        assert list(rows()) == expected
        assert list(rows()) == expected


def test_a_store_serves_several_passes_of_one_reader_whatever_the_server_says(server, tmp_path):
    server.etags = False
    server.files["a.jsonl"] = lines(b"a")
    store = Store(tmp_path / "store")
    rows = jreader.jsonl(f"{server.url}/a.jsonl", store=store)
    assert list(rows()) == list(rows())
    assert store.fetched == 9000


@pytest.mark.usefixtures("quick")
def test_an_answer_with_other_bytes_than_were_asked_for_is_not_taken(server):
    server.files["data"] = bytes(range(100))
    file = open_file(f"{server.url}/data")
    server.mood = lambda method, _name: "first" if method == "GET" else "good"
    with pytest.raises(
        OSError, match="bytes 10-19 were asked for, and the answer says: bytes 0-9/100"
    ):
        file.read(10, 10)
    assert server.tries()["data", "bytes=10-19"] == 6
    left = iter(["first"])
    server.mood = lambda method, _name: next(left, "good") if method == "GET" else "good"
    assert file.read(10, 10) == bytes(range(10, 20))


def test_a_size_that_cannot_be_is_an_error_before_memory_is_full(server, python):
    """2^60 bytes: 2^36 ranges of 16 MB."""
    server.files["a.jsonl"] = lines(b"a")
    server.claims["a.jsonl"] = 1 << 60
    script = f"""
        import resource
        from jreader import jsonl
        from jreader.sources import retries
        retries._PAUSE = 0.0
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        try:
            len(jsonl("{server.url}/a.jsonl"))
        except Exception as error:
            print(type(error).__name__, error)
    """
    said = python(script).stdout
    assert "DamagedData" in said or "OSError" in said
    assert "a.jsonl" in said


class TestACursor:
    def cursor(self, url):
        loader = Pipeline(jreader.jsonl(url)).map(ord_of).batch(10).load()
        feeds = iter(loader)
        next(feeds)
        return feeds.cursor

    def resumed(self, url, cursor):
        loader = Pipeline(jreader.jsonl(url)).map(ord_of).batch(10).load()
        return next(loader.steps(at=cursor))

    def test_is_refused_by_a_far_file_of_another_size(self, server):
        server.files["a.jsonl"] = lines(b"a")
        cursor = self.cursor(f"{server.url}/a.jsonl")
        server.files["a.jsonl"] += b"\n"  # as many lines
        with pytest.raises(NotResumable, match=r"'a.jsonl' of 9000 bytes, and here .* 9001 bytes"):
            self.resumed(f"{server.url}/a.jsonl", cursor)

    def test_goes_on_where_only_the_signature_is_another(self, server):
        server.files["a.jsonl"] = lines(b"a")
        cursor = self.cursor(f"{server.url}/a.jsonl?X-Amz-Signature=one&X-Amz-Date=monday")
        assert "one" not in str(cursor)
        assert "monday" not in str(cursor)
        self.resumed(f"{server.url}/a.jsonl?X-Amz-Date=tuesday&X-Amz-Signature=two", cursor)
        with pytest.raises(NotResumable, match="line 1 is jsonl"):
            self.resumed(f"{server.url}/a.jsonl?part=2&X-Amz-Signature=two", cursor)

    @pytest.mark.parametrize("query", ["", "?part=1", "?sig=1", "?part=1&sig=1"])
    def test_of_an_earlier_version_goes_on(self, server, query):
        server.files["a.jsonl"] = lines(b"a")
        url = f"{server.url}/a.jsonl{query}"
        cursor = self.cursor(url)
        plan = dict(cursor["plan"])
        assert plan.pop("layouts") == [files_elsewhere(query)]
        plan["ops"] = [f"jsonl(paths='a.jsonl{query}' of 0 bytes)", *plan["ops"][1:]]
        self.resumed(url, checked(sealed({**cursor, "plan": plan})))


def files_elsewhere(query):
    asked = "?***427caa64" if "part" in query else ""
    return f"files elsewhere: 'a.jsonl{asked}' of 9000 bytes"


def ord_of(line):
    return {"n": int(line[1:])}
