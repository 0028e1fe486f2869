"""Digits are the original ones, come as they are promised, and a failed download leaves nothing."""

import gzip
import hashlib
import http.server
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from jreader.datasets import digits, mnist
from jreader.errors import DamagedData
from jreader.readers import length, start

MNIST = Path(__file__).parents[3] / "shared" / "mnist"
TEST_FILES = ["t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"]
IMAGES, LABELS = TEST_FILES

needs_digits = pytest.mark.skipif(not MNIST.exists(), reason="the digits are not here")


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """No test sees the user's folders, or the network."""
    monkeypatch.delenv("JREADER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JREADER_MNIST_MIRROR", "http://127.0.0.1:9/")
    return tmp_path / "cache" / "jreader"


@contextmanager
def mirror(monkeypatch, answer):
    """A server on this machine; `answer(handler, name)` says what it sends."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path.rpartition("/")[2])
            answer(self, asked[-1])

        def log_message(self, *_):
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = False  # when it is closed, all has been answered

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}/mnist"
        monkeypatch.setenv("JREADER_MNIST_MIRROR", address)
        try:
            yield asked
        finally:
            server.shutdown()
            thread.join()


def sends(content, promised=None):
    """An answer of `content`, announced as `promised` bytes."""

    def answer(handler, name):
        body = content(name) if callable(content) else content
        handler.send_response(200)
        handler.send_header("Content-Length", str(promised or len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def original(name):
    return (MNIST / name).read_bytes()


def refuses(handler, name):
    handler.send_error(404)


def says_nothing(handler, name):
    handler.close_connection = True


def talks_nonsense(handler, name):
    handler.wfile.write(b"what?\r\n\r\n")


def contents(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


# MNIST


def test_building_mnist_reads_and_fetches_nothing(folders):
    for reader, n in ((mnist.train(), 60_000), (mnist.test(), 10_000)):
        assert length(reader) == len(reader) == n
        assert len(cloudpickle.dumps(reader)) < 1000
    assert repr(mnist.test()) == "map_readers(scaled, mnist.arrays('test'))"
    assert not folders.exists()


def test_the_sums_are_those_of_the_original_files():
    assert [total[:8] for total in mnist.SUMS.values()] == [
        *("440fcabf", "3552534a", "8d422c7b", "f7ae60f9"),
    ]
    assert {len(bytes.fromhex(total)) for total in mnist.SUMS.values()} == {32}


@needs_digits
def test_mnist_comes_as_stored_and_as_scaled_samples(monkeypatch):
    monkeypatch.setenv("JREADER_DATA", str(MNIST))
    images, labels = mnist.arrays("test")
    assert (images.shape, images.dtype) == ((10_000, 28, 28), np.uint8)
    assert (labels.shape, labels.dtype) == ((10_000,), np.uint8)
    check_samples(mnist.test(), images, labels)
    assert contents(MNIST)[-2:] == TEST_FILES


def check_samples(reader, images, labels):
    samples = list(reader())
    assert len(samples) == len(reader) == len(labels)
    pixels, label = samples[7]
    assert (type(pixels), pixels.shape, pixels.dtype) == (np.ndarray, (784,), np.float32)
    assert type(label) is np.int64
    every = np.stack([pixels for pixels, _ in samples])
    assert (every.min(), every.max()) == (-1, 1)
    np.testing.assert_allclose((every + 1) * 127.5, images.reshape(-1, 784), atol=1e-4)
    assert [label for _, label in samples] == labels.tolist()
    first = start(reader)
    next(first.items)
    rest = list(start(reader, first.position()).items)
    assert [label for _, label in rest] == labels[1:].tolist()


@needs_digits
def test_missing_files_are_fetched_once_checked_and_kept(folders, monkeypatch, capfd):
    with mirror(monkeypatch, sends(original)) as asked:
        images, _ = mnist.arrays("test")
        again, _ = mnist.arrays("test")
        assert images.shape == again.shape == (10_000, 28, 28)
    assert sorted(asked) == sorted(contents(folders)) == TEST_FILES
    assert (folders / LABELS).read_bytes() == original(LABELS)
    assert capfd.readouterr().err == ""  # which is no terminal


@needs_digits
def test_only_what_is_missing_is_fetched(folders, monkeypatch, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / LABELS).write_bytes(original(LABELS))
    monkeypatch.setenv("JREADER_DATA", str(tmp_path / "mine"))
    with mirror(monkeypatch, sends(original)) as asked:
        mnist.arrays("test")
    assert asked == contents(folders) == [IMAGES]
    assert contents(tmp_path / "mine") == [LABELS]


def test_a_download_with_another_sum_is_removed_and_said(folders, monkeypatch):
    wrong = b"something else"
    with mirror(monkeypatch, sends(wrong)), pytest.raises(DamagedData) as caught:
        mnist.arrays("test")
    message = str(caught.value)
    assert IMAGES in message
    assert "14 bytes" in message
    assert hashlib.sha256(wrong).hexdigest() in message
    assert mnist.SUMS[IMAGES] in message
    assert contents(folders) == []


@needs_digits
@pytest.mark.parametrize("kept", [0, 1, 100_000])
def test_a_download_that_ends_early_is_removed_and_said(kept, folders, monkeypatch):
    whole = original(IMAGES)
    answer = sends(whole[:kept], promised=len(whole))
    with (
        mirror(monkeypatch, answer),
        pytest.raises(DamagedData, match=rf"truncated.* {kept} bytes"),
    ):
        mnist.arrays("test")
    assert contents(folders) == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(refuses, "404"), (says_nothing, "RemoteDisconnected"), (talks_nonsense, "BadStatusLine")],
)
def test_a_mirror_that_does_not_give_the_file_is_named(answer, reason, folders, monkeypatch):
    with mirror(monkeypatch, answer), pytest.raises(FileNotFoundError) as caught:
        mnist.arrays("train")
    message = str(caught.value)
    assert "train-images-idx3-ubyte.gz could not be fetched" in message
    assert reason in message
    assert contents(folders) == []


def test_a_mirror_that_refuses_is_not_kept_waiting(monkeypatch):
    heard = []

    def refuses_and_waits(handler, name):
        refuses(handler, name)
        handler.connection.settimeout(60)  # none is so busy as to need it
        with suppress(TimeoutError):
            try:
                heard.append(handler.rfile.read(1))
            except ConnectionResetError:  # it was left with something unread: it has ended, too
                heard.append(b"")

    with mirror(monkeypatch, refuses_and_waits), pytest.raises(FileNotFoundError) as caught:
        mnist.arrays("test")
    assert heard == [b""], caught  # the error is alive, the connection is not


def test_without_a_network_the_error_says_where_was_looked_and_what_to_do(
    folders, monkeypatch, tmp_path
):
    monkeypatch.setenv("JREADER_DATA", str(tmp_path / "mine"))
    with pytest.raises(FileNotFoundError) as caught:
        list(mnist.test()())
    message = str(caught.value)
    assert f"{IMAGES} is not in {tmp_path / 'mine'} nor in {folders}" in message
    assert f"put the file into {tmp_path / 'mine'}" in message
    assert "JREADER_MNIST_MIRROR" in message
    assert contents(folders) == []


def test_a_download_that_is_interrupted_leaves_nothing(folders, monkeypatch):
    partial = []

    def begins_and_interrupts(handler, name):
        sends(b"x" * 100_000, promised=200_000)(handler, name)
        partial.extend(contents(folders))
        os.kill(os.getpid(), signal.SIGINT)
        handler.rfile.read(1)  # until the other side hangs up

    with mirror(monkeypatch, begins_and_interrupts), pytest.raises(KeyboardInterrupt):
        mnist.arrays("test")
    assert len(partial) == 1
    assert contents(folders) == []


def test_a_damaged_file_in_the_cache_folder_is_removed_and_said(folders):
    folders.mkdir(parents=True)
    (folders / IMAGES).write_bytes(gzip.compress(b"not the digits"))
    with pytest.raises(DamagedData, match=f"{IMAGES} is truncated.*removed: run again"):
        mnist.arrays("test")
    assert contents(folders) == []


def test_a_damaged_file_of_the_user_is_said_but_not_removed(folders, monkeypatch, tmp_path):
    monkeypatch.setenv("JREADER_DATA", str(tmp_path))
    (tmp_path / IMAGES).write_bytes(b"mine")
    for _ in range(2):
        with pytest.raises(DamagedData, match=r"it has 4 bytes .*Replace it with the original"):
            mnist.arrays("test")
    assert (tmp_path / IMAGES).read_bytes() == b"mine"


@needs_digits
def test_a_file_that_changes_is_checked_again(monkeypatch, tmp_path):
    monkeypatch.setenv("JREADER_DATA", str(tmp_path))
    for name in TEST_FILES:
        (tmp_path / name).write_bytes(original(name))
    mnist.arrays("test")
    (tmp_path / LABELS).write_bytes(b"x" + original(LABELS))
    with pytest.raises(DamagedData, match=rf"{LABELS} .*SHA-256"):
        mnist.arrays("test")


def test_mnist_is_found_when_all_four_files_lie_in_either_folder(folders, monkeypatch, tmp_path):
    monkeypatch.setenv("JREADER_DATA", str(tmp_path / "mine"))
    (tmp_path / "mine").mkdir()
    folders.mkdir(parents=True)
    for number, name in enumerate(mnist.SUMS):
        assert not mnist.found()
        (folders if number % 2 else tmp_path / "mine").joinpath(name).touch()
    assert mnist.found()


@pytest.mark.parametrize("dataset", [mnist, digits])
def test_another_mode_is_refused(dataset):
    with pytest.raises(
        ValueError, match=r"arrays\(mode\) needs a mode of 'train' or 'test', not 3"
    ):
        dataset.arrays(3)


def test_datasets_import_neither_jax_nor_scikit_learn_nor_urllib():
    seen = (
        "import sys, jreader.datasets; print({'jax', 'sklearn', 'urllib.request'} & {*sys.modules})"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", seen], capture_output=True, text=True, cwd=root, check=False
    )
    assert done.stdout == "set()\n", done.stderr


# scikit-learn's digits


@pytest.mark.parametrize(
    ("mode", "reader", "n"),
    [
        pytest.param("train", digits.train, 1438, marks=pytest.mark.slow),
        ("test", digits.test, 359),
    ],
)
def test_digits_have_the_interface_of_mnist(mode, reader, n):
    images, labels = digits.arrays(mode)
    assert (images.shape, images.dtype) == ((n, 28, 28), np.uint8)
    assert (labels.shape, labels.dtype) == ((n,), np.uint8)
    assert repr(reader()) == f"map_readers(scaled, digits.arrays({mode!r}))"
    assert len(cloudpickle.dumps(reader())) < 1000
    check_samples(reader(), images, labels)


def test_every_fifth_digit_is_held_out_and_none_is_lost():
    load_digits = pytest.importorskip("sklearn.datasets").load_digits
    labels = load_digits().target
    assert digits.arrays("test")[1].tolist() == labels[4::5].tolist()
    assert digits.arrays("train")[1].tolist() == np.delete(labels, np.s_[4::5]).tolist()


def test_upsampling_is_bilinear_between_the_centres_of_pixels():
    levels = np.zeros((1, 8, 8), int)
    levels[0, :, 4:] = 16
    (image,) = digits.upsampled(levels)
    assert (image == image[0]).all()
    # pixel 12 of 28 lies at (4 * 12 - 5) / 14 = 3.07 of 8: a fourteenth of the way from 3 to 4
    assert image[0, 10:18].tolist() == [0, 0, 18, 91, 164, 237, 255, 255]
    (turned,) = digits.upsampled(levels.transpose(0, 2, 1))
    assert (turned == image.T).all()


def test_upsampled_digits_average_to_what_is_stored():
    load_digits = pytest.importorskip("sklearn.datasets").load_digits
    stored = load_digits().images[4::5]
    means = digits.arrays("test")[0].mean(axis=(1, 2)) / 255 * 16
    np.testing.assert_allclose(means, stored.mean(axis=(1, 2)), atol=0.3)


def test_without_scikit_learn_the_error_says_what_to_type(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"python -m pip install 'jreader\[demo\]'"):
        digits.arrays("train")
    assert len(digits.train()) == 1438
