"""Bytes of picture files as arrays: JPEG by libjpeg-turbo, all others by Pillow.

A JPEG is decoded at an eighth, a quarter, a half or the whole of its size, whichever is just large
enough: for these libjpeg-turbo has vector instructions (five eighths take half as long again as the
whole). What is left to a wanted size is a factor below two, mostly: there a blur of three pixels
and OpenCV's linear interpolation are as near to Lanczos of the whole picture as Pillow's
antialiasing is (between 1 dB farther and 3 dB nearer, factor by factor), in a quarter of its time.
Sides that do not divide by eight are rounded up, so their last pixels are filled in part: sizes are
reckoned in fractions, or a picture is shifted by up to half a pixel (7 dB).
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from math import ceil
from typing import Any, Literal, TypeAlias

import numpy as np

from jreader.errors import DamagedData, check_sides
from jreader.extras import extra
from jreader.readers import described
from jreader.readers.columns import Array

Size: TypeAlias = int | tuple[int, int] | None
Box: TypeAlias = tuple[int, int, int, int]
Crop: TypeAlias = Box | Callable[[int, int], Box] | None
Resample: TypeAlias = Literal["linear", "nearest"]

_CALL = "decode(data, size, crop, resample)"
_SIZE = f"size of {_CALL}"
_JPEG = b"\xff\xd8\xff"
_SEGMENT = re.compile(rb"\xff+([\xc0-\xfe])(..)", re.DOTALL)  # its marker, its length
_BASELINE, _RESTARTS, _SCAN = (b"\xc0", b"\xc1"), b"\xdd", b"\xda"
_LEFT_OVER = "extraneous bytes before marker 0xd9"  # libjpeg warns so of rows that were cut off
_DEEP = ("I", "F")  # what the modes of Pillow begin with that have more than 8 bits
_SHOWN = 8  # bytes
_SAFE_PIXELS = 1 << 24  # pixels: of fewer, Pillow need not be asked whether they are too many
_RAISED = (
    "a file that was made to fill the memory says so. If it is no such file, set "
    "PIL.Image.MAX_IMAGE_PIXELS to half of the pixels that a picture may have, or to None"
)
_BLURRED = 1.45  # the factor from which a blur of three pixels is more than nothing in 8 bits
_BLUR = 0.6  # its deviation, of what the factor exceeds one by: 0.5 and 0.7 are farther off


def decode(
    data: Any, size: Size = None, *, crop: Crop = None, resample: Resample = "linear"
) -> Array:
    """The picture in the bytes of a file, as uint8[height, width, 3] in RGB.

    With a size, the picture is scaled to cover it, the sides in proportion, and the middle of it is
    cut out. Greys become RGB, CMYK is converted, palettes are looked up; alpha is left out, and the
    colours below it are as the file has them. A turn that EXIF asks for is not made. Of an
    animation it is the first picture.

    With a crop, the result is as if the picture were that part alone. The rows of a JPEG below it
    are not decoded, unless it is progressive or has restart markers. So truncated JPEGs are found,
    but hardly any in which bytes are missing or changed: `decode(data)` finds more.

    >>> decode(open("cat.jpg", "rb").read(), size=224).shape  # doctest: +SKIP
    (224, 224, 3)

    Args:
        data: The bytes of a JPEG, PNG, WebP, or whatever else Pillow reads.
        size: Pixels: of both sides, or (height, width); None for those of the file.
        crop: The part to decode, (top, left, height, width) in pixels of the file; or a function
            that gives it for the height and width of the file. None for the whole picture.
        resample: "linear" interpolates, with antialiasing. "nearest" takes the nearest pixels: no
            value is made that is not in the file, as masks need it.

    Raises:
        ModuleNotFoundError: `python -m pip install 'jreader[images]'` is needed.
        TypeError: `data` is not bytes, or `size` or `crop` not whole numbers.
        ValueError: A size is not positive, `resample` is another word, the crop is empty or reaches
            out of the picture, or the picture has 16 bits or floats, which 8 bits cannot hold.
        DamagedData: The bytes are truncated, or no picture; or the picture has more than twice
            `PIL.Image.MAX_IMAGE_PIXELS` pixels (179 million), as a file may say that was made to
            fill the memory: set that to a larger number, or to None.
    """
    _check_arguments(data, resample)
    return _picture(data, None if size is None else check_sides(_SIZE, size), crop, resample)


def decode_batch(
    data: Sequence[Any],
    size: Size,
    *,
    crop: Crop = None,
    resample: Resample = "linear",
    out: Array | None = None,
) -> Array:
    """The pictures of several files as one array, uint8[pictures, height, width, 3].

    Each is decoded into its row, so nothing has to be stacked.

    >>> decode_batch([], size=(2, 3)).shape
    (0, 2, 3, 3)

    Args:
        data: The bytes of each file.
        size: As in `decode`; it has to be given.
        crop: As in `decode`: one box for all, or a function that is called for each.
        resample: As in `decode`.
        out: The array to fill, uint8, of at least as many rows; None for a new one.

    Raises:
        TypeError: As `decode`; or `size` is None.
        ValueError: As `decode`; or `out` has another shape or dtype.
        DamagedData: One of them is truncated, or no picture: the message has its number.
    """
    if size is None:
        raise TypeError(
            "decode_batch(data, size) needs a size, since files differ in theirs: give size=224, "
            "or size=(height, width)."
        )
    _check_arguments(b"", resample)
    wanted = check_sides(_SIZE, size)
    shape = (*wanted, 3)
    if out is None:
        out = np.empty((len(data), *shape), np.uint8)
    elif out.dtype != np.uint8 or out.shape[1:] != shape or len(out) < len(data):
        raise ValueError(
            f"out of decode_batch(data, size, out=) needs uint8[{len(data)}, {shape[0]}, "
            f"{shape[1]}, 3], not {described(out)}."
        )
    for number, each in enumerate(data):
        try:
            _check_arguments(each, resample)
            out[number] = _picture(each, wanted, crop, resample)
        except (DamagedData, TypeError, ValueError) as error:
            raise type(error)(f"picture {number} of {len(data)}: {error}") from error
    return out[: len(data)]


def sides_of(data: Any) -> tuple[int, int]:
    """The height and width of a picture, from the header of its file.

    Raises:
        DamagedData: As `decode`, as far as the header shows.
        ValueError: The picture has more than 8 bits a channel.
    """
    with _opened(data) as opened:
        return opened.height, opened.width


def stretched(data: Any, wanted: tuple[int, int]) -> Array:
    """The whole picture, each side of it scaled to the one that is wanted."""
    image, (_, _, tall, wide), scale = _scaled(data, wanted)
    if image.shape[:2] == wanted:
        return image
    cv2 = _extra("cv2")
    fy, fx = wanted[0] / (scale * tall), wanted[1] / (scale * wide)  # of what is filled
    how = cv2.INTER_AREA if max(fy, fx) <= 1 else cv2.INTER_LINEAR  # "area" repeats small pixels
    scaled: Array = cv2.resize(image, None, fx=fx, fy=fy, interpolation=how)
    return scaled[: wanted[0], : wanted[1]]  # it may have one more


def _check_arguments(data: Any, resample: Any) -> None:
    if not isinstance(data, (bytes, bytearray, memoryview, np.ndarray)):
        hint = ": give Path(path).read_bytes()" if isinstance(data, str) else ""
        raise TypeError(f"data of {_CALL} needs the bytes of a file, not {described(data)}{hint}.")
    if resample not in ("linear", "nearest"):
        raise ValueError(f"resample of {_CALL} needs 'linear' or 'nearest', not {resample!r}.")


def _all_whole(numbers: Sequence[Any]) -> bool:
    return all(isinstance(each, (int, np.integer)) and each is not True for each in numbers)


def _picture(data: Any, wanted: tuple[int, int] | None, crop: Crop, resample: Resample) -> Array:
    data = data.tobytes() if isinstance(data, np.ndarray) else data
    image, box, scale = _scaled(data, wanted, crop)
    top, left, tall, wide = (scale * pixels for pixels in box)
    part = image[int(top) : ceil(top + tall), int(left) : ceil(left + wide)]
    if wanted in (None, part.shape[:2]):
        return image if part.shape == image.shape else part.copy()
    return _covering(part, (top % 1, left % 1), (tall, wide), wanted, resample)


def _scaled(
    data: Any, wanted: tuple[int, int] | None, crop: Crop = None
) -> tuple[Array, Box, float]:
    """The picture, scaled down if it may be; the crop; and how much it is scaled."""
    found = _of_jpeg(data, wanted, crop) if bytes(data[:3]) == _JPEG else None
    if found is not None:
        return found
    with _opened(data) as opened:
        image = np.array(opened.convert("RGB"))
    return image, _box(crop, *image.shape[:2]), 1


def _of_jpeg(
    data: Any, wanted: tuple[int, int] | None, crop: Crop
) -> tuple[Array, Box, float] | None:
    """The picture, down to the end of the crop at least; the crop; and how much it is scaled.

    None if Pillow has to convert it.
    """
    try:
        height, width, colors, _ = _extra("simplejpeg").decode_jpeg_header(data)
    except ValueError as error:
        raise _undecodable(data, "JPEG", error) from error
    if height * width > _SAFE_PIXELS:
        _check_pixels(height, width)
    if colors not in ("Gray", "YCbCr", "RGB"):
        return None
    box = _box(crop, height, width)
    least = box[2:] if wanted is None else wanted
    fits = (n for n in (1, 2, 4) if box[2] * n >= 8 * least[0] and box[3] * n >= 8 * least[1])
    eighths = next(fits, 8)
    return _decoded_upper_rows(box[0] + box[2], data, (height, width), eighths), box, eighths / 8


def _decoded_upper_rows(bottom: int, data: Any, sides: tuple[int, int], eighths: int) -> Array:
    """A JPEG so many eighths as large, down to a row of it at least."""
    short, height = _cut_below(data, bottom, sides[0])
    rows, columns = -(-height * eighths // 8), -(-sides[1] * eighths // 8)
    image = np.empty((rows, columns, 3), np.uint8)
    try:
        _extra("simplejpeg").decode_jpeg(short, min_height=rows, min_width=columns, buffer=image)
    except ValueError as error:
        if short is data:
            raise _undecodable(data, "JPEG", error) from error
        if _LEFT_OVER not in str(error):
            return _decoded_upper_rows(sides[0], data, sides, eighths)
    return image


def _box(crop: Any, height: int, width: int) -> Box:
    """The part of a picture that a crop names.

    Raises:
        TypeError: It is not four whole numbers.
        ValueError: It is empty, or not inside the picture.
    """
    box = crop(height, width) if callable(crop) else crop
    if box is None:
        return 0, 0, height, width
    if not (isinstance(box, (tuple, list)) and len(box) == 4 and _all_whole(box)):
        raise TypeError(
            f"crop of {_CALL} needs (top, left, height, width), whole numbers of pixels, or a "
            f"function of the height and width of a picture that returns them, not {box!r}."
        )
    top, left, tall, wide = map(int, box)
    if min(top, left, tall - 1, wide - 1) < 0 or top + tall > height or left + wide > width:
        raise ValueError(
            f"crop of {_CALL} is {box!r}, (top, left, height, width), and is no part of a picture "
            f"of {height} x {width} pixels: give a function, as in crop=lambda height, width: "
            "(0, 0, height // 2, width)."
        )
    return top, left, tall, wide


def _cut_below(data: Any, bottom: int, height: int) -> tuple[Any, int]:
    """A JPEG that says that it ends soon below a row, and after how many rows.

    libjpeg decodes what the header says, and then looks for the end of the file. Colours are
    interpolated between rows, so it has two rows more. Where others than the last bytes of a scan
    may be left over, it is the file as it is.
    """
    rows = -(-(bottom + 2) // 16) * 16  # blocks have 8 or 16 rows
    at, begins = 2, 0
    while rows < height and (found := _SEGMENT.match(data, at)) and found[1] != _RESTARTS:
        begins = found.end() + 1 if found[1] in _BASELINE else begins
        if found[1] == _SCAN:
            if not begins:
                break
            short = bytearray(data)
            short[begins : begins + 2] = rows.to_bytes(2, "big")
            return bytes(short), rows
        at = found.end() - 2 + int.from_bytes(found[2], "big")
    return data, height


def _check_pixels(height: int, width: int) -> None:
    """Raises DamagedData if Pillow would not decode so many pixels."""
    most = _extra("PIL.Image").MAX_IMAGE_PIXELS
    if most is not None and height * width > 2 * most:
        raise DamagedData(
            f"a JPEG says that it has {height:,} x {width:,} pixels, more than {2 * most:,}: "
            f"{_RAISED}"
        )


@contextmanager
def _opened(data: Any) -> Iterator[Any]:
    """A picture as Pillow opens it: its header is read."""
    opener = _extra("PIL.Image")
    try:
        with opener.open(io.BytesIO(data)) as opened:
            if opened.mode.startswith(_DEEP):
                raise ValueError(  # caught below
                    f"decode(data) gives 8 bits a channel, and this {opened.format} has the mode "
                    f"{opened.mode!r}, which has more: read it with PIL.Image.open, and scale its "
                    "values."
                )
            yield opened
    except opener.DecompressionBombError as error:
        raise DamagedData(f"{error}: {_RAISED}") from error
    except (OSError, SyntaxError, EOFError) as error:  # what Pillow raises, file by file
        raise _undecodable(data, "picture that Pillow reads", error) from error


def _covering(
    image: Array,
    corner: tuple[float, float],
    sides: tuple[float, float],
    wanted: tuple[int, int],
    resample: Resample,
) -> Array:
    """The middle of a picture, scaled, of which so much is filled, from a corner on."""
    height, width = image.shape[:2]
    scale = min(sides[0] / wanted[0], sides[1] / wanted[1])
    tall, wide = min(wanted[0] * scale, sides[0]), min(wanted[1] * scale, sides[1])  # floats exceed
    top, left = corner[0] + (sides[0] - tall) / 2, corner[1] + (sides[1] - wide) / 2
    if resample == "nearest" or scale == 1:
        rows = (top + (np.arange(wanted[0]) + 0.5) * scale).astype(np.intp).clip(0, height - 1)
        columns = (left + (np.arange(wanted[1]) + 0.5) * scale).astype(np.intp).clip(0, width - 1)
        picked: Array = image[rows].take(columns, axis=1)
        return picked
    if 1 < scale < 2:
        return _shrunk(image, (top, left), (round(tall), round(wide)), scale)
    pillow = _extra("PIL.Image")
    box = (left, top, min(left + wide, width), min(top + tall, height))
    how = pillow.Resampling.BILINEAR
    return np.array(pillow.fromarray(image).resize((wanted[1], wanted[0]), how, box=box))


def _shrunk(
    image: Array, corner: tuple[float, float], sides: tuple[int, int], scale: float
) -> Array:
    """A part of a picture, from the whole pixel that is nearest to a corner, so much smaller."""
    cv2 = _extra("cv2")
    top, left = (min(round(corner[n]), image.shape[n] - sides[n]) for n in (0, 1))
    part = image[top : top + sides[0], left : left + sides[1]]
    if scale > _BLURRED:
        part = cv2.GaussianBlur(part, (3, 3), _BLUR * (scale - 1), borderType=cv2.BORDER_REPLICATE)
    shrunk: Array = cv2.resize(
        part, None, fx=1 / scale, fy=1 / scale, interpolation=cv2.INTER_LINEAR
    )
    return shrunk


@cache
def _extra(name: str) -> Any:
    return extra(name, "images", "jreader.images needs it")


def _undecodable(data: Any, kind: str, error: Exception) -> DamagedData:
    return DamagedData(
        f"{len(data):,} bytes that begin with [{bytes(data[:_SHOWN]).hex(' ')}] are truncated, or "
        f"not a {kind}: {error}. Fetch the file again, or leave it out: .map(fn, on_error='skip')."
    )
