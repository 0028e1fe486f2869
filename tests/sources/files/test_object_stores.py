"""Files in a bucket: against moto's S3 server, which runs on this machine."""

from __future__ import annotations

import io
import random
from collections import Counter
from contextlib import suppress
from threading import Thread

import numpy as np
import pytest
from samples import everything

import jreader
from jreader import Pipeline, Store
from jreader.errors import DamagedData
from jreader.sources import remote
from jreader.sources.files import open_file

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("s3fs")
moto = pytest.importorskip("moto.moto_server.werkzeug_app")
serving = pytest.importorskip("werkzeug.serving")
pytestmark = pytest.mark.slow

app = moto.DomainDispatcherApplication(moto.create_backend_app)
throttle = Counter()
"""How many more requests of an object are answered with "slow down"; of which some were, by -1."""


def throttled(environ, start_response):
    """An S3 server that has too much to do, for the objects that `throttle` names."""
    path = environ["PATH_INFO"]
    if environ["REQUEST_METHOD"] == "GET" and throttle[path] > 0:
        throttle[path] -= 1
        start_response("503 Slow Down", [("Content-Type", "application/xml")])
        return [b"<Error><Code>SlowDown</Code><Message>Reduce your rate.</Message></Error>"]
    return app(environ, start_response)


@pytest.fixture
def bucket(monkeypatch):
    """A bucket, and the file system that writes to it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setattr(remote, "_FRESH", -1.0)
    throttle.clear()
    server = serving.make_server("127.0.0.1", 0, throttled, threaded=True)
    Thread(target=server.serve_forever, daemon=True).start()
    options = {"endpoint_url": f"http://127.0.0.1:{server.port}"}
    monkeypatch.setitem(fsspec.config.conf, "s3", options)
    system = fsspec.filesystem("s3", **options)
    with suppress(FileExistsError):  # of the test before: moto holds its buckets in this process
        system.mkdir("data")
    yield system
    remote._SYSTEMS.clear()
    server.shutdown()
    server.server_close()


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


VALUES = np.random.default_rng(0).integers(0, 50, 40_000).astype(np.uint16)


@pytest.fixture
def tokens_there(bucket, tmp_path):
    """Tokens in two objects, and the same files here."""
    for number, part in enumerate(np.split(VALUES, [17_001])):
        bucket.pipe(f"data/tokens/{number}.bin", part.tobytes())
        part.tofile(tmp_path / f"{number}.bin")
    return tmp_path


@pytest.mark.parametrize("stored", [False, True])
def test_tokens_are_those_of_files_here(tokens_there, stored, tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("store"), "1MB", block="4kB") if stored else None
    far = Pipeline(jreader.tokens("s3://data/tokens/*.bin", eos=0, store=store))
    here = Pipeline(jreader.tokens(tokens_there, eos=0))
    for plan in (
        lambda reader: reader.shuffle(seed=1),
        lambda reader: reader.windows(100).shuffle(seed=1).batch(7),
        lambda reader: reader.pack(1024, seed=1).batch(3),
    ):
        assert everything(plan(far)) == everything(plan(here))


def test_rows_of_arrays_are_those_of_files_here(bucket):
    array = np.arange(6000.0).reshape(1000, 3, 2)
    np.save(out := io.BytesIO(), array)
    bucket.pipe("data/a.npy", out.getvalue())
    far, here = jreader.npy("s3://data/a.npy"), jreader.arrays(array)
    for reader in (far, here):
        assert len(reader) == 1000
    shuffled = [Pipeline(reader).shuffle(seed=1).batch(64) for reader in (far, here)]
    assert everything(shuffled[0]) == everything(shuffled[1])


def test_folders_of_images(bucket):
    names = [f"{label}/{number}.png" for label in "ab" for number in range(150)]
    for name in [*names, "b/deep/1.png"]:
        bucket.pipe(f"data/images/{name}", name.encode())
    images = jreader.image_folder("s3://data/images")
    assert images.classes == ("a", "b")
    expected = [(name, "ab".index(name[0])) for name in [*sorted(names), "b/deep/1.png"]]
    found = [(sample["image"].decode(), sample["label"]) for sample in images()]
    assert found == expected
    shuffled = Pipeline(images).shuffle(seed=1).batch(50)
    assert sorted(each["image"].decode() for some in shuffled for each in some) == sorted(
        name for name, _ in expected
    )


@pytest.mark.parametrize("make", ["tokens", "jsonl", "parquet"])
def test_an_object_that_is_replaced_in_the_middle_of_a_pass_is_noticed(bucket, make, monkeypatch):
    """When it is looked at next; what is asked for at that moment may be of the new one."""
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")

    def put(values):
        if make == "parquet":
            with bucket.open("data/changes", "wb") as out:
                table = pyarrow.table({"n": np.asarray(values, np.int64)})
                parquet.write_table(table, out, row_group_size=100)
        elif make == "jsonl":
            bucket.pipe("data/changes", "".join(f"{value}\n" for value in values).encode())
        else:
            bucket.pipe("data/changes", np.asarray(values, np.uint16).tobytes())

    put(range(10_000, 20_000))
    monkeypatch.setattr("jreader.sources.files.records._BYTES", 1000)
    reader = getattr(jreader, make)("s3://data/changes")
    plan = Pipeline(reader)
    plan = plan.windows(50).batch(10) if make == "tokens" else plan.batch(100)
    batches, given = iter(plan), []
    given.append(next(batches))
    put(range(20_000, 30_000))
    said = "was replaced by another file" + "|is truncated" * (make == "parquet")
    with pytest.raises(DamagedData, match=f"s3://data/changes ({said})"):
        given.extend(batches)
    assert len(given) < 20


@pytest.mark.parametrize("make", ["tokens", "jsonl", "image_folder"])
def test_a_server_that_asks_to_slow_down_is_asked_again(bucket, make):
    bucket.pipe("data/slow/a/1.png", b"1\n2\n3\n4\n")
    throttle["/data/slow/a/1.png"] = 3
    reader = {
        "tokens": lambda: jreader.tokens("s3://data/slow/a/1.png", dtype="uint8"),
        "jsonl": lambda: jreader.jsonl("s3://data/slow/a/1.png"),
        "image_folder": lambda: jreader.image_folder("s3://data/slow"),
    }[make]()
    (first, *_) = reader()
    expected = {"tokens": [*b"1\n2\n3\n4\n"], "jsonl": 1}.get(make)
    seen = first["image"] if make == "image_folder" else np.asarray(first).tolist()
    assert seen == (expected or b"1\n2\n3\n4\n")
    assert throttle["/data/slow/a/1.png"] == 0
