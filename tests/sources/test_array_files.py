"""What all creators over files have in common: what they refuse, read, and carry."""

import json
import re

import cloudpickle
import numpy as np
import pytest
from files import write_idx
from samples import everything

from jreader import idx, jsonl, mnist_json, npy, npz, text
from jreader.errors import DamagedData

FILE_CREATORS = [npy, npz, idx, mnist_json, text, jsonl]
LISTS = [npy, idx, text, jsonl]  # take lists of files, folders and patterns


@pytest.mark.parametrize("creator", FILE_CREATORS)
def test_a_missing_file_is_refused_where_its_name_was_written(creator, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere.*does not exist. Check the spelling"):
        creator(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"is not a file|finds no file in"):
        creator(tmp_path)


@pytest.mark.parametrize("creator", [npy, idx, text, jsonl])
def test_no_path_is_refused(creator):
    with pytest.raises(TypeError, match=rf"{creator.__name__}\(\*paths.* needs at least one path"):
        creator()


@pytest.mark.parametrize("creator", FILE_CREATORS)
def test_what_is_no_path_is_refused(creator):
    with pytest.raises(TypeError, match=r"needs a str or a path, not 3\."):
        creator(3)
    if creator not in LISTS:
        with pytest.raises(TypeError, match=r"unpack it, as in \*paths"):
            creator(["a"])
    with pytest.raises(TypeError, match="not b'a'"):
        creator(b"a")


@pytest.mark.parametrize("creator", FILE_CREATORS)
def test_building_reads_nothing(creator, tmp_path):
    path = tmp_path / "damaged"
    path.write_bytes(b"[{\xff\n")
    reader = creator(path)
    assert repr(reader).startswith(f"{creator.__name__}({str(path)!r}")
    with pytest.raises(DamagedData, match=re.escape(str(path))):
        list(reader())


@pytest.mark.parametrize("creator", [npy, npz, idx, mnist_json])
@pytest.mark.parametrize(
    "content",
    [b"", b"\x80\x04K\x01.", b"\x1f\x8b", b"PK\x03\x04", b"null", b"[" * 100_000],
    ids=["empty", "pickle", "gzip", "zip", "JSON", "deep"],
)
def test_files_of_another_format_are_named(creator, content, tmp_path):
    path = tmp_path / "foreign"
    path.write_bytes(content)
    with pytest.raises(DamagedData, match=rf"{path} is truncated, or not .*Fetch it again"):
        list(creator(path)())


def test_plans_over_files_carry_names_not_data(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(100_000))
    np.savez(tmp_path / "a.npz", np.zeros(100_000))
    write_idx(tmp_path / "a.idx", np.zeros(100_000), packed=True)
    pairs = [[[[0.5] * 784] * 200, [1] * 200], [[], []], [[], []]]
    (tmp_path / "a.json").write_text(json.dumps(pairs))
    (tmp_path / "a.txt").write_text("abc\n" * 1000)
    for reader in (
        npy(tmp_path / "a.npy"),
        npz(tmp_path / "a.npz"),
        idx(tmp_path / "a.idx"),
        mnist_json(tmp_path / "a.json"),
        text(tmp_path / "a.txt"),
    ):
        before = everything(reader)
        packed = cloudpickle.dumps(reader)
        assert len(packed) < 1000
        travelled = cloudpickle.loads(packed)
        assert everything(travelled) == before
        assert repr(travelled) == repr(reader)


def test_columns_of_a_file_are_read_once(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    reader = npz(tmp_path / "a.npz")
    assert reader.columns is reader.columns
    (tmp_path / "a.npz").unlink()
    assert len(everything(reader)) == 3


@pytest.mark.parametrize(
    "given", [str, "{}/*.txt".format, lambda at: [f"{at}/a.txt", f"{at}/b.txt"]]
)
def test_text_takes_folders_patterns_and_lists(tmp_path, given):
    for name in ("b", "a"):
        (tmp_path / f"{name}.txt").write_text(f"{name}\n")
    (tmp_path / "notes.md").write_text("none of them\n")
    assert list(text(given(tmp_path))()) == ["a", "b"]


def test_idx_takes_shards(tmp_path):
    for number in range(3):
        array = np.full((2, 3), number, np.uint8)
        write_idx(tmp_path / f"x-{number}", array, packed=number == 1)
    rows = idx(f"{tmp_path}/x-*", [tmp_path / f"x-{number}" for number in (2, 1, 0)])
    pairs = [(int(x[0]), int(y[0])) for x, y in rows()]
    assert pairs == [(0, 2), (0, 2), (1, 1), (1, 1), (2, 0), (2, 0)]
