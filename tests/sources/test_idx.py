"""`idx` reads the files of MNIST: any type and rank, packed or not."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from files import IDX_TYPES, idx_bytes, is_mapped, write_idx
from samples import check_resumes_everywhere, everything

from jreader import idx
from jreader.errors import DamagedData

MNIST = Path(__file__).parents[3] / "shared" / "mnist"


@pytest.fixture(name="idx")
def idx_placed(placed):
    """For the tests that take it, files lie here and elsewhere."""
    return placed.reader(idx)


@pytest.mark.parametrize("shape", [(0,), (5,), (4, 3), (3, 2, 2), (2, 1, 3, 2), (0, 28, 28)])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("dtype", IDX_TYPES)
def test_every_type_and_rank_of_idx_comes_back_as_it_was(idx, dtype, packed, shape, tmp_path):
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


def test_image_and_label_files_give_pairs(idx, tmp_path):
    images = write_idx(tmp_path / "i", np.arange(12, dtype=np.uint8).reshape(3, 2, 2), packed=True)
    labels = write_idx(tmp_path / "l", np.array([5, 0, 4], np.uint8), packed=False)
    reader = idx(images, labels)
    assert everything(reader)[0] == [[[0, 1], [2, 3]], 5]
    assert len(reader) == 3
    check_resumes_everywhere(reader)


@pytest.mark.parametrize("kept", range(26))
def test_an_idx_file_truncated_anywhere_is_named(idx, kept, tmp_path):
    content = idx_bytes(np.arange(6, dtype=np.int16).reshape(3, 2))
    assert len(content) == 4 + 8 + 12
    (tmp_path / "x").write_bytes(content[:kept] if kept < 24 else content + b"\0" * (kept - 23))
    with pytest.raises(DamagedData, match=r"x is truncated, or not an IDX file: it "):
        idx(tmp_path / "x")()


def test_a_packed_idx_file_truncated_anywhere_is_named(idx, tmp_path):
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
