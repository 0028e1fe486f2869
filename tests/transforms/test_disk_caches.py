"""`cache(reader, path)`: samples in a folder, written by the first pass and found by index then."""

import json
import pickle
import threading
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from graphs import recipes
from hypothesis import given
from hypothesis import strategies as st
from kept_samples import FAST, trees
from programs import program
from seen import LIMIT, canonical, see
from widths import examples

import jreader
from jreader import Pipeline, arrays, batch, cache, chain, map_readers, ragged, shuffle
from jreader.errors import DamagedData, NotResumable
from jreader.readers import indexed, start
from jreader.readers.columns import offsets_of
from jreader.sources.stored_columns import read_table
from jreader.sources.stored_rows import Kind, decoded_rows, encoded, reloaded, values_of


def holding_itself():
    sample = {"n": 0, "x": np.arange(3), "list": ["a"]}
    sample["itself"] = sample
    sample["list"].append(sample["list"])
    return sample


def decoded(number):
    return {
        "image": np.full((3, 2), number, np.uint8),
        "ids": np.arange(int(number) % 4, dtype=np.int32),
        "name": f"n{number}",
    }


def pictured(number):
    return {"image": np.full((3, 2), number, np.uint8)}


def decoding(folder, count=20):
    return Pipeline(arrays(np.arange(count))).map(decoded).cache(folder)


def same(some, others):
    return canonical(list(some)) == canonical(list(others))


@given(recipes(depth=1).filter(lambda recipe: recipe.seeded))
@examples(15)
@pytest.mark.filterwarnings("ignore")
def test_every_pass_gives_the_samples_and_resumes_at_every_position(recipe):
    with TemporaryDirectory(dir=FAST) as folder:
        plan = recipe.build()
        if jreader.readers.seeds.lacks_seed(plan):
            return
        kept = cache(plan, f"{folder}/kept")
        plain = see(map_readers(reloaded, plan))
        if plain.error:
            assert see(kept).samples == plain.samples
            assert see(kept).samples == plain.samples  # what was written, and the error again
            return
        first = see(kept)
        assert first.samples == plain.samples
        assert see(kept).samples == plain.samples
        whole = cache(recipe.build(), f"{folder}/kept")
        later = see(whole)
        assert later.samples == plain.samples
        for seen in (first, later):
            for place, at in enumerate(seen.positions):
                rest = LIMIT - place
                assert see(whole, at, rest).samples == plain.samples[place:]
                assert see(kept, at, rest).samples == plain.samples[place:]


@given(st.lists(trees, max_size=6))
@examples(30)
def test_random_trees_come_back_as_they_were(samples):
    with TemporaryDirectory(dir=FAST) as folder:
        expected = list(map(reloaded, samples))
        for _ in range(2):
            assert same(cache(lambda: iter(samples), f"{folder}/kept")(), expected)


@pytest.mark.parametrize("shapes", [((2,), (2,)), ((2,), (3,)), ((2, 2), (0, 2))])
def test_arrays_of_another_order_of_bytes_come_back_as_they_were(tmp_path, shapes):
    samples = [np.full(shape, 5, ">i4") for shape in shapes]
    for _ in range(2):
        assert same(cache(lambda: iter(samples), tmp_path / "kept")(), samples)


@pytest.mark.parametrize(
    ("how", "rows"), [("text", ["a", "bc"]), ("bytes", [b"a", b"bc"]), ("object", [None, {1, 2}])]
)
def test_a_column_of_rows_that_are_decoded_travels_with_its_rows(how, rows):
    kind = Kind(how)
    values, lengths = values_of([encoded(row, kind) for row in rows], kind)
    column = decoded_rows(kind, values, offsets_of(lengths), Path("0.npy"))
    again = pickle.loads(pickle.dumps(column))
    assert again.gather(np.array([1, 0])) == column.gather(np.array([1, 0])) == rows[::-1]


def test_nothing_is_read_or_written_when_a_plan_is_built(tmp_path):
    def source():
        raise AssertionError

    repr(cache(source, tmp_path / "kept"))
    assert not (tmp_path / "kept").exists()


def test_the_first_pass_hands_samples_over_while_it_reads(tmp_path):
    read = []
    items = cache(lambda: (read.append(n) or n for n in range(5)), tmp_path / "kept")()
    assert next(items) == 0
    assert read == [0]


def test_a_pass_that_was_broken_off_resumes_where_it_was(tmp_path):
    read = []

    def noted(number):
        read.append(int(number))
        return decoded(number)

    plan = Pipeline(arrays(np.arange(9))).map(noted)
    list(islice(plan.cache(tmp_path / "kept"), 4))
    before, read[:] = list(read), []
    assert before == [0, 1, 2, 3]
    # the function closes over another list now, and is the same one
    again = plan.cache(tmp_path / "kept")
    assert same(again, map(decoded, range(9)))
    assert read == [4, 5, 6, 7, 8]
    read.clear()
    assert same(plan.cache(tmp_path / "kept"), map(decoded, range(9)))
    assert read == []


def test_a_pass_over_samples_that_arrive_in_any_order_starts_over(tmp_path):
    """Also where an op between has the position, which then has none only in a part of it."""

    def some():
        arriving = jreader.xmap_readers(abs, arrays(np.arange(50)), 2, 4)
        return cache(jreader.firstn(arriving, 50), tmp_path / "cache")

    items = iter(some()())
    next(items)
    items.close()
    seen = list(map(int, some()()))
    assert sorted(seen) == list(range(50))
    assert list(map(int, some()())) == seen


def test_a_whole_cache_is_indexed_and_shuffled_as_a_whole(tmp_path):
    def plan():
        return Pipeline(lambda: map(decoded, range(20))).cache(tmp_path / "kept")

    first = plan()
    assert indexed(first) is None
    list(first)
    assert indexed(first) is None, "a plan is one or the other all its life"
    whole = plan()
    assert len(whole) == 20
    assert same([whole.reader.plane().nth(7)], [decoded(7)])
    order = [int(sample["image"][0, 0]) for sample in whole.shuffle(seed=1)]
    assert sorted(order) == list(range(20)) != order
    assert np.load(tmp_path / "kept" / "0.npy").shape == (20, 3, 2)


def test_ragged_columns_are_packed(tmp_path):
    list(decoding(tmp_path / "kept"))
    plan = decoding(tmp_path / "kept").map(lambda s: s["ids"])
    list(plan.cache(tmp_path / "ids"))
    packed = list(plan.cache(tmp_path / "ids").pack(8))
    assert sum(int((row["segment_ids"] > 0).sum()) for row in packed) == sum(
        n % 4 for n in range(20)
    )


@pytest.mark.parametrize("deal", [{}, {"buf_size": 6, "seed": 3}, {"seed": 3}])
def test_a_run_that_began_while_it_was_written_resumes_when_it_is_whole(tmp_path, deal):
    def loader():
        plan = Pipeline(arrays(np.arange(20))).map(pictured).cache(tmp_path / "kept")
        plan = plan.shuffle(**deal) if deal else plan
        return plan.batch(3).load(drop_last=False)

    feeds = loader().steps(18)
    cursors, seen = [], []
    for feed in feeds:
        seen.append(np.asarray(feed["image"])[:, 0, 0].tolist())
        cursors.append(json.loads(json.dumps(feeds.cursor)))
    for place in (0, 3, 6, 9, 16):
        resumed = loader().steps(18, at=cursors[place])
        rest = [np.asarray(feed["image"])[:, 0, 0].tolist() for feed in resumed]
        assert rest == seen[place + 1 :]


def test_a_cache_of_another_plan_is_refused_with_the_line(tmp_path):
    list(decoding(tmp_path / "kept"))
    with pytest.raises(ValueError, match=r"line 2 of its ops.*int64\[20\].*int64\[21\]"):
        list(decoding(tmp_path / "kept", 21))
    other = Pipeline(arrays(np.arange(20))).map(lambda n: n).cache(tmp_path / "kept")
    with pytest.raises(ValueError, match="line 1 of its functions is 'decoded"):
        list(other)
    with pytest.raises(ValueError, match="of another plan"):
        list(other.batch(2))


def rows_and(function):
    return Pipeline(arrays(np.arange(1, 21))).map(lambda n: function(n, 2))


def documents(*lengths):
    offsets = np.cumsum([0, *lengths])
    return Pipeline(arrays(ragged(np.arange(offsets[-1]), offsets)))


def padded(pad):
    return documents(*[1, 2, 3] * 7).padded_batch(3, pad=pad)


def packed(moved):
    lengths = np.full(4000, 3)  # of so many, the hash of the data reads some
    lengths[1000:1002] += [moved, -moved]
    return documents(*lengths).pack(8, seed=0)


@pytest.mark.parametrize(
    ("one", "other", "line"),
    [
        (lambda: rows_and(np.add), lambda: rows_and(np.multiply), r"values is 'in .*<lambda>"),
        (lambda: padded(0), lambda: padded(-1), r"values is 'padded_batch\(pad=0\)"),
        (lambda: packed(0), lambda: packed(1), "layouts is 'pack: "),
    ],
)
def test_a_cache_over_other_values_or_lengths_is_refused(tmp_path, one, other, line):
    folder = tmp_path / "kept"
    kept = list(map(canonical, one().cache(folder)))
    assert list(map(canonical, one().cache(folder))) == kept
    with pytest.raises(ValueError, match=f"of another plan, whose line . of its {line}"):
        next(iter(other().cache(folder)))
    held = read_table(folder)
    for name in ("layouts", "values"):  # as folders of earlier versions lack them
        del held.said["plan"][name]
    held.saved()
    assert list(map(canonical, other().cache(folder))) == kept


def test_a_plan_that_draws_a_new_seed_is_refused(tmp_path):
    with pytest.raises(ValueError, match="give its ops a seed"):
        cache(shuffle(lambda: "abc", 3), tmp_path / "kept")


@pytest.mark.parametrize("path", [7, ""])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(TypeError, match="needs the name of a folder"):
        cache(lambda: "abc", path)


def test_files_and_folders_of_others_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="is a file"):
        cache(lambda: "abc", tmp_path / "notes.txt")
    with pytest.raises(ValueError, match="has other files in it"):
        cache(lambda: "abc", tmp_path)


def damaged_table(folder):
    table = folder / "columns.json"
    table.write_text(table.read_text().replace('"rows": 20', '"rows": 21'))


def no_table(folder):
    (folder / "columns.json").write_text("{")


def cut(folder):
    file = folder / "0.npy"
    file.write_bytes(file.read_bytes()[:-1])


def gone(folder):
    (folder / "1.offsets.npy").unlink()


@pytest.mark.parametrize("harm", [damaged_table, no_table, cut, gone])
def test_a_damaged_folder_is_an_error_that_names_the_file(tmp_path, harm):
    list(decoding(tmp_path / "kept"))
    harm(tmp_path / "kept")
    with pytest.raises(DamagedData, match=r"(columns\.json|0\.npy|1\.offsets\.npy).*Delete"):
        list(decoding(tmp_path / "kept"))


def test_a_cache_that_is_cut_after_it_was_opened_is_an_error(tmp_path):
    list(decoding(tmp_path / "kept"))
    plan = decoding(tmp_path / "kept")
    list(plan)
    cut(tmp_path / "kept")
    with pytest.raises(DamagedData):
        list(plan)


def test_an_error_of_the_source_comes_after_the_good_samples_and_is_tried_again(tmp_path):
    broken, read = [True], []

    def checked(number):
        read.append(int(number))
        if number == 4 and broken[0]:
            raise OSError("gone")
        return decoded(number)

    plan = Pipeline(arrays(np.arange(6))).map(checked).cache(tmp_path / "kept")
    items, seen = iter(plan), []
    with pytest.raises(OSError, match="gone"):
        seen.extend(items)
    seen = list(islice(plan, 4))
    assert same(seen, map(decoded, range(4)))
    broken[0] = False
    read.clear()
    assert same(plan, map(decoded, range(6)))
    assert read == [4, 5]


def test_what_cannot_be_kept_is_an_error_that_says_what_to_type(tmp_path):
    with pytest.raises(TypeError, match="without a path"):
        list(cache(lambda: [threading.Lock()], tmp_path / "kept")())


def test_a_sample_that_holds_itself_is_an_error_that_says_what_to_type(tmp_path):
    with pytest.raises(TypeError, match=r"a dict that holds itself.*\.map\(fn\)"):
        list(cache(lambda: [holding_itself()], tmp_path / "kept")())


@pytest.mark.parametrize(
    "kept",
    [
        cache(lambda: [1, holding_itself()]),
        jreader.source([holding_itself()] * 2),
        cache(shuffle(lambda: [holding_itself()] * 2, 2, seed=0)),
    ],
)
def test_a_sample_that_holds_itself_is_handed_over_and_kept_as_it_was(kept):
    for _ in range(2):
        sample = list(kept())[-1]
        assert sample["itself"] is sample
        assert sample["list"][1] is sample["list"]
        sample["n"] += 1
        assert sample["n"] == 1


def test_passes_at_the_same_time_read_once(tmp_path):
    read = []
    plan = cache(lambda: (read.append(n) or n for n in range(50)), tmp_path / "kept")
    one, other = plan(), plan()
    both = list(zip(one, other, strict=True))
    assert both == [(n, n) for n in range(50)]
    assert read == list(range(50))


def test_a_second_plan_that_cannot_write_reads_for_itself(tmp_path):
    def plan():
        return decoding(tmp_path / "kept")

    writing = iter(plan())
    head = [next(writing), next(writing)]
    beside = plan()
    assert same(beside, map(decoded, range(20)))
    position = start(beside)
    next(position.items)
    rest = start(plan(), position.position())
    assert same(rest.items, map(decoded, range(1, 20)))
    assert same([*head, *writing], map(decoded, range(20)))
    assert len(plan()) == 20


def test_a_position_beyond_the_end_is_refused(tmp_path):
    plan = cache(lambda: range(3), tmp_path / "kept")
    for _ in range(2):
        with pytest.raises(NotResumable):
            list(start(plan, ("in order", 7)).items)
        list(plan())


def test_nothing_is_written_for_a_whole_one(tmp_path):
    list(decoding(tmp_path / "kept"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()}
    list(decoding(tmp_path / "kept"))
    list(batch(decoding(tmp_path / "kept"), 3)())
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()}


def test_two_of_them_are_chained(tmp_path):
    for _ in range(2):
        both = chain(decoding(tmp_path / "a"), decoding(tmp_path / "b", 3))
        assert same(both(), map(decoded, [*range(20), *range(3)]))


WRITING = """
import sys, os
import numpy as np
from jreader import Pipeline, arrays
from jreader.transforms import disk_caches
disk_caches._BYTES = 1

def decoded(number):
    return {"row": np.arange(int(number) % 50), "number": number, "text": str(number)}

print(os.getpid(), flush=True)
plan = Pipeline(arrays(np.arange(COUNT))).map(decoded).cache(FOLDER)
seen = 0
for place, sample in enumerate(plan):
    assert sample["number"] == place and sample["text"] == str(place), (place, sample)
    assert sample["row"].tolist() == list(range(place % 50)), (place, sample)
    seen += 1
    if place % 10 == 9:
        print("at", place, flush=True)
print("all", seen, flush=True)
"""


def whole_pass(running):
    """The last line of a program that says where it is."""
    line = ""
    while not line.startswith("all"):
        line = running.says()
    return line


@pytest.mark.slow
def test_a_program_that_is_killed_while_it_writes_resumes(tmp_path):
    folder = str(tmp_path / "kept")
    script = WRITING.replace("COUNT", "400").replace("FOLDER", repr(folder))
    for turn in range(6):
        with program(script) as killed:
            for _ in range(5 + 4 * turn):  # at another place each time
                killed.says()
    with program(script) as last:
        assert whole_pass(last) == "all 400"
        assert last.ends()[0] == 0
    assert json.loads(Path(folder, "columns.json").read_text())["table"]["rows"] == 400
    assert not [path for path in Path(folder).iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_two_programs_at_once_do_no_harm(tmp_path):
    script = WRITING.replace("COUNT", "300").replace("FOLDER", repr(str(tmp_path / "kept")))
    with program(script) as one, program(script) as other:
        for each in (one, other):
            assert whole_pass(each) == "all 300"
            assert each.ends()[0] == 0
    with program(script) as later:
        assert whole_pass(later) == "all 300"


FULL = """
import resource
import numpy as np
from jreader import Pipeline, arrays
from jreader.transforms import disk_caches
disk_caches._BYTES = 1 << 16
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
seen = 0
def rows(n):
    return np.full(1 << 12, n)
def plan():
    return Pipeline(arrays(np.arange(200))).map(rows).cache(%r)
try:
    for sample in plan():
        assert sample[0] == seen
        seen += 1
except OSError as error:
    print(seen, error, flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print([int(sample[0]) for sample in plan()] == list(range(200)), flush=True)
"""


@pytest.mark.slow
def test_a_full_disk_is_an_error_that_says_so(tmp_path):
    with program(FULL % str(tmp_path / "kept")) as running:
        seen, _, said = running.says().partition(" ")
        assert int(seen) > 10
        assert "no space is left for" in said
        assert "Free some space and run again" in said
        assert running.says() == "True"
        assert running.ends()[0] == 0
