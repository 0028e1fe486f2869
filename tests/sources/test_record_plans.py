"""Plans over files of records: the samples that the same plan has over their numbers, anywhere."""

from __future__ import annotations

import io
import json
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mds_files import write_mds
from samples import check_resumes_everywhere, everything
from tfrecords import write_tfrecord
from widths import examples

from jreader import (
    Pipeline,
    arrayrecord,
    arrays,
    arrow,
    csv,
    huggingface,
    image_folder,
    jsonl,
    mds,
    parquet,
    tar,
    tfrecord,
)

COUNT = 9


def lines(folder):
    for part in (range(4), range(4, COUNT)):
        path = folder / f"{part[0]}.jsonl"
        path.write_text("\n\n".join(json.dumps({"n": number}) for number in part))
    return jsonl(folder), lambda sample: sample["n"]


def records(folder):
    pytest.importorskip("google_crc32c")
    for part in (range(4), range(4, COUNT)):
        write_tfrecord(folder / f"{part[0]}.tfrecord", [b"%d" % number for number in part])
    return tfrecord(folder), int


def shards(folder):
    samples = [{"n": number, "text": "x" * number} for number in range(COUNT)]
    return mds(write_mds(folder, {"n": "int", "text": "str"}, samples)), lambda sample: sample["n"]


def tables(folder):
    pytest.importorskip("pyarrow")
    for part in (range(4), range(4, COUNT)):
        (folder / f"{part[0]}.csv").write_text("\n".join(["n", "", *map(str, part)]))
    return csv(folder), lambda sample: int(sample["n"])


def row_groups(folder):
    pa = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table  # noqa: PLC0415  # an extra

    for part in (range(4), range(4, COUNT)):
        write_table(pa.table({"n": part}), folder / f"{part[0]}.parquet", row_group_size=2)
    return parquet(folder), lambda sample: int(sample["n"])


def record_batches(folder):
    pa = pytest.importorskip("pyarrow")
    for part in (range(4), range(4, COUNT)):
        table = pa.table({"n": part})
        with pa.ipc.new_file(folder / f"{part[0]}.arrow", table.schema) as out:
            out.write_table(table, max_chunksize=2)
    return arrow(folder), lambda sample: int(sample["n"])


def array_records(folder):
    array_record = pytest.importorskip("array_record.python.array_record_module")
    for part in (range(4), range(4, COUNT)):
        path = str(folder / f"{part[0]}.arrayrecord")
        writer = array_record.ArrayRecordWriter(path, "group_size:1")
        for number in part:
            writer.write(b"%d" % number)
        writer.close()
    return arrayrecord(folder), int


def archives(folder):
    for part in (range(4), range(4, COUNT)):
        with tarfile.open(folder / f"{part[0]}.tar", "w") as archive:
            for number in part:
                member = tarfile.TarInfo(f"{number:03}.txt")
                member.size = 1
                archive.addfile(member, io.BytesIO(b"%d" % number))
    return tar(folder), lambda sample: int(sample["txt"])


def images(folder):
    for number in range(COUNT):
        (folder / str(number // 4)).mkdir(exist_ok=True)
        (folder / str(number // 4) / f"{number}.png").write_bytes(b"%d" % number)
    return image_folder(folder), lambda sample: int(sample["image"])


def saved_sets(folder):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    whole = datasets.Dataset.from_dict({"n": [*range(COUNT)]})
    whole.save_to_disk(folder / "saved", num_shards=2)
    return huggingface(datasets.load_from_disk(folder / "saved")), lambda sample: int(sample["n"])


def ordered_sets(folder):
    """Of parts in another order, which an index puts right."""
    datasets = pytest.importorskip("datasets")
    parts = [datasets.Dataset.from_dict({"n": [*part]}) for part in (range(4, COUNT), range(4))]
    whole = datasets.concatenate_datasets(parts)
    ordered = whole.select([*range(COUNT - 4, COUNT), *range(COUNT - 4)])
    return huggingface(ordered), lambda sample: int(sample["n"])


STEPS = {
    "shuffle": lambda plan, n: plan.shuffle(seed=n),
    "skip": lambda plan, n: plan.skip(n),
    "firstn": lambda plan, n: plan.firstn(n + 2),
    "shard": lambda plan, n: plan.shard(n + 1, 0),
    "epochs": lambda plan, n: plan.epochs(n % 2 + 1),
    "chain": lambda plan, n: plan.chain(plan.skip(n)),
}


MADE = [
    lines,
    records,
    shards,
    tables,
    archives,
    images,
    row_groups,
    record_batches,
    array_records,
    saved_sets,
    ordered_sets,
]


@pytest.mark.parametrize("made", MADE)
@examples(20)
@given(
    steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 3)), max_size=3),
    size=st.integers(1, 4),
)
def test_any_plan_gives_what_it_gives_of_numbers(tmp_path_factory, made, steps, size):
    reader, number_of = made(tmp_path_factory.mktemp("records"))
    ours, theirs = Pipeline(reader), Pipeline(arrays(list(range(COUNT))))
    for name, n in steps:
        ours, theirs = STEPS[name](ours, n), STEPS[name](theirs, n)
    numbers = everything(theirs)
    assert [number_of(sample) for sample in ours] == numbers
    batches = [list(map(number_of, each)) for each in ours.batch(size)]
    assert [number for each in batches for number in each] == numbers
    check_resumes_everywhere(ours)
