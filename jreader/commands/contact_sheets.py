"""Contact sheets: many images side by side in one."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from math import ceil, sqrt
from typing import Any

import numpy as np

from jreader.commands.named_pipelines import CommandFailed

_SIDE = 128  # pixels per image
_GAP = 4
_GROUND = (58, 66, 90)  # not gray, as images often are
_MIN_SIDE = 8  # pixels a side; less is no image
_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF", b"BM")


def sheet(leaves: list[Any], path: str, most: int) -> str:
    """Write the images among some leaves to a file; return a line that counts them.

    An image is an array of [height, width] or [height, width, 1, 3 or 4], of uint8 or of numbers
    scaled from their minimum to their maximum; a batch of these; or the bytes of an image file.

    Raises:
        CommandFailed: There is no image, or Pillow is not installed.
    """
    try:
        image = import_module("PIL.Image")
    except ImportError:
        raise CommandFailed("--png needs Pillow: python -m pip install 'jreader[images]'") from None
    pictures = [picture for leaf in leaves for picture in _pictures(image, leaf)][:most]
    if not pictures:
        raise CommandFailed(
            "--png finds no picture: it needs a field of [height, width] or [height, width, 3], or "
            "the bytes of picture files"
        )
    columns = ceil(sqrt(len(pictures)))
    step, rows = _SIDE + _GAP, ceil(len(pictures) / columns)
    whole = image.new("RGB", (columns * step + _GAP, rows * step + _GAP), _GROUND)
    for number, picture in enumerate(pictures):
        row, column = divmod(number, columns)
        place = (_GAP + column * step, _GAP + row * step)
        whole.paste(_of_one_size(image, picture), place)
    whole.save(path, "PNG")
    return f"{path} has {len(pictures)} pictures"


def _of_one_size(image: Any, picture: Any) -> Any:
    """Convert an image to RGB in the size shown."""
    scale = _SIDE / max(picture.size)
    how = image.Resampling.NEAREST if scale > 1 else image.Resampling.LANCZOS  # shows pixels
    size = [max(1, round(side * scale)) for side in picture.size]
    return picture.convert("RGB").resize(size, how)


def _pictures(image: Any, leaf: Any) -> list[Any]:
    """Return the images of a leaf: one from bytes or an array, or each of a batch."""
    if isinstance(leaf, (bytes, bytearray)) and bytes(leaf).startswith(_BEGINNINGS):
        with image.open(BytesIO(leaf)) as opened:
            return [opened.convert("RGB")]
    arrays = _arrays_of_pixels(leaf) if isinstance(leaf, np.ndarray) else []
    return [image.fromarray(_pixels(each)) for each in arrays]


def _arrays_of_pixels(leaf: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Return an array that is an image, or each of a batch."""
    if leaf.dtype.kind not in "uifb":
        return []
    if _is_picture(leaf):
        return [leaf]
    inner = leaf.ndim > 2 and any(_is_picture(each) for each in leaf[:1])
    return list(leaf) if inner else []


def _is_picture(array: np.ndarray[Any, Any]) -> bool:
    coloured = array.ndim == 3 and array.shape[2] in (1, 3, 4)
    return (array.ndim == 2 or coloured) and min(array.shape[:2]) >= _MIN_SIDE


def _pixels(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return uint8 values as they are; scale others from the finite minimum to the maximum."""
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    values = array.astype(np.float64)
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    values = np.nan_to_num(values, nan=low, posinf=high, neginf=low)
    scaled = (values - low) / (high - low) if high > low else np.zeros_like(values)
    return np.ascontiguousarray((scaled * 255).round().astype(np.uint8))
