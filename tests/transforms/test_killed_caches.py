"""`cache(reader, path)` after kills and damage: every sample once, or an error."""

import os
import shutil
from contextlib import closing
from itertools import islice
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kept_samples import COUNT, FAST, KINDS, as_kept, snapshots, trees
from programs import program
from seen import canonical
from widths import examples, few

from jreader import Pipeline, cache
from jreader.errors import DamagedData


def seen(reader):
    return [*map(canonical, reader())]


@given(st.lists(trees, min_size=1, max_size=5), st.booleans())
@examples(40)
def test_whatever_a_kill_leaves_every_sample_is_read_once_afterwards(samples, broken_off):
    with TemporaryDirectory(dir=FAST) as folder:
        expected, plan = as_kept(samples), cache(lambda: iter(samples), f"{folder}/kept")
        with snapshots(f"{folder}/kept", folder) as left, closing(plan()) as items:
            for place in range(1 + len(samples) // 2 if broken_off else len(samples)):
                assert canonical(next(items)) == expected[place]
            assert broken_off or next(items, None) is None
        assert left
        for each in left:
            for _ in range(2):
                assert seen(cache(lambda: iter(samples), each)) == expected


KILLED = """
import os, signal
from kept_samples import COUNT, KINDS, as_kept
from seen import canonical
from jreader import Pipeline

def plan(kind, folder):
    return Pipeline(lambda: range(COUNT)).map(KINDS[kind]).cache(folder)

ENDS = {
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "_exit": lambda: os._exit(9),
}
for kind, make in KINDS.items():
    for place in range(COUNT):
        folder = os.path.join(FOLDER, f"{END} {kind} {place}")
        child = os.fork()  # no thread and no JAX has been started here
        if not child:
            for number, sample in enumerate(plan(kind, folder)):
                if number == place:
                    ENDS[END]()
        assert os.waitpid(child, 0)[1], "it was not killed"
        for _ in range(2):
            seen = [*map(canonical, plan(kind, folder))]
            if seen != as_kept(map(make, range(COUNT))):
                print("wrong", kind, place, seen, flush=True)
print("done", flush=True)
"""


@pytest.mark.parametrize("end", few(["SIGKILL", "SIGTERM", "_exit"], ["SIGKILL"]))
def test_no_sample_is_doubled_or_lost_after_a_kill_at_any_sample(end):
    with (
        TemporaryDirectory(dir=FAST) as folder,
        program(f"END, FOLDER = {end!r}, {folder!r}", KILLED) as running,
    ):
        assert running.says() == "done"


def test_a_sample_that_cannot_be_kept_leaves_nothing_of_it_beside_the_next_one(tmp_path):
    whole = [{"x": np.arange(n % 3), "y": n} for n in range(6)]
    broken = [*whole[:3], {"x": np.arange(9), "y": lambda: None}, *whole[4:]]
    given_ = [broken]
    plan = cache(lambda: iter(given_[0]), tmp_path / "kept")
    with pytest.raises(TypeError, match="cannot be pickled"):
        list(plan())
    given_[0] = whole
    assert seen(plan) == as_kept(whole)


@pytest.mark.parametrize("place", range(12))
def test_ctrl_c_in_any_step_of_writing_doubles_nothing(tmp_path, place):
    samples = [{"x": np.arange(n % 3), "y": n} for n in range(4)]
    plan = cache(lambda: iter(samples), tmp_path / "kept")
    steps, replace, fsync = [0], os.replace, os.fsync

    def interrupted(step):
        def call(*given_, **named):
            step(*given_, **named)
            steps[0] += 1
            if steps[0] == place:
                raise KeyboardInterrupt

        return call

    os.replace, os.fsync = interrupted(replace), interrupted(fsync)
    try:
        list(plan())
    except KeyboardInterrupt:
        pass
    finally:
        os.replace, os.fsync = replace, fsync
    for _ in range(2):
        assert seen(cache(lambda: iter(samples), tmp_path / "kept")) == as_kept(samples)


def kept(folder, kind):
    return Pipeline(lambda: range(COUNT)).map(KINDS[kind]).cache(folder)


def flipped(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << place % 8
    path.write_bytes(content)


@pytest.mark.parametrize("kind", few(KINDS, ["ragged field", "object", "number"]))
def test_changed_bits_are_noticed(tmp_path, kind):
    list(kept(tmp_path / "kept", kind))
    for path in sorted((tmp_path / "kept").glob("*.npy")):
        whole = path.read_bytes()
        for place in range(128, len(whole), 1 + len(whole) // 64):  # the rest is NumPy's header
            flipped(path, place)
            with pytest.raises(DamagedData, match=rf"{path.name} .*Delete the folder"):
                list(kept(tmp_path / "kept", kind))
            path.write_bytes(whole)
        path.write_bytes(whole[:128] + bytes([255] * (len(whole) - 128)))
        with pytest.raises(DamagedData, match=path.name):
            list(kept(tmp_path / "kept", kind).batch(2))
        path.write_bytes(whole)
    assert seen(kept(tmp_path / "kept", kind)) == as_kept(map(KINDS[kind], range(COUNT)))


def test_samples_of_a_cache_that_was_broken_off_are_checked_before_more_are_written(tmp_path):
    list(islice(kept(tmp_path / "kept", "ragged field"), 4))
    flipped(tmp_path / "kept" / "0.npy", 130)
    with pytest.raises(DamagedData, match=r"0\.npy"):
        list(kept(tmp_path / "kept", "ragged field"))


def test_an_object_is_compared_with_its_checksum_before_it_is_unpickled(tmp_path):
    """Also where the damage comes after the folder was opened, when no time is compared."""
    list(kept(tmp_path / "kept", "object"))
    items = iter(kept(tmp_path / "kept", "object"))
    next(items)
    path = tmp_path / "kept" / "0.npy"
    with path.open("r+b") as file:  # the same file, which is mapped
        file.seek(-4, os.SEEK_END)
        file.write(b"\xff" * 4)
    with pytest.raises(DamagedData, match=r"0\.npy has a row that does not fit its checksum"):
        list(items)


def test_a_copied_cache_is_checked_once(tmp_path):
    list(kept(tmp_path / "kept", "array"))
    shutil.copytree(tmp_path / "kept", tmp_path / "copy", copy_function=shutil.copyfile)
    table = tmp_path / "copy" / "columns.json"
    tables = [table.read_text()]
    for _ in range(2):
        assert len(list(kept(tmp_path / "copy", "array"))) == COUNT
        tables.append(table.read_text())
    assert tables[0] != tables[1] == tables[2]


def test_a_folder_of_an_earlier_version_is_refused_and_says_to_delete_it(tmp_path):
    list(kept(tmp_path / "kept", "number"))
    table = tmp_path / "kept" / "columns.json"
    table.write_text(table.read_text().replace('"format": 2', '"format": 1'))
    with pytest.raises(DamagedData, match=r"written by an earlier version.*Delete the folder"):
        kept(tmp_path / "kept", "number")
