"""What is timed: the data of each case, what its consumer does, and what it must have seen.

A case has a name whose first letter is its workload ("a", "g 1e9"). Labels are the numbers of their
samples, so that the work can be proved: no sample came twice in an epoch, none is missing from a
whole one, and the rows of the last batch belong to their labels.
"""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, SCALE = 784, np.float32(1 / 255)
IMAGE = (224, 224, 3)
PAUSE = 0.005  # seconds that the slow source, and the slow step, sleep for a batch
WINDOW = 8192  # of the shuffle of streams


@dataclass
class Job:
    """Feeds drawn by a consumer: after `lead` batches, `most` of them, or for `budget` seconds."""

    case: str
    labels: Any
    batch: int
    images: Any = None
    lead: int = 4
    most: int = 1000
    budget: float = 1.0
    on_device: bool = True
    ordered: bool = False
    consume: Callable[[Any], object] = field(default=lambda _feed: None)
    unit: str = "samples/s"
    wrong: str = ""

    @property
    def steps(self) -> int:
        """The full batches of an epoch."""
        return len(self.labels) // self.batch

    def reader(self) -> Iterator[tuple[Any, int]]:
        """One sample after another, as a Python generator."""
        yield from zip(self.images, self.labels.tolist(), strict=True)

    def expected(self, label: int) -> np.ndarray:
        """The row that a feed must hold for a label."""
        return np.asarray(self.images[label])

    def turn(self, epoch: Callable[[int], Iterable[Any]], number: int) -> dict[str, float]:
        """Samples a second, in one turn of passes that begin afresh."""
        seen: list[list[Any]] = []
        feeds = self._chained(epoch, number, seen)
        for _ in islice(feeds, self.lead):
            pass
        done, began = 0, time.perf_counter()
        for feed in feeds:
            self.consume(feed)
            done += 1
            if done == self.most or time.perf_counter() - began > self.budget:
                break
        if self.on_device:
            import jax

            jax.block_until_ready(feed)
        seconds = time.perf_counter() - began
        feeds.close()
        self.wrong = self.wrong or self._verdict(seen) or self._rows_verdict(feed)
        return {self.case: done * self.batch / seconds}

    def _chained(self, epoch: Any, number: int, seen: list[list[Any]]) -> Any:
        """Epoch after epoch, as a training run asks for them; labels are kept, to be checked."""
        for nth in count(number * 100):
            kept: list[Any] = []
            seen.append(kept)
            for feed in epoch(nth):
                kept.append(feed[1])
                yield feed
            if len(kept) != self.steps:
                self.wrong = f"an epoch had {len(kept)} batches, not {self.steps}"

    def _verdict(self, seen: list[list[Any]]) -> str:
        for kept in filter(None, seen):
            labels = np.concatenate([np.asarray(each).reshape(-1) for each in kept])
            if len(np.unique(labels)) < len(labels):
                return "samples came twice in an epoch"
            if len(labels) != len(kept) * self.batch:
                return f"{len(kept)} batches hold {len(labels)} samples, not {self.batch} each"
            if self.ordered and not np.array_equal(labels, np.arange(len(labels))):
                return "samples came in another order than the source's"
        return ""

    def _rows_verdict(self, feed: Any) -> str:
        if self.images is None:
            return ""
        images, labels = np.asarray(feed[0]), np.asarray(feed[1]).reshape(-1)
        for place in range(0, len(labels), max(1, len(labels) // 4)):
            row = self.expected(int(labels[place])).reshape(-1)
            if images.dtype != row.dtype:
                row = row * SCALE
            if not np.allclose(images[place].reshape(-1), row, rtol=1e-5):
                return "a row does not belong to its label"
        return ""


@dataclass
class Calls(Job):
    """A function called over and over: units of work a second."""

    units: int = 512
    unit: str = "rows/s"

    def turn(self, call: Callable[[], Any], number: int) -> dict[str, float]:
        """The rate of one turn."""
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < self.budget / 4:
            call()
            done += 1
        return {self.case: done * self.units / (time.perf_counter() - began)}


@dataclass
class Training(Job):
    """Whole epochs of a small perceptron: `train(state, epoch)` gives the state after one."""

    hidden: int = 128
    unit: str = "epochs/s"
    digest: str = ""

    def turn(self, train: Callable[[Any, int], Any], number: int) -> dict[str, float]:
        """Epochs a second; the parameters after the first turn's are digested."""
        import jax

        state = jax.block_until_ready(self.state())
        began = time.perf_counter()
        state = jax.block_until_ready(train(state, number))
        seconds = time.perf_counter() - began
        told = hashlib.sha256(self.digest.encode())
        for leaf in jax.tree.leaves(state):
            told.update(np.asarray(leaf).tobytes())
        self.digest = told.hexdigest()
        return {self.case: 1 / seconds}

    def state(self, seed: int = 0) -> list[Any]:
        """Fresh parameters."""
        import jax

        keys = jax.random.split(jax.random.key(seed))
        return [
            jax.random.normal(keys[0], (WIDTH, self.hidden)) / 28,
            jax.random.normal(keys[1], (self.hidden, 10)) / 8,
        ]

    def update(self, state: list[Any], feed: Any) -> tuple[list[Any], Any]:
        """One step, traceable; pixels are normalised here where they come as uint8."""
        import jax

        def loss(state: list[Any]) -> Any:
            hidden = jax.nn.relu(normalised(feed)[0] @ state[0])
            logs = jax.nn.log_softmax(hidden @ state[1])
            return -jax.numpy.take_along_axis(logs, feed[1].reshape(-1, 1) % 10, 1).mean()

        value, slopes = jax.value_and_grad(loss)(state)
        return [old - 0.1 * slope for old, slope in zip(state, slopes, strict=True)], value


def scaled(feed: Any) -> Any:
    """A row, or a batch, with float32 pixels, made on the host in one go."""
    return feed[0] * SCALE, feed[1]


def normalised(feed: Any) -> Any:
    """The same, traceable: the stage on the device."""
    image = feed[0]
    return (image.astype("float32") * SCALE if image.dtype == np.uint8 else image, feed[1])


class Source:
    """A data set of any size without memory: `source[numbers]` gathers, all rows at once."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, rows: Any) -> Any:
        """Two columns that follow from the numbers: a row, and its label."""
        numbers = np.asarray(rows)
        return (numbers & 255).astype("uint8"), numbers.astype("int64")


def decode(sample: tuple[bytes, int]) -> tuple[np.ndarray, int]:
    """A JPEG to pixels of one size: the same decoder for everybody."""
    from PIL import Image

    with Image.open(io.BytesIO(sample[0])) as picture:
        return np.asarray(picture.convert("RGB").resize(IMAGE[:2])), sample[1]


class Pictures(list):
    """Encoded pictures; what `expected` compares with is decoded when it is asked for."""

    def __getitem__(self, label: int) -> Any:
        return decode((super().__getitem__(label), label))[0]

    def encoded(self) -> list[bytes]:
        """The bytes."""
        return list(self)


def slept(feed: Any) -> None:
    """Stands for a device that is awaited."""
    import jax

    jax.block_until_ready(feed)
    time.sleep(PAUSE)


@dataclass
class Slow(Job):
    """Batches that a source needs its time for."""

    def source(self, pause: float = PAUSE) -> Iterator[tuple[Any, Any]]:
        """Ready batches, one in every `PAUSE` seconds."""
        for at in range(0, self.steps * self.batch, self.batch):
            time.sleep(pause)
            yield self.images[at : at + self.batch], self.labels[at : at + self.batch]


def prepare(room: Path, size: float, workloads: Iterable[str]) -> None:
    """Writes the data that the cases read, once for all contestants."""
    wanted, generator = set(workloads), np.random.default_rng(0)
    np.save(
        room / "rows.npy", generator.integers(0, 256, (numbered(60_000, size, 64), WIDTH), "u1")
    )
    if wanted & {"b", "f"}:
        number = numbered(2048, size, 8)
        images = np.lib.format.open_memmap(room / "images.npy", "w+", "u1", (number, *IMAGE))
        for at in range(0, number, 256):
            images[at : at + 256] = generator.integers(0, 256, (len(images[at : at + 256]), *IMAGE))
    if "d" in wanted:
        np.savez(room / "jpegs.npz", *jpegs(numbered(768, size, 8)))


def numbered(number: int, size: float, least: int) -> int:
    """A number of samples, times the size factor, and enough for two batches of `least`."""
    return max(round(number * size), 2 * least)


def jpegs(number: int) -> Iterator[np.ndarray]:
    """Crops of the two photographs that scikit-learn ships, as JPEG files."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    photographs = [Image.fromarray(image) for image in load_sample_images().images]
    generator = np.random.default_rng(1)
    for nth in range(number):
        width, height = generator.integers(256, 420, 2).tolist()
        left, top = (
            generator.integers(0, 640 - width),
            generator.integers(0, 427 - min(height, 426)),
        )
        crop = photographs[nth % 2].crop((left, top, left + width, top + min(height, 426)))
        crop.save(file := io.BytesIO(), "JPEG", quality=90)
        yield np.frombuffer(file.getvalue(), "u1")


def made(case: str, room: Path, size: float, budget: float) -> Job:
    """The job of a case."""
    return JOBS[case[0]](case, room, size, budget)


def _rows(case: str, room: Path, size: float, budget: float) -> Job:
    images = np.load(room / "rows.npy")
    labels, batch = np.arange(len(images), dtype="int32"), 512 if size >= 0.2 else 64
    job = Job(case, labels, batch, images, budget=budget)
    job.most = 8 * job.steps - job.lead
    return job


def _images(case: str, room: Path, size: float, budget: float) -> Job:
    mapped = None if case == "f memory" else "r"
    images = np.load(room / "images.npy", mmap_mode=mapped)
    batch = 256 if size >= 0.2 else 8
    labels = np.arange(len(images), dtype="int32")
    return Job(case, labels, batch, images, lead=2, most=24, budget=2 * budget)


def _streams(case: str, room: Path, size: float, budget: float) -> Job:
    if case == "c stack":
        return Calls(case, np.arange(512), 512, np.load(room / "rows.npy")[:512], budget=budget)
    job = _rows(case, room, size, budget)
    job.images = job.images * SCALE  # in bulk, and before, as readers of MNIST do
    return job


def _pictures(case: str, room: Path, size: float, budget: float) -> Job:
    with np.load(room / "jpegs.npz") as files:
        pictures = Pictures(files[name].tobytes() for name in files.files)
    labels, batch = np.arange(len(pictures), dtype="int32"), 64 if size >= 0.2 else 8
    return Job(case, labels, batch, pictures, lead=2, budget=3 * budget, ordered=True)


def _slow(case: str, room: Path, size: float, budget: float) -> Job:
    images = np.load(room / "rows.npy")
    labels = np.arange(len(images), dtype="int32")
    batch = 512 if size >= 0.2 else 64
    return Slow(case, labels, batch, images, lead=0, budget=2 * budget, ordered=True, consume=slept)


def _sizes(case: str, _room: Path, _size: float, budget: float) -> Job:
    length = int(float(case.split()[1]))
    batch = 512 if length > 1000 else 250
    return Job(case, range(length), batch, most=10**5, budget=budget, on_device=False)


def _training(case: str, room: Path, size: float, budget: float) -> Job:
    job = _rows(case, room, size, budget)
    if case in ("t devices", "t devices stage"):
        return job
    batch = job.batch if case == "t mlp" else 64
    return Training(case, job.labels, batch, job.images, budget=budget)


JOBS = {
    "a": _rows,
    "b": _images,
    "c": _streams,
    "d": _pictures,
    "e": _slow,
    "f": lambda case, *rest: (_images if case == "f memory" else _rows)(case, *rest),
    "g": _sizes,
    "t": _training,
}
