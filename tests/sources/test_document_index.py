"""The index of documents: where they end in a file of tokens is found once, and kept."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from token_writers import DOCUMENTS, FLAT, flat, listed, megatron

from jreader import Pipeline, tokens
from jreader.sources.files.index_cache import save_index
from jreader.sources.files.set_indices import MANY

pytestmark = pytest.mark.usefixtures("cache")


class TestTheIndexOfDocuments:
    def test_the_index_is_stored_and_read_again(self, tmp_path, cache):
        path = flat(tmp_path / "a.bin")
        assert listed(tokens(path, eos=0)) == DOCUMENTS
        (kept,) = cache.iterdir()
        np.testing.assert_array_equal(np.load(kept), [0, 3, 5, 6, 9])
        save_index(kept, np.array([0, 4, 9]))  # to see that it is what is read
        assert listed(tokens(path, eos=0)) == [FLAT[:4], FLAT[4:]]

    def test_each_eos_and_dtype_has_its_own(self, tmp_path, cache):
        path = flat(tmp_path / "a.bin", [1, 0, 2, 0])
        for eos, dtype in ((0, "uint16"), (2, "uint16"), (0, "int16"), (0, "uint16")):
            list(tokens(path, dtype, eos)())
        assert len(list(cache.iterdir())) == 3

    def test_a_file_that_changed_makes_it_anew_in_place_of_the_old(self, tmp_path, cache):
        path = flat(tmp_path / "a.bin")
        assert listed(tokens(path, eos=0)) == DOCUMENTS
        flat(path, [4, 0, *FLAT])
        assert listed(tokens(path, eos=0)) == [[4, 0], *DOCUMENTS]
        times = path.stat()
        flat(path, [4, 4, *FLAT])  # of the same size
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 1))
        assert listed(tokens(path, eos=0)) == [[4, 4, *DOCUMENTS[0]], *DOCUMENTS[1:]]
        assert len(list(cache.iterdir())) == 1

    @pytest.mark.parametrize(
        "broken", [b"", b"\x93NUMPY", b"not an index", bytes(500)], ids=range(4)
    )
    def test_one_that_is_not_whole_is_made_anew(self, tmp_path, cache, broken):
        path = flat(tmp_path / "a.bin")
        list(tokens(path, eos=0)())
        (kept,) = cache.iterdir()
        whole = kept.read_bytes()
        for content in (broken, whole[:-8]):
            kept.write_bytes(content)
            assert listed(tokens(path, eos=0)) == DOCUMENTS
            assert kept.read_bytes() == whole

    def test_one_for_another_number_of_tokens_is_made_anew(self, tmp_path, cache):
        path = flat(tmp_path / "a.bin")
        list(tokens(path, eos=0)())
        (kept,) = cache.iterdir()
        save_index(kept, np.array([0, 3, 5]))
        assert listed(tokens(path, eos=0)) == DOCUMENTS

    def test_a_folder_that_cannot_be_written_is_no_error(self, tmp_path, cache):
        cache.parent.mkdir(parents=True)
        cache.write_text("a file where the folder should be")
        assert listed(tokens(flat(tmp_path / "a.bin"), eos=0)) == DOCUMENTS
        assert cache.read_text().startswith("a file")

    def test_nothing_is_written_without_eos(self, tmp_path, cache):
        list(tokens([flat(tmp_path / "a.bin"), megatron(tmp_path / "b")])())
        assert not cache.exists()

    def test_it_is_right_over_the_borders_of_parts_that_are_searched_alone(self, tmp_path):
        """Some 50 MB: a part is 16 MB."""
        values = np.ones(25_000_001, np.uint16)
        ends = [0, 1, 2**23 - 1, 2**23, 2**23 + 1, 2**24 - 1, 25_000_000]
        values[ends] = 0
        values.tofile(tmp_path / "a.bin")
        found = tokens(tmp_path / "a.bin", eos=0).columns.offsets
        assert found.tolist() == [0, *(end + 1 for end in ends)]

    @pytest.mark.parametrize("number", range(3))
    def test_random_files_are_split_as_python_splits_them(self, placed, tmp_path, number):
        values = np.random.default_rng(number).integers(0, 5, 500).tolist()
        ends = [0, *(at + 1 for at, value in enumerate(values) if value == 0)]
        ends += [len(values)] if ends[-1] < len(values) else []
        expected = [values[low:high] for low, high in pairwise(ends)]
        read = placed.reader(tokens)
        assert listed(read(flat(tmp_path / "a.bin", values), eos=0)) == expected

    def test_it_is_not_kept_of_what_is_soon_looked_through(self, tmp_path, cache, monkeypatch):
        monkeypatch.undo()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        assert listed(tokens(flat(tmp_path / "a.bin"), eos=0)) == DOCUMENTS
        assert not cache.exists()

    def test_those_of_many_files_hold_no_file_open(self, tmp_path, cache):
        paths = [flat(tmp_path / f"{number}.bin") for number in range(40)]
        descriptors = Path("/proc/self/fd")
        before = len(list(descriptors.iterdir()))
        for _ in range(2):
            reader = tokens(paths, eos=0)
            assert len(reader) == 160
        assert len(list(descriptors.iterdir())) <= before + 2
        assert len(list(cache.iterdir())) == 40

    def test_processes_that_make_it_at_once_do_not_disturb_each_other(self, tmp_path, cache):
        np.random.default_rng(0).integers(0, 9, 10**7).astype(np.uint16).tofile(tmp_path / "a.bin")
        path = str(tmp_path / "a.bin")
        expected = len(tokens(path, eos=0))
        for kept in cache.iterdir():
            kept.unlink()
        counts = Pipeline(lambda: range(8)).map(lambda _: len(tokens(path, eos=0)), processes=4)
        assert list(counts) == [expected] * 8
        assert len(list(cache.iterdir())) == 1

    @pytest.mark.slow
    def test_a_process_that_is_killed_while_it_makes_one_does_no_harm(
        self, tmp_path, cache, python
    ):
        np.random.default_rng(0).integers(0, 3, 10**7).astype(np.uint16).tofile(tmp_path / "a.bin")
        script = """
            import os, signal, threading
            from jreader import tokens
            threading.Timer({seconds}, os.kill, (os.getpid(), signal.SIGKILL)).start()
            while True:
                len(tokens("a.bin", eos=0))
                for kept in os.listdir("{cache}"):
                    os.unlink(f"{cache}/{{kept}}")
        """
        for seconds in (0.1, 0.15, 0.2, 0.3):
            text = script.format(seconds=seconds, cache=cache)
            assert python(text, cwd=tmp_path, check=False).returncode == -signal.SIGKILL
            reader = tokens(tmp_path / "a.bin", eos=0)
            assert len(reader) == len(tokens(tmp_path / "a.bin", eos=0)) > 3 * 10**6


class TestManyFiles:
    @pytest.fixture(params=["flat", "npy", "llmc"])
    def folder(self, request, tmp_path):
        """Files of a few tokens each, in one layout."""
        folder = tmp_path / "many"
        folder.mkdir()
        for number in range(MANY + 3):
            ids = np.arange(1 + number % 7, dtype=np.uint16) + number % 3
            if request.param == "npy":
                np.save(folder / f"{number:04}.npy", ids)
                continue
            head = np.zeros(256, np.int32)
            head[:3] = 20240520, 1, len(ids)
            before = head.tobytes() if request.param == "llmc" else b""
            (folder / f"{number:04}.bin").write_bytes(before + ids.tobytes())
        return folder

    @pytest.mark.parametrize("eos", [None, 2])
    def test_they_have_one_index_and_the_documents_of_few(self, folder, cache, monkeypatch, eos):
        every = [[document.tolist() for document in tokens(folder, eos=eos)()] for _ in range(2)]
        (kept,) = cache.with_name("sets").iterdir()
        written = kept.stat().st_mtime_ns
        windows = [each.tolist() for each in Pipeline(tokens(folder, eos=eos)).windows(4)]
        monkeypatch.setattr("jreader.sources.files.file_readers.MANY", 10**6)
        assert every == [[document.tolist() for document in tokens(folder, eos=eos)()]] * 2
        assert windows == [each.tolist() for each in Pipeline(tokens(folder, eos=eos)).windows(4)]
        assert kept.stat().st_mtime_ns == written
