"""Files that only a hosting service runs: what can be checked of them here."""

from __future__ import annotations

import re
import tomllib

import pytest
from programs import ROOT

yaml = pytest.importorskip("yaml")

HOSTED = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in (".github", ".ci")
    for path in (ROOT / folder).rglob("*.y*ml")
)
WORKFLOWS = [name for name in HOSTED if "/workflows/" in name]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(name):
    return yaml.safe_load((ROOT / name).read_text())


def steps(name):
    return [step for job in read(name)["jobs"].values() for step in job["steps"]]


def test_every_file_is_yaml():
    assert len(WORKFLOWS) >= 4
    assert all(isinstance(read(name), dict) for name in HOSTED)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_jobs_may_read_only_unless_they_say_so_and_end_in_time(name):
    workflow = read(name)
    assert set(workflow["permissions"]) == {"contents"}
    assert all(0 < job["timeout-minutes"] <= 60 for job in workflow["jobs"].values())


@pytest.mark.parametrize("name", WORKFLOWS)
def test_commands_name_files_modules_and_extras_that_exist(name):
    for step in steps(name):
        command = step.get("run", "")
        for path in re.findall(r"(?<![\w/.])(?:\.ci|tests|docs)/[\w./]+", command):
            assert (ROOT / path).exists(), path
        for module in re.findall(r"-m (tests[\w.]+)", command):
            place = ROOT / module.replace(".", "/")
            assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module
        for extra in re.findall(r"'\.\[([\w,]+)\]'", command):
            assert set(extra.split(",")) <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("name", WORKFLOWS)
def test_nothing_that_others_write_is_run_as_a_command(name):
    """An expression in a script is put in before the shell reads it: names come by `env`."""
    assert not [step for step in steps(name) if "${{" in step.get("run", "")]


def test_the_versions_of_python_that_are_named_are_those_that_are_tested():
    tested = read(".github/workflows/ci.yml")["jobs"]["tests"]["strategy"]["matrix"]
    known = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    assert set(known) <= set(tested["python"])
    assert tested["python"][0] == PROJECT["requires-python"].removeprefix(">=")


def test_the_oldest_jax_and_numpy_that_are_tested_are_those_that_are_allowed():
    command = next(step["run"] for step in steps(".github/workflows/ci.yml") if "==" in str(step))
    for pinned, version in re.findall(r"'(\w+)==([\d.]+?)(?:\.0|\.\*)'", command):
        assert f"{pinned}>={version}" in PROJECT["dependencies"]


def test_the_recipe_has_the_dependencies_of_the_package():
    recipe = read(".ci/recipe.yaml")
    needed = {each.replace(" ", "") for each in recipe["requirements"]["run"]}
    assert needed == {*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"}
    assert recipe["context"]["version"] in (ROOT / "CITATION.cff").read_text()
