"""Loaders whose cursors are stored in `tests/loaders/stored_cursors.jsonl`, and how they were.

Its runs and epochs were written by `write`, in a checkout of that release (959d841, with
`stored.py` and this file as they were then spelled), those of mixtures in one of 71b2ed9d:

    import conftest, stored_loaders; stored_loaders.write(Path("stored.jsonl"))

Nothing that a loader here reads, orders or counts may change, only spellings.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from steps import with_cursors
from stored import (
    COUNT,
    Squares,
    Streamed,
    Tokens,
    batches,
    columns,
    doubled,
    endless,
    keyed,
    keyed_each,
    negative,
    noisy,
    numbers,
    odd,
    pairs,
    tens,
    twice,
)

import jreader
from jreader import DataLoader, Pipeline, arrays
from jreader.datasets import (
    BatchSampler,
    ChainDataset,
    ComposeDataset,
    ConcatDataset,
    DistributedBatchSampler,
    RandomSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

DEVICES = jax.devices()
EPOCH = 1
SIDES = np.arange(COUNT), np.arange(COUNT) + 50


def held(count=COUNT):
    return Pipeline(arrays(n=np.arange(count)))


def stream():
    return Pipeline(numbers)


def sharded():
    return NamedSharding(Mesh(np.array(DEVICES[:4]), ("data",)), PartitionSpec("data"))


def fed(**options):
    return DataLoader.from_generator(**options)


def rows_of(folder: Path):
    np.save(folder / "rows.npy", np.arange(COUNT, dtype="int32"))
    return folder / "rows.npy"


def lines_of(folder: Path):
    (folder / "lines.txt").write_bytes(b"".join(b"%d\n" % n for n in range(COUNT)))
    return folder / "lines.txt"


def records_of(folder: Path):
    (folder / "records.jsonl").write_bytes(b"".join(b'{"n": %d}\n' % n for n in range(COUNT)))
    return folder / "records.jsonl"


def idx_of(folder: Path):
    (folder / "labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, COUNT, *range(COUNT)]))
    return folder / "labels-idx1-ubyte"


INDEXED = {
    "in order": lambda _: held().batch(4).load(),
    "shuffled": lambda _: held().shuffle(seed=3).batch(4).load(),
    "shuffled, unseeded": lambda _: held().shuffle().batch(4).load(),
    "shuffled by a key of jax": lambda _: held().shuffle(seed=jax.random.key(5)).batch(4).load(),
    "shuffled in windows": lambda _: held().shuffle(6, seed=3).batch(4).load(),
    "shuffled twice": lambda _: held().shuffle(5, seed=3).shuffle(seed=3).batch(4).load(),
    "nothing ahead": lambda _: held().shuffle(seed=3).batch(4).load(capacity=0),
    "last='pad'": lambda _: held().shuffle(seed=3).batch(4).load(last="pad"),
    "last='wrap'": lambda _: held().shuffle(seed=3).batch(4).load(last="wrap"),
    "last='error'": lambda _: held(24).shuffle(seed=3).batch(4).load(last="error"),
    "batch(drop_last=False)": lambda _: held().batch(4, drop_last=False).load(),
    "steps_per_epoch": lambda _: held().shuffle(seed=3).batch(4).load(steps_per_epoch=3),
    "steps_per_epoch, wrapped": (
        lambda _: held().shuffle(seed=3).batch(4).load(steps_per_epoch=7, last="wrap")
    ),
    "chunk(2)": lambda _: held().shuffle(seed=3).batch(2).load().chunk(2),
    "chunk(2), padded": lambda _: held().shuffle(seed=3).batch(4).load(last="pad").chunk(2),
    "on_device": lambda _: held().shuffle(seed=3).batch(4).load().on_device(doubled),
    "on_device, rng='batch'": (
        lambda _: held().shuffle(seed=3).batch(4).load().on_device(keyed, rng="batch", seed=2)
    ),
    "on_device, rng='sample'": (
        lambda _: held().shuffle(seed=3).batch(4).load().on_device(keyed_each, rng="sample")
    ),
    "pmap over eight": lambda _: held(88).shuffle(seed=3).batch(16).load(pmap=True),
    "pmap over two, padded": (
        lambda _: held().shuffle(seed=3).batch(4).load(pmap=DEVICES[:2], last="pad")
    ),
    "a NamedSharding": lambda _: held().shuffle(seed=3).batch(4).load(sharding=sharded()),
    "on the host": lambda _: held().shuffle(seed=3).batch(4).load(sharding="host"),
    "resident": lambda _: held().shuffle(seed=3).batch(4).load(resident=True),
    "firstn, skip, shard": lambda _: held(60).skip(3).firstn(50).shard(2, 1).batch(4).load(),
    "part of a shuffle": lambda _: held().shuffle(seed=3).firstn(15).batch(4).load(),
    "chain": lambda _: held(9).chain(held(13)).shuffle(seed=3).batch(4).load(),
    "compose": lambda _: (
        Pipeline(jreader.compose(*map(arrays, SIDES))).shuffle(seed=3).batch(4).load()
    ),
    "cache of a shuffle": lambda _: held().shuffle(seed=3).cache().batch(4).load(),
    "epochs": lambda _: held(8).shuffle(seed=3).epochs(3).batch(4).load(),
    "map_batches": lambda _: held().shuffle(seed=3).batch(4).map_batches(doubled).load(),
    "shuffled batches": lambda _: held().batch(4).shuffle(3, seed=3).load(),
    "source of a list": lambda _: (
        Pipeline(jreader.source([*range(COUNT)])).shuffle(seed=3).batch(4).load()
    ),
    "npy": lambda folder: Pipeline(jreader.npy(rows_of(folder))).shuffle(seed=3).batch(4).load(),
    "idx": lambda folder: Pipeline(jreader.idx(idx_of(folder))).shuffle(seed=3).batch(4).load(),
}

STREAMED = {
    "a function": lambda _: stream().batch(4).load(),
    "shuffle in windows": lambda _: stream().shuffle(6, seed=3).batch(4).load(),
    "an unseeded shuffle": lambda _: stream().shuffle(6).batch(4).load(),
    "filter": lambda _: stream().filter(odd).batch(4).load(),
    "flat_map": lambda _: stream().flat_map(twice).shuffle(6, seed=3).batch(4).load(),
    "map": lambda _: stream().map(negative).shuffle(6, seed=3).batch(4).load(),
    "map with threads": lambda _: (
        stream().shuffle(6, seed=3).map(negative, threads=2).batch(4).load()
    ),
    "map with processes": (
        lambda _: stream().shuffle(6, seed=3).map(negative, processes=2).batch(4).load()
    ),
    "map with rng": lambda _: stream().map(noisy, rng=True, seed=4).batch(4).load(),
    "xmap": lambda _: stream().shuffle(6, seed=3).xmap(negative, 2, 4, order=True).batch(4).load(),
    "buffered": lambda _: stream().shuffle(6, seed=3).prefetch(3).batch(4).prefetch(2).load(),
    "cache": lambda _: stream().cache().shuffle(30, seed=3).batch(4).load(),
    "epochs": lambda _: stream().firstn(8).shuffle(6, seed=3).epochs(3).batch(4).load(),
    "chain": lambda _: stream().chain(tens).shuffle(6, seed=3).batch(4).load(),
    "compose": lambda _: stream().compose(tens).shuffle(6, seed=3).batch(4).load(),
    "map_readers": (lambda _: Pipeline(jreader.map_readers(max, numbers, tens)).batch(4).load()),
    "shard, skip, firstn": lambda _: stream().skip(1).shard(2, 1).firstn(9).batch(4).load(),
    "map_batches": lambda _: stream().batch(4).map_batches(negative).load(),
    "shuffled batches": lambda _: stream().batch(4).shuffle(3, seed=3).load(),
    "pmap, padded": lambda _: stream().batch(4).load(pmap=DEVICES[:2], last="pad"),
    "last='wrap'": lambda _: stream().shuffle(6, seed=3).batch(4).load(last="wrap"),
    "without an end": lambda _: Pipeline(endless).batch(4).load(steps_per_epoch=3),
    "without an end, in windows": (
        lambda _: Pipeline(endless).shuffle(6, seed=3).batch(4).load(steps_per_epoch=3)
    ),
    "text": lambda folder: (
        Pipeline(jreader.text(lines_of(folder))).map(int).shuffle(6, seed=3).batch(4).load()
    ),
    "jsonl": lambda folder: Pipeline(jreader.jsonl(records_of(folder))).batch(4).load(),
    "a source of the user's": lambda _: Pipeline(Tokens()).shuffle(6, seed=3).batch(4).load(),
    "an op of the user's": lambda _: stream().pipe(pairs).batch(4).load(),
}

DATA_SETS = {
    "in order": lambda _: DataLoader(Squares(), 4),
    "shuffle": lambda _: DataLoader(Squares(), 4, shuffle=True, seed=3),
    "shuffle, unseeded": lambda _: DataLoader(Squares(), 4, shuffle=True, drop_last=True),
    "workers": lambda _: DataLoader(Squares(), 4, shuffle=True, seed=3, num_workers=2),
    "single samples": lambda _: DataLoader(Squares(9), None, shuffle=True, seed=3),
    "several places": lambda _: DataLoader(
        Squares(), 2, shuffle=True, seed=3, places=DEVICES[:2], drop_last=False
    ),
    "a sampler": lambda _: DataLoader(Squares(), 4, sampler=RandomSampler(Squares(), seed=3)),
    "a list for a sampler": lambda _: DataLoader(
        Squares(), 4, sampler=[5, 3, 1, 7, 9, 11, 2, 0, 4]
    ),
    "a weighted sampler": lambda _: DataLoader(
        Squares(), 4, sampler=WeightedRandomSampler([*range(1, COUNT + 1)], 14, seed=3)
    ),
    "a sampler of some": lambda _: DataLoader(
        Squares(), 4, sampler=SubsetRandomSampler([*range(0, COUNT, 2)], seed=3)
    ),
    "a batch sampler": lambda _: DataLoader(
        Squares(), batch_sampler=BatchSampler(Squares(), shuffle=True, batch_size=4, seed=3)
    ),
    "a distributed batch sampler": lambda _: DataLoader(
        Squares(), batch_sampler=DistributedBatchSampler(Squares(), 4, 2, 1, shuffle=True, seed=3)
    ),
    "a list of batches": lambda _: DataLoader(Squares(), batch_sampler=[[1, 2], [5, 3], [0, 9]]),
    "parts of parts": lambda _: DataLoader(
        ConcatDataset(
            [Subset(Squares(), [*range(5, 15)]), random_split(Squares(), [9, 13], seed=1)[0]]
        ),
        4,
        shuffle=True,
        seed=3,
    ),
    "tensors": lambda _: DataLoader(
        TensorDataset([np.arange(COUNT), -np.arange(COUNT)]), 4, shuffle=True, seed=3
    ),
    "side by side": lambda _: DataLoader(ComposeDataset([StackDataset(Squares(), Squares())]), 4),
    "a stream": lambda _: DataLoader(Streamed(), 4),
    "a stream, one worker": lambda _: DataLoader(Streamed(), 4, num_workers=1),
    "streams, one after another": lambda _: DataLoader(ChainDataset([Streamed(9), Streamed(7)]), 4),
}

GENERATORS = {
    "samples": lambda _: fed().set_sample_generator(jreader.shuffle(numbers, 6, 3), 4),
    "samples, several places": lambda _: fed(drop_last=False).set_sample_generator(
        jreader.shuffle(numbers, 6, 3), 2, drop_last=False, places=DEVICES[:2]
    ),
    "sample lists": lambda _: fed().set_sample_list_generator(
        jreader.batch(jreader.shuffle(numbers, 6, 3), 4)
    ),
    "sample lists of a function": lambda _: fed().set_sample_list_generator(batches),
    "batches": lambda _: fed().set_batch_generator(columns),
    "batches, several places": lambda _: fed(drop_last=True).set_batch_generator(
        columns, places=DEVICES[:2]
    ),
    "batches ahead on the host": lambda _: fed(use_double_buffer=False).set_batch_generator(
        columns
    ),
}


def mixed(web, code, **options):
    return jreader.mix({"web": web, "code": code}, {"web": 3, "code": 1}, seed=3, **options)


MIXTURES = {
    "indexed": lambda _: Pipeline(mixed(*map(arrays, SIDES))).batch(4).load(),
    "indexed, again": lambda _: Pipeline(mixed(*map(arrays, SIDES), stop="all")).batch(4).load(),
    "streams": lambda _: Pipeline(mixed(numbers, tens)).batch(4).load(),
    "streams, once": lambda _: Pipeline(mixed(numbers, tens, stop="once")).batch(4).load(),
    "streams, other weights later": lambda _: (
        Pipeline(mixed(numbers, tens, at={6: {"web": 1, "code": 1}})).batch(4).load()
    ),
    "streams, shuffled": lambda _: (
        Pipeline(mixed(numbers, tens)).shuffle(6, seed=3).batch(4).load()
    ),
    "mixtures of mixtures": lambda _: (
        Pipeline(mixed(mixed(numbers, tens), arrays(SIDES[1]))).batch(4).load()
    ),
    "readers without names": lambda _: (
        Pipeline(jreader.mix([numbers, tens], [3, 1], seed=3)).batch(4).load()
    ),
}

LOADERS = {
    f"{kind}: {name}": make
    for kind, makers in {
        "indexed": INDEXED,
        "streamed": STREAMED,
        "data set": DATA_SETS,
        "generator": GENERATORS,
        "mixture": MIXTURES,
    }.items()
    for name, make in makers.items()
}

# runs over several epochs: their loader, how many steps, and which are left out
RUNS = {
    "indexed": ("indexed: shuffled", 13, None),
    "indexed, steps left out": ("indexed: shuffled", 13, range(6, 9)),
    "indexed, padded": ("indexed: last='pad'", 15, None),
    "streamed": ("streamed: shuffle in windows", 13, None),
    "streamed, steps left out": ("streamed: shuffle in windows", 13, range(6, 9)),
    "streamed, without an end": ("streamed: without an end, in windows", 9, range(4, 5)),
    "a data set": ("data set: shuffle", 15, None),
    "samples": ("generator: samples", 13, None),
}


def lines(folder):
    """Some cursors of each loader, how many feeds lie before each, and all feeds."""
    for name, make in LOADERS.items():
        seen, cursors = with_cursors(make(folder).epoch(EPOCH))
        yield "epoch", name, seen, cursors, (0, len(seen) // 2, len(seen))
    for name, (loader, many, left_out) in RUNS.items():
        seen, cursors = with_cursors(LOADERS[loader](folder).steps(many, skip_steps=left_out))
        yield "run", name, seen, cursors, range(2, len(seen), 3)


def write(path):
    with TemporaryDirectory() as folder, path.open("w") as file:
        for kind, name, feeds, cursors, done in lines(Path(folder)):
            line = {
                "python": sys.version_info[:2],
                "kind": kind,
                "name": name,
                "feeds": feeds,
                "done": [*done],
                "cursors": [cursors[number] for number in done],
            }
            print(json.dumps(line, separators=(",", ":")), file=file)
