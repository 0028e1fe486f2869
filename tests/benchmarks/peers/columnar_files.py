"""Parquet, CSV and data sets of Hugging Face beside the libraries that read them.

    python -m tests.benchmarks.peers.columnar_files [rows] [case...]

Cases are parquet, csv, csv_first (the first pass over a file), csv_shuffled and huggingface.

The same file for all, batches of 256 rows in a shuffled order; figures are the CPU time of a row,
of all threads of the process, and its time by the clock, in microseconds: the best of several turns
that the contestants take one after another. Who cannot be imported is left out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

BATCH, TURNS, GROUP, WIDTH = 256, 5, 10_000, 16
BLOCKS = 8  # row groups whose rows are mixed
SECONDS = 2.0  # of a turn, at most: contestants that are slow read fewer rows

Epoch = Callable[[int], Iterator[Any]]
Contestants = dict[str, Callable[[Path, int], Epoch]]
Cases = dict[str, tuple[Callable[[Path, int], Path], Contestants]]


def table(rows: int) -> Any:
    """Numbers and vectors, as one table of Arrow."""
    import pyarrow as pa

    rng = np.random.default_rng(0)
    vectors = pa.array(rng.random(rows * WIDTH, np.float32))
    columns = {
        "label": np.arange(rows),
        "weight": rng.random(rows, np.float32),
        "x": pa.FixedSizeListArray.from_arrays(vectors, WIDTH),
    }
    return pa.table(columns)


def onto_device(batch: dict[str, Any]) -> Any:
    """One batch on the default device."""
    import jax

    return jax.device_put({"label": batch["label"].astype(np.int32), **_rest(batch)})


def _rest(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: batch[name] for name in ("weight", "x")}


def parquet_of_jreader(path: Path, _rows: int) -> Epoch:
    """Its loader, over an order by blocks."""
    from jreader import Pipeline, parquet

    plan = Pipeline(parquet(path)).shuffle(seed=0, blocks=BLOCKS).batch(BATCH)
    loader = plan.load()
    return lambda _epoch: iter(loader)


def parquet_by_hand(path: Path, _rows: int, together: int = 1) -> Epoch:
    """Row groups in a shuffled order, and rows within so many of them together."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)

    def epoch(number: int) -> Iterator[Any]:
        rng = np.random.default_rng(number)
        groups = rng.permutation(file.num_row_groups).tolist()
        for first in range(0, len(groups), together):
            some = groups[first : first + together]
            read = file.read_row_groups(some, use_threads=False).combine_chunks()
            vectors = read["x"].chunk(0).flatten().to_numpy().reshape(-1, WIDTH)
            parts = {"label": read["label"].to_numpy(), "weight": read["weight"].to_numpy()}
            order = rng.permutation(len(read))
            for low in range(0, len(order), BATCH):
                rows = order[low : low + BATCH]
                yield onto_device(
                    {**{name: part[rows] for name, part in parts.items()}, "x": vectors[rows]}
                )

    return epoch


def parquet_by_hand_mixed(path: Path, rows: int) -> Epoch:
    """The same, mixed as well as by jreader."""
    return parquet_by_hand(path, rows, BLOCKS)


def parquet_of_grain(path: Path, _rows: int) -> Epoch:
    """Its source of rows, a window that shuffles, and its batches."""
    import grain

    def epoch(number: int) -> Iterator[Any]:
        rows = grain.experimental.ParquetIterDataset(str(path))
        rows = grain.experimental.WindowShuffleIterDataset(rows, window_size=GROUP, seed=number)
        rows = rows.map(lambda row: {name: np.asarray(value) for name, value in row.items()})
        return map(onto_device, iter(rows.batch(BATCH)))

    return epoch


def parquet_of_huggingface(path: Path, _rows: int) -> Epoch:
    """Its table of the file, shuffled by an index, in the format of jax."""
    import datasets

    rows = datasets.load_dataset(
        "parquet", data_files=str(path), split="train", cache_dir=str(path.parent)
    ).with_format("jax")
    return lambda number: rows.shuffle(seed=number).iter(BATCH)


def write_parquet(folder: Path, rows: int) -> Path:
    """The file of all contestants."""
    import pyarrow.parquet as pq

    pq.write_table(table(rows), folder / "rows.parquet", row_group_size=GROUP)
    return folder / "rows.parquet"


def csv_of_jreader(path: Path, _rows: int) -> Epoch:
    """Batches of columns, in the order of the file."""
    from jreader import batch, csv

    plan = batch(csv(path), BATCH)
    len(plan.reader)  # what is found once is found
    return lambda _number: (each.columns for each in plan())


def csv_first_of_jreader(path: Path, _rows: int) -> Epoch:
    """The same in a first pass, which decodes the file: each finds it changed."""
    from jreader import batch, csv

    def epoch(_number: int) -> Iterator[Any]:
        path.touch()
        yield from (each.columns for each in batch(csv(path), BATCH)())

    return epoch


def csv_shuffled_of_jreader(path: Path, _rows: int) -> Epoch:
    """The same in an order by blocks."""
    from jreader import at_epoch, batch, csv, shuffle

    plan = batch(shuffle(csv(path), seed=0, blocks=BLOCKS), BATCH)
    len(plan.reader.reader)
    return lambda number: (each.columns for each in at_epoch(plan, number)())


def csv_by_hand(path: Path, _rows: int, *, shuffled: bool = False) -> Epoch:
    """The whole file read at once, and batches of its columns."""
    from pyarrow import csv

    def epoch(number: int) -> Iterator[Any]:
        read = csv.read_csv(path)
        parts = {name: read[name].to_numpy() for name in read.column_names}
        order = np.arange(len(read))
        if shuffled:
            np.random.default_rng(number).shuffle(order)
        for low in range(0, len(order), BATCH):
            rows = order[low : low + BATCH] if shuffled else slice(low, low + BATCH)
            yield {name: part[rows].copy() for name, part in parts.items()}

    return epoch


def csv_by_hand_shuffled(path: Path, rows: int) -> Epoch:
    """The same in an order of all rows."""
    return csv_by_hand(path, rows, shuffled=True)


def csv_by_hand_in_blocks(path: Path, _rows: int) -> Epoch:
    """Block by block, as pyarrow streams them."""
    from pyarrow import csv

    def epoch(_number: int) -> Iterator[Any]:
        for block in csv.open_csv(path):
            parts = {name: block[name].to_numpy() for name in block.schema.names}
            for low in range(0, len(block), BATCH):
                yield {name: part[low : low + BATCH].copy() for name, part in parts.items()}

    return epoch


def write_csv(folder: Path, rows: int) -> Path:
    """Whole numbers and floats, of some 60 bytes a row."""
    import pyarrow as pa
    from pyarrow import csv

    rng = np.random.default_rng(0)
    numbers = {f"x{number}": rng.random(rows, np.float32) for number in range(4)}
    csv.write_csv(pa.table({"label": np.arange(rows), **numbers}), folder / "rows.csv")
    return folder / "rows.csv"


def saved_of_jreader(path: Path, _rows: int) -> Epoch:
    """Batches of the data set's columns, in an order of all rows."""
    import datasets

    from jreader import at_epoch, batch, huggingface, shuffle

    plan = batch(shuffle(huggingface(datasets.load_from_disk(str(path))), seed=0), BATCH)
    return lambda number: (each.columns for each in at_epoch(plan, number)())


def saved_in_order_of_jreader(path: Path, _rows: int) -> Epoch:
    """The same in the order of the files, as the library's own iteration has it."""
    import datasets

    from jreader import batch, huggingface

    plan = batch(huggingface(datasets.load_from_disk(str(path))), BATCH)
    return lambda _number: (each.columns for each in plan())


def saved_rows_of_huggingface(path: Path, _rows: int) -> Epoch:
    """Row by row, in the format of NumPy, in the order of the files."""
    import datasets

    rows = datasets.load_from_disk(str(path)).with_format("numpy")

    def epoch(_number: int) -> Iterator[Any]:
        every = iter(rows)
        while some := list(islice(every, BATCH)):
            yield {"label": some}

    return epoch


def saved_batches_of_huggingface(path: Path, _rows: int) -> Epoch:
    """Batch by batch, in the format of NumPy, in the order of the files."""
    import datasets

    rows = datasets.load_from_disk(str(path)).with_format("numpy")
    return lambda _number: rows.iter(BATCH)


def saved_shuffled_batches_of_huggingface(path: Path, _rows: int) -> Epoch:
    """Batch by batch, in the format of NumPy, shuffled by an index."""
    import datasets

    rows = datasets.load_from_disk(str(path)).with_format("numpy")
    return lambda number: rows.shuffle(seed=number).iter(BATCH)


def save(folder: Path, rows: int) -> Path:
    """A data set on disk, with the batches of 1,000 rows that the library writes."""
    import datasets

    whole = datasets.Dataset(table(rows))
    whole.save_to_disk(str(folder / "saved"))
    return folder / "saved"


CASES: Cases = {
    "parquet": (
        write_parquet,
        {
            "jreader": parquet_of_jreader,
            "by hand, a row group at a time": parquet_by_hand,
            "by hand, as many at a time": parquet_by_hand_mixed,
            "Grain": parquet_of_grain,
            "Hugging Face, jax": parquet_of_huggingface,
        },
    ),
    "csv": (
        write_csv,
        {
            "jreader": csv_of_jreader,
            "by hand, read_csv": csv_by_hand,
            "by hand, open_csv": csv_by_hand_in_blocks,
        },
    ),
    "csv_first": (
        write_csv,
        {"jreader": csv_first_of_jreader, "by hand, read_csv": csv_by_hand},
    ),
    "csv_shuffled": (
        write_csv,
        {"jreader": csv_shuffled_of_jreader, "by hand, read_csv": csv_by_hand_shuffled},
    ),
    "huggingface": (
        save,
        {
            "jreader": saved_of_jreader,
            "jreader, in order": saved_in_order_of_jreader,
            "Hugging Face, rows": saved_rows_of_huggingface,
            "Hugging Face, batches": saved_batches_of_huggingface,
            "Hugging Face, shuffled batches": saved_shuffled_batches_of_huggingface,
        },
    ),
}


def turn(epoch: Epoch, number: int) -> np.ndarray:
    """CPU time of a row, and time by the clock, of an epoch or what was read of it in time."""
    began, clock, rows = time.process_time(), time.perf_counter(), 0
    batch: Any = None
    for batch in epoch(number):
        rows += len(batch["label"]) if isinstance(batch, dict) else len(batch)
        if time.perf_counter() - clock > SECONDS:
            break
    if isinstance(batch, dict) and hasattr(batch["label"], "block_until_ready"):
        batch["label"].block_until_ready()
    return np.array([time.process_time() - began, time.perf_counter() - clock]) / rows * 1e6


def contest(every: Cases, rows: int, *names: str) -> None:
    """Prints a line for each contestant of each case, all beside the first."""
    for case in names or every:
        write, contestants = every[case]
        with TemporaryDirectory() as folder:
            path, epochs = write(Path(folder), rows), dict[str, Epoch]()
            for name, begin in contestants.items():
                try:
                    epochs[name] = begin(path, rows)
                except ImportError as error:
                    print(f"{case}: {name} is left out: {error}")
            figures: dict[str, list[np.ndarray]] = {name: [] for name in epochs}
            for number in range(TURNS):
                for name, epoch in epochs.items():
                    figures[name].append(turn(epoch, number))
            best = {name: np.min(each, axis=0) for name, each in figures.items()}
            for name, (cpu, clock) in best.items():
                beside = best[name] / best[next(iter(contestants))]
                print(
                    f"{case}: {name:32} {cpu:9.3f} us a row, {beside[0]:7.2f} x;"
                    f" by the clock {clock:9.3f} us, {beside[1]:7.2f} x"
                )
            del epochs


if __name__ == "__main__":
    contest(CASES, int(sys.argv[1]) if sys.argv[1:] else 500_000, *sys.argv[2:])
