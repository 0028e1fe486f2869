"""Whole batches made by workers."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pytest
from engines import Here, bad, numbers, seen
from seen import see

import jreader
from jreader import Pipeline, map_samples


class TestBatches:
    """Workers that are told the batch size stack their samples, and nothing else differs."""

    @pytest.fixture(params=["a stream", "memory", "a file"])
    def reader(self, request, tmp_path):
        if request.param == "a stream":
            return numbers(50)
        if request.param == "memory":
            return jreader.arrays(np.arange(50), np.ones((50, 9000)))
        np.save(tmp_path / "rows.npy", np.arange(50))
        return jreader.npy(tmp_path / "rows.npy")

    @pytest.fixture(params=["a pool", "other processes", "an executor"])
    def engine(self, request):
        if request.param == "other processes":
            request.getfixturevalue("pool")
            return {"processes": 2}
        name = "threads" if request.param == "an executor" else "processes"
        return {"executor": request.getfixturevalue(name)}

    def plan(self, reader, make=None, **chosen):
        source = Pipeline(reader).shuffle(7, seed=1).skip(2)
        return source.map(make or picture, **chosen).batch(8).epochs(2)

    @pytest.mark.parametrize("drawing", [{}, {"rng": True, "seed": 3}])
    def test_the_same_batches_and_every_position_is_a_place(self, reader, engine, drawing):
        plain = see(self.plan(reader, **drawing))
        assert seen(self.plan(reader, **drawing, **engine)) == seen(self.plan(reader, **drawing))
        for place in range(0, 12, 5):
            rest = see(self.plan(reader, **drawing, **engine), plain.positions[place])
            assert rest.samples == plain.samples[place:]

    def test_large_arrays_arrive_stacked_in_the_memory_they_were_made_in(self, pool):
        (held,) = Pipeline(numbers(4)).map(picture, processes=2).batch(4)
        image = held.columns["image"]
        assert image.shape == (4, 70, 70)
        assert image.ctypes.data % 64 == 0
        assert not image.flags.owndata
        assert list(held)[1]["label"] == held[1]["label"] == 1
        assert type(held[1]["label"]) is type(list(held)[1]["label"]) is int
        assert [sample["label"] for sample in held[1:3]] == [1, 2]

    @pytest.mark.parametrize(
        "make", ["ragged", "texts", "mixed", "bare", "nothing", "point", "wide"]
    )
    def test_what_makes_no_column_comes_as_it_is(self, pool, make):
        makes = {
            "ragged": lambda n: (np.zeros(3000 + n % 2), n),
            "texts": lambda n: (np.zeros(3000), f"{n}"),
            "mixed": lambda n: (np.zeros(3000), n if n % 2 else n / 2),
            "bare": lambda n: n,
            "nothing": lambda n: (np.zeros(3000), None),
            "point": lambda n: (np.zeros(3000), np.array(n)),
            "wide": lambda n: (np.zeros(3000), n << 62, np.float32(n), [n, True]),
        }
        plain = see(self.plan(numbers(30), makes[make]))
        mapped = see(self.plan(numbers(30), makes[make], processes=2))
        assert repr(mapped.samples) == repr(plain.samples)  # 1 == 1.0, but it is not the same

    @pytest.mark.parametrize("kind", ["ordered", "own list", "not all in init", "noted"])
    def test_samples_keep_their_types(self, pool, kind):
        def make(number):
            row = np.full(3000, number)
            if kind == "ordered":
                return OrderedDict(row=row, number=number)
            if kind == "own list":
                return Listed([row, number])
            return Noted(row) if kind == "noted" else Sided(row)

        class Listed(list):
            pass

        (plain,) = Pipeline(numbers(3)).map(make).batch(3)
        (mapped,) = Pipeline(numbers(3)).map(make, processes=2).batch(3)
        assert repr(list(mapped)) == repr(plain)
        assert [type(sample).__name__ for sample in mapped] == [type(s).__name__ for s in plain]

    def test_places_are_sent_where_the_plan_is_small_and_samples_where_it_is_not(self, tmp_path):
        np.save(tmp_path / "rows.npy", np.zeros((50, 4000)))
        for reader, small in [
            (jreader.npy(tmp_path / "rows.npy"), True),
            (jreader.arrays(np.zeros((50, 4000))), False),
            (jreader.skip(jreader.arrays(np.zeros((50, 8000))[:, ::2]), 0), False),
            (jreader.arrays(np.arange(50)), True),
        ]:
            executor = Here()
            list(Pipeline(reader).map(np.sum, executor=executor, concurrency=2).batch(10))
            assert (executor.bytes[-1] < 2_000) == small

    def test_a_new_plan_reads_files_that_were_replaced(self, engine, tmp_path):
        path, new = tmp_path / "rows.npy", tmp_path / "new.npy"
        for scale in (1, 10):
            np.save(new, np.arange(6) * scale)
            new.replace(path)
            plan = Pipeline(jreader.npy(path)).map(int, **engine).batch(3)
            assert [list(held) for held in plan] == [
                [0, scale, 2 * scale],
                [3 * scale, 4 * scale, 5 * scale],
            ]

    def test_an_error_names_the_sample(self, reader, engine):
        def fn(sample):
            number = int(np.ravel(sample[0] if isinstance(sample, tuple) else sample)[0])
            if number == 9:
                raise ValueError("bad")
            return np.zeros(5000)

        items = Pipeline(reader).map(fn, **engine).batch(4)()
        assert len(list(islice(items, 2))) == 2
        with pytest.raises(ValueError, match="bad") as caught:
            next(items)
        assert "raised by fn(" in caught.value.__notes__[-1]
        assert "9" in caught.value.__notes__[-1].partition("in map_samples")[0]
        assert list(items) == []

    def test_where_samples_may_be_left_out_batches_are_filled_here(self, pool):
        plan = map_samples(bad(3), numbers(10), processes=2, on_error="skip")
        with pytest.warns(UserWarning, match="1 of 10 samples"):
            assert [len(held) for held in jreader.batch(plan, 4)()] == [4, 4, 1]


@dataclass
class Noted:
    """Its __post_init__ leaves something that is no field."""

    row: np.ndarray

    def __post_init__(self):
        self.note = len(self.row)

    def __repr__(self):
        return f"Noted({self.note})"


@dataclass
class Sided:
    """One field is made of another."""

    row: np.ndarray
    side: int = field(init=False)

    def __post_init__(self):
        self.side = len(self.row)


def picture(sample, rng=None):
    number = int(np.ravel(sample[0] if isinstance(sample, tuple) else sample)[0])
    drawn = {} if rng is None else {"drawn": rng.random()}
    return {"image": np.full((70, 70), number), "label": number, "row": np.ones(3)} | drawn
