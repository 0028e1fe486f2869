"""A pipeline as bytes: a process without jreader makes the batches of the loader."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import jreader
from jreader import Pipeline, arrays, mix

SAMPLES = np.arange(50, dtype=np.float32)


class Named(NamedTuple):
    x: np.ndarray


ALONE = """
import json, sys
import numpy as np
sys.modules["jreader"] = None  # importing it fails
import jax, jax.export
from jax import numpy as jnp
try:
    import jreader
except ImportError:
    pass
else:
    raise SystemExit("jreader is there")
with open("batches", "rb") as file:
    batch_at = jax.export.deserialize(bytearray(file.read())).call
data = dict(np.load("data.npz"))
weights = np.array([7, 3], np.int32)
feeds = [batch_at(data, 2, step, 5, weights) for step in range(3)]
scanned = jax.jit(lambda data: jax.lax.map(
    lambda step: batch_at(data, 2, step, 5, weights), jnp.arange(3)
))(data)
one_by_one = {name: [feed[name].tolist() for feed in feeds] for name in feeds[0]}
assert one_by_one == {name: rows.tolist() for name, rows in scanned.items()}
print(json.dumps(one_by_one))
"""


def mixed(weights, seed):
    web, code = (Pipeline(arrays(x=SAMPLES + base)).shuffle(seed=seed) for base in (0, 1000))
    return Pipeline(mix([web, code], weights, seed=seed, stop="repeat")).batch(8)


def test_a_process_without_jreader_makes_the_batches_of_the_loader(tmp_path):
    saved = jreader.export(mixed(None, None), platforms=["cpu", "cuda"], seed=True, weights=True)
    data, _ = jreader.as_function(mixed(None, None))
    (tmp_path / "batches").write_bytes(saved)
    np.savez(tmp_path / "data.npz", **data)
    run = subprocess.run(
        [sys.executable, "-c", ALONE], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    feeds = zip(range(3), mixed([7, 3], 5).load().epoch(2), strict=False)
    assert json.loads(run.stdout) == {"x": [feed["x"].tolist() for _, feed in feeds]}


def test_export_is_for_the_named_platforms():
    batches = Pipeline(arrays(x=SAMPLES)).batch(8)
    for platforms in (["cpu", "cuda", "tpu"], [jax.default_backend()]):
        saved = jreader.export(batches, platforms=platforms if len(platforms) > 1 else None)
        assert jax.export.deserialize(bytearray(saved)).platforms == tuple(platforms)


def test_a_short_last_batch_is_padded_as_in_load():
    batches = Pipeline(arrays(x=SAMPLES)).shuffle(seed=0).batch(8)
    call = jax.export.deserialize(bytearray(jreader.export(batches, last="pad"))).call
    feed = call({"x": jnp.asarray(SAMPLES)}, 0, 6)
    expected = list(batches.load(last="pad"))[-1]
    jax.tree.map(np.testing.assert_array_equal, feed, expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: jreader.export(mixed(None, 0), platforms="cuda"), r"platforms=\['cpu', 'cuda'\]"),
        (lambda: jreader.export(mixed(None, 0), seed=7), r"seed of export\(pipeline\)"),
        (lambda: jreader.export(Pipeline(arrays(SAMPLES)).batch(2), weights=True), r"one mix"),
        (lambda: jreader.export(Pipeline(arrays(Named(SAMPLES))).batch(2)), r"make dicts of them"),
    ],
)
def test_arguments_of_another_form_are_refused(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_platforms_that_jax_has_no_programs_for_are_refused():
    with pytest.raises(ValueError, match=r"knows the platforms .*'tpu'\], and not \['gpu'\]"):
        jreader.export(mixed(None, 0), platforms=["cpu", "gpu"])
    with pytest.raises(TypeError, match=r"needs a list of platforms, not \[\]"):
        jreader.export(mixed(None, 0), platforms=[])
