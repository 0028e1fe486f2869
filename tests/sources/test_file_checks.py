"""Files that are cut, replaced or gone under a reader are an error, not the end of the program."""

from __future__ import annotations

import gzip
import io
import os
import tarfile

import numpy as np
import pytest
from samples import everything
from tfrecords import framed

import jreader
from jreader import Pipeline, arrays, batch, idx, jsonl, npy, npz, source, tar, text, tfrecord
from jreader.errors import DamagedData

ROWS = 40_000  # more than a page of a map


def npy_file(path, rows=ROWS):
    with path.open("wb") as file:  # np.save would add a suffix to a name
        np.save(file, np.arange(rows))
    return npy(path)


def npz_file(path, rows=ROWS):
    with path.open("wb") as file:
        np.savez(file, np.arange(rows))
    return npz(path)


def idx_file(path, rows=ROWS):
    path.write_bytes(bytes([0, 0, 8, 1]) + rows.to_bytes(4) + bytes(rows))
    return idx(path)


def idx_file_of_floats(path, rows=ROWS):
    path.write_bytes(bytes([0, 0, 0x0D, 1]) + rows.to_bytes(4) + bytes(4 * rows))
    return idx(path)


def packed_idx_file(path, rows=ROWS):
    idx_file(path, rows)
    path.write_bytes(gzip.compress(path.read_bytes()))
    return idx(path)


def text_file(path, rows=ROWS):
    path.write_text("1\n" * rows)
    return text(path)


def jsonl_file(path, rows=ROWS):
    path.write_text("1\n" * rows)
    return jsonl(path)


def tfrecord_file(path, rows=ROWS):
    pytest.importorskip("google_crc32c")
    path.write_bytes(framed(b"1") * rows)
    return tfrecord(path)


def tar_file(path, rows=ROWS):
    """A header costs as much as a thousand lines, so one sample stands for those."""
    with tarfile.open(path, "w") as archive:
        for number in range(rows // 1000):
            member = tarfile.TarInfo(f"{number:03}.txt")
            member.size = 1
            archive.addfile(member, io.BytesIO(b"1"))
    return tar(path)


IN_MEMORY = [npz_file, idx_file_of_floats, packed_idx_file]
FILES = pytest.mark.parametrize("made", [npy_file, idx_file, text_file, jsonl_file, *IN_MEMORY])
RECORDS = pytest.mark.parametrize("made", [tfrecord_file, tar_file])


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def replaced(path, made, rows):
    made(path.with_suffix(".new"), rows)
    path.with_suffix(".new").replace(path)


class TestAnEpochIsRefused:
    @FILES
    def test_over_a_file_that_was_cut(self, made, tmp_path):
        reader = made(tmp_path / "rows")
        assert len(everything(reader)) == ROWS
        cut(tmp_path / "rows")
        for again in (reader, batch(reader, 100), Pipeline(reader).shuffle(10, seed=0)):
            with pytest.raises(DamagedData, match=r"rows had [\d,]+ bytes, and has [\d,]+ now"):
                list(again())

    @FILES
    def test_over_a_file_that_was_replaced(self, made, tmp_path):
        reader = made(tmp_path / "rows")
        list(reader())
        replaced(tmp_path / "rows", made, ROWS)
        with pytest.raises(DamagedData, match=r"rows was replaced by another file.*a new reader"):
            list(reader())
        assert len(everything(type(reader)(tmp_path / "rows"))) == ROWS

    @FILES
    def test_over_a_file_that_is_gone_unless_it_is_in_memory(self, made, tmp_path):
        reader = made(tmp_path / "rows")
        list(reader())
        (tmp_path / "rows").unlink()
        if made in IN_MEMORY:
            assert len(everything(reader)) == ROWS
            return
        with pytest.raises(DamagedData, match=r"rows cannot be found any more"):
            list(reader())

    def test_over_a_file_that_was_cut_between_its_length_and_its_rows(self, tmp_path):
        reader = npy_file(tmp_path / "rows")
        assert len(reader) == ROWS
        cut(tmp_path / "rows")
        with pytest.raises(DamagedData, match="rows had"):
            next(reader())

    @pytest.mark.parametrize("reads", [arrays, source, lambda rows: source(rows, batched=True)])
    @pytest.mark.parametrize("view", [np.asarray, lambda rows: rows[5:].reshape(-1, 5)])
    def test_over_a_map_of_the_users_that_was_cut(self, reads, view, tmp_path):
        np.save(tmp_path / "rows.npy", np.arange(ROWS))
        rows = view(np.load(tmp_path / "rows.npy", mmap_mode="r"))
        reader = reads(rows)
        assert len(everything(reader)) == len(rows)
        cut(tmp_path / "rows.npy")
        with pytest.raises(DamagedData, match=r"rows\.npy was mapped up to byte 320,128, and has"):
            list(reader())

    def test_of_a_loader_by_its_next_epoch(self, tmp_path):
        loader = Pipeline(npy_file(tmp_path / "rows")).shuffle(seed=1).batch(100).load()
        feeds = loader.steps()
        for _ in range(ROWS // 100):
            next(feeds)
        cut(tmp_path / "rows")
        with pytest.raises(DamagedData, match="rows had"):
            next(feeds)

    @RECORDS
    def test_over_records_that_were_replaced_or_cut_or_are_gone(self, made, tmp_path):
        reader = made(tmp_path / "rows")
        assert list(reader())
        replaced(tmp_path / "rows", made, ROWS)
        with pytest.raises(DamagedData, match=r"rows was replaced by another file"):
            reader()
        reader = made(tmp_path / "rows")
        assert list(reader())
        cut(tmp_path / "rows")
        with pytest.raises(DamagedData, match=r"rows had [\d,]+ bytes, and has [\d,]+ now"):
            reader()
        (tmp_path / "rows").unlink()
        with pytest.raises(DamagedData, match=r"rows cannot be found any more"):
            reader()


class TestGoesOn:
    @FILES
    def test_over_a_copy_with_the_same_time(self, made, tmp_path):
        reader = made(tmp_path / "rows")
        before, times = everything(reader), (tmp_path / "rows").stat()
        made(tmp_path / "copy")
        os.utime(tmp_path / "copy", ns=(times.st_atime_ns, times.st_mtime_ns))
        (tmp_path / "copy").replace(tmp_path / "rows")
        assert everything(reader) == before

    def test_over_a_map_of_a_file_that_has_no_name_any_more(self, tmp_path):
        np.save(tmp_path / "rows.npy", np.arange(ROWS))
        reader = arrays(np.load(tmp_path / "rows.npy", mmap_mode="r"))
        (tmp_path / "rows.npy").unlink()
        assert len(everything(reader)) == ROWS


@pytest.mark.parametrize(
    ("kind", "said"), [(text, "ended at byte 400,000"), (jsonl, "has 400,000")]
)
def test_lines_that_go_missing_under_a_pass_are_told(kind, said, tmp_path):
    path = tmp_path / "rows"
    path.write_text("1\n" * 400_000)  # more than the 128 KiB that Python 3.14 reads at once
    lines = kind(path)()
    next(lines)
    os.truncate(path, 400_000)
    with pytest.raises(DamagedData, match=rf"rows had 800,000 bytes, and {said}"):
        list(lines)


def test_lines_of_a_packed_file_are_as_many_as_there_are(tmp_path):
    with gzip.open(tmp_path / "rows.gz", "wt") as file:
        file.write("1\n" * 10)
    assert everything(jreader.text(tmp_path / "rows.gz")) == ["1"] * 10
