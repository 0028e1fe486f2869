"""Files in a bucket: against moto's S3 server, which runs on this machine."""

from __future__ import annotations

import random
from contextlib import suppress

import numpy as np
import pytest

import jreader
from jreader import Store
from jreader.errors import DamagedData
from jreader.sources import far_systems
from jreader.sources.files import open_file

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("s3fs")
server_of = pytest.importorskip("moto.server")
pytestmark = pytest.mark.slow


@pytest.fixture
def bucket(monkeypatch):
    """A bucket, and the file system that writes to it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setattr(far_systems, "_FRESH", -1.0)
    server = server_of.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {"endpoint_url": f"http://{host}:{port}"}
    monkeypatch.setitem(fsspec.config.conf, "s3", options)
    system = fsspec.filesystem("s3", **options)
    with suppress(FileExistsError):  # of the test before: moto holds its buckets in this process
        system.mkdir("data")
    yield system
    far_systems._SYSTEMS.clear()
    server.stop()


def test_any_range_is_what_the_file_has_there(bucket, tmp_path):
    content = random.Random(0).randbytes(3_000_000)
    bucket.pipe("data/part", content)
    drawn = random.Random(1)
    asked = [(drawn.randrange(2_900_000), drawn.randrange(100_000)) for _ in range(50)]
    expected = [content[low : low + size] for low, size in asked]
    for store in (None, Store(tmp_path, "2MB", block="64kB")):
        file = open_file("s3://data/part", store)
        assert file.read(0, len(content)) == content
        assert list(file.read_many(asked)) == expected
    assert store.fetched >= len(content)


def test_records_are_found_by_pattern_and_shuffled_and_go_on_anywhere(bucket):
    for part in range(4):
        lines = "".join(f'{{"n": {100 * part + number}}}\n' for number in range(100))
        bucket.pipe(f"data/rows/part-{part}.jsonl", lines.encode())
    plan = jreader.shuffle(jreader.jsonl("s3://data/rows/*.jsonl"), seed=1)
    every = [sample["n"] for sample in plan()]
    assert sorted(every) == list(range(400))
    assert [sample["n"] for sample in jreader.start(plan, 150).items] == every[150:]
    assert len(jreader.jsonl("s3://data/rows")) == 400


def test_row_groups_of_parquet(bucket, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"x": np.arange(10_000), "y": np.arange(10_000) / 2})
    with bucket.open("data/table.parquet", "wb") as out:
        parquet.write_table(table, out, row_group_size=1000)
    store = Store(tmp_path, "1GB", block="16kB")
    rows = jreader.parquet("s3://data/table.parquet", columns=["y"], store=store)
    for _ in range(2):
        batches = list(jreader.batch(jreader.shuffle(rows, seed=0, blocks=4), 500)())
        seen = np.concatenate([batch.columns["y"] for batch in batches])
        assert sorted(seen.tolist()) == (np.arange(10_000) / 2).tolist()
    assert store.fetched <= bucket.size("data/table.parquet")  # no byte twice


def test_a_file_that_changed_or_is_gone_is_an_error_that_names_it(bucket):
    bucket.pipe("data/a.jsonl", b"1\n2\n")
    reader = jreader.jsonl("s3://data/a.jsonl")
    assert list(reader()) == [1, 2]
    bucket.pipe("data/a.jsonl", b"3\n4\n")
    with pytest.raises(DamagedData, match=r"s3://data/a.jsonl was replaced"):
        reader()
    bucket.rm("data/a.jsonl")
    with pytest.raises(DamagedData, match=r"s3://data/a.jsonl cannot be found"):
        reader()
    with pytest.raises(FileNotFoundError, match=r"'s3://data/a.jsonl', which does not exist"):
        jreader.jsonl("s3://data/a.jsonl")
