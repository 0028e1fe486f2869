"""A GPT learns the same from windows and from packed rows, however it is trained.

Feeds are equal bit for bit, and so are losses where the same program runs on as many devices: after
a resume. Eight devices add up floats in another order than one, and a `scan` is another program,
which XLA fuses in its own way: their losses agree to some parts in 10^7, and are held to 10^5.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from itertools import islice
from pydoc_data.topics import topics  # of the language reference: text that every Python ships

import jax
import numpy as np
import pytest
from gpt import ROW, beginning, in_segments, logits, step, trained
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from steps import told

from jreader import DataLoader, Pipeline, as_function, tokens

BATCH, STEPS, STOP = 8, 24, 12  # an epoch has some 17 steps
SAME = {"rtol": 1e-5}

pytestmark = pytest.mark.slow


def windows(path):
    return Pipeline(tokens(path)).windows(ROW).shuffle(seed=0).batch(BATCH)


def packed(path):
    documents = Pipeline(tokens(path, eos=0))
    return documents.pack(ROW, longer="split", seed=0).batch(BATCH)


PLANS = {"windows": windows, "packed": packed}
of_both_plans = pytest.mark.parametrize("name", PLANS)
on_one_and_eight = pytest.mark.parametrize("count", [1, 8])


def devices(count):
    return Mesh(np.array(jax.devices()[:count]), ("data",))


def loader_of(name, path, count) -> DataLoader:
    return PLANS[name](path).load(sharding=devices(count)).on_device(in_segments)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A file of bytes as tokens, of which 0 ends a document: a paragraph."""
    text = "".join(f"{paragraph}\0" for paragraph in topics["import"].split("\n\n"))
    path = tmp_path_factory.mktemp("text") / "import.bin"
    np.frombuffer(text.encode(), np.uint8).astype("uint16").tofile(path)
    return path


@pytest.fixture(scope="module")
def alone(path):
    """The losses of runs that nothing interrupts."""
    losses = {}
    for name in PLANS:
        for count in (1, 8):
            loader = loader_of(name, path, count)
            state = loader.replicate(beginning())
            losses[name, count] = trained(state, loader.steps(STEPS))[1]
    return losses


@of_both_plans
@on_one_and_eight
def test_the_loss_falls(name, count, alone):
    assert np.mean(alone[name, count][-3:]) < alone[name, count][0] - 2


@of_both_plans
def test_eight_devices_learn_what_one_learns(name, path, alone):
    one, eight = (map(told, loader_of(name, path, count).steps(STEPS)) for count in (1, 8))
    assert list(one) == list(eight)
    np.testing.assert_allclose(alone[name, 8], alone[name, 1], **SAME)


def test_a_document_in_a_packed_row_is_predicted_as_if_it_were_alone(path):
    parameters = beginning()["parameters"]
    compiled = jax.jit(logits)
    several = 0
    for feed in islice(loader_of("packed", path, 1), 3):
        together = compiled(parameters, feed)
        for row, segments in enumerate(np.asarray(feed["segment_ids"])):
            several += segments.max() > 1
            for segment in range(1, segments.max() + 1):
                there = np.flatnonzero(segments == segment)
                document = np.zeros((1, ROW), "uint16")
                document[0, : len(there)] = feed["tokens"][row, there]
                by_itself = compiled(parameters, in_segments(document))[0, : len(there)]
                np.testing.assert_allclose(together[row, there], by_itself, atol=1e-4)
    assert several


CHECKPOINTED = """
    import json
    from itertools import islice
    import orbax.checkpoint as ocp
    from gpt import beginning, trained
    from loaders.test_gpt import PLANS, STEPS, loader_of

    def losses_of(name, count):
        loader = loader_of(name, {path!r}, count)
        state, cursor = loader.replicate(beginning()), None
        with ocp.CheckpointManager(f"{folder}/{{name}} {{count}}") as manager:
            if (latest := manager.latest_step()) is not None:
                kept = manager.restore(latest, args=ocp.args.Composite(
                    state=ocp.args.StandardRestore(state), cursor=ocp.args.JsonRestore()))
                state, cursor = kept["state"], kept["cursor"]
            with loader.steps(STEPS, at=cursor) as feeds:
                state, losses = trained(state, islice(feeds, {stop} - feeds.step))
                manager.save(feeds.step, args=ocp.args.Composite(
                    state=ocp.args.StandardSave(state), cursor=ocp.args.JsonSave(feeds.cursor)))
        return losses

    print(json.dumps(losses_of("packed", 8)))
"""


def test_a_run_resumed_from_orbax_in_a_new_process_has_the_same_losses(
    path, alone, python, tmp_path
):
    if not find_spec("orbax"):
        pytest.skip("orbax-checkpoint is not installed")
    for first, stop in ((0, STOP), (STOP, STEPS)):
        script = CHECKPOINTED.format(path=str(path), folder=tmp_path, stop=stop)
        printed = python(script).stdout
        losses = json.loads(printed.splitlines()[-1])
        assert losses == alone["packed", 8][first:stop]


@pytest.mark.parametrize(("name", "count"), [("windows", 1), ("packed", 8)])
def test_an_epoch_as_one_scan_has_the_same_losses(name, count, path, alone):
    mesh = devices(count)
    data, batch_at = as_function(PLANS[name](path), sharding=NamedSharding(mesh, PartitionSpec()))
    split = NamedSharding(mesh, PartitionSpec("data"))

    def body(state, number):
        feed = in_segments(batch_at(data, 0, number))
        state, loss = step(state, jax.lax.with_sharding_constraint(feed, split))
        return state, (loss, feed)

    numbers = np.arange(len(batch_at))
    _, (losses, feeds) = jax.jit(lambda state: jax.lax.scan(body, state, numbers))(beginning())
    expected = told(jax.tree.map(lambda *each: np.stack(each), *loader_of(name, path, count)))
    assert told(feeds) == expected
    assert STOP < len(losses) < STEPS
    np.testing.assert_allclose(losses, alone[name, count][: len(losses)], **SAME)
