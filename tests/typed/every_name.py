"""Every public name as a user types it, for mypy and pyright; a test holds that none is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, assert_type

import numpy as np

import jreader
from jreader import Pipeline
from jreader.devices import ContextParallel
from jreader.orders import key


def numbers() -> Iterator[int]:
    yield from range(10)


def lines(path: str) -> Iterator[str]:
    yield path


def even(number: int) -> bool:
    return number % 2 == 0


class Squares(jreader.Dataset[int]):
    def __getitem__(self, index: Any) -> int:
        return int(index) ** 2

    def __len__(self) -> int:
        return 10


class Stream(jreader.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield 1


# ops
reader: jreader.Reader[int] = numbers
assert_type(list(jreader.batch(reader, 2)()), list[Sequence[int]])
assert_type(list(jreader.buffered(reader, 2)()), list[int])
assert_type(list(jreader.cache(reader)()), list[int])
assert_type(list(jreader.chain(reader, reader)()), list[int])
assert_type(list(jreader.chat(reader, "tokenizer", "template")()), list[dict[str, Any]])
assert_type(list(jreader.compose(reader, reader)()), list[tuple[Any, ...]])
assert_type(list(jreader.epochs(reader, 2)()), list[int])
assert_type(list(jreader.filter(even, reader)()), list[int])
assert_type(list(jreader.filter(even, reader, "bits")()), list[int])
assert_type(list(jreader.firstn(reader, 2)()), list[int])
assert_type(list(jreader.flat_map(range, reader)()), list[int])
assert_type(list(jreader.interleave(reader, reader)()), list[int])
assert_type(list(jreader.map_readers(str, reader)()), list[str])
assert_type(list(jreader.map_samples(str, reader, threads=2)()), list[str])
assert_type(list(jreader.mix([reader, reader], [7, 3], seed=0)()), list[int])
assert_type(list(jreader.multiprocess_reader([reader])()), list[int])
assert_type(list(jreader.shard(reader, 2, 0)()), list[int])
assert_type(list(jreader.shuffle(reader, 4, seed=0)()), list[int])
assert_type(list(jreader.skip(reader, 2)()), list[int])
assert_type(list(jreader.xmap_readers(str, reader, 2, 4)()), list[str])
assert_type(list(jreader.at_epoch(reader, 3)()), list[int])
assert_type(jreader.start(reader), jreader.Pass[int])
assert_type(list(jreader.read(lines, lambda: ["a.txt"], lanes=1)()), list[str])
batches = jreader.batch(reader, 2)
documents = jreader.ragged([1, 2, 3], [0, 1, 3])
others: list[jreader.Reader[Any]] = [
    jreader.bucket(documents, [2, 4], batch_size=2),
    jreader.map_batches(np.asarray, batches),
    jreader.pack(documents, 4, seed=0),
    jreader.pack(documents, {"tokens": 4}, documents=2, begin={"tokens": 1}),
    jreader.padded_batch(documents, 2),
    jreader.rebatch(batches, 3),
    jreader.unbatch(batches),
    jreader.group_by(str, reader),
    jreader.sliding_window(reader, 3, drop_last=True),
    jreader.windows(documents, 2),
]

# sources: what they give depends on files, so their samples are anything
store = jreader.Store("kept", "10GB")
read: list[jreader.Reader[Any]] = [
    jreader.arrayrecord("rows.array_record"),
    jreader.arrays(x=np.arange(4)),
    jreader.arrow("rows.arrow", columns=["x"]),
    jreader.audio("speech/*.flac", rate=16_000),
    jreader.audio("speech", rate=16_000).windows(seconds=2.0, drop_last=True),
    jreader.csv("rows.csv", types={"x": np.int32}, store=store),
    jreader.files("parts/*.txt"),
    jreader.huggingface(object(), columns="x"),
    jreader.idx("images", "labels"),
    jreader.image_folder("pictures", with_paths=True),
    jreader.jsonl("a.jsonl", "b.jsonl"),
    jreader.mds("data", columns=["tokens"]),
    jreader.mnist_json("mnist.json.gz", mode="test"),
    jreader.npy("x.npy", "y.npy"),
    jreader.npz("rows.npz", "x"),
    jreader.parquet(["a.parquet", "b.parquet"], columns="x"),
    jreader.source([1, 2, 3]),
    jreader.tar("shard.tar"),
    jreader.text("a.txt", encoding="latin-1"),
    jreader.tfrecord("a.tfrecord"),
    jreader.tokens("train_*.bin", dtype="uint32"),
    jreader.video("films/*.mp4", size=(112, 112), every=2).windows(16, stride=8),
]
jreader.write(reader, "folder", "npy", shards=2)
jreader.write(reader, "folder", "arrow", ragged=["ids"])
jreader.write(reader, "folder", "megatron", field="ids", dtype=np.int32, eos=0)
jreader.datasets.random_split(Squares(), [0.9, 0.1], seed=0)
jreader.images.decode(b"")
jreader.sounds.log_mel(np.zeros(9), 16_000)
jreader.sounds.waveform(b"", 16_000)
jreader.images.image_text(0, patch=14)
jreader.permutation(np.arange(10), 10, key(0))

# loaders
log = jreader.replay({"x": np.float32(0)}, 0)
assert_type(log.append({"x": np.zeros(3)}), int)
fields = [jreader.data("x", [None, 4], "int32")]
loader = jreader.DataLoader(Squares(), 4, shuffle=True, seed=0, num_workers=2)
older = jreader.PyReader(fields, capacity=4)
with jreader.graceful_stop() as stopping:
    for feed in loader:
        assert_type(feed, Any)
        if stopping:
            break
feeds = loader.steps(10)
cursor: jreader.Cursor = feeds.cursor
data, batch_at = jreader.as_function(batches)
assert_type(ContextParallel("host").shards, int)
assert_type(jreader.export(batches, platforms=["cpu"]), bytes)
state, metrics = jreader.train(lambda total, feed: (total + 1, feed), 0, loader, progress=False)
assert_type(state, int)
report: jreader.Report = jreader.report(loader)
assert_type(report.advice, str)
assert_type(report.fleet.waited if report.fleet else 0.0, float)
assert_type(loader.stats().scalars(), dict[str, float])
jreader.observe(loader, meter=object(), name="train")
assert_type(jreader.marked_text({}, "tokenizer"), str)
findings = [str(finding) for finding in jreader.lint(Pipeline(reader))]
spec: jreader.ArraySpec = Pipeline(jreader.arrays(np.arange(4))).element_spec
assert_type(spec.shape, tuple[int | None, ...])
stacked: Any = jreader.stack([1, 2])
columns: jreader.Columns[Any] = jreader.Columns({"x": np.arange(4)})
assert_type(len(columns), int)
with jreader.Processes(2) as pool:
    assert_type(pool.submit(even, 2).result(), bool)
info = jreader.get_worker_info()
if info is not None:
    assert_type(info.id, int)


# errors
def told() -> str:
    try:
        list(reader())
    except (jreader.ComposeNotAligned, jreader.FeedMismatch, jreader.BatchNotDivisible) as error:
        value_error: ValueError = error
        return str(value_error)
    except jreader.MissingSample as error:
        index_error: IndexError = error
        return str(index_error)
    except (
        jreader.NotResumable,
        jreader.ShortEpoch,
        jreader.DamagedData,
        jreader.WorkerDied,
    ) as error:
        reader_error: jreader.ReaderError = error
        return str(reader_error)
    except jreader.EOFException as error:
        return str(error)
    return jreader.LintWarning.__name__


class every(jreader.Node[int]):
    """An op of the user's own."""


def misspelt() -> None:
    _ = jreader.shufle  # type: ignore[attr-defined]  # mypy says where it is no error
