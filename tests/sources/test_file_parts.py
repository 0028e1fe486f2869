"""Parts of files: each sample is in one of them, and a part is read by itself."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import check_resumes_everywhere, ends
from tfrecords import write_tfrecord
from widths import examples

import jreader
from jreader import DamagedData, Pipeline, csv, jsonl, parquet, tar, text, tfrecord
from jreader.readers import fingerprint
from jreader.sources.files.file_parts import FilePart

needs_proc = pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs /proc")


def write_text(path, sizes):
    path.write_text("".join(f"{number} {'x' * size}\n" for number, size in enumerate(sizes)))
    return text


def write_jsonl(path, sizes):
    lines = [json.dumps({"n": n, "text": "x" * size}) for n, size in enumerate(sizes)]
    path.write_text("\n\n".join(lines))
    return jsonl


def write_tar(path, sizes):
    with tarfile.open(path, "w") as archive:
        for number, size in enumerate(sizes):
            member = tarfile.TarInfo(f"{number:03}.txt")
            member.size = 100 * size
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return tar


def write_records(path, sizes):
    pytest.importorskip("google_crc32c")
    write_tfrecord(path, [b"%d" % number * size for number, size in enumerate(sizes)])
    return tfrecord


def write_parquet(path, sizes):
    pa = pytest.importorskip("pyarrow")
    from pyarrow.parquet import ParquetWriter  # noqa: PLC0415  # an extra

    rng = np.random.default_rng(0)
    many = sum(sizes)
    table = pa.table({"n": range(many), "bytes": [rng.bytes(100) for _ in range(many)]})
    with ParquetWriter(path, table.schema) as out:
        for low, high in pairwise(np.cumsum([0, *sizes]).tolist()):
            out.write_table(table[low:high])
    return parquet


FORMATS = [write_text, write_jsonl, write_tar, write_records, write_parquet]


@pytest.mark.parametrize("write", FORMATS)
@examples(40)
@given(sizes=st.lists(st.integers(0, 9), max_size=9), parts=st.integers(1, 12))
def test_parts_are_a_partition_in_order(tmp_path_factory, write, sizes, parts):
    if write in (write_jsonl, write_tar, write_records) and not sizes:
        sizes = [1]  # an empty one is refused
    path = tmp_path_factory.mktemp("parts") / "a"
    read = write(path, sizes)
    every = [list(read(part)()) for part in jreader.files(path, parts)]
    assert len(every) == parts
    assert [*chain.from_iterable(every)] == list(read(path)())


@examples(100)
@given(
    content=st.lists(st.sampled_from([b"a", b"\n", b"\r\n", "ü".encode()])), parts=st.integers(1, 9)
)
def test_lines_of_any_text_are_each_in_one_part(tmp_path_factory, content, parts):
    path = tmp_path_factory.mktemp("lines") / "a.txt"
    path.write_bytes(b"".join(content))
    every = [text(part) for part in jreader.files(path, parts)]
    assert [line for part in every for line in part()] == list(text(path)())
    for part in every:
        check_resumes_everywhere(part)


@pytest.mark.parametrize("write", FORMATS)
def test_lanes_of_parts_resume_everywhere_and_have_each_sample_once(tmp_path, write):
    for name in "ab":
        read = write(tmp_path / name, [3, 1, 2])
    plan = jreader.files(f"{tmp_path}/*", parts=2).shuffle(seed=0).read(read, lanes=4)
    expected = [sample for name in "ab" for sample in read(tmp_path / name)()]
    assert sorted(map(repr, plan)) == sorted(map(repr, expected))
    check_resumes_everywhere(plan)
    rows = [sample for batch in plan.batch(4) for sample in batch]
    assert sorted(map(repr, rows)) == sorted(map(repr, expected))


@needs_proc
@pytest.mark.parametrize("write", [write_text, write_jsonl, write_tar, write_parquet])
def test_a_part_reads_its_share_of_the_bytes(tmp_path, write):
    """To within what is read at once; row groups also the footer, archives also their headers."""
    near, path = 1 << 17, tmp_path / "a"
    read = write(path, [{write_tar: 1000, write_parquet: 500}.get(write, 50_000)] * 40)
    names = jreader.files(path, parts=4)
    share = path.stat().st_size / 4
    counts = [bytes_read(lambda part=part: list(read(part)())) for part in [*names, *names]]
    assert share > 3 * near
    assert max(counts[4:]) < share + 3 * near  # what has to be imported is read before


def bytes_read(run):
    """How many bytes this process reads from files, whoever asks."""
    before = _read_so_far()
    run()
    return _read_so_far() - before


def _read_so_far():
    return int(Path("/proc/self/io").read_text().split()[1])


def test_errors_name_the_file_and_the_byte_in_it(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([*map(str, range(50)), "{", "51"]))
    *good, last = jreader.files(path, 3)
    assert [n for part in good for n in jsonl(part)()] == [
        *range(len([n for p in good for n in jsonl(p)()]))
    ]
    samples, error = ends(jsonl(last)())
    assert samples[-1] == 49
    place = path.read_bytes().index(b"{")
    assert f"{path} is truncated" in str(error)
    assert f"the line at byte {place} cannot be read" in str(error)


def test_nulls_are_named_by_their_row_in_the_file(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table  # noqa: PLC0415  # an extra

    path = tmp_path / "a.parquet"
    write_table(pa.table({"n": [*range(9), None]}), path, row_group_size=2)
    rows = jreader.files(path, parts=50).read(parquet)()
    samples, error = ends(rows)
    assert [sample["n"] for sample in samples] == [*range(8)]
    assert "is null in row 9" in str(error)


@pytest.mark.parametrize("write", FORMATS)
def test_a_file_of_another_size_is_told(tmp_path, write):
    read = write(tmp_path / "a", [3, 1, 4])
    parts = list(jreader.files(tmp_path / "a", 2))
    (tmp_path / "a").unlink()
    write(tmp_path / "a", [3, 1, 4, 1, 5, 200])
    for part in parts:
        with pytest.raises(DamagedData, match=r"had .* bytes, and has .* now"):
            list(read(part)())


@pytest.mark.parametrize("read", [tar, parquet, tfrecord, jsonl])
def test_an_empty_file_is_told_by_its_first_part(tmp_path, read):
    pytest.importorskip("pyarrow")
    pytest.importorskip("google_crc32c")
    (tmp_path / "a").write_bytes(b"")
    plan = jreader.files(tmp_path / "a", parts=3).read(read, lanes=3)
    with pytest.raises(DamagedData):
        list(plan)


class TestParts:
    def test_they_are_small_values_that_name_a_range(self, tmp_path):
        (tmp_path / "a").write_bytes(b"x" * 10)
        parts = jreader.files(tmp_path / "a", parts=4)
        path = str(tmp_path / "a")
        assert [(part.path, part.begin, part.end) for part in parts] == [
            (path, 0, 2), (path, 2, 5), (path, 5, 7), (path, 7, 10)
        ]  # fmt: skip
        assert len(parts) == 4
        assert repr(parts) == f"Pipeline(files({path!r}, parts=4))"
        assert repr(text(parts[1])) == f"text({FilePart(path, 1, 4, 10)!r})"

    def test_a_packed_file_is_one_part(self, tmp_path):
        (tmp_path / "a.gz").write_bytes(b"")
        with pytest.raises(ValueError, match=r"cannot read .*a.gz' in parts"):
            jreader.files(tmp_path / "a.gz", parts=2)
        with pytest.raises(ValueError, match="whole number of at least 1"):
            jreader.files(tmp_path / "a.gz", parts=0)

    def test_a_format_that_has_none_says_so(self, tmp_path):
        pytest.importorskip("pyarrow")
        (tmp_path / "a").write_text("x\n1\n")
        with pytest.raises(TypeError, match="reads whole files, or, in some formats"):
            list(jreader.files(tmp_path / "a", parts=2).read(csv, lanes=2))
        with pytest.raises(TypeError, match="reads whole files, or, in some formats"):
            jsonl(*jreader.files(tmp_path / "a", parts=2))

    def test_a_cursor_of_whole_files_is_as_it_was(self, tmp_path):
        (tmp_path / "a").write_text("x\n1\n")
        lines = [
            fingerprint(each)["ops"]
            for each in (text(tmp_path / "a"), jreader.files(tmp_path / "a"))
        ]
        assert "part" not in str(lines)
        assert "parts=2" in str(fingerprint(jreader.files(tmp_path / "a", parts=2))["ops"])

    def test_whole_readers_are_samples_of_lanes_too(self, tmp_path):
        for name in "ab":
            write_jsonl(tmp_path / name, [1, 2])
        plan = jreader.files(f"{tmp_path}/*").read(jsonl, lanes=2)
        assert [sample["n"] for sample in plan] == [0, 0, 1, 1]
        assert isinstance(plan, Pipeline)

    def test_one_in_a_cache_of_an_earlier_release_is_found(self):
        stored = (
            b"\x80\x04cjreader.sources.files.file_parts\nFilePart\n)\x81}("
            b"\x8c\x04path\x8c\x01a\x8c\x06numberK\x01\x8c\x05partsK\x02\x8c\x04sizeK\x0aub."
        )
        assert pickle.loads(stored) == FilePart("a", 1, 2, 10)
