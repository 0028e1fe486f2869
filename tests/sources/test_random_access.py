"""`source`: any data set as a reader, one by one or in batches."""

import re
from collections import UserDict

import numpy as np
import pytest
from samples import everything
from seen import canonical

import jreader
from jreader import Columns, DataLoader, Pipeline, source
from jreader.readers import map_tree


class Squares:
    """Numbers, of which one may go wrong."""

    def __init__(self, error=None):
        self.error = error

    def __len__(self):
        return 10

    def __getitem__(self, index):
        if self.error and index == 5:
            raise self.error
        return index * index


@pytest.mark.parametrize("make", [source, lambda data: jreader.shuffle(source(data), seed=1)])
@pytest.mark.parametrize("above", [lambda reader: reader, lambda reader: jreader.batch(reader, 4)])
def test_a_stop_iteration_of_the_data_is_an_error_not_the_end(make, above):
    with pytest.raises(RuntimeError, match="StopIteration"):
        everything(above(make(Squares(StopIteration()))))


@pytest.mark.parametrize("batched", [False, True])
def test_a_loader_takes_it_for_a_data_set(batched):
    data = np.arange(10) ** 2 if batched else Squares()
    loader = DataLoader(source(data, batched=batched), batch_size=4)
    assert [feed.tolist() for feed in loader] == [[0, 1, 4, 9], [16, 25, 36, 49], [64, 81]]
    loader = DataLoader(source(data, batched=batched), batch_sampler=[[-1, 0], [3]])
    assert [feed.tolist() for feed in loader] == [[81, 0], [9]]


class Columnar(Squares):
    """Gives columns, with as many rows as it is told, or with several numbers of them."""

    def __init__(self, *lengths):
        self.lengths = lengths

    def __getitem__(self, rows):
        return {f"x{length}": np.zeros(length) for length in self.lengths}


@pytest.mark.parametrize("lengths", [(3,), (3, 3), (4, 3), ((), 4)])
def test_columns_with_other_numbers_of_rows_than_asked_for_are_refused(lengths):
    batches = jreader.batch(source(Columnar(4, 4), batched=True), 4)
    assert len(next(iter(batches()))) == 4
    with pytest.raises((TypeError, ValueError), match=r"one length|got 3: data"):
        next(iter(jreader.batch(source(Columnar(*lengths), batched=True), 4)()))


ROWS = np.array([7, 2, 2, 9, 0])


class Rising:
    """Gives rows in increasing order only, each once, as HDF5 does."""

    def __init__(self, columns):
        self.columns, self.asked = columns, []

    def __len__(self):
        return 10

    def __getitem__(self, rows):
        self.asked.append(rows.tolist())
        if (np.diff(rows) <= 0).any():
            raise TypeError("Indexing elements must be in increasing order")
        return map_tree(lambda column: column[rows], self.columns)


@pytest.mark.parametrize(
    "columns", [np.arange(10) * 3, {"n": np.arange(10), "m": np.arange(20).reshape(10, 2)}]
)
def test_data_that_takes_increasing_numbers_only_is_asked_so(columns):
    data = Rising(columns)
    plane = source(data, batched=True).plane()
    expected = Columns(columns)
    for rows in (ROWS, ROWS[::-1], np.arange(10), np.array([4])):
        given = [canonical(sample) for sample in plane.take(rows)]
        assert given == [canonical(expected[row]) for row in rows.tolist()]
        assert [canonical(sample) for sample in plane.each(rows)] == given
    refused = [rows for rows in data.asked if (np.diff(rows) <= 0).any()]
    assert len(refused) == 1  # what it cannot do is tried once


def test_an_error_that_is_not_of_the_order_is_told_as_it_is():
    def fails(rows):
        raise ValueError(f"no {rows.tolist()}")

    class Failing(Squares):
        __getitem__ = staticmethod(fails)

    for rows in (ROWS, np.arange(3)):
        with pytest.raises(ValueError, match=re.escape(f"no {rows.tolist()}")):
            source(Failing(), batched=True).plane().take(rows)


class Listed(Squares):
    """Gives what `make` makes of a list of ints."""

    def __init__(self, make):
        self.make = make

    def __getitem__(self, rows):
        return self.make([int(row) for row in rows])


@pytest.mark.parametrize(
    ("make", "sample"),
    [
        (lambda rows: rows, lambda row: row),
        (lambda rows: [[row] * row for row in rows], lambda row: [row] * row),
        (
            lambda rows: {"n": rows, "text": [str(row) for row in rows]},
            lambda row: {"n": row, "text": str(row)},
        ),
        (
            lambda rows: UserDict(n=rows, inner={"m": np.array(rows)}),
            lambda row: {"n": row, "inner": {"m": np.int64(row)}},
        ),
        (lambda rows: (rows, np.array(rows)), lambda row: (row, np.int64(row))),
    ],
)
def test_lists_that_data_give_are_items_for_each_row(make, sample):
    reader = source(Listed(make), batched=True)
    expected = [canonical(sample(row)) for row in range(10)]
    assert [canonical(each) for each in reader()] == expected
    order = jreader.shuffle(reader, seed=1)
    for size in (1, 2, 3, 10):
        gathered = [canonical(each) for held in jreader.batch(order, size)() for each in held]
        assert gathered == [canonical(each) for each in order()]
    assert sorted(map(str, gathered)) == sorted(map(str, expected))


def test_lists_of_another_length_are_refused():
    reader = source(Listed(lambda rows: [rows, rows]), batched=True)
    with pytest.raises(ValueError, match="for 5 rows at once, and got 2"):
        reader.plane().take(ROWS)


def test_a_frame_is_refused_with_what_to_ask_instead():
    class Frame:
        columns = ("a", "b")

        def __len__(self):
            return 5

    reader = source(Listed(lambda rows: Frame()), batched=True)
    with pytest.raises(TypeError, match="with_format"):
        reader.plane().take(ROWS)


class TestPeers:
    """The promise of `batched`, held by the libraries that it names."""

    pytestmark = pytest.mark.peers
    values = np.arange(40, dtype=np.float32).reshape(20, 2)

    def holds(self, data, of=lambda sample: sample):
        reader = jreader.shuffle(source(data, batched=True), seed=1)
        assert len(reader) == 20
        samples = [np.asarray(of(sample)).tolist() for sample in reader()]
        assert sorted(samples) == self.values.tolist()
        for size in (1, 7, 20):
            held = [each for held in jreader.batch(reader, size)() for each in held]
            assert [np.asarray(of(each)).tolist() for each in held] == samples
        wrapped = Pipeline(reader).batch(8).load(last="wrap", sharding="host")
        feeds = [of(feed) for feed in wrapped]
        feeds = [np.stack(x, 1) if isinstance(x, list) else x for x in feeds]  # lists are branches
        assert [len(feed) for feed in feeds] == [8, 8, 8]
        assert np.concatenate(feeds).tolist() == [*samples, *samples[:4]]
        both = (
            Pipeline(source(data, batched=True)).chain(source(data, batched=True)).shuffle(seed=2)
        )
        assert len([each for held in both.batch(16) for each in held]) == 40

    def test_h5py(self, tmp_path):
        h5py = pytest.importorskip("h5py")
        with h5py.File(tmp_path / "rows.h5", "w") as file:
            rows = file.create_dataset("rows", data=self.values)
            self.holds(rows)

            class Pairs:
                def __len__(self):
                    return len(rows)

                def __getitem__(self, numbers):
                    return {"x": rows[numbers]}

            self.holds(Pairs(), lambda sample: sample["x"])

    def test_zarr(self, tmp_path):
        zarr = pytest.importorskip("zarr")
        self.holds(zarr.array(self.values))
        self.holds(zarr.create_array(tmp_path / "rows.zarr", data=self.values, chunks=(3, 2)))

    @pytest.mark.parametrize("form", [None, "numpy", "torch"])
    def test_hugging_face(self, form):
        datasets = pytest.importorskip("datasets")
        pytest.importorskip("torch")
        data = datasets.Dataset.from_dict({"x": self.values.tolist()}).with_format(form)
        self.holds(data, lambda sample: sample["x"])
