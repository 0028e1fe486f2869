"""ArrayRecord, tar archives and JSON Lines beside the libraries that read them.

    python -m tests.benchmarks.peers.record_files [rows] [arrayrecord|tar|tar_shuffled|jsonl ...]

The same file for all, and batches of 256 samples as lists; figures are those of `columnar_files`.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.peers.columnar_files import BATCH, Cases, Epoch, contest

SIZE = 10_000  # bytes of a picture
WINDOW = 1000  # samples that webdataset shuffles


def in_batches(samples: Iterable[Any]) -> Iterator[list[Any]]:
    """Lists of samples."""
    every = iter(samples)
    while batch := list(islice(every, BATCH)):
        yield batch


def records_of_jreader(path: Path, _rows: int) -> Epoch:
    """Batches of bytes, in an order of all records."""
    from jreader import arrayrecord, at_epoch, batch, shuffle

    plan = batch(shuffle(arrayrecord(path), seed=0), BATCH)
    return lambda number: iter(at_epoch(plan, number)())


def records_of_grain(path: Path, _rows: int) -> Epoch:
    """Its source, shuffled as a whole, on the thread that asks."""
    import grain

    source = grain.sources.ArrayRecordDataSource([str(path)])

    def epoch(number: int) -> Iterator[Any]:
        rows = grain.MapDataset.source(source).shuffle(seed=number)
        read = grain.ReadOptions(num_threads=0)
        batches = rows.to_iter_dataset(read).batch(BATCH, batch_fn=list)
        return iter(batches)

    return epoch


def records_of_array_record(path: Path, _rows: int) -> Epoch:
    """The package's own data source, asked for batches."""
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    source = ArrayRecordDataSource([str(path)])

    def epoch(number: int) -> Iterator[Any]:
        order = np.random.default_rng(number).permutation(len(source)).tolist()
        for low in range(0, len(order), BATCH):
            yield source.__getitems__(order[low : low + BATCH])

    return epoch


def write_records(folder: Path, rows: int) -> Path:
    """Records of 200 bytes."""
    from array_record.python.array_record_module import ArrayRecordWriter

    writer, rng = ArrayRecordWriter(str(folder / "rows.arrayrecord"), "group_size:1"), None
    rng = np.random.default_rng(0)
    for _ in range(rows // 10):
        writer.write(rng.bytes(200))
    writer.close()
    return folder / "rows.arrayrecord"


def archive_of_jreader(path: Path, _rows: int) -> Epoch:
    """Batches of samples of bytes, in the order of the archive."""
    from jreader import batch, tar

    plan = batch(tar(path), BATCH)
    return lambda _number: iter(plan())


def shuffled_archive_of_jreader(path: Path, _rows: int) -> Epoch:
    """The same in an order of all samples."""
    from jreader import at_epoch, batch, shuffle, tar

    plan = batch(shuffle(tar(path), seed=0), BATCH)
    return lambda number: iter(at_epoch(plan, number)())


def archive_of_webdataset(path: Path, _rows: int) -> Epoch:
    """Its samples of bytes, in the order of the archive."""
    import webdataset

    samples = webdataset.WebDataset(str(path), shardshuffle=False)
    return lambda _number: in_batches(samples)


def shuffled_archive_of_webdataset(path: Path, _rows: int) -> Epoch:
    """The same through its window."""
    import webdataset

    samples = webdataset.WebDataset(str(path), shardshuffle=False).shuffle(WINDOW)
    return lambda _number: in_batches(samples)


def archive_by_hand(path: Path, _rows: int) -> Epoch:
    """Python's own module, member by member."""

    def samples() -> Iterator[dict[str, bytes]]:
        with tarfile.open(path) as archive:
            members = iter(archive)
            for picture, label in zip(members, members, strict=True):
                yield {"jpg": read(archive, picture), "cls": read(archive, label)}

    def read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
        file = archive.extractfile(member)
        return b"" if file is None else file.read()

    return lambda _number: in_batches(samples())


def write_archive(folder: Path, rows: int) -> Path:
    """A picture and a label for each of a tenth of the rows."""
    rng = np.random.default_rng(0)
    with tarfile.open(folder / "rows.tar", "w") as archive:
        for number in range(rows // 10):
            for name, content in (("jpg", rng.bytes(SIZE)), ("cls", b"%d" % (number % 10))):
                member = tarfile.TarInfo(f"{number:06}.{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return folder / "rows.tar"


def lines_of_jreader(path: Path, _rows: int) -> Epoch:
    """Batches of values, in the order of the file."""
    from jreader import batch, jsonl

    plan = batch(jsonl(path), BATCH)
    len(plan.reader)  # what is found once is found
    return lambda _number: iter(plan())


def shuffled_lines_of_jreader(path: Path, _rows: int) -> Epoch:
    """The same in an order of all lines."""
    from jreader import at_epoch, batch, jsonl, shuffle

    plan = batch(shuffle(jsonl(path), seed=0), BATCH)
    len(plan.reader)
    return lambda number: iter(at_epoch(plan, number)())


def lines_by_hand(path: Path, _rows: int) -> Epoch:
    """A bare loop over the lines."""

    def values() -> Iterator[Any]:
        with path.open("rb") as file:
            for line in file:
                yield json.loads(line)

    return lambda _number: in_batches(values())


def write_lines(folder: Path, rows: int) -> Path:
    """Reviews: a number, and some 200 letters."""
    rng, path = np.random.default_rng(0), folder / "rows.jsonl"
    words = ["so", "good", "that", "reading", "it", "again", "costs", "nothing"]
    with path.open("w") as file:
        for stars in rng.integers(1, 6, rows).tolist():
            text = " ".join(words[word] for word in rng.integers(0, len(words), 40))
            file.write(json.dumps({"stars": stars, "text": text}) + "\n")
    return path


CASES: Cases = {
    "arrayrecord": (
        write_records,
        {
            "jreader": records_of_jreader,
            "Grain": records_of_grain,
            "array_record": records_of_array_record,
        },
    ),
    "tar": (
        write_archive,
        {
            "jreader": archive_of_jreader,
            "webdataset": archive_of_webdataset,
            "by hand, tarfile": archive_by_hand,
        },
    ),
    "tar_shuffled": (
        write_archive,
        {
            "jreader": shuffled_archive_of_jreader,
            "webdataset, a window": shuffled_archive_of_webdataset,
        },
    ),
    "jsonl": (
        write_lines,
        {
            "jreader": lines_of_jreader,
            "by hand, json.loads": lines_by_hand,
            "jreader, shuffled": shuffled_lines_of_jreader,
        },
    ),
}

if __name__ == "__main__":
    contest(CASES, int(sys.argv[1]) if sys.argv[1:] else 100_000, *sys.argv[2:])
