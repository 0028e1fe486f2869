"""Pictures from bytes: sizes, kinds of files, and what is wrong with some."""

import io
import re

import numpy as np
import pytest

from jreader import Pipeline, images
from jreader.errors import DamagedData

pytest.importorskip("simplejpeg")
pytest.importorskip("cv2")
Image = pytest.importorskip("PIL.Image")


def ramp(height, width):
    rows, columns = np.mgrid[:height, :width]
    return np.stack(
        [rows * 255 // height, columns * 255 // width, (rows + columns) % 256], -1
    ).astype(np.uint8)


def file_of(picture, kind="PNG", mode=None, **options):
    out = io.BytesIO()
    image = Image.fromarray(picture)
    (image.convert(mode) if mode else image).save(out, kind, **options)
    return out.getvalue()


def close(one, other, most):
    return np.abs(one.astype(int) - other.astype(int)).mean() < most


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "BMP", "TIFF"])
def test_other_kinds_are_as_pillow_reads_them(kind):
    picture = ramp(20, 30)
    options = {"lossless": True} if kind == "WEBP" else {}
    assert np.array_equal(images.decode(file_of(picture, kind, **options)), picture)


def test_a_jpeg_is_as_pillow_reads_it():
    data = file_of(ramp(120, 90), "JPEG", quality=95)
    pillow = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert close(images.decode(data), pillow, 2)


@pytest.mark.parametrize("resample", ["linear", "nearest"])
@pytest.mark.parametrize("size", [16, (40, 24), (100, 200), (375, 500)])
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_size_covers_and_cuts_the_middle(kind, size, resample):
    made = images.decode(file_of(ramp(375, 500), kind), size, resample=resample)
    tall, wide = size if isinstance(size, tuple) else (size, size)
    assert made.shape == (tall, wide, 3)
    assert made.dtype == np.uint8
    scale = min(375 / tall, 500 / wide)
    rows = (375 - tall * scale) / 2 + (np.arange(tall) + 0.5) * scale
    columns = (500 - wide * scale) / 2 + (np.arange(wide) + 0.5) * scale
    assert close(made[..., 0], np.broadcast_to(rows[:, None] * 255 / 375, (tall, wide)), 8)
    assert close(made[..., 1], np.broadcast_to(columns * 255 / 500, (tall, wide)), 8)


@pytest.mark.parametrize("shape", [(375, 501), (427, 641), (240, 300), (597, 461), (1810, 1842)])
def test_a_shrunken_jpeg_is_as_near_as_pillow_comes_to_the_whole_one(shape):
    grains = np.random.default_rng(0).integers(0, 256, (90, 90, 3), np.uint8)
    picture = Image.fromarray(grains).resize(shape[::-1], Image.Resampling.BICUBIC)
    data = file_of(np.asarray(picture), "JPEG", quality=95)
    whole, least = Image.open(io.BytesIO(data)), min(shape) / 2
    middle = (
        shape[1] / 2 - least,
        shape[0] / 2 - least,
        shape[1] / 2 + least,
        shape[0] / 2 + least,
    )
    best, pillows = (
        np.asarray(whole.resize((224, 224), how, box=middle), float)
        for how in (Image.Resampling.LANCZOS, Image.Resampling.BILINEAR)
    )
    ours = images.decode(data, 224)
    assert np.square(ours - best).mean() < 2.5 * np.square(pillows - best).mean()


@pytest.mark.parametrize("size", [9, (17, 5), 64])
def test_nearest_makes_no_value_that_is_not_in_the_file(size):
    mask = np.random.default_rng(0).choice(np.array([0, 7, 200], np.uint8), (31, 40, 3))
    made = images.decode(file_of(mask), size, resample="nearest")
    assert set(np.unique(made)) <= {0, 7, 200}


def test_every_size_is_made_of_every_size():
    for height in range(1, 40, 3):
        picture = ramp(height, 31)
        data = file_of(picture, "BMP")
        for size in (1, 7, 22, 23, 224):
            assert images.decode(data, size).shape == (size, size, 3)
            assert images.decode(data, (size, 9), resample="nearest").shape == (size, 9, 3)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1"])
def test_every_mode_of_8_bits_is_rgb(mode):
    kind = "TIFF" if mode == "CMYK" else "PNG"
    assert images.decode(file_of(ramp(9, 9), kind, mode)).shape == (9, 9, 3)


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_a_jpeg_of_grey_or_cmyk_is_rgb(mode):
    assert images.decode(file_of(ramp(64, 48), "JPEG", mode), 24).shape == (24, 24, 3)


def test_16_bits_are_refused_not_cut():
    deep = io.BytesIO()
    Image.fromarray(np.arange(12, dtype=np.uint16).reshape(3, 4) * 5000).save(deep, "PNG")
    with pytest.raises(ValueError, match="which has more: read it with PIL"):
        images.decode(deep.getvalue())


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_truncated_bytes_are_no_picture(kind):
    data = file_of(ramp(50, 50), kind)
    for cut in (0, 2, 10, len(data) // 2):
        with pytest.raises(DamagedData, match="are truncated, or no"):
            images.decode(data[:cut])


@pytest.mark.parametrize(
    ("data", "size", "says", "error"),
    [
        ("cat.jpg", None, "needs the bytes of a file", TypeError),
        (b"", 0, "at least 1", ValueError),
        (b"", 2.5, "whole number of at least 1", TypeError),
        (b"", (1, 2, 3), "number of pixels", TypeError),
    ],
)
def test_wrong_arguments_say_what_is_needed(data, size, says, error):
    with pytest.raises(error, match=says):
        images.decode(data, size)


def test_another_word_for_resample_is_refused():
    with pytest.raises(ValueError, match="'linear' or 'nearest'"):
        images.decode(b"", 3, resample="cubic")


def grains(height, width, seed=0):
    """A picture of every frequency that a JPEG keeps."""
    small = np.random.default_rng(seed).integers(0, 256, (height // 6, width // 6, 3), np.uint8)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def part(picture, box):
    top, left, tall, wide = box
    return picture[top : top + tall, left : left + wide]


BOXES = [(0, 0, 1, 1), (0, 5, 16, 30), (33, 0, 61, 77), (90, 20, 31, 57), (0, 0, 121, 77)]
JPEGS = {
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_rows": 1},
    "restarts, often": {"restart_marker_blocks": 2},
}


@pytest.mark.parametrize("options", JPEGS.values(), ids=JPEGS)
def test_a_crop_is_that_part_of_the_whole_jpeg(options):
    data = file_of(grains(121, 77), "JPEG", **options)
    whole = images.decode(data)
    for box in BOXES:
        assert np.array_equal(images.decode(data, crop=box), part(whole, box))


def test_a_crop_of_a_jpeg_with_more_behind_its_pixels_is_that_part():
    data = file_of(grains(121, 77), "JPEG", quality=90)
    commented = data[:-2] + b"\xff\xfe\x00\x06text" + data[-2:]
    assert np.array_equal(
        images.decode(commented, crop=BOXES[1]), part(images.decode(data), BOXES[1])
    )


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_a_crop_is_that_part_of_other_kinds(kind):
    data = file_of(grains(121, 77), kind)
    for box in BOXES:
        assert np.array_equal(images.decode(data, crop=box), part(images.decode(data), box))


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_a_crop_of_a_grey_or_cmyk_jpeg_is_rgb(mode):
    data = file_of(grains(64, 48), "JPEG", mode)
    whole = images.decode(data)
    assert np.array_equal(images.decode(data, crop=(8, 3, 20, 30)), part(whole, (8, 3, 20, 30)))


@pytest.mark.parametrize("resample", ["linear", "nearest"])
@pytest.mark.parametrize("size", [20, 64, 150, (90, 60), 400])
@pytest.mark.parametrize("box", [(0, 0, 300, 400), (37, 81, 163, 203), (250, 300, 111, 121)])
def test_a_sized_crop_is_the_size_of_that_part(box, size, resample):
    data = file_of(ramp(375, 500), "JPEG", quality=95)
    alone = file_of(part(images.decode(data), box))
    made = images.decode(data, size, crop=box, resample=resample)
    assert made.shape[:2] == (size if isinstance(size, tuple) else (size, size))
    assert close(made[..., :2], images.decode(alone, size, resample=resample)[..., :2], 1.5)


@pytest.mark.parametrize("size", [None, 24])
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("box", [(300, 0, 24, 400), (300, 11, 24, 24)])
def test_a_crop_does_not_hold_the_memory_of_the_picture(kind, box, size):
    made = images.decode(file_of(ramp(375, 400), kind), size, crop=box)
    assert made.flags.c_contiguous
    assert made.base is None or made.base.nbytes == made.nbytes


def test_a_function_says_the_crop_of_each_size():
    files = [file_of(grains(80 + 8 * n, 60), "JPEG") for n in range(3)]
    seen = []

    def lower_half(height, width):
        seen.append((height, width))
        return height // 2, 0, height // 2, width

    made = images.decode_batch(files, (40, 60), crop=lower_half)
    assert seen == [(80, 60), (88, 60), (96, 60)]
    for number, picture in enumerate(made):
        box = lower_half(*seen[number])
        assert np.array_equal(picture, images.decode(files[number], (40, 60), crop=box))


def test_what_lies_below_a_crop_is_not_decoded():
    data = file_of(grains(320, 200), "JPEG")
    zeros = data[: len(data) // 2] + bytes(len(data) // 4) + data[-len(data) // 4 :]
    box = (0, 0, 90, 200)
    assert np.array_equal(images.decode(zeros, crop=box), part(images.decode(data), box))
    with pytest.raises(DamagedData):
        images.decode(zeros)


def test_a_truncated_jpeg_is_damaged_whatever_is_cropped():
    data = file_of(grains(320, 200), "JPEG")
    for cut in (len(data) // 8, len(data) // 2, len(data) - 2):
        with pytest.raises(DamagedData, match="are truncated"):
            images.decode(data[:cut], crop=(0, 0, 90, 200))


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize(
    ("crop", "says", "error"),
    [
        ((0, 0, 41, 60), "of 40 x 60 pixels", ValueError),
        ((-1, 0, 4, 4), "of 40 x 60 pixels", ValueError),
        ((0, 0, 0, 4), "of 40 x 60 pixels", ValueError),
        ((0, 0, 4), "(top, left, height, width)", TypeError),
        (7, "(top, left, height, width)", TypeError),
        (lambda height, width: (0, 0, height, width / 2), "whole numbers", TypeError),
    ],
)
def test_a_crop_that_is_none_says_what_is_needed(kind, crop, says, error):
    with pytest.raises(error, match=re.escape(says)):
        images.decode(file_of(ramp(40, 60), kind), crop=crop)


def test_a_batch_is_decoded_into_its_rows():
    files = [file_of(ramp(40 + 8 * n, 60), "JPEG") for n in range(3)]
    out = np.zeros((4, 16, 24, 3), np.uint8)
    made = images.decode_batch(files, (16, 24), out=out)
    assert np.shares_memory(made, out)
    assert np.array_equal(made, [images.decode(file, (16, 24)) for file in files])
    with pytest.raises(DamagedData, match="picture 1 of 2"):
        images.decode_batch([files[0], b"no"], 16)
    with pytest.raises(ValueError, match=r"needs uint8\[3, 16, 16, 3\]"):
        images.decode_batch(files, 16, out=out)
    with pytest.raises(TypeError, match="needs a size"):
        images.decode_batch(files, None)


def test_a_damaged_one_comes_after_the_good_ones():
    good = file_of(ramp(8, 8))
    items = iter(Pipeline(lambda: [good, good, good[:20]]).map(images.decode))
    assert [next(items).shape, next(items).shape] == [(8, 8, 3)] * 2
    with pytest.raises(DamagedData):
        next(items)
