"""Columns of any layout: the samples are those of `column[rows]`, and no batch costs the column."""

from __future__ import annotations

import tracemalloc

import jax
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from widths import few

from jreader import FeedMismatch, Pipeline, arrays, as_function, batch, chain, data, shuffle
from jreader.readers import indexed

COUNT = 40


def _swapped(array):
    return array.astype(array.dtype.newbyteorder())


def _unaligned(array):
    """The same values, beginning at an odd byte."""
    room = np.empty(array.nbytes + 1, np.uint8)
    moved = room[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


def _field(array):
    """One field of a packed structure, whose rows are neither together nor aligned."""
    packed = np.zeros(array.shape, [("flag", np.uint8), ("value", array.dtype)])
    packed["value"] = array
    return packed["value"]


def _mapped(array, path, order):
    made = np.lib.format.open_memmap(
        path, "w+", array.dtype, array.shape, fortran_order=order == "F"
    )
    made[...] = array
    made.flush()
    return np.load(path, mmap_mode="r")


def _stored(array, *axes):
    """The array, its axes in another order in memory."""
    return np.ascontiguousarray(array.transpose(axes)).transpose(np.argsort(axes))


def _read_only(array):
    view = array.view()
    view.flags.writeable = False
    return view


LAYOUTS = {
    "C": lambda array: array,
    "Fortran": np.asfortranarray,
    "axes of rows turned": lambda array: _stored(array, 0, *range(array.ndim - 1, 0, -1)),
    "rows innermost": lambda array: _stored(array, *range(1, array.ndim), 0),
    "every other row": lambda array: np.repeat(array, 2, axis=0)[::2],
    "every other column": lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
    "reversed": lambda array: np.ascontiguousarray(array[::-1])[::-1],
    "reversed rows": lambda array: np.ascontiguousarray(array[..., ::-1])[..., ::-1],
    "one row for all": lambda array: np.broadcast_to(array[:1], array.shape),
    "one value a row": lambda array: np.broadcast_to(array[..., :1], array.shape),
    "read-only": _read_only,
    "bytes swapped": _swapped,
    "unaligned": _unaligned,
    "a field of a structure": _field,
}  # fmt: skip
DTYPES = [
    "bool", "uint8", "int64", "float16", "float32", "complex64", "U3", "S2", "M8[s]", "m8[ms]",
    [("a", "i4"), ("b", "f8", 2)], "O",
]  # fmt: skip
SHAPES = [(), (3,), (1,), (2, 3), (2, 1, 3), (0,), (2, 0)]


def _values(count, shape, dtype):
    drawn = np.random.default_rng(0).integers(0, 100, (count, *shape))
    if isinstance(dtype, list):
        made = np.zeros(drawn.shape, dtype)
        made["a"], made["b"] = drawn, drawn[..., None] * [1, 2]
        return made
    return drawn.astype(dtype)


def _as_asked(column):
    """Batches of a shuffled column, and the same rows asked of NumPy."""
    plan = shuffle(arrays(column), seed=1)
    (rows,) = indexed(plan).rows(np.arange(len(column)))
    batches = [samples.columns for samples in batch(plan, 16)()]
    return batches, [column[rows[low : low + 16]] for low in range(0, len(rows), 16)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_batches_of_any_layout_are_the_rows_asked_for(layout, dtype):
    if (layout, dtype) == ("unaligned", "O"):
        pytest.skip("objects are always aligned")
    for shape in SHAPES:
        if not shape and layout in ("every other column", "reversed rows", "one value a row"):
            continue
        for count in (COUNT, 1, 0):
            column = LAYOUTS[layout](_values(count, shape, dtype))
            batches, expected = _as_asked(column)
            assert len(batches) == len(expected)
            for given, wanted in zip(batches, expected, strict=True):
                assert given.dtype == wanted.dtype
                np.testing.assert_array_equal(given, wanted)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("width", [1, 5, 3000])
def test_batches_of_mapped_files_are_the_rows_asked_for(tmp_path, order, width):
    column = _mapped(_values(COUNT, (width,), "float32"), tmp_path / "rows.npy", order)
    for view in (column, column[::-1], column[:, ::2], sliding_window_view(column, 3, axis=0)):
        batches, expected = _as_asked(view)
        for given, wanted in zip(batches, expected, strict=True):
            np.testing.assert_array_equal(given, wanted)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_chained_columns_of_any_layout_give_the_rows_asked_for(layout):
    parts = [LAYOUTS[layout](_values(count, (2, 3), "int32")) for count in (COUNT, 3, 30)]
    order = shuffle(chain(*map(arrays, parts)), seed=1)
    whole = np.concatenate(parts)
    (rows,) = indexed(order).rows(np.arange(len(whole)))
    for size in (5, 50):
        batches = [samples.columns for samples in batch(order, size)()]
        for low, given in zip(range(0, len(rows), size), batches, strict=True):
            np.testing.assert_array_equal(given, whole[rows[low : low + size]])


def test_a_batch_lies_in_memory_as_the_rows_of_its_column_do():
    pixels = np.zeros((COUNT, 3, 8, 8), np.uint8).transpose(0, 2, 3, 1)
    (samples,) = batch(arrays(pixels), COUNT)()
    assert samples.columns.strides == pixels.strides


ROWS = 20_000  # of 1 KB: what a batch of 16 needs is a thousandth of it


def _large(layout):
    values = np.zeros((ROWS, 16, 16), np.float32)
    if layout == "windows":
        return sliding_window_view(np.arange(ROWS + 255, dtype=np.float32), 256)
    if layout == "windows of their own":
        return as_strided(values, (ROWS, 16, 16), (64, 64, 4), writeable=False)
    return LAYOUTS[layout](values)


@pytest.mark.parametrize("layout", [*LAYOUTS, "windows", "windows of their own"])
@pytest.mark.parametrize("chained", [False, True], ids=["alone", "chained"])
def test_no_batch_copies_a_column_whole(layout, chained):
    column = _large(layout)
    reader = arrays(column)
    if chained:
        reader = chain(reader, arrays(column[:50]))
    # all is imported, and the order begun, before it is measured
    batches = batch(shuffle(reader, 64, seed=0), 16)()
    next(batches)
    tracemalloc.start()
    try:
        next(batches)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < column.nbytes / 20


TOKENS = np.arange(3_000, dtype=np.int64) * 7 % 1_000
FRAMES = np.arange(600.0, dtype=np.float32).reshape(100, 6)
FEW = ("of rows", "every third")  # and in CI of all
WINDOWS = {
    "sliding": sliding_window_view(TOKENS, 500),
    "backwards": sliding_window_view(TOKENS, 500)[::-1, ::-1],
    "every third": sliding_window_view(TOKENS, 500)[::3],
    "of rows": sliding_window_view(FRAMES, (20, 6)).reshape(81, 20, 6),
    "of rows and columns": sliding_window_view(FRAMES, (20, 3)),
    "one row for all": np.broadcast_to(FRAMES[0], (500, 6)),
}


class TestOnDevices:
    """Windows lie on the devices as the array below them."""

    def pipeline(self, column):
        return Pipeline(arrays(x=column, n=np.arange(len(column)))).shuffle(seed=0).batch(8)

    @pytest.mark.parametrize("name", few(WINDOWS, FEW))
    def test_what_overlaps_is_gathered_from_what_lies_below(self, name):
        column = WINDOWS[name]
        placed, batch_at = as_function(self.pipeline(column))
        assert placed["x"].nbytes < column.nbytes / 8 or name == "of rows"
        feeds = list(self.pipeline(column).load(last="drop"))
        assert len(batch_at) == len(feeds)
        for step in range(len(feeds)):
            traced = jax.jit(batch_at)(placed, 0, step)
            for field, expected in feeds[step].items():
                assert traced[field].dtype == expected.dtype
                np.testing.assert_array_equal(traced[field], expected)

    @pytest.mark.parametrize("name", few(WINDOWS, FEW))
    def test_a_resident_loader_feeds_them(self, name):
        pipeline = self.pipeline(WINDOWS[name])
        for target in (None, jax.sharding.Mesh(jax.local_devices()[:2], "data")):
            resident = pipeline.load(resident=True, sharding=target, last="drop")
            for feed, expected in zip(resident, pipeline.load(last="drop"), strict=True):
                np.testing.assert_array_equal(feed["x"], expected["x"])

    def test_values_are_looked_at_before(self):
        wide = sliding_window_view(TOKENS + 2**40, 500)
        with pytest.raises(FeedMismatch, match="int32 cannot hold"):
            as_function(self.pipeline(wide))
        with pytest.raises(FeedMismatch, match="uint8 cannot hold"):
            as_function(
                self.pipeline(WINDOWS["sliding"]),
                [data("x", [None, 500], "uint8"), data("n", [None], "int32")],
            )

    def test_what_has_to_be_written_row_by_row_is_told(self):
        windows = sliding_window_view(np.arange(40_000, dtype=np.float32), 2_000)[:16_000]
        mesh = jax.sharding.Mesh(jax.local_devices()[:2], "data")
        pipeline = Pipeline(arrays(windows)).batch(8)
        with pytest.warns(UserWarning, match="its rows overlap"):
            placed, batch_at = as_function(pipeline, sharding=mesh)
        assert placed.shape == windows.shape
        np.testing.assert_array_equal(jax.jit(batch_at)(placed, 0, 3), windows[24:32])
