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
TOKENS = 1024  # from the begin of one window of tokens to that of the next; it has one more


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
class Documents(Job):
    """Feeds of documents of log-normal lengths, each padded to the bound of its bucket."""

    bounds: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048)
    tokens: int = 32_768
    offsets: Any = None
    fill: float = 0.0

    @classmethod
    def random(cls, case: str, number: int, budget: float) -> Documents:
        """Documents of up to 2,048 tokens, 150 in the middle."""
        generator = np.random.default_rng(0)
        lengths = np.clip(generator.lognormal(5, 1, number), 1, 2048).astype(int)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        values = generator.integers(1, 50_000, offsets[-1], "int32")
        labels = np.arange(number, dtype="int32")
        return cls(case, labels, 0, values, budget=budget, offsets=offsets)

    @property
    def rows(self) -> list[int]:
        """Documents in a batch of each bucket."""
        return [self.tokens // bound for bound in self.bounds]

    def reader(self) -> Iterator[tuple[Any, int]]:
        """One document after another, as a Python generator."""
        for label, begin, end in zip(self.labels, self.offsets, self.offsets[1:], strict=False):
            yield self.images[begin:end], label

    def turn(self, epoch: Callable[[int], Iterable[Any]], number: int) -> dict[str, float]:
        """Documents a second; a whole epoch is looked at before, once."""
        if not number:
            self._look(epoch(0))
            return {}
        done, feeds = 0, iter(epoch(number))
        for _ in islice(feeds, self.lead):
            pass
        began = time.perf_counter()
        for feed in feeds:
            done += len(feed[1])
            if time.perf_counter() - began > self.budget:
                break
        seconds = time.perf_counter() - began
        return {self.case: done / seconds, f"{self.case} fill": self.fill}

    def _look(self, feeds: Iterable[Any]) -> None:
        seen, places = [], 0
        for tokens, labels in feeds:
            seen += np.asarray(labels).tolist()
            places += tokens.size
            first = int(labels[0])
            document = self.images[self.offsets[first] : self.offsets[first + 1]]
            row = np.asarray(tokens)[0]
            if not (
                np.array_equal(row[: len(document)], document) and not row[len(document) :].any()
            ):
                self.wrong = "a row is not its document, padded"
        if sorted(seen) != list(range(len(self.labels))):
            self.wrong = "documents are missing, or came twice"
        self.fill = int(self.offsets[-1]) / places


@dataclass
class Mixture(Job):
    """Feeds of four sources in proportion, which the labels of their rows tell apart.

    Each source is a quarter of the rows, in its own order; epochs end with the first source.
    """

    shares: tuple[int, ...] = (5, 3, 2, 1)

    def sources(self) -> list[tuple[Any, Any]]:
        """The columns of each source: rows, and labels."""
        size = len(self.labels) // len(self.shares)
        firsts = range(0, size * len(self.shares), size)
        return [(self.images[at : at + size], self.labels[at : at + size]) for at in firsts]

    def turn(self, epoch: Callable[[int], Iterable[Any]], number: int) -> dict[str, float]:
        """Samples a second; what the labels of a whole epoch say is looked at before, once."""
        if not number:
            self._look([np.array(feed[1]) for feed in epoch(0)])
            return {}
        feeds = (feed for nth in count(number * 100) for feed in epoch(nth))
        for _ in islice(feeds, self.lead):
            pass
        done, began = 0, time.perf_counter()
        for feed in feeds:
            done += len(feed[1])
            if time.perf_counter() - began > self.budget:
                break
        seconds = time.perf_counter() - began
        self.wrong = self.wrong or self._rows_verdict(feed)
        return {self.case: done / seconds}

    def _look(self, labels: list[Any]) -> None:
        together = np.concatenate(labels)
        size = len(self.labels) // len(self.shares)
        of, shares = together // size, np.array(self.shares) / sum(self.shares)
        for source in range(len(shares)):
            mine = together[of == source]
            if not np.array_equal(mine, source * size + np.arange(len(mine))):
                self.wrong = "the samples of a source do not come in its order"
        if of.any() and abs(np.bincount(of) / len(of) - shares).max() > 0.01:
            self.wrong = f"sources have shares of {np.bincount(of) / len(of)}"


@dataclass
class Packing(Documents):
    """Feeds of documents packed into rows: tokens, segment ids and positions, each [batch, size].

    Every token has a number of its own, so a feed shows which documents lie in it.
    """

    size: int = 2048
    unit: str = "rows/s"

    @classmethod
    def random(cls, case: str, number: int, budget: float) -> Packing:
        """Documents of up to 2,048 tokens, 245 in the middle."""
        lengths = np.random.default_rng(0).lognormal(5.5, 1.1, number)
        offsets = np.concatenate([[0], np.cumsum(np.clip(lengths, 1, 2048).astype(int))])
        values = np.arange(1, offsets[-1] + 1, dtype="int32")
        labels = np.arange(number, dtype="int32")
        return cls(case, labels, 32, values, budget=budget, offsets=offsets)

    def turn(self, epoch: Callable[[int], Iterable[Any]], number: int) -> dict[str, float]:
        """Rows a second, in one turn of passes that begin afresh; what they hold is looked at."""
        import jax

        feeds = (feed for nth in count(number * 100) for feed in epoch(nth))
        for _ in islice(feeds, self.lead):
            pass
        done, kept, began = 0, [], time.perf_counter()
        for feed in feeds:
            done += 1
            if done <= 64:
                kept.append(feed)
            if time.perf_counter() - began > self.budget:
                break
        jax.block_until_ready(feed)
        seconds = time.perf_counter() - began
        self._look(kept)
        told = {f"{self.case} fill": self.fill, f"{self.case} padding": 1 - self.fill}
        return {self.case: done * self.batch / seconds, **told}

    def _look(self, feeds: Iterable[Any]) -> None:
        tokens, ids, positions = (
            np.concatenate([np.asarray(feed[part]) for feed in feeds]) for part in range(3)
        )
        there = ids > 0
        self.fill = there.mean()
        document = np.searchsorted(self.offsets, tokens - 1, "right") - 1
        same = (ids[:, 1:] == ids[:, :-1]) & there[:, 1:]
        first = there & ~np.pad(same, [(0, 0), (1, 0)])
        last = there & ~np.pad(same, [(0, 0), (0, 1)])
        column = np.arange(self.size)
        if not (
            (np.diff(tokens)[same] == 1).all()
            and (np.diff(positions)[same] == 1).all()
            and (np.diff(document)[same] == 0).all()
            and (positions[first] == 0).all()
            and ((tokens == self.offsets[document] + 1) | (column == 0))[first].all()
            and ((tokens == self.offsets[document + 1]) | (column == self.size - 1))[last].all()
        ):
            self.wrong = "a segment is not a document, or a piece that was cut by a row"


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


@dataclass
class Windows(Job):
    """Windows of tokens, each of which begins with its number: two tokens of 16 bits."""

    path: Path = Path()

    def _chained(self, epoch: Any, number: int, seen: list[list[Any]]) -> Any:
        """The number of each window stands for its label."""
        return super()._chained(lambda nth: ((feed, feed) for feed in epoch(nth)), number, seen)

    def _verdict(self, seen: list[list[Any]]) -> str:
        heads = [[np.asarray(feed)[:, :2].astype("uint32") for feed in kept] for kept in seen]
        for feed in seen[-1][-1:]:
            if np.asarray(feed).shape != (self.batch, TOKENS + 1) or feed.dtype != np.uint16:
                return f"a feed is {feed.dtype}{list(feed.shape)}"
        return super()._verdict(
            [[each[:, 0] + (each[:, 1] << 16) for each in kept] for kept in heads]
        )

    def _rows_verdict(self, feed: Any) -> str:
        rows = np.asarray(feed[0])
        stored = np.memmap(self.path, np.uint16, "r")
        for row in rows[:: max(1, len(rows) // 4)]:
            at = (int(row[0]) + (int(row[1]) << 16)) * TOKENS
            if not np.array_equal(row, stored[at : at + TOKENS + 1]):
                return "a window is not what the file has"
        return ""


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
    if "w" in wanted:
        _write_tokens(room, numbered(300_000, size, 32))
    if "d" in wanted:
        np.savez(room / "jpegs.npz", *jpegs(numbered(768, size, 8)))


def _write_tokens(room: Path, windows: int) -> None:
    """A file of tokens as nanoGPT writes it, and a folder of 1,000 sparse files of 10^7 tokens."""
    generator = np.random.default_rng(0)
    with (room / "tokens.bin").open("wb") as file:
        for low in range(0, windows, 10_000):
            numbers = np.arange(low, min(low + 10_000, windows))
            part = generator.integers(0, 50_000, (len(numbers), TOKENS), "u2")
            part[:, 0], part[:, 1] = numbers & 0xFFFF, numbers >> 16
            part.tofile(file)
        np.zeros(1, "u2").tofile(file)
    (room / "sparse").mkdir()
    for number in range(1000):
        with (room / "sparse" / f"{number:04}.bin").open("wb") as file:
            file.truncate(2 * 10**7)


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


def _windows(case: str, room: Path, _size: float, budget: float) -> Job:
    if case == "w start":
        job = Calls(case, range(32), 32, room / "sparse", budget=4 * budget)
        job.units, job.unit = 1, "starts/s"
        return job
    path = room / "tokens.bin"
    labels = range((path.stat().st_size // 2 - 1) // TOKENS)
    return Windows(case, labels, 32, most=1000, budget=budget, path=path)


def _mixture(case: str, room: Path, size: float, budget: float) -> Job:
    generator = np.random.default_rng(0)
    number = numbered(400_000, size, 512)
    rows = generator.integers(0, 2**31, (number, 16), "i4")
    return Mixture(case, np.arange(number), 512 if size >= 0.2 else 64, rows, budget=budget)


def _training(case: str, room: Path, size: float, budget: float) -> Job:
    job = _rows(case, room, size, budget)
    if case in ("t devices", "t devices stage"):
        return job
    batch = job.batch if case == "t mlp" else 64
    return Training(case, job.labels, batch, job.images, budget=budget)


LENGTHS = {"l bucket": Documents, "l pack": Packing}
JOBS = {
    "a": _rows,
    "b": _images,
    "c": _streams,
    "d": _pictures,
    "e": _slow,
    "f": lambda case, *rest: (_images if case == "f memory" else _rows)(case, *rest),
    "g": _sizes,
    "l": lambda case, _room, size, budget: LENGTHS[case].random(
        case, numbered(100_000, size, 64), 2 * budget
    ),
    "m": _mixture,
    "t": _training,
    "w": _windows,
}
