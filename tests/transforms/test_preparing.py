"""`pipeline.prepare()`: caches and bits made before training, by one or by many, as by one pass."""

import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kept_samples import FAST, as_kept, snapshots, trees
from programs import program
from seen import canonical
from widths import examples

from jreader import Pipeline, Processes, arrays
from jreader.errors import ReaderError
from jreader.pipelines.preparing import preparing
from jreader.transforms import disk_caches, pieces

COUNT = 2100


def sample(number):
    number = int(number)
    return {"row": np.arange(number % 4), "text": str(number), "n": number}


def third(each):
    return each["n"] % 3 == 1


def plan(folder, make=sample, count=COUNT):
    kept = Pipeline(arrays(np.arange(count))).map(make).cache(Path(folder, "cache"))
    return kept.filter(third, keep=Path(folder, "bits"))


def numbers(reader):
    return [int(each["n"]) for each in reader]


EXPECTED = [n for n in range(COUNT) if n % 3 == 1]


def contents(folder):
    """The bytes of all columns below a folder."""
    files = sorted(Path(folder).rglob("*.npy"))
    assert not [path for path in files if disk_caches.PIECES in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def one_pass(tmp_path_factory):
    """What one pass over the plan keeps."""
    folder = tmp_path_factory.mktemp("one")
    assert numbers(plan(folder)) == EXPECTED
    return contents(folder)


@pytest.fixture(scope="module")
def workers():
    """What makes pieces."""
    with Processes(2) as processes, ThreadPoolExecutor(2) as threads:
        yield {"here": None, "processes": processes, "threads": threads}


@pytest.mark.parametrize("who", ["here", "processes", "threads"])
def test_what_is_prepared_is_what_one_pass_makes(tmp_path, one_pass, workers, who):
    made = plan(tmp_path).prepare(workers[who])
    assert [(Path(each.path).name, each.made, each.samples) for each in made] == [
        ("cache", COUNT, COUNT),
        ("bits", COUNT, COUNT),
    ]
    assert contents(tmp_path) == one_pass
    assert len(plan(tmp_path)) == len(EXPECTED)
    assert numbers(plan(tmp_path)) == EXPECTED
    assert "2,100 of 2,100 samples are there" in str(made[0])


def test_parts_are_joined_by_whoever_ends_last(tmp_path, one_pass):
    for which in (2, 3, 1):
        cache_, *rest = plan(tmp_path).prepare(part=(which, 3))
        assert (cache_.made == COUNT) == (which == 1)
        assert not rest or which == 1
    for which in (1, 2, 3):
        *_, bits = plan(tmp_path).prepare(part=(which, 3))
    assert bits.made == COUNT
    assert contents(tmp_path) == one_pass


def test_what_a_part_has_made_resumes_without_parts(tmp_path, one_pass):
    plan(tmp_path).prepare(part=(2, 3))
    plan(tmp_path).prepare()
    assert contents(tmp_path) == one_pass


@given(st.lists(trees, min_size=1, max_size=9), st.integers(1, 3), st.integers(0, 4))
@examples(30)
def test_pieces_of_samples_of_any_kind_are_joined_as_one_pass_writes_them(samples, size, known):
    """Also where columns change their kind between pieces, and some samples were there before."""

    def made(folder):
        return Pipeline(arrays(np.arange(len(samples)))).map(lambda n: samples[n]).cache(folder)

    before, pieces._MIN_PIECE = pieces._MIN_PIECE, size
    try:
        with TemporaryDirectory(dir=FAST) as folder:
            list(made(f"{folder}/one/kept"))
            list(islice(made(f"{folder}/many/kept"), known))
            made(f"{folder}/many/kept").prepare(part=(1, 1))
            assert contents(f"{folder}/many") == contents(f"{folder}/one")
            assert [*map(canonical, made(f"{folder}/many/kept"))] == as_kept(samples)
    finally:
        pieces._MIN_PIECE = before


@given(st.lists(st.booleans(), max_size=60), st.sampled_from([1, 8, 12]), st.integers(0, 20))
@examples(30)
def test_bits_in_pieces_of_any_size_are_joined_as_one_pass_writes_them(bits, size, known):
    def made(folder):
        rows = Pipeline(arrays(np.arange(len(bits))))
        return rows.filter(lambda n: bits[n], keep=folder)

    before, pieces._MIN_PIECE = pieces._MIN_PIECE, size
    try:
        with TemporaryDirectory(dir=FAST) as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            list(made(f"{folder}/one/kept"))
            list(islice(made(f"{folder}/many/kept"), known))
            made(f"{folder}/many/kept").prepare(part=(1, 1))
            assert contents(f"{folder}/many") == contents(f"{folder}/one")
            assert [*map(int, made(f"{folder}/many/kept"))] == np.flatnonzero(bits).tolist()
    finally:
        pieces._MIN_PIECE = before


def test_pieces_are_not_joined_under_a_pass_that_learns(tmp_path):
    made = Pipeline(arrays(np.arange(COUNT))).filter(lambda n: n % 3 == 1, keep=tmp_path / "bits")
    items = iter(made)
    head = [int(next(items)) for _ in range(5)]
    (bits,) = made.prepare(part=(1, 1))
    assert bits.made == COUNT
    assert [*head, *map(int, items)] == EXPECTED
    assert [*map(int, made)] == EXPECTED
    made.prepare()
    assert not (tmp_path / "bits" / disk_caches.PIECES).exists()


@pytest.mark.parametrize("named", ["cache", "bits"])
def test_pieces_are_joined_under_a_pass_of_the_same_plan_that_waits_for_them(
    tmp_path, workers, named
):
    rows = Pipeline(arrays(np.arange(COUNT)))
    both = {"cache": rows.cache, "bits": lambda path: rows.filter(lambda n: n >= 0, keep=path)}
    made = both[named](tmp_path / named)
    items = iter(made)
    head = [int(next(items)) for _ in range(700)]
    assert made.prepare(workers["threads"])[0].made == COUNT
    assert [*head, *map(int, items)] == list(range(COUNT))
    assert [path.name for path in (tmp_path / named).glob("pieces*")] == []
    list(both[named](tmp_path / "one"))
    assert contents(tmp_path / named) == contents(tmp_path / "one")


def test_a_pass_that_was_broken_off_resumes_in_pieces(tmp_path, one_pass, workers):
    items = iter(plan(tmp_path))
    for _ in range(300):
        next(items)
    items.close()
    plan(tmp_path).prepare(workers["threads"])
    assert contents(tmp_path) == one_pass


def failing(number):
    if number == 1700 and os.environ.get("JREADER_TEST_FAILS"):
        raise LookupError
    with Path(os.environ["JREADER_TEST_CALLS"]).open("a") as file:
        file.write(f"{number}\n")
    return sample(number)


def test_an_error_names_the_sample_and_no_sample_is_made_twice_afterwards(tmp_path, monkeypatch):
    calls = tmp_path / "calls"
    monkeypatch.setenv("JREADER_TEST_FAILS", "1")
    monkeypatch.setenv("JREADER_TEST_CALLS", str(calls))
    monkeypatch.setattr("jreader.pipelines.preparing._TIMED_SAMPLES", 0)
    with pytest.raises(LookupError) as raised:
        plan(tmp_path, failing).prepare(part=(1, 1))
    assert "failing(np.int64(1700)) in map_readers" in "".join(raised.value.__notes__)
    monkeypatch.delenv("JREADER_TEST_FAILS")
    plan(tmp_path, failing).prepare(part=(1, 1))
    assert calls.read_text().split() == list(map(str, range(COUNT)))
    assert numbers(plan(tmp_path, failing)) == EXPECTED


def test_whatever_a_kill_leaves_is_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "_MIN_PIECE", 8)

    def small(folder):
        return plan(folder, count=20)

    (tmp_path / "whole").mkdir()
    (tmp_path / "left").mkdir()
    with snapshots(tmp_path / "whole", tmp_path / "left") as left:
        small(tmp_path / "whole").prepare(part=(1, 1))
    expected = contents(tmp_path / "whole")
    assert len(left) > 20
    for number, each in enumerate(left):
        small(each).prepare(part=(1, 1) if number % 2 else None)
        assert contents(each) == expected
        assert numbers(small(each)) == list(range(1, 20, 3))


def test_an_error_of_a_filter_names_the_sample_before_the_first_piece(tmp_path):
    rows = Pipeline(arrays(np.arange(9))).map(sample)
    with pytest.raises(KeyError) as raised:
        rows.filter(lambda each: each["none"], keep=tmp_path / "bits").prepare()
    assert "'n': 0" in "".join(raised.value.__notes__)


def test_what_is_complete_is_left_as_it_is(tmp_path):
    plan(tmp_path).prepare()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    plan(tmp_path).prepare(part=(1, 2))
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}


def test_what_a_kill_left_while_pieces_were_removed_is_removed(tmp_path):
    plan(tmp_path).prepare()
    (tmp_path / "bits" / "pieces.12.removed" / "000").mkdir(parents=True)
    plan(tmp_path).prepare()
    assert not list((tmp_path / "bits").glob("pieces*"))


def test_the_bytes_of_a_folder_are_those_of_its_columns_also_while_others_remove_pieces(tmp_path):
    for which in (2, 1):
        cache_, *_ = plan(tmp_path).prepare(part=(which, 2))
        files = (tmp_path / "cache").rglob("*.npy")
        assert cache_.bytes == sum(path.stat().st_size for path in files)


def test_a_stream_is_read_here_and_has_no_parts(tmp_path):
    def lines():
        return Pipeline(lambda: iter(range(50))).cache(tmp_path / "cache")

    with pytest.raises(ValueError, match=r"part=\(1, 2\) of prepare needs an indexed plan"):
        lines().prepare(part=(1, 2))
    ahead, made = preparing(lines())
    assert str(ahead).endswith("cache: 0 samples are there; the rest is read once")
    assert (made.samples, made.made) == (50, 50)
    assert len(lines()) == 50
    assert lines().prepare(part=(1, 2))[0].made == 50


def test_it_says_first_what_it_takes(tmp_path, monkeypatch):
    ahead, made, *_ = preparing(plan(tmp_path))
    assert (ahead.ahead, ahead.made, ahead.samples) == (True, 0, COUNT)
    assert made.bytes / 3 < ahead.bytes < made.bytes * 3
    assert "0 of 2,100 samples are there; all take about" in str(ahead)
    monkeypatch.setattr("jreader.pipelines.preparing._free", lambda folder: 10)
    with pytest.warns(UserWarning, match=r"0\.0 GB are free: free some space"):
        plan(tmp_path / "other").prepare()


def test_a_plan_that_keeps_nothing_has_nothing_to_do():
    assert Pipeline(arrays(np.arange(3))).cache().shuffle().prepare() == []


def test_another_function_is_refused(tmp_path):
    plan(tmp_path).prepare(part=(1, 3))
    with pytest.raises(ValueError, match=r"pieces/.* is of another plan.*functions is 'sample"):
        plan(tmp_path, lambda number: sample(number + 0)).prepare()


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"workers": 4}, TypeError, "executor"),
        ({"part": 3}, ValueError, r"two numbers, such as \(3, 8\), not 3"),
        ({"part": (0, 2)}, ValueError, r"not \(0, 2\)"),
        ({"part": ("1", 2)}, ValueError, r"not \('1', 2\)"),
        ({"part": (3, 2)}, ValueError, r"not \(3, 2\)"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, given, error, says):
    with pytest.raises(error, match=says):
        plan(tmp_path).prepare(**given)


def test_a_pass_of_this_program_that_does_not_go_on_is_an_error(tmp_path):
    items = iter(plan(tmp_path))
    next(items)
    with pytest.raises(ReaderError, match="Another pass of this process has begun to write"):
        plan(tmp_path).prepare()


BOTH = """
import sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from jreader import Pipeline, arrays
from jreader.transforms import disk_caches, pieces
pieces._MIN_PIECE, disk_caches._POLL_SECONDS = 8, 0.01

def sample(number):
    number = int(number)
    return {"row": np.arange(number % 4), "text": str(number), "n": number}

def third(each):
    return each["n"] % 3 == 1

def plan():
    kept = Pipeline(arrays(np.arange(COUNT))).map(sample).cache(FOLDER + "/cache")
    return kept.filter(third, keep=FOLDER + "/bits")

print("begun", flush=True)
made = plan().prepare(ThreadPoolExecutor(2))
print([each.made for each in made], len(plan()), "jax" in sys.modules, flush=True)
"""


@pytest.mark.slow
def test_two_programs_prepare_one_plan_at_once(tmp_path, one_pass):
    script = BOTH.replace("COUNT", str(COUNT)).replace("FOLDER", repr(str(tmp_path)))
    with program(script) as killed:
        assert killed.says() == "begun"
    with program(script) as one, program(script) as other:
        for each in (one, other):
            assert each.says() == "begun"
        for each in (one, other):
            assert each.says() == f"[{COUNT}, {COUNT}] {len(EXPECTED)} False"
    assert contents(tmp_path) == one_pass
