"""Files elsewhere: the same bytes as here, whatever a server does, in a bounded number of tries."""

from __future__ import annotations

import errno
import gc
import gzip
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import pytest
from files import write
from hypothesis import given
from hypothesis import strategies as st
from programs import PATIENCE, program
from widths import examples

import jreader
from jreader import Store
from jreader.errors import DamagedData
from jreader.readers import start
from jreader.sources import retries
from jreader.sources.files import open_file, read_many
from jreader.sources.files.copies import local_copy
from jreader.sources.retries import is_transient

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
    monkeypatch.setattr("jreader.sources.files.remote_files._PART", 1000)


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
    monkeypatch.setattr(retries, "_TIMEOUT", 0.05)
    server.mood = lambda _method, _name: "hang"
    with pytest.raises(
        TimeoutError, match=r"bytes 5 to 105 of http.*/data: no complete answer .* 6"
    ):
        file.read(5, 100)
    tries = server.tries()  # a busy machine may not have sent one before it was given up
    assert sum(tries.values()) <= 6
    assert set(tries) <= {("data", "bytes=5-104")}


def test_a_server_that_hangs_once_is_asked_again(file, server, monkeypatch):
    monkeypatch.setattr(retries, "_TIMEOUT", 1.0)
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
    monkeypatch.setattr("jreader.sources.files.remote_files._AHEAD", 100)
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


def test_what_needs_files_of_this_machine_says_so():
    with pytest.raises(ValueError, match=r"'memory://a.txt' is elsewhere: copy it here first"):
        jreader.files("memory://a.txt")


LINES = b"".join(b"[%d]\n" % number**3 for number in range(200))


@pytest.mark.parametrize("end", [".txt", ".txt.gz"])
def test_lines_elsewhere_are_those_of_files_here_from_any_place_on(server, tmp_path, end):
    for number, content in enumerate([LINES, b"", LINES.replace(b"\n", b"\r\n")[:-1], b"\n\n"]):
        path = write(tmp_path / f"{number}{end}", content, packed=end.endswith("gz"))
        server.files[f"lines/{number}{end}"] = path.read_bytes()
    here = start(jreader.text(tmp_path))
    far = start(jreader.text(f"{server.url}/lines/", block=100))
    places = [here.position()]
    for line, other in zip(here.items, far.items, strict=True):
        assert (line, here.position()) == (other, far.position())
        places.append(here.position())
    lines = list(jreader.text(tmp_path)())
    for done in range(0, len(places), 50):
        rest = start(jreader.text(f"{server.url}/lines/", block="2kB"), places[done])
        assert list(rest.items) == lines[done:]


def test_lines_elsewhere_are_fetched_in_blocks_each_once_and_none_before_a_place(server):
    server.files["a.txt"] = LINES
    last = len(LINES) - 1
    spans = [f"bytes={low}-{min(low + 999, last)}" for low in range(0, last + 1, 1000)]
    reader = jreader.text(f"{server.url}/a.txt", block="1kB")
    assert len(list(reader())) == 200
    assert server.tries() == {("a.txt", span): 1 for span in spans}
    server.asked.clear()
    begin = LINES.index(b"\n", 500) + 1
    assert next(start(reader, (0, begin)).items) == LINES[begin:].split(b"\n")[0].decode()
    assert server.tries() == {("a.txt", f"bytes={begin - 1}-{begin + 998}"): 1}


def test_lines_elsewhere_come_from_a_store_in_the_second_epoch(server, tmp_path):
    server.files["a.txt"] = LINES
    reader = jreader.text(f"{server.url}/a.txt", store=Store(tmp_path, block="4kB"))
    first = list(reader())
    server.asked.clear()
    assert list(reader()) == first
    assert not server.tries()


def test_a_server_that_fails_or_gives_another_file_is_an_error_behind_the_good_lines(server):
    server.files["a.txt"] = LINES
    items = jreader.text(f"{server.url}/a.txt", block="1kB")()
    assert next(items) == "[0]"
    server.files["a.txt"] = LINES + b"more\n"
    with pytest.raises(DamagedData, match="since this reader read it first"):
        list(items)
    items = jreader.text(f"{server.url}/a.txt", block="1kB")()
    assert next(items) == "[0]"
    server.mood = lambda _method, _name: 503
    with pytest.raises(OSError, match=r"a\.txt.* 6 tries"):
        list(items)


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
def test_libraries_that_open_files_themselves_have_copies_that_are_deleted(
    server, tmp_path, monkeypatch, name
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
    (tmp_path / "copies").mkdir()
    write = {"arrow": write_arrow, "arrayrecord": write_records}[name]
    server.files["a.file"] = write(tmp_path / "a.file")
    store = Store(tmp_path / "store")
    reader = getattr(jreader, name)(f"{server.url}/a.file", store=store)
    assert [int(row["n"] if name == "arrow" else row) for row in reader()] == [0, 1, 2]
    assert len(list((tmp_path / "copies").iterdir())) == (name == "arrayrecord")
    assert store.fetched == len(server.files["a.file"])
    server.files["a.file"] += b" "
    with pytest.raises(DamagedData, match=r"a\.file had .* bytes"):
        reader()
    del reader
    gc.collect()
    assert not list((tmp_path / "copies").iterdir())


def write_arrow(path):
    pa = pytest.importorskip("pyarrow")
    with pa.ipc.new_file(str(path), pa.schema({"n": pa.int64()})) as out:
        out.write_table(pa.table({"n": [0, 1, 2]}))
    return path.read_bytes()


def write_records(path):
    writer = pytest.importorskip("array_record.python.array_record_module").ArrayRecordWriter(
        str(path), "group_size:1"
    )
    for number in range(3):
        writer.write(b"%d" % number)
    writer.close()
    return path.read_bytes()


@pytest.mark.parametrize("ending", ["sys.exit()", "raise ValueError"])
def test_copies_are_deleted_when_the_program_ends(server, tmp_path, python, ending):
    server.files["a.file"] = write_records(tmp_path / "a.file")
    (tmp_path / "copies").mkdir()
    script = f"""
        import os, sys, tempfile
        tempfile.tempdir = {str(tmp_path / "copies")!r}
        from jreader import arrayrecord
        records = iter(arrayrecord("{server.url}/a.file")())
        print(next(records), flush=True)
        if not os.fork():
            sys.exit()
        os.wait()
        print(len(os.listdir(tempfile.tempdir)), flush=True)
        {ending}
    """
    said = python(script, check=ending == "sys.exit()")
    assert said.stdout.split()[-1] == "1"
    assert not list((tmp_path / "copies").iterdir())


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where copies lie, of this program and those that it starts."""
    (folder := tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def copying(url):
    return f"""
        import signal
        from jreader.sources.files.copies import local_copy
        copy = local_copy("{url}/a.file")
        print(copy, flush=True)
        signal.pause()
    """


def test_copies_of_a_program_that_was_killed_are_deleted_by_the_next_and_those_of_others_stay(
    server, temporary
):
    server.files["a.file"] = b"rows"
    with program(copying(server.url)) as killed, program(copying(server.url)) as living:
        left, kept = Path(killed.says()), Path(living.says())
        killed.told(signal.SIGKILL)
        assert left.read_bytes() == kept.read_bytes() == b"rows"
        mine = local_copy(f"{server.url}/a.file")
        assert not left.exists()
        assert kept.read_bytes() == b"rows"
    assert Path(mine).read_bytes() == b"rows"


def test_copies_of_a_program_that_got_no_lock_stay_for_others_that_do(
    server, temporary, monkeypatch
):
    def no_lock(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    server.files["a.file"] = b"rows"
    with monkeypatch.context() as now:
        now.setattr("fcntl.flock", no_lock)
        mine = local_copy(f"{server.url}/a.file")
    with program(copying(server.url)) as other:
        assert Path(other.says()).read_bytes() == Path(mine).read_bytes() == b"rows"


def test_what_is_not_of_this_library_or_half_deleted_does_no_harm(server, temporary):
    server.files["a.file"] = b"rows"
    (temporary / "jreader-copies-half").mkdir()
    (temporary / "jreader-copies-file").write_text("a file")
    (temporary / "theirs").mkdir()
    (temporary / "jreader-copies-link").symlink_to(temporary / "theirs")
    assert Path(local_copy(f"{server.url}/a.file")).name == "a.file"
    left = {each.name for each in temporary.iterdir()}
    assert "jreader-copies-half" not in left
    assert {"jreader-copies-file", "jreader-copies-link", "theirs"} <= left
    assert not list((temporary / "theirs").iterdir())


def test_many_programs_copy_at_the_same_time(server, temporary):
    """Each looks for what others left while these make their folders."""
    server.files["a.file"] = b"rows"
    script = f"""
        from pathlib import Path
        from jreader.sources.files.copies import local_copy
        for _ in range(200):
            copy = local_copy("{server.url}/a.file")
            assert Path(copy).read_bytes() == b"rows"
            del copy
        print("all", flush=True)
    """
    with program(script) as one, program(script) as two, program(script) as three:
        assert [one.says(), two.says(), three.says()] == ["all"] * 3
    assert not list(temporary.iterdir())


def test_packed_values_may_be_elsewhere(server):
    server.files["a.jsonl.gz"] = gzip.compress(LINES)
    values = [[number**3] for number in range(200)]
    assert list(jreader.jsonl(f"{server.url}/a.jsonl.gz")()) == values
    server.files["a.jsonl.gz"] = gzip.compress(LINES)[:-50]
    with pytest.raises(DamagedData, match=r"a\.jsonl\.gz is truncated"):
        list(jreader.jsonl(f"{server.url}/a.jsonl.gz")())


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
    assert all(map(is_transient, good))
    bad = [PermissionError(), FileNotFoundError(), Wrong(), ValueError(), ModuleNotFoundError()]
    assert not any(map(is_transient, bad))
