"""Files of token ids: each layout byte by byte, documents, and damage."""

from __future__ import annotations

import json
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from samples import everything
from token_writers import DOCUMENTS, FLAT, flat, listed, llmc, megatron, npy

import jreader
from jreader import Pipeline, chain, tokens
from jreader.errors import DamagedData
from jreader.readers import indexed
from jreader.readers.ragged import lengths_of

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture(name="tokens")
def tokens_placed(placed):
    """For the tests that take it, files lie here and elsewhere."""
    return placed.reader(tokens)


class TestLayouts:
    def test_a_flat_file_is_one_document(self, tokens, tmp_path):
        assert listed(tokens(flat(tmp_path / "a.bin"))) == [FLAT]

    def test_a_flat_file_is_split_after_eos(self, tokens, tmp_path):
        assert listed(tokens(flat(tmp_path / "a.bin"), eos=0)) == DOCUMENTS

    def test_a_file_that_ends_with_eos_has_no_empty_document_behind_it(self, tokens, tmp_path):
        assert listed(tokens(flat(tmp_path / "a.bin", [1, 0, 2, 0]), eos=0)) == [[1, 0], [2, 0]]

    def test_a_file_without_eos_is_one_document(self, tokens, tmp_path):
        assert listed(tokens(flat(tmp_path / "a.bin"), eos=77)) == [FLAT]

    def test_the_header_of_llmc_is_not_read_as_tokens(self, tokens, tmp_path):
        assert listed(tokens(llmc(tmp_path / "a.bin"))) == [FLAT]
        big = llmc(tmp_path / "b.bin", [1, 100_000], version=7, magic=20240801, code="I")
        assert listed(tokens(big, dtype="uint32")) == [[1, 100_000]]

    def test_files_of_llmc_are_split_before_eos_which_leads_documents_there(self, tokens, tmp_path):
        path = llmc(tmp_path / "a.bin", [9, 9, 0, 5, 6, 0, 7])
        assert listed(tokens(path, eos=0)) == [[9, 9], [0, 5, 6], [0, 7]]
        assert listed(tokens(llmc(tmp_path / "b.bin", [0, 5, 0]), eos=0)) == [[0, 5], [0]]

    @pytest.mark.parametrize("modes", [False, True])
    @pytest.mark.parametrize("marked", [False, True])
    def test_an_idx_says_where_documents_are(self, tokens, tmp_path, modes, marked):
        path = megatron(tmp_path / "a", modes=modes and marked, marked=marked)
        assert listed(tokens(path)) == DOCUMENTS

    def test_a_document_of_megatron_may_have_several_sequences_or_none(self, tokens, tmp_path):
        path = megatron(tmp_path / "a")
        idx = path.with_suffix(".idx").read_bytes()
        marks = struct.pack("<5q", 0, 2, 2, 3, 4)
        path.with_suffix(".idx").write_bytes(idx[: -len(marks)] + marks)
        assert listed(tokens(path)) == [[5, 6, 0, 7, 0], [], [0], [8, 9, 300]]

    def test_other_dtypes(self, tokens, tmp_path):
        path = megatron(tmp_path / "a", [[1, 70_000], [-1]], code=(4, "i"))
        assert listed(tokens(path, dtype=np.int32)) == [[1, 70_000], [-1]]
        (document,) = tokens(npy(tmp_path / "b.npy", [1, 2], "<i8"), dtype="int64")()
        assert document.dtype == np.int64
        assert document.tolist() == [1, 2]

    def test_npy_is_read_and_split(self, tokens, tmp_path):
        assert listed(tokens(npy(tmp_path / "a.npy"))) == [FLAT]
        assert listed(tokens(npy(tmp_path / "a.npy"), eos=0)) == DOCUMENTS

    def test_many_files_are_one_reader_and_no_document_goes_on_in_the_next(self, tokens, tmp_path):
        paths = [flat(tmp_path / "a.bin"), npy(tmp_path / "b.npy"), megatron(tmp_path / "c")]
        reader = tokens(paths, eos=0)
        assert len(reader) == 12
        assert listed(reader) == DOCUMENTS * 3
        plane = indexed(reader)
        assert lengths_of(plane).tolist() == [len(document) for document in DOCUMENTS * 3]
        assert [each.tolist() for each in plane.take(np.array([11, 0, 4]))] == [
            DOCUMENTS[3],
            DOCUMENTS[0],
            DOCUMENTS[0],
        ]


class TestPaths:
    @pytest.fixture
    def folder(self, tmp_path):
        folder = tmp_path / "data"
        folder.mkdir()
        flat(folder / "b_1.bin", [3])
        flat(folder / "a_2.bin", [2])
        flat(folder / "a_1.bin", [1])
        (folder / "notes.txt").write_text("no tokens")
        return folder

    def test_a_folder_is_its_files_in_order(self, tokens, folder):
        assert listed(tokens(f"{folder}/")) == [[1], [2], [3]]

    def test_a_pattern_is_its_files_in_order(self, tokens, folder):
        assert listed(tokens(f"{folder}/a_*.bin")) == [[1], [2]]
        assert listed(tokens(f"{folder.parent}/**/?_1.bin")) == [[1], [3]]

    def test_a_list_is_read_as_it_is_written(self, tokens, folder):
        paths = [folder / "b_1.bin", f"{folder}/a_*", folder / "b_1.bin"]
        assert listed(tokens(paths)) == [[3], [1], [2], [3]]

    def test_either_file_of_megatron_or_their_common_name_will_do(self, tokens, tmp_path):
        path = megatron(tmp_path / "corpus_text_document")
        for given in (path, path.with_suffix(".idx"), path.with_suffix(""), f"{tmp_path}/corpus*"):
            assert listed(tokens(given)) == DOCUMENTS

    def test_both_files_of_megatron_in_a_list_are_read_once(self, tmp_path):
        path = megatron(tmp_path / "a")
        index = path.with_suffix(".idx")
        for given in ([path, index], [str(index), str(path)], [index]):
            assert listed(tokens(given)) == DOCUMENTS

    @pytest.mark.parametrize("given", ["absent.bin", "*.bin", "", "absent.idx"])
    def test_what_names_no_file_is_an_error_where_it_is_written(self, tmp_path, monkeypatch, given):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(FileNotFoundError, match="tokens"):
            tokens(given)

    def test_a_folder_without_tokens_is_an_error(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"finds no file in .*a pattern such as"):
            tokens(tmp_path)

    def test_other_arguments_are_errors(self, tmp_path):
        path = flat(tmp_path / "a.bin")
        with pytest.raises(ValueError, match="integer dtype"):
            tokens(path, dtype="float32")
        with pytest.raises(ValueError, match="eos=70000 does not fit uint16"):
            tokens(path, eos=70_000)
        with pytest.raises(TypeError, match="eos of tokens"):
            tokens(path, eos="</s>")
        with pytest.raises(TypeError, match="a str or a path"):
            tokens([5])
        with pytest.raises(TypeError, match="at least one path"):
            tokens([])

    def test_it_is_printed_as_it_can_be_typed(self, folder):
        path = f"{folder}/a_1.bin"
        assert repr(tokens(path)) == f"tokens({path!r})"
        assert repr(tokens(path, "int32", eos=2)) == f"tokens({path!r}, dtype='int32', eos=2)"
        many = tokens([path] * 9)
        assert repr(many) == f"tokens([{path!r}, ..., {path!r}])"

    def test_building_it_opens_nothing(self, tokens, tmp_path):
        (tmp_path / "a.bin").write_bytes(b"1")
        reader = tokens(tmp_path / "a.bin", eos=0)
        with pytest.raises(DamagedData):
            len(reader)


def cut(path, by=1):
    os.truncate(path, path.stat().st_size - by)
    return path


def patched(path, at, content):
    bytes_ = bytearray(path.read_bytes())
    bytes_[at : at + len(content)] = content
    path.write_bytes(bytes_)
    return path


def idx_of(path):
    return path.with_suffix(".idx")


DAMAGED = {
    "an empty file": (lambda p: flat(p / "a.bin", []), "a.bin.*it is empty"),
    "half a token": (lambda p: cut(flat(p / "a.bin")), "so the token at byte 16 is not whole"),
    "gzip": (
        lambda p: patched(flat(p / "a.bin"), 0, b"\x1f\x8b\x08\0"),
        "it is a gzip file: unpack it",
    ),
    "npy of floats": (lambda p: cut(npy(p / "a.npy"), 2), "it has 144 bytes, and with 9 tokens"),
    "npy of two axes": (
        lambda p: patched(npy(p / "a.npy"), 10, b"{'descr': '<u2', 'fortran_order': 0, 'shape': "),
        "is truncated, or not a .npy file of one axis",
    ),
    "llm.c cut": (lambda p: cut(llmc(p / "a.bin"), 2), "byte 8 says 9 tokens it would have 1,042"),
    "llm.c of a later version": (lambda p: llmc(p / "a.bin", version=2), "byte 4 says version 2"),
    "llm.c without tokens": (lambda p: llmc(p / "a.bin", []), "says that it has 0 tokens"),
    "a bin that is too short": (
        lambda p: cut(megatron(p / "a"), 2),
        "a.bin is truncated, or not the .bin of .*a.idx: it has 8 tokens, not 9",
    ),
    "an idx that was cut": (
        lambda p: (path := megatron(p / "a"), cut(idx_of(path)))[0],
        "a.idx is truncated.*has 121 bytes, and with 4 sequences and 5 marks .* have 122",
    ),
    "another idx": (
        lambda p: (path := megatron(p / "a"), patched(idx_of(path), 0, b"TNTIDX"))[0],
        r"a.idx .*begins with the bytes \[54 4e 54 49 44 58 58 00 00\]",
    ),
    "an idx of a later version": (
        lambda p: (path := megatron(p / "a"), patched(idx_of(path), 9, b"\2"))[0],
        "byte 9 says version 2, not 1",
    ),
    "an idx of floats": (lambda p: megatron(p / "a", code=(7, "f")), "byte 17 has 7"),
    "sequences that overlap": (
        lambda p: (path := megatron(p / "a"), patched(idx_of(path), 34 + 16 + 8, b"\4"))[0],
        "sequence 1 has 2 tokens from byte 4 on, and those before end at 6",
    ),
    "documents out of order": (
        lambda p: (path := megatron(p / "a"), patched(idx_of(path), 82 + 8, b"\3"))[0],
        "documents do not go from sequence 0 to 4 in order",
    ),
}


def _arrow(stream):
    pa = pytest.importorskip("pyarrow")
    table, out = pa.table({"ids": [[1, 2], [3]]}), pa.BufferOutputStream()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue().to_pybytes()


def _safetensors():
    head = json.dumps({"x": {"dtype": "U16", "shape": [9], "data_offsets": [0, 18]}}).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + bytes(18)


FOREIGN = {
    "safetensors": (_safetensors, "a safetensors file: load it"),
    "Arrow": (lambda: _arrow(stream=False), r"an Arrow file: type arrow\(path\)"),
    "Arrow's stream": (lambda: _arrow(stream=True), r"an Arrow file: type arrow\(path\)"),
    "text": (lambda: "Größe und mehr Text, ohne Token.".encode() * 300, "text: read it with text"),
    "JSON": (lambda: json.dumps([*range(50)]).encode(), "text: read it with text"),
    **{
        f"pickle {protocol}": (
            lambda protocol=protocol: pickle.dumps(np.arange(9, dtype=np.uint16), protocol),
            "a pickle: load it",
        )
        for protocol in range(2, 6)
    },
}


class TestOtherFormats:
    @pytest.mark.parametrize("name", FOREIGN)
    def test_they_are_no_tokens_whatever_their_name(self, tokens, name, tmp_path):
        make, says = FOREIGN[name]
        content = make()
        (tmp_path / "a.bin").write_bytes(content + bytes(len(content) % 2 * ("pickle" not in name)))
        with pytest.raises(DamagedData, match=rf"a\.bin is truncated, or not .*: it is {says}"):
            list(tokens(tmp_path / "a.bin")())

    @pytest.mark.parametrize("suffix", ["safetensors", "arrow", "pkl", "txt", "pt", "parquet"])
    def test_their_suffixes_say_it_too(self, tokens, suffix, tmp_path):
        with pytest.raises(DamagedData, match=r"of uint16 tokens: it is"):
            list(tokens(flat(tmp_path / f"a.{suffix}"))())

    def test_text_is_tokens_of_a_byte_each_where_that_is_said(self, tokens, tmp_path):
        (tmp_path / "a.txt").write_text("letters " * 100)
        assert listed(tokens(tmp_path / "a.txt", dtype="uint8")) == [[*(b"letters " * 100)]]

    def test_tokens_are_tokens_whatever_they_begin_with(self, tokens, tmp_path):
        rng = np.random.default_rng(0)
        for number in range(300):
            first = [[0x0280], [0x0480], [0xFFFF] * 2, [0x227B] * 9, [0x4150], []][number % 6]
            every = [*first, *rng.integers(0, 50_257, 40).tolist()]
            assert listed(tokens(flat(tmp_path / "a.bin", every))) == [every]


class TestDamage:
    @pytest.mark.parametrize("name", DAMAGED)
    def test_damage_names_the_file_and_the_place(self, tokens, name, tmp_path):
        make, says = DAMAGED[name]
        with pytest.raises(DamagedData, match=says):
            list(tokens(make(tmp_path))())

    @pytest.mark.parametrize(
        "make",
        [
            lambda path: npy(path / "a.npy", dtype="<i4"),
            lambda path: megatron(path / "a", code=(4, "i")),
            lambda path: llmc(path / "a", version=7, magic=20240801, code="I"),
        ],
    )
    def test_a_file_of_another_dtype_says_what_to_type(self, tokens, make, tmp_path):
        with pytest.raises(ValueError, match=r"a.* type tokens\(\.\.\., dtype='u?int32'\)"):
            list(tokens(make(tmp_path))())

    def test_a_file_that_shrinks_or_is_replaced_is_found_when_a_pass_begins(self, tmp_path):
        reader = tokens([flat(tmp_path / "a.bin"), flat(tmp_path / "b.bin")])
        assert len(everything(reader)) == 2
        cut(tmp_path / "b.bin", 2)
        for again in (reader, Pipeline(reader).shuffle(seed=0), Pipeline(reader).windows(3)):
            with pytest.raises(DamagedData, match=r"b\.bin had 18 bytes, and has 16 now"):
                list(again())

    def test_an_idx_that_is_replaced_is_found_too(self, tmp_path):
        reader = tokens(megatron(tmp_path / "a"))
        list(reader())
        cut(tmp_path / "a.idx")
        with pytest.raises(DamagedData, match=r"a\.idx had 122 bytes"):
            list(reader())

    def test_a_file_that_is_gone_before_it_is_mapped_is_an_error(self, tmp_path):
        reader = tokens([flat(tmp_path / "a.bin"), flat(tmp_path / "b.bin")])
        documents = reader()
        (tmp_path / "a.bin").unlink()
        cut(tmp_path / "b.bin", 2)
        with pytest.raises(DamagedData, match=r"a\.bin cannot be found any more"):
            next(documents)
        with pytest.raises(DamagedData, match=r"b\.bin had 18 bytes, and has 16 now"):
            reader.columns.gather(np.array([1]))


def target(descriptor):
    try:
        return str(descriptor.readlink())
    except FileNotFoundError:  # that of the listing itself
        return ""


class TestSize:
    def test_a_thousand_files_of_ten_billion_tokens_begin_without_being_opened(self, tmp_path):
        """Sparse files: what is not written takes no room on the disk."""
        for number in range(1000):
            with (tmp_path / f"{number:04}.bin").open("wb") as file:
                file.truncate(2 * 10**7)
        plan = Pipeline(tokens(tmp_path)).windows(1025, stride=1024).shuffle(seed=0).batch(32)
        batch = plan.peek()
        assert batch.columns.shape == (32, 1025)
        assert len(plan.reader.reader) == (10**10 - 1025) // 1024 + 1
        mapped = Path("/proc/self/maps").read_text().count(str(tmp_path))
        opened = sum(str(tmp_path) in each for each in map(target, Path("/proc/self/fd").iterdir()))
        assert 0 < mapped + opened <= 64  # windows of a batch lie in so many files at the most

    def test_more_files_than_may_be_open_are_read(self, tmp_path, monkeypatch):
        monkeypatch.setattr("jreader.sources.files.byte_ranges._OPEN", 3)
        paths = [flat(tmp_path / f"{number}.bin", [number] * 5) for number in range(9)]
        reader = tokens(paths)
        kept = [next(documents) for documents in [reader()] for _ in range(9)]
        assert [document.tolist() for document in kept] == [[number] * 5 for number in range(9)]
        dealt = Pipeline(reader).windows(5).shuffle(seed=1).batch(4)
        assert sorted(int(row[0]) for rows in dealt for row in rows) == list(range(9))

    @pytest.mark.parametrize("resident", [0, 1 << 28], ids=["large", "small"])
    def test_a_file_that_is_replaced_in_the_middle_of_a_pass_is_not_mixed_with_the_new_one(
        self, tmp_path, monkeypatch, resident
    ):
        """Neither one that is opened later, nor one that has to be opened again."""
        monkeypatch.setattr("jreader.sources.files.byte_ranges._OPEN", 3)
        monkeypatch.setattr("jreader.sources.lazy_maps._MAX_RESIDENT", resident)
        paths = [flat(tmp_path / f"{number}.bin", [0] * 5) for number in range(5)]
        plan = Pipeline(tokens(paths)).windows(5)
        assert all(not window.any() for window in plan)  # so that some were open before
        for pipeline in (plan, Pipeline(tokens(paths)).windows(5)):
            samples = iter(pipeline)
            given = [next(samples)]
            for path in paths:
                flat(tmp_path / "new", [7] * 5).rename(path)
            with pytest.raises(DamagedData, match=r"\.bin was replaced by another file"):
                given.extend(samples)
            assert all(not window.any() for window in given)
            for path in paths:
                flat(path, [0] * 5)

    @pytest.mark.parametrize("dtype", ["uint16", "int32"])
    @pytest.mark.parametrize("open_at_once", [2, 256])
    def test_files_that_may_not_all_be_resident_are_read_the_same(
        self, tmp_path, monkeypatch, dtype, open_at_once
    ):
        """Small pieces are read, others are mapped; blocks of 8 bytes here, pieces below 20."""
        drawn = np.random.default_rng(0).integers(0, 1000, 500).astype(dtype)
        paths = [tmp_path / f"{number}.bin" for number in range(5)]
        for path, part in zip(paths, np.split(drawn, [1, 100, 101, 350]), strict=True):
            part.tofile(path)
        plain = tokens(paths, dtype, eos=7)
        expected = [document.copy() for document in plain()]
        monkeypatch.setattr("jreader.sources.lazy_maps._MAX_RESIDENT", 0)
        monkeypatch.setattr("jreader.sources.lazy_maps._BLOCK", 8)
        monkeypatch.setattr("jreader.sources.lazy_maps._SMALL", 20)
        monkeypatch.setattr("jreader.sources.files.byte_ranges._OPEN", open_at_once)
        reader = tokens(paths, dtype, eos=7)
        assert [document.tolist() for document in reader()] == [x.tolist() for x in expected]
        assert not any(document.flags.writeable for document in reader() if len(document))
        order = np.random.default_rng(1).permutation(len(expected))
        for one, number in zip(indexed(reader).take(order), order, strict=True):
            np.testing.assert_array_equal(one, expected[number])
        cut = Pipeline(reader).windows(9, stride=4)
        begins = range(0, len(drawn) - 8, 4)
        assert [x.tolist() for x in cut] == [drawn[at : at + 9].tolist() for at in begins]
        (dealt,) = cut.shuffle(seed=1).batch(len(begins))
        assert sorted(dealt.columns.tolist()) == sorted(
            drawn[at : at + 9].tolist() for at in begins
        )

    def test_a_file_that_is_cut_in_the_middle_of_a_pass_is_an_error(self, tmp_path, monkeypatch):
        monkeypatch.setattr("jreader.sources.lazy_maps._MAX_RESIDENT", 0)
        path = flat(tmp_path / "a.bin", list(range(1000)))
        for plan in (
            Pipeline(tokens(path)).windows(10),
            Pipeline(tokens(path)).windows(10).batch(9),
        ):
            samples = iter(plan)
            next(samples)
            cut(path, 400)
            with pytest.raises(DamagedData, match=r"had 2,000 bytes, and has 1,600 now"):
                list(samples)
            flat(path, list(range(1000)))

    @pytest.mark.slow
    def test_resident_memory_does_not_grow_with_what_was_read(self, tmp_path, python):
        """1 GB, as documents, and as windows in order and shuffled."""
        with (tmp_path / "a.bin").open("wb") as file:
            for _ in range(32):
                file.write(bytes(1 << 25))
        script = """
            import numpy as np
            from jreader import Pipeline, ragged, tokens

            def resident():
                for line in open("/proc/self/status"):
                    if line.startswith("VmRSS"):
                        return int(line.split()[1]) >> 10

            reader = tokens("a.bin")
            before = resident()
            kept, total = [], 0
            windows = Pipeline(reader).windows(1025, stride=1024)
            for number, batch in enumerate(windows.batch(64)):
                total += int(batch.columns[:, 0].sum())
                if number % 1000 == 0:
                    kept.append(batch.columns)
            print(resident() - before)
            for batch in windows.shuffle(seed=0).batch(64):
                total += int(batch.columns[0, 0])
            print(resident() - before)
            documents = reader.columns
            documents.offsets = np.arange(0, 2**29 + 1, 2**16)
            for document in documents.each(np.arange(len(documents))):
                total += int(document.sum())
                kept.append(document)
            print(resident() - before)
            assert not any(each.any() for each in kept[::99])
        """
        grown = [int(line) for line in python(script, cwd=tmp_path).stdout.split()]
        assert max(grown) < 450, grown


def test_a_plan_over_files_travels_and_goes_on(tmp_path):
    path = flat(tmp_path / "a.bin", list(range(100)))
    loader = Pipeline(tokens(path)).windows(5).shuffle(seed=1).batch(4).load(sharding="host")
    feeds = loader.steps(10)
    first = [next(feeds).tolist() for _ in range(3)]
    rest = (
        Pipeline(tokens(path))
        .windows(5)
        .shuffle(seed=1)
        .batch(4)
        .load(sharding="host")
        .steps(10, at=feeds.cursor)
    )
    again = [feed.tolist() for feed in loader.steps(10, at=None)]
    assert len(again) == 10
    assert first + [feed.tolist() for feed in rest] == again


def test_chain_of_many_files_reads_none_of_them_into_memory(tmp_path):
    one = tokens([flat(tmp_path / "a.bin"), flat(tmp_path / "b.bin", [1, 2])])
    both = chain(one, tokens(flat(tmp_path / "c.bin", [3])))
    assert listed(both) == [FLAT, [1, 2], [3]]
    assert len(indexed(both).columns.values.parts) == 3
    assert [window.tolist() for window in jreader.windows(both, 4)()] == [
        FLAT[:4],
        FLAT[4:8],
        [300, 1, 2, 3],
    ]


def test_a_loader_names_the_files_and_bytes_of_a_step(tmp_path):
    paths = [megatron(tmp_path / "a"), llmc(tmp_path / "b.bin"), npy(tmp_path / "c.npy")]
    loader = Pipeline(tokens(paths)).windows(4).batch(3).load(sharding="host")
    assert [tuple(where) for step in range(2) for where in loader.samples(step).files] == [
        (str(paths[0]), 0),
        (str(paths[0]), 8),
        (str(paths[0]), 16),
        (str(paths[1]), 1024 + 6),
        (str(paths[1]), 1024 + 14),
        (str(paths[2]), 128 + 4),
    ]
    documents = Pipeline(tokens(paths)).batch(2).map_batches(list, stacked=False)
    assert documents.load(sharding="host").samples(0).files[1] == (str(paths[0]), 6)


def test_files_are_named_where_windows_of_several_readers_are_chained_and_mixed(tmp_path):
    one, other = (
        Pipeline(tokens(flat(tmp_path / f"{name}.bin"))).windows(3) for name in ("one", "other")
    )
    both = one.chain(other).batch(6).load(sharding="host")
    assert [(Path(path).stem, offset) for path, offset in both.samples(0).files] == [
        *(("one", offset) for offset in (0, 6, 12)),
        *(("other", offset) for offset in (0, 6, 12)),
    ]
    mixed = one.mix(other, seed=0).batch(4).load(sharding="host")
    told = mixed.samples(0)
    stems = [Path(path).stem for path, _ in told.files]
    assert stems == [("one", "other")[source] for source in told.sources]
    assert sorted(stems) == ["one", "one", "other", "other"]
