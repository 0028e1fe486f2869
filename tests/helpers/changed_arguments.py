"""What a cursor says where one argument of an op or a source is another one.

Each op has a function that makes a plan, or a loader, of its arguments, and for each argument what
becomes of a run, and two values of it. Files lie in the folder that the test runs in.
"""

from __future__ import annotations

import json
import tarfile
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import soundfile
from changed_programs import Scaled
from chat_templates import CHARACTERS, CHATML, TOKENIZER, template
from mds_files import write_mds
from pyarrow import csv as pa_csv
from pyarrow import parquet as pa_parquet
from tfrecords import framed
from videos import encode

import jreader
from jreader import Pipeline, Store, arrays

REFUSED, WARNED, ALLOWED = "refused", "**warned**", "allowed"

ROWS = 48
LENGTHS = [3, 1, 4, 1, 5, 2] * 8


def numbers():
    return iter(range(ROWS))


def others():
    return iter(range(1, ROWS + 1))


def rows(first=0):
    return arrays(np.arange(first, first + ROWS))


def documents():
    return jreader.ragged(np.arange(sum(LENGTHS)), np.cumsum([0, *LENGTHS]))


def pairs():
    both = documents()
    return arrays(a=both, b=both)


def packed(reader=pairs, size=8, seed=0, **options):
    plan = reader()
    if "truncation_side" in options:
        options |= {"longer": "truncate", "size": 3}
    if "per_document" in options:
        options |= {"documents": 4, "fields": ["a"]}
        plan = arrays(a=documents(), n=np.arange(len(plan)))
    plan = jreader.pack(plan, **{"size": size, "seed": seed, **options})
    return Pipeline(plan).map(lambda row: row["a"])


def even(n):
    return n % 2 == 0


def odd(n):
    return n % 2 == 1


def doubled(n, *_):
    return n * 2


def one(_, *__):
    return 1


def twice(n):
    return [n, n]


def thrice(n):
    return [n, n, n]


def scaled(feed):
    return feed


def files(names, write, *more):
    """Makes files of which each has numbers of its own; their names."""
    for number, name in enumerate(names):
        write(name, np.arange(ROWS) + number, *more)
    return names


def write_table(name, values):
    table = pa.table({"n": values, "m": values * 2})
    if name.endswith("parquet"):
        pa_parquet.write_table(table, name)
    elif name.endswith("csv"):
        pa_csv.write_csv(table, name)
    else:
        with pa.ipc.new_file(name, table.schema) as file:
            file.write_table(table)


def write_lines(name, values):
    Path(name).write_text("".join(f"{value:03d}\n" for value in values + 100))


def write_tar(name, values):
    with tarfile.open(name, "w") as archive:
        for value in values.tolist():
            member = tarfile.TarInfo(f"{value:03d}.cls")
            member.size = 3
            archive.addfile(member, BytesIO(b"%03d" % value))


def write_tfrecord(name, values):
    Path(name).write_bytes(b"".join(framed(b"%03d" % value) for value in values.tolist()))


def write_arrayrecord(name, values):
    from array_record.python.array_record_module import ArrayRecordWriter  # noqa: PLC0415  # an extra

    writer = ArrayRecordWriter(name, "group_size:1")
    for value in values.tolist():
        writer.write(b"%03d" % value)
    writer.close()


def write_shards(name, values):
    samples = [{"n": n, "m": 2 * n} for n in values.tolist()]
    write_mds(name, {"n": "int", "m": "int"}, samples)


def write_video(name, values):
    encode(name, "mpeg4", len(values), (16, 16))


def write_audio(name, values):
    soundfile.write(name, values / 100, 8000)


def write_idx(name, values):
    Path(name).write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, ROWS]) + values.astype("uint8").tobytes())


def write_mnist(name, values):
    part = [[[float(value)] * 784 for value in values.tolist()], values.tolist()]
    Path(name).write_text(json.dumps([part, part, part]))


def pictures(folders):
    for folder in folders:
        for number in range(8):
            path = Path(folder, "cat", f"{number}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"%d" % number)
    return folders


def of_files(source, end, write):
    """Makes a plan of a source of files, of arguments."""

    def make(paths=(f"a.{end}",), **options):
        files(paths, write)
        return Pipeline(source(list(paths), **options)).map(one)

    return make


def of_op(op, *first, reader=numbers, **usual):
    """Makes a plan of an op over a reader, of arguments."""

    def make(reader=reader, **options):
        return op(*first, reader, **{**usual, **options})

    return make


def batches(**options):
    return {"reader": lambda: Pipeline(rows()).batch(4)} | options


def fed(plan):
    """A loader of a plan of batches."""
    return Pipeline(plan).load(sharding="host", last="pad")


NEW = (numbers, others)


def paths(end):
    return (REFUSED, ((f"a.{end}",), (f"b.{end}",)))


class Later:
    """A value that is made where it is used."""

    def __init__(self, make):
        self.make = make


STORE = (None, Later(lambda: Store("kept")))
BLOCK = (ALLOWED, (None, "4MB"))


def chats():
    """Chats of one length."""
    for n in range(ROWS):
        said = {"user": "2+2?", "assistant": f"{n:02}"}
        yield {"messages": [{"role": role, "content": text} for role, text in said.items()]}


def more_chats():
    yield from chats()
    yield from chats()


def mapped(fn=doubled, reader=numbers, **options):
    """A map with what its arguments need beside them."""
    needed: dict[str, dict[str, Any]] = {
        "seed": {"rng": True},
        "max_errors": {"on_error": "skip"},
        "concurrency": {"executor": ThreadPoolExecutor(1)},
    }
    for name in options.keys() & needed:
        options |= needed[name]
    return jreader.map_samples(fn, reader, **options)


def in_blocks(blocks=2, **options):
    files(["a.parquet"], write_table)
    return jreader.shuffle(jreader.parquet("a.parquet"), blocks=blocks, **options)


def bucketed(reader=documents, bounds=(6,), seed=0, **options):
    given = options if "tokens" in options else {"batch_size": 4} | options
    return fed(jreader.bucket(reader(), bounds, seed=seed, **given))


# op: how to make a plan, and for each argument what becomes of a run, and two values
CHANGED: dict[str, tuple[Any, dict[str, tuple[str, tuple[Any, Any]]]]] = {
    "arrayrecord": (
        of_files(jreader.arrayrecord, "array_record", write_arrayrecord),
        {"paths": paths("array_record"), "store": (ALLOWED, STORE)},
    ),
    "arrays": (
        lambda columns=(), named=(): arrays(*columns, **dict(named)),
        {
            "columns": (REFUSED, ((np.arange(48),), (np.arange(48.0),))),
            "named": (REFUSED, ({"n": np.arange(48)}, {"m": np.arange(48)})),
        },
    ),
    "arrow": (
        of_files(jreader.arrow, "arrow", write_table),
        {
            "paths": paths("arrow"),
            "columns": (REFUSED, (["n"], ["m"])),
            "nulls": (REFUSED, ({"n": 0}, {"n": 1})),
            "store": (ALLOWED, STORE),
        },
    ),
    "batch": (
        lambda reader=rows, batch_size=4, **options: fed(
            jreader.batch(reader(), batch_size, **options)
        ),
        {
            "reader": (REFUSED, (rows, documents)),
            "batch_size": (ALLOWED, (4, 8)),
            "drop_last": (ALLOWED, (True, False)),
        },
    ),
    "bucket": (
        bucketed,
        {
            "reader": (REFUSED, (documents, lambda: jreader.skip(documents(), 1))),
            "bounds": (REFUSED, ((6,), (3, 6))),
            "batch_size": (REFUSED, (4, 2)),
            "tokens": (REFUSED, (24, 48)),
            "by": (REFUSED, (None, "tokens")),
            "fields": (REFUSED, (None, ("tokens",))),
            "pad": (WARNED, (0, 1)),
            "longer": (REFUSED, ("error", "truncate")),
            "divisible_by": (REFUSED, (1, 2)),
            "drop_last": (REFUSED, (None, True)),
            "seed": (REFUSED, (0, 1)),
            "multiple_of": (ALLOWED, (None, 6)),
        },
    ),
    "buffered": (
        of_op(jreader.buffered, size=2),
        {"reader": (WARNED, NEW), "size": (ALLOWED, (2, 5))},
    ),
    "cache": (
        of_op(jreader.cache),
        {"reader": (WARNED, NEW), "path": (ALLOWED, (None, "cached"))},
    ),
    "chain": (
        lambda readers=(numbers, others): jreader.chain(*readers),
        {"readers": (REFUSED, ((numbers, others), (others, numbers)))},
    ),
    "chat": (
        lambda reader=chats, tokenizer=TOKENIZER, template=CHATML, **options: jreader.chat(
            reader, tokenizer, template, **options
        ),
        {
            "reader": (WARNED, (chats, more_chats)),
            "tokenizer": (WARNED, (TOKENIZER, CHARACTERS)),
            "template": (WARNED, (CHATML, template("zephyr").replace("eos_token", "'</s>'"))),
            "turns": (WARNED, ("all", "last")),
            "tool_calls": (WARNED, (True, False)),
            "variables": (WARNED, ({"a": 1}, {"a": 2})),
            "threads": (ALLOWED, (0, 2)),
            "processes": (ALLOWED, (0, 2)),
            "on_error": (ALLOWED, ("raise", "skip")),
        },
    ),
    "compose": (
        lambda readers=(numbers, others), **options: jreader.compose(*readers, **options),
        {
            "readers": (REFUSED, ((numbers, others), (others, numbers))),
            "check_alignment": (REFUSED, (True, False)),
        },
    ),
    "csv": (
        of_files(jreader.csv, "csv", write_table),
        {
            "paths": paths("csv"),
            "columns": (REFUSED, (["n"], ["m"])),
            "nulls": (REFUSED, ({"n": 0}, {"n": 1})),
            "types": (REFUSED, (None, {"n": "float32"})),
            "delimiter": (REFUSED, (",", ";")),
            "header": (REFUSED, (True, ["n", "m"])),
            "store": (ALLOWED, STORE),
        },
    ),
    "audio": (
        of_files(
            lambda paths, **options: jreader.audio(paths, **options).windows(1, drop_last=True),
            "wav",
            write_audio,
        ),
        {
            "paths": paths("wav"),
            "rate": (REFUSED, (8000, 16000)),
            "mono": (WARNED, (True, False)),
            "store": (ALLOWED, STORE),
        },
    ),
    "epochs": (
        of_op(jreader.epochs, reader=rows(), n=2),
        {"reader": (WARNED, (rows(), rows(1))), "n": (REFUSED, (2, 3))},
    ),
    "filter": (
        lambda fn=even, reader=numbers, keep=None: jreader.filter(fn, reader, keep),
        {"fn": (WARNED, (even, odd)), "reader": (WARNED, NEW), "keep": (REFUSED, (None, "bits"))},
    ),
    "firstn": (
        of_op(jreader.firstn, n=40),
        {"reader": (WARNED, NEW), "n": (REFUSED, (40, 41))},
    ),
    "flat_map": (
        lambda fn=twice, reader=numbers: jreader.flat_map(fn, reader),
        {"fn": (WARNED, (twice, thrice)), "reader": (WARNED, NEW)},
    ),
    "idx": (
        of_files(lambda paths, **options: jreader.idx(*paths, **options), "idx", write_idx),
        {"paths": paths("idx"), "store": (ALLOWED, STORE), "block": BLOCK},
    ),
    "image_folder": (
        lambda path="train", **options: Pipeline(
            jreader.image_folder(pictures([path])[0], **options)
        ).map(one),
        {
            "path": (REFUSED, ("train", "test")),
            "skip": (REFUSED, ((), (".txt",))),
            "with_paths": (REFUSED, (False, True)),
            "store": (ALLOWED, STORE),
        },
    ),
    "interleave": (
        lambda readers=(numbers, others), **options: jreader.interleave(*readers, **options),
        {
            "readers": (REFUSED, ((numbers, others), (others, numbers))),
            "stop": (REFUSED, ("once", "first")),
            "order": (REFUSED, (None, (0, 0, 1))),
        },
    ),
    "jsonl": (
        of_files(lambda paths, **options: jreader.jsonl(*paths, **options), "jsonl", write_lines),
        {"paths": paths("jsonl"), "store": (ALLOWED, STORE), "block": BLOCK},
    ),
    "map_batches": (
        lambda fn=scaled, reader=rows, **options: fed(
            jreader.map_batches(fn, jreader.batch(reader(), 4), **options)
        ),
        {
            "fn": (WARNED, (scaled, doubled)),
            "reader": (REFUSED, (rows, documents)),
            "stacked": (WARNED, (True, False)),
            "threads": (ALLOWED, (0, 2)),
            "processes": (ALLOWED, (0, 2)),
        },
    ),
    "group_by": (
        lambda fn=doubled, reader=rows: jreader.group_by(fn, reader()),
        {"fn": (WARNED, (doubled, one)), "reader": (WARNED, (rows, lambda: rows(1)))},
    ),
    "map_readers": (
        lambda func=doubled, readers=(numbers,): jreader.map_readers(func, *readers),
        {
            "func": (WARNED, (doubled, one)),
            "readers": (REFUSED, ((numbers, others), (others, numbers))),
        },
    ),
    "map_samples": (
        mapped,
        {
            "fn": (WARNED, (doubled, one)),
            "reader": (WARNED, NEW),
            "threads": (ALLOWED, (0, 2)),
            "processes": (ALLOWED, (0, 2)),
            "executor": (ALLOWED, (None, Later(lambda: ThreadPoolExecutor(1)))),
            "concurrency": (ALLOWED, (1, 2)),
            "window": (ALLOWED, (None, 9)),
            "timeout": (ALLOWED, (0, 60)),
            "rng": (REFUSED, (False, True)),
            "seed": (REFUSED, (0, 1)),
            "on_error": (ALLOWED, ("raise", "skip")),
            "max_errors": (ALLOWED, (100, 9)),
        },
    ),
    "mds": (
        of_files(jreader.mds, "mds", write_shards),
        {
            # shards of one content have one name in every folder: they are the same data
            "paths": (REFUSED, (("a.mds",), ("a.mds", "b.mds"))),
            "columns": (REFUSED, ("n", "m")),
            "store": (ALLOWED, STORE),
        },
    ),
    "mix": (
        lambda readers=None, weights=None, seed=0, **options: jreader.mix(
            list(readers or (arrays(n=np.arange(48)), arrays(n=np.arange(9, 29)))),
            weights,
            seed=seed,
            **options,
        ),
        {
            "readers": (REFUSED, (NEW, NEW[::-1])),
            "weights": (ALLOWED, ((1, 1), (1, 2))),
            "temperature": (ALLOWED, (None, 2.0)),
            "seed": (REFUSED, (0, 1)),
            "stop": (REFUSED, ("first", "all")),
            "at": (ALLOWED, (None, {20: (1, 2)})),
            "source": (ALLOWED, (None, "of")),
        },
    ),
    "mnist_json": (
        lambda path="a.json", **options: Pipeline(
            jreader.mnist_json(files([path], write_mnist)[0], **options)
        ).map(one),
        {"path": (REFUSED, ("a.json", "b.json")), "mode": (REFUSED, ("train", "eval"))},
    ),
    "multiprocess_reader": (
        lambda readers=(numbers,), **options: jreader.multiprocess_reader(list(readers), **options),
        {
            "readers": (WARNED, ((numbers,), (others,))),
            "use_pipe": (ALLOWED, (True, False)),
            "queue_size": (ALLOWED, (1000, 9)),
        },
    ),
    "npy": (
        of_files(lambda paths, **options: jreader.npy(*paths, **options), "npy", np.save),
        {"paths": paths("npy"), "store": (ALLOWED, STORE), "block": BLOCK},
    ),
    "npz": (
        lambda path="a.npz", names=("n",): Pipeline(
            jreader.npz(files([path], lambda name, rows: np.savez(name, n=rows, m=rows))[0], *names)
        ),
        {"path": (REFUSED, ("a.npz", "b.npz")), "names": (REFUSED, (("n",), ("m",)))},
    ),
    "pack": (
        packed,
        {
            "reader": (REFUSED, (pairs, lambda: jreader.skip(pairs(), 1))),
            "size": (REFUSED, (8, 9)),
            "split": (REFUSED, ("never", "always")),
            "longer": (REFUSED, ("error", "truncate")),
            "fields": (REFUSED, (None, ["a"])),
            "pad": (WARNED, (0, 1)),
            "window": (REFUSED, (None, 9)),
            "seed": (REFUSED, (0, 1)),
            "documents": (REFUSED, (None, 2)),
            "begin": (REFUSED, (None, {"a": 1, "b": 1})),
            "per_document": (REFUSED, (None, ["n"])),
            "truncation_side": (WARNED, ("right", "left")),
        },
    ),
    "padded_batch": (
        lambda reader=documents, batch_size=4, **options: fed(
            jreader.padded_batch(reader(), batch_size, **options)
        ),
        {
            "reader": (
                WARNED,
                (
                    documents,
                    lambda: jreader.ragged(-np.arange(sum(LENGTHS)), np.cumsum([0, *LENGTHS])),
                ),
            ),
            "batch_size": (ALLOWED, (4, 8)),
            "drop_last": (ALLOWED, (True, False)),
            "to": (WARNED, ("longest", [8])),
            "multiple_of": (WARNED, (None, 8)),
            "pad": (WARNED, (0, 1)),
            "fields": (WARNED, (None, ["tokens"])),
            "longer": (WARNED, ("error", "truncate")),
            "padding_side": (WARNED, ("right", "left")),
            "axes": (WARNED, (1, {"tokens": 1})),
            "same_length": (WARNED, (False, True)),
        },
    ),
    "parquet": (
        of_files(jreader.parquet, "parquet", write_table),
        {
            "paths": paths("parquet"),
            "columns": (REFUSED, (["n"], ["m"])),
            "nulls": (REFUSED, ({"n": 0}, {"n": 1})),
            "store": (ALLOWED, STORE),
        },
    ),
    "ragged": (
        lambda values=None, offsets=None: fed(
            jreader.padded_batch(
                jreader.ragged(
                    np.arange(48) if values is None else values,
                    np.arange(49) if offsets is None else offsets,
                ),
                4,
            )
        ),
        {
            "values": (WARNED, (np.arange(48), -np.arange(48))),
            "offsets": (WARNED, (np.arange(49), np.array([0, 0, *range(2, 49)]))),
        },
    ),
    "read": (
        lambda fn=twice, reader=None, **options: jreader.read(
            fn, reader or arrays(np.arange(8)), **options
        ),
        {
            "fn": (WARNED, (twice, thrice)),
            "reader": (WARNED, (arrays(np.arange(8)), arrays(np.arange(1, 9)))),
            "lanes": (REFUSED, (1, 2)),
        },
    ),
    "rebatch": (
        lambda reader=rows, batch_size=4, **options: fed(
            jreader.rebatch(jreader.batch(reader(), 8), batch_size, **options)
        ),
        {
            "reader": (REFUSED, (rows, documents)),
            "batch_size": (ALLOWED, (4, 8)),
            "drop_last": (ALLOWED, (True, False)),
        },
    ),
    "shard": (
        of_op(jreader.shard, reader=rows(), num_shards=2, index=0),
        {
            "reader": (WARNED, (rows(), rows(1))),
            "num_shards": (REFUSED, (2, 3)),
            "index": (REFUSED, (0, 1)),
        },
    ),
    "shuffle": (
        lambda reader=None, seed=0, **options: (
            in_blocks(seed=seed, **options)
            if options.keys() & {"blocks", "lanes"}
            else jreader.shuffle(reader or rows(), seed=seed, **options)
        ),
        {
            "reader": (WARNED, (rows(), rows(1))),
            "buf_size": (REFUSED, (None, 20)),
            "seed": (REFUSED, (0, 1)),
            "blocks": (REFUSED, (1, 2)),
            "lanes": (REFUSED, (1, 2)),
        },
    ),
    "skip": (
        of_op(jreader.skip, n=1),
        {"reader": (WARNED, NEW), "n": (REFUSED, (1, 2))},
    ),
    "source": (
        lambda data=range(48), **options: jreader.source(np.array(data), **options),
        {
            "data": (WARNED, ([*range(48)], [*range(1, 49)])),
            "batched": (REFUSED, (False, True)),
        },
    ),
    "tar": (
        of_files(jreader.tar, "tar", write_tar),
        {
            "paths": paths("tar"),
            "store": (ALLOWED, STORE),
            "block": BLOCK,
            "with_url": (REFUSED, (False, True)),
        },
    ),
    "text": (
        of_files(lambda paths, **options: jreader.text(*paths, **options), "txt", write_lines),
        {
            "paths": paths("txt"),
            "encoding": (REFUSED, ("utf-8", "latin-1")),
            "store": (ALLOWED, STORE),
            "block": BLOCK,
        },
    ),
    "tfrecord": (
        of_files(jreader.tfrecord, "tfrecord", write_tfrecord),
        {
            "paths": paths("tfrecord"),
            "features": (REFUSED, (None, {"n": np.int64})),
            "store": (ALLOWED, STORE),
            "block": BLOCK,
        },
    ),
    "tokens": (
        of_files(jreader.tokens, "bin", lambda name, rows: rows.astype(np.uint16).tofile(name)),
        {
            "paths": paths("bin"),
            "dtype": (REFUSED, ("uint16", "uint8")),
            "eos": (REFUSED, (7, 8)),
            "store": (ALLOWED, STORE),
            "block": BLOCK,
        },
    ),
    "unbatch": (
        lambda reader=4: jreader.unbatch(jreader.batch(rows(), reader)),
        {"reader": (REFUSED, (4, 8))},
    ),
    "video": (
        of_files(
            lambda paths, **options: jreader.video(paths, **options).windows(1, drop_last=True),
            "mp4",
            write_video,
        ),
        {
            "paths": paths("mp4"),
            "size": (WARNED, (None, 8)),
            "every": (REFUSED, (1, 2)),
            "store": (ALLOWED, STORE),
        },
    ),
    "sliding_window": (
        lambda reader=rows, size=4, drop_last=True, **options: jreader.sliding_window(
            reader(), size, drop_last=drop_last, **options
        ),
        {
            "reader": (WARNED, (rows, lambda: rows(1))),
            "size": (REFUSED, (4, 5)),
            "stride": (REFUSED, (None, 2)),
            "drop_last": (REFUSED, (True, False)),
        },
    ),
    "windows": (
        lambda reader=documents, size=2, **options: jreader.windows(reader(), size, **options),
        {
            "reader": (REFUSED, (documents, lambda: jreader.skip(documents(), 1))),
            "size": (REFUSED, (2, 3)),
            "stride": (REFUSED, (None, 1)),
            "across": (REFUSED, (True, False)),
        },
    ),
    "xmap_readers": (
        lambda mapper=doubled, reader=numbers, process_num=2, buffer_size=4, order=True: (
            jreader.xmap_readers(mapper, reader, process_num, buffer_size, order)
        ),
        {
            "mapper": (WARNED, (doubled, Scaled(1))),
            "reader": (WARNED, NEW),
            "process_num": (ALLOWED, (2, 3)),
            "buffer_size": (ALLOWED, (4, 8)),
            "order": (REFUSED, (True, False)),
        },
    ),
}
