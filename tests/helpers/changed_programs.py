"""Pairs of programs, before and after a change: what a cursor of the first says to the second."""

from __future__ import annotations

import functools
import random
import re
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from jreader import (
    DataLoader,
    Pipeline,
    arrays,
    arrow,
    chain,
    compose,
    firstn,
    idx,
    image_folder,
    map_readers,
    mix,
    npy,
    ragged,
    source,
    text,
    tokens,
)
from jreader.datasets import (
    BatchSampler,
    ChainDataset,
    ComposeDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

COUNT = 48
PLACES = jax.devices()
FIRST, SECOND = np.arange(COUNT), np.arange(COUNT) * 3


def mixture_of(names):
    return mix({name: arrays(FIRST) for name in names}, seed=0)


def numbers():
    return iter(range(COUNT))


def evens():
    return iter(range(0, 2 * COUNT, 2))


class Scaled:
    def __init__(self, by):
        self.by = by

    def __call__(self, n):
        return n * self.by

    def method(self, n):
        return n * self.by


class Held(Dataset):
    def __init__(self, values):
        self.values = values

    def __getitem__(self, index):
        return np.float32(self.values[index])

    def __len__(self):
        return len(self.values)


class Streamed(IterableDataset):
    def __init__(self, values):
        self.values = values

    def __iter__(self):
        return iter(self.values)


def both(make, *values):
    """A plan, or a loader, of each of two values."""
    return tuple(map(make, values))


def mapped(fn):
    return Pipeline(numbers).map(fn)


def closed_over(value):
    return mapped(lambda n: n if value is None else n + 1)


def defaulted(value):
    def fn(n, *, by=value):
        return n * by

    return mapped(fn)


def written_as(lines, **names):
    """A function `read` of a module of the user's."""
    space = {"__name__": "users", **names}
    exec(compile(lines, "users.py", "exec"), space)  # what an import does
    return mapped(space["read"])


def module_of(value):
    module = ModuleType("helpers")
    module.__file__, module.scale = "helpers.py", value
    return module


def loaded(**options):
    return Pipeline(arrays(n=FIRST)).batch(4).load(**options)


def staged(value=1, **options):
    draws = bool(options)
    fn = (lambda feed, key: feed["n"] * value) if draws else (lambda feed: feed["n"] * value)
    return loaded().on_device(fn, **options)


def in_places(count):
    loader = DataLoader.from_generator()
    return loader.set_sample_generator(Pipeline(arrays(FIRST)), 2, places=PLACES[:count])


def fields_of(feed_list):
    return Pipeline(compose(numbers, evens)).batch(4).load(feed_list)


def sampled_by(sampler):
    return DataLoader(FIRST, batch_sampler=BatchSampler(sampler=sampler, batch_size=4))


def changed_at(place, values=FIRST):
    values = np.array(values)
    values[place] = -1
    return values


def file_of(folder, name, content):
    path = folder / str(abs(hash(str(content)))) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith("npy"):
        np.save(path, content)
    else:
        path.write_bytes(content)
    return path


def locked(folder, *, sampled):
    (plan := Pipeline(arrays(n=FIRST)).batch(4)).lock(
        path := folder / str(sampled), sampled=sampled
    )
    return plan.load(lock=path)


def idx_of(values):
    return bytes([0, 0, 8, 1, 0, 0, 0, COUNT]) + bytes(values.astype("uint8"))


def lines_of(first):
    return b"".join(b"%03d\n" % (first + n) for n in range(COUNT))


def named(names):
    return Pipeline(arrays(n=FIRST, name=np.array(names))).batch(4).load({"n": "n"})


def image_rows():
    return np.random.default_rng(0).integers(0, 256, (3000, 28, 28), dtype=np.uint8)


def documents(lengths):
    offsets = np.cumsum([0, *lengths])
    return Pipeline(ragged(np.arange(offsets[-1]), offsets))


def one_token_moved(make, *, plan=documents):
    """What is made of documents, and of those of which one gave a token to the next one."""
    lengths = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3] * 40
    moved = [*lengths]
    moved[301], moved[302] = moved[301] + 1, moved[302] - 1
    return both(lambda each: make(plan(each)), lengths, moved)


def ended(folder, lengths):
    """A file of documents that end with the token 0."""
    values = np.full(sum(lengths), 7, np.uint16)
    values[np.cumsum(lengths) - 1] = 0
    (inside := folder / str(lengths[301])).mkdir(exist_ok=True)
    values.tofile(inside / "documents.bin")
    return Pipeline(tokens(inside / "documents.bin", eos=0))


def listed(folder, lengths):
    """An Arrow file of lists."""
    table = pa.table({"tokens": pa.array([[7] * each for each in lengths])})
    (inside := folder / str(lengths[301])).mkdir(exist_ok=True)
    with pa.ipc.new_file(path := inside / "documents.arrow", table.schema) as file:
        file.write_table(table)
    return Pipeline(arrow(path))


def images_of(folder, name="8.png", content=b"bb", place=""):
    (kept := folder / content.decode() / name / place / "train/cat").mkdir(
        parents=True, exist_ok=True
    )
    for number in range(7):  # eight pictures, two whole batches: no end is warned of
        (kept / f"{number}.png").write_bytes(b"aa")
    (kept / name).write_bytes(content)
    return Pipeline(image_folder(kept.parent)).map(lambda sample: sample["label"])


def padded(**options):
    return documents([3, 1, 4, 1] * 12).padded_batch(4, **options).load()


REFUSED, WARNED, UNSEEN = "refused", "**warned**", "not noticed"

CHANGES = {
    "members of `compose`, `chain` or `map_readers` swapped": (
        REFUSED,
        lambda _: (compose(numbers, evens), compose(evens, numbers)),
        lambda _: (chain(numbers, evens), chain(evens, numbers)),
        lambda _: both(lambda pair: map_readers(max, *pair), (numbers, evens), (evens, numbers)),
        lambda _: both(lambda pair: compose(*map(arrays, pair)), (FIRST, SECOND), (SECOND, FIRST)),
        lambda _: both(lambda pair: chain(*map(arrays, pair)), (FIRST, SECOND), (SECOND, FIRST)),
        lambda _: both(
            lambda pair: compose(firstn(chain(*pair), 60), firstn(chain(*pair), 60)),
            (numbers, evens),
            (evens, numbers),
        ),
        lambda _: both(
            lambda order: compose(*(map_readers(Scaled(k), numbers) for k in order)),
            (1, 2),
            (2, 1),
        ),
        lambda _: both(
            lambda order: chain(*(arrays(FIRST + k) for k in order)),
            range(99),
            [*range(97), 98, 97],
        ),
    ),
    "members of `ConcatDataset`, `ChainDataset` or `ComposeDataset` swapped": (
        REFUSED,
        *(
            lambda _, join=join: both(
                lambda pair: DataLoader(join(pair), 4), [FIRST, SECOND], [SECOND, FIRST]
            )
            for join in (ConcatDataset, ComposeDataset)
        ),
        lambda _: both(
            lambda pair: DataLoader(ChainDataset(list(map(Streamed, pair))), 4),
            [FIRST, SECOND],
            [SECOND, FIRST],
        ),
    ),
    "`keep` of a `filter` added or removed": (
        REFUSED,
        lambda path: both(lambda keep: Pipeline(numbers).filter(bool, keep), None, path / "bits"),
    ),
    "weights, indices or lists of samplers, indices of a `Subset`": (
        REFUSED,
        lambda _: both(
            lambda weights: sampled_by(WeightedRandomSampler(weights, COUNT, seed=1)),
            FIRST,
            FIRST[::-1],
        ),
        lambda _: both(
            lambda indices: sampled_by(SubsetRandomSampler(indices, seed=1)), FIRST, FIRST[::-1]
        ),
        lambda _: both(
            lambda lists: DataLoader(FIRST, batch_sampler=lists),
            [[0, 1], [2, 3], [4]] * 3,
            [[0, 1], [3, 2], [4]] * 3,
        ),
        lambda _: both(
            lambda indices: DataLoader(Subset(FIRST, indices), 4), range(40), range(1, 41)
        ),
        lambda _: both(lambda indices: source(Subset(FIRST, indices)), range(40), range(1, 41)),
    ),
    "files of lines (`text`, `jsonl` of gzip) replaced by others, also of the same size": (
        REFUSED,
        lambda folder: both(
            lambda first: map_readers(int, text(file_of(folder, "lines", lines_of(first)))),
            100,
            200,
        ),
    ),
    "lengths of documents below `pack`, `windows`, `bucket` or `unbatch`": (
        REFUSED,
        lambda _: one_token_moved(lambda plan: plan.pack(16, seed=0)),
        lambda _: one_token_moved(lambda plan: plan.shuffle(seed=1).pack(16, window=8, seed=0)),
        lambda _: one_token_moved(lambda plan: plan.pack(16, split="always", seed=0)),
        lambda _: one_token_moved(lambda plan: plan.windows(8)),
        lambda _: one_token_moved(lambda plan: plan.windows(1, across=False).shuffle(seed=1)),
        lambda _: one_token_moved(lambda plan: plan.map(list).windows(8)),
        lambda _: one_token_moved(lambda plan: plan.bucket([6, 10], batch_size=4, seed=0).load()),
        lambda _: one_token_moved(lambda plan: plan.map(list).bucket([6, 10], batch_size=4).load()),
        lambda _: one_token_moved(lambda plan: plan.unbatch()),
        lambda folder: one_token_moved(
            lambda plan: plan.pack(16, seed=0), plan=functools.partial(ended, folder)
        ),
        lambda folder: one_token_moved(
            lambda plan: plan.windows(8), plan=functools.partial(listed, folder)
        ),
    ),
    "readers of a `mix` added, dropped or renamed": (
        WARNED,
        *(
            lambda _, names=names: both(mixture_of, ["web", "code"], names)
            for names in (["web", "code", "news"], ["web"], ["web", "books"])
        ),
    ),
    "other samples taken out, or none any more": (
        WARNED,
        *(
            lambda _, now=now: both(lambda taken: loaded().without(taken), [3, 5], now)
            for now in ([3], [3, 4], [])
        ),
    ),
    "names of files in an `image_folder`": (
        REFUSED,
        lambda folder: both(lambda name: images_of(folder, name), "8.png", "9.png"),
    ),
    "values of arrays changed, or rows reordered": (
        WARNED,
        lambda _: both(lambda n: arrays(n=n), FIRST, changed_at(7)),
        lambda _: both(lambda n: arrays(n=n), FIRST, FIRST[::-1]),
        lambda _: both(arrays, image_rows(), image_rows()[::-1]),
        lambda _: both(named, ["a", "b"] * 24, ["b", "a"] * 24),
        lambda _: both(named, [None, "a"] * 24, ["a", None] * 24),
        lambda _: both(
            lambda last: arrays(dict.fromkeys(range(12), FIRST) | {10: last}), FIRST, SECOND
        ),
        lambda _: both(source, list(FIRST), list(SECOND)),
    ),
    "the contents of a data set": (
        WARNED,
        lambda _: both(lambda values: DataLoader(Held(values), 4), FIRST, SECOND),
        lambda _: both(lambda values: DataLoader(Streamed(values), 4), FIRST, SECOND),
        lambda _: both(lambda values: DataLoader(TensorDataset([values]), 4), FIRST, SECOND),
        lambda _: both(lambda values: source(Held(values)), FIRST, SECOND),
    ),
    "files of rows (`npy`, `npz`, `idx`, `jsonl`) replaced by others of the same size": (
        WARNED,
        lambda folder: both(lambda n: npy(file_of(folder, "n.npy", n)), FIRST, SECOND),
        lambda folder: both(lambda n: idx(file_of(folder, "n", idx_of(n))), FIRST, SECOND),
        lambda folder: both(
            lambda n: arrays(np.load(file_of(folder, "n.npy", n), mmap_mode="r")), FIRST, SECOND
        ),
    ),
    "sizes or contents of files in an `image_folder`": (
        WARNED,
        lambda folder: both(lambda content: images_of(folder, content=content), b"bb", b"bc"),
        lambda folder: both(lambda content: images_of(folder, content=content), b"bb", b"bbb"),
    ),
    "`pad=`, and `to=`, `multiple_of=`, `fields=`, `longer=`, `padding_side=`, `axes=` and "
    "`same_length=` of `padded_batch`; `stacked=` of `map_batches`": (
        WARNED,
        lambda _: both(
            lambda stacked: (
                Pipeline(arrays(FIRST)).batch(4).map_batches(np.array, stacked=bool(stacked)).load()
            ),
            0,
            1,
        ),
        lambda _: both(lambda pad: documents([3, 1, 4] * 9).pack(8, seed=0, pad=pad), 0, -1),
        lambda _: both(
            lambda pad: documents([3, 1, 4, 1] * 9).bucket([4], 4, seed=0, pad=pad).load(), 0, 1
        ),
        lambda _: both(lambda pad: padded(pad=pad), 0, {"tokens": 1}),
        lambda _: both(lambda to: padded(to=to), "longest", [8]),
        lambda _: both(lambda to: padded(to=to), [2, 8], [4, 8]),
        lambda _: both(lambda each: padded(multiple_of=each), 4, 8),
        lambda _: both(lambda longer: padded(to=[4], longer=longer), "error", "truncate"),
        lambda _: both(
            lambda many: (
                Pipeline(numbers)
                .map(lambda n: {"a": [n] * (n % 3), "b": [n]})
                .padded_batch(4, fields=["a", "b"][:many])
                .load()
            ),
            1,
            2,
        ),
    ),
    "a function, its code": (
        WARNED,
        lambda _: (mapped(lambda n: n + 1), mapped(lambda n: n + 2)),
        lambda _: (lambda: iter(range(48)), lambda: iter(range(1, 49))),
    ),
    "what a function closes over: numbers, arrays, containers, sets, objects, functions": (
        WARNED,
        lambda _: both(closed_over, 1, 2),
        lambda _: both(closed_over, FIRST, changed_at(3)),
        lambda _: both(closed_over, [1, 2], [2, 1]),
        lambda _: both(closed_over, {"a": 1}, {"a": 2}),
        lambda _: both(closed_over, {1, 2}, {1, 3}),
        lambda _: both(closed_over, {Scaled(1)}, {Scaled(2)}),
        lambda _: both(closed_over, set(map(str, range(5000))), set(map(str, range(1, 5001)))),
        lambda _: both(closed_over, Scaled(1), Scaled(2)),
        lambda _: both(closed_over, Scaled(FIRST), Scaled(SECOND)),
        lambda _: both(closed_over, lambda n: n + 1, lambda n: n + 2),
        lambda _: both(closed_over, jnp.arange(3), jnp.arange(1, 4)),
        lambda _: both(closed_over, dict.fromkeys(range(3000), 1), dict.fromkeys(range(3001), 1)),
    ),
    "compiled functions that it holds, as those of NumPy and `jax.numpy`, and seeds of generators, "
    "keys of jax, masks, patterns, memoryviews": (
        WARNED,
        lambda _: both(closed_over, np.add, np.multiply),
        lambda _: both(closed_over, np.add.reduce, np.multiply.reduce),
        lambda _: both(closed_over, jnp.add, jnp.multiply),
        lambda _: both(closed_over, jax.random.key(0), jax.random.key(1)),
        lambda _: both(closed_over, jax.random.key(0), jax.random.key(0, impl="rbg")),
        lambda _: both(lambda seed: closed_over(np.random.default_rng(seed)), 0, 1),
        lambda _: both(lambda seed: closed_over(np.random.Philox(key=seed)), 0, 1),
        lambda _: both(lambda seed: closed_over(np.random.default_rng(seed).normal), 0, 1),
        lambda _: both(lambda seed: closed_over(np.random.RandomState(seed)), 0, 1),
        lambda _: both(lambda seed: closed_over({random.Random(seed)}), 0, 1),
        lambda _: both(lambda seed: closed_over(np.random.SeedSequence(seed)), 0, 1),
        lambda _: both(closed_over, *np.random.SeedSequence(0).spawn(2)),
        lambda _: both(
            lambda text: closed_over(memoryview(text)).batch(4).load(), b"abc", b"abd"
        ),  # a loader, since cloudpickle makes bytes of it
        lambda _: both(lambda text: closed_over(re.compile(text)), "a" * 300, "a" * 299 + "b"),
        lambda _: both(lambda mask: closed_over(np.ma.array([1, 2], mask=mask)), [0, 1], [1, 0]),
        lambda _: both(lambda fn: mapped(functools.partial(fn, 1)), np.add, np.multiply),
        lambda _: both(lambda fn: mapped(lambda n: n).filter(fn), np.isfinite, np.isnan),
        lambda _: both(lambda fn: loaded().on_device(lambda feed: (feed, fn)[0]), jnp.add, np.add),
    ),
    "globals and functions that it uses, and what it uses of your own modules": (
        WARNED,
        lambda _: both(lambda k: written_as("def read(n): return n + k", k=k), 1, 2),
        lambda _: both(lambda k: written_as("def read(n): return sum(k for _ in [n])", k=k), 1, 2),
        lambda _: both(
            lambda k: written_as(f"def help(n): return n + {k}\ndef read(n): return help(n)"), 1, 2
        ),
        lambda _: both(
            lambda k: written_as("def read(n): return n * m.scale", m=module_of(k)), 1, 2
        ),
        lambda _: both(
            lambda k: written_as(
                "def read(n): return sum(n * m.scale for _ in [n])", m=module_of(k)
            ),
            1,
            2,
        ),
    ),
    "default values of its arguments": (
        WARNED,
        lambda _: both(defaulted, 1, 2),
        lambda _: both(lambda k: mapped(lambda n, k=k: n + k), 1, 2),
    ),
    "arguments of a `functools.partial`": (
        WARNED,
        lambda _: both(lambda k: mapped(functools.partial(max, k)), 1, 2),
        lambda _: both(lambda k: mapped(functools.partial(round, ndigits=k)), 8, 10),
        lambda _: both(lambda k: mapped(functools.partial(Scaled.method, Scaled(k))), 8, 10),
    ),
    "the object of a bound method, or a callable object; the function inside a `jax.jit`": (
        WARNED,
        lambda _: both(lambda k: mapped(Scaled(k).method), 1, 2),
        lambda _: both(lambda k: mapped(Scaled(k)), 1, 2),
        lambda _: both(lambda k: mapped([k, 5].__contains__), 1, 2),
        lambda _: both(lambda k: mapped(jax.jit(lambda n: n + k)).batch(4).load(), 1, 2),
        lambda _: both(
            lambda k: mapped(functools.lru_cache(lambda n: n + k)).batch(4).load(), 1, 2
        ),
    ),
    "`on_device`: its functions, `rng` and `seed`": (
        WARNED,
        lambda _: both(staged, 1, 2),
        lambda _: both(lambda rng: staged(rng=rng), "batch", "sample"),
        lambda _: both(lambda seed: staged(rng="batch", seed=seed), 1, 2),
        lambda _: (loaded(), staged()),
    ),
    "`chunk`": (
        WARNED,
        lambda _: both(lambda k: loaded().chunk(k), 2, 3),
        lambda _: (loaded(), loaded().chunk(2)),
    ),
    "the number of places, if each gets its own batch": (
        WARNED,
        lambda _: both(in_places, 4, 2),
        lambda _: both(in_places, 2, 1),
    ),
    "fields of the feeds renamed or swapped": (
        WARNED,
        lambda _: both(fields_of, {"a": 0, "b": 1}, {"a": 1, "b": 0}),
        lambda _: both(fields_of, {"a": 0, "b": 1}, {"c": 0, "b": 1}),
    ),
    "the [lock](how_to/lock_the_data.md) of `load(lock=path)`, or none any more": (
        WARNED,
        lambda folder: both(lambda some: locked(folder, sampled=bool(some)), 0, 1),
        lambda folder: (locked(folder, sampled=False), loaded()),
    ),
    "files that were moved or copied": (
        UNSEEN,
        lambda folder: both(
            lambda place: map_readers(int, text(file_of(folder / place, "lines", lines_of(1)))),
            "a",
            "b",
        ),
        lambda folder: both(lambda place: npy(file_of(folder / place, "n.npy", FIRST)), "a", "b"),
        lambda folder: both(lambda place: images_of(folder, place=place), "a", "a/b/c"),
    ),
    "rows of an array with more than 256 rows, other than the 256 that are compared": (
        UNSEEN,
        lambda _: both(arrays, np.zeros(3000), changed_at(7, np.zeros(3000))),
    ),
    "bytes of files of rows or records, other than those that are compared": (
        UNSEEN,
        lambda folder: both(
            lambda n: npy(file_of(folder, "n.npy", n)),
            np.zeros(1 << 16),
            changed_at(9999, np.zeros(1 << 16)),
        ),
    ),
    "what a function draws of a generator without a seed, and the seeds of global generators": (
        UNSEEN,
        lambda _: both(lambda _: closed_over(np.random.default_rng()), 0, 1),
        lambda _: both(lambda _: closed_over(np.random.normal).batch(4).load(), 0, 1),
    ),
    "the code of a library's function, in another release of it": (
        UNSEEN,
        lambda _: both(mapped, np.sqrt, np.sqrt),
    ),
}
