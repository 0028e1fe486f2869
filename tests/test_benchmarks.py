"""The benchmarks against every peer, and of one feed, in small."""

import json
import subprocess
import sys
import threading

import numpy as np
import pytest
from programs import PATIENCE, ROOT

from jreader import Pipeline, arrays
from tests.benchmarks.one_feed import calls_of, counting
from tests.benchmarks.peers.contest import Contestant
from tests.benchmarks.peers.goals import verdicts
from tests.benchmarks.peers.jobs import Job

SMALL = ["--rounds", "2", "--sittings", "1", "--size", "0.02", "--seconds", "0.02"]


@pytest.fixture
def table(tmp_path):
    def run(*words):
        command = [sys.executable, "-m", "tests.benchmarks.peers", tmp_path, *SMALL, *words]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE)
        told = json.loads((tmp_path / "figures.json").read_text())
        return (tmp_path / "table.md").read_text(), told

    return run


@pytest.mark.slow
def test_one_command_compares_writes_tables_and_judges_the_goals(table, tmp_path):
    page, told = table("--workloads", "a", "--contestants", "jreader.float32", "by_hand.float32")
    assert "| jreader: float32 |" in page
    assert "| by hand: float32 |" in page
    assert "at least 0.95 x" in page
    assert "| jreader |" in (tmp_path / "summary.md").read_text()
    for contestant in told["results"]:
        assert len(contestant["figures"]["a"]) == 2
        assert not contestant["note"]


@pytest.mark.slow
def test_other_workloads_run_in_small(table):
    cases = ("b", "c", "e", "f memory", "g 1e3")
    names = (f"jreader.{play}" for play in ("pixels", "stream", "slow", "any_size"))
    _, told = table("--workloads", *cases, "--contestants", *names)
    assert {each["case"]: each["note"] for each in told["results"]} == dict.fromkeys(cases, "")
    measured = {name for each in told["results"] for name in each["figures"]}
    assert measured == {"b", "c", "e", "g 1e3", "f memory awaited", "f memory not awaited"}


@pytest.mark.slow
def test_what_cannot_be_run_is_left_out_and_named(table):
    page, told = table("--workloads", "c stack", "--contestants", "nobody")
    assert told["results"] == []
    assert "###" not in page


def rows(labels, batch=2):
    return [(np.array(each)[:, None], np.array(each)) for each in np.split(np.array(labels), batch)]


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ([3, 1, 2, 0], ""),
        ([3, 1, 2, 2], "samples came twice in an epoch"),
        ([3, 1], "2 batches hold 2 samples, not 2 each"),
    ],
)
def test_work_that_was_skipped_is_told(labels, told):
    job = Job("a", np.arange(4), 2, np.arange(4)[:, None], lead=0, most=2, on_device=False)
    job.turn(lambda _epoch: rows(labels), 0)
    assert job.wrong == told


def test_rows_beside_the_wrong_labels_are_told():
    job = Job("a", np.arange(4), 2, np.arange(4)[:, None], lead=0, most=2, on_device=False)
    job.turn(lambda _epoch: [(9 - images, labels) for images, labels in rows([0, 1, 2, 3])], 0)
    assert job.wrong == "a row does not belong to its label"


def test_an_epoch_that_lacks_batches_is_told():
    job = Job("a", np.arange(4), 2, np.arange(4)[:, None], lead=0, most=3, on_device=False)
    job.turn(lambda _epoch: rows([0, 1, 2, 3])[:1], 0)
    assert job.wrong == "an epoch had 1 batches, not 2"


def contestant(name, *figures):
    module, play = name.split(".")
    return Contestant(module, play, "a", module, "", "", figures={"a": list(figures)})


def test_a_goal_is_the_middle_of_the_ratios_of_the_rounds():
    ours, other = (
        contestant("jreader.float32", 10, 30, 8),
        contestant("by_hand.float32", 10, 10, 10),
    )
    (row,) = [row for row in verdicts([ours, other]) if row[0].endswith("the loop by hand")]
    assert row[1:] == ("1.00 (0.80 to 3.00)", "at least 0.95 x", "reached")


def test_a_goal_that_is_missed_says_by_how_much():
    ours, other = contestant("jreader.float32", 57), contestant("by_hand.float32", 100)
    (row,) = [row for row in verdicts([ours, other]) if row[0].endswith("the loop by hand")]
    assert row[3] == "missed by 40%"


@pytest.mark.slow
def test_one_feed_is_counted_compared_and_waited_for():
    brief = ["--turns", "2", "--seconds", "0.02", "--size", "0.02", "--epochs", "2"]
    command = [sys.executable, "-m", "tests.benchmarks.one_feed", *brief]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    titles = {row[0].strip("| ") for row in rows}
    assert {"arrays, capacity 0", "float32 on the host: by hand", "loader.steps()"} <= titles
    assert "a shuffled stream" in titles
    assert len(rows) == 1 + 6 * 3 + 1 + 5 + 1 + 3 + 1 + 3


def test_calls_are_counted_on_every_thread_that_begins():
    def called():
        return None

    with counting() as since:
        called()
        assert [name for _, name in since() if name.endswith("called")] == [called.__qualname__]
        thread = threading.Thread(target=called)
        thread.start()
        thread.join()
        called()
        assert [name for _, name in since()].count(called.__qualname__) == 2


def test_a_feed_that_draws_more_takes_more_calls():
    def counted(samples):
        stages = Pipeline(arrays(n=np.arange(4000))).map(lambda row: row["n"]).batch(samples)
        seen, feeds = calls_of(stages.load(capacity=0), other_threads=False)["steady"]
        return len(seen) / feeds

    assert counted(40) >= counted(20) + 20
