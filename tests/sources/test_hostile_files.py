"""Files that cannot be read, whatever keeps them: the error names the file, and says why."""

from __future__ import annotations

import os
import struct
import zipfile

import numpy as np
import pytest

import jreader
from jreader.errors import DamagedData


def members(path, **marks):
    """Writes an archive of two arrays, and changes fields of the second one, in both heads."""
    np.savez_compressed(path, x=np.arange(5), y=np.arange(5))
    whole = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("y.npy")
    central = whole.rindex(b"PK\1\2")
    for name, value in marks.items():
        place = {"flags": 6, "method": 8}[name]
        struct.pack_into("<H", whole, info.header_offset + place, value)
        struct.pack_into("<H", whole, central + place + 2, value)
    path.write_bytes(whole)


@pytest.mark.parametrize(
    ("marks", "said"),
    [({"flags": 1}, "encrypted"), ({"method": 97}, "compression method"), ({"method": 14}, "")],
    ids=["encrypted", "unknown", "lzma"],
)
def test_an_array_of_an_npz_that_cannot_be_unpacked_is_named(tmp_path, marks, said):
    path = tmp_path / "a.npz"
    members(path, **marks)
    assert [int(row) for row in jreader.npz(path, "x")()] == [*range(5)]
    with pytest.raises(DamagedData, match=rf"a\.npz is .*'y': .*{said}"):
        list(jreader.npz(path)())


def written(folder, stem):
    """A file of each format that a library maps or opens by its name, and the reader of it."""
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"x": [1.0, 2.0]})
    with pa.ipc.new_file(str(folder / "a"), table.schema) as out:
        out.write_table(table)
    (folder / "a").rename(folder / f"{stem}.arrow")
    yield jreader.arrow, f"{folder}/{stem}.arrow", 2
    module = pytest.importorskip("array_record.python.array_record_module")
    writer = module.ArrayRecordWriter(str(folder / "b"), "group_size:1")
    writer.write(b"one")
    writer.close()
    (folder / "b").rename(folder / f"{stem}.arrayrecord")
    yield jreader.arrayrecord, f"{folder}/{stem}.arrayrecord", 1
    np.savez(folder / "c.npz", x=np.arange(3))
    (folder / "c.npz").rename(folder / f"{stem}.npz")
    yield jreader.npz, f"{folder}/{stem}.npz", 3


def test_names_that_are_not_utf_8_are_read(tmp_path):
    for reader, path, rows in written(tmp_path, os.fsdecode(b"na\xffme")):
        assert len(list(reader(path)())) == rows


def test_a_file_that_may_not_be_read_is_an_error_where_the_reader_is_made(tmp_path, python):
    """Who runs the tests may read all files, so a process gives up that right."""
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    (tmp_path / "a.jsonl").write_text("1\n")
    for path in tmp_path.iterdir():
        path.chmod(0)
    script = f"""
        import ctypes, os, jreader
        jreader.jsonl, jreader.npz  # while the modules can be read
        from jreader.sources import file_checks
        if not os.geteuid():
            os.chmod("{tmp_path}", 0o755)
            os.chdir("{tmp_path}")
            os.setresuid(65534, 65534, 65534)
        for name in ("npz", "jsonl"):
            try:
                list(getattr(jreader, name)(f"a.{{name}}")())
            except PermissionError as error:
                print(error)
    """
    said = python(script).stdout.splitlines()
    assert [line.partition(":")[0] for line in said] == [
        "npz(path, *names) may not read 'a.npz'",
        "jsonl(*paths) may not read 'a.jsonl'",
    ]
