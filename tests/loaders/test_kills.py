"""A run that is killed at random moments ends with the loss curve of one that was left alone."""

import importlib.util
import json
import os
import random
import signal

import numpy as np
import pytest
from programs import program

KILLS = int(os.environ.get("JREADER_KILLS", "3"))
STEPS = 60

TRAINING = """
import json, os, sys
import jax, jax.numpy as jnp, numpy as np
from jreader import Pipeline, jsonl, npy

def indexed():
    rows = Pipeline(npy(FOLDER + "/x.npy", FOLDER + "/y.npy")).shuffle(seed=3)
    return rows.batch(8).load(capacity=4)

def streamed():
    def noisy(row, rng):
        x = np.asarray(row["x"], "float32")
        return x + rng.normal(size=x.shape).astype("float32"), np.float32(row["y"])
    rows = Pipeline(jsonl(FOLDER + "/rows.jsonl")).shuffle(20, seed=3)
    rows = rows.map(noisy, rng=True, seed=5, threads=2).filter(lambda row: row[1] > -2)
    return rows.prefetch(5).batch(8).load(capacity=4)

def plain(folder):
    path = folder + "/run.npz"
    def restored():
        if not os.path.exists(path):
            return None
        with np.load(path) as kept:
            return kept["weights"], kept["losses"].tolist(), json.loads(str(kept["cursor"]))
    def save(weights, losses, cursor):
        with open(path + ".part", "wb") as file:
            np.savez(file, weights=weights, losses=losses, cursor=json.dumps(cursor))
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".part", path)
    return restored, save

def orbax(folder):
    import orbax.checkpoint as ocp
    manager = ocp.CheckpointManager(folder + "/orbax", options=ocp.CheckpointManagerOptions(
        max_to_keep=2, enable_async_checkpointing=False))
    def restored():
        if manager.latest_step() is None:
            return None
        kept = manager.restore(manager.latest_step(), args=ocp.args.Composite(
            run=ocp.args.StandardRestore(), cursor=ocp.args.JsonRestore()))
        return kept.run["weights"], np.asarray(kept.run["losses"]).tolist(), kept.cursor
    def save(weights, losses, cursor):
        manager.save(cursor["step"], args=ocp.args.Composite(
            run=ocp.args.StandardSave({"weights": weights, "losses": np.array(losses)}),
            cursor=ocp.args.JsonSave(cursor)))
        manager.wait_until_finished()
    return restored, save

@jax.jit
def step(weights, feed):
    x, y = feed
    def loss(weights):
        return ((x @ weights - y) ** 2).mean()
    value, slope = jax.value_and_grad(loss)(weights)
    return weights - 0.01 * slope, value

restored, save = KIND(FOLDER)
weights, losses, cursor = restored() or (np.zeros(4, "float32"), [], None)
with PLAN().steps(STEPS, at=cursor) as feeds:
    for feed in feeds:
        weights, value = step(weights, feed)
        losses.append(float(value))
        print(feeds.step, flush=True)
        if feeds.step % 2 == 0:
            save(np.asarray(weights), losses, feeds.cursor)
print(json.dumps(["over", [loss.hex() for loss in losses], feeds.cursor["digest"]]), flush=True)
"""


def training(folder, plan, kind):
    names = {"FOLDER": repr(str(folder)), "STEPS": str(STEPS), "PLAN": plan, "KIND": kind}
    script = TRAINING
    for name, value in names.items():
        script = script.replace(name, value)
    return program(script)


def until_over(running):
    """What a run says when it is over."""
    while True:
        said = json.loads(running.says())
        if isinstance(said, list):
            return said


@pytest.mark.slow
@pytest.mark.parametrize(("plan", "kind"), [("indexed", "plain"), ("streamed", "orbax")])
def test_a_run_that_is_killed_again_and_again_ends_as_one_that_is_not(tmp_path, plan, kind):
    if kind == "orbax" and not importlib.util.find_spec("orbax"):
        pytest.skip("orbax-checkpoint is not installed")
    x = np.random.default_rng(0).normal(size=(100, 4)).astype("float32")
    y = x @ np.arange(4, dtype="float32")
    for name in ("killed", "alone"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "x.npy", x)
        np.save(tmp_path / name / "y.npy", y)
        rows = [json.dumps({"x": a.tolist(), "y": float(b)}) for a, b in zip(x, y, strict=True)]
        (tmp_path / name / "rows.jsonl").write_text("\n".join(rows))
    with training(tmp_path / "alone", plan, kind) as alone:
        expected = until_over(alone)
    assert len(set(expected[1])) == STEPS
    moments, reached = random.Random(7), []
    for _ in range(KILLS):
        with training(tmp_path / "killed", plan, kind) as running:
            for _ in range(moments.randint(1, max(STEPS // KILLS, 2))):
                last = running.says()
            reached.append(json.loads(last))
            os.killpg(running.process.pid, signal.SIGKILL)
    assert all(isinstance(step, int) for step in reached)
    with training(tmp_path / "killed", plan, kind) as running:
        assert until_over(running) == expected
