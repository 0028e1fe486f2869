"""Rows of files elsewhere: the bytes of a batch in few requests, of several batches at a time."""

from __future__ import annotations

import random
import threading
from threading import Event

import numpy as np
import pytest
from programs import PATIENCE
from remote_server import RemoteServer
from samples import check_resumes_everywhere, everything

import jreader
from jreader import Pipeline, Store
from jreader.errors import DamagedData
from jreader.readers import fingerprint, start

pytest.importorskip("fsspec")
pytestmark = pytest.mark.usefixtures("quick", "cache")

VALUES = np.random.default_rng(0).integers(0, 50, 40_000).astype(np.uint16)


@pytest.fixture
def folder(server, tmp_path):
    """Tokens in three files, here and on the server."""
    for number, part in enumerate(np.split(VALUES, [17_001, 17_002])):
        part.tofile(tmp_path / f"{number}.bin")
        server.files[f"data/{number}.bin"] = part.tobytes()
    return tmp_path


@pytest.fixture
def near(monkeypatch):
    """A server that is so quick that ranges are read as one only where they touch."""
    init = jreader.sources.files.remote_files.RemoteFile.__init__

    def made(file, *given):
        init(file, *given)
        file.near = 0

    monkeypatch.setattr("jreader.sources.files.remote_files.RemoteFile.__init__", made)


PLANS = {
    "documents": lambda reader: reader.shuffle(seed=1),
    "windows": lambda reader: reader.windows(100).shuffle(seed=1).batch(7),
    "windows that overlap": lambda reader: reader.windows(100, stride=33).batch(7),
    "windows within documents": lambda reader: reader.windows(9, across=False).batch(7),
    "windows of documents in another order": lambda reader: reader.skip(3).windows(64).batch(5),
    "packs": lambda reader: reader.shuffle(seed=1).pack(1024, seed=1).batch(4),
    "padded batches": lambda reader: reader.shuffle(seed=1).padded_batch(6),
    "buckets": lambda reader: reader.bucket([32, 64, 2000], 4, seed=2),
    "a chain": lambda reader: reader.chain(reader.shuffle(seed=3)).windows(50).batch(9),
    "a mixture": lambda reader: jreader.mix([reader, reader], [2, 1], seed=1),
}


@pytest.mark.filterwarnings("ignore:windows")
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_gives_what_it_gives_of_files_here(server, folder, plan, stored, tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("store"), "1MB", block="4kB") if stored else None
    far = Pipeline(jreader.tokens(f"{server.url}/data/", eos=0, store=store))
    here = Pipeline(jreader.tokens(folder, eos=0))
    assert everything(PLANS[plan](far)) == everything(PLANS[plan](here))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("block", [None, 100])
def test_shards_that_are_read_by_ranges_go_with_those_that_are_mapped(
    server, tmp_path, order, block
):
    """Of this machine, and copies of those in Fortran's order."""
    rows = np.arange(600).reshape(300, 2)
    np.save(file := server_file(server, "a.npy"), rows)
    file.keep()
    np.save(tmp_path / "b.npy", np.asarray(rows + 600, order=order))
    server.files["b.npy"] = (tmp_path / "b.npy").read_bytes()
    urls = [f"{server.url}/a.npy", f"{server.url}/b.npy", str(tmp_path / "b.npy")]
    for shards in (urls, urls[::-1]):
        reader = jreader.npy(shards, block=block)
        expected = np.concatenate([rows + 600 * (name[-5] == "b") for name in shards])
        np.testing.assert_array_equal(np.stack(list(reader())), expected)
        batches = jreader.batch(reader, 7)()
        np.testing.assert_array_equal(np.concatenate([*map(np.asarray, batches)]), expected)
        if block is not None:
            shuffled = np.stack(list(Pipeline(reader).shuffle(seed=1, blocks=3)))
            assert sorted(shuffled.tolist()) == sorted(expected.tolist())
        assert [row.tolist() for row in start(reader, 590).items] == expected[590:].tolist()


def test_a_pass_goes_on_after_any_sample(server):
    server.files["a.bin"] = VALUES[:300].tobytes()
    documents = jreader.tokens(f"{server.url}/a.bin", eos=0)
    check_resumes_everywhere(Pipeline(documents).shuffle(seed=1).reader)
    check_resumes_everywhere(Pipeline(documents).windows(20).batch(3).reader)


def test_rows_that_touch_are_one_request_and_others_one_each(server, near):
    np.save(file := server_file(server, "a.npy"), np.arange(1000))
    file.keep()
    rows = jreader.npy(f"{server.url}/a.npy").columns
    asked = len(server.asked)
    assert rows.gather(np.array([7, 500, 6, 5, 501])).tolist() == [7, 500, 6, 5, 501]
    assert len(server.asked) == asked + 2


def test_ranges_of_several_files_are_on_their_way_together(server, folder):
    """The first is not answered before that of another file is asked for."""
    rows = jreader.tokens(f"{server.url}/data/").columns.values
    asked = list[str]()
    both = Event()

    def mood(method, name):
        if method == "GET":
            asked.append(name)
            if len({*asked}) == 2:
                both.set()
            server._lock.release()
            try:
                assert both.wait(PATIENCE)
            finally:
                server._lock.acquire()
        return "good"

    server.mood = mood
    assert rows.gather(np.array([39_000, 5])).tolist() == VALUES[[39_000, 5]].tolist()


@pytest.mark.parametrize("kind", ["documents", "windows", "rows", "lines", "lines in any order"])
def test_the_next_batches_are_on_their_way_while_one_is_taken(server, folder, kind, near):
    """The second is asked for before the first is answered, and no more than four are."""
    server.files["data/0.bin.jsonl"] = b"".join(b"%d\n" % number for number in range(40))
    plan = {
        "documents": lambda url: Pipeline(jreader.tokens(url, eos=0)).batch(1),
        "windows": lambda url: Pipeline(jreader.tokens(url)).windows(100).batch(1),
        "rows": lambda url: Pipeline(jreader.tokens(url)).windows(10).batch(10),
        "lines": lambda url: Pipeline(jreader.jsonl(f"{url}.jsonl")).batch(2),
        "lines in any order": lambda url: (
            Pipeline(jreader.jsonl(f"{url}.jsonl")).shuffle(seed=1).batch(1)
        ),
    }[kind](f"{server.url}/data/0.bin")
    first = everything(plan.firstn(3))
    spans, second = list[str](), Event()

    def mood(method, _name):
        if method == "GET":
            spans.append(server.asked[-1][2])
            if len({*spans}) == 2:  # a try again asks for the same
                second.set()
            server._lock.release()
            try:
                assert second.wait(PATIENCE)
            finally:
                server._lock.acquire()
        return "good"

    server.mood = mood
    batches = iter(plan)
    next(batches)
    assert len({*spans}) <= 6
    batches.close()
    server.mood = lambda _method, _name: "good"
    assert everything(plan.firstn(3)) == first


def test_a_pass_that_is_closed_leaves_no_thread(server, folder):
    batches = iter(Pipeline(jreader.tokens(f"{server.url}/data/")).windows(10).batch(3))
    next(batches)
    batches.close()
    for thread in threading.enumerate():
        if thread.name == "jreader late rows":
            thread.join(PATIENCE)  # its result is there, and it ends next
            assert not thread.is_alive()


def test_good_samples_come_before_the_error(server, near):
    server.files["a.bin"] = VALUES.tobytes()
    documents = Pipeline(jreader.tokens(f"{server.url}/a.bin", eos=0))
    expected = everything(documents)
    bad = int(np.cumsum([len(each) for each in expected])[99]) * 2  # the byte behind document 99

    def mood(method, _name):
        span = server.asked[-1][2]
        ends = int(span.partition("-")[2]) if span else 0
        return 503 if method == "GET" and ends >= bad else "good"

    server.mood = mood
    given = []
    with pytest.raises(OSError, match=r"a\.bin could not be read in 6 tries"):
        given.extend(each.tolist() for each in documents)
    assert given == expected[:100]


@pytest.mark.parametrize("etags", [True, False, "weak"])
def test_a_file_that_is_replaced_in_the_middle_of_a_pass_is_noticed(server, near, etags):
    server.etags = etags
    server.dates["a.bin"] = "Mon, 23 Nov 2026 08:00:00 GMT"
    server.files["a.bin"] = VALUES.tobytes()
    windows = Pipeline(jreader.tokens(f"{server.url}/a.bin")).windows(10).batch(10)
    batches, given = iter(windows), []
    given.append(next(batches))
    server.files["a.bin"] = (VALUES + 1).tobytes()
    server.dates["a.bin"] = "Tue, 24 Nov 2026 08:00:00 GMT"
    with pytest.raises(DamagedData, match=r"a\.bin was replaced by another file"):
        given.extend(batches)
    seen = np.concatenate([batch.columns for batch in given]).reshape(-1)
    assert seen.tolist() == VALUES[: len(seen)].tolist()


def test_a_cursor_of_far_rows_is_refused_by_files_of_other_sizes_only(server):
    server.files["a.bin"] = VALUES.tobytes()
    plan = Pipeline(jreader.tokens(f"{server.url}/a.bin?sig=one", eos=0)).shuffle(seed=1).batch(8)
    feeds = iter(plan.padded() if hasattr(plan, "padded") else plan.reader())
    next(feeds)
    marks = fingerprint(plan.reader)
    again = Pipeline(jreader.tokens(f"{server.url}/a.bin?sig=two", eos=0)).shuffle(seed=1).batch(8)
    assert fingerprint(again.reader) == marks
    server.files["b/a.bin"] = VALUES[:-1].tobytes()
    other = Pipeline(jreader.tokens(f"{server.url}/b/a.bin", eos=0)).shuffle(seed=1).batch(8)
    assert fingerprint(other.reader) != marks


def test_processes_open_files_where_they_work(server, folder):
    plan = Pipeline(jreader.tokens(f"{server.url}/data/")).windows(500).shuffle(seed=1)
    expected = [int(window.sum()) for window in plan]
    assert list(plan.map(np.sum, processes=2)) == expected


def test_a_forked_process_reads_by_itself(server, folder, python):
    script = f"""
        import os
        from jreader import Pipeline, tokens
        plan = Pipeline(tokens("{server.url}/data/")).windows(100).batch(3)
        batches = iter(plan)
        first = next(batches)
        child = os.fork()
        if not child:
            again = next(iter(plan)).columns
            os._exit(0 if (again == first.columns).all() else 1)
        print(os.waitpid(child, 0)[1], len(list(batches)))
    """
    assert python(script).stdout.split()[0] == "0"


def test_the_rest_of_a_pass_is_read_after_some_requests_have_failed(server, near):
    server.files["a.bin"] = VALUES.tobytes()
    drawn = random.Random(1)

    def mood(_method, _name):
        again = server.asked.count(server.asked[-1]) > 3
        return "good" if again else drawn.choice(["good", "drop", "half", 503, "good", "good"])

    server.mood = mood
    plan = Pipeline(jreader.tokens(f"{server.url}/a.bin")).windows(50).batch(40)
    batches = start(plan.reader, 120)
    seen = np.concatenate([batch.columns for batch in batches.items]).reshape(-1)
    assert seen.tolist() == VALUES[120 * 50 :].tolist()


class server_file:
    """A file that NumPy writes, which a server gives then."""

    def __init__(self, server: RemoteServer, name: str):
        self.server, self.name, self.parts = server, name, []

    def write(self, data):
        self.parts.append(bytes(data))

    def keep(self):
        self.server.files[self.name] = b"".join(self.parts)
