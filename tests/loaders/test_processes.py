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


TRAINING = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4 // PROCESSES)
me, port = int(sys.argv[1]), sys.argv[2]
if PROCESSES > 1:
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=PROCESSES, process_id=me,
                               shutdown_timeout_seconds=10, heartbeat_timeout_seconds=10)
from jreader import Pipeline, source

rows, labels = (np.asarray(column) for column in DIGITS)
class Read:
    asked = 0
    def __len__(self):
        return len(rows)
    def __getitem__(self, numbers):
        Read.asked += len(numbers)
        return {"id": numbers, "x": rows[numbers], "y": labels[numbers]}

mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
pipeline = Pipeline(source(Read(), batched=True)).shuffle(seed=5).batch(BATCH_SIZE)
loader = pipeline.load(sharding=mesh, drop_last=False)

@jax.jit
def step(weights, feed):
    def loss(weights):
        right = jax.nn.one_hot(feed["y"], 10)
        each = -(right * jax.nn.log_softmax(feed["x"] @ weights)).sum(-1)
        return each.mean(where=feed["mask"])
    value, slope = jax.value_and_grad(loss)(weights)
    return weights - 0.1 * slope, value

at = json.loads(CURSOR)
weights = loader.replicate(np.asarray(json.loads(WEIGHTS), "float32"))
seen, losses = [], []
feeds = loader.steps(STEPS, at=at)
for feed in feeds:
    weights, value = step(weights, feed)
    losses.append(float(value))
    shards = {s.index[0].start or 0: s for s in feed["id"].addressable_shards}
    masks = {s.index[0].start or 0: s for s in feed["mask"].addressable_shards}
    seen.append([[first, np.asarray(shards[first].data)[np.asarray(masks[first].data)].tolist()]
                 for first in sorted(shards)])
    assert feed["x"].shape == (BATCH_SIZE, 64)
spec = loader.element_spec["x"]
asked, full = Read.asked, len(list(pipeline.load(sharding=mesh).epoch(0)))
def numbers():
    return iter(range(44))
for number, feed in enumerate(Pipeline(numbers).batch(8).load(sharding=mesh, drop_last=False)):
    for shard in feed[0].addressable_shards:  # a stream is read whole, and cut
        first = number * 8 + (shard.index[0].start or 0)
        assert shard.data.tolist() == [n if n < 44 else 0 for n in range(first, first + 2)]
assert number == 5
refused = ""
try:
    next(Pipeline(source(Read(), batched=True)).shuffle().batch(8).load(sharding=mesh).epoch(0))
except ValueError as error:
    refused = str(error)
print(json.dumps({"seen": seen, "losses": losses, "cursor": feeds.cursor, "asked": asked,
                  "weights": np.asarray(weights.addressable_data(0)).tolist(), "full": full,
                  "refused": refused, "spec": list(spec.shape)}))
sys.stdout.flush()
if PROCESSES > 1:
    jax.distributed.shutdown()
"""


def two_processes(shape, axes):
    script = CHILD.replace("BATCH_SIZE", str(BATCH_SIZE)).replace("ROWS", str(ROWS))
    return processes(script.replace("SHAPE", str(shape)).replace("AXES", str(axes)), 2)


def processes(script, count, limit=90):
    """What all processes print; a hanging one is killed, for it would swallow a SIGTERM."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    kept = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(number), port],
            env={**kept, "PYTHONPATH": str(TESTS.parent)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    try:
        ended = [child.communicate(timeout=limit) for child in children]
    finally:
        for child in children:
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
                child.wait()
    assert [child.returncode for child in children] == [0] * count, ended
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


DIGITS = "[np.sin(np.arange(44 * 64)).reshape(44, 64).astype('float32'), np.arange(44) % 10]"


def trained(count, steps, cursor=None, weights=None):
    """One part of a run, on so many processes with four devices together."""
    script = TRAINING
    for name, value in {
        "PROCESSES": count,
        "DIGITS": DIGITS,
        "BATCH_SIZE": BATCH_SIZE,
        "STEPS": steps,
        "CURSOR": repr(json.dumps(cursor)),
        "WEIGHTS": repr(json.dumps(weights or np.zeros((64, 10)).tolist())),
    }.items():
        script = script.replace(name, str(value))
    return processes(script, count)


def in_order(parts):
    """The numbers of the samples of each step, as all processes together saw them."""
    steps = [sorted(first for part in each for first in part) for each in zip(*parts, strict=True)]
    return [[number for _, numbers in step for number in numbers] for step in steps]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_goes_from_four_processes_to_two_to_one():
    (alone,) = trained(1, 14)
    seen, losses, cursor, weights = [], [], None, None
    for count, until in [(4, 7), (2, 11), (1, 14)]:
        parts = trained(count, until, cursor, weights)
        assert all(part["cursor"] == parts[0]["cursor"] for part in parts)
        assert all(part["losses"] == parts[0]["losses"] for part in parts)
        assert all((part["full"], part["spec"]) == (ROWS // BATCH_SIZE, [8, 64]) for part in parts)
        assert all(("give its shuffles" in part["refused"]) == (count > 1) for part in parts)
        done = until - len(seen)
        if count > 1:  # its own rows, and what was ahead: neither all nor half of what all read
            assert max(part["asked"] for part in parts) <= (done + 4) * BATCH_SIZE // count
        seen += in_order([part["seen"] for part in parts])
        losses += parts[0]["losses"]
        cursor, weights = parts[0]["cursor"], parts[0]["weights"]
    assert seen == in_order([alone["seen"]])
    assert [len(step) for step in seen[:7]] == [8, 8, 8, 8, 8, 4, 8]
    np.testing.assert_allclose(losses, alone["losses"], rtol=1e-5)
    assert cursor == alone["cursor"]
