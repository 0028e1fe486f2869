"""Batches that grow, and runs without some samples, on real processes: the rows of one."""

import jax
import numpy as np
import pytest
from together import processes

from jreader import Pipeline, arrays

RUN = """
from jreader import Pipeline, arrays

mesh = jax.make_mesh((2,), ("data",))
rows = Pipeline(arrays(n=np.arange(100, 150))).shuffle(seed=5)
loaders = {
    "grown": rows.batch({0: 4, 3: 8}).load(sharding=mesh, last="pad"),
    "without": rows.batch(6).load(sharding=mesh, last="drop").without([7, 8, 30]),
    "both": rows.batch({0: 4, 3: 8}).map_batches(dict).load(sharding=mesh).without([7, 8, 30]),
}
def mine(feed):
    return {name: array.addressable_shards[0].data.tolist() for name, array in feed.items()}
said = {}
for name, loader in loaders.items():
    feeds = loader.epoch(0)
    head = [mine(next(feeds)), mine(next(feeds))]
    rest = [mine(feed) for feed in loader.epoch(0, at=json.loads(json.dumps(feeds.cursor)))]
    said[name] = head + rest
    assert len(head + rest) == len(loader)
    assert [mine(feed) for feed in feeds] == rest
say(said)
"""


@pytest.mark.slow
def test_processes_feed_their_rows_of_what_one_process_feeds():
    first, second = processes(RUN, 2)
    rows = Pipeline(arrays(n=np.arange(100, 150))).shuffle(seed=5)
    loaders = {
        "grown": rows.batch({0: 4, 3: 8}).load(last="pad"),
        "without": rows.batch(6).load().without([7, 8, 30]),
        "both": rows.batch({0: 4, 3: 8}).map_batches(dict).load().without([7, 8, 30]),
    }
    for name, loader in loaders.items():
        together = [
            {field: mine[field] + other[field] for field in mine}
            for mine, other in zip(first[name], second[name], strict=True)
        ]
        assert together == [jax.tree.map(np.ndarray.tolist, jax.device_get(f)) for f in loader]
