"""Whatever happens around a loader, the process ends in time, and as it should."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from programs import PATIENCE

from jreader import Pipeline

EXITS = 50 if os.environ.get("JREADER_LAWS") == "once" else 6

LIVE = """
    import os, signal, sys, threading, time
    import jax, numpy as np
    from jreader import DataLoader, Pipeline, arrays

    def source():
        for number in range(10_000):
            yield np.full((512, 784), number, "float32")
            HERE

    loader = DataLoader.from_generator(capacity=4).set_batch_generator(source, PLACES)
    feeds = iter(loader)
    for _ in range(5):
        feed = next(feeds)
        time.sleep(0.002)
    assert [each for each in threading.enumerate() if each.name.startswith("jreader")]
    print("live", flush=True)
"""
LEAVING = {
    "end": ("", 0, ""),
    "exit": ("sys.exit(3)", 3, ""),
    "raise": ("raise LookupError('mine')", 1, "LookupError: mine"),
    "break": ("for feed in loader: break", 0, ""),
}


def live(here="pass", places="None"):
    return LIVE.replace("HERE", here).replace("PLACES", places)


def check_leaves(python, how, **options):
    """A process with live prefetch ends as the user said, soon and without another word."""
    last, code, said = LEAVING[how]
    done = python(live(**options) + f"\n    {last}", check=False)
    assert (done.returncode, done.stdout) == (code, "live\n"), done.stderr
    assert said in done.stderr if said else done.stderr == ""
    assert "Fatal" not in done.stderr


@pytest.mark.slow
def test_a_program_exits_with_live_prefetch(python):
    def leaves(number):
        places = ("None", "jax.devices()[3]", "jax.devices()")[number % 3]
        check_leaves(python, list(LEAVING)[number % len(LEAVING)], places=places)

    with ThreadPoolExecutor(2) as pool:
        assert len(list(pool.map(leaves, range(EXITS)))) == EXITS


@pytest.mark.parametrize("how", ["end", pytest.param("raise", marks=pytest.mark.slow)])
def test_a_program_exits_though_its_source_blocks(python, how):
    check_leaves(python, how, here="number > 6 and threading.Event().wait()")


INTERRUPTED = """
    import os, signal, sys, threading, time
    import numpy as np
    from jreader import DataLoader

    ended = threading.Event()

    def source():
        try:
            for number in range(10_000):
                if number == 8:
                    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
                    SOURCE
                yield np.full(4, number)
        finally:
            ended.set()

    loader = DataLoader.from_generator(capacity=CAPACITY).set_batch_generator(source)
    caught, seen, before = 0, [], threading.active_count()
    try:
        for feed in loader:
            seen.append(int(feed[0]))
            time.sleep(0.002)
            if len(seen) > 8:
                STEP
    except KeyboardInterrupt:
        caught += 1
    assert seen[:8] == list(range(8)), seen
    assert ended.wait(60)
    print("interrupted", caught)
"""


def interrupted(python, source="pass", step="pass", capacity=2):
    script = INTERRUPTED.replace("SOURCE", source).replace("STEP", step)
    return python(script.replace("CAPACITY", str(capacity))).stdout


@pytest.mark.parametrize("capacity", [pytest.param(0, marks=pytest.mark.slow), 2])
class TestInterrupts:
    def test_ctrl_c_in_the_step_ends_the_loop_once(self, python, capacity):
        assert interrupted(python, step="time.sleep(20)", capacity=capacity) == "interrupted 1\n"

    @pytest.mark.slow
    def test_ctrl_c_while_steps_run_ends_the_loop_once(self, python, capacity):
        assert interrupted(python, capacity=capacity) == "interrupted 1\n"


def test_ctrl_c_while_the_step_waits_for_data_ends_the_loop_once(python):
    assert interrupted(python, source="time.sleep(3)") == "interrupted 1\n"


@pytest.mark.slow
def test_ctrl_c_while_the_step_reads_for_itself_ends_the_loop_once(python):
    assert interrupted(python, source="time.sleep(20)", capacity=0) == "interrupted 1\n"


@pytest.mark.slow
def test_an_unheard_ctrl_c_ends_the_program_with_its_code(python):
    script = live() + (
        "\n    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()"
        "\n    for feed in loader: time.sleep(0.001)"
    )
    done = python(script, check=False)
    assert done.returncode == -2
    assert done.stderr.count("KeyboardInterrupt") == 1


def test_a_pass_that_another_thread_closes_ends_for_its_consumer():
    waits, fed, go_on = threading.Event(), threading.Event(), threading.Event()

    def numbers():
        yield 0
        waits.set()
        go_on.wait(PATIENCE)
        yield 1

    loader, seen = Pipeline(numbers).batch(1).load(), []

    def consume():
        for feed in loader:
            seen.append(feed.tolist())
            fed.set()

    with loader:
        consumer = threading.Thread(target=consume)
        consumer.start()
        assert waits.wait(PATIENCE)
        assert fed.wait(PATIENCE)
    go_on.set()
    consumer.join(PATIENCE)
    assert seen == [[0]]
    cursor = loader.state_dict()
    assert (cursor["epoch"], cursor["step"]) == (0, 1)  # closed, not at its end
    assert not consumer.is_alive()


def test_an_error_in_the_training_loop_is_the_users(python):
    script = live() + "\n    for feed in loader: feed['image']"
    done = python(script, check=False)
    assert done.returncode == 1
    assert "jreader" not in done.stderr.partition("Traceback")[2].partition("rror:")[0]
