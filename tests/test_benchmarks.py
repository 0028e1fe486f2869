"""The benchmarks against every peer, and of one feed, in small."""

import ast
import json
import subprocess
import sys
import threading

import numpy as np
import pytest
from programs import PATIENCE, ROOT

from jreader import Pipeline, arrays
from tests.benchmarks import replay, sweep
from tests.benchmarks.gauntlet.judging import Verdict, at_million, judged
from tests.benchmarks.gauntlet.scenarios import PLANS, SCENARIOS, function_of
from tests.benchmarks.gauntlet.tables import BEGIN, END, page, written
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
def test_skipped_work_is_reported(labels, told):
    job = Job("a", np.arange(4), 2, np.arange(4)[:, None], lead=0, most=2, on_device=False)
    job.turn(lambda _epoch: rows(labels), 0)
    assert job.wrong == told


def test_rows_beside_the_wrong_labels_are_reported():
    job = Job("a", np.arange(4), 2, np.arange(4)[:, None], lead=0, most=2, on_device=False)
    job.turn(lambda _epoch: [(9 - images, labels) for images, labels in rows([0, 1, 2, 3])], 0)
    assert job.wrong == "a row does not belong to its label"


def test_an_epoch_that_lacks_batches_is_reported():
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


@pytest.mark.slow
def test_a_run_of_the_gauntlet_is_killed_resumed_counted_and_reported(tmp_path):
    pytest.importorskip("pyarrow")
    chosen = ["--plans", "filtered", "--changes", "batches of 24, then 16", "2 hosts, then 4"]
    command = [sys.executable, "-m", "tests.benchmarks.gauntlet", tmp_path, *chosen, "--late"]
    command += ["--contestants", "jreader", "nobody"]
    done = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=PATIENCE
    )
    told = json.loads((tmp_path / "verdicts.json").read_text())
    assert "nobody: cannot be imported" in done.stdout
    verdicts = told["jreader"]["verdicts"].values()
    assert [each["outcome"] for each in verdicts] == ["passed", "passed"]
    assert all(each["size"] > 100 for each in verdicts)
    assert f"**2 of {len(SCENARIOS)}**" in (tmp_path / "table.md").read_text()


CONTESTANTS = sorted((ROOT / "tests/benchmarks/gauntlet/contestants").glob("*.py"))


@pytest.mark.parametrize("path", CONTESTANTS, ids=lambda path: path.stem)
def test_each_contestant_runs_a_plan_or_says_why_it_cannot(path):
    """Reads the file: the libraries of the others are not installed here."""
    runs, refuses = set(), []
    for statement in ast.parse(path.read_text()).body:
        match statement:
            case ast.FunctionDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                runs.add(name)
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id="CANNOT")], value=ast.Dict(keys=keys))
                | ast.AnnAssign(target=ast.Name(id="CANNOT"), value=ast.Dict(keys=keys))
            ):
                refuses = [key.value for key in keys]
    assert sorted([*refuses, *(plan for plan in PLANS if function_of(plan) in runs)]) == sorted(
        PLANS
    )


WHOLE = [[1, 2], [3, 4], [5, 6], [7, 8]]


@pytest.mark.parametrize(
    ("seen", "alone", "outcome", "lost", "doubled"),
    [
        (WHOLE, True, "passed", 0, 0),
        ([[1, 2], [3, 4, 5, 6], [7, 8]], True, "passed", 0, 0),
        ([[1, 2], [4, 3], [6, 5], [8, 7]], False, "passed", 0, 0),
        ([[1, 2], [6, 4, 5, 3], [7, 8]], False, "passed", 0, 0),
        ([[1, 2], [4, 3], [5, 6], [7, 8]], True, "other order", 0, 0),
        ([[1, 2], [5, 6], [3, 4], [7, 8]], False, "other order", 0, 0),
        ([[1, 2], [3, 4.5], [5, 6], [7, 8]], True, "other values", 0, 0),
        ([[1, 2], [5, 6], [7, 8]], True, "wrong", 2, 0),
        ([*WHOLE, [8, 9]], True, "wrong", 0, 2),
        ([[1, 2], [2, 3], [4, 5], [6, 7]], True, "wrong", 1, 1),
    ],
)
def test_the_gauntlet_counts_each_sample_and_compares_each_step(
    seen, alone, outcome, lost, doubled
):
    verdict = judged(Verdict("nothing", "shuffled", "passed"), WHOLE, seen, alone=alone)
    assert (verdict.outcome, verdict.lost, verdict.doubled) == (outcome, lost, doubled)


def test_what_step_a_million_takes_is_measured_or_follows_from_the_steps_before():
    assert at_million({10**4: 1, 10**5: 2, 10**6: 3}) == 3
    assert at_million({10**4: 1, 10**5: 10}) == 100
    assert at_million({10**4: 2, 10**5: 1}) == 1


def verdicts_of(**outcomes):
    plans = {f"{plan}: nothing": {"plan": plan, **each} for plan, each in outcomes.items()}
    return {key: vars(Verdict("nothing", **each)) for key, each in plans.items()}


@pytest.fixture
def told():
    noise = "no | {{function_node x}} it [Op:Next] name: "
    grain = verdicts_of(
        shuffled={"outcome": "passed", "size": 1234},
        packed={"outcome": "passed", "size": 1012},
        streamed={"outcome": "other order"},
        mixed={"outcome": "refused", "reason": "no"},
        far={"outcome": "cannot", "reason": "reads no files"},
        blocks={"outcome": "refused", "reason": noise},
        filtered={"outcome": "wrong", "lost": 3, "doubled": 1},
    )
    ours = verdicts_of(far={"outcome": "cannot", "reason": "reads no files"})
    seconds = {"10000": 1, "100000": 2}
    late = {
        "shuffled": {"seconds": seconds, "at_million": 1234.5, "size": 1009},
        "filtered": {"seconds": {**seconds, "1000000": 3}, "at_million": 0.0521, "size": 7},
    }
    return {
        "grain": {"version": "Grain 1", "verdicts": grain, "late": late},
        "jreader": {"version": "jreader 2", "verdicts": ours, "late": {"filtered": {}}},
    }


def test_the_table_of_the_gauntlet_has_a_row_for_each_scenario_and_totals(told):
    head, ruler, *lines = page(told).splitlines()
    assert head == "| plan | what changes at the resume | jreader | Grain |"
    assert ruler == "|---|---|---|---|"
    assert len(lines[: lines.index("")]) == len(SCENARIOS) + 3
    filtered = lines.index("| filtered | nothing | - | **lost 3, doubled 1** |")
    assert [line[:4] for line in lines[filtered + 1 : filtered + 4]] == ["|  |"] * 3
    assert "| shuffled | nothing | - | passed |" in lines
    assert "| streamed | nothing | - | other order |" in lines
    assert f"| **passed** |  | **0 of {len(SCENARIOS)}** | **2 of {len(SCENARIOS)}** |" in lines
    assert "| **samples lost, doubled** |  | 0, 0 | 3, 1 |" in lines
    assert "| **bytes of the state** |  | - | 1,012 to 1,234 |" in lines


def test_the_table_of_the_gauntlet_numbers_the_reasons_once(told):
    made = page(told)
    assert "| mixed | nothing | - | refused (1) |" in made
    assert "| blocks | nothing | - | refused (2) |" in made
    assert "| far | nothing | cannot (3) | cannot (3) |" in made
    assert "Reasons:\n\n1. no\n2. no /  it\n3. reads no files\n\nPlans:\n\n- *shuffled*: " in made
    assert made.endswith("Versions: Grain 1, jreader 2.")


def test_the_table_of_step_a_million_says_which_times_were_not_measured(told):
    assert page(told).split("\n\n")[-2].splitlines() == [
        "| from step 10^6 | jreader | Grain |",
        "|---|---|---|",
        "| shuffled: seconds to the first batch | - | about 1,234 |",
        "| shuffled: bytes of the state | - | 1,009 |",
        "| filtered: seconds to the first batch | - | 0.052 |",
        "| filtered: bytes of the state | - | 7 |",
    ]


def test_tables_of_the_gauntlet_replace_those_of_before(told, tmp_path):
    there = tmp_path / "page.md"
    there.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    written(told, there)
    assert there.read_text() == f"before\n{BEGIN}\n\n{page(told)}\n\n{END}\nafter\n"


@pytest.mark.slow
def test_a_sweep_in_one_program_ends_with_the_parameters_of_its_loaders(capsys):
    sweep.main(steps=4, width=2)
    told = capsys.readouterr().out
    assert "8 runs, as one program" in told
    assert float(told.split()[-1]) < 1e-6


@pytest.mark.slow
def test_a_log_and_a_ring_by_hand_are_measured_in_small(capsys):
    replay.main(steps=3, size=2)
    assert capsys.readouterr().out.count("logged") == 2
