"""Files of tokens: what trainers read of them, byte by byte, and what `tokens` gives back."""

import struct
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_writers import DOCUMENTS, FLAT, listed, llmc, megatron
from token_writers import flat as nanogpt
from widths import examples

from jreader import FeedMismatch, Pipeline, arrays, ragged, tokens, write

FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None  # many short lives of files
WIDE = {"llmc": "uint32", "megatron": "int32", "nanogpt": "uint32"}
EOS = 7


def documents(many=DOCUMENTS, dtype=np.int64):
    return Pipeline(lambda: [np.array(each, dtype) for each in many])


def written(reader, folder, form, **more):
    return write(reader, folder / "x", form, progress=False, **more)


class TestLayouts:
    """Against writers of each layout that share nothing with ours (`helpers/token_writers.py`)."""

    def test_nanogpt_has_tokens_and_nothing_else(self, tmp_path):
        (path,) = written(documents(), tmp_path, "nanogpt")
        assert Path(path).read_bytes() == nanogpt(tmp_path / "y").read_bytes()
        assert np.memmap(path, dtype=np.uint16, mode="r").tolist() == FLAT  # as its train.py reads

    def test_llmc_has_a_header(self, tmp_path):
        (path,) = written(documents(), tmp_path, "llmc")
        assert Path(path).read_bytes() == llmc(tmp_path / "y").read_bytes()

    def test_llmc_of_llama_has_another_header(self, tmp_path):
        many = [[1, 128_000], [2]]
        (path,) = written(documents(many), tmp_path, "llmc", dtype=np.uint32)
        like = llmc(tmp_path / "y", [1, 128_000, 2], version=7, magic=20240801, code="I")
        assert Path(path).read_bytes() == like.read_bytes()

    @pytest.mark.parametrize(("dtype", "code"), [("uint16", (8, "H")), ("int32", (4, "i"))])
    def test_megatron_has_an_idx(self, tmp_path, dtype, code):
        path, index = written(documents(), tmp_path, "megatron", dtype=dtype)
        like = megatron(tmp_path / "y", code=code)
        assert Path(path).read_bytes() == like.read_bytes()
        assert Path(index).read_bytes() == like.with_suffix(".idx").read_bytes()

    def test_each_shard_of_megatron_has_its_own(self, tmp_path):
        paths = written(documents(), tmp_path, "megatron", samples_per_shard=3, threads=2)
        names = ["00000-of-00002.bin", "00001-of-00002.bin", "00000-of-00002.idx"]
        assert [Path(path).name for path in paths] == [f"x-{name}" for name in names] + [
            "x-00001-of-00002.idx"
        ]
        assert listed(tokens(paths[1])) == DOCUMENTS[3:]


class TestEnds:
    @pytest.mark.parametrize("form", ["nanogpt", "megatron"])
    def test_eos_ends_documents_that_do_not_end_with_it(self, tmp_path, form):
        path = written(documents([[1, 2], [3, 0], [0], [0, 4]]), tmp_path, form, eos=0)[0]
        assert listed(tokens(path, eos=0)) == (
            [[1, 2, 0], [3, 0], [0], [0, 4, 0]]
            if form == "megatron"
            else [[1, 2, 0], [3, 0], [0], [0], [4, 0]]
        )

    def test_eos_leads_documents_in_llmc(self, tmp_path):
        (path,) = written(documents([[1, 2], [0, 3], [4]]), tmp_path, "llmc", eos=0)
        assert listed(tokens(path, eos=0)) == [[0, 1, 2], [0, 3], [0, 4]]

    @pytest.mark.parametrize("form", WIDE)
    def test_what_was_read_with_eos_is_written_as_it_was(self, tmp_path, form):
        one = written(documents([[1, 2], [3], [4, 5]]), tmp_path / "a", form, eos=0)
        other = written(tokens(one, eos=0), tmp_path / "b", form, eos=0)
        same = [Path(path).read_bytes() for path in one]
        assert [Path(path).read_bytes() for path in other] == same


class TestSamples:
    @pytest.mark.parametrize("form", WIDE)
    def test_a_field_of_dicts_is_written(self, tmp_path, form):
        values = np.array(FLAT)
        offsets = np.cumsum([0, *map(len, DOCUMENTS)])
        indexed = arrays(ids=ragged(values, offsets), n=np.arange(4))
        streamed = Pipeline(indexed).filter(lambda sample: True)
        plain = written(documents(), tmp_path / "a", form)
        for place, reader in enumerate((indexed, streamed)):
            again = written(reader, tmp_path / str(place), form, field="ids", threads=2)
            for one, other in zip(plain, again, strict=True):
                assert Path(one).read_bytes() == Path(other).read_bytes()

    def test_a_member_of_tuples_is_written(self, tmp_path):
        pairs = Pipeline(lambda: [(n, [n, n + 1]) for n in range(3)])
        assert listed(tokens(written(pairs, tmp_path, "megatron", field=1))) == [
            [0, 1],
            [1, 2],
            [2, 3],
        ]

    def test_a_field_that_is_missing_is_named(self, tmp_path):
        with pytest.raises(KeyError, match="ids") as caught:
            written(Pipeline(lambda: [{"text": "to be"}]), tmp_path, "llmc", field="ids")
        assert "'text': 'to be'" in "".join(caught.value.__notes__)

    def test_windows_are_documents(self, tmp_path):
        rows = Pipeline(arrays(np.arange(12, dtype=np.uint16).reshape(3, 4)))
        assert (
            listed(tokens(written(rows, tmp_path, "megatron")))
            == np.arange(12).reshape(3, 4).tolist()
        )

    @pytest.mark.parametrize("kind", [np.uint64, np.int32, np.int64])
    def test_tokens_that_do_not_fit_are_refused_and_never_wrapped(self, tmp_path, kind):
        good, most = np.arange(3), np.iinfo(kind).max
        wrong = np.array([1, most, 2], kind)
        for form, wide in WIDE.items():
            for dtype in ("uint16", wide) if kind != np.int32 or wide != "int32" else ("uint16",):
                if most <= np.iinfo(dtype).max:
                    continue
                how = f"type dtype='{wide}'" if most <= np.iinfo(wide).max else "mend it"
                with pytest.raises(
                    FeedMismatch, match=rf"^sample 201 .* does not fit {dtype}: {how}"
                ):
                    written(lambda: [good] * 201 + [wrong], tmp_path, form, dtype=dtype)
                assert list(tmp_path.iterdir()) == []

    def test_a_minus_one_fits_int32_alone(self, tmp_path):
        reader = documents([[1, -1]])
        for form, dtype in (("megatron", "uint16"), ("llmc", "uint32"), ("nanogpt", "uint16")):
            with pytest.raises(FeedMismatch, match=f"token -1, which does not fit {dtype}"):
                written(reader, tmp_path, form, dtype=dtype)
        paths = written(reader, tmp_path, "megatron", dtype="int32")
        assert listed(tokens(paths, dtype="int32")) == [[1, -1]]

    @pytest.mark.parametrize("form", ["llmc", "megatron"])
    def test_more_tokens_than_a_header_counts_are_refused(self, tmp_path, form, monkeypatch):
        monkeypatch.setattr("jreader.sinks.token_shards._MOST", 5)
        assert written(documents([[1, 2, 3, 4, 5]]), tmp_path / "a", form)
        with pytest.raises(FeedMismatch, match="samples_per_shard"):
            written(documents([[1, 2, 3, 4, 5, 6]]), tmp_path / "b", form)
        assert written(documents([[1] * 6]), tmp_path / "c", "nanogpt")


kinds = st.sampled_from(["u1", "i2", "u2", "i4", "u4", "i8", "u8", ">u2", ">i4"])


@st.composite
def corpora(draw):
    """A format, the dtype of its files, an `eos` or none, and documents of several dtypes."""
    form = draw(st.sampled_from([*WIDE]))
    dtype = draw(st.sampled_from(["uint16", WIDE[form]]))
    eos = draw(st.none() | st.just(EOS))
    many = []
    for kind in draw(st.lists(kinds, min_size=1, max_size=8)):
        both = [np.iinfo(dtype), np.iinfo(kind)]
        low, high = max(info.min for info in both), min(info.max for info in both)
        token = st.integers(int(low), int(high)).filter(lambda token: token != EOS)
        many.append(np.array(draw(st.lists(token, min_size=1, max_size=6)), kind))
    return form, dtype, eos, many


def ended(document, form, eos):
    if eos is None:
        return document.tolist()
    return [eos, *document.tolist()] if form == "llmc" else [*document.tolist(), eos]


@given(corpora(), st.integers(1, 4), st.integers(1, 3), st.booleans())
@examples(200)
def test_tokens_gives_back_every_document_bit_by_bit(corpus, each, threads, filtered):
    form, dtype, eos, many = corpus
    reader = Pipeline(lambda: many).filter(lambda _: True) if filtered else lambda: many
    with TemporaryDirectory(dir=FAST) as folder:
        more = {"samples_per_shard": each, "threads": threads}
        paths = written(reader, Path(folder), form, dtype=dtype, eos=eos, **more)
        found = list(tokens(paths, dtype=dtype, eos=eos)())
        assert all(document.dtype == dtype for document in found)
        expected = [ended(document, form, eos) for document in many]
        if form != "megatron" and eos is None:  # each file is one document
            parts = [expected[low : low + each] for low in range(0, len(expected), each)]
            expected = [[token for document in part for token in document] for part in parts]
        assert [document.tolist() for document in found] == expected


def read_as_published(path):
    """The sequences of documents of Megatron, read by the layout that its `_IndexWriter` writes."""
    data = Path(path).with_suffix(".idx").read_bytes()
    assert data[:9] == b"MMIDIDX\0\0"
    version, code, sequences, marks = struct.unpack_from("<QBQQ", data, 9)
    assert version == 1
    kind = {4: np.int32, 8: np.uint16}[code]
    sizes = np.frombuffer(data, np.int32, sequences, 34)
    pointers = np.frombuffer(data, np.int64, sequences, 34 + sizes.nbytes)
    indices = np.frombuffer(data, np.int64, marks, 34 + sizes.nbytes + pointers.nbytes)
    assert len(data) == 34 + sizes.nbytes + pointers.nbytes + indices.nbytes
    held = Path(path).read_bytes()
    found = [
        np.frombuffer(held, kind, size, at).tolist()
        for size, at in zip(sizes, pointers, strict=True)
    ]
    return [
        [token for each in found[low:high] for token in each] for low, high in pairwise(indices)
    ]


@given(st.lists(st.lists(st.integers(0, 65_535), min_size=1, max_size=6), min_size=1, max_size=8))
@examples(100)
def test_megatron_is_read_by_its_published_layout(many):
    with TemporaryDirectory(dir=FAST) as folder:
        path, _ = written(documents(many), Path(folder), "megatron")
        assert read_as_published(path) == many


def test_megatrons_own_reader_reads_what_is_written(tmp_path):
    module = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    for dtype in ("uint16", "int32"):
        path, _ = written(documents(), tmp_path / dtype, "megatron", dtype=dtype)
        for mmap in (True, False):
            found = module.IndexedDataset(path.removesuffix(".bin"), mmap=mmap)
            assert [each.tolist() for each in found] == DOCUMENTS
            assert found.document_indices.tolist() == [0, 1, 2, 3, 4]
            assert found[0].dtype == dtype
