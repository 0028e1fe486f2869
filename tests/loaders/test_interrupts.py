"""Runs that signals interrupt at random moments, saved exactly, and the signals afterwards."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import threading

import pytest
from programs import PATIENCE, program
from together import processes

from jreader import graceful_stop

STOPS = int(os.environ.get("JREADER_STOPS", "40"))

TRAINING = """
import json, sys
import jax, numpy as np
from jreader import Pipeline, arrays, graceful_stop

rows = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
def sampled():
    yield from rows
def noisy(row, rng):
    return row + rng.normal(size=4).astype("float32")
mapped = {"threads": {"threads": 2}, "processes": {"processes": 2}}
def plan():
    if KIND == "indexed":
        return Pipeline(arrays(rows)).shuffle(seed=3)
    return Pipeline(sampled).shuffle(8, seed=3).map(noisy, rng=True, seed=5, **mapped[KIND])
loader = plan().batch(8).load()
step = jax.jit(lambda weights, feed: (weights * 0.999 + feed.sum(0), (weights * feed).sum()))
begins = np.zeros(4, "float32"), None
weights, losses, loss = begins[0], [], None
jax.block_until_ready(step(begins[0], rows[:8]))
"""

# what is saved is replaced as one, so that it is of one moment
DEFERRED = """
saved = (*begins, ())
while True:
    weights, at, losses = saved[0], saved[1], list(saved[2])
    try:
        with graceful_stop() as stop:
            print(len(losses), flush=True)
            feeds = loader.steps(STEPS, at=at)
            for feed in feeds:
                weights, loss = step(weights, feed)
                losses.append(float(loss))
                if stop:
                    break
            saved = weights, feeds.cursor, losses
            if not stop:
                break
    except (KeyboardInterrupt, SystemExit):
        assert len(losses) == feeds.step, (len(losses), feeds.step)
print(json.dumps(losses), flush=True)
"""

COMMITTED = """
done = (*begins, ())
while True:
    try:
        weights, at, losses = done
        print(len(losses), flush=True)
        feeds = loader.steps(STEPS, at=at)
        for feed in feeds:
            weights, loss = step(done[0], feed)
            done = weights, feeds.cursor, (*done[2], float(loss))
        break
    except (KeyboardInterrupt, RuntimeError):  # the locks of `threading` may make one of the other
        pass
print(json.dumps(done[2]), flush=True)
"""


def losses_of(loop, kind, steps, signals, *, again):
    """The losses of a run that is signalled at random moments, and how often it began anew.

    `again` is whether another signal comes where one shows no effect: Python drops an interrupt
    that comes while it calls a finalizer.
    """
    moments, begun, sent = random.Random(f"{loop}{kind}"), 0, 0
    names = f"KIND, STEPS = {kind!r}, {steps}"
    with program(names, TRAINING, loop) as running:
        while True:
            said = json.loads(running.says())
            if isinstance(said, list):
                return said, begun
            begun, wait = begun + 1, moments.random() / 100
            while sent < STOPS:  # a moment that no event marks: anywhere in the loop
                ready, _, _ = select.select([running.process.stdout], [], [], wait)
                if ready:
                    break
                if moments.choice(signals) == signal.SIGINT:
                    running.signal(signal.SIGINT)  # to workers too, as a terminal does
                else:
                    running.process.terminate()
                sent, wait = sent + 1, 2 if again else PATIENCE


@pytest.fixture(scope="module")
def undisturbed():
    """The losses of runs that nothing interrupts, which workers do not change."""
    names = "KIND, STEPS = {!r}, {}"
    found = {}
    for kind, steps in (("indexed", 8_000), ("threads", 2_000)):
        with program(names.format(kind, steps), TRAINING, COMMITTED) as running:
            assert running.says() == "0"
            found[kind] = json.loads(running.says())
            assert len(set(found[kind])) > steps / 2
    return found


@pytest.mark.slow
class TestARunThatIsInterruptedAtRandomMoments:
    @pytest.mark.parametrize("kind", ["indexed", "threads", "processes"])
    def test_loses_and_repeats_no_step_where_signals_wait_for_its_end(self, kind, undisturbed):
        whole = undisturbed["indexed" if kind == "indexed" else "threads"]
        signals = [signal.SIGINT, signal.SIGTERM]
        losses, begun = losses_of(DEFERRED, kind, len(whole), signals, again=False)
        assert losses == whole
        assert begun == STOPS + 1

    @pytest.mark.parametrize("kind", ["indexed", "threads"])
    def test_nor_where_parameters_and_cursor_are_replaced_as_one(self, kind, undisturbed):
        whole = undisturbed[kind]
        losses, begun = losses_of(COMMITTED, kind, len(whole), [signal.SIGINT], again=True)
        assert losses == whole
        assert begun > STOPS / 6


class TestSignals:
    @pytest.mark.parametrize(
        ("number", "code"),
        [
            pytest.param(signal.SIGINT, -signal.SIGINT, marks=pytest.mark.slow),
            (signal.SIGTERM, 128 + 15),
        ],
    )
    def test_end_the_program_behind_the_block(self, number, code):
        rest = """
            import os, signal
            from jreader import graceful_stop
            with graceful_stop() as stop:
                os.kill(os.getpid(), SIGNAL)
                print("stops" if stop else "goes on", flush=True)
            print("behind", flush=True)
        """
        with program(rest.replace("SIGNAL", str(int(number)))) as running:
            assert running.says() == "stops"
            seen, errors = running.ends()
            assert seen == code
            assert f"{number.name}: finishing this step first" in errors
            assert not running.process.stdout.read()

    def test_that_come_twice_are_not_held_back(self):
        with graceful_stop() as stop:
            signal.raise_signal(signal.SIGINT)
            assert stop
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_a_block_without_signals_restores_the_handlers(self):
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        with graceful_stop() as stop:
            assert not stop
        assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    def test_reach_the_handlers_that_the_program_had_set(self):
        came = []
        before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
        try:
            with graceful_stop():
                signal.raise_signal(signal.SIGTERM)
                assert not came
            assert came == [signal.SIGTERM]
        finally:
            signal.signal(signal.SIGTERM, before)

    def test_ignored_signals_stay_ignored(self):
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with graceful_stop() as stop:
                signal.raise_signal(signal.SIGINT)
                assert not stop
        finally:
            signal.signal(signal.SIGINT, before)

    def test_hide_no_error_of_the_loop(self):
        def loop():
            with graceful_stop():
                signal.raise_signal(signal.SIGTERM)
                raise ValueError("of the loop")

        with pytest.raises(ValueError, match="of the loop") as seen:
            loop()
        assert seen.value.__notes__ == ["SIGTERM arrived during the block, and was held back."]

    def test_are_for_the_main_thread(self):
        seen = []

        def elsewhere():
            with pytest.raises(RuntimeError, match="for the main thread") as error:
                graceful_stop().__enter__()
            seen.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert seen


SEVERAL = """
import os, signal
from jreader import Pipeline, arrays, graceful_stop

mesh = jax.make_mesh((many,), ("data",))
loader = Pipeline(arrays(n=np.arange(80_000))).shuffle(seed=1).batch(8).load(sharding=mesh)
total = jax.jit(lambda feed: feed["n"].sum())
sums, left = [], ""
try:
    with graceful_stop() as stop, loader.steps() as feeds:
        for feed in feeds:
            sums.append(int(total(feed)))
            if feeds.step == 20 and me == given["who"]:
                os.kill(os.getpid(), given["signal"])
            if stop:
                break
except BaseException as error:
    left = repr(error)
say([feeds.step, len(sums), feeds.cursor["samples"], left])
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_processes_of_which_one_has_a_signal_stop_behind_the_same_step(number):
    first, second = processes(SEVERAL, 2, given={"who": 1, "signal": int(number)})
    assert first[:3] == second[:3]
    assert first[0] == first[1] > 20
    assert first[3] == "SystemExit(143)"
    assert second[3] == ("KeyboardInterrupt()" if number == signal.SIGINT else "SystemExit(143)")
