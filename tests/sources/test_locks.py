"""Locks: what the samples of a plan follow from, for others who want the same."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from hashlib import sha256
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from graphs import recipes
from hypothesis import given
from hypothesis import strategies as st
from programs import PATIENCE, ROOT, program
from seen import through_json
from widths import examples

import jreader
from jreader import DamagedData, Pipeline, arrays, image_folder, jsonl, mix, npy, ragged, tokens
from jreader.pipelines import locking
from jreader.readers.hashing import text_hash

LINES = [f'{{"n": {n}}}\n' for n in range(100)]


@pytest.fixture
def folder(tmp_path):
    """Two files of lines, in two folders, and one of tokens."""
    for name, lines in (("a/0.jsonl", LINES[:40]), ("b/0.jsonl", LINES[40:])):
        (path := tmp_path / name).parent.mkdir()
        path.write_text("".join(lines))
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "words.bin")
    return tmp_path


def lines(folder):
    return Pipeline(jsonl([folder / "a/0.jsonl", folder / "b/0.jsonl"])).shuffle(seed=3)


def data_of(path):
    return json.loads(path.read_text())["data"]


def written_again(path, change):
    """Changes a lock as if it had been made so."""
    kept = json.loads(path.read_text())
    del kept["lock"]
    change(kept)
    path.write_text(json.dumps({"lock": text_hash(kept), **kept}))


TRAIN = """
import hashlib, sys
import numpy as np
from jreader import Pipeline, jsonl, mix, tokens

def noisy(row, rng):
    return {"n": np.int64(row["n"]), "noise": rng.normal()}

rows = Pipeline(jsonl("here/*/*.jsonl")).shuffle(seed=3).map(noisy, rng=True, seed=4)
words = Pipeline(tokens("here/words.bin", "uint16")).windows(10).map(
    lambda row: {"n": row.sum(dtype=np.int64), "noise": 0.0}
)
pipeline = Pipeline(mix([rows, words], [2, 1], seed=5)).batch(8)

if __name__ == "__main__":
    feeds = pipeline.load(lock="jreader.lock").steps(30)
    seen = hashlib.sha256()
    for feed in feeds:
        for name in sorted(feed):
            seen.update(np.asarray(feed[name]).tobytes())
    print(seen.hexdigest(), feeds.cursor["plan"]["lock"][-1], feeds.cursor["digest"])
"""


def ran(folder, *command):
    """What a command of Python prints in a folder."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    ).stdout.strip()


def test_two_who_hold_the_lock_get_the_same_bytes(folder, tmp_path_factory):
    """Other folders, other processes; one locks by the command, the script is trained with."""
    mine, yours = (tmp_path_factory.mktemp(name) for name in ("mine", "yours"))
    shutil.copytree(folder, mine / "here")
    shutil.copytree(folder, yours / "deep/here")
    (yours / "here").symlink_to("deep/here")
    for each in (mine, yours):
        (each / "train.py").write_text(TRAIN)
    assert ran(mine, "-m", "jreader", "lock", "train:pipeline").startswith("jreader.lock: lock ")
    shutil.copy(mine / "jreader.lock", yours)
    said = ran(yours, "-m", "jreader", "check", "train:pipeline", "--locked")
    assert said.startswith("train:pipeline is as jreader.lock says")
    first, second = (ran(each, "train.py") for each in (mine, yours))
    assert first == second
    assert len(first.split()[0]) == 64


class TestCheck:
    def test_nothing_is_said_of_files_that_lie_elsewhere_now(self, folder, tmp_path):
        lines(folder).lock(tmp_path / "lock")
        for name in "ab":
            shutil.move(folder / name, tmp_path / "moved" / name)
        assert lines(tmp_path / "moved").check_lock(tmp_path / "lock") == []

    @examples(40)
    @given(at=st.integers(0, 9_999), value=st.integers(1, 255))
    def test_every_byte_counts(self, tmp_path_factory, at, value):
        path = tmp_path_factory.getbasetemp() / "bytes.bin"
        np.zeros(5_000, np.uint16).tofile(path)
        plan = Pipeline(tokens(path, "uint16")).windows(10)
        plan.lock(path.with_suffix(".lock"))
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([value]))
        changed = Pipeline(tokens(path, "uint16")).windows(10).check_lock(path.with_suffix(".lock"))
        assert [line for line in changed if line.startswith("data tokens 1 bytes.bin: 10000 bytes")]

    def test_of_a_sampled_file_only_the_ranges_count_that_the_lock_names(self, tmp_path):
        path, lock = tmp_path / "large.npy", tmp_path / "lock"
        np.save(path, np.zeros(1 << 22, np.uint8))
        Pipeline(npy(path)).lock(lock, sampled=True)
        assert json.loads(lock.read_text())["hashed"].startswith("64 ranges of 16384 bytes, evenly")
        size, between = path.stat().st_size, 20_000  # the second range begins at (size - 2^14) / 63
        for at, seen in ((between, False), (size - 1, True)):
            with path.open("r+b") as file:
                file.seek(at)
                file.write(b"x")
            said = [line.partition(":")[0] for line in Pipeline(npy(path)).check_lock(lock)]
            assert ("data npy 1 large.npy" in said) == seen

    def test_it_names_files_that_are_gone_or_new(self, folder, tmp_path):
        lines(folder).lock(tmp_path / "lock")
        (folder / "a/0.jsonl").rename(folder / "a/1.jsonl")
        other = Pipeline(jsonl([folder / "a/1.jsonl", folder / "b/0.jsonl"])).shuffle(seed=3)
        said = other.check_lock(tmp_path / "lock")
        assert any(line.startswith("data jsonl 1 a/0.jsonl: nothing, and it was") for line in said)
        assert any(line.startswith("data jsonl 1 a/1.jsonl: 390 bytes") for line in said)

    def test_rows_of_arrays_count_that_no_cursor_compares(self, tmp_path):
        values = np.zeros(3000)
        documents = ragged(np.zeros(9000), np.arange(0, 9001, 3))
        Pipeline(arrays(n=values, text=documents)).lock(tmp_path / "lock")
        values[7] = 1
        assert [
            line.partition(":")[0]
            for line in Pipeline(arrays(n=values, text=documents)).check_lock(tmp_path / "lock")
        ] == ["data arrays 1 n"]
        assert [*data_of(tmp_path / "lock")["arrays 1"]] == ["n", "text"]

    def test_arrays_of_any_layout_have_their_bytes_and_objects_none(self, tmp_path):
        columns = {
            "strided": np.arange(60).reshape(5, 12)[:, ::3],
            "turned": np.asfortranarray(np.arange(10.0).reshape(5, 2)),
            "when": np.arange(5).astype("M8[D]"),
            "text": np.array(["a", "bb", "", "d", "e"]),
            "many": np.array(["a", 3, None, "d", "e"], dtype=object),
        }
        Pipeline(arrays(**columns)).lock(tmp_path / "lock")
        said = data_of(tmp_path / "lock")["arrays 1"]
        digests = {name: text.partition(", sha256 ")[2] for name, text in said.items()}
        assert digests.pop("many") == ""
        for name, digest in digests.items():
            assert digest == sha256(columns[name].tobytes()).hexdigest()
        Pipeline(jreader.source([1, 2])).lock(tmp_path / "lock")
        assert "sha256" not in data_of(tmp_path / "lock")["source 1"]["rows"]

    def test_every_image_of_a_folder_has_a_line(self, tmp_path):
        for name in ("cat/b.png", "cat/a.png", "dog/a.png"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(name.encode())
        Pipeline(image_folder(tmp_path)).lock(tmp_path / "lock")
        (tmp_path / "dog/a.png").write_bytes(b"dog/b.png")
        said = Pipeline(image_folder(tmp_path)).check_lock(tmp_path / "lock")
        assert said[-1].startswith("data image_folder 1 dog/a.png: 9 bytes")
        assert [*data_of(tmp_path / "lock")["image_folder 1"]] == [
            "cat/a.png",
            "cat/b.png",
            "dog/a.png",
        ]

    def test_a_function_and_a_seed_that_changed(self, folder, tmp_path):
        lines(folder).map(lambda row: row["n"]).lock(tmp_path / "lock")
        said = lines(folder).map(lambda row: row["n"] + 1).check_lock(tmp_path / "lock")
        assert [line.partition(":")[0] for line in said] == ["plan functions 1"]
        said = lines(folder).shuffle(seed=1).map(lambda row: row["n"]).check_lock(tmp_path / "lock")
        assert [line.partition(":")[0] for line in said] == ["plan ops 3"]

    def test_sizes_of_batches_and_weights_that_a_run_may_change(self, folder, tmp_path):
        lock, rows = tmp_path / "lock", lines(folder)
        plans = [rows.batch(8), rows.batch({0: 8, 10: 16}), rows.padded_batch(8)]
        plans += [Pipeline(mix([rows, rows], [1, n], seed=1)).batch(8) for n in (1, 2)]
        for one, other in pairwise(plans):
            one.lock(lock)
            assert one.check_lock(lock) == []
            said = other.check_lock(lock)
            assert said
            assert all(line.startswith(("plan", "data jsonl 2")) for line in said)
            with pytest.raises(ValueError, match="is not as the lock"):
                other.load(lock=lock)

    def test_what_changes_no_sample_is_not_in_it(self, folder, tmp_path):
        lines(folder).map(len).batch(8).lock(tmp_path / "lock")
        other = lines(folder).map(len, threads=2).prefetch(3).batch(8).prefetch(1)
        assert other.check_lock(tmp_path / "lock") == []

    def test_a_cache_and_bits_that_are_filled_change_nothing(self, folder, tmp_path):
        def plan():
            kept = lines(folder).filter(lambda row: row["n"] % 3, keep=tmp_path / "bits")
            return kept.cache(tmp_path / "kept")

        plan().lock(tmp_path / "lock")
        plan().prepare()
        assert plan().check_lock(tmp_path / "lock") == []

    def test_what_is_no_lock_or_was_edited_is_refused(self, folder, tmp_path):
        path, plan = tmp_path / "lock", lines(folder)
        with pytest.raises(FileNotFoundError, match=r"there is no lock .*: type pipeline.lock\("):
            plan.check_lock(path)
        named = json.dumps({"lock": text_hash({})})
        for text in ("a", "[]", "{}", '{"lock": 3}', named, "[" * 100_000):
            path.write_text(text)
            with pytest.raises(ValueError, match="is not a lock, or was edited"):
                plan.check_lock(path)
        path.unlink()
        plan.lock(path)
        path.write_text(path.read_text().replace("seed=3", "seed=4"))
        with pytest.raises(ValueError, match=r"was edited, or another release .*: type pipeline"):
            plan.check_lock(path)

    @pytest.mark.parametrize("path", [3, True, "", b"lock", ["lock"]])
    def test_what_is_no_path_is_refused(self, folder, path):
        plan = lines(folder)
        for call in (plan.lock, plan.check_lock, lambda path: plan.batch(2).load(lock=path)):
            with pytest.raises(TypeError, match=r"needs the path of a lock, .*jreader\.lock"):
                call(path)

    def test_a_file_that_is_no_lock_is_never_replaced(self, folder):
        data = folder / "a/0.jsonl"
        with pytest.raises(FileExistsError, match="is no lock, and would be lost: delete it"):
            lines(folder).lock(data)
        assert data.read_text() == "".join(LINES[:40])

    def test_a_file_whose_name_looks_like_a_hash_is_as_it_was(self, tmp_path):
        (tmp_path / "x, sha256 y").write_text(LINES[0])
        plan = Pipeline(jsonl(tmp_path / "x, sha256 y")).batch(1)
        plan.lock(tmp_path / "lock")
        assert len(list(plan.load(lock=tmp_path / "lock"))) == 1

    def test_a_file_that_is_gone_is_an_error(self, folder, tmp_path):
        plan = lines(folder)
        (folder / "a/0.jsonl").unlink()
        with pytest.raises((FileNotFoundError, DamagedData)):
            plan.lock(tmp_path / "lock")
        assert not (tmp_path / "lock").exists()


@examples(100)
@given(recipe=recipes().filter(lambda recipe: recipe.seeded))
def test_any_plan_is_as_its_lock_has_it(recipe, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "plans.lock"
    plan = recipe.build()
    jreader.pipelines.locking.lock(plan, path)
    there = cloudpickle.loads(cloudpickle.dumps(recipe.build()))
    assert jreader.pipelines.locking.check_lock(there, path) == []


class TestPackages:
    def locked(self, plan, path):
        Pipeline(plan).lock(path)
        return json.loads(path.read_text())["packages"]

    def test_those_of_functions_are_there_however_deep(self, folder, tmp_path):
        yaml = pytest.importorskip("yaml")

        def inner(text):
            return yaml.safe_load(text)

        plain = self.locked(lines(folder), tmp_path / "lock")
        with_yaml = self.locked(
            lines(folder).map(lambda row: inner(str(row["n"]))), tmp_path / "lock"
        )
        assert [*plain] == ["python", "jreader", "jax", "numpy"]
        assert {*with_yaml} - {*plain} == {"PyYAML"}

    def test_those_of_sources_and_decoders_are_there(self, tmp_path):
        pa, parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet"))
        pytest.importorskip("PIL")
        parquet.write_table(pa.table({"n": [1, 2]}), tmp_path / "n.parquet")
        plan = Pipeline(jreader.parquet(tmp_path / "n.parquet"))
        assert "pyarrow" in self.locked(plan, tmp_path / "lock")
        decoded = plan.map(lambda row: jreader.images.decode(row["n"]))
        assert {"pillow", "pyarrow"} <= {*self.locked(decoded, tmp_path / "lock")}

    def test_those_of_modules_are_found_as_python_finds_them(self):
        every = metadata.packages_distributions()
        for modules in ([*every], [*every][::9], ["no_such_module"]):
            asked = {*filter(str.isidentifier, modules)}
            names = {name for each in (*asked, "jax", "numpy") for name in every.get(each, ())}
            assert {*locking._versions(asked)} == names | {"python", "jreader"}

    def test_another_version_is_named(self, folder, tmp_path):
        lines(folder).lock(path := tmp_path / "lock")
        written_again(path, lambda kept: kept["packages"].update(numpy="1.0"))
        (line,) = lines(folder).check_lock(path)
        assert line == f"packages numpy: {np.__version__}, and it was 1.0"


class TestLoad:
    """A loader looks at what is known without reading the data."""

    def test_another_plan_other_sizes_and_packages_are_refused(self, folder, tmp_path):
        path = tmp_path / "lock"
        lines(folder).batch(4).lock(path)
        lines(folder).batch(4).load(lock=path)
        with pytest.raises(ValueError, match=r"is not as the lock .* has it: plan ops 3: .*seed=1"):
            lines(folder).shuffle(seed=1).batch(4).load(lock=path)
        written_again(path, lambda kept: kept["packages"].update(numpy="1.0"))
        with pytest.raises(ValueError, match=r"packages numpy: .*, and it was 1.0. Make it as it"):
            lines(folder).batch(4).load(lock=path)
        with (folder / "b/0.jsonl").open("a") as file:
            file.write(LINES[0])
        lines(folder).batch(4).lock(path)
        with (folder / "b/0.jsonl").open("a") as file:
            file.write(LINES[0])
        with pytest.raises(ValueError, match=r"b/0.jsonl: \d+ bytes, and it was \d+ bytes"):
            lines(folder).batch(4).load(lock=path)

    def test_a_cursor_names_its_lock_and_a_resume_says_what_changed(self, folder, tmp_path):
        path, plan = tmp_path / "lock", lines(folder).batch(4)
        name = plan.lock(path)
        feeds = plan.load(lock=path).steps()
        next(feeds)
        cursor = through_json(feeds.cursor)
        assert cursor["plan"]["lock"][-1] == f"lock {name}"
        plan.load(lock=path).steps(at=cursor).close()  # without a word
        written_again(path, lambda kept: kept["data"]["jsonl 1"].update(revision="another"))
        kept = json.loads(path.read_text())["lock"]
        with pytest.raises(ValueError, match="data jsonl 1 revision: nothing, and it was another"):
            plan.load(lock=path)
        plan.lock(path, sampled=True)
        with pytest.warns(UserWarning, match=rf"the lock of .*: lock \w+, and it was lock {name} "):
            plan.load(lock=path).steps(at=cursor).close()
        assert kept != name
        with pytest.warns(UserWarning, match=f"no lock, and it was python .*, lock {name} "):
            plan.load().steps(at=cursor).close()

    def test_a_cursor_without_a_lock_goes_on_with_one(self, folder, tmp_path):
        plan = lines(folder).batch(4)
        feeds = plan.load().steps()
        next(feeds)
        plan.lock(tmp_path / "lock")
        again = plan.load(lock=tmp_path / "lock").steps(at=through_json(feeds.cursor))
        assert next(again)["n"].tolist() == next(feeds)["n"].tolist()


class TestFarFiles:
    @pytest.fixture
    def far(self, server):
        server.files["a.jsonl"] = "".join(LINES).encode()
        return Pipeline(jsonl(f"{server.url}/a.jsonl?token=secret"))

    def test_their_version_is_kept_and_no_byte_is_read(self, server, far, tmp_path):
        far.firstn(1).lock(tmp_path / "before")  # with its index
        sent = server.sent["a.jsonl"]
        far.firstn(1).lock(tmp_path / "lock")
        assert server.sent["a.jsonl"] == sent
        text = data_of(tmp_path / "lock")["jsonl 1"]["a.jsonl"]
        assert text.startswith(f"{len(''.join(LINES))} bytes, version ")
        assert "secret" not in (tmp_path / "lock").read_text()

    def test_another_version_is_named(self, server, far, tmp_path):
        far.firstn(1).lock(tmp_path / "lock")
        server.files["a.jsonl"] = server.files["a.jsonl"].replace(b"10", b"20")
        other = Pipeline(jsonl(f"{server.url}/a.jsonl?token=other")).firstn(1)
        (line,) = other.check_lock(tmp_path / "lock")
        assert line.startswith("data jsonl 1 a.jsonl: 990 bytes, version ")

    def test_the_bytes_count_where_the_server_gives_no_version(self, server, far, tmp_path):
        server.etags = False
        plan = Pipeline(jsonl(f"{server.url}/a.jsonl")).firstn(1)
        plan.lock(tmp_path / "lock")
        assert "sha256" in data_of(tmp_path / "lock")["jsonl 1"]["a.jsonl"]
        server.files["a.jsonl"] = server.files["a.jsonl"].replace(b"10", b"20")
        other = Pipeline(jsonl(f"{server.url}/a.jsonl")).firstn(1)
        assert other.check_lock(tmp_path / "lock")[-1].startswith("data jsonl 1 a.jsonl")


ENDLESS = """
    from jreader import Pipeline, tokens
    print("begun", flush=True)
    Pipeline(tokens("words.bin", "uint16")).windows(10).lock("lock")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_lock_that_is_killed_leaves_the_one_before(folder, monkeypatch, number):
    monkeypatch.chdir(folder)
    Pipeline(tokens("words.bin", "uint16")).windows(10).lock("lock")
    before = Path("lock").read_bytes()
    os.truncate("words.bin", 1 << 42)  # a hole: to hash it takes hours
    with program(ENDLESS) as running:
        assert running.says() == "begun"
        running.told(number)
    assert Path("lock").read_bytes() == before
    assert sorted(each.name for each in folder.iterdir()) == ["a", "b", "lock", "words.bin"]
