"""Decode image files into arrays: JPEG by libjpeg-turbo, all others by Pillow.

A JPEG is decoded at an eighth, a quarter, a half or the whole of its size, whichever is just large
enough: libjpeg-turbo has vector instructions for these (five eighths take half as long again as the
whole). The remaining factor is mostly below two: there a blur of three pixels and OpenCV's linear
interpolation are as close to Lanczos of the whole image as Pillow's antialiasing (from 1 dB farther
to 3 dB nearer, by factor), in a quarter of the time. Sides that do not divide by eight are rounded
up, so their last pixels are partly filled: sizes are computed in fractions, or an image would shift
by up to half a pixel (7 dB).
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
_SEGMENT = re.compile(rb"\xff+([\xc0-\xfe])(..)", re.DOTALL)  # its marker and length
_BASELINE, _RESTARTS, _SCAN = (b"\xc0", b"\xc1"), b"\xdd", b"\xda"
_LEFT_OVER = "extraneous bytes before marker 0xd9"  # libjpeg's warning about rows that were cut off
_DEEP = ("I", "F")  # how Pillow's modes of more than 8 bits begin
_SHOWN = 8  # bytes
_SAFE_PIXELS = 1 << 24  # smaller images never reach Pillow's limit, so skip asking for it
_RAISED = (
    "a file that was made to fill the memory says so. If it is no such file, set "
    "PIL.Image.MAX_IMAGE_PIXELS to half of the pixels that a picture may have, or to None"
)
_BLURRED = 1.45  # the factor above which a blur of three pixels changes 8-bit values
_BLUR = 0.6  # its deviation, per factor above one: 0.5 and 0.7 are less accurate


def decode(
    data: Any, size: Size = None, *, crop: Crop = None, resample: Resample = "linear"
) -> Array:
    """Decode the bytes of an image file into uint8[height, width, 3] in RGB.

    With a size, the image is scaled to cover it, keeping proportions, and its middle is cut out.
    Grays become RGB, CMYK is converted, palettes are looked up; alpha is dropped, and the colors
    below it stay as in the file. EXIF rotation is not applied. Of an animation you get the first
    image.

    With a crop, the result is as if the image were that part alone. The rows of a JPEG below it are
    not decoded, unless it is progressive or has restart markers. So truncated JPEGs are found, but
    hardly any with missing or changed bytes: `decode(data)` finds more.

    >>> decode(open("cat.jpg", "rb").read(), size=224).shape  # doctest: +SKIP
    (224, 224, 3)

    Args:
        data: The bytes of a JPEG, PNG, WebP, or any other format that Pillow reads.
        size: Pixels of both sides, or (height, width); None for the size in the file.
        crop: The part to decode, (top, left, height, width) in pixels of the file; or a function
            that returns it for the height and width of the file. None for the whole image.
        resample: "linear" interpolates, with antialiasing. "nearest" takes the nearest pixels, so
            that only values of the file occur, as masks need it.

    Raises:
        ModuleNotFoundError: `python -m pip install 'jreader[images]'` is needed.
        TypeError: `data` is not bytes, or `size` or `crop` not whole numbers.
        ValueError: A size is not positive, `resample` is unknown, the crop is empty or exceeds the
            image, or the image has 16 bits or floats, which 8 bits cannot hold.
        DamagedData: The bytes are truncated or no image; or the image has more than twice
            `PIL.Image.MAX_IMAGE_PIXELS` pixels (179 million), as a malicious file may claim in
            order to fill the memory: set that to a larger number, or to None.
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
    """Decode several image files into one array, uint8[images, height, width, 3].

    Each image is decoded into its row, so nothing needs stacking.

    >>> decode_batch([], size=(2, 3)).shape
    (0, 2, 3, 3)

    Args:
        data: The bytes of each file.
        size: As in `decode`, but required.
        crop: As in `decode`: one box for all, or a function called for each.
        resample: As in `decode`.
        out: The array to fill, uint8 with at least as many rows; None for a new one.

    Raises:
        TypeError: As `decode`; or `size` is None.
        ValueError: As `decode`; or `out` has another shape or dtype.
        DamagedData: One file is truncated or no image; the message shows its number.
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
    """Return the height and width of an image, from its file header.

    Raises:
        DamagedData: As `decode`, as far as the header shows.
        ValueError: The picture has more than 8 bits a channel.
    """
    with _opened(data) as opened:
        return opened.height, opened.width


def stretched(data: Any, wanted: tuple[int, int]) -> Array:
    """Decode a whole image and stretch it to the wanted height and width."""
    image, (_, _, tall, wide), scale = _scaled(data, wanted)
    if image.shape[:2] == wanted:
        return image
    cv2 = _extra("cv2")
    fy, fx = wanted[0] / (scale * tall), wanted[1] / (scale * wide)  # of the filled part
    how = cv2.INTER_AREA if max(fy, fx) <= 1 else cv2.INTER_LINEAR  # "area" repeats small pixels
    scaled: Array = cv2.resize(image, None, fx=fx, fy=fy, interpolation=how)
    return scaled[: wanted[0], : wanted[1]]  # there may be one more pixel


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
    """Return the image, scaled down if allowed; the crop; and the scale."""
    found = _of_jpeg(data, wanted, crop) if bytes(data[:3]) == _JPEG else None
    if found is not None:
        return found
    with _opened(data) as opened:
        image = np.array(opened.convert("RGB"))
    return image, _box(crop, *image.shape[:2]), 1


def _of_jpeg(
    data: Any, wanted: tuple[int, int] | None, crop: Crop
) -> tuple[Array, Box, float] | None:
    """Return the image, at least down to the end of the crop; the crop; and the scale.

    Return None if Pillow has to convert it.
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
    """Decode a JPEG at this many eighths of its size, at least down to a row."""
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
    """Return the part of an image that a crop selects.

    Raises:
        TypeError: The crop is not four whole numbers.
        ValueError: The crop is empty, or not inside the image.
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
    """Return a JPEG whose header claims that it ends soon below a row, and its new height.

    libjpeg decodes the height in the header, and then looks for the end of the file. Colors are
    interpolated between rows, so two more rows are kept. If bytes other than a scan's last may be
    left over, the file is returned unchanged.
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
    """Raise DamagedData if Pillow would refuse to decode so many pixels."""
    most = _extra("PIL.Image").MAX_IMAGE_PIXELS
    if most is not None and height * width > 2 * most:
        raise DamagedData(
            f"a JPEG says that it has {height:,} x {width:,} pixels, more than {2 * most:,}: "
            f"{_RAISED}"
        )


@contextmanager
def _opened(data: Any) -> Iterator[Any]:
    """Open an image with Pillow, which reads its header."""
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
    except (OSError, SyntaxError, EOFError) as error:  # Pillow raises these, depending on the file
        raise _undecodable(data, "picture that Pillow reads", error) from error


def _covering(
    image: Array,
    corner: tuple[float, float],
    sides: tuple[float, float],
    wanted: tuple[int, int],
    resample: Resample,
) -> Array:
    """Cut the middle out of the filled part of an image (`sides` from `corner`), and scale it."""
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
    """Shrink a part of an image, from the whole pixel nearest to a corner."""
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
