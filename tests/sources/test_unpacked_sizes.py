"""Small files that would fill the memory are errors before they do; a limit can be raised.

Each is read in a process that may have little memory. The limit is a small one here.
"""

from __future__ import annotations

import gzip
import io
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

import jreader
from jreader.errors import DamagedData
from jreader.sources.file_checks import UNPACKED_LIMIT as LIMIT
from jreader.sources.file_checks import most_unpacked

BOMB = 1 << 26  # bytes, of which gzip makes 64 kB
LEAST = 1 << 20


@pytest.fixture(autouse=True)
def limit(monkeypatch):
    monkeypatch.setattr("jreader.sources.file_checks._LEAST_UNPACKED", LEAST)


@pytest.fixture
def memory_of():
    """Calls a function; as much as it allocates in Python and NumPy must stay below a bound."""

    def called(function, most):
        tracemalloc.start()
        try:
            return function()
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < most, f"{peak:,} bytes"

    return called


def idx(shape):
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)


def npz(path):
    np.savez_compressed(path, x=np.zeros(BOMB // 8))


BOMBS = {
    "a.txt.gz": (jreader.text, bytes(BOMB)),
    "a.jsonl.gz": (jreader.jsonl, b"1\n" + b" " * BOMB),
    "a.csv.gz": (jreader.csv, b"x\n" + b"1\n" * (BOMB // 2)),
    "images.gz": (jreader.idx, idx([BOMB]) + bytes(BOMB)),
    "mnist.json.gz": (jreader.mnist_json, b" " * BOMB),
}


@pytest.fixture(params=[*BOMBS, "a.npz"])
def bomb(request, tmp_path):
    path = tmp_path / request.param
    if path.suffix == ".npz":
        npz(path)
        return jreader.npz, path
    if "csv" in request.param:
        pytest.importorskip("pyarrow")
    reader, content = BOMBS[request.param]
    path.write_bytes(gzip.compress(content))
    return reader, path


def test_what_is_packed_too_well_is_an_error_that_says_how_to_raise_the_limit(bomb, memory_of):
    reader, path = bomb
    with pytest.raises(DamagedData, match=rf"{path.name} would unpack to more than .*{LIMIT}"):
        memory_of(lambda: list(reader(path)()), 24 * LEAST)


def test_a_raised_limit_lets_it_pass(tmp_path, monkeypatch):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(idx([2 * LEAST]) + bytes(2 * LEAST)))
    with pytest.raises(DamagedData, match=LIMIT):
        len(jreader.idx(path))
    monkeypatch.setenv(LIMIT, str(3 * LEAST))
    assert len(jreader.idx(path)) == 2 * LEAST


def test_a_large_file_may_unpack_to_more():
    assert most_unpacked(100 * LEAST) == 10_000 * LEAST


def test_what_idx_declares_is_looked_at_before_it_is_unpacked(tmp_path, memory_of):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(idx([10]) + bytes(BOMB)))
    with pytest.raises(DamagedData, match=r"uint8\[10\] would make 18"):
        memory_of(lambda: len(jreader.idx(path)), LEAST)


def test_an_array_of_an_npz_that_declares_too_much_is_an_error(tmp_path):
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        content, {"descr": "<f8", "fortran_order": False, "shape": (1 << 55,)}
    )
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", content.getvalue() + bytes(64))
    with pytest.raises(DamagedData, match=r"a\.npz .*'x'"):
        len(jreader.npz(tmp_path / "a.npz"))


def test_many_short_lines_are_no_long_one(tmp_path):
    """Also where a line ends with what was unpacked at once."""
    lines = b"".join(b"%d\n" % number for number in range(LEAST // 2))
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(lines))
    assert sum(1 for _ in jreader.text(tmp_path / "a.txt.gz")()) == LEAST // 2


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(side):
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def jpeg(side):
    image = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    image.new("RGB", (8, 8)).save(out, "JPEG")
    data = bytearray(out.getvalue())
    struct.pack_into(">HH", data, data.index(b"\xff\xc0") + 5, side, side)
    return bytes(data)


@pytest.mark.parametrize("size", [None, 224])
@pytest.mark.parametrize("made", [jpeg, png])
def test_a_picture_that_says_it_is_huge_is_refused_before_room_is_made(made, size, memory_of):
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("simplejpeg")
    decode = pytest.importorskip("jreader.images").decode
    assert image.MAX_IMAGE_PIXELS
    data = made(65_500)
    decode(jpeg(8))  # what it imports is not counted
    image.init()
    with pytest.raises(DamagedData, match="MAX_IMAGE_PIXELS"):
        memory_of(lambda: decode(data, size), LEAST)


def test_the_limit_of_pillow_holds_for_jpeg(monkeypatch):
    image = pytest.importorskip("PIL.Image")
    decode = pytest.importorskip("jreader.images").decode
    out = io.BytesIO()
    image.new("RGB", (4200, 4200)).save(out, "JPEG")
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", 1 << 20)
    with pytest.raises(DamagedData, match="4,200 x 4,200 pixels, more than 2,097,152"):
        decode(out.getvalue())
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", None)
    assert decode(out.getvalue(), 4).shape == (4, 4, 3)
