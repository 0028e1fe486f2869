"""A log that grows while a model trains: what a step samples, and runs that are killed."""

from __future__ import annotations

import json
import subprocess
import sys
from tempfile import TemporaryDirectory

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import PATIENCE
from widths import examples

import jreader
from jreader import NotResumable, Pipeline, ReaderError
from jreader.orders import key

SIZE = 7
EXAMPLE = {"x": np.zeros(2, np.float32), "n": np.int64(0)}


def rows(begin, many):
    numbers = np.arange(begin, begin + many)
    return {"x": np.stack([numbers, numbers + 0.5], 1).astype(np.float32), "n": numbers}


class Declared:
    """The judge: everything that was declared, in lists, each with its step."""

    def __init__(self, newest):
        self.newest, self.rows, self.changes = newest, [], []

    def expected(self, step):
        held = sum(at <= step for at in self.rows)
        first = max(held - (self.newest or held), 0)
        priorities = np.array([0.0] * first + [1.0] * (held - first))
        changes = [change for change in self.changes if change[0] <= step]
        for _, row, value in changes:
            priorities[row] = value * (row >= first)
        low, high = key(3)
        random = np.random.Philox(key=[step, low.item() << 32 | high.item()])
        places = (random.random_raw(SIZE) >> np.uint64(11)) * 2.0**-53
        return priorities.cumsum().searchsorted(places * priorities.sum(), "right").tolist()


actions = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 300), st.integers(0, 2)),
        st.tuples(st.just("set"), st.lists(st.integers(1, 9), max_size=40), st.integers(0, 2)),
        st.tuples(st.just("sample"), st.integers(0, 3), st.just(0)),
    ),
    max_size=12,
)


def played(log, declared, run):
    """Does what is asked of a log and of the judge; returns what was sampled, step by step."""
    sampled = []
    for number, (action, what, later) in enumerate(run):
        tables = {"append": declared.rows, "set": [step for step, *_ in declared.changes]}
        step = max([log.step + 1 + later, *tables.get(action, [])])
        if action == "append":
            declared.rows += [step] * what
            assert log.append(rows(len(log), what), step) == len(declared.rows)
        elif action == "set":
            chosen = np.random.default_rng(number).integers(
                0, sum(at <= step for at in declared.rows), len(what)
            )
            log.set_priorities(chosen, np.array(what, float), step)
            declared.changes += zip([step] * len(what), chosen.tolist(), what, strict=True)
        else:
            step = log.step + 1 + what
            sampled.append((step, log.rows(step, SIZE).tolist()))
    return sampled


@given(actions, actions, st.sampled_from([None, 1, 150]))
@examples(300)
def test_a_step_samples_what_was_declared_up_to_it_also_in_a_run_that_resumes_by_law(
    before, after, newest
):
    begin = [("append", 200, 0), ("set", [1], 0)]
    with TemporaryDirectory() as folder:
        declared = Declared(newest)
        log = jreader.replay(EXAMPLE, 3, newest=newest, folder=folder)
        sampled = played(log, declared, begin + before)
        cursor = json.loads(json.dumps(log.cursor))
        sampled += played(log, declared, after)
        for step, drawn in sampled:
            assert drawn == declared.expected(step)
            assert log.rows(step, SIZE).tolist() == drawn
        resumed = jreader.replay(EXAMPLE, 3, newest=newest, folder=folder, at=cursor)
        del declared.rows[cursor["rows"] :], declared.changes[cursor["changes"] :]
        again = played(resumed, declared, after)
        assert again == sampled[len(sampled) - len(again) :]
        numbers = resumed.rows(max(resumed.step, 0), SIZE)
        assert resumed.take(numbers)["n"].tolist() == numbers.tolist()


def test_rows_are_as_likely_as_their_priorities():
    log = jreader.replay(EXAMPLE, 0)
    log.append(rows(0, 1000))
    log.set_priorities(np.arange(1000), np.arange(1000) % 4)
    drawn = log.rows(0, 60_000) % 4
    shares = np.bincount(drawn, minlength=4) / 60_000
    np.testing.assert_allclose(shares, [0, 1 / 6, 2 / 6, 3 / 6], atol=0.01)
    counts = np.bincount(log.rows(0, 60_000), minlength=1000)[3::4]
    assert 80 < counts.min() < counts.max() < 160


def test_a_row_is_sampled_as_it_was_appended_in_the_dtypes_of_the_example():
    log = jreader.replay(EXAMPLE, 0)
    for begin in range(0, 5000, 500):
        log.append({name: each.astype(float) for name, each in rows(begin, 500).items()})
    sample = log.sample(0, 64)
    assert sample["x"].dtype == np.float32
    np.testing.assert_array_equal(sample["x"], rows(0, 5000)["x"][sample["n"]])


def test_fields_are_found_by_name_since_jax_sorts_them():
    log = jreader.replay({"b": np.int32(0), "a": np.int32(0)}, 0)
    log.append(jax.jit(lambda: {"b": jnp.full(9, 2), "a": jnp.full(9, 1)})())
    sample = log.sample(0, 4)
    assert (sample["a"].tolist(), sample["b"].tolist()) == ([1] * 4, [2] * 4)


def test_a_loader_over_it_gives_step_after_step_and_resumes_inside_and_between_steps():
    log = jreader.replay(EXAMPLE, 0)
    log.append(rows(0, 50))
    reader = Pipeline(log.samples(8))
    feeds = reader.batch(8).load(capacity=0).steps(6)
    seen = []
    for feed in feeds:
        seen.append(feed["n"].tolist())
        log.append(rows(len(log), 10), step=feeds.step)
        if feeds.step == 3:
            cursor = json.loads(json.dumps(feeds.cursor))
    assert seen == [log.sample(step, 8)["n"].tolist() for step in range(6)]
    rest = reader.batch(8).load(capacity=0).steps(6, at=cursor)
    assert [feed["n"].tolist() for feed in rest] == seen[3:]
    halves = [feed["n"].tolist() for feed in reader.batch(4).load(capacity=0).steps(12)]
    assert [one + two for one, two in zip(halves[::2], halves[1::2], strict=True)] == seen


def test_a_log_that_a_loader_samples_needs_the_step_of_what_is_added():
    log = jreader.replay(EXAMPLE, 0)
    log.append(rows(0, 50))
    log.samples(8)
    with pytest.raises(TypeError, match=r"step=feeds\.step for the next feed"):
        log.append(rows(50, 10))
    with pytest.raises(TypeError, match=r"step=feeds\.step for the next feed"):
        log.set_priorities([0], [2.0])


def test_a_loader_that_samples_ahead_is_an_error_where_rows_come_too_late():
    log = jreader.replay(EXAMPLE, 0)
    log.append(rows(0, 50))
    feeds = Pipeline(log.samples(8)).batch(8).load(capacity=4).steps(50)
    next(feeds)
    log.sample(4, 8)  # as a loader does that is ahead
    with pytest.raises(ValueError, match=r"not 1\. If a loader .*load\(capacity=0\)"):
        log.append(rows(50, 10), step=1)


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda log: log.append({"x": np.zeros((3, 2))}), ValueError, r"needs \{'x': float32\[2\]"),
        (lambda log: log.append(rows(0, 3) | {"n": np.zeros(2)}), ValueError, r"stack the rows"),
        (lambda log: log.append(EXAMPLE), ValueError, r"type x\[None\] for one"),
        (lambda log: log.sample(0, 3), ReaderError, r"no rows at step 0: append some before"),
        (lambda log: log.set_priorities([0], [1.0]), ValueError, r"needs numbers of rows below 0"),
        (lambda log: log.append(rows(0, 1), step=-1), ValueError, r"step of replay"),
        (lambda log: log.rows("1", 3), TypeError, r"step of replay"),
        (lambda log: log.rows(1, -3), ValueError, r"size of replay"),
        (lambda log: log.take(np.array([0])), IndexError, r"needs numbers of rows below 0"),
        (lambda log: log.samples(0), ValueError, r"samples\(size\) of replay"),
    ],
)
def test_bad_input_is_refused(act, error, message):
    with pytest.raises(error, match=message):
        act(jreader.replay(EXAMPLE, 0))


@pytest.mark.parametrize("wrong", [[3], [-1], [0.7], [True, False, True], ["a"]])
def test_numbers_that_are_of_no_row_are_refused(wrong):
    log = jreader.replay(EXAMPLE, 0)
    log.append(rows(0, 3))
    with pytest.raises(IndexError, match=r"needs numbers of rows below 3, not"):
        log.take(np.array(wrong))
    with pytest.raises(ValueError, match=r"needs numbers of rows below 3, those of step 0"):
        log.set_priorities(wrong, np.ones(len(wrong)))


@pytest.mark.parametrize(
    ("example", "given"),
    [
        (np.uint8(0), [300]),
        (np.uint8(0), [-1]),
        (0, [1.5]),
        (0, [np.nan]),
        (np.float32(0), [1j]),
        (np.float32(0), ["1.5"]),
        ("abc", ["abcd"]),
        (0, [2**70]),
    ],
)
def test_values_that_the_dtype_of_the_example_does_not_hold_are_refused(example, given):
    log = jreader.replay({"n": example}, 0)
    with pytest.raises(ValueError, match=r"replay .*holds? .*give an example of a dtype that"):
        log.append({"n": np.array(given)})
    assert len(log) == 0


@pytest.mark.parametrize(
    ("example", "given"), [(np.uint8(0), [255]), (0, [2.0]), (np.float32(0), [1 / 3]), (0, [True])]
)
def test_values_of_other_dtypes_are_kept_where_they_fit_and_floats_are_rounded(example, given):
    log = jreader.replay({"n": example}, 0)
    log.append({"n": np.array(given)})
    assert (
        log.take(np.array([0]))["n"].tolist() == np.array(given, np.asarray(example).dtype).tolist()
    )


@pytest.mark.parametrize("example", [{}, {"n": None}, {"n": object()}])
def test_an_example_without_arrays_is_refused(example):
    with pytest.raises(
        TypeError, match=r"replay\(example, seed\) needs a tree of arrays or numbers"
    ):
        jreader.replay(example, 0)


def test_no_rows_declare_no_step():
    log = jreader.replay(EXAMPLE, 0)
    log.append(rows(0, 0), step=5)
    assert log.append(rows(0, 3), step=0) == 3
    assert sorted({*log.rows(0, 60).tolist()}) == [0, 1, 2]


def test_a_row_has_a_priority_from_its_own_step_on():
    log = jreader.replay(EXAMPLE, 0)
    log.append(rows(0, 4), step=0)
    log.append(rows(4, 4), step=5)
    with pytest.raises(ValueError, match=r"needs numbers of rows below 4, those of step 4, and"):
        log.set_priorities([7], [2.0], step=4)
    log.set_priorities([7], [2.0], step=5)


def test_priorities_are_finite_and_not_all_zero():
    log = jreader.replay(EXAMPLE, 0)
    log.append(rows(0, 2))
    for value in (-1.0, np.nan, np.inf, 1e308, 5e-324, "much"):
        with pytest.raises(ValueError, match=r"a value for each, 0 or from 1e-300 to 1e\+300, not"):
            log.set_priorities([0], [value])
    log.set_priorities([0, 1], [0.0, 0.0])
    with pytest.raises(ReaderError, match=r"are 0: set one above 0"):
        log.rows(0, 2)


@pytest.mark.parametrize(
    "change",
    [
        lambda cursor: "cursor",
        lambda cursor: {name: cursor[name] for name in ("log", "seed", "newest")},
        lambda cursor: {**cursor, "rows": -1},
        lambda cursor: {**cursor, "step": None},
    ],
)
def test_what_is_no_cursor_of_a_log_is_refused(change, tmp_path):
    log = jreader.replay(EXAMPLE, 0, folder=tmp_path)
    log.append(rows(0, 3))
    with pytest.raises(NotResumable, match=r"give what its run gave, and its folder"):
        jreader.replay(EXAMPLE, 0, folder=tmp_path, at=change(log.cursor))


def test_a_cursor_of_another_log_is_refused(tmp_path):
    log = jreader.replay(EXAMPLE, 0, folder=tmp_path / "log")
    log.append(rows(0, 2000))
    cursor = log.cursor
    for seed, example, folder in [
        (1, EXAMPLE, "log"),
        (0, {"x": np.float32(0)}, "log"),
        (0, EXAMPLE, None),
    ]:
        with pytest.raises(NotResumable, match=r"give what its run gave, and its folder"):
            jreader.replay(example, seed, folder=folder and tmp_path / folder, at=cursor)
    with pytest.raises(NotResumable, match=r"has fewer than 2000 rows"):
        jreader.replay(EXAMPLE, 0, folder=tmp_path / "other", at=cursor)
    with pytest.raises(FileExistsError, match=r"give at=cursor, or another folder"):
        jreader.replay(EXAMPLE, 0, folder=tmp_path / "log")


TRAINING = """
import json, os, signal, sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jreader
from jreader import Pipeline

STEPS, BATCH, ACTORS = 40, 16, 4
killed_at = int(sys.argv[1])


def moved(state, action):  # an environment in the manner of gymnax: a walk on a line
    place = jnp.clip(state + jnp.where(action == 1, 0.1, -0.1), -1, 1)
    return place, jnp.where(place > 0.5, 1.0, 0.0)


@jax.jit
def played(weights, states, number):
    explored = jax.random.key(number)
    values = weights[0] * states[:, None] + weights[1]
    random = jax.random.randint(explored, (ACTORS,), 0, 2)
    lucky = jax.random.uniform(explored, (ACTORS,)) < 0.3
    actions = jnp.where(lucky, random, values.argmax(1))
    after, rewards = jax.vmap(moved)(states, actions)
    return after, {"state": states, "action": actions, "reward": rewards, "after": after}


@jax.jit
def trained(weights, batch):
    def values(weights, states):
        return weights[0] * states[:, None] + weights[1]

    def errors(weights):
        goal = batch["reward"] + 0.9 * values(weights, batch["after"]).max(1)
        chosen = jnp.take_along_axis(values(weights, batch["state"]), batch["action"][:, None], 1)
        return chosen[:, 0] - jax.lax.stop_gradient(goal)

    slope = jax.grad(lambda weights: (errors(weights) ** 2).mean())(weights)
    return weights - 0.1 * slope, jnp.abs(errors(weights))


example = {"state": np.float32(0), "action": np.int32(0), "reward": np.float32(0)}
example["after"] = np.float32(0)
saved = Path("saved.json")
told = json.loads(saved.read_text()) if saved.exists() else None
log = jreader.replay(example, 0, newest=100, folder="log", at=told and told["log"])
loader = Pipeline(log.samples(BATCH)).batch(BATCH).load(capacity=0)
if told:
    weights, states = (jnp.asarray(told[name], jnp.float32) for name in ("weights", "states"))
else:
    weights, states = jnp.zeros((2, 2)), jnp.zeros(ACTORS)
    for number in range(5):
        states, made = played(weights, states, 1000 + number)
        log.append(made, step=0)
feeds = loader.steps(STEPS, at=told and told["feeds"])
for feed in feeds:
    rows = log.rows(feeds.step - 1, BATCH)
    weights, errors = trained(weights, feed)
    log.set_priorities(rows, np.asarray(errors) + 0.01, feeds.step)
    states, made = played(weights, states, feeds.step)
    log.append(made, feeds.step)
    print(feeds.step, np.asarray(rows).tolist(), np.asarray(weights).tolist(), flush=True)
    if feeds.step % 10 == 0:
        new = {"log": log.cursor, "feeds": feeds.cursor}
        new |= {"weights": np.asarray(weights).tolist(), "states": np.asarray(states).tolist()}
        Path("new.json").write_text(json.dumps(new))
        os.replace("new.json", saved)
    if feeds.step == killed_at:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def trained(folder, killed_at):
    command = [sys.executable, "-W", "error", "-c", TRAINING, str(killed_at)]
    run = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert run.returncode in (0, -9), run.stderr
    return {line.split()[0]: line for line in run.stdout.splitlines()}


def test_training_on_its_own_rollouts_ends_the_same_when_it_is_killed_and_resumed(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    expected = trained(whole, 0)
    assert len(expected) == 40
    first = trained(killed, 17)
    assert [*first][-1] == "17"
    second = trained(killed, 0)
    assert next(iter(second)) == "11"
    assert first | second == expected
