"""What pictures among text cost: to plan rows by headers, and to decode them; and what is held.

    python -m tests.benchmarks.image_text [rounds]

Documents have three pictures of 800 x 600, as JPEG or PNG, and 200 tokens. Rounds are interleaved;
figures are medians of CPU time of this process, in milliseconds a document, and what is to be
compared is the ratio of two of one table. Memory is that of a window of 64 documents as `pack`
keeps it, and as it would be decoded.
"""

from __future__ import annotations

import io
import statistics
import sys
import time

import numpy as np
from PIL import Image

from jreader import Pipeline, images, start

TOKEN, DOCUMENTS = 99, 64
SIZE = {"tokens": 4096, "patches": 12288, "grid": 12288}
cut = images.image_text(TOKEN, patch=14, merge=2, pixels=(56 * 56, 512 * 28 * 28))


def documents(kind):
    """Documents of pictures that are as smooth as photographs."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(DOCUMENTS):
        parts = [rng.integers(100, 200, 200)]
        for _ in range(3):
            grains = rng.integers(0, 256, (60, 80, 3), np.uint8)
            file = io.BytesIO()
            Image.fromarray(grains).resize((800, 600), Image.Resampling.BICUBIC).save(file, kind)
            parts.append(file.getvalue())
        made.append(parts)
    return made


def by_hand(samples):
    """Pictures decoded and cut, without jreader: with Pillow, in a loop."""
    for parts in samples:
        for part in parts[1:]:
            image = Image.open(io.BytesIO(part)).convert("RGB")
            image = np.asarray(image.resize((728, 532), Image.Resampling.BILINEAR))
            image.reshape(38, 14, 52, 14, 3).swapaxes(1, 2).reshape(38 * 52, -1).copy()


def planned(samples):
    deep = cut.lazily(0)
    for parts in samples:
        deep(parts)


def decoded(samples):
    for parts in samples:
        cut(parts)


def hidden(parts):
    """What `cut` gives, by a function of which `pack` knows nothing else."""
    return cut(parts)


def packed(fn):
    """Rows, packed by one thread."""

    def run(samples):
        plan = Pipeline(lambda: iter(samples)).map(fn)
        for _ in start(plan.pack(SIZE, window=DOCUMENTS, seed=0), None).items:
            pass

    return run


JOBS = {
    "plan by headers": planned,
    "decode and cut": decoded,
    "the same by hand, with Pillow": by_hand,
    "pack, decoding row by row": packed(cut),
    "pack what is decoded": packed(hidden),
}


def main(rounds="5"):
    for kind in ("JPEG", "PNG"):
        samples = documents(kind)
        figures = {name: [] for name in JOBS}
        for _ in range(int(rounds)):
            for name, job in JOBS.items():
                begun = time.process_time()
                job(samples)
                figures[name].append((time.process_time() - begun) / DOCUMENTS * 1e3)
        print(f"| {kind} | ms of CPU a document |\n|---|---|")
        for name, each in figures.items():
            print(f"| {name} | {statistics.median(each):.2f} |")
        held = sum(len(part) for parts in samples for part in parts[1:])
        pixels = sum(cut(parts)["patches"].nbytes for parts in samples)
        print(f"| MB of {DOCUMENTS} documents as files | {held / 1e6:.1f} |")
        print(f"| as patches | {pixels / 1e6:.1f} |\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
