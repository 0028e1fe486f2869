"""Files elsewhere: the same bytes as here, whatever a server does, in a bounded number of tries."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import PATIENCE
from widths import examples

import jreader
from jreader.errors import DamagedData
from jreader.sources import far_retries
from jreader.sources.far_retries import may_pass
from jreader.sources.files import open_file, read_many

fsspec = pytest.importorskip("fsspec")
pytestmark = pytest.mark.usefixtures("quick")

CONTENT = random.Random(0).randbytes(1 << 16)


@pytest.fixture
def server(server):
    server.files["data"] = CONTENT
    return server


@pytest.fixture
def file(server):
    return open_file(f"{server.url}/data")


@pytest.fixture
def parts(monkeypatch):
    """Small parts, so that a range has several."""
    monkeypatch.setattr("jreader.sources.files.far_files._PART", 1000)


def moods(*each):
    """One after another for the requests of ranges, then good."""
    left = list(each)
    return lambda method, _name: left.pop(0) if left and method == "GET" else "good"


def test_any_range_is_what_the_file_has_there(file, server, parts):
    @examples(100)
    @given(st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 5000)), max_size=8))
    def law(asked):
        asked = [(low, min(size, len(CONTENT) - low)) for low, size in asked]
        expected = [CONTENT[low : low + size] for low, size in asked]
        assert [file.read(*each) for each in asked] == expected
        assert list(file.read_many(asked)) == expected

    law()


def test_a_long_range_is_asked_for_in_parts_each_once(file, server, parts):
    assert file.read(10, 4500) == CONTENT[10:4510]
    spans = [(10, 1009), (1010, 2009), (2010, 3009), (3010, 4009), (4010, 4509)]
    assert server.tries() == {("data", f"bytes={low}-{high}"): 1 for low, high in spans}


def test_more_than_there_is_cannot_be_asked_for(file):
    with pytest.raises(ValueError, match=r"were asked of .*data, which has 65,536 bytes"):
        file.read(65_530, 7)


@pytest.mark.parametrize("mood", ["drop", "half", 503, 429, 500, 408])
def test_what_fails_for_a_moment_is_tried_again(file, server, mood):
    server.mood = moods(mood, mood, mood)
    assert file.read(5, 100) == CONTENT[5:105]
    assert server.tries() == {("data", "bytes=5-104"): 4}


@pytest.mark.parametrize(
    ("mood", "said"),
    [
        ("drop", "ServerDisconnectedError"),
        ("half", "ClientPayloadError"),
        (503, "ClientResponseError: 503"),
    ],
)
def test_what_fails_for_good_is_an_error_after_a_bounded_number_of_tries(file, server, mood, said):
    server.mood = lambda method, _name: mood if method == "GET" else "good"
    message = f"bytes 5 to 105 of {server.url}/data could not be read in 6 tries; .*{said}"
    with pytest.raises(OSError, match=message) as raised:
        file.read(5, 100)
    assert raised.value.__cause__ is not None
    # aiohttp asks once more by itself where a connection that it kept is gone
    assert 6 <= server.tries()["data", "bytes=5-104"] <= (12 if mood == "drop" else 6)


def test_a_server_that_hangs_is_an_error_that_names_the_file(file, server, monkeypatch):
    monkeypatch.setattr(far_retries, "_CLOCK", 0.05)
    server.mood = lambda _method, _name: "hang"
    with pytest.raises(
        TimeoutError, match=r"bytes 5 to 105 of http.*/data: no complete answer .* 6"
    ):
        file.read(5, 100)
    tries = server.tries()  # a busy machine may not have sent one before it was given up
    assert sum(tries.values()) <= 6
    assert set(tries) <= {("data", "bytes=5-104")}


def test_a_server_that_hangs_once_is_asked_again(file, server, monkeypatch):
    monkeypatch.setattr(far_retries, "_CLOCK", 1.0)
    server.mood = moods("hang")
    assert file.read(5, 100) == CONTENT[5:105]


@pytest.mark.parametrize(("mood", "kind"), [(403, OSError), (401, OSError), (400, OSError)])
def test_what_cannot_pass_is_asked_for_once(file, server, mood, kind):
    server.mood = lambda method, _name: mood if method == "GET" else "good"
    with pytest.raises(kind, match="data could not be read in 1 try"):
        file.read(5, 100)
    assert len(server.tries()) == 1


def test_a_server_without_ranges_is_said_so(file, server):
    server.ranges = False
    with pytest.raises(OSError, match="data is served without ranges: 100 bytes were asked for"):
        file.read(5, 100)
    assert file.read(0, len(CONTENT)) == CONTENT


def test_requests_go_on_their_way_together(file, server, parts):
    """The first is not answered before another one is asked for."""
    met = Barrier(2)
    left = iter([met, met])

    def mood(method, _name):
        server._lock.release()
        try:
            next(left).wait(30)
        finally:
            server._lock.acquire()
        return "good"

    server.mood = mood
    assert file.read(0, 2000) == CONTENT[:2000]


def test_ranges_are_given_while_the_next_ones_are_on_their_way(file, server):
    """The first is taken before the second is answered, which was asked for already."""
    taken = Event()

    def mood(method, _name):
        if method == "GET" and server.asked[-1][2] == "bytes=20-29":
            server._lock.release()
            try:
                assert taken.wait(PATIENCE)
            finally:
                server._lock.acquire()
        return "good"

    server.mood = mood
    ranges = file.read_many([(0, 10), (20, 10)])
    assert next(ranges) == CONTENT[:10]
    taken.set()
    assert list(ranges) == [CONTENT[20:30]]


def test_good_ranges_are_given_before_the_one_that_fails(file, server):
    server.mood = lambda method, _name: (
        503 if method == "GET" and server.asked[-1][2] == "bytes=20-29" else "good"
    )
    ranges = file.read_many([(0, 10), (20, 10), (40, 10)])
    assert next(ranges) == CONTENT[:10]
    with pytest.raises(OSError, match=r"bytes 20 to 30 of .* could not be read in 6 tries"):
        next(ranges)


def test_no_more_is_on_its_way_than_there_is_room_for(file, server, monkeypatch):
    monkeypatch.setattr("jreader.sources.files.far_files._AHEAD", 100)
    ranges = file.read_many([(low, 40) for low in range(0, 4000, 40)])
    for number in range(100):
        assert next(ranges) == CONTENT[40 * number : 40 * number + 40]
        assert len(server.tries()) <= number + 2


def test_threads_read_at_the_same_time_while_half_of_the_answers_fail(file, server):
    drawn = random.Random(1)

    def mood(_method, _name):
        again = server.asked.count(server.asked[-1]) > 3
        return "good" if again else drawn.choice(["good", "drop", "half", 503, "good", "good"])

    server.mood = mood
    asked = [(drawn.randrange(60_000), drawn.randrange(1, 5000)) for _ in range(200)]
    with ThreadPoolExecutor(8) as executor:
        far = list(executor.map(lambda each: file.read(*each), asked))
    assert far == [CONTENT[low : low + size] for low, size in asked]


def test_many_ranges_of_several_files_come_in_order(server, tmp_path):
    (tmp_path / "here").write_bytes(b"0123456789")
    server.files["other"] = b"abcdefghij"
    far, other = open_file(f"{server.url}/data"), open_file(f"{server.url}/other")
    here = open_file(str(tmp_path / "here"))
    asked = [(far, 7, 3), (far, 1, 2), (here, 4, 2), (other, 9, 1), (here, 0, 1), (far, 0, 1)]
    expected = [CONTENT[7:10], CONTENT[1:3], b"45", b"j", b"0", CONTENT[:1]]
    assert list(read_many(asked)) == expected


class TestAFileThatChanged:
    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda files: files.update(data=CONTENT[:100]), "had 65,536 bytes, and has 100 now"),
            (lambda files: files.update(data=CONTENT[::-1]), "was replaced by another file"),
            (lambda files: files.pop("data"), "cannot be found any more"),
        ],
        ids=["cut", "replaced", "gone"],
    )
    @pytest.mark.parametrize("at", [0, 5000])
    def test_is_an_error_that_says_so(self, server, file, change, said, at):
        change(server.files)
        with pytest.raises(DamagedData, match=rf"/data {said}"):
            file.read(at, 100)

    def test_has_another_stamp(self, server, file):
        assert open_file(file.path).stamp == file.stamp
        server.files["data"] = CONTENT[::-1]
        assert open_file(file.path).stamp != file.stamp

    def test_ends_the_next_pass_of_a_reader(self, server):
        server.files["a.jsonl"] = b"1\n2\n"
        reader = jreader.jsonl(f"{server.url}/a.jsonl")
        assert list(reader()) == [1, 2]
        server.files["a.jsonl"] = b"3\n4\n"
        with pytest.raises(DamagedData, match=r"a.jsonl was replaced"):
            reader()


def test_a_file_that_is_not_there_is_an_error_as_of_those_that_are_here(server):
    with pytest.raises(DamagedData, match="none cannot be found"):
        open_file(f"{server.url}/none")
    with pytest.raises(FileNotFoundError, match="which does not exist"):
        jreader.jsonl(f"{server.url}/none.jsonl")


def test_a_server_that_is_not_there_is_an_error_after_all_tries(server):
    server.mood = lambda _method, _name: 503
    with pytest.raises(
        OSError, match=f"the size of {server.url}/data could not be read in 6 tries"
    ):
        open_file(f"{server.url}/data")
    with pytest.raises(OSError, match="could not be read in 6 tries"):
        jreader.jsonl(f"{server.url}/a.jsonl")


def test_a_protocol_that_nobody_knows_is_an_error_that_names_the_path():
    with pytest.raises(ValueError, match=r"'nope://a.jsonl' begins with a protocol"):
        jreader.jsonl("nope://a.jsonl")


def test_readers_that_map_their_files_say_that_they_must_be_here():
    with pytest.raises(ValueError, match=r"'memory://a.bin' is elsewhere: copy it here first"):
        jreader.tokens("memory://a.bin")


def test_row_groups_are_read_from_where_they_are_and_no_other_columns(server, tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    noise = random.Random(0)
    table = pa.table({"n": range(10_000), "noise": [noise.randbytes(90) for _ in range(10_000)]})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=1000, compression="none")
    server.files["a.parquet"] = (tmp_path / "a.parquet").read_bytes()
    reader = jreader.parquet(f"{server.url}/a.parquet", "n")
    assert [int(n) for n in reader()] == [*range(10_000)]
    server.mood = lambda _method, _name: 503
    with pytest.raises(OSError, match=f"{server.url}/a.parquet could not be read in 6 tries"):
        list(reader())


@pytest.mark.parametrize("name", ["arrow", "arrayrecord"])
def test_libraries_that_open_files_themselves_need_them_here(name):
    pytest.importorskip({"arrow": "pyarrow", "arrayrecord": "array_record"}[name])
    with pytest.raises(ValueError, match=r"'memory://a.*' is elsewhere: copy it here first"):
        getattr(jreader, name)("memory://a.*")


def test_packed_lines_must_be_here(server):
    server.files["a.jsonl.gz"] = b""
    with pytest.raises(ValueError, match=r"cannot stream .*gz', which is not on this machine"):
        jreader.jsonl(f"{server.url}/a.jsonl.gz")


def test_a_path_that_lost_a_slash_is_an_error_that_says_why():
    with pytest.raises(FileNotFoundError, match="a Path has one slash less"):
        jreader.jsonl(Path("memory://a.jsonl"))


class TestNames:
    @pytest.fixture(autouse=True)
    def files(self):
        system = fsspec.filesystem("memory")
        for number in (10, 2, 1):
            system.pipe(f"/names/part-{number:02}.jsonl", b"%d\n" % number)
        system.pipe("/names/notes.txt", b"x")
        system.pipe("/names/deep/part-03.jsonl", b"3\n")
        yield
        system.rm("/names", recursive=True)

    @pytest.mark.parametrize(
        ("paths", "values"),
        [
            ("memory://names/part-*.jsonl", [1, 2, 10]),
            ("memory://names/part-0?.jsonl", [1, 2]),
            ("memory://names/**/*.jsonl", [3, 1, 2, 10]),
            ("memory://names/", [1, 2, 10]),
            ("memory://names", [1, 2, 10]),
            ("memory://names/part-02.jsonl", [2]),
            (["memory://names/part-10.jsonl", "memory://names/part-0[1-9].jsonl"], [10, 1, 2]),
        ],
    )
    def test_stand_for_files_in_a_fixed_order(self, paths, values):
        assert list(jreader.jsonl(paths)()) == values

    def test_that_stand_for_nothing_are_an_error(self):
        for paths in ("memory://names/*.csv", "memory://other/*.jsonl"):
            with pytest.raises(FileNotFoundError, match="finds no file in"):
                jreader.jsonl(paths)

    def test_of_a_list_on_a_web_page(self, server):
        server.files |= {f"dir/{name}.jsonl": b"%d\n" % name for name in (3, 1, 2)}
        assert list(jreader.jsonl(f"{server.url}/dir/*.jsonl")()) == [1, 2, 3]
        assert list(jreader.jsonl(f"{server.url}/dir/2.jsonl?token=a")()) == [2]


def test_a_shuffled_reader_resumes_at_every_place_of_far_files(server):
    server.files["a.jsonl"] = b"".join(b'{"n": %d}\n' % number for number in range(30))
    plan = jreader.shuffle(jreader.jsonl(f"{server.url}/a.jsonl"), seed=1)
    every = [sample["n"] for sample in plan()]
    assert sorted(every) == list(range(30))
    for stop in range(0, 30, 7):
        rest = [sample["n"] for sample in jreader.readers.start(plan, stop).items]
        assert rest == every[stop:]


def test_good_samples_come_before_the_error(server, monkeypatch):
    lines = [b'{"n": %d}\n' % number for number in range(100)]
    server.files["a.jsonl"] = b"".join(lines)
    reader = jreader.jsonl(f"{server.url}/a.jsonl")
    assert len(reader) == 100
    fifty = sum(map(len, lines[:50]))
    given = []

    def mood(method, _name):
        span = server.asked[-1][2]
        bad = span and method == "GET" and int(span.partition("-")[2]) >= fifty
        return 503 if bad else "good"

    server.mood = mood
    with pytest.raises(OSError, match="could not be read in 6 tries"):
        given.extend(reader())
    assert [sample["n"] for sample in given] == list(range(len(given)))
    assert 16 <= len(given) <= 50


def test_a_forked_process_opens_files_anew(server, python):
    """In a program without jax, which must not be forked."""
    script = f"""
        import os
        from jreader.sources.files import open_file

        file = open_file("{server.url}/data")
        file.read(0, 10)
        if not os.fork():
            print(file.read(100, 10).hex(), flush=True)
            os._exit(0)
        os.wait()
        print(file.read(0, 10).hex())
    """
    said = python(script).stdout.split()
    assert said == [CONTENT[100:110].hex(), CONTENT[:10].hex()]
    # once each: what the child lets go of, the parent goes on to hear of
    assert [kind for kind, *_ in server.asked].count("GET") == 3


def test_what_passes_and_what_does_not():
    class Busy(Exception):
        status = 503

    class Wrong(Exception):
        status = 403

    unsaid = FileNotFoundError("fsspec says so of every failure")
    unsaid.__cause__ = Busy()
    good = [
        ConnectionResetError(),
        TimeoutError(),
        EOFError(),
        Busy(),
        unsaid,
    ]
    assert all(map(may_pass, good))
    bad = [PermissionError(), FileNotFoundError(), Wrong(), ValueError(), ModuleNotFoundError()]
    assert not any(map(may_pass, bad))
