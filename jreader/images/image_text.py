"""Images in text: documents of tokens in which images appear as patches.

The sides of an image determine its number of patches, and are in its file header. So `pack` plans
rows of tokens and patches before any image is decoded, and decodes the images of a row when it
gathers that row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from jreader.errors import check_number, check_sides, noting
from jreader.images.decoding import decode, sides_of, stretched
from jreader.readers import described, set_fields
from jreader.readers.columns import Array
from jreader.readers.made_rows import MadeRows

_CALL = "images.image_text(image_token)"


@dataclass(frozen=True)
class image_text:
    """A function for `.map(...)` that turns a sequence of images and texts into tokens and patches.

    It takes a list of images (the bytes of files) and texts (arrays of tokens), and returns a dict
    of `tokens` (int32[tokens]: the texts, with one `image_token` for each patch, or for each merge
    x merge patches), `patches` (uint8[patches, patch * patch * 3]: the pixels of each, row by row,
    in RGB) and `grid` (int32[patches, 2]: the row and column of each in its image; every image
    starts at 0, 0). The i-th patch, or group of merge x merge patches, belongs to the i-th
    `image_token`.

    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (60, 30), "red").save(file, "PNG")
    >>> made = image_text(99, patch=14, pixels=(196, 2000))([[5, 6], file.getvalue(), [7]])
    >>> made["tokens"].tolist(), made["patches"].shape, made["grid"][-1].tolist()
    ([5, 6, 99, 99, 99, 99, 99, 99, 99, 99, 7], (8, 588), [1, 3])

    An image keeps its proportions, up to rounding its sides to whole patches, and is scaled to as
    many pixels as `pixels` allows (NaViT, Dehghani et al. 2023; the sides are those of Qwen2-VL,
    Wang et al. 2024). With `sizes`, it is scaled to cover the one with the nearest proportions, and
    the middle is cut out.

    `.map(image_text(...), threads=n).pack({"tokens": 2048, "patches": 1024})` decodes an image when
    its row is gathered, on n threads; until then a window holds the bytes of files. This needs a
    map that raises errors (`on_error="raise"`), and only ops between that do not look into samples:
    `shuffle`, `firstn`, `skip`, `shard`, `prefetch`.

    Args:
        image_token: The token that represents patches; texts must not contain it.
        patch: Pixels of both sides of a patch.
        merge: A token represents merge x merge patches, which are adjacent in `patches`.
        pixels: The fewest and the most pixels of an image.
        sizes: The sizes that images may have, each (height, width); None for any.

    Raises:
        ModuleNotFoundError: `python -m pip install 'jreader[images]'` is needed.
        TypeError: An argument is not a number, or a sample is not a list of bytes and tokens.
        ValueError: A number is too small, or a size is not whole patches; or a text contains the
            `image_token`, or an image has more than 8 bits a channel.
        DamagedData: An image is truncated, invalid, or far too large, as in `decode`.
    """

    image_token: int
    patch: int = 14
    merge: int = 1
    pixels: tuple[int, int] = (56 * 56, 1280 * 28 * 28)
    sizes: Sequence[tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        for name, least in (("image_token", 0), ("patch", 1), ("merge", 1)):
            check_number(f"{name} of {_CALL}", getattr(self, name), least)
        unit = self.patch * self.merge
        low, high = check_sides(f"pixels of {_CALL}", self.pixels)
        if high < max(low, unit**2):
            raise ValueError(
                f"pixels of {_CALL} needs (fewest, most), and as the most at least {unit**2}, "
                f"which is one token, not {self.pixels!r}."
            )
        if self.sizes is not None:
            sizes = [check_sides(f"sizes of {_CALL}", size) for size in self.sizes]
            if not sizes or any(side % unit for size in sizes for side in size):
                needed = f"sides that are multiples of patch x merge = {unit}"
                raise ValueError(f"sizes of {_CALL} needs {needed}, not {self.sizes!r}.")
            set_fields(self, sizes=tuple(sizes))

    def __call__(self, sample: Any) -> dict[str, Array]:
        """Return the document of a sample, with its images decoded."""
        made = self._made(sample, 0)
        return {**made, "patches": made["patches"].whole()}

    def lazily(self, threads: int) -> Any:
        """Return the function whose documents decode images when patches are requested."""
        return partial(self._made, threads=threads)

    def _made(self, sample: Any, threads: int) -> dict[str, Any]:
        if not isinstance(sample, (list, tuple)):
            raise TypeError(
                f"{_CALL} needs lists of pictures (bytes) and texts (arrays of tokens), not "
                f"{described(sample)}: give them with .map(lambda sample: sample['content']), say."
            )
        tokens, makers, grids = [np.empty(0, np.int32)], [], [np.empty((0, 2), np.int32)]
        for number, part in enumerate(sample):
            with noting(f"in part {number} of its document"):
                if not isinstance(part, (bytes, bytearray, memoryview)):
                    tokens.append(self._text(part))
                    continue
                sides = self._sides(*sides_of(part))
            makers.append(partial(self._patches, part, sides, number))
            places = np.indices([side // self.patch for side in sides], np.int32)
            grids.append(self._grouped(np.moveaxis(places, 0, -1)))
            tokens.append(np.full(len(grids[-1]) // self.merge**2, self.image_token, np.int32))
        kind = np.dtype(np.uint8), (self.patch * self.patch * 3,)
        return {
            "tokens": np.concatenate(tokens),
            "patches": MadeRows(makers, list(map(len, grids[1:])), kind, threads),
            "grid": np.concatenate(grids),
        }

    def _text(self, part: Any) -> Array:
        """Check and return the tokens of a text."""
        tokens = np.asarray(part)
        if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
            raise TypeError(
                f"{_CALL} needs the bytes of pictures and arrays of tokens, not {described(part)}: "
                "turn texts into numbers first, with .map(tokenize)."
            )
        if (tokens == self.image_token).any():
            raise ValueError(
                f"{_CALL} puts {self.image_token} where patches go, and a text has that token too: "
                "give an image_token that no text has."
            )
        return tokens.astype(np.int32)

    def _sides(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and width to scale an image to."""
        if self.sizes is not None:

            def distance(size: tuple[int, int]) -> tuple[float, float]:
                tall, wide = math.log(size[0] / height), math.log(size[1] / width)
                return abs(tall - wide), abs(tall + wide)

            return min(self.sizes, key=distance)
        unit, (low, high) = self.patch * self.merge, self.pixels
        rows, columns = (max(round(side / unit), 1) for side in (height, width))
        pixels, most = rows * columns * unit**2, high // unit**2
        # many results are whole numbers, so the order of operations is the published one
        if pixels > high:
            scale = math.sqrt(height * width / high)
            rows, columns = (max(math.floor(n / scale / unit), 1) for n in (height, width))
        elif pixels < low:
            scale = math.sqrt(low / (height * width))
            rows, columns = (math.ceil(n * scale / unit) for n in (height, width))
        rows = min(rows, most)
        return rows * unit, min(columns, most // rows) * unit  # of a thin image, what fits

    def _patches(self, data: Any, sides: tuple[int, int], number: int) -> Array:
        """Decode an image into patches."""
        with noting(f"in part {number} of its document"):
            image = stretched(data, sides) if self.sizes is None else decode(data, sides)
        cut = image.reshape(-1, self.patch, sides[1] // self.patch, self.patch, 3)
        return self._grouped(cut.swapaxes(1, 2))

    def _grouped(self, values: Array) -> Array:
        """Group values [rows, columns, ...] into [patches, values], those of one token together."""
        (rows, columns), merge = values.shape[:2], self.merge
        grouped = values.reshape(rows // merge, merge, columns // merge, merge, -1)
        return grouped.swapaxes(1, 2).reshape(rows * columns, -1)
