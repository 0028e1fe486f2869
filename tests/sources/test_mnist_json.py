"""`mnist_json` reads the one file of Paddle's tutorials."""

import gzip
import json

import numpy as np
import pytest
from files import write
from samples import check_resumes_everywhere

from jreader import mnist_json
from jreader.errors import DamagedData


def write_mnist_json(path, pairs):
    return write(path, json.dumps(pairs).encode(), packed=path.suffix == ".gz")


@pytest.mark.parametrize("name", ["mnist.json.gz", "mnist.json"])
def test_the_tutorials_file_has_three_modes(name, tmp_path, placed):
    pairs = [
        [[[0.0, 0.25] * 392] * 2, [5, 0]],
        [[[-1] * 784], [4]],
        [[[1.0] * 784] * 3, [1, 2, 3]],
    ]
    path = write_mnist_json(tmp_path / name, pairs)
    placed.options = {}
    read = placed.reader(mnist_json)
    assert [int(label) for _, label in read(path)()] == [5, 0]
    assert [int(label) for _, label in read(path, mode="valid")()] == [4]
    assert [int(label) for _, label in read(path, "eval")()] == [1, 2, 3]
    image, label = next(read(path)())
    assert (image.dtype, image.shape, label.dtype) == (np.float32, (784,), np.int64)
    assert image[:2].tolist() == [0, 0.25]
    check_resumes_everywhere(mnist_json(path, "eval"))


def test_another_mode_is_refused_with_the_three(tmp_path):
    path = write_mnist_json(tmp_path / "m.json", [])
    with pytest.raises(ValueError, match="'train', 'valid' or 'eval', not 'test'"):
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
