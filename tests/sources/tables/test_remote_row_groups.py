"""Row groups of far Parquet files: what is wanted of them is asked for at once, and kept."""

from __future__ import annotations

import numpy as np
import pytest

import jreader
from jreader import Store

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("fsspec")

GROUPS, ROWS = 40, 500


@pytest.fixture
def server(server, tmp_path):
    drawn = np.random.default_rng(0)
    table = pyarrow.table(
        {name: drawn.integers(0, 1 << 60, GROUPS * ROWS) for name in ("a", "b", "c")}
        | {"row": np.arange(GROUPS * ROWS)}
    )
    path = tmp_path / "table.parquet"
    parquet.write_table(table, path, row_group_size=ROWS, use_dictionary=False, compression="none")
    server.files["table.parquet"] = path.read_bytes()
    return server


def rows_of(plan):
    batches = jreader.batch(plan, 100)()
    return [row for batch in batches for row in batch.columns["row"].tolist()]


def test_a_row_group_is_asked_for_at_once_and_only_what_is_wanted_of_it(server):
    url = f"{server.url}/table.parquet"
    rows = jreader.parquet(url, columns=["a", "c", "row"])
    assert len(rows) == GROUPS * ROWS
    server.asked.clear()
    server.sent.clear()
    assert rows_of(rows) == list(range(GROUPS * ROWS))
    assert len(server.tries()) == len(server.asked) - len(server.tries("HEAD")) == 2 * GROUPS
    assert server.sent["table.parquet"] < 0.8 * len(server.files["table.parquet"])


def test_a_store_with_room_for_30_percent_has_nearly_as_many_hits(server, tmp_path):
    url, size = f"{server.url}/table.parquet", len(server.files["table.parquet"])
    store = Store(tmp_path / "store", int(0.3 * size), block="4kB")
    plan = jreader.shuffle(jreader.parquet(url, store=store), seed=0, blocks=4)
    rates = []
    for epoch in range(4):
        store.hits = store.misses = 0
        seen = rows_of(jreader.at_epoch(plan, epoch))
        assert sorted(seen) == list(range(GROUPS * ROWS))
        rates.append(store.hits / (store.hits + store.misses))
    assert min(rates[1:]) > 0.2  # the least recently used ones: 0.05
