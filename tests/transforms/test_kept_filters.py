"""`filter(fn, reader, keep=path)`: a bit a sample, learnt once; indexed from then on."""

import errno
import json
import os
import shutil
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from block_sources import Blocks
from graphs import kept, recipes
from hypothesis import given
from hypothesis import strategies as st
from kept_samples import FAST, snapshots
from programs import program
from seen import LIMIT, see
from widths import examples, few

import jreader
from jreader import Pipeline, arrays, mix, xmap_readers
from jreader.errors import DamagedData, NotResumable, ReaderError
from jreader.readers import indexed, start
from jreader.readers.seeds import lacks_seed
from jreader.transforms import disk_caches

pytestmark = pytest.mark.filterwarnings("ignore:.* left none of the samples")


def third(number):
    return int(number) % 3 == 1


CALLED = []  # empty whenever a pass hashes what it holds


def noted(number):
    CALLED.append(int(number))
    return third(number)


def plan(folder, count=100, fn=third):
    return Pipeline(arrays(np.arange(count))).filter(fn, keep=folder)


def expected(count=100):
    return [n for n in range(count) if third(n)]


def ints(samples):
    return [int(sample) for sample in samples]


def learnt(folder):
    """How many samples have bits in the folder, and whether these are all."""
    table = json.loads(Path(folder, "columns.json").read_text())["table"]
    return table["rows"], table["whole"]


@given(recipes(depth=2).filter(lambda recipe: recipe.seeded))
@examples(40)
@pytest.mark.filterwarnings("ignore")
def test_every_pass_is_that_of_the_plain_filter_and_resumes_at_every_position(recipe):
    with TemporaryDirectory(dir=FAST) as folder:
        reader = recipe.build()
        if lacks_seed(reader):
            return
        plain = see(jreader.filter(kept, reader))
        learning = jreader.filter(kept, reader, f"{folder}/bits")
        if plain.error:
            assert see(learning).samples == plain.samples
            assert see(jreader.filter(kept, reader, f"{folder}/bits")).samples == plain.samples
            return
        first = see(learning)
        known = jreader.filter(kept, reader, f"{folder}/bits")
        later = see(known)
        assert first.samples == later.samples == plain.samples
        for seen in (first, later):
            for place, at in enumerate(seen.positions):
                for each in (learning, known):
                    assert see(each, at, LIMIT - place).samples == plain.samples[place:]


@given(
    st.lists(st.booleans(), max_size=40),
    st.integers(0, 5000),
    st.integers(0, 3000),
    st.integers(0, 2**32 - 1),
)
@examples(60)
def test_the_nth_kept_sample_is_found_by_numpy_and_by_jax(ends, empty, many, seed):
    """Also behind long stretches of which nothing is kept, and of which all is."""
    middle = np.random.default_rng(seed).integers(0, 2, many, bool)
    bits = np.array([*ends, *[False] * empty, *middle, *[True] * empty, *ends], bool)
    with TemporaryDirectory(dir=FAST) as folder:
        made = [
            jreader.filter(bits.__getitem__, arrays(np.arange(len(bits))), f"{folder}/bits")
            for _ in range(2)
            if not list(islice(start(plan(f"{folder}/none", 0)).items, 0))
        ]
        first = ints(made[0]())
        whole = jreader.filter(bits.__getitem__, arrays(np.arange(len(bits))), f"{folder}/bits")
        assert first == np.flatnonzero(bits).tolist()
        assert len(whole) == len(first)
        places = np.random.default_rng(seed).permutation(len(first))
        plane = indexed(whole)
        assert plane.route(places)[0].tolist() == np.array(first, int)[places].tolist()
        if len(places):
            (traced,) = jax.jit(plane.route)(jnp.asarray(places))
            assert traced.tolist() == np.array(first, int)[places].tolist()


def test_bits_are_learnt_while_samples_flow_and_indexed_later(tmp_path):
    CALLED.clear()
    first = plan(tmp_path / "bits", fn=noted)
    assert indexed(first) is None
    items = iter(first)
    assert next(items) == 1
    assert CALLED == [0, 1]
    assert ints(items) == expected()[1:]
    assert indexed(first) is None, "a plan is one or the other all its life"
    CALLED.clear()
    assert ints(first) == expected()
    whole = plan(tmp_path / "bits", fn=noted)
    assert len(whole) == 33
    assert ints(whole) == expected() != ints(whole.shuffle(seed=1))
    assert sorted(ints(whole.shuffle(seed=1))) == expected()
    assert whole.batch(8)[1].columns.tolist() == expected()[8:16]
    assert CALLED == []


def test_a_bit_a_sample_is_kept_and_no_data(tmp_path):
    list(plan(tmp_path / "bits", 100_000))
    size = sum(path.stat().st_size for path in (tmp_path / "bits").iterdir())
    assert size * 8 < 1.3 * 100_000


@pytest.mark.parametrize("sizes", [[5, 0, 4, 7, 2, 6], [512, 0], [513, 511, 0, 0], [0, 0]])
def test_samples_are_kept_in_their_blocks(tmp_path, sizes):
    def source():
        return Blocks(sizes=sizes, base=0).reader()

    def samples(reader):
        return see(reader, None, 1 + sum(sizes)).samples

    for _ in range(2):
        both = jreader.filter(kept, source(), tmp_path / "bits")
        assert samples(both) == samples(jreader.filter(kept, source()))
    before = np.cumsum([0, *map(kept, source()())])
    starts = before[indexed(source()).blocks]
    assert indexed(both).blocks.tolist() == sorted({0, *starts[starts < before[-1]].tolist()})
    some, moved = samples(both), samples(jreader.shuffle(both, seed=0, blocks=2))
    assert sorted(map(str, some)) == sorted(map(str, moved))


def test_a_shuffle_in_blocks_has_the_bits_learnt_first(tmp_path):
    def dealt():
        rows = Blocks(sizes=[5, 4, 7, 2], base=0).reader()
        some = jreader.filter(lambda row: row["n"] % 3 == 1, rows, tmp_path / "bits")
        return jreader.shuffle(some, seed=0, blocks=2)

    first = dealt()
    assert not (tmp_path / "bits").exists()
    for each in (first, dealt()):
        assert len(each) == 6
        assert [int(row["n"]) for row in each()] == [int(row["n"]) for row in first()]
    assert sorted(int(row["n"]) for row in first()) == expected(18)
    cut = jreader.filter(third, jreader.filter(third, arrays(np.arange(9))), tmp_path / "none")
    with pytest.raises(ValueError, match="needs a reader of files that are read in blocks"):
        jreader.shuffle(cut, seed=0, blocks=2)


def test_maps_below_are_called_for_what_is_fed_alone(tmp_path):
    CALLED.clear()

    def doubled(number):
        CALLED.append(int(number))
        return 2 * number

    def mapped():
        rows = Pipeline(arrays(np.arange(100))).map(doubled)
        return rows.filter(lambda number: number % 3 == 1, keep=tmp_path / "bits")

    first = ints(mapped())
    assert list(range(100)) == CALLED
    CALLED.clear()
    known = mapped()
    assert len(known) == len(first)
    assert sorted(ints(known.shuffle(seed=1))) == first
    assert len(CALLED) == len(first)
    assert ints(known[3:6]) == first[3:6]


def test_nested_ones_are_learnt_and_indexed_together(tmp_path):
    def both():
        small = plan(tmp_path / "a").filter(lambda n: n < 70, keep=tmp_path / "b")
        return small.cache(tmp_path / "c").filter(lambda n: n > 9, keep=tmp_path / "d")

    wanted = [n for n in expected() if 9 < n < 70]
    assert ints(both()) == wanted
    assert len(both()) == len(wanted)
    assert both().shuffle(seed=0)[:3].batch(3)[0].columns.shape == (3,)


def test_a_stream_is_filtered_by_its_bits_and_stays_one(tmp_path):
    for _ in range(2):
        lines = jreader.filter(third, lambda: iter(range(50)), tmp_path / "bits")
        assert list(lines()) == expected(50)
        assert lines.length() is None
        assert indexed(lines) is None


@pytest.mark.parametrize("broken", [0, 1, 50, 99])
def test_an_error_of_the_function_names_the_sample_and_keeps_what_was_learnt(tmp_path, broken):
    flag = tmp_path / "breaks"
    flag.write_text("")
    CALLED.clear()

    def breaks(number):
        if number == broken and flag.exists():
            raise LookupError
        CALLED.append(int(number))
        return third(number)

    seen = []
    with pytest.raises(LookupError) as raised:
        seen += (int(sample) for sample in plan(tmp_path / "bits", fn=breaks))
    assert f"breaks(np.int64({broken})) in filter" in str(raised.value.__notes__[0])
    assert learnt(tmp_path / "bits") == (broken, False) if broken else True
    flag.unlink()
    CALLED.clear()
    assert ints(plan(tmp_path / "bits", fn=breaks)) == expected()
    assert list(range(broken, 100)) == CALLED
    assert learnt(tmp_path / "bits") == (100, True)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 30])
@pytest.mark.parametrize("stop", [0.0, 0.4, 1.0])
def test_whatever_a_kill_leaves_no_sample_is_lost_or_doubled(tmp_path, monkeypatch, count, stop):
    monkeypatch.setattr(disk_caches, "_BYTES", 1)
    with (
        snapshots(tmp_path / "bits", tmp_path) as left,
        closing(iter(plan(tmp_path / "bits", count))) as items,
    ):
        wanted = expected(count)
        assert ints(islice(items, int(stop * len(wanted)))) == wanted[: int(stop * len(wanted))]
        assert stop < 1 or next(items, None) is None
    for each in left:
        for _ in range(3):
            assert ints(plan(each, count)) == wanted
        assert learnt(each) == (count, True)
        assert len(plan(each, count)) == len(wanted)


KILLED = """
import os, signal
from jreader import Pipeline, arrays
from jreader.transforms import disk_caches
disk_caches._BYTES = 100
rows = list(range(30))

def kept(number):
    return number % 3 == 1

CALLED = []  # empty whenever a pass hashes what it holds


def noted(number):
    CALLED.append(int(number))
    return third(number)


def plan(folder):
    return Pipeline(arrays(rows)).filter(kept, keep=folder)

for place in range(10):
    folder = os.path.join(FOLDER, f"{place}")
    child = os.fork()  # no thread and no JAX has been started here
    if not child:
        for number, sample in enumerate(plan(folder)):
            if number == place:
                os.kill(os.getpid(), getattr(signal, END))
    assert os.waitpid(child, 0)[1], "it was not killed"
    for _ in range(2):
        seen = list(map(int, plan(folder)))
        if seen != list(range(1, 30, 3)):
            print("wrong", place, seen, flush=True)
    if len(plan(folder)) != 10:
        print("not whole", place, flush=True)
print("done", flush=True)
"""


@pytest.mark.parametrize("end", few(["SIGKILL", "SIGTERM"], ["SIGKILL"]))
def test_a_kill_at_any_sample_leaves_the_rest_to_the_next_pass(end, tmp_path):
    with program(f"END, FOLDER = {end!r}, {str(tmp_path)!r}", KILLED) as running:
        assert running.says() == "done"


@pytest.mark.parametrize("place", range(1, 14))
def test_ctrl_c_in_any_step_of_writing_loses_nothing(tmp_path, monkeypatch, place):
    monkeypatch.setattr(disk_caches, "_BYTES", 640)
    steps = [0]

    def interrupted(step):
        def call(*given_, **named):
            step(*given_, **named)
            steps[0] += 1
            if steps[0] == place:
                raise KeyboardInterrupt

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", interrupted(os.replace))
        patched.setattr(os, "fsync", interrupted(os.fsync))
        with suppress(KeyboardInterrupt):
            list(plan(tmp_path / "bits", 30))
    for _ in range(2):
        assert ints(plan(tmp_path / "bits", 30)) == expected(30)
    assert learnt(tmp_path / "bits") == (30, True)


def test_bits_of_another_function_or_of_other_data_are_refused_with_the_line(tmp_path):
    list(plan(tmp_path / "bits"))
    other = plan(tmp_path / "bits", fn=lambda number: number > 3)
    with pytest.raises(
        ValueError, match=r"the filter kept in .* another plan, whose line 1 of its"
    ):
        list(other)
    with pytest.raises(ValueError, match=r"functions is 'third.*filter\(fn, reader, keep='another"):
        len(other)
    with pytest.raises(ValueError, match=r"line 2 of its ops.*int64\[100\].*int64\[101\]"):
        list(plan(tmp_path / "bits", 101))


def test_bits_and_samples_are_not_taken_for_each_other(tmp_path):
    list(plan(tmp_path / "bits"))
    with pytest.raises(ValueError, match=r"the cache in .* is of another plan"):
        list(plan(tmp_path / "bits").cache(tmp_path / "bits"))
    list(Pipeline(arrays(np.arange(100))).filter(third).cache(tmp_path / "kept"))
    with pytest.raises(ValueError, match=r"the filter kept in .* is of another plan"):
        list(plan(tmp_path / "kept"))


def test_a_changed_bit_is_noticed(tmp_path):
    list(plan(tmp_path / "bits", 30))
    path = tmp_path / "bits" / "0.npy"
    content = bytearray(path.read_bytes())
    content[128] ^= 4
    path.write_bytes(content)
    with pytest.raises(DamagedData, match=r"0\.npy .*Delete the folder"):
        list(plan(tmp_path / "bits", 30))


def test_a_reader_of_another_length_than_its_bits_is_an_error(tmp_path):
    file = tmp_path / "count"

    def counting():
        return iter(range(int(file.read_text())))

    file.write_text("9")
    list(jreader.filter(third, counting, tmp_path / "bits")())
    for many, says in (("8", "has 8"), ("10", "has more")):
        file.write_text(many)
        with pytest.raises(ReaderError, match=f"bits for 9 samples, and counting {says}"):
            list(jreader.filter(third, counting, tmp_path / "bits")())


def test_what_has_no_fixed_order_cannot_be_kept(tmp_path):
    rows = arrays(np.arange(9))
    with pytest.raises(ValueError, match=r"keeps one order .* draws new numbers in each pass"):
        jreader.filter(third, jreader.shuffle(rows), tmp_path / "bits")
    with pytest.raises(ValueError, match="keeps one order"):
        Pipeline(rows).map(lambda n, rng: n, rng=True).filter(third, keep=tmp_path / "bits")
    arriving = xmap_readers(abs, rows, 2, 4)
    with pytest.raises(ReaderError, match=r"its place: .* order=True.*, or leave keep out"):
        list(jreader.filter(third, arriving, tmp_path / "bits")())


@pytest.mark.parametrize(("path", "error"), [(3, TypeError), (b"a", TypeError), ("", TypeError)])
def test_a_path_that_is_none_is_refused(path, error):
    with pytest.raises(
        error, match=r"path of filter\(fn, reader, keep\) needs the name of a folder"
    ):
        plan(path)


def test_epochs_below_do_the_same_and_above_they_vary(tmp_path):
    below = Pipeline(arrays(np.arange(30))).shuffle(seed=3).filter(third, keep=tmp_path / "bits")
    one = ints(below)
    assert ints(below.epochs(2)) == one + one
    again = Pipeline(arrays(np.arange(30))).shuffle(seed=3).filter(third, keep=tmp_path / "bits")
    assert ints(again.epochs(2)) == one + one
    varied = ints(again.shuffle(seed=0).epochs(2))
    assert varied[:10] != varied[10:]
    assert sorted(varied[:10]) == sorted(varied[10:]) == sorted(one)


def test_a_pass_resumed_beyond_what_is_known_learns_nothing_and_the_next_one_does(tmp_path):
    first = start(plan(tmp_path / "bits"))
    head = ints(islice(first.items, 5))
    at = first.position()
    first.close()
    shutil.rmtree(tmp_path / "bits")
    rest = start(plan(tmp_path / "bits"), at)
    assert head + ints(rest.items) == expected()
    assert not (tmp_path / "bits" / "columns.json").exists()
    assert ints(plan(tmp_path / "bits")) == expected()
    assert learnt(tmp_path / "bits") == (100, True)


def test_of_two_passes_at_once_one_learns_and_both_have_all(tmp_path):
    made = plan(tmp_path / "bits")
    one, other, third_ = iter(made), iter(made), iter(plan(tmp_path / "bits"))
    seen = [ints(islice(each, n)) for n, each in ((5, one), (9, other), (2, third_))]
    assert seen[0] + ints(one) == expected()
    assert seen[1] + ints(other) == seen[2] + ints(third_) == expected()
    assert learnt(tmp_path / "bits") == (100, True)


def test_a_position_of_an_index_resumes_though_the_bits_are_gone(tmp_path):
    list(plan(tmp_path / "bits"))
    known = start(plan(tmp_path / "bits"))
    head = ints(islice(known.items, 5))
    assert known.position() == 5
    shutil.rmtree(tmp_path / "bits")
    assert head + ints(start(plan(tmp_path / "bits"), 5).items) == expected()


@pytest.mark.parametrize("deal", [{}, {"buf_size": 6, "seed": 3}])
def test_a_run_that_began_while_bits_were_learnt_resumes_when_they_are_known(tmp_path, deal):
    def loader():
        made = plan(tmp_path / "bits", 60)
        made = made.shuffle(**deal) if deal else made
        return made.batch(3).load(drop_last=False)

    feeds = loader().steps(18)
    cursors, seen = [], []
    for feed in feeds:
        seen.append(np.asarray(feed).tolist())
        cursors.append(json.loads(json.dumps(feeds.cursor)))
    for place in (0, 3, 6, 9, 16):
        rest = [np.asarray(feed).tolist() for feed in loader().steps(18, at=cursors[place])]
        assert rest == seen[place + 1 :]
    known = loader().steps(18)
    for place, feed in enumerate(known):
        assert np.asarray(feed).tolist() == seen[place]
    shutil.rmtree(tmp_path / "bits")
    for place in (0, 6, 16):
        rest = [np.asarray(feed).tolist() for feed in loader().steps(18, at=cursors[place])]
        assert rest == seen[place + 1 :]


def test_a_cursor_of_the_plain_filter_is_refused_and_not_misread(tmp_path):
    def feeds(**options):
        rows = Pipeline(arrays(np.arange(60))).filter(third, **options)
        return rows.batch(3).load(drop_last=False).steps(5)

    plain = feeds()
    next(plain)
    list(plan(tmp_path / "bits", 60))
    loader = Pipeline(arrays(np.arange(60))).filter(third, keep=tmp_path / "bits").batch(3)
    with pytest.raises(NotResumable, match=r"filter\(\).*filter\(kept\)"):
        next(loader.load(drop_last=False).steps(5, at=plain.cursor))


def test_an_op_whose_order_needs_all_lengths_has_the_bits_learnt_first(tmp_path):
    def mixed():
        some = plan(tmp_path / "bits"), Pipeline(arrays(np.arange(1000, 1011)))
        return mix(some, stop="once")

    first = ints(mixed()())
    assert learnt(tmp_path / "bits") == (100, True)
    assert ints(mixed()()) == first
    assert sorted(first) == sorted([*expected(), *range(1000, 1011)])


def test_a_shuffle_of_all_has_the_bits_learnt_first(tmp_path):
    first = plan(tmp_path / "bits").shuffle(seed=0)
    assert not (tmp_path / "bits").exists()
    epoch = ints(first)
    assert sorted(epoch) == expected() != epoch
    assert ints(plan(tmp_path / "bits").shuffle(seed=0)) == epoch
    assert ints(start(first, 5).items) == epoch[5:]
    stream = jreader.filter(third, lambda: iter(range(9)), tmp_path / "stream")
    with pytest.raises(ValueError, match="needs a buf_size"):
        list(jreader.shuffle(stream, seed=0)())


def document(number):
    assert "JREADER_TEST_KNOWN" not in os.environ
    return {"ids": np.arange(int(number) % 7 + 1), "name": str(number)}


def is_long(sample):
    return len(sample["ids"]) > 2


@pytest.mark.parametrize("cached", [False, True])
def test_lengths_of_documents_that_are_kept_are_known_at_once(tmp_path, monkeypatch, cached):
    """Those of a cache lie in its offsets: rows are planned, and no document is read or made."""
    lengths = np.arange(300) % 7 + 1

    def documents():
        if not cached:
            offsets = np.cumsum([0, *lengths])
            return Pipeline(arrays(ids=jreader.ragged(np.arange(offsets[-1]), offsets).columns))
        return Pipeline(arrays(np.arange(300))).map(document).cache(tmp_path / "kept")

    def some():
        return documents().filter(is_long, keep=tmp_path / "bits")

    some().prepare()
    monkeypatch.setenv("JREADER_TEST_KNOWN", "1")  # nothing is made from here on
    chosen = lengths[lengths > 2]
    offsets = np.cumsum([0, *chosen])
    plain = Pipeline(arrays(ids=jreader.ragged(np.arange(offsets[-1]), offsets).columns))
    assert some().pack(16, fields=["ids"]).fill == plain.pack(16).fill > 0.9
    assert len(some().pack(16, fields=["ids"]).batch(4)) == len(plain.pack(16).batch(4))
    bucketed = some().bucket([4, 8], 8, fields=["ids"])
    assert len(bucketed) == len(plain.bucket([4, 8], 8, fields=["ids"]))
    ids = [
        np.asarray(row["ids"])[: (row["segment_ids"] > 0).sum()]
        for row in some().pack(16, fields=["ids"])
    ]
    assert sum(map(len, ids)) == chosen.sum()


def test_samples_in_lanes_are_kept_as_one_stream(tmp_path):
    def lines():
        dealt = jreader.read(lambda n: range(10 * n, 10 * n + 10), arrays(np.arange(4)), lanes=2)
        return jreader.filter(third, dealt, tmp_path / "bits")

    first = ints(lines()())
    assert ints(lines()()) == first
    assert sorted(first) == expected(40)


def test_a_whole_one_travels_to_another_process(tmp_path):
    list(plan(tmp_path / "bits"))
    again = cloudpickle.loads(cloudpickle.dumps(plan(tmp_path / "bits")))
    assert ints(again) == expected()
    assert len(again) == 33


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        list(plan(tmp_path / "file" / "bits"))


def test_a_full_disk_says_what_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(disk_caches, "_BYTES", 64 * 20)
    written, steps = os.pwrite, [0]

    def full(*given_):
        steps[0] += 1
        if steps[0] > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written(*given_)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match=r"no space is left .*: 40 samples are kept there"):
            list(plan(tmp_path / "bits"))
    assert ints(plan(tmp_path / "bits")) == expected()
    assert learnt(tmp_path / "bits") == (100, True)
