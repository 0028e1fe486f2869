"""Columns whose rows overlap travel as the array that they lie over."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from jreader import Pipeline, arrays, firstn, multiprocess_reader
from jreader._worker.pickling import collect_large, pickled_for_worker

TOKENS = np.arange(1_000_000, dtype=np.uint32)
WINDOWS = sliding_window_view(TOKENS, 20_000)  # of 78 GB, if they were copied
ROW = np.arange(12.0).reshape(3, 4)
FRAMES = np.arange(2_000.0)

OVERLAPPING = {
    "windows": sliding_window_view(FRAMES, 500),
    "windows backwards": sliding_window_view(FRAMES, 500)[::-1, ::-1],
    "strided windows": sliding_window_view(FRAMES, 500)[::3, ::2],
    "windows of windows": sliding_window_view(FRAMES[:600].reshape(100, 6), (50, 3)),
    "one row for all": np.broadcast_to(ROW, (1_000, 3, 4)),
    "one value a row": np.broadcast_to(ROW[:, :1, None], (3, 1_000, 40)),
    "windows of a field": sliding_window_view(
        np.array([(1, n) for n in range(2_000)], [("flag", "u1"), ("n", ">i4")])["n"], 500
    ),
    "structures": np.broadcast_to(np.array([(1, 2.0)], [("a", "i2"), ("b", "f8")]), (9, 1_000)),
    "dates": np.broadcast_to(np.array("2026-11-21", "M8[D]"), (1_000, 4)),
}


@pytest.mark.parametrize("shape", OVERLAPPING)
def test_what_overlaps_is_sent_as_the_bytes_below_and_comes_back_equal(shape):
    column = OVERLAPPING[shape]
    for taken in (None, []):
        data = pickled_for_worker(
            {"column": column}, taken if taken is None else collect_large(taken)
        )
        buffers = taken or []
        assert len(data) + sum(buffer.raw().nbytes for buffer in buffers) < column.nbytes / 4
        back = pickle.loads(data, buffers=buffers)["column"]  # our own
        assert back.dtype == column.dtype
        assert not back.flags.writeable
        np.testing.assert_array_equal(back, column)


@pytest.mark.parametrize("column", [TOKENS[::2], TOKENS[::-1], ROW.T, ROW[:, 1:3], ROW[:0]])
def test_what_does_not_overlap_is_sent_as_ever(column):
    back = pickle.loads(pickled_for_worker(column))  # our own
    np.testing.assert_array_equal(back, column)
    assert back.flags.writeable


def test_a_reader_of_windows_is_read_in_another_process():
    reader = multiprocess_reader([firstn(arrays(WINDOWS), 3)])
    assert [row[:2].tolist() for row in reader()] == [[0, 1], [1, 2], [2, 3]]


def test_a_function_that_holds_windows_travels_to_processes():
    windows = WINDOWS
    numbers = Pipeline(arrays(np.arange(4)))
    map_memory = numbers.map(lambda n: windows[100_000 * n, -1], processes=1)
    assert [int(last) for last in map_memory] == [19_999, 119_999, 219_999, 319_999]
