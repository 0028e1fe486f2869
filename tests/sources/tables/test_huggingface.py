"""Data sets of Hugging Face by their Arrow columns: the rows, the order, and the media as bytes."""

from __future__ import annotations

import json
import pickle
from hashlib import sha256
from itertools import chain

import jax
import numpy as np
import pytest
from arrow_tables import pa, plain, tables
from hypothesis import given
from hypothesis import strategies as st
from widths import examples

from jreader import Pipeline, as_function, batch, huggingface, shuffle
from jreader.readers import fingerprint, indexed, start
from jreader.readers.plain_functions import in_epoch

datasets = pytest.importorskip("datasets")
Image = pytest.importorskip("PIL.Image")

pytestmark = pytest.mark.filterwarnings("ignore:Specifying null_placement:FutureWarning")


@pytest.fixture
def digits():
    return datasets.Dataset.from_dict({"label": [5, 0, 4, 1], "name": ["a", "b", "c", "d"]})


def test_a_lock_has_its_files_and_the_commit_that_it_is_of(digits, tmp_path):
    digits.save_to_disk(tmp_path / "saved")
    mapped = datasets.load_from_disk(tmp_path / "saved")
    commit = "me/digits@" + "0a" * 20
    mapped.info.download_checksums = {f"hf://datasets/{commit}/train.parquet": {}, "/here": {}}
    Pipeline(huggingface(mapped)).lock(tmp_path / "lock")
    (source,) = json.loads((tmp_path / "lock").read_text())["data"].values()
    (name,) = {*source} - {"revision"}
    assert source["revision"].endswith(commit)
    assert name == "data-00000-of-00001.arrow"
    content = (tmp_path / "saved" / name).read_bytes()
    assert source[name] == f"{len(content)} bytes, sha256 {sha256(content).hexdigest()}"
    assert Pipeline(huggingface(mapped)).check_lock(tmp_path / "lock") == []


def listed(reader):
    return [plain(sample) for sample in reader()]


@examples(50)
@given(data=st.data())
def test_rows_are_those_of_the_data_set(data):
    kinds = [pa.int64(), pa.float32(), pa.string(), pa.binary(), pa.list_(pa.int32())]
    table = data.draw(tables(types=kinds))
    dataset = datasets.Dataset(table)
    expected = table.to_pylist()
    if len(table):
        order = data.draw(st.lists(st.integers(0, len(table) - 1), max_size=9))
        dataset, expected = dataset.select(order), [expected[row] for row in order]
    reader = huggingface(dataset)
    assert listed(reader) == expected
    assert len(reader) == len(expected)
    done = data.draw(st.integers(0, len(expected)))
    assert [plain(sample) for sample in start(reader, done).items] == expected[done:]
    turned = np.arange(len(expected))[::-1]
    assert [plain(sample) for sample in indexed(reader).take(turned)] == expected[::-1]


def test_the_order_of_the_data_set_is_kept(digits):
    for other in (
        digits.shuffle(seed=0),
        digits.sort("label"),
        digits.filter(lambda row: row["label"] > 0),
        digits.select(range(1, 3)),
    ):
        assert listed(huggingface(other)) == list(other)


def test_columns_are_chosen_here_or_by_the_format(digits):
    assert listed(huggingface(digits, "name")) == ["a", "b", "c", "d"]
    assert list(listed(huggingface(digits, ["name", "label"]))[0]) == ["name", "label"]
    assert listed(huggingface(digits.with_format("numpy", columns=["label"]))) == [
        {"label": label} for label in (5, 0, 4, 1)
    ]


def test_numbers_are_those_of_the_table_itself(digits):
    values = digits.data.table.column("label").chunk(0)
    column = huggingface(digits, "label").columns
    assert column.__array_interface__["data"][0] == values.buffers()[1].address


def test_a_data_set_in_files_of_many_batches_is_one_table(tmp_path, digits):
    parts = datasets.concatenate_datasets([digits] * 5)
    parts.save_to_disk(tmp_path / "saved", num_shards=3)
    saved = datasets.load_from_disk(tmp_path / "saved")
    assert listed(huggingface(saved)) == list(digits) * 5
    stacked = [each.columns for each in batch(huggingface(saved, "label"), 4)()]
    assert np.concatenate(stacked).tolist() == [5, 0, 4, 1] * 5


def test_images_stay_the_bytes_that_they_are():
    rows = {"image": [{"bytes": b"jpeg", "path": None}], "label": [1]}
    features = {"image": datasets.Image(), "label": datasets.Value("int64")}
    dataset = datasets.Dataset.from_dict(rows, datasets.Features(features))
    assert listed(huggingface(dataset)) == [{"image": b"jpeg", "label": 1}]


def test_images_of_local_files_are_their_bytes(tmp_path):
    contents = {}
    for number, name in enumerate(("cat/a.png", "cat/b.png", "dog/c.png")):
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4, 3), number, np.uint8)).save(path)
        contents[str(path)] = path.read_bytes()
    folder, cache = str(tmp_path / "pets"), str(tmp_path / "cache")
    pets = datasets.load_dataset("imagefolder", data_dir=folder, split="train", cache_dir=cache)
    labels = [("cat", "dog").index(path.split("/")[-2]) for path in contents]
    assert listed(huggingface(pets)) == [
        {"image": content, "label": label}
        for content, label in zip(contents.values(), labels, strict=True)
    ]
    features = datasets.Features({"both": datasets.Sequence(datasets.Image())})
    several = datasets.Dataset.from_dict({"both": [[*contents], []]}, features)
    assert listed(huggingface(several)) == [{"both": [*contents.values()]}, {"both": []}]


def test_an_optional_key_in_a_list_of_dicts_is_none_where_that_is_asked_for():
    chat = [
        {"messages": [{"role": "user", "content": "hi"}]},
        {"messages": [{"role": "tool", "content": "5", "name": "f", "calls": [{"id": 1}]}]},
    ]
    dataset = datasets.Dataset.from_list(chat)
    with pytest.raises(ValueError, match=r"column 'messages\[\]\.\w+' of the data set is null"):
        listed(huggingface(dataset))
    assert listed(huggingface(dataset, nulls={"messages": None})) == list(dataset)


def test_arrays_of_a_fixed_shape_are_stacked():
    features = datasets.Features({"x": datasets.Array2D((2, 3), "float32")})
    values = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    dataset = datasets.Dataset.from_dict({"x": list(values)}, features)
    np.testing.assert_array_equal(huggingface(dataset, "x").columns, values)


def test_a_null_is_told_or_filled():
    dataset = datasets.Dataset.from_dict({"age": [1, None]})
    with pytest.raises(ValueError, match=r"column 'age' of the data set is null in row 1"):
        listed(huggingface(dataset))
    assert listed(huggingface(dataset, "age", {"age": -1})) == [1, -1]


class TestMistakes:
    def test_several_splits(self, digits):
        with pytest.raises(TypeError, match=r"choose a split of 'train', 'test'"):
            huggingface(datasets.DatasetDict(train=digits, test=digits))

    def test_a_stream(self, digits):
        with pytest.raises(TypeError, match=r"a stream is a reader as it is"):
            huggingface(digits.to_iterable_dataset())

    def test_something_else(self):
        with pytest.raises(TypeError, match=r"needs a datasets.Dataset, not .*load_dataset"):
            huggingface([1, 2])

    def test_one_with_a_function_of_rows(self, digits):
        with pytest.raises(ValueError, match=r"has a function that is applied to rows"):
            huggingface(digits.with_transform(dict))

    def test_a_column_that_is_not_there(self, digits):
        with pytest.raises(ValueError, match=r"the data set has no column 'x'; its columns are"):
            listed(huggingface(digits, ["x"]))


class TestPlans:
    def test_it_is_shown_as_it_was_written(self, digits):
        assert repr(huggingface(digits, ["name"])) == "huggingface(Dataset[4], columns=['name'])"

    def test_it_travels(self, tmp_path, digits):
        digits.save_to_disk(tmp_path)
        for dataset in (digits, datasets.load_from_disk(tmp_path).shuffle(seed=1)):
            reader = huggingface(dataset)
            assert listed(pickle.loads(pickle.dumps(reader))) == listed(reader)

    def test_a_cursor_knows_the_rows_and_their_order(self, digits):
        same = datasets.Dataset.from_dict(digits.to_dict())
        assert fingerprint(huggingface(digits)) == fingerprint(huggingface(same))
        for other in (
            digits.shuffle(seed=3),
            digits.select([0, 1]),
            digits.rename_columns({"name": "n"}),
        ):
            assert fingerprint(huggingface(digits)) != fingerprint(huggingface(other))

    def test_it_is_shuffled_and_put_on_devices(self, digits):
        plan = Pipeline(huggingface(digits.shuffle(seed=1), ["label"])).shuffle(seed=0).batch(2)
        feeds = [feed["label"].tolist() for feed in plan.load()]
        assert sorted(chain(*feeds)) == [0, 1, 4, 5]
        data, batch_at = as_function(plan)
        assert [jax.jit(batch_at)(data, 0, step)["label"].tolist() for step in range(2)] == feeds
        assert sorted(row["label"] for row in shuffle(huggingface(digits), seed=0)()) == [
            0,
            1,
            4,
            5,
        ]


class TestStreams:
    """An `IterableDataset`: its epochs, and resuming from its own state."""

    @pytest.fixture
    def read(self):
        return []

    @pytest.fixture
    def stream(self, read):
        def shards(numbers):
            for number in numbers:
                for n in range(5):
                    read.append(5 * number + n)
                    yield {"n": 5 * number + n}

        return datasets.IterableDataset.from_generator(shards, gen_kwargs={"numbers": [*range(4)]})

    def test_each_epoch_has_another_order(self, stream):
        plan = Pipeline(lambda: stream.shuffle(seed=0, buffer_size=3)).map(lambda row: row["n"])
        epochs = list(plan.epochs(3))
        three = [epochs[low : low + 20] for low in (0, 20, 40)]
        assert three[0] != three[1] != three[2]
        assert all(sorted(each) == [*range(20)] for each in three)
        loader = plan.batch(4).load()
        assert [np.concatenate([*loader]).tolist() for _ in range(3)] == three

    @pytest.mark.parametrize("epoch", [0, 1])
    @pytest.mark.parametrize("done", [0, 1, 7, 20])
    def test_it_goes_on_where_it_was_without_reading_again(self, stream, read, epoch, done):
        def samples(up):
            return [row["n"] for row in up.items]

        with in_epoch(epoch):
            whole = samples(start(lambda: stream))
            up = start(lambda: stream)
        assert [next(up.items)["n"] for _ in range(done)] == whole[:done]
        at = json.loads(json.dumps(up.position()))
        next(start(lambda: stream).items)  # of another pass, which changes nothing
        read.clear()
        again = start(lambda: stream, at)
        if done:
            assert json.loads(json.dumps(again.position())) == at
            assert samples(again) == whole[done:]
            assert len(read) <= 20 - done + 5
        assert samples(up) == whole[done:]

    def test_one_whose_state_is_not_exact_is_read_again(self, stream):
        shuffled = stream.shuffle(seed=0, buffer_size=7)
        whole = [row["n"] for row in shuffled]
        up = start(lambda: shuffled)
        assert [next(up.items)["n"] for _ in range(9)] == whole[:9]
        assert up.position() == 9
        assert [row["n"] for row in start(lambda: shuffled, 9).items] == whole[9:]

    def test_a_position_that_only_counts_is_read_up_to(self, stream):
        assert [row["n"] for row in start(lambda: stream, 18).items] == [18, 19]

    def test_a_loader_resumes_in_a_later_epoch(self, stream):
        def feeds():
            plan = Pipeline(lambda: stream).map(lambda row: row["n"])
            return plan.batch(3).load(last="pad")

        steps = feeds().steps(15)
        every = []
        for feed in steps:
            every.append(jax.tree.map(np.asarray, feed))
            if len(every) == 9:
                cursor = json.loads(json.dumps(steps.cursor))
        rest = [jax.tree.map(np.asarray, feed) for feed in feeds().steps(15, at=cursor)]
        assert [str(each) for each in rest] == [str(each) for each in every[9:]]
