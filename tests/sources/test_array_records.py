"""ArrayRecord files as one sequence of bytes, found by number, whichever thread asks."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from widths import examples

from jreader import DamagedData, Pipeline, arrayrecord, batch, shuffle
from jreader.readers import fingerprint, indexed, start

array_record = pytest.importorskip("array_record.python.array_record_module")


@pytest.fixture(name="arrayrecord")
def arrayrecord_placed(placed):
    """For the tests that take it, files lie here and elsewhere."""
    return placed.reader(arrayrecord)


def write(path, records, group=1):
    writer = array_record.ArrayRecordWriter(str(path), f"group_size:{group}")
    for record in records:
        writer.write(record)
    writer.close()
    return path


def numbered(first, last):
    return [b"record %d" % number for number in range(first, last)]


@examples(50)
@given(
    parts=st.lists(st.lists(st.binary(max_size=9), max_size=9), min_size=1, max_size=3),
    group=st.integers(1, 4),
    data=st.data(),
)
def test_what_is_written_is_read_back(parts, group, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    for number, records in enumerate(parts):
        write(folder / f"{number}.arrayrecord", records, group)
    reader, expected = arrayrecord(folder), [each for part in parts for each in part]
    assert list(reader()) == expected
    done = data.draw(st.integers(0, len(expected)))
    assert list(start(reader, done).items) == expected[done:]
    order = data.draw(st.permutations(range(len(expected))))
    assert list(indexed(reader).take(np.array(order, int))) == [expected[row] for row in order]


def test_files_are_one_sequence_in_the_order_given(tmp_path):
    one = write(tmp_path / "a.arrayrecord", numbered(0, 5))
    two = write(tmp_path / "b.array_record", numbered(5, 8))
    assert list(arrayrecord(tmp_path)()) == numbered(0, 8)
    assert list(arrayrecord([two, one])()) == [*numbered(5, 8), *numbered(0, 5)]
    assert len(arrayrecord(f"{tmp_path}/*array*record")) == 8
    assert sorted(shuffle(arrayrecord(tmp_path), seed=0)()) == numbered(0, 8)
    assert [len(each) for each in batch(arrayrecord(tmp_path), 3)()] == [3, 3, 2]


def test_threads_read_at_the_same_time(arrayrecord, tmp_path):
    for number in range(3):
        records = numbered(number * 100, number * 100 + 100)
        write(tmp_path / f"{number}.arrayrecord", records)
    plane = indexed(arrayrecord(f"{tmp_path}/"))
    parts = [np.arange(thread, 300, 8) for thread in range(8)]
    with ThreadPoolExecutor(8) as executor:
        for part, records in zip(parts, executor.map(plane.take, parts), strict=True):
            assert records == [b"record %d" % number for number in part]


class TestFaults:
    def test_an_empty_truncated_or_foreign_file(self, arrayrecord, tmp_path):
        path = write(tmp_path / "a.arrayrecord", numbered(0, 500))
        whole = path.read_bytes()
        for content in (b"", whole[:9], whole[: len(whole) // 2], b"text " * 99):
            path.write_bytes(content)
            with pytest.raises(DamagedData, match=r"a.arrayrecord is truncated, or not an Array"):
                list(arrayrecord(path)())

    def test_a_record_whose_hash_does_not_match_comes_after_the_good_ones(
        self, arrayrecord, tmp_path
    ):
        records = [bytes([number]) * 3000 for number in range(200)]
        rng = np.random.default_rng(0)
        records = [rng.bytes(3000) for _ in range(200)]
        path = write(tmp_path / "a.arrayrecord", records)
        content = bytearray(path.read_bytes())
        content[content.index(records[120]) + 50] ^= 1
        path.write_bytes(content)
        given = arrayrecord(path)()
        assert [next(given) for _ in range(120)] == records[:120]
        with pytest.raises(DamagedData, match=r"a.arrayrecord .*record 120: .*hash mismatch"):
            next(given)

    def test_a_file_that_vanished_or_was_replaced(self, tmp_path):
        path = write(tmp_path / "a.arrayrecord", numbered(0, 5))
        reader = arrayrecord(path)
        assert len(list(reader())) == 5
        write(tmp_path / "b", numbered(0, 90_000)).replace(path)
        with pytest.raises(DamagedData, match=r"a.arrayrecord had .* bytes, and has"):
            list(reader())
        path.unlink()
        with pytest.raises(DamagedData, match=r"a.arrayrecord cannot be found any more"):
            list(reader())
        with pytest.raises(FileNotFoundError, match="does not exist"):
            arrayrecord(path)


def test_it_is_shown_as_it_was_written_and_travels(tmp_path):
    path = str(write(tmp_path / "a.arrayrecord", numbered(0, 5)))
    reader = arrayrecord(path)
    assert repr(reader) == f"arrayrecord({path!r})"
    assert list(pickle.loads(pickle.dumps(reader))()) == list(reader()) == numbered(0, 5)
    before = fingerprint(reader)
    write(path, numbered(1, 6))
    assert fingerprint(arrayrecord(path)) != before


def test_workers_are_invisible(arrayrecord, tmp_path):
    write(tmp_path / "a.arrayrecord", numbered(0, 9))
    plan = Pipeline(arrayrecord(f"{tmp_path}/")).map(bytes.upper, threads=2)
    assert list(plan) == [record.upper() for record in numbered(0, 9)]
