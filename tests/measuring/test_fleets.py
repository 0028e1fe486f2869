"""The report of several processes: which one the others wait for, and what to change there."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from together import processes

import jreader
from jreader import Pipeline, arrays
from jreader.measuring.fleet import Fleet, slowest_of
from jreader.measuring.verdicts import WAITS

times = st.floats(1e-6, 10)


@st.composite
def runs(draw):
    """What each of some processes knows of itself: none waits longer than its step takes."""
    found = []
    for process in range(draw(st.integers(1, 6))):
        waits, away = draw(st.sampled_from([0.0, 0.1]) | times), draw(times)
        found.append(Fleet(process, f"host {process}", f"stage {process}", waits, waits + away))
    return found


@given(runs(), st.randoms())
def test_the_slowest_is_the_one_that_waits_longest_for_its_own_data_in_any_order(run, random):
    fleet = slowest_of(run)
    assert fleet.waits == max(each.waits for each in run)
    assert replace(fleet, waited=0.0) == run[fleet.process]
    random.shuffle(run)
    assert slowest_of(run) == fleet


@given(runs())
def test_the_others_wait_for_it_no_longer_than_it_waits_itself(run):
    fleet = slowest_of(run)
    assert 0 <= fleet.waited <= fleet.waits / fleet.step <= 1
    more = fleet.waits - max(
        (each.waits for each in run if each.process != fleet.process), default=0
    )
    assert fleet.waited == more / fleet.step


@given(runs(), st.floats(0, 1))
def test_a_process_that_waits_less_changes_only_for_how_long_it_is_waited_for_alone(run, share):
    fleet = slowest_of(run)
    quicker = replace(run[0], process=len(run), waits=share * fleet.waits)
    more = slowest_of([*run, quicker])
    assert replace(more, waited=fleet.waited) == fleet
    assert more.waited <= fleet.waited


@given(runs(), st.sets(st.integers(6, 9)))
def test_a_fleet_travels_as_json_and_names_silent_processes(run, silent):
    fleet = slowest_of(run, sorted(silent))
    assert Fleet(**json.loads(json.dumps(asdict(fleet)))) == fleet
    assert all(f"{each}" in str(fleet).rpartition(" from ")[2] for each in silent)
    assert ("No report" in str(fleet)) == bool(silent)
    by_data = f"Process {fleet.process} (on host {fleet.process}) is the slowest" in str(fleet)
    assert by_data == (fleet.waits >= WAITS * fleet.step)
    assert by_data or "The step limits all processes, not the data" in str(fleet)


@pytest.mark.parametrize("fleet", [True, 0.5])
def test_a_run_of_one_process_has_the_plain_report(fleet):
    loader = Pipeline(arrays(np.arange(64))).batch(4).load()
    list(loader)
    assert jreader.report(loader, feeds=1, fleet=fleet).fleet is None


@pytest.mark.parametrize("fleet", [-1, "yes"])
def test_seconds_that_are_none_are_refused(fleet):
    loader = Pipeline(arrays(np.arange(64))).batch(4).load()
    with pytest.raises(ValueError, match=r"fleet of jreader.report needs seconds"):
        jreader.report(loader, fleet=fleet)


SLOW = """
import time
import jreader
from jreader import Pipeline, arrays

def numbers():
    for n in range(10**5):
        yield {"n": np.int32(n)}
def decode(row):
    if jax.process_index() == 1:
        time.sleep(0.005)  # a disk, say
    return row
mesh = jax.make_mesh((many,), ("data",))
total = jax.jit(lambda feed: feed["n"].sum())
found = []
for source in (arrays(n=np.arange(10**5, dtype=np.int32)), numbers):
    loader = Pipeline(source).map(decode).batch(8).load(sharding=mesh)
    with loader.steps() as feeds:
        for feed in feeds:
            float(total(feed))
            if feeds.step == 8:
                fleet = jreader.report(loader, feeds=2, fleet=1e12).fleet
                found.append([fleet.process, fleet.waited, str(fleet), list(fleet.silent)])
            if feeds.step == 12:
                if me == 1:
                    text = str(jreader.report(loader, feeds=2, fleet=0.2))
                    found.append(text.splitlines()[0])
                break
say(found)
"""


@pytest.mark.slow
def test_two_processes_name_the_slow_one_its_map_and_what_to_type_and_who_does_not_answer():
    quick, slow = processes(SLOW, 2, limit=120)
    assert quick == slow[::2]
    for process, waited, text, silent in quick:
        assert (process, silent) == (1, [])
        assert waited > 0.3
        assert "What limits there is the map `decode`" in text
        assert "`threads=" in text
    for text in slow[1::2]:
        assert "No report(loader, fleet=True) from [0]" in text
