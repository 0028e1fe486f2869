"""Tables of Arrow with random columns of the types that jreader reads, and what their rows are."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")  # tests that import from here are skipped without it

WHOLE = st.integers(-100, 100)
REAL = st.integers(-1000, 1000).map(lambda number: number / 8)
TEXT = st.text(max_size=5)

VALUES: dict[Any, st.SearchStrategy[Any]] = {
    pa.int8(): WHOLE,
    pa.uint16(): st.integers(0, 2**16 - 1),
    pa.int32(): WHOLE,
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float16(): REAL,
    pa.float32(): REAL,
    pa.float64(): REAL,
    pa.bool_(): st.booleans(),
    pa.string(): TEXT,
    pa.large_string(): TEXT,
    pa.binary(): st.binary(max_size=5),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.decimal128(9, 2): st.integers(-(10**6), 10**6).map(lambda cents: Decimal(cents) / 100),
    pa.list_(pa.int32()): st.lists(WHOLE, max_size=4),
    pa.large_list(pa.float64()): st.lists(REAL, max_size=4),
    pa.list_(pa.bool_()): st.lists(st.booleans(), max_size=4),
    pa.list_(pa.float32(), 3): st.lists(REAL, min_size=3, max_size=3),
    pa.list_(pa.list_(pa.int16(), 2), 2): st.lists(
        st.lists(WHOLE, min_size=2, max_size=2), min_size=2, max_size=2
    ),
    pa.list_(pa.list_(pa.int16(), 2)): st.lists(
        st.lists(WHOLE, min_size=2, max_size=2), max_size=3
    ),
    pa.list_(pa.string()): st.lists(TEXT, max_size=3),
    pa.list_(pa.list_(pa.int64())): st.lists(st.lists(WHOLE, max_size=3), max_size=3),
    pa.struct({"x": pa.int64(), "y": pa.list_(pa.int8())}): st.fixed_dictionaries(
        {"x": WHOLE, "y": st.lists(WHOLE, max_size=3)}
    ),
    pa.list_(pa.struct({"x": pa.int64()})): st.lists(
        st.fixed_dictionaries({"x": WHOLE}), max_size=3
    ),
    pa.map_(pa.string(), pa.int64()): st.lists(st.tuples(TEXT, WHOLE), max_size=3),
    pa.dictionary(pa.int32(), pa.string()): TEXT,
}
TYPES = list(VALUES)


@st.composite
def tables(draw: st.DrawFn, most: int = 12, types: Any = None) -> Any:
    """A table of a few columns and rows."""
    kinds = draw(st.lists(st.sampled_from(types or TYPES), min_size=1, max_size=4))
    many = draw(st.integers(0, most))
    columns = {
        f"c{number}": pa.array(draw(st.lists(VALUES[kind], min_size=many, max_size=many)), kind)
        for number, kind in enumerate(kinds)
    }
    return pa.table(columns)


def plain(sample: Any) -> Any:
    """A sample as Python's own values."""
    if isinstance(sample, dict):
        return {name: plain(part) for name, part in sample.items()}
    return sample.tolist() if isinstance(sample, (np.ndarray, np.generic)) else sample


def rows_of(table: Any) -> list[Any]:
    """The rows of a table, as pyarrow makes them."""
    return table.to_pylist()
