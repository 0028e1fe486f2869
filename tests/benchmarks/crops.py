"""What a crop of a JPEG costs, beside the whole picture decoded and then cut.

    python -m tests.benchmarks.crops [rounds]

Pictures and ways take turns on one thread; ratios are medians of CPU time. Random crops are those
of torchvision's RandomResizedCrop: 8 to 100 % of the area, 3:4 to 4:3, then sized to 224 x 224.
"""

from __future__ import annotations

import io
import math
import sys
import time

import numpy as np
from PIL import Image

from jreader.images import decode

SIDES = (375, 500), (1500, 2000)


def jpeg(sides):
    """Noise of all frequencies, as a file."""
    small = np.random.default_rng(0).integers(0, 256, (sides[0] // 8, sides[1] // 8, 3), np.uint8)
    picture = Image.fromarray(small).resize(sides[::-1], Image.Resampling.BICUBIC)
    picture.save(file := io.BytesIO(), "JPEG", quality=90)
    return file.getvalue()


def random_box(rng, height, width):
    while True:
        area, ratio = height * width * rng.uniform(0.08, 1), math.exp(rng.uniform(-0.288, 0.288))
        tall, wide = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if tall <= height and wide <= width:
            return (
                int(rng.integers(height - tall + 1)),
                int(rng.integers(width - wide + 1)),
                tall,
                wide,
            )


def cut(data, box, size):
    top, left, tall, wide = box
    part = decode(data)[top : top + tall, left : left + wide]
    image = Image.fromarray(part) if size else None
    return image.resize((size, size), Image.Resampling.BILINEAR) if image else part.copy()


def ratio_of(data, boxes, size):
    """The time of `decode(crop=)` over that of the whole, for all boxes; some warm up."""
    times = []
    for box in boxes:
        began = time.process_time()
        decode(data, size, crop=box)
        between = time.process_time()
        cut(data, box, size)
        times.append((between - began, time.process_time() - between))
    ours, theirs = np.sum(times[len(times) // 10 :], axis=0)
    return ours / theirs


def main(rounds=100):
    rng = np.random.default_rng(1)
    print("| picture | crop | ratio |")
    print("|---|---|---|")
    for height, width in SIDES:
        data, quarter = jpeg((height, width)), height // 4
        cases = {
            f"rows {nth * quarter} to {(nth + 1) * quarter}": (
                [(nth * quarter, 0, quarter, width)] * rounds,
                None,
            )
            for nth in range(4)
        }
        random = [random_box(rng, height, width) for _ in range(rounds)]
        cases |= {"random": (random, None), "random, to 224 x 224": (random, 224)}
        for name, case in cases.items():
            print(f"| {width} x {height} | {name} | {ratio_of(data, *case):.2f} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
