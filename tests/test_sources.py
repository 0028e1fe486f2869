"""Creators give what files and arrays hold, from any place on, and say what is wrong with them."""

import gzip
import json
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jreader.errors import DamagedData, NotResumable
from jreader.readers import length, start
from jreader.sources import arrays, idx, jsonl, mnist_json, npy, npz, text

MNIST = Path(__file__).parents[2] / "shared" / "mnist"
IDX_TYPES = {
    "uint8": 0x08,
    "int8": 0x09,
    "int16": 0x0B,
    "int32": 0x0C,
    "float32": 0x0D,
    "float64": 0x0E,
}


class Pair(NamedTuple):
    image: np.ndarray
    label: np.ndarray


@dataclass
class Digit:
    image: np.ndarray
    label: np.ndarray


def everything(reader):
    """The samples as plain Python values, which compare without surprises."""
    return [plain(sample) for sample in reader()]


def plain(value):
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def check_resumes_everywhere(reader):
    """A position is a place: through JSON, before, between and after the samples, twice over."""
    whole = everything(reader)
    for done in range(len(whole) + 1):
        first = start(reader)
        head = [plain(next(first.items)) for _ in range(done)]
        second = start(reader, json.loads(json.dumps(first.position())))
        assert json.dumps(second.position()) == json.dumps(first.position())
        third = start(reader, json.loads(json.dumps(second.position())))
        assert head + [plain(sample) for sample in second.items] == whole
        assert head + [plain(sample) for sample in third.items] == whole
        for ended in (second, third):
            assert list(start(reader, json.loads(json.dumps(ended.position()))).items) == []
        first.close()


def opened_files():
    return {str(entry.resolve()) for entry in Path("/proc/self/fd").iterdir()}


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")


def is_mapped(array):
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None


# arrays


def test_columns_by_place_give_tuples_and_by_name_dicts():
    images, labels = np.arange(6).reshape(3, 2), [5, 0, 4]
    assert everything(arrays(images, labels)) == [[[0, 1], 5], [[2, 3], 0], [[4, 5], 4]]
    assert type(next(arrays(images, labels)())) is tuple
    assert everything(arrays(image=images, label=labels))[1] == {"image": [2, 3], "label": 0}


def test_one_column_gives_bare_rows():
    assert everything(arrays([[1, 2], [3, 4]])) == [[1, 2], [3, 4]]
    assert everything(arrays(["a", "", None])) == ["a", "", None]


@pytest.mark.parametrize("tree", [dict, Pair, Digit])
def test_a_tree_of_columns_gives_samples_of_that_tree(tree):
    reader = arrays(tree(image=np.zeros((2, 3)), label=[7, 8]))
    assert all(type(sample) is tree for sample in reader())
    labels = [s["label"] if tree is dict else s.label for s in reader()]
    assert labels == [7, 8]


def test_trees_of_columns_nest():
    reader = arrays({"views": (np.arange(2), np.arange(2) * 10)}, ["a", "b"])
    assert everything(reader) == [[{"views": [0, 0]}, "a"], [{"views": [1, 10]}, "b"]]


def test_columns_are_the_arrays_that_were_given_not_copies():
    images, labels = np.zeros((2, 3)), np.arange(2)
    reader = arrays(images, labels)
    assert reader.columns[0] is images
    assert reader.columns[1] is labels
    assert np.shares_memory(next(reader())[0], images)
    assert set(arrays(image=images).columns) == {"image"}
    assert arrays(images).columns is images


def test_rows_of_a_memory_map_are_plain_arrays(tmp_path):
    mapped = np.memmap(tmp_path / "raw", np.uint8, "w+", shape=(3, 4))
    reader = arrays(mapped, mapped)
    assert [type(row) for row in next(reader())] == [np.ndarray] * 2
    assert np.shares_memory(reader.columns[0], mapped)


def test_a_length_is_known_and_any_row_is_a_place_to_go_on():
    reader = arrays(np.arange(4), np.arange(4) * 2)
    assert length(reader) == len(reader) == 4
    assert [start(reader, at).position() for at in range(5)] == [0, 1, 2, 3, 4]
    for each in (reader, arrays([1, 2, 3]), arrays(a=[1, 2], b=["x", "y"]), arrays([])):
        check_resumes_everywhere(each)


def test_a_place_behind_the_last_row_is_refused():
    with pytest.raises(NotResumable, match=r"after sample 4 of int64\[3\]: it has 3 samples"):
        start(arrays([1, 2, 3]), 4)


def test_arrays_are_shown_as_shapes():
    images, labels = np.zeros((9, 28, 28), np.uint8), np.zeros(9, int)
    assert repr(arrays(images, labels)) == "arrays(uint8[9, 28, 28], int64[9])"
    assert repr(arrays(image=images)) == "arrays(image=uint8[9, 28, 28])"
    assert repr(arrays(labels)) == "arrays(int64[9])"
    assert repr(arrays((labels,))) == "arrays((int64[9],))"
    assert repr(arrays({"an image": labels})) == "arrays({'an image': int64[9]})"
    assert repr(arrays(Pair(images, labels))) == (
        "arrays(Pair(image=uint8[9, 28, 28], label=int64[9]))"
    )


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (arrays, TypeError, "not neither: arrays"),
        (lambda: arrays([1], label=[2]), TypeError, "not both: arrays"),
        (lambda: arrays([1, 2], [1, 2, 3]), ValueError, r"int64\[2\] and int64\[3\].* to 2 rows"),
        (lambda: arrays(a=[1, 2], b=[1]), ValueError, "needs columns of one length"),
        (lambda: arrays(7), ValueError, "axis of rows, not 7"),
        (lambda: arrays([1, 2], np.array(3.5)), ValueError, "axis of rows, not 3.5"),
        (lambda: arrays((1, 2, 3)), ValueError, "a tuple is read as several columns"),
        (lambda: arrays(len), ValueError, "axis of rows, not len"),
        (lambda: arrays({}), ValueError, "needs at least one column"),
        (lambda: arrays(()), ValueError, "needs at least one column"),
    ],
)
def test_what_has_no_rows_to_give_is_refused_where_it_was_written(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


@given(st.lists(st.integers(0, 9)), st.integers(0, 12))
def test_going_on_at_a_row_is_slicing(rows, at):
    reader = arrays(np.array(rows, int))
    if at <= len(rows):
        assert [int(row) for row in start(reader, at).items] == rows[at:]


# files in general


FILE_CREATORS = [npy, npz, idx, mnist_json, text, jsonl]


@pytest.mark.parametrize("creator", FILE_CREATORS)
def test_a_missing_file_is_refused_where_its_name_was_written(creator, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere.*does not exist. Check the spelling"):
        creator(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="is not a file"):
        creator(tmp_path)


@pytest.mark.parametrize("creator", [npy, idx, text, jsonl])
def test_no_path_is_refused(creator):
    with pytest.raises(TypeError, match=rf"{creator.__name__}\(\*paths.* needs at least one path"):
        creator()


@pytest.mark.parametrize("creator", FILE_CREATORS)
def test_what_is_no_path_is_refused(creator):
    with pytest.raises(TypeError, match=r"needs a str or a path, not 3\."):
        creator(3)
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


# .npy and .npz


def test_npy_files_are_mapped_and_side_by_side(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(3, 2))
    np.save(tmp_path / "y.npy", np.array([5, 0, 4]))
    reader = npy(tmp_path / "x.npy", str(tmp_path / "y.npy"))
    assert all(is_mapped(column) for column in reader.columns)
    assert [type(column) for column in reader.columns] == [np.ndarray] * 2
    assert everything(reader) == [[[0, 1], 5], [[2, 3], 0], [[4, 5], 4]]
    assert len(reader) == 3
    assert everything(npy(tmp_path / "y.npy")) == [5, 0, 4]
    check_resumes_everywhere(reader)


def test_a_change_of_the_file_is_seen_through_the_map(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    reader = npy(tmp_path / "x.npy")
    assert everything(reader) == [0, 0, 0]
    np.lib.format.open_memmap(tmp_path / "x.npy", "r+")[1] = 7
    assert everything(reader) == [0, 7, 0]


def test_rows_of_a_npy_file_cannot_be_written_to(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    with pytest.raises(ValueError, match="read-only"):
        next(npy(tmp_path / "x.npy")())[:] = 1


def test_an_empty_npy_file_of_no_rows_is_an_empty_reader(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((0, 28)))
    assert everything(npy(tmp_path / "x.npy")) == []


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([None, {}]), "Python objects"),
        (np.array(3), "axis of rows, not 3"),
    ],
)
def test_npy_files_without_rows_of_numbers_are_refused(array, message, tmp_path):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(DamagedData, match=message):
        list(npy(tmp_path / "x.npy")())


@pytest.mark.parametrize("kept", range(0, 140, 3))
def test_a_npy_file_truncated_anywhere_is_named(kept, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(2))  # a header of 128 bytes, and 16 of numbers
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:kept])
    with pytest.raises(DamagedData, match=r"x\.npy is truncated"):
        list(npy(tmp_path / "x.npy")())


@pytest.mark.parametrize(
    "header", [b"{", b"{'descr': ('<i8'", b"if 1:\n    2\n  3\n", b"{}", b"\xff", b"[" * 9000]
)
def test_a_npy_file_whose_header_cannot_be_parsed_is_named(header, tmp_path):
    head = b"\x93NUMPY\1\0" + struct.pack("<H", len(header))
    (tmp_path / "x.npy").write_bytes(head + header)
    with pytest.raises(DamagedData, match=r"x\.npy is truncated, or not a \.npy file"):
        npy(tmp_path / "x.npy")()


def test_files_of_unequal_length_are_refused_with_both_lengths(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    np.save(tmp_path / "y.npy", np.zeros(4))
    with pytest.raises(DamagedData, match=r"x\.npy.*y\.npy.*float64\[3\] and float64\[4\]"):
        npy(tmp_path / "x.npy", tmp_path / "y.npy")()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_gives_all_arrays_by_name_or_some_by_place(save, tmp_path):
    save(tmp_path / "d.npz", image=np.arange(4).reshape(2, 2), label=np.array([7, 8]))
    path = tmp_path / "d.npz"
    assert everything(npz(path))[1] == {"image": [2, 3], "label": 8}
    assert everything(npz(path, "label", "image")) == [[7, [0, 1]], [8, [2, 3]]]
    assert type(next(npz(path, "label", "image")())) is tuple
    assert everything(npz(path, "label")) == [7, 8]
    assert repr(npz(path, "label")) == f"npz({str(path)!r}, 'label')"
    for names in ((), ("label",), ("label", "image")):
        check_resumes_everywhere(npz(path, *names))


def test_a_name_that_is_not_in_the_archive_is_refused_with_those_that_are(tmp_path):
    np.savez(tmp_path / "d.npz", image=np.zeros(2), label=np.zeros(2))
    with pytest.raises(ValueError, match=r"'imge'.* 'image', 'label'"):
        npz(tmp_path / "d.npz", "imge", "label")()
    with pytest.raises(TypeError, match="needs names of arrays, not 3"):
        npz(tmp_path / "d.npz", 3)


def test_an_archive_of_nothing_or_of_objects_is_refused(tmp_path):
    np.savez(tmp_path / "none.npz")
    np.savez(tmp_path / "objects.npz", np.array([None]))
    with pytest.raises(DamagedData, match="needs at least one column"):
        npz(tmp_path / "none.npz")()
    with pytest.raises(DamagedData, match="Object arrays"):
        npz(tmp_path / "objects.npz")()


def test_an_archive_truncated_or_changed_anywhere_is_named(tmp_path):
    path = tmp_path / "d.npz"
    np.savez(path, image=np.arange(64))
    whole = path.read_bytes()
    for kept in range(0, len(whole), 41):
        path.write_bytes(whole[:kept])
        with pytest.raises(DamagedData, match=r"d\.npz is truncated"):
            npz(path)()
    path.write_bytes(whole[:300] + b"\xff" + whole[301:])
    with pytest.raises(DamagedData, match="CRC"):
        npz(path)()


# IDX


def idx_bytes(array):
    head = struct.pack(">HBB", 0, IDX_TYPES[array.dtype.name], array.ndim)
    shape = b"".join(struct.pack(">I", n) for n in array.shape)
    return head + shape + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write_idx(path, array, *, packed):
    content = idx_bytes(array)
    path.write_bytes(gzip.compress(content) if packed else content)
    return path


@pytest.mark.parametrize("shape", [(0,), (5,), (4, 3), (3, 2, 2), (2, 1, 3, 2), (0, 28, 28)])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("dtype", IDX_TYPES)
def test_every_type_and_rank_of_idx_comes_back_as_it_was(dtype, packed, shape, tmp_path):
    numbers = np.random.default_rng(0).normal(0, 50, shape).astype(np.float64)
    array = np.abs(numbers).astype(dtype) if dtype == "uint8" else numbers.astype(dtype)
    column = idx(write_idx(tmp_path / "x", array, packed=packed)).columns
    assert column.dtype == dtype
    assert column.dtype.isnative
    assert type(column) is np.ndarray
    np.testing.assert_array_equal(column, array)


@pytest.mark.parametrize(("dtype", "packed"), [("uint8", False), ("int8", False)])
def test_plain_idx_files_of_bytes_are_mapped(dtype, packed, tmp_path):
    path = write_idx(tmp_path / "x", np.zeros((3, 4), dtype), packed=packed)
    assert is_mapped(idx(path).columns)
    path = write_idx(tmp_path / "y", np.zeros((3, 4), dtype), packed=True)
    assert not is_mapped(idx(path).columns)


def test_image_and_label_files_give_pairs(tmp_path):
    images = write_idx(tmp_path / "i", np.arange(12, dtype=np.uint8).reshape(3, 2, 2), packed=True)
    labels = write_idx(tmp_path / "l", np.array([5, 0, 4], np.uint8), packed=False)
    reader = idx(images, labels)
    assert everything(reader)[0] == [[[0, 1], [2, 3]], 5]
    assert len(reader) == 3
    check_resumes_everywhere(reader)


@pytest.mark.parametrize("kept", range(26))
def test_an_idx_file_truncated_anywhere_is_named(kept, tmp_path):
    content = idx_bytes(np.arange(6, dtype=np.int16).reshape(3, 2))
    assert len(content) == 4 + 8 + 12
    (tmp_path / "x").write_bytes(content[:kept] if kept < 24 else content + b"\0" * (kept - 23))
    with pytest.raises(DamagedData, match=r"x is truncated, or not an IDX file: it "):
        idx(tmp_path / "x")()


def test_a_packed_idx_file_truncated_anywhere_is_named(tmp_path):
    content = gzip.compress(idx_bytes(np.arange(6, dtype=np.int16)))
    for kept in range(len(content)):
        (tmp_path / "x.gz").write_bytes(content[:kept])
        with pytest.raises(DamagedData, match=r"x\.gz is truncated"):
            idx(tmp_path / "x.gz")()


def test_a_packed_idx_file_changed_anywhere_is_named(tmp_path):
    content = gzip.compress(idx_bytes(np.arange(60, dtype=np.int16)), mtime=0)
    for place in range(10, len(content)):  # behind the header, which says nothing of the content
        changed = bytearray(content)
        changed[place] ^= 0xFF
        (tmp_path / "x.gz").write_bytes(changed)
        with pytest.raises(DamagedData, match=r"x\.gz is truncated"):
            idx(tmp_path / "x.gz")()


@pytest.mark.parametrize(
    "head", [b"\0\1\x08\1", b"\1\0\x08\1", b"\0\0\x0a\1", b"\0\0\0\1", b"\x89PNG", b"\0\0\x08\xff"]
)
def test_a_file_that_does_not_begin_as_idx_does_is_refused(head, tmp_path):
    (tmp_path / "x").write_bytes(head + b"\0\0\0\1" + b"\0")
    with pytest.raises(DamagedData, match="not an IDX file"):
        idx(tmp_path / "x")()


def test_the_size_that_was_seen_and_expected_is_said(tmp_path):
    (tmp_path / "x").write_bytes(idx_bytes(np.zeros((9, 28, 28), np.uint8))[:-1])
    with pytest.raises(
        DamagedData, match=r"has 7071 bytes, and uint8\[9, 28, 28\] would make 7072"
    ):
        idx(tmp_path / "x")()


def test_an_idx_file_of_one_number_has_no_rows(tmp_path):
    (tmp_path / "x").write_bytes(b"\0\0\x08\0\7")
    with pytest.raises(DamagedData, match="axis of rows, not 7"):
        idx(tmp_path / "x")()


@pytest.mark.skipif(not MNIST.exists(), reason="the digits are not here")
def test_the_real_test_digits_are_read():
    reader = idx(MNIST / "t10k-images-idx3-ubyte.gz", MNIST / "t10k-labels-idx1-ubyte.gz")
    images, labels = reader.columns
    assert (images.shape, images.dtype) == ((10_000, 28, 28), np.uint8)
    assert labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert np.bincount(labels).tolist() == [
        *(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    ]
    assert images[0].sum() == 18454


# mnist.json.gz


def write_mnist_json(path, pairs):
    content = json.dumps(pairs).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["mnist.json.gz", "mnist.json"])
def test_the_tutorials_file_has_three_modes(name, tmp_path):
    pairs = [
        [[[0.0, 0.25] * 392] * 2, [5, 0]],
        [[[-1] * 784], [4]],
        [[[1.0] * 784] * 3, [1, 2, 3]],
    ]
    path = write_mnist_json(tmp_path / name, pairs)
    assert [int(label) for _, label in mnist_json(path)()] == [5, 0]
    assert [int(label) for _, label in mnist_json(path, mode="valid")()] == [4]
    assert [int(label) for _, label in mnist_json(path, "eval")()] == [1, 2, 3]
    image, label = next(mnist_json(path)())
    assert (image.dtype, image.shape, label.dtype) == (np.float32, (784,), np.int64)
    assert image[:2].tolist() == [0, 0.25]
    check_resumes_everywhere(mnist_json(path, "eval"))


def test_another_mode_is_refused_with_the_three(tmp_path):
    path = write_mnist_json(tmp_path / "m.json", [])
    with pytest.raises(ValueError, match="train, valid, eval, not 'test'"):
        mnist_json(path, "test")


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({}, "list of three"),
        ([[[], []]] * 2, "list of three"),
        ([[[]]] * 3, "unpack"),
        ([3, 4, 5], "unpack"),
        ([[[[0.0] * 783], [1]]] * 3, "reshape"),
        ([[[[0.0] * 784], [1.5]]] * 3, "labels of 'train' are ints"),
        ([[[[0.0] * 784], [1, 2]]] * 3, r"float32\[1, 784\] and int64\[2\]"),
        ([[[["a"] * 784], [1]]] * 3, "could not convert"),
        ([[[[0.0] * 784], [2**70]]] * 3, "too large"),
    ],
)
def test_json_of_another_form_is_refused(pairs, message, tmp_path):
    path = write_mnist_json(tmp_path / "m.json", pairs)
    with pytest.raises(DamagedData, match=message):
        mnist_json(path)()


def test_the_tutorials_file_truncated_anywhere_is_named(tmp_path):
    content = gzip.compress(json.dumps([[[[0.5] * 784], [1]]] * 3).encode())
    for kept in range(0, len(content), 7):
        (tmp_path / "m.json.gz").write_bytes(content[:kept])
        with pytest.raises(DamagedData, match=r"m\.json\.gz is truncated"):
            mnist_json(tmp_path / "m.json.gz")()


# text and JSON lines

TEXTS = [
    b"",
    b"one",
    b"one\n",
    b"\n",
    b"\n\n\n",
    b"one\r\ntwo\r\n",
    b"one\r\ntwo",
    b"one\rtwo\r",
    b"\r\n\r\n",
    b"one\n\n\ntwo\n",
    "grün\nüber\n\u2028\x0b\x85\n".encode(),
]


def lines_of(content):
    """What `text` has to give, said in another way: by splitting the whole."""
    parts = content.decode().split("\n")
    ended = [part.removesuffix("\r") for part in parts[:-1]]
    return ended + ([parts[-1]] if parts[-1] else [])


def write_lines(folder, contents, *, packed):
    paths = []
    for number, content in enumerate(contents):
        path = folder / (f"{number}.txt.gz" if packed else f"{number}.txt")
        path.write_bytes(gzip.compress(content) if packed else content)
        paths.append(path)
    return paths


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("content", TEXTS)
def test_lines_come_without_their_ends_from_any_place_on(content, packed, tmp_path):
    reader = text(*write_lines(tmp_path, [content], packed=packed))
    assert list(reader()) == lines_of(content)
    check_resumes_everywhere(reader)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_files_follow_one_another_from_any_place_on(packed, tmp_path):
    reader = text(*write_lines(tmp_path, TEXTS, packed=packed))
    assert list(reader()) == [line for content in TEXTS for line in lines_of(content)]
    check_resumes_everywhere(reader)


@settings(max_examples=60)
@given(
    contents=st.lists(st.text("ab\r\n\x00ü").map(str.encode), min_size=1, max_size=3),
    packed=st.booleans(),
)
def test_any_text_is_cut_into_its_lines_from_any_place_on(tmp_path_factory, contents, packed):
    reader = text(*write_lines(tmp_path_factory.mktemp("lines"), contents, packed=packed))
    assert list(reader()) == [line for content in contents for line in lines_of(content)]
    check_resumes_everywhere(reader)


def test_going_on_reads_nothing_that_lies_before(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\xff\n" + b"good\n")
    assert list(start(text(tmp_path / "a.txt"), [0, 3]).items) == ["good"]


def test_the_position_is_file_and_byte(tmp_path):
    (tmp_path / "a").write_bytes(b"ab\r\ncd\n")
    (tmp_path / "b").write_bytes(b"e")
    up = start(text(tmp_path / "a", tmp_path / "b"))
    places = [up.position(), *(up.position() for _ in up.items), up.position()]
    assert places == [(0, 0), (0, 4), (0, 7), (1, 1), (2, 0)]


def test_a_position_can_be_asked_for_after_the_pass_was_closed(tmp_path):
    (tmp_path / "a").write_bytes(b"ab\ncd\n")
    up = start(text(tmp_path / "a"))
    assert next(up.items) == "ab"
    up.close()
    assert up.position() == (0, 3)
    assert list(up.items) == []


def test_other_encodings_are_read_where_lines_end_in_one_byte(tmp_path):
    for encoding in ("latin-1", "cp1252", "gb18030", "shift-jis", "utf-8-sig"):
        words = ["日本", "語"] if encoding in ("gb18030", "shift-jis") else ["grün", "blau"]
        (tmp_path / "a").write_bytes("\r\n".join(words).encode(encoding))
        reader = text(tmp_path / "a", encoding=encoding)
        assert list(reader()) == words
        assert repr(reader).endswith(f", encoding={encoding!r})")
        check_resumes_everywhere(reader)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "cp037", "no such"])
def test_encodings_whose_lines_cannot_be_told_apart_are_refused(encoding, tmp_path):
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(ValueError, match=f"such as 'utf-8', .* not {encoding!r}"):
        text(tmp_path / "a", encoding=encoding)


def test_a_line_of_another_encoding_is_named_by_its_byte(tmp_path):
    (tmp_path / "a").write_bytes(b"good\n" + "gr\xfcn\n".encode("latin-1"))
    items = text(tmp_path / "a")()
    assert next(items) == "good"
    with pytest.raises(DamagedData, match=r"a is truncated.*line at byte 5 .*utf-8"):
        next(items)


def test_json_lines_give_values_and_leave_out_blank_lines(tmp_path):
    content = b'\xef\xbb\xbf{"a": [1, 2.5]}\n\n  \t\r\nnull\r\n""\n"gr\xc3\xbcn"\n[]'
    reader = jsonl(*write_lines(tmp_path, [content, b"\n\n", b"", b"7\n\n"], packed=False))
    assert list(reader()) == [{"a": [1, 2.5]}, None, "", "grün", [], 7]
    check_resumes_everywhere(reader)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@settings(max_examples=40)
@given(values=st.lists(st.none() | st.integers() | st.text() | st.lists(st.booleans())))
def test_any_values_come_back_from_json_lines(tmp_path_factory, values, packed):
    content = "\n".join(map(json.dumps, values)).encode()
    reader = jsonl(*write_lines(tmp_path_factory.mktemp("j"), [content, content], packed=packed))
    assert list(reader()) == values + values
    check_resumes_everywhere(reader)


@pytest.mark.parametrize(
    "bad",
    [b"{", b"1 2", b"\xff", b"\x001\x00", b"[" * 100_000],
    ids=["open", "two", "latin-1", "UTF-16", "deep"],
)
def test_a_line_that_is_not_json_is_named_by_its_byte(bad, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"1\n\n" + bad + b"\n2\n")
    items = jsonl(tmp_path / "a.jsonl")()
    assert next(items) == 1
    with pytest.raises(DamagedData, match=r"a\.jsonl is truncated.*line at byte 3 "):
        next(items)


@pytest.mark.parametrize("creator", [text, jsonl])
def test_a_gzip_file_truncated_anywhere_is_named_after_its_good_lines(creator, tmp_path):
    content = gzip.compress(b"1\n2\n3\n")
    for kept in range(1, len(content)):
        (tmp_path / "a.gz").write_bytes(content[:kept])
        with pytest.raises(DamagedData, match=r"a\.gz is truncated"):
            list(creator(tmp_path / "a.gz")())


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_place_where_no_line_begins_any_more_is_refused(packed, tmp_path):
    reader = text(*write_lines(tmp_path, [b"ab\ncd"], packed=packed))
    with pytest.raises(NotResumable, match=r"byte 6 of .* changed"):
        list(start(reader, [0, 6]).items)
    with pytest.raises(NotResumable, match="byte 2 of"):
        list(start(reader, [0, 2]).items)
    assert list(start(reader, [0, 5]).items) == []


@needs_proc
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("creator", [text, jsonl])
def test_files_are_closed_at_the_end_on_close_and_when_dropped(creator, packed, tmp_path):
    (path,) = write_lines(tmp_path, [b"1\n2\n"], packed=packed)
    reader = creator(path)
    up = start(reader)
    assert str(path) not in opened_files()
    next(up.items)
    assert str(path) in opened_files()
    up.close()
    assert str(path) not in opened_files()
    list(reader())
    assert str(path) not in opened_files()
    items = reader()
    next(items)
    assert str(path) in opened_files()
    del items
    assert str(path) not in opened_files()


@needs_proc
def test_files_are_closed_after_an_error(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\nx\n")
    items = jsonl(path)()
    with pytest.raises(DamagedData):
        list(items)
    assert str(path) not in opened_files()


def test_two_passes_of_one_reader_do_not_disturb_each_other(tmp_path):
    (tmp_path / "a").write_bytes(b"1\n2\n3\n")
    one, two = text(tmp_path / "a")(), text(tmp_path / "a")()
    assert [next(one), next(one), next(two), next(one), next(two)] == ["1", "2", "1", "3", "2"]


def test_next_after_the_end_is_still_the_end(tmp_path):
    (tmp_path / "a").write_bytes(b"1\n")
    for items in (text(tmp_path / "a")(), arrays([1])()):
        next(items)
        assert [next(items, "end"), next(items, "end")] == ["end", "end"]
