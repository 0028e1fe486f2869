"""`write`: a folder of shards that is there as a whole, or not at all."""

import pickle
import signal
import tarfile
import threading
from copy import deepcopy
from itertools import count, product
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from programs import PATIENCE, program
from thread_bound import ThreadBound, told

import jreader
from jreader import FeedMismatch, Pipeline, ReaderError, arrays, npy, ragged, tar, write
from jreader.sinks import FormatName
from jreader.sinks.shard_writers import Cuts, first_samples, streamed_pieces

FORMATS = get_args(FormatName)
EXTRAS = {"arrow": "pyarrow", "parquet": "pyarrow", "arrayrecord": "array_record"}
TABLES = ["arrow", "parquet"]
TOKENS = ["llmc", "megatron", "nanogpt"]
SUFFIXES = {"llmc": [".bin"], "megatron": [".bin", ".idx"], "nanogpt": [".bin"]}


@pytest.fixture(params=FORMATS)
def form(request):
    """Each format, where its library is installed."""
    if request.param in EXTRAS:
        pytest.importorskip(EXTRAS[request.param])
    return request.param


def rows(many=20):
    return arrays(**{"image.npy": np.arange(many * 6).reshape(many, 2, 3), "cls": np.arange(many)})


def stream(many=20):
    return Pipeline(rows(many)).filter(lambda sample: True)


def pickled(sample):
    """NumPy 2.5 pickles an array that is writable in another way; copies all are."""
    return pickle.dumps(deepcopy(sample))


def flat(sample):
    return sample["image.npy"].reshape(-1)


def encode_for(form):
    if form in TOKENS:
        return {"encode": flat}
    return {"encode": pickled} if form == "arrayrecord" else {}


def quietly(reader, path, form, **more):
    return write(reader, path, form, **{**encode_for(form), "progress": False, **more})


def contents(paths):
    return {Path(path).name: Path(path).read_bytes() for path in paths}


def beside(folder):
    """What else there is in the folder that a folder is in."""
    return sorted(each.name for each in folder.parent.iterdir() if each != folder)


class TestShards:
    @pytest.mark.parametrize("sizes", [{}, {"samples_per_shard": 6}, {"samples_per_shard": 1}])
    @pytest.mark.parametrize("threads", [1, 3])
    def test_a_stream_and_an_indexed_reader_give_the_same_files(
        self, tmp_path, form, sizes, threads
    ):
        one = quietly(rows(), tmp_path / "a" / "x", form, threads=threads, **sizes)
        other = quietly(stream(), tmp_path / "b" / "x", form, threads=1, **sizes)
        assert contents(one) == contents(other)

    def test_names_tell_how_many_there_are(self, tmp_path, form):
        paths = quietly(rows(), tmp_path / "x", form, samples_per_shard=9)
        assert sorted(paths) == sorted(str(each) for each in (tmp_path / "x").iterdir())
        stems = ["image.npy", "cls"] if form == "npy" else ["x"]
        assert [Path(path).name for path in paths] == [
            f"{stem}-{shard:05}-of-00003{suffix}"
            for stem in stems
            for suffix in SUFFIXES.get(form, [f".{form}"])
            for shard in range(3)
        ]

    @pytest.mark.parametrize("reader", [rows(), Pipeline(rows()).map(dict)])
    def test_so_many_shards_differ_by_one_sample(self, tmp_path, reader):
        quietly(reader, tmp_path / "x", "npy", shards=3)
        parts = sorted((tmp_path / "x").glob("cls-*"))
        assert [len(np.load(part)) for part in parts] == [6, 7, 7]

    def test_shards_have_some_64_mb_where_nothing_is_said(self, tmp_path):
        reader = arrays(np.zeros((40, 1 << 22), np.uint8))
        assert len(quietly(reader, tmp_path / "x", "npy")) == 3

    def test_samples_keep_the_order_of_the_reader(self, tmp_path):
        plan = Pipeline(arrays(np.arange(100))).shuffle(seed=3)
        paths = quietly(plan, tmp_path / "x", "npy", samples_per_shard=7, threads=4)
        assert list(npy(paths)()) == list(plan)

    def test_one_pass_without_a_seed_is_written(self, tmp_path):
        plan = Pipeline(arrays(np.arange(100))).shuffle()
        paths = quietly(plan, tmp_path / "x", "npy", samples_per_shard=7, threads=4)
        written = [int(row) for row in npy(paths)()]
        assert sorted(written) == list(range(100)) != written

    def test_a_block_is_decoded_for_its_shard(self, tmp_path):
        parquet = pytest.importorskip("pyarrow") and jreader.parquet
        paths = quietly(rows(), tmp_path / "x", "parquet", samples_per_shard=3)
        again = quietly(parquet(paths), tmp_path / "y", "npy", samples_per_shard=5)
        assert contents(again) == contents(
            quietly(rows(), tmp_path / "z", "npy", samples_per_shard=5)
        )

    def test_large_shards_of_streams_are_read_in_pieces(self):
        samples = [np.zeros(1 << 10, np.uint8)] * 50
        pieces = list(streamed_pieces(Cuts(20, 1), samples, most=1 << 13))
        assert max(piece.many for piece in pieces) == 8 + 1
        shards = [[p for p in pieces if p.shard == shard] for shard in range(3)]
        assert [sum(p.many for p in shard) for shard in shards] == [20, 20, 10]
        assert [[p.last for p in shard].index(True) + 1 for shard in shards] == [
            len(shard) for shard in shards
        ]

    def test_no_more_than_a_piece_is_looked_at_before_the_first_is_written(self, monkeypatch):
        monkeypatch.setattr("jreader.sinks.shard_writers.PIECE", 1 << 13)
        assert len(first_samples(iter([np.zeros(1 << 10, np.uint8)] * 50), 40)) == 9
        assert first_samples(iter(range(50)), 40) == list(range(40))

    def test_pieces_of_a_shard_are_written_in_turn(self, tmp_path, form, monkeypatch):
        whole = quietly(stream(200), tmp_path / "a" / "x", form, samples_per_shard=90)
        pieces = streamed_pieces
        monkeypatch.setattr(
            "jreader.sinks.writing.streamed_pieces", lambda *given: pieces(*given, most=100)
        )
        parts = quietly(stream(200), tmp_path / "b" / "x", form, samples_per_shard=90, threads=4)
        if form not in TABLES:  # where each piece is a row group, or a record batch
            assert contents(parts) == contents(whole)
            return
        one, other = (map(repr, getattr(jreader, form)(paths)()) for paths in (whole, parts))
        assert list(one) == list(other)

    @pytest.mark.filterwarnings("ignore:.*says that it has")
    def test_a_reader_that_does_not_keep_its_word_is_an_error(self, tmp_path):
        class Lying:
            def __init__(self, many):
                self.many = many

            def __len__(self):
                return 10

            def __call__(self):
                return iter(range(self.many))

        for many in (9, 11):
            with pytest.raises(
                ReaderError, match=r"said that it has 10 samples.*samples_per_shard"
            ):
                quietly(Lying(many), tmp_path / "x", "npy", shards=2)
            assert not (tmp_path / "x").exists()


class TestFolders:
    def test_the_folders_above_are_made(self, tmp_path, form):
        quietly(rows(), tmp_path / "a" / "b" / "x", form)
        assert beside(tmp_path / "a" / "b" / "x") == []

    def test_an_empty_folder_is_taken(self, tmp_path):
        (tmp_path / "x").mkdir()
        assert quietly(rows(), tmp_path / "x", "npy")

    def test_files_that_are_there_are_kept(self, tmp_path, form):
        paths = quietly(rows(), tmp_path / "x", form)
        before = contents(paths)
        with pytest.raises(FileExistsError, match=r"has files in it already.*overwrite=True"):
            quietly(rows(5), tmp_path / "x", form)
        assert contents(paths) == before
        assert beside(tmp_path / "x") == []

    def test_they_are_replaced_where_that_is_asked_for(self, tmp_path, form):
        quietly(rows(), tmp_path / "x", form, samples_per_shard=1)
        paths = quietly(rows(5), tmp_path / "x", form, overwrite=True)
        assert sorted(paths) == sorted(str(each) for each in (tmp_path / "x").iterdir())
        assert beside(tmp_path / "x") == []

    def test_they_stay_where_the_new_ones_fail(self, tmp_path, form):
        paths = quietly(rows(), tmp_path / "x", form)
        before = contents(paths)

        def failing():
            yield from rows(200)()
            raise OSError("gone")

        with pytest.raises(OSError, match="gone"):
            quietly(failing, tmp_path / "x", form, overwrite=True, samples_per_shard=10)
        assert contents(paths) == before
        assert beside(tmp_path / "x") == []

    def test_a_folder_is_replaced_by_what_is_read_from_it(self, tmp_path):
        paths = quietly(arrays(np.arange(20)), tmp_path / "x", "npy", shards=4)
        paths = quietly(npy(paths), tmp_path / "x", "npy", shards=2, overwrite=True)
        assert [int(row) for row in npy(paths)()] == list(range(20))

    def test_other_files_are_never_deleted(self, tmp_path):
        (tmp_path / "x").mkdir()
        (tmp_path / "x" / "notes.txt").write_text("mine")
        with pytest.raises(
            FileExistsError, match=r"'notes.txt', which overwrite=True would delete"
        ):
            quietly(rows(), tmp_path / "x", "npy", overwrite=True)
        assert (tmp_path / "x" / "notes.txt").read_text() == "mine"

    def test_a_link_to_a_folder_stays_one(self, tmp_path):
        (tmp_path / "there").mkdir()
        (tmp_path / "x").symlink_to("there")
        quietly(rows(), tmp_path / "x", "npy")
        assert (tmp_path / "x").is_symlink()
        assert len(list((tmp_path / "there").iterdir())) == 2

    def test_two_at_once_are_refused(self, tmp_path):
        seen = []

        def reader():
            for number in range(300):
                if number == 200:
                    with pytest.raises(ReaderError, match="is writing to"):
                        quietly(rows(), tmp_path / "x", "npy")
                    seen.append(number)
                yield number

        assert len(quietly(reader, tmp_path / "x", "npy")) == 1
        assert seen == [200]

    def test_what_a_killed_program_left_is_removed(self, tmp_path):
        (tmp_path / ".x.writing").mkdir()
        (tmp_path / ".x.writing" / "0-7.part").write_text("half")
        (tmp_path / ".x.1.removed").mkdir()
        paths = quietly(rows(), tmp_path / "x", "npy")
        assert sorted(paths) == sorted(str(each) for each in (tmp_path / "x").iterdir())
        assert beside(tmp_path / "x") == []

    def test_what_it_was_about_to_replace_is_put_back(self, tmp_path):
        before = contents(quietly(rows(), tmp_path / "x", "npy"))
        (tmp_path / "x").rename(tmp_path / ".x.replaced")
        with pytest.raises(FileExistsError):
            quietly(rows(5), tmp_path / "x", "npy")
        assert contents((tmp_path / "x").iterdir()) == before


class TestErrors:
    @pytest.mark.parametrize("indexed", [True, False])
    def test_an_error_of_the_reader_leaves_nothing(self, tmp_path, form, indexed):
        def failing(sample):
            if sample["cls"] == 150:
                raise OSError("gone")
            return sample

        reader = Pipeline(rows(400)).map(failing)
        more = {"threads": 2, "samples_per_shard": 30}
        with pytest.raises(OSError, match="gone"):
            quietly(reader, tmp_path / "x", form, **more)
        assert list(tmp_path.iterdir()) == []

    def test_an_error_of_a_function_says_which_sample_it_is_of(self, tmp_path, form):
        def failing(sample):
            return pickle.dumps(sample) if sample["cls"] != 150 else 1 / 0

        with pytest.raises(ZeroDivisionError) as caught:
            quietly(rows(400), tmp_path / "x", "arrayrecord", encode=failing, threads=2)
        assert "raised by failing({'image.npy': " in "".join(caught.value.__notes__)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("wrong", [3, 130, 395])
    @pytest.mark.parametrize("threads", [1, 4])
    def test_the_first_sample_that_does_not_fit_is_named(self, tmp_path, form, wrong, threads):
        if form == "arrayrecord":
            good, bad = b"1", "text"
        elif form == "tar":
            good, bad = {"cls": 1}, {"cls": None}
        elif form in TOKENS:
            good, bad = np.arange(3), np.array([1, 70_000])
        else:
            good, bad = {"x": 1, "y": 2}, {"x": 1, "y": None}
        samples = [bad if n in (wrong, wrong + 4) else good for n in range(400)]
        more = {"threads": threads, "samples_per_shard": 3}
        with pytest.raises(FeedMismatch, match=rf"^sample {wrong} cannot be written as '{form}': "):
            write(lambda: samples, tmp_path / "x", form, progress=False, **more)
        assert list(tmp_path.iterdir()) == []

    def test_the_first_error_is_told_where_a_later_one_came_sooner(self, tmp_path, form):
        later = threading.Event()

        def encode(sample):
            number = int.from_bytes(sample)
            if number == 128:  # the first behind those that are looked at before
                assert later.wait(PATIENCE)
            if number in (29_999, 30_000):
                later.set()
                raise ValueError(f"sample {number}")
            if form in TOKENS:
                return [number]
            return sample if form == "arrayrecord" else {"x": number}

        samples = [number.to_bytes(4) for number in range(60_000)]
        more = {"encode": encode, "shards": 2, "threads": 2, "progress": False}
        with pytest.raises(ValueError, match="sample 29999"):
            write(jreader.source(samples), tmp_path / "x", form, **more)

    def test_no_samples_are_an_error(self, tmp_path, form):
        for reader in (list, rows(0)):
            with pytest.raises(ValueError, match="has no samples: nothing was written"):
                quietly(reader, tmp_path / "x", form)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        "reader",
        [
            Pipeline(arrays(np.arange(3))).epochs(),
            Pipeline(lambda: range(3)).epochs().map(abs).filter(abs),
        ],
    )
    def test_an_endless_reader_raises(self, tmp_path, reader):
        with pytest.raises(ValueError, match=r"has no end.*type \.firstn\(n\)"):
            quietly(reader, tmp_path / "x", "npy")
        assert len(quietly(reader.firstn(7), tmp_path / "x", "npy")) == 1

    def test_batches_are_an_error(self, tmp_path):
        with pytest.raises(TypeError, match=r"gives batches: leave \.batch\(n\) out"):
            quietly(Pipeline(rows()).batch(3), tmp_path / "x", "npy")

    @pytest.mark.parametrize(
        ("given", "error", "says"),
        [
            ({"reader": [1, 2]}, TypeError, "needs a reader"),
            ({"path": 7}, TypeError, "needs the name of a folder"),
            ({"path": ""}, TypeError, "needs the name of a folder"),
            ({"path": "train.npy"}, ValueError, "type 'train', with shards=1"),
            ({"path": "s3://bucket/x"}, ValueError, "is elsewhere"),
            ({"form": "hdf5"}, ValueError, "is one of .*nanogpt.*, not 'hdf5'"),
            ({"shards": 0}, ValueError, "shards of write"),
            ({"shards": 21}, ValueError, "has 20 samples: type samples_per_shard"),
            ({"reader": stream(), "shards": 2}, ValueError, "does not know its length"),
            ({"samples_per_shard": 1.5}, TypeError, "samples_per_shard of write"),
            ({"shards": 2, "samples_per_shard": 2}, TypeError, "not both"),
            ({"threads": 0}, ValueError, "threads of write"),
            ({"overwrite": "yes"}, TypeError, "overwrite of write"),
            ({"progress": 1}, TypeError, "progress of write"),
            ({"encode": 3}, TypeError, "encode of write"),
            ({"ragged": "x", "form": "parquet"}, TypeError, "list of names"),
            ({"ragged": ["x"]}, TypeError, "is for arrow, parquet: leave it out"),
            ({"dtype": "uint16"}, TypeError, "is for llmc, megatron, nanogpt: leave it out"),
            ({"eos": 0, "form": "parquet"}, TypeError, "is for llmc, megatron, nanogpt: leave"),
            ({"eos": 1.5, "form": "llmc"}, TypeError, "eos needs a whole number"),
            ({"eos": 70_000, "form": "llmc"}, ValueError, "dtype='uint16' with eos=70000"),
            (
                {"dtype": "int32", "form": "llmc"},
                ValueError,
                "dtype='uint16' or 'uint32'.* not dtype='int32'",
            ),
            (
                {"dtype": "uint32", "form": "megatron"},
                ValueError,
                "dtype='uint16' or 'int32'.* not dtype='uint32'",
            ),
            ({"dtype": "token", "form": "nanogpt"}, ValueError, "'uint32'.* not dtype='token'"),
            ({"path": "train.bin", "form": "nanogpt"}, ValueError, "type 'train'"),
            ({"path": "train.arrow", "form": "arrow"}, ValueError, "type 'train'"),
        ],
    )
    def test_a_wrong_argument_says_what_to_type(self, tmp_path, monkeypatch, given, error, says):
        monkeypatch.chdir(tmp_path)
        call = {"reader": rows(), "path": "x", "form": "npy", **given}
        with pytest.raises(error, match=says):
            quietly(**call)
        assert list(tmp_path.iterdir()) == []

    def test_a_file_is_no_folder(self, tmp_path):
        (tmp_path / "x").write_text("mine")
        with pytest.raises(FileExistsError, match="is a file"):
            quietly(rows(), tmp_path / "x", "npy", overwrite=True)


PARQUET = [
    ({"x": None}, "Parquet holds numbers, texts"),
    ({"x": 1 << 64}, "Parquet holds numbers, texts"),
    ({"x": np.zeros(2, ">f4")}, r"type \.astype\('<f4'\)"),
    ({"x": np.zeros(2, "M8[s]")}, r"type \.astype\('M8\[ms\]'\)"),
    ({"x": 1j}, "give its parts"),
    ({"x": np.array(["a"])}, "give a str"),
    ({"x": np.zeros((2, 0))}, "without values of a fixed shape"),
    ({"x": [1, 2]}, r"np\.asarray"),
    ({"x": np.datetime64("NaT", "ms")}, "has a NaT"),
    ({"x": "\ud800"}, "UTF-8 cannot encode"),
    ({5: 1}, "names that are texts"),
    ({"x": {}, "y": 1}, "no field"),
    ({}, "no fields"),
    ((1, 2), r"'image': sample\[0\]"),
    (7, "named columns"),
]
NPY = [
    ({"x": None}, "numbers, and arrays of one shape"),
    ("text", "numbers, and arrays of one shape"),
    (np.str_("text"), "numbers, and arrays of one shape"),
    ({"a/b": 1}, "rename the field"),
    ({"a.b": 1, "a": {"b": 2}}, "rename the field"),
    ({}, "no fields"),
]
TAR = [
    (b"bytes", "a dict of extensions"),
    ({"__key__": "a"}, "a dict of extensions"),
    ({"__key__": "a.b", "x": 1}, "without a dot"),
    ({"__key__": "a/", "x": 1}, "no folder"),
    ({"__key__": 5, "x": 1}, "no folder"),
    ({"__key__": "__meta__/a", "x": 1}, "which readers leave out"),
    ({"JPG": b""}, "is no extension"),
    ({"a/b": b""}, "is no extension"),
    ({3: b""}, "is no extension"),
    ({"x": None}, "fields are bytes"),
    ({"x": np.zeros(3)}, r"call it 'x\.npy'"),
    ({"x.npy": np.array([None])}, "arrays of numbers"),
    ({"x.json": {1, 2}}, "cannot be encoded"),
    ({"x": "\ud800"}, "cannot be encoded"),
]
RECORDS = [("text", r"encode=pickle\.dumps"), ({"x": 1}, r"encode=pickle\.dumps")]
ARROW = [
    ({"x": None}, "Arrow holds numbers, texts"),
    ({"x": np.zeros(2, "M8[h]")}, r"type \.astype\('M8\[ms\]'\)"),
    ((1, 2), "Arrow has named columns"),
    ({"x": {}, "y": 1}, "no field"),
    ({"x": "\ud800"}, "UTF-8 cannot encode"),
]
OF_TOKENS = [
    ({"ids": np.arange(3), "n": 1}, "name its field="),
    ("to be", r"tokenize it in a \.map\(fn\) before"),
    (None, "array of whole numbers"),
    (np.arange(4.0), "array of whole numbers"),
    (np.arange(4).reshape(2, 2), "with one axis"),
    ([[1], [2, 3]], "with one axis"),
    ([True], "array of whole numbers"),
    (3, "with one axis"),
    (np.array([1, 1 << 16]), "it has the token 65536, which does not fit uint16: type dtype="),
    ([5, -1], "it has the token -1, which does not fit uint16"),
    (np.zeros((0, 3), np.uint16), "with one axis"),
    (np.array([], np.uint16), r"not empty.* leave it out with \.filter\(len\)"),
]
REFUSED = {
    "npy": NPY,
    "tar": TAR,
    "parquet": PARQUET,
    "arrayrecord": RECORDS,
    "arrow": ARROW,
    **dict.fromkeys(TOKENS, OF_TOKENS),
}


@pytest.mark.parametrize(
    ("form", "sample", "says"),
    [(form, *case) for form in FORMATS for case in REFUSED[form]],
)
def test_what_a_format_cannot_hold_says_what_to_type(tmp_path, form, sample, says):
    if form in EXTRAS:
        pytest.importorskip(EXTRAS[form])
    with pytest.raises(FeedMismatch, match=f"sample 0 cannot be written as '{form}'.*{says}"):
        write(lambda: [sample], tmp_path / "x", form, progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("form", "second", "says"),
    [
        ("npy", {"x": 1.5, "y": "a"}, "the samples before it have the fields 'x'"),
        ("npy", {"x": 1.5}, r"field 'x' is 1.5, and in the samples before it int64\[\]"),
        ("npy", 3, "the samples before it have the fields 'x'"),
        ("parquet", {"x": np.int32(3)}, r"before it int64\[\]"),
        ("parquet", {"x": "a"}, "field 'x' is 'a'"),
        ("parquet", {"x": 1 << 63}, "field 'x' is 9223372036854775808"),
        ("arrow", {"x": np.int32(3)}, r"before it int64\[\]"),
    ],
)
def test_a_sample_that_is_not_like_the_first_is_named(tmp_path, form, second, says):
    pytest.importorskip("pyarrow")
    with pytest.raises(FeedMismatch, match=f"^sample 1 cannot be written.*{says}"):
        write(lambda: [{"x": 3}, second], tmp_path / "x", form, progress=False)


@pytest.mark.parametrize("form", TABLES)
def test_arrays_whose_lengths_begin_to_differ_late_are_declared(tmp_path, form):
    pytest.importorskip("pyarrow")

    def late():
        return ({"x": np.arange(3 if n < 200 else 4)} for n in range(300))

    with pytest.raises(FeedMismatch, match=r"^sample 200 .*Type ragged=\['x'\]"):
        write(late, tmp_path / "x", form, progress=False)
    more = {"ragged": ["x"], "progress": False, "samples_per_shard": 50}
    read = list(getattr(jreader, form)(write(late, tmp_path / "x", form, **more))())
    assert [len(sample["x"]) for sample in read] == [3] * 200 + [4] * 100


def test_ragged_names_fields_that_are_arrays(tmp_path):
    pytest.importorskip("pyarrow")
    for names, says in ((["y"], "the samples have the fields 'x'"), (["x"], "at least one axis")):
        with pytest.raises(FeedMismatch, match=says):
            write(lambda: [{"x": 1}], tmp_path / "x", "parquet", ragged=names, progress=False)


def test_ragged_columns_are_written_as_they_are(tmp_path):
    parquet = pytest.importorskip("pyarrow") and jreader.parquet
    words = arrays(ids=ragged(np.arange(6), [0, 3, 3, 6]), label=np.arange(3))
    paths = write(words, tmp_path / "x", "parquet", shards=3, progress=False)
    assert [sample["ids"].tolist() for sample in parquet(paths)()] == [[0, 1, 2], [], [3, 4, 5]]


def test_samples_of_a_tar_with_the_key_of_the_one_before_are_refused(tmp_path):
    samples = [{"__key__": "a", "x": 1}, {"__key__": "b", "x": 1}, {"__key__": "b", "x": 2}]
    with pytest.raises(FeedMismatch, match=r"^sample 2 .*read as one"):
        write(lambda: samples, tmp_path / "x", "tar", progress=False)


def test_what_tar_reads_is_written_again_as_it_was(tmp_path):
    paths = quietly(rows(), tmp_path / "x", "tar")
    again = quietly(tar(paths), tmp_path / "again" / "x", "tar")
    assert contents(again) == contents(paths)


def test_tar_is_what_others_read(tmp_path):
    (path,) = quietly(rows(3), tmp_path / "x", "tar")
    with tarfile.open(path) as archive:
        assert [(m.name, m.mode) for m in archive][:2] == [
            ("000000000.image.npy", 0o644),
            ("000000000.cls", 0o644),
        ]
        assert archive.extractfile("000000002.cls").read() == b"2"


def test_no_thread_is_left(tmp_path):
    before = threading.active_count()
    quietly(stream(), tmp_path / "x", "npy", threads=4, samples_per_shard=2)
    with pytest.raises(FeedMismatch):
        write(lambda: [1] * 200 + ["a"], tmp_path / "y", "npy", threads=4, progress=False)
    assert threading.active_count() == before


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    "plan", [lambda source: source, lambda source: Pipeline(source).map(lambda n: n).shuffle(8)]
)
def test_one_thread_draws_a_stream_that_runs_users_code(tmp_path, threads, plan):
    source, token = ThreadBound(400), told.set("the caller")
    try:
        write(plan(source), tmp_path / "x", "npy", threads=threads, samples_per_shard=7)
        with pytest.raises(ZeroDivisionError):
            write(plan(source), tmp_path / "y", "npy", threads=threads, encode=lambda n: 1 // n)
        with pytest.raises(ZeroDivisionError):
            write(
                plan(source),
                tmp_path / "y",
                "npy",
                threads=threads,
                encode=lambda n: 1 // (n - 300),
            )
        with pytest.raises(ValueError, match="has no samples"):
            write(lambda: (n for n in source() if n < 0), tmp_path / "y", "npy")
    finally:
        told.reset(token)
    source.check(passes=4, context="the caller")


def test_a_pipeline_writes_itself(tmp_path):
    paths = Pipeline(rows()).firstn(4).write(tmp_path / "x", "npy", shards=2, progress=False)
    assert [Path(path).name for path in paths][2:] == [
        "cls-00000-of-00002.npy",
        "cls-00001-of-00002.npy",
    ]


WRITING = """
import signal
import numpy as np
from jreader import write

def samples():
    for number in range(3000):
        if number % 10 == 0:
            print(number, flush=True)
        if number == LAST:
            signal.pause()  # it must not be done before it is killed
        yield {"x.npy": np.full(100, number), "cls": number}

write(samples, FOLDER, FORM, samples_per_shard=100, overwrite=True, progress=False, ENCODE)
print("done", flush=True)
"""


def options_of_script(form):
    if form in TOKENS:
        return "field='x.npy'"
    return "encode=__import__('pickle').dumps" if form == "arrayrecord" else ""


def script(folder, form, last=None):
    encode = options_of_script(form)
    given = WRITING.replace("FOLDER", repr(str(folder))).replace("FORM", repr(form))
    return given.replace("ENCODE", encode).replace("LAST", repr(last))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "before"),
    [*product(["arrayrecord", "npy", "parquet", "tar"], [False, True]), ("megatron", False)],
    indirect=["form"],
)
def test_a_program_that_is_killed_at_any_moment_leaves_what_there_was(tmp_path, form, before):
    folder = tmp_path / "x"
    old = contents(quietly(rows(), folder, form)) if before else {}
    for turn in range(3):
        lines = 5 + 120 * turn  # at another place each time
        with program(script(folder, form, last=10 * lines + 50)) as killed:
            for _ in range(lines):
                killed.says()
        there = contents(folder.iterdir()) if folder.exists() else {}
        assert there == old
    with program(script(folder, form)) as last:
        while last.says() != "done":
            pass
        assert last.ends()[0] == 0
    assert len(list(folder.iterdir())) == (30 if form in ("arrayrecord", "parquet", "tar") else 60)
    assert beside(folder) == []


MOMENTS = """
import os, signal, sys
import numpy as np
from jreader import arrays, write

left = MOMENT

def watched(event, given):
    global left
    if event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir"):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

print("begun", flush=True)
sys.addaudithook(watched)
write(arrays(np.arange(10)), FOLDER, "npy", shards=2, overwrite=True, progress=False)
print("done", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("before", [False, True])
def test_a_program_that_is_killed_at_each_change_of_names_leaves_the_old_or_the_new(
    tmp_path, before
):
    new = contents(quietly(arrays(np.arange(10)), tmp_path / "new" / "x", "npy", shards=2))
    for moment in count():
        folder = tmp_path / str(moment) / "x"
        old = contents(quietly(rows(), folder, "npy")) if before else {}
        text = MOMENTS.replace("MOMENT", str(moment)).replace("FOLDER", repr(str(folder)))
        with program(text) as killed:
            assert killed.says() == "begun"
            code, _ = killed.ends()
        if folder.exists():
            there = {name: data for name, data in contents(folder.iterdir()).items() if data}
            assert there in (old, new)
        else:
            kept = folder.with_name(".x.replaced")
            assert not before or contents(kept.iterdir()) == old
        assert (
            contents(quietly(arrays(np.arange(10)), folder, "npy", shards=2, overwrite=True)) == new
        )
        assert beside(folder) == []
        if code == 0:
            break
    assert moment > 3


FULL = """
import resource
import numpy as np
from jreader import arrays, write
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
rows = np.random.default_rng(0).integers(0, 256, (3000, 1 << 10)).astype(np.uint8)
samples = arrays(**{"x.npy": rows})
try:
    write(samples, %r, %r, progress=False, ENCODE)
except OSError as error:
    print(error, flush=True)
"""


@pytest.mark.parametrize(
    "form", ["arrayrecord", "arrow", "megatron", "npy", "tar"], indirect=True
)  # one of those that are written alike
def test_a_full_disk_is_an_error_that_says_so(tmp_path, form):
    text = FULL % (str(tmp_path / "x"), form)
    with program(text.replace("ENCODE", options_of_script(form))) as running:
        said = running.says()
        assert "no space is left for" in said
        assert "nothing of what was written is kept there" in said
        assert running.ends()[0] == 0
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing(tmp_path):
    def reader():
        for number in count():
            if number == 500:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            yield number

    with pytest.raises(KeyboardInterrupt):
        quietly(reader, tmp_path / "x", "npy", samples_per_shard=100)
    assert list(tmp_path.iterdir()) == []
