"""`npy` maps files, and `npz` reads archives of them."""

import os
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from files import is_mapped
from hypothesis import given
from hypothesis import strategies as st
from programs import PATIENCE
from samples import check_resumes_everywhere, everything
from widths import examples

from jreader import Pipeline, arrays, batch, chain, npy, npz, shuffle
from jreader.errors import DamagedData
from jreader.readers import op
from jreader.sources.columns import FileTable


@pytest.fixture(name="npy")
def npy_placed(placed):
    """For the tests that take it, files lie here and elsewhere."""
    return placed.reader(npy)


@pytest.fixture(name="npz")
def npz_placed(placed):
    """Likewise; an archive is read whole, so no store keeps parts of it."""
    placed.options = {}
    return placed.reader(npz)


def test_npy_files_are_mapped_and_side_by_side(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(3, 2))
    np.save(tmp_path / "y.npy", np.array([5, 0, 4]))
    reader = npy(tmp_path / "x.npy", str(tmp_path / "y.npy"))
    assert all(is_mapped(column) for column in reader.columns)
    assert [type(column) for column in reader.columns] == [np.ndarray] * 2
    assert everything(reader) == [[[0, 1], 5], [[2, 3], 0], [[4, 5], 4]]
    assert len(reader) == 3
    assert everything(npy(tmp_path / "y.npy")) == [5, 0, 4]
    check_resumes_everywhere(reader)


class TestShards:
    """Files that are one array: a list, a pattern or a folder of them."""

    def test_they_are_read_as_one_array_from_any_place_on(self, npy, tmp_path):
        @examples(40)
        @given(
            sizes=st.lists(st.integers(0, 4), min_size=2, max_size=4),
            seed=st.integers(0, 9),
            size=st.integers(1, 5),
        )
        def law(sizes, seed, size):
            folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            whole, begin = np.arange(sum(sizes) * 2).reshape(-1, 2), 0
            for number, rows in enumerate(sizes):
                np.save(folder / f"x-{number}.npy", whole[begin : begin + rows])
                begin += rows
            paths = [folder / f"x-{number}.npy" for number in range(len(sizes))]
            for given_as in (paths, f"{folder}/x-*.npy", f"{folder}/"):
                reader = npy(given_as)
                assert everything(reader) == whole.tolist()
                check_resumes_everywhere(reader)
            dealt, held = (
                [each.columns.tolist() for each in batch(shuffle(reader, seed=seed), size)()]
                for reader in (npy(paths), arrays(whole))
            )
            assert dealt == held

        law()

    def test_several_arrays_of_several_files_are_side_by_side(self, tmp_path):
        for number, rows in enumerate([2, 3]):
            np.save(tmp_path / f"x-{number}.npy", np.full((rows, 2), number))
            np.save(tmp_path / f"y-{number}.npy", np.full(rows, 10 + number))
        reader = npy(f"{tmp_path}/x-*", f"{tmp_path}/y-*")
        assert everything(reader) == [[[0, 0], 10]] * 2 + [[[1, 1], 11]] * 3
        names = [[str(tmp_path / f"{name}-{number}.npy") for number in (0, 1)] for name in "xy"]
        assert repr(reader) == f"npy({names[0]!r}, {names[1]!r})"
        loader = Pipeline(reader).shuffle(seed=0).batch(5).load(sharding="host")
        assert {where.path for where in loader.samples(0).files[0]} == set(names[0])
        with pytest.raises(DamagedData, match=r"needs columns of one length, not int64\[5, 2\]"):
            len(npy(names[0], names[1][0]))

    def test_one_of_other_rows_than_the_first_is_named(self, npy, tmp_path):
        for name, array in (
            ("a", np.zeros((2, 3))),
            ("b", np.zeros((2, 4))),
            ("c", np.zeros(3, int)),
        ):
            np.save(tmp_path / f"{name}.npy", array)
        for name, said in (("b", r"float64\[2, 4\]"), ("c", r"int64\[3\]")):
            with pytest.raises(DamagedData, match=rf"{name}\.npy has {said}, and the first shard"):
                len(npy([tmp_path / "a.npy", tmp_path / f"{name}.npy"]))

    def test_one_that_is_cut_or_gone_is_named(self, tmp_path):
        for name in ("a", "b"):
            np.save(tmp_path / f"{name}.npy", np.arange(500))
        reader = npy(tmp_path)
        assert len(everything(reader)) == 1000
        os.truncate(tmp_path / "b.npy", 300)
        with pytest.raises(DamagedData, match=r"b\.npy had .* and has 300 now"):
            list(reader())
        with pytest.raises(DamagedData, match=r"b\.npy is truncated"):
            list(npy(tmp_path)())


def test_rows_of_any_shape_are_those_of_the_array_one_by_one_and_in_batches(npy, tmp_path):
    for number, array in enumerate(
        (np.arange(24.0).reshape(4, 3, 2), np.zeros((3, 0)), np.arange(5, dtype=">i4"))
    ):
        np.save(tmp_path / f"{number}.npy", array)
        reader = npy(tmp_path / f"{number}.npy")
        assert everything(reader) == array.tolist()
        check_resumes_everywhere(reader)
        dealt, held = (
            [each.columns.tolist() for each in batch(shuffle(each, seed=1), 2)()]
            for each in (reader, arrays(array))
        )
        assert dealt == held
        both = chain(reader, arrays(array))
        assert everything(both) == array.tolist() * 2


def test_a_change_of_the_file_is_seen_through_the_map(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    reader = npy(tmp_path / "x.npy")
    assert everything(reader) == [0, 0, 0]
    np.lib.format.open_memmap(tmp_path / "x.npy", "r+")[1] = 7
    assert everything(reader) == [0, 7, 0]


def test_rows_of_a_npy_file_cannot_be_written_to(npy, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    with pytest.raises(ValueError, match="read-only"):
        next(npy(tmp_path / "x.npy")())[:] = 1


def test_an_empty_npy_file_of_no_rows_is_an_empty_reader(npy, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((0, 28)))
    assert everything(npy(tmp_path / "x.npy")) == []


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([None, {}]), "Python objects"),
        (np.array(3), "axis of rows, not 3"),
    ],
)
def test_npy_files_without_rows_of_numbers_are_refused(npy, array, message, tmp_path):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(DamagedData, match=message):
        list(npy(tmp_path / "x.npy")())


@pytest.mark.parametrize("kept", range(0, 140, 3))
def test_a_npy_file_truncated_anywhere_is_named(npy, kept, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(2))  # a header of 128 bytes, and 16 of numbers
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:kept])
    with pytest.raises(DamagedData, match=r"x\.npy is truncated"):
        list(npy(tmp_path / "x.npy")())


@pytest.mark.parametrize(
    "header", [b"{", b"{'descr': ('<i8'", b"if 1:\n    2\n  3\n", b"{}", b"\xff", b"[" * 9000]
)
def test_a_npy_file_whose_header_cannot_be_parsed_is_named(npy, header, tmp_path):
    head = b"\x93NUMPY\1\0" + struct.pack("<H", len(header))
    (tmp_path / "x.npy").write_bytes(head + header)
    with pytest.raises(DamagedData, match=r"x\.npy is truncated, or not a \.npy file"):
        npy(tmp_path / "x.npy")()


def test_files_of_unequal_length_are_refused_with_both_lengths(npy, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    np.save(tmp_path / "y.npy", np.zeros(4))
    with pytest.raises(DamagedData, match=r"x\.npy.*y\.npy.*float64\[3\] and float64\[4\]"):
        npy(tmp_path / "x.npy", tmp_path / "y.npy")()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_gives_all_arrays_by_name_or_some_by_place(npz, save, tmp_path):
    save(tmp_path / "d.npz", image=np.arange(4).reshape(2, 2), label=np.array([7, 8]))
    path = tmp_path / "d.npz"
    assert everything(npz(path))[1] == {"image": [2, 3], "label": 8}
    assert everything(npz(path, "label", "image")) == [[7, [0, 1]], [8, [2, 3]]]
    assert type(next(npz(path, "label", "image")())) is tuple
    assert everything(npz(path, "label")) == [7, 8]
    assert repr(npz(path, "label")).endswith("d.npz', 'label')")
    for names in ((), ("label",), ("label", "image")):
        check_resumes_everywhere(npz(path, *names))


def test_a_name_that_is_not_in_the_archive_is_refused_with_those_that_are(tmp_path):
    np.savez(tmp_path / "d.npz", image=np.zeros(2), label=np.zeros(2))
    with pytest.raises(ValueError, match=r"'imge'.* 'image', 'label'"):
        npz(tmp_path / "d.npz", "imge", "label")()
    with pytest.raises(TypeError, match="needs names of arrays, not 3"):
        npz(tmp_path / "d.npz", 3)


def test_an_archive_of_nothing_or_of_objects_is_refused(tmp_path):
    np.savez(tmp_path / "none.npz")
    np.savez(tmp_path / "objects.npz", np.array([None]))
    with pytest.raises(DamagedData, match="needs at least one column"):
        npz(tmp_path / "none.npz")()
    with pytest.raises(DamagedData, match="Object arrays"):
        npz(tmp_path / "objects.npz")()


def test_an_archive_truncated_or_changed_anywhere_is_named(npz, tmp_path):
    path = tmp_path / "d.npz"
    np.savez(path, image=np.arange(64))
    whole = path.read_bytes()
    for kept in range(0, len(whole), 41):
        path.write_bytes(whole[:kept])
        with pytest.raises(DamagedData, match=r"d\.npz is truncated"):
            npz(path)()
    path.write_bytes(whole[:300] + b"\xff" + whole[301:])
    with pytest.raises(DamagedData, match="CRC"):
        npz(path)()


def test_one_is_opened_while_a_file_of_another_format_still_is(tmp_path):
    """In Python 3.11, what is cached at the first use has one lock for all instances."""
    begun, go_on = threading.Event(), threading.Event()

    @op
    class slow(FileTable):
        paths: tuple = ()

        def opened(self):
            begun.set()
            assert go_on.wait(PATIENCE)
            return np.arange(3)

    np.save(tmp_path / "a.npy", np.arange(4))
    with ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(lambda: len(slow((str(tmp_path / "a.npy"),))))
        assert begun.wait(PATIENCE)
        quick = threads.submit(lambda: len(npy(tmp_path / "a.npy")))
        try:
            assert quick.result(PATIENCE / 5) == 4
        finally:
            go_on.set()
        assert waiting.result(PATIENCE) == 3


def test_an_array_in_fortrans_order_is_read_here_and_copied_from_elsewhere(npy, tmp_path):
    np.save(tmp_path / "x.npy", np.asfortranarray(np.arange(6).reshape(3, 2)))
    assert everything(npy(tmp_path / "x.npy")) == [[0, 1], [2, 3], [4, 5]]
