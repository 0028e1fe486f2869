"""A user's program as type checkers see it: `.ci/run` has mypy and pyright check it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, assert_type

import jax
import numpy as np

import jreader
from jreader import DataLoader, Pipeline, arrays, checkpoint, datasets, map_readers, shuffle
from jreader.integrations.maxtext import Batches, batches
from jreader.pipelines.preparing import Prepared


def words() -> Iterator[str]:
    yield from ("a", "bb", "ccc")


def twice(reader: Callable[[], Iterable[str]], times: int = 2) -> Callable[[], Iterator[str]]:
    return lambda: (sample for sample in reader() for _ in range(times))


def long(word: str) -> bool:
    return len(word) > 1


def cut(word: str, rng: np.random.Generator) -> list[str]:
    return [word[: rng.integers(len(word))]]


class every(jreader.Node[str]):
    """An op of the user's own."""

    def __init__(self, reader: jreader.Reader[str], n: int) -> None:
        self.reader, self.n = reader, n


class Seeded:
    """As a type checker sees a MapDataset of Grain."""

    def __iter__(self) -> Iterator[str]:
        return words()

    def seed(self, seed: int) -> Seeded:
        return self


class Loaded:
    """As a type checker sees a DataLoader of torch."""

    num_workers: int = 0

    def __iter__(self) -> Iterator[str]:
        return words()


assert_type(Pipeline(Seeded()), Pipeline[str])
assert_type(Pipeline(Loaded()), Pipeline[str])
Pipeline(["a", "bb"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
assert_type(Pipeline(words).map(len), Pipeline[int])
assert_type(Pipeline(words).map(len, threads=2), Pipeline[int])
assert_type(Pipeline(words).map(len, processes=2, window=8), Pipeline[int])
assert_type(Pipeline(words).map(fn=cut, rng=True, seed=1, threads=2), Pipeline[list[str]])
assert_type(Pipeline(words).map(lambda word: word.upper()), Pipeline[str])
assert_type(Pipeline(words).map(str.upper, on_error="skip").map(len), Pipeline[int])
assert_type(Pipeline(words).xmap(len, 2, 4), Pipeline[int])
assert_type(Pipeline(words).flat_map(str.split), Pipeline[str])
assert_type(Pipeline(words).compose(words), Pipeline[tuple[Any, ...]])
assert_type(Pipeline(words).chain(words)[1:3].shard(2, index=0), Pipeline[str])
assert_type(Pipeline(words)[0], str)
assert_type(Pipeline(words).peek(), str)
assert_type(Pipeline(words).pipe(every, n=2), Pipeline[str])
assert_type(Pipeline(words).batch(2).map_batches(np.asarray), Pipeline[Sequence[Any]])
Pipeline(words).map(len, workers=2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
Pipeline(words).plane()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
Pipeline(words).take(2)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
assert_type(Pipeline(words).filter(long).shuffle(10, seed=1), Pipeline[str])
assert_type(Pipeline(words).filter(long, keep="long"), Pipeline[str])
assert_type(Pipeline(words).prepare(part=(1, 2)), list[Prepared])
assert_type(Pipeline(words).lock(sampled=True), str)
assert_type(Pipeline(words).check_lock("a.lock"), list[str])
assert_type(Pipeline(words).skip(1).firstn(2).epochs(3).prefetch(2).cache(), Pipeline[str])
assert_type(Pipeline(words).batch(2), Pipeline[Sequence[str]])
assert_type(Pipeline(words).pipe(twice, times=3), Pipeline[str])
assert_type(next(iter(Pipeline(words))), str)
assert_type(list(shuffle(words, 10, seed=1)()), list[str])
assert_type(list(map_readers(len, words)()), list[int])

Feeds = dict[str, jax.Array]
Pair = tuple[jax.Array, jax.Array]


def loss(feed: Feeds) -> jax.Array:
    return feed["x"].sum()


def noisy(feed: Feeds, key: jax.Array) -> Pair:
    return feed["x"], jax.random.normal(key, feed["x"].shape)


rows = Pipeline(arrays(x=np.arange(4))).shuffle(seed=0).batch(2)
loader = rows.load({"x": "x"}, capacity=1)
assert_type(loader, DataLoader[Feeds])
for feed in loader:
    assert_type(feed["x"], jax.Array)
    loss(feed)
    loss(feed["x"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
assert_type(next(loader.steps(1))["x"], jax.Array)
assert_type(next(loader.epoch(0, start=1)), Feeds)
assert_type([feed["x"] for feed in loader()], list[jax.Array])
with loader as opened, iter(opened.chunk(2).without([3])) as chunks:
    assert_type(next(chunks)["mask"], jax.Array)
assert_type(loader.peek()["x"], jax.Array)
assert_type(loader.on_device(loss), DataLoader[jax.Array])
assert_type(loader.on_device(noisy, "batch").on_device(lambda pair: pair[1]), DataLoader[jax.Array])
loader.on_device(noisy)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
assert_type(loader.replicate(loader.peek()), Feeds)
elsewhere = rows.load(workers=jreader.Processes(2), share=None)
assert_type(elsewhere, DataLoader[Feeds])
assert_type(loader.steps(1).cursor, jreader.Cursor)
loader.steps(1).set_state(loader.steps(1).get_state())
saved = loader.state_dict()
loader.load_state_dict(saved)
loader.load_state_dict(loader.steps(1).cursor)
loader.steps(at=saved).set_state(saved)
loader.epoch(0, at=loader.steps(1).cursor)
assert_type(batches(rows), Batches)


class Batch(NamedTuple):
    x: jax.Array


@dataclass(frozen=True)
class Frozen:
    x: jax.Array


def x_of(x: jax.Array, mask: jax.Array) -> jax.Array:
    return x[mask]


assert_type(rows.load(into=Batch), DataLoader[Batch])
assert_type(next(iter(rows.load(["x"], into=Frozen, last="drop"))).x, jax.Array)
assert_type(next(iter(rows.load(into=Batch).on_device(lambda batch: batch.x))), jax.Array)
assert_type(rows.load(sharding="host", into=Batch), DataLoader[Batch])
assert_type(rows.load(into=x_of, last="pad").peek(), jax.Array)
on_host = rows.load(["x"], sharding="host", last="keep")
assert_type(next(iter(on_host))["x"], np.ndarray[Any, Any])
rows.load(capacty=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
whole: DataLoader[jax.Array] = Pipeline(arrays(np.arange(4))).batch(2).load()
assert_type(next(iter(whole)), jax.Array)


def trained(total: jax.Array, feed: Feeds) -> tuple[jax.Array, float]:
    return total + loss(feed), 0.5


checkpoint.Save(loader.steps(1))
checkpoint.Restore(loader)
assert_type(jreader.train(lambda total, feed: (total + 1, feed), 0, loader, progress=False)[0], int)
assert_type(jreader.train(trained, whole.peek(), loader)[0], jax.Array)
assert_type(Pipeline(datasets.digits.train()).batch(2).load(pmap=None), DataLoader[Feeds])
assert_type(jreader.as_function(rows)[1](None, 0, 1)["x"], jax.Array)

# what feeds of a data set are follows from its samples: anything, unless the program says it
pairs: DataLoader[Pair] = DataLoader([(1.0, 2)], 4)
assert_type([label.sum() for _, label in pairs], list[jax.Array])
assert_type(DataLoader(range(4)).peek(), Any)
assert_type(datasets.random_split(["a", "b"], [1, 1]), list[datasets.Subset[str]])

older = DataLoader.from_generator(["x"]).set_sample_generator(words, batch_size=2)
assert_type(older, DataLoader[Feeds])
assert_type(older.set_batch_generator(words).set_sample_list_generator(words).next(), Feeds)
listed = DataLoader[list[jax.Array]].from_generator(return_list=True)
assert_type(next(listed.steps(3)), list[jax.Array])
assert_type(jreader.PyReader(["x"]).next()["x"], jax.Array)
