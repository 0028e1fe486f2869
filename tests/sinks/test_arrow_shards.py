"""Files of Arrow: what its own readers find in them, and where it lies."""

from pathlib import Path

import numpy as np
import pytest

from jreader import Pipeline, arrays, arrow, ragged, write

pa = pytest.importorskip("pyarrow")

IMAGES = np.arange(40 * 6, dtype=np.float32).reshape(40, 2, 3)
WORDS = ragged(np.arange(60, dtype=np.uint16), np.sort(np.r_[0, np.arange(39) % 60, 60]))


def rows():
    return arrays(image=IMAGES, ids=WORDS, label=np.arange(40, dtype=np.int8))


def written(folder, reader=None, **more):
    return write(reader or rows(), folder / "x", "arrow", progress=False, **more)


def opened(path):
    with pa.memory_map(path) as file:
        return pa.ipc.open_file(file.read_buffer())


def test_it_is_the_file_format_with_lists_for_every_axis(tmp_path):
    (path,) = written(tmp_path)
    assert opened(path).schema == pa.schema(
        {
            "image": pa.list_(pa.list_(pa.float32(), 3), 2),
            "ids": pa.list_(pa.uint16()),
            "label": pa.int8(),
        }
    )
    assert opened(path).read_all().to_pylist()[7] == {
        "image": IMAGES[7].tolist(),
        "ids": list(rows()())[7]["ids"].tolist(),
        "label": 7,
    }


def test_rows_are_views_of_the_file(tmp_path):
    (path,) = written(tmp_path)
    before = pa.total_allocated_bytes()
    samples = list(arrow(path)())
    assert pa.total_allocated_bytes() == before
    assert all(not sample["image"].flags.owndata for sample in samples)


def test_record_batches_have_bounded_bytes(tmp_path):
    reader = Pipeline(arrays(x=np.zeros((40, 1 << 20), np.uint8)))
    for name, each in (("indexed", reader), ("stream", reader.filter(lambda _: True))):
        (path,) = written(tmp_path / name, each)
        found = opened(path)
        sizes = [found.get_batch(n).nbytes for n in range(found.num_record_batches)]
        assert sum(sizes) == 40 << 20
        assert max(sizes) <= 1 << 23


def test_shards_read_as_one_table_in_order(tmp_path):
    paths = written(tmp_path, samples_per_shard=7, threads=3)
    assert [Path(path).suffix for path in paths] == [".arrow"] * 6
    assert [int(sample["label"]) for sample in arrow(paths)()] == list(range(40))


def test_hugging_face_reads_what_is_written(tmp_path):
    datasets = pytest.importorskip("datasets")
    paths = written(tmp_path, samples_per_shard=15)
    found = datasets.load_dataset(
        "arrow", data_files=paths, split="train", cache_dir=str(tmp_path / "cache")
    )
    for row, sample in zip(found.with_format("numpy"), rows()(), strict=True):
        assert row["image"].tolist() == sample["image"].tolist()
        assert np.asarray(row["ids"]).tolist() == sample["ids"].tolist()
        assert row["label"] == sample["label"]


def test_polars_and_feather_read_what_is_written(tmp_path):
    (path,) = written(tmp_path)
    feather = pytest.importorskip("pyarrow.feather")
    assert feather.read_table(path)["label"].to_pylist() == [*range(40)]
    polars = pytest.importorskip("polars")
    assert polars.read_ipc(path)["ids"].to_list() == [each["ids"].tolist() for each in rows()()]
