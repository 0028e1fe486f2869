"""Real processes of which one fails, leaves or is killed: the others are told at once, and end.

jax itself would wait for 300 s here, as it does where nothing else was asked for.
"""

from __future__ import annotations

import pytest
from together import ended

BETWEEN = """
import os, signal, threading
import jreader
from jreader import Pipeline, arrays

def numbers():
    for n in range(10**6):
        yield {"n": np.int32(n)}
mesh = jax.make_mesh((many,), ("data",))
plan = Pipeline(numbers) if given["streamed"] else Pipeline(arrays(n=np.arange(10**6)))
loader = plan.batch(8).load(sharding=mesh, capacity=4, peer_timeout=1000)
total = jax.jit(lambda feed: feed["n"].sum())
def step(feed):
    if given["together"]:
        return float(total(feed))  # waits for the others
    return float(np.asarray(feed["n"].addressable_shards[0].data).sum())
def fail(how):
    if how == "raise":
        raise ValueError("the loss is nan")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        sys.exit(0)
def loop(feeds):
    for number, feed in enumerate(feeds):
        if me == given["who"] and number == 20:
            if given["how"] == "break":
                break
            fail(given["how"])
        step(feed)
"""
PLAIN = BETWEEN + "loop(loader)"
CAUGHT = (
    BETWEEN
    + """
try:
    with loader.steps() as feeds:
        loop(feeds)
except ValueError:
    threading.Event().wait()
"""
)
LATER = (
    BETWEEN
    + """
for feed in loader.steps(20):
    step(feed)
if me == given["who"]:
    fail(given["how"])
loop(loader.steps())
"""
)


FORKED = (
    BETWEEN
    + """
import warnings
warnings.simplefilter("ignore")  # of os.fork where there are threads
feeds = loader.steps(40)
for feed in feeds:
    step(feed)
    if me == given["who"] and feeds.step == 20:
        child = os.fork()
        if not child:
            try:
                next(feeds)
            except jreader.ReaderError as error:
                sys.excepthook(type(error), error, None)
                del feeds
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert feeds.step == 40
"""
)


ALONE = (
    BETWEEN
    + """
if me == given["who"]:
    for feed in loader.steps(3):
        step(feed)
from jax.experimental import multihost_utils
multihost_utils.sync_global_devices("done")
"""
)


EARLY = (
    BETWEEN
    + """
from jax._src import distributed
store = distributed.global_state.client
if me == given["who"]:
    feeds = loader.steps()
    next(feeds)
    store.key_value_set("begun", str(os.getpid()))
    fail("kill")
gone = f"/proc/{store.blocking_key_value_get('begun', 100_000)}/stat"
while open(gone).read().split()[2] != "Z":
    pass
loop(loader)
"""
)


def said(script, who, how="raise", together=False, streamed=False, stays=None):
    """How the process that fails ended, and how the other one; one may stay until it is killed."""
    given = {"who": who, "how": how, "together": together, "streamed": streamed}
    both = ended(script, 2, given=given, limit=250, patience=300, stays=stays)
    return both[who], both[1 - who]


BUSY = (
    BETWEEN
    + """
import time
from jax._src import distributed
feeds = loader.steps()
next(feeds)
if me == given["who"]:
    fail("kill")
began = time.monotonic()
while b"it was killed" not in os.pread(2, 1_000_000, 0):
    os.sched_yield()
say([me, time.monotonic() - began])
store = distributed.global_state.client
store.key_value_set(f"told {me}", "")
for other in {0, 1, 2, 3} - {me, given["who"]}:
    store.blocking_key_value_get(f"told {other}", 100_000)
if me == 0:  # the store lives here: it stays until it is killed, after the others
    threading.Event().wait()
os._exit(0)
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("who", [3])
def test_of_four_processes_all_are_told_within_ten_seconds_that_one_was_killed(who):
    given = {"who": who, "streamed": False, "together": False}
    every = ended(BUSY, 4, given=given, limit=250, patience=300, stays=0)
    assert every.pop(who).code == -9
    assert all(each.said[1] < 10 for each in every)


@pytest.mark.slow
class TestOfTwoProcesses:
    @pytest.mark.parametrize(("who", "streamed"), [(0, True), (1, False)])
    def test_of_which_one_raises_both_end_with_that_error(self, who, streamed):
        failed, other = said(PLAIN, who, streamed=streamed)
        assert (failed.code, other.code) == (1, 1)
        assert failed.err.rstrip().endswith("ValueError: the loss is nan")
        assert f"ReaderError: process {who} stopped after 21 feeds of this pass" in other.err
        assert "ValueError: the loss is nan. No step can go on without it" in other.err

    @pytest.mark.parametrize("who", [0, 1])
    def test_of_which_one_raises_and_the_other_waits_in_a_step_both_end(self, who):
        failed, other = said(PLAIN, who, together=True)
        assert failed.code == 1
        assert "ValueError: the loss is nan" in failed.err
        assert "this process leaves without the others" in failed.err
        told = f"jreader: process {who} stopped after 21 feeds of this pass: ValueError: the loss"
        assert told in other.err
        assert other.code in (1, -6)  # where process 0 is gone, jax aborts the others

    @pytest.mark.parametrize(
        ("how", "why"),
        [("break", "it closed the pass before its end"), ("exit", "its program has ended")],
    )
    def test_of_which_one_takes_fewer_feeds_the_other_gets_an_error(self, how, why):
        left, other = said(PLAIN, 1, how)
        assert (left.code, other.code) == (0, 1)
        assert f"ReaderError: process 1 stopped after 21 feeds of this pass: {why}" in other.err

    def test_of_which_one_catches_its_error_and_stays_the_other_is_told(self):
        _, other = said(CAUGHT, 1, stays=1)
        assert "ReaderError: process 1 stopped after 21 feeds" in other.err
        assert "ValueError: the loss is nan. No step" in other.err

    @pytest.mark.parametrize("how", ["raise", "exit"])
    def test_of_which_one_ends_between_two_passes_the_other_gets_an_error(self, how):
        _, other = said(LATER, 1, how)
        why = "ValueError: the loss is nan" if how == "raise" else "its program has ended"
        assert f"ReaderError: process 1 stopped after 0 feeds of this pass: {why}" in other.err

    def test_of_which_one_is_killed_the_other_leaves_the_step_that_it_waits_in(self):
        killed, other = said(PLAIN, 1, "kill", together=True)
        assert (killed.code, other.code) == (-9, 1)
        assert "all-reduce failed" in other.err
        assert "this process leaves without the others" in other.err

    @pytest.mark.parametrize("streamed", [False, True])
    def test_of_which_one_is_killed_the_other_is_told_wherever_it_is(self, streamed):
        killed, other = said(PLAIN, 1, "kill", streamed=streamed)
        assert (killed.code, other.code) == (-9, 1)
        told = "process 1: it was killed, or its machine is lost"
        assert f"jreader: {told}.\n" in other.err
        assert f"ReaderError: {told}. No step can go on without it; this process is" in other.err

    def test_of_which_one_is_killed_before_the_other_begins_that_one_is_told(self):
        killed, other = said(EARLY, 1, "kill")
        assert (killed.code, other.code) == (-9, 1)
        assert "ReaderError: process 1: it was killed, or its machine is lost. No step" in other.err

    @pytest.mark.parametrize("who", [0, 1])
    def test_of_which_one_never_iterates_both_end_well(self, who):
        both = ended(ALONE, 2, given={"who": who, "streamed": False, "together": False})
        assert [(each.code, each.err) for each in both] == [(0, "")] * 2

    @pytest.mark.parametrize("streamed", [False, True])
    def test_of_which_one_forks_nobody_hears_of_the_child(self, streamed):
        forks, other = said(FORKED, 1, streamed=streamed)
        assert (forks.code, other.code) == (0, 0)
        assert "was forked from it" in forks.err
        assert "stopped after" not in other.err
