"""Photographs decoded, scaled and batched by two workers, beside the libraries that do the same.

    python -m tests.benchmarks.peers.image_files [photographs] [rounds] [word]

JPEGs of 500 x 375 pixels in memory become uint8[64, 224, 224, 3]: the shorter side is scaled to
224, and the middle cut out. Contestants take turns, of which the first is not counted. Figures are
how many come in a second by the clock, since some work in processes of their own; and the CPU time
of this process for each, which other work on the machine changes less. Both are medians, and so is
the ratio to the loop by hand in the same round. Who cannot be imported is left out.
"""

from __future__ import annotations

import io
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
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


def of_jreader_batches(files: list[bytes]) -> Epoch:
    """`map_batches(decode_batch, threads=2)`: each task decodes a batch, into its rows."""
    from jreader import Pipeline, source
    from jreader.images import decode_batch

    def decoded(batch: Any) -> np.ndarray:
        return decode_batch(batch, SIDE)

    plan = Pipeline(source(files)).batch(BATCH).map_batches(decoded, stacked=False, threads=WORKERS)
    loader = plan.load(sharding="host")
    return lambda: iter(loader)


def by_hand(files: list[bytes]) -> Epoch:
    """A pool of two threads, each picture into its row, a batch ahead; the same decoder."""
    from jreader.images import decode

    pool = ThreadPoolExecutor(WORKERS)

    def decoded(row: np.ndarray, file: bytes) -> None:
        row[:] = decode(file, SIDE)

    def begun(first: int) -> tuple[np.ndarray, list[Any]]:
        batch = files[first : first + BATCH]
        made = np.empty((len(batch), SIDE, SIDE, 3), np.uint8)
        return made, [pool.submit(decoded, *each) for each in zip(made, batch, strict=True)]

    def epoch() -> Iterator[Any]:
        ahead = deque[tuple[np.ndarray, list[Any]]]()
        for first in range(0, len(files), BATCH):
            ahead.append(begun(first))
            if len(ahead) > 1:
                yield awaited(*ahead.popleft())
        yield awaited(*ahead.popleft())

    def awaited(made: np.ndarray, tasks: list[Any]) -> np.ndarray:
        for task in tasks:
            task.result()
        return made

    return epoch


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

    filters = (
        f"scale={SIDE}:{SIDE}:force_original_aspect_ratio=increase:flags=bilinear,"
        f"crop={SIDE}:{SIDE},format=rgb24"
    )

    def decoded(file: bytes) -> np.ndarray:
        buffer = spdl.io.load_image(file, filter_desc=filters)
        return np.asarray(spdl.io.to_numpy(buffer))

    decoded(files[0])
    return _piped(files, decoded)


def of_spdl_with_jreader(files: list[bytes]) -> Epoch:
    """The same with jreader's decoder."""
    from jreader.images import decode

    return _piped(files, lambda file: decode(file, SIDE))


def of_spdl_with_jreader_batches(files: list[bytes]) -> Epoch:
    """The same, where each task decodes a batch into its rows."""
    from jreader.images import decode_batch

    return _piped(files, lambda batch: decode_batch(batch, SIDE), batches=True)


def _piped(files: list[bytes], decoded: Callable[[Any], Any], *, batches: bool = False) -> Epoch:
    """SPDL's pipeline: pictures are decoded and then stacked, or whole batches are decoded."""
    from spdl.pipeline import PipelineBuilder

    def epoch() -> Iterator[Any]:
        piped = PipelineBuilder().add_source(files)
        piped = piped.aggregate(BATCH) if batches else piped
        piped = piped.pipe(decoded, concurrency=WORKERS, output_order="input")
        piped = piped if batches else piped.aggregate(BATCH).pipe(np.stack)
        pipeline = piped.add_sink(2).build(num_threads=WORKERS)
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()

    return epoch


CONTESTANTS: dict[str, Callable[[list[bytes]], Epoch]] = {
    "by hand": by_hand,
    "jreader": of_jreader,
    "jreader, batches": of_jreader_batches,
    "jreader, nearest": of_jreader_nearest,
    "torch, Pillow": of_torch,
    "torch, jreader's decoder": of_torch_with_jreader,
    "SPDL": of_spdl,
    "SPDL, jreader's decoder": of_spdl_with_jreader,
    "SPDL, the same, batches": of_spdl_with_jreader_batches,
}


def turn(epoch: Epoch, number: int) -> tuple[float, float]:
    """The seconds of an epoch, by the clock and of CPU; all have to come, in the right shape."""
    began, worked, seen = time.perf_counter(), time.process_time(), 0
    for batch in epoch():
        assert batch.shape[1:] == (SIDE, SIDE, 3)
        assert batch.dtype == np.uint8
        seen += len(batch)
    assert seen == number, (seen, number)
    return time.perf_counter() - began, time.process_time() - worked


def main(number: int = 512, rounds: int = 7, only: str = "") -> None:
    """Prints a line for each contestant, or for those whose name has a word."""
    files, epochs = photographs(number), dict[str, Epoch]()
    for name, begin in CONTESTANTS.items():
        try:
            if only in name or name == "by hand":
                epochs[name] = begin(files)
        except (ImportError, RuntimeError) as error:  # the second where FFmpeg is not there
            print(f"{name} is left out: {error}")
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in epochs}
    for nth in range(rounds + 1):
        for name, epoch in epochs.items():
            figure = turn(epoch, number)
            if nth:
                figures[name].append(figure)
    by_loop = np.array(figures["by hand"])
    print(f"{'':26} a second (x by hand)   ms of CPU (x by hand)")
    for name, each in figures.items():
        clock, cpu = np.median(each, axis=0)
        faster, less = np.median(by_loop / np.array(each), axis=0)
        own = (
            "in processes" if name.startswith("torch") else f"{cpu / number * 1e3:6.3f} {less:6.2f}"
        )
        print(f"{name:26} {number / clock:7.0f} {faster:6.2f}          {own}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), *sys.argv[3:])
