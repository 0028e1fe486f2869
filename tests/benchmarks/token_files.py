"""Writing files of tokens: megabytes a second of CPU time, beside `ndarray.tofile` by hand.

    python -m tests.benchmarks.token_files [tokens] [rounds]

So many tokens (10^8) in documents of 500 on average, as int64 and as uint16 in memory, become one
file in /dev/shm, in turns. By hand, all tokens are one array already, `tofile` of which is the
limit; or documents are cast and written one by one, as a script would. CPU time is that of the
process, all threads together; megabytes are those of the file.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from jreader import arrays, ragged, write

LENGTH = 500


def whole(values, _documents, folder):
    values.astype(np.uint16, copy=False).tofile(folder / "whole.bin")


def one_by_one(_values, documents, folder):
    with (folder / "each.bin").open("wb") as file:
        for document in documents:
            file.write(document.astype(np.uint16, copy=False).data)


def indexed(values, documents):
    return arrays(ragged(values, np.append(0, np.cumsum([*map(len, documents)]))))


def streamed(_values, documents):
    return lambda: iter(documents)


def by_jreader(form, eos, reader_of, values, documents, folder):
    reader = reader_of(values, documents)
    begun = time.process_time()
    write(reader, folder / "x", form, eos=eos, samples_per_shard=1 << 40, progress=False)
    return begun


def main(many: int, rounds: int) -> None:
    rng = np.random.default_rng(0)
    cuts = np.sort(rng.integers(0, many, many // LENGTH))
    runs = {"by hand, tofile": whole, "by hand, document by document": one_by_one}
    for form in ("nanogpt", "llmc", "megatron"):
        runs[f"jreader, {form}"] = partial(by_jreader, form, None, indexed)
    runs["jreader, nanogpt with eos"] = partial(by_jreader, "nanogpt", 50_256, indexed)
    runs["jreader, nanogpt, a stream"] = partial(by_jreader, "nanogpt", None, streamed)
    for kind in (np.uint16, np.int64):
        values = rng.integers(0, 50_000, many, dtype=kind)
        documents = [row for row in np.split(values, cuts) if len(row)]
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, run in runs.items():
                with TemporaryDirectory(dir="/dev/shm") as folder:
                    begun = time.process_time()
                    begun = run(values, documents, Path(folder)) or begun
                    times[name].append(time.process_time() - begun)
        print(f"{many:,} tokens of {np.dtype(kind)} in {len(documents):,} documents")
        for name, each in times.items():
            least = zip(times["by hand, tofile"], each, strict=True)
            ratio = median(one / other for one, other in least)
            print(f"  {name:32} {2e-6 * many / median(each):8,.0f} MB/s  {ratio:5.2f} x tofile")


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(*given, *(10**8, 5)[len(given) :])
