"""Where tf.data, Grain, torchdata, webdataset and others differ: files, batches and plans."""

from __future__ import annotations

import io
import tarfile

import numpy as np
import pytest

from jreader import (
    DataLoader,
    FeedMismatch,
    Pipeline,
    ReaderError,
    arrayrecord,
    arrays,
    source,
    tar,
)

differs = pytest.mark.differs


def packed(path, members):
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


class TestFiles:
    @differs
    def test_extensions_of_members_are_lower_case(self, tmp_path):
        packed(tmp_path / "a.tar", {"1.JPG": b"image", "1.Seg.PNG": b"mask"})
        (sample,) = tar(tmp_path / "a.tar")()
        assert sample == {"__key__": "1", "jpg": b"image", "seg.png": b"mask"}

    @differs
    def test_a_field_that_is_called_gz_is_written_as_it_is(self, tmp_path):
        Pipeline(lambda: [{"__key__": "1", "txt.gz": "hello"}]).write(tmp_path / "out", "tar")
        (written,) = (tmp_path / "out").glob("*.tar")
        (sample,) = tar(written)()
        assert sample["txt.gz"] == b"hello"

    @differs
    def test_groups_of_many_records_are_read(self, tmp_path):
        module = pytest.importorskip("array_record.python.array_record_module")
        writer = module.ArrayRecordWriter(str(tmp_path / "a.arrayrecord"), "group_size:50")
        for number in range(120):
            writer.write(b"%d" % number)
        writer.close()
        dealt = Pipeline(arrayrecord(tmp_path / "a.arrayrecord")).shuffle(seed=0)
        assert sorted(map(int, dealt)) == [*range(120)]


class TestEpochs:
    @differs
    def test_an_endless_number_of_empty_epochs_is_an_error(self):
        with pytest.raises(ReaderError, match="gave no sample in epoch 0"):
            list(Pipeline(list).epochs())
        assert list(Pipeline(list).epochs(2)) == []

    @differs
    def test_no_epochs_are_no_samples(self):
        assert list(Pipeline(arrays(np.arange(3))).epochs(0)) == []

    @differs
    def test_epochs_of_what_has_no_end_have_none(self):
        forever = Pipeline(arrays(np.arange(2))).epochs()
        assert list(forever.epochs(2).firstn(7)) == [0, 1] * 3 + [0]

    @differs
    def test_a_map_below_epochs_is_not_found_by_index(self):
        rows = Pipeline(arrays(np.arange(3)))
        with pytest.raises(TypeError, match=r"\.map\(fn\) after \.epochs\(n\)"):
            rows.map(abs).epochs(2)[4]
        assert rows.epochs(2).map(abs)[4] == 1
        assert rows.map(abs).epochs(2).skip(4).peek() == 1


class TestBatches:
    @differs
    def test_a_function_of_lists_gives_arrays_not_lists_of_numbers(self):
        pairs = Pipeline(lambda: [1, 2, 3, 4]).batch(2)
        with pytest.raises(TypeError, match="give a tree of arrays of one length"):
            list(pairs.map_batches(lambda samples: [sum(samples)], stacked=False))
        (first, _) = pairs.map_batches(lambda samples: np.array([sum(samples)]), stacked=False)
        assert list(first) == [3]

    @differs
    def test_rows_that_are_all_empty_are_padded_to_one(self):
        empty = {"x": np.zeros(0, int)}
        (rows,) = Pipeline(lambda: [empty, empty]).padded_batch(2)
        assert rows.columns["x"].shape == rows.columns["x_mask"].shape == (2, 1)
        assert not rows.columns["x_mask"].any()

    @differs
    def test_arrays_of_strings_inside_samples_are_one_array(self):
        texts = [{"s": np.array(["ab", "c"])}, {"s": np.array(["abc", "d"])}]
        loader = DataLoader(texts, batch_size=2, places="host")
        (feed,) = loader
        assert feed["s"].tolist() == [["ab", "c"], ["abc", "d"]]

    @differs
    def test_a_dict_is_no_data_set(self):
        for made in (lambda: source({0: 1}), lambda: DataLoader({0: 1}, batch_size=1)):
            with pytest.raises(TypeError):
                made()

    @differs
    def test_empty_batches_are_left_out_where_batches_are_made_anew(self):
        batches = Pipeline(lambda: [[1, 2], [], [3]])
        assert list(batches.rebatch(2)) == [[1, 2], [3]]

    @differs
    def test_columns_of_lists_that_differ_in_length_are_no_batch(self):
        with pytest.raises(FeedMismatch, match=r"equally many rows"):
            list(Pipeline(lambda: [{"x": [1, 2], "y": [1]}]).unbatch())
        assert list(Pipeline(lambda: [[[1], [1, 2]]]).unbatch()) == [[1], [1, 2]]
