"""`tfrecord` finds records by number, checks their CRCs, and reads Examples without TensorFlow."""

from __future__ import annotations

import gzip
import struct
import sys

import numpy as np
import pytest
from hypothesis import example as given_too
from hypothesis import given
from hypothesis import strategies as st
from samples import check_resumes_everywhere, ends, everything
from tfrecords import example, field, framed, write_tfrecord
from widths import examples

from jreader import Pipeline, batch, shuffle, tfrecord
from jreader.errors import DamagedData
from jreader.readers import indexed
from jreader.sources.files.index_cache import save_index

pytest.importorskip("google_crc32c")


@examples(60)
@given(files=st.lists(st.lists(st.binary(max_size=40), min_size=1), min_size=1, max_size=3))
def test_any_records_come_back_from_any_place_on(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("records")
    for number, records in enumerate(files):
        write_tfrecord(folder / f"{number}.tfrecord", records)
    every = [record for records in files for record in records]
    reader = tfrecord(folder)
    assert list(reader()) == every
    assert len(reader) == len(every)
    check_resumes_everywhere(reader)
    backwards = np.arange(len(every))[::-1]
    assert indexed(reader).take(backwards) == every[::-1]


def test_records_of_all_sizes_are_found_where_little_is_read_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("jreader.sources.tfrecord_files._WINDOW", 64)
    monkeypatch.setattr("jreader.sources.tfrecord_files._STEP", 16)
    records = [bytes([size % 256]) * size for size in (0, 1, 3, 50, 200, 0, 2, 7, 130, 1)]
    assert list(tfrecord(write_tfrecord(tmp_path / "a", records))()) == records


def test_a_shuffle_is_global(tmp_path):
    path = write_tfrecord(tmp_path / "a", [b"%d" % number for number in range(100)])
    batches = list(batch(shuffle(tfrecord(path), seed=1), 10)())
    assert sorted(int(record) for each in batches for record in each) == [*range(100)]


class TestDamage:
    RECORDS = (b"one", b"second", b"3")
    SECOND = len(framed(RECORDS[0]))

    @pytest.fixture
    def path(self, tmp_path):
        return write_tfrecord(tmp_path / "a.tfrecord", self.RECORDS)

    def test_a_file_truncated_anywhere_gives_its_whole_records_and_then_an_error(self, path):
        content = path.read_bytes()
        places = np.cumsum([0, *(len(framed(record)) for record in self.RECORDS)]).tolist()
        for kept in range(1, len(content)):
            path.write_bytes(content[:kept])
            whole = sum(place <= kept for place in places[1:])
            if kept in places:
                assert list(tfrecord(path)()) == list(self.RECORDS[:whole])
                continue
            samples, error = ends(tfrecord(path)())
            assert samples == list(self.RECORDS[:whole])
            assert isinstance(error, DamagedData)
            assert f"{path} is truncated" in str(error)
            assert f"record at byte {places[whole]}" in str(error)

    def test_a_bit_changed_anywhere_is_never_a_sample(self, path):
        content = path.read_bytes()
        for place in range(len(content)):
            for bit in (0, 7):
                wrong = bytearray(content)
                wrong[place] ^= 1 << bit
                path.write_bytes(wrong)
                samples, error = ends(tfrecord(path)())
                assert samples == list(self.RECORDS[: len(samples)])
                assert len(samples) < 3
                assert isinstance(error, DamagedData)
                assert str(path) in str(error)

    def test_a_wrong_crc_names_the_byte_of_the_record(self, path):
        content = bytearray(path.read_bytes())
        content[self.SECOND + 12] ^= 1
        path.write_bytes(content)
        samples, error = ends(tfrecord(path)())
        assert samples == [b"one"]
        assert f"the record at byte {self.SECOND} has 6 bytes of data that do not match" in str(
            error
        )

    def test_good_records_of_a_shuffle_come_where_they_are_asked_for_alone(self, path):
        content = bytearray(path.read_bytes())
        content[self.SECOND + 12] ^= 1
        path.write_bytes(content)
        plane = indexed(tfrecord(path))
        assert list(plane.each(np.array([2, 0]))) == [b"3", b"one"]
        items = plane.each(np.array([2, 0, 1, 2]))
        assert [next(items), next(items)] == [b"3", b"one"]
        with pytest.raises(DamagedData):
            next(items)

    def test_an_empty_file_is_an_error_that_says_what_to_do(self, path):
        path.write_bytes(b"")
        with pytest.raises(DamagedData, match=r"a\.tfrecord is .*it is empty; leave it out"):
            list(tfrecord(path)())

    def test_a_packed_file_is_an_error_that_says_what_to_type(self, path):
        path.write_bytes(gzip.compress(path.read_bytes()))
        with pytest.raises(DamagedData, match=r"those of a gzip file.*unpack it \(gunzip\)"):
            list(tfrecord(path)())

    def test_a_file_of_another_format_is_named(self, path):
        path.write_text("word " * 100)
        with pytest.raises(
            DamagedData, match="the record at byte 0 has a length that does not match"
        ):
            list(tfrecord(path)())

    def test_a_file_that_is_gone_at_the_next_pass_is_an_error(self, path):
        reader = tfrecord(path)
        assert list(reader()) == list(self.RECORDS)
        path.unlink()
        with pytest.raises(DamagedData, match=r"a\.tfrecord cannot be found"):
            list(reader())

    def test_a_kept_index_is_not_trusted_with_other_bytes(self, path, tmp_path, monkeypatch):
        monkeypatch.setattr("jreader.sources.files.index_cache._WORTH", 0)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        assert len(tfrecord(path)) == 3
        (index,) = (tmp_path / "cache/jreader/tfrecord").iterdir()
        save_index(index, np.load(index)[[0, 2, 3]])
        with pytest.raises(DamagedData, match="has 3 bytes of data, not 25"):
            list(tfrecord(path)())


NAMES = st.text(max_size=5)
LISTS = st.one_of(
    st.lists(st.binary(max_size=20), min_size=1),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
    st.lists(st.integers(0, 300), min_size=1, max_size=40),
)


def asked(values):
    return [{bytes: bytes, float: np.float32, int: np.int64}[type(values[0])]]


class TestExamples:
    def read(self, tmp_path, record, features):
        (sample,) = tfrecord(write_tfrecord(tmp_path / "a", [record]), features=features)()
        return sample

    @examples(100)
    @given(features=st.dictionaries(NAMES, LISTS, min_size=1, max_size=4), packed=st.booleans())
    @given_too(features={"n": [-1, 0, 2**63 - 1, 5, 300]}, packed=True)
    def test_any_example_comes_back(self, tmp_path_factory, features, packed):
        wanted = {name: asked(values) for name, values in features.items()}
        record = example(features, packed=packed)
        sample = self.read(tmp_path_factory.mktemp("examples"), record, wanted)
        assert list(sample) == list(features)
        for name, values in features.items():
            if isinstance(values[0], bytes):
                assert sample[name] == values
            else:
                np.testing.assert_array_equal(sample[name], np.array(values, wanted[name][0]))
                assert sample[name].dtype == wanted[name][0]

    def test_single_values_shapes_and_other_dtypes(self, tmp_path):
        record = example(
            {"image": [b"pixels"], "label": [7], "box": [1.0, 2.0, 3.0, 4.0], "x": [1]}
        )
        sample = self.read(
            tmp_path,
            record,
            {
                "label": np.int32,
                "image": bytes,
                "box": (np.float16, (2, 2)),
                "ids": [np.uint8],
                "words": [bytes],
            },
        )
        assert list(sample) == ["label", "image", "box", "ids", "words"]
        assert type(sample["label"]) is np.int32
        assert sample["image"] == b"pixels"
        assert sample["box"].tolist() == [[1, 2], [3, 4]]
        assert sample["box"].dtype == np.float16
        assert sample["ids"].dtype == np.uint8
        assert (sample["ids"].tolist(), sample["words"]) == ([], [])

    def test_batches_of_examples_become_feeds(self, tmp_path):
        records = [example({"n": [number], "v": [float(number)] * 2}) for number in range(6)]
        path = write_tfrecord(tmp_path / "a", records)
        reader = tfrecord(path, features={"n": np.int32, "v": (np.float32, (2,))})
        feeds = list(Pipeline(reader).batch(3).load(sharding="host"))
        assert [feed["n"].tolist() for feed in feeds] == [[0, 1, 2], [3, 4, 5]]
        assert feeds[1]["v"].tolist() == [[3, 3], [4, 4], [5, 5]]

    def test_what_comes_twice_is_merged_and_what_is_not_known_is_skipped(self, tmp_path):
        entry = field(1, b"n") + field(2, field(3, field(1, b"\1")) + field(3, b"\x08\2"))
        odd = b"\x10\7" + b"\x19" + bytes(8) + b"\x25" + bytes(4) + field(9, b"later")
        record = field(1, field(1, b"") + odd) + odd + field(1, field(1, entry)) + field(2, b"x")
        assert self.read(tmp_path, record, {"n": [int]})["n"].tolist() == [1, 2]

    @pytest.mark.parametrize(
        ("features", "said"),
        [
            ({"m": int}, r"byte 0 of .*a has no feature 'm'; it has 'n' \(ints\), 'b' \(bytes\)"),
            (
                {"n": int},
                r"feature 'n' of the record at byte 0 .* has 2 values, not 1.*\[np.int64\]",
            ),
            ({"n": bytes}, r"feature 'n' .* is a list of ints, not of bytes: give np.int64"),
            ({"n": np.float32}, r"is a list of ints, not of floats"),
            ({"b": [int]}, r"is a list of bytes, not of ints: give bytes"),
            ({"n": [np.int8]}, r"has the value 300, which does not fit int8: give np.int64"),
            ({"n": (int, (3,))}, r"has 2 values, not 3"),
        ],
    )
    def test_features_that_are_not_there_are_errors(self, tmp_path, features, said):
        with pytest.raises(ValueError, match=said):
            self.read(tmp_path, example({"n": [1, 300], "b": [b"x"]}), features)

    @pytest.mark.parametrize(
        "features", [{}, [bytes], {"n": "word"}, {"n": None}, {"n": [int, int]}]
    )
    def test_features_that_cannot_be_asked_for_are_errors_where_they_are_written(
        self, tmp_path, features
    ):
        with pytest.raises(TypeError, match=r"tfrecord\(paths, features\)"):
            tfrecord(write_tfrecord(tmp_path / "a", [b""]), features=features)

    @examples(100)
    @given(record=st.binary(min_size=1, max_size=30))
    def test_bytes_that_are_no_example_are_an_error_that_names_them(self, tmp_path_factory, record):
        path = write_tfrecord(tmp_path_factory.mktemp("odd") / "a", [record])
        with pytest.raises((DamagedData, ValueError), match="the record at byte 0"):
            list(tfrecord(path, features={"n": int})())

    def test_an_example_cut_anywhere_is_an_error(self, tmp_path):
        record = example({"n": [1, 300, -7], "b": [b"some"], "v": [0.5]})
        for kept in range(len(record)):
            with pytest.raises((DamagedData, ValueError), match="the record at byte 0"):
                self.read(tmp_path, record[:kept], {"n": [int], "b": bytes, "v": float})

    def test_it_is_printed_as_it_can_be_typed(self, tmp_path):
        path = write_tfrecord(tmp_path / "a", [b""])
        assert repr(tfrecord(path)) == f"tfrecord({str(path)!r})"
        reader = tfrecord(path, {"b": bytes, "n": [int], "v": (np.float32, 4)})
        said = "{'b': bytes, 'n': [np.int64], 'v': (np.float32, (4,))}"
        assert repr(reader) == f"tfrecord({str(path)!r}, features={said})"


def test_without_its_package_the_error_says_what_to_type(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(ModuleNotFoundError) as raised:
        tfrecord(write_tfrecord(tmp_path / "a", [b"1"]))
    assert raised.value.__notes__ == [
        "tfrecord needs google-crc32c: python -m pip install 'jreader[tfrecord]'"
    ]


@pytest.mark.peers
def test_files_of_tensorflow_are_read(tmp_path):
    tf = pytest.importorskip("tensorflow")
    features = {
        "b": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"", b"some"])),
        "v": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5, -1e30])),
        "n": tf.train.Feature(int64_list=tf.train.Int64List(value=[-1, 0, 2**63 - 1])),
        "none": tf.train.Feature(),
    }
    record = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    with tf.io.TFRecordWriter(str(tmp_path / "a")) as writer:
        for each in (record, b"", struct.pack("<Q", 5)):
            writer.write(each)
    assert list(tfrecord(tmp_path / "a")()) == [record, b"", struct.pack("<Q", 5)]
    asked_for = {"b": [bytes], "v": [np.float32], "n": [np.int64], "none": [np.int64]}
    sample = next(iter(tfrecord(tmp_path / "a", asked_for)()))
    assert sample["b"] == [b"", b"some"]
    assert sample["v"].tolist() == np.float32([0.5, -1e30]).tolist()
    assert sample["n"].tolist() == [-1, 0, 2**63 - 1]
    assert sample["none"].tolist() == []
    ours = write_tfrecord(tmp_path / "ours", [example({"n": [-5, 300], "v": [0.25]})])
    (theirs,) = [
        tf.train.Example.FromString(each.numpy()) for each in tf.data.TFRecordDataset(str(ours))
    ]
    assert list(theirs.features.feature["n"].int64_list.value) == [-5, 300]
    assert everything(tfrecord(ours, {"n": [int], "v": float})) == [{"n": [-5, 300], "v": 0.25}]
