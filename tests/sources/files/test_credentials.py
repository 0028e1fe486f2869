"""Users, passwords and signatures in paths are shown nowhere, and reach the server."""

from __future__ import annotations

import io
import traceback
from contextlib import nullcontext

import cloudpickle
import numpy as np
import pytest
from files import idx_bytes
from hypothesis import given
from hypothesis import strategies as st
from widths import examples

import jreader
from jreader import Pipeline, Store
from jreader.errors import DamagedData, NotResumable
from jreader.readers import fingerprint, start
from jreader.readers.credentials import lasting, masked, name_in_cursor
from jreader.sources.file_checks import check_paths

pytest.importorskip("fsspec")
pytestmark = pytest.mark.usefixtures("quick")

SECRETS = ("hidden", "maria", "sesame")


@pytest.fixture
def url(server):
    server.files["a.jsonl"] = b"".join(b"[%d]\n" % number for number in range(100))
    return f"{server.url}/a.jsonl?sig=hidden".replace("://", "://maria:sesame@")


def npy_bytes(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def silent(text):
    return not any(secret in text for secret in SECRETS)


def shown(error):
    return "".join(traceback.format_exception(error))


def test_plans_notebooks_and_cursors_show_none(url):
    plan = Pipeline(jreader.jsonl(url)).map(first).batch(10)
    loader = plan.load()
    feeds = iter(loader)
    next(feeds)
    texts = [repr(plan), plan._repr_html_(), repr(loader), loader._repr_html_(), str(feeds.cursor)]
    assert all("a.jsonl" in text for text in texts)
    assert all(map(silent, texts))
    assert silent(repr(plan.peek()))


@pytest.mark.parametrize("mood", ["good", 403, 500, "half"])
@pytest.mark.parametrize("make", [jreader.tokens, jreader.npy, jreader.image_folder, jreader.idx])
def test_other_formats_show_none_either(server, make, mood):
    server.files["b/a.npy"] = npy_bytes(np.arange(12, dtype=np.uint16))
    server.files["b/a/1.png"] = b"a picture"
    server.files["b/a.idx"] = idx_bytes(np.arange(12, dtype=np.uint8))
    name = {"image_folder": "b", "idx": "b/a.idx"}.get(make.__name__, "b/a.npy?sig=hidden")
    plan = Pipeline(make(f"{server.url}/{name}".replace("://", "://maria:sesame@"))).shuffle(seed=1)
    texts = [repr(plan), plan._repr_html_(), str(fingerprint(plan.reader)), str(len(plan))]
    assert all(map(silent, texts))
    if make is jreader.idx:
        return  # it is in memory by now
    server.mood = lambda method, _name: mood if method == "GET" else "good"
    with pytest.raises((OSError, DamagedData)) if mood != "good" else nullcontext() as raised:
        list(plan)
    if raised:
        assert "http" in str(raised.value)
        assert silent(shown(raised.value))


@pytest.mark.parametrize("mood", [403, 404, 500, "drop", "half", "first", 412])
def test_errors_and_their_causes_show_none(url, server, mood):
    rows = jreader.jsonl(url)
    assert len(rows) == 100
    server.mood = lambda method, _name: mood if method == "GET" else "good"
    with pytest.raises((OSError, DamagedData)) as raised:
        list(rows())
    assert "/a.jsonl" in str(raised.value)
    assert silent(shown(raised.value))


@pytest.mark.parametrize("content", [b"", b"{]\n", b"[1]\n[2\n"])
def test_what_is_said_of_damage_shows_none(url, server, content):
    server.files["a.jsonl"] = content
    with pytest.raises(DamagedData, match=r"/a\.jsonl") as raised:
        list(jreader.jsonl(url)())
    assert silent(shown(raised.value))


def test_errors_of_lines_show_none(server, url):
    reader = jreader.text(url)
    texts = [repr(reader), str(fingerprint(reader))]
    with pytest.raises(NotResumable, match="byte 3 of http") as moved:
        list(start(reader, (0, 3)).items)
    server.files["a.jsonl"] = b"\xff\n"
    with pytest.raises(DamagedData, match=r"/a\.jsonl") as damaged:
        list(jreader.text(url)())
    assert all(map(silent, [*texts, shown(moved.value), shown(damaged.value)]))


def test_errors_where_a_reader_is_made_show_none(url, server):
    calls = [
        lambda: jreader.jsonl(url.replace("a.jsonl", "none")),
        lambda: jreader.files(url),
        lambda: jreader.jsonl(url, __file__.replace(".py", "*.gz")),
        lambda: jreader.jsonl(url.replace("a.jsonl", "*.tar")),
        lambda: check_paths("f", ("nope://maria:sesame@host/a",), remote=True),
        lambda: Pipeline(range(3).__iter__).write(url),
    ]
    for call in calls:
        with pytest.raises(Exception) as raised:  # noqa: PT011  # of several kinds
            call()
        assert silent(str(raised.value)), raised.value
    server.mood = lambda _method, _name: 503
    with pytest.raises(OSError, match=r"the size of http://\*\*\*@") as raised:
        jreader.jsonl(url)
    assert silent(shown(raised.value))


def test_stores_and_indices_are_named_without_them(url, cache, tmp_path):
    store = Store(tmp_path / "store")
    assert len(list(jreader.jsonl(url, store=store)())) == 100
    names = [str(path) for path in tmp_path.rglob("*")]
    assert any(name.endswith(".block") for name in names)
    assert any("lines" in name for name in names)
    assert all(map(silent, names))


def test_a_store_goes_on_with_another_signature(url, tmp_path):
    for each in (url, url.replace("hidden", "other")):
        store = Store(tmp_path / "store")
        assert len(list(jreader.jsonl(each, store=store)())) == 100
    assert store.misses == 0
    assert store.hits > 0


@pytest.mark.parametrize("etags", [True, False])
def test_a_store_tells_files_apart_by_what_is_asked(server, tmp_path, etags):
    """Two files of one size and date, of which the query says which is meant, as `key=` may be."""
    server.etags, server.by_query = etags, True
    for name in ("get?token=a", "get?token=b"):
        server.files[name] = b'"%s"\n' % name[-1].encode()
        server.dates[name] = "Mon, 23 Nov 2026 08:00:00 GMT"
    for letter in "abab":
        rows = jreader.jsonl(f"{server.url}/get?token={letter}", store=Store(tmp_path / "store"))
        assert list(rows()) == [letter]


def test_a_pickled_plan_reads_with_them(url):
    """A worker needs them: docs/far.md says so."""
    rows = cloudpickle.loads(cloudpickle.dumps(jreader.jsonl(url)))
    assert len(list(rows())) == 100
    assert silent(repr(rows))


names = st.text("abcXYZ019._~-%", min_size=1, max_size=8)


@examples(200)
@given(user=names, password=names, sig=names, part=st.none() | names, chain=st.booleans())
def test_whatever_they_are_a_text_is_shown_without_them(user, password, sig, part, chain):
    secrets = f"{user}Q:{password}Q"
    query = f"token={sig}Q" + (f"&part={part}" if part else "")
    url = f"{'simplecache::' * chain}https://{secrets}@host/folder/a.jsonl?{query}"
    text = masked(f"bytes 3 to 4 of {url!r}, then {url}")
    assert "Q" not in text
    assert text.count("https://***@host/folder/a.jsonl?***") == 2
    assert masked(text) == text
    assert "Q" not in name_in_cursor(url)
    if not chain:
        assert "Q" not in lasting(url)
        assert (part is None) == ("?" not in lasting(url))


def first(row):
    return {"n": row[0]}
