"""Photographs decoded, scaled and batched by two workers, beside the libraries that do the same.

    python -m tests.benchmarks.peers.image_files [photographs] [rounds]

JPEGs of 500 x 375 pixels in memory become uint8[64, 224, 224, 3]: the shorter side is scaled to
224, and the middle cut out. A figure is how many come in a second by the clock, since some work in
processes of their own: the median of turns that the contestants take one after another, of which
the first is not counted. Who cannot be imported is left out.
"""

from __future__ import annotations

import io
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy as np

BATCH, SIDE, WORKERS = 64, 224, 2

Epoch = Callable[[], Iterable[Any]]


def photographs(number: int) -> list[bytes]:
    """Crops of the two photographs that scikit-learn ships, as JPEG files."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    whole = [Image.fromarray(image) for image in load_sample_images().images]
    rng, files = np.random.default_rng(0), []
    for nth in range(number):
        left, top = rng.integers(0, 140), rng.integers(0, 52)
        crop = whole[nth % 2].crop((left, top, left + 500, top + 375))
        crop.save(file := io.BytesIO(), "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def of_pillow(file: bytes) -> np.ndarray:
    """One as torch's users do it: Pillow decodes and scales, and the middle is cut out."""
    from PIL import Image

    image = Image.open(io.BytesIO(file)).convert("RGB")
    width, height = image.size
    scale = SIDE / min(width, height)
    image = image.resize((round(width * scale), round(height * scale)), Image.Resampling.BILINEAR)
    left, top = (image.size[0] - SIDE) // 2, (image.size[1] - SIDE) // 2
    return np.array(image.crop((left, top, left + SIDE, top + SIDE)))


def of_jreader(files: list[bytes], resample: Literal["linear", "nearest"] = "linear") -> Epoch:
    """`map(decode, threads=2)`."""
    from jreader import Pipeline, source
    from jreader.images import decode

    def decoded(file: bytes) -> np.ndarray:
        return decode(file, SIDE, resample=resample)

    plan = Pipeline(source(files)).map(decoded, threads=WORKERS).batch(BATCH)
    loader = plan.load(sharding="host")
    return lambda: iter(loader)


def of_jreader_nearest(files: list[bytes]) -> Epoch:
    """The same with `resample="nearest"`."""
    return of_jreader(files, "nearest")


class Files:
    """A data set of torch's kind."""

    def __init__(self, files: list[bytes], decode: Callable[[bytes], np.ndarray]) -> None:
        self.files, self.decode = files, decode

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        """A picture as a tensor."""
        import torch

        return torch.from_numpy(self.decode(self.files[index]))


def of_torch(files: list[bytes], decode: Callable[[bytes], np.ndarray] = of_pillow) -> Epoch:
    """Its loader with two workers that stay, and Pillow."""
    from torch.utils.data import DataLoader

    loader = DataLoader(
        Files(files, decode), batch_size=BATCH, num_workers=WORKERS, persistent_workers=True
    )
    return lambda: (batch.numpy() for batch in loader)


def of_torch_with_jreader(files: list[bytes]) -> Epoch:
    """The same with jreader's decoder: what the loaders themselves differ by."""
    from jreader.images import decode

    return of_torch(files, lambda file: decode(file, SIDE))


def of_spdl(files: list[bytes]) -> Epoch:
    """Its decoder (FFmpeg) on two threads."""
    import spdl.io
    from spdl.pipeline import PipelineBuilder

    filters = (
        f"scale={SIDE}:{SIDE}:force_original_aspect_ratio=increase:flags=bilinear,"
        f"crop={SIDE}:{SIDE},format=rgb24"
    )

    def decoded(file: bytes) -> np.ndarray:
        buffer = spdl.io.load_image(file, filter_desc=filters)
        return np.asarray(spdl.io.to_numpy(buffer))

    decoded(files[0])

    def epoch() -> Iterator[Any]:
        piped = PipelineBuilder().add_source(files)
        piped = piped.pipe(decoded, concurrency=WORKERS, output_order="input")
        piped = piped.aggregate(BATCH).pipe(np.stack).add_sink(2)
        pipeline = piped.build(num_threads=WORKERS)
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()

    return epoch


CONTESTANTS: dict[str, Callable[[list[bytes]], Epoch]] = {
    "jreader": of_jreader,
    "jreader, nearest": of_jreader_nearest,
    "torch, Pillow": of_torch,
    "torch, jreader's decoder": of_torch_with_jreader,
    "SPDL": of_spdl,
}


def turn(epoch: Epoch, number: int) -> float:
    """How many come in a second; all have to come, in the right shape."""
    began, seen = time.perf_counter(), 0
    for batch in epoch():
        assert batch.shape[1:] == (SIDE, SIDE, 3)
        assert batch.dtype == np.uint8
        seen += len(batch)
    assert seen == number, (seen, number)
    return seen / (time.perf_counter() - began)


def main(number: int = 512, rounds: int = 7) -> None:
    """Prints a line for each contestant."""
    files, epochs = photographs(number), dict[str, Epoch]()
    for name, begin in CONTESTANTS.items():
        try:
            epochs[name] = begin(files)
        except (ImportError, RuntimeError) as error:  # the second where FFmpeg is not there
            print(f"{name} is left out: {error}")
    figures: dict[str, list[float]] = {name: [] for name in epochs}
    for nth in range(rounds + 1):
        for name, epoch in epochs.items():
            figure = turn(epoch, number)
            if nth:
                figures[name].append(figure)
    beside = figures.get("torch, Pillow", [0.0])
    for name, each in figures.items():
        ratios = [ours / theirs for ours, theirs in zip(each, beside, strict=False) if theirs]
        ratio = f"{statistics.median(ratios):6.2f} x torch with Pillow" if ratios else ""
        print(f"{name:26} {statistics.median(each):7.0f} a second {ratio}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
