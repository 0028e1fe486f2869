"""Two real processes, one global batch: each feeds its own rows of the stream that both read."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jreader import Pipeline, arrays

TESTS = Path(__file__).parents[1]
ROWS, BATCH_SIZE = 44, 8

CHILD = """
import json, sys
import jax, numpy as np
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
me, port = int(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=me,
                           shutdown_timeout_seconds=10, heartbeat_timeout_seconds=10)
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jreader import Pipeline, DataLoader, arrays

rows = np.arange(ROWS * 3, dtype="float32").reshape(ROWS, 3)
pipeline = Pipeline(arrays(x=rows)).shuffle(seed=5).batch(BATCH_SIZE)
mesh = Mesh(np.array(jax.devices()).reshape(SHAPE), AXES)
loader = pipeline.load(sharding=NamedSharding(mesh, PartitionSpec("data")), drop_last=False)
weights = loader.replicate({"w": np.full(3, 2.0, "float32")})
def parts(w, feed):
    return (feed["x"] * w["w"]).sum(where=feed["mask"][:, None]), feed["mask"].sum()
mean = jax.jit(parts)
mine, means = [], []
for feed in loader:
    shards = feed["x"].addressable_shards
    mine.append([[shard.index[0].start or 0, shard.data.tolist()] for shard in shards])
    total, count = mean(weights, feed)
    means.append(float(total) / float(count) / 3)
    assert feed["x"].shape == (BATCH_SIZE, 3)
    if len(means) == 2: cursor = dict(loader.state_dict())
rest = [float(mean(weights, feed)[0]) for feed in loader.epoch(0, at=cursor)]
local = next(iter(pipeline.load(pmap=True)))["x"]
refused = ""
try:
    DataLoader.from_generator().set_sample_generator(arrays(rows), 2, places=jax.devices())
except ValueError as error:
    refused = str(error)
print(json.dumps({"mine": mine, "means": means, "steps": len(loader), "rest": len(rest),
                  "local": [list(local.shape), local.is_fully_addressable], "refused": refused}))
sys.stdout.flush()
jax.distributed.shutdown()
"""


def two_processes(shape, axes, limit=90):
    """What both processes print; a hanging one is killed, for it would swallow a SIGTERM."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    script = CHILD.replace("BATCH_SIZE", str(BATCH_SIZE)).replace("ROWS", str(ROWS))
    script = script.replace("SHAPE", str(shape)).replace("AXES", str(axes))
    kept = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(number), port],
            env={**kept, "PYTHONPATH": str(TESTS.parent)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    try:
        ended = [child.communicate(timeout=limit) for child in children]
    finally:
        for child in children:
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
                child.wait()
    assert [child.returncode for child in children] == [0, 0], ended
    return [json.loads(out.splitlines()[-1]) for out, _ in ended]


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "axes"), [((4,), ("data",)), ((2, 2), ("model", "data"))])
def test_two_processes_feed_one_global_batch(shape, axes):
    both = two_processes(shape, axes)
    rows = np.arange(ROWS * 3, dtype="float32").reshape(ROWS, 3)
    host = Pipeline(arrays(x=rows)).shuffle(seed=5).batch(BATCH_SIZE)
    alone = list(host.load(sharding="host", drop_last=False))
    means = [2 * feed["x"][feed["mask"]].mean() for feed in alone]
    for seen in both:
        np.testing.assert_allclose(seen["means"], means, rtol=1e-5)
        assert (seen["steps"], seen["rest"], len(alone)) == (6, 4, 6)
        assert seen["local"] == [[2, BATCH_SIZE // 2, 3], True]
        assert "jax.local_devices()" in seen["refused"]
        for feed, shards in zip(alone, seen["mine"], strict=True):
            for first, part in shards:
                assert part == feed["x"][first : first + len(part)].tolist()
    covered = {first for seen in both for first, _ in seen["mine"][0]}
    assert len(covered) == shape[axes.index("data")]
