"""Plans over `cache(reader, path)`: one order, whether the folder is empty, begun or whole."""

import itertools
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import jax
import numpy as np
import pytest
from graphs import Leaf, Recipe, kept, leaf_recipes, op_recipes, recipes
from hypothesis import given
from hypothesis import strategies as st
from kept_samples import FAST, documents
from programs import PATIENCE, program
from seen import LIMIT, Seen, see, through_json
from widths import examples

import jreader
from jreader import Pipeline, arrays, cache, chain, epochs, interleave, mix
from jreader.commands.show import show
from jreader.errors import NotResumable, ReaderError

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* left none of the samples"),
    pytest.mark.filterwarnings("ignore:.*leaves out .* tokens of"),
]

ragged_leaves = st.builds(
    lambda count, base: Recipe(None, {}, leaf=Leaf("array", count, base)),
    st.integers(1, 14),
    st.integers(0, 9),
)


@st.composite
def by_length(draw):
    """An op whose order may depend on all lengths, directly above samples that are kept ragged."""
    op = draw(
        st.sampled_from([jreader.pack, jreader.bucket, jreader.windows, jreader.padded_batch])
    )
    recipe = draw(op_recipes(op, ragged_leaves))
    return Recipe(op, recipe.given, (draw(ragged_leaves),))


def reads_lanes(recipe):
    """Whether it has lanes; a recipe deals them by the number of files, which a cache may know."""
    return recipe.op is jreader.read or any(map(reads_lanes, recipe.below))


cached_plans = st.one_of(
    recipes(depth=3), by_length(), op_recipes(jreader.mix, st.one_of(recipes(depth=1), by_length()))
).filter(lambda recipe: recipe.seeded and not reads_lanes(recipe))


@dataclass(frozen=True)
class Sized:
    """A plain function that tells its length."""

    leaf: Leaf

    def __call__(self):
        return self.leaf()

    def __len__(self):
        return self.leaf.count


def over_caches(recipe, folder):
    """The plan with each generator cached or filtered in a folder; some tell their length."""
    number = itertools.count()

    def in_folder(leaf):
        reader, name = Sized(leaf) if leaf.base % 2 else leaf, f"{folder}/{next(number)}"
        return jreader.filter(kept, reader, name) if leaf.base % 3 == 2 else cache(reader, name)

    return recipe.build(in_folder)


def tried(reader, at=None, limit=LIMIT):
    """What a pass gives; one that is refused where it begins gives nothing."""
    try:
        return see(reader, at, limit)
    except NotResumable:
        raise
    except (TypeError, ValueError, ReaderError) as error:
        return Seen([], [None], type(error), None)


mixed_plans = op_recipes(jreader.mix, op_recipes(jreader.shuffle, leaf_recipes)).filter(
    lambda recipe: recipe.seeded
)


@given(st.one_of(cached_plans, mixed_plans), st.integers(0, 9))
@examples(150)
def test_a_plan_has_one_order_cold_warm_and_resumed_across_the_border(recipe, place):
    with TemporaryDirectory(dir=FAST) as folder:

        def built(name):
            return epochs(over_caches(recipe, f"{folder}/{name}"), 2)

        cold = tried(built("kept"))
        warm = tried(built("kept"))
        assert warm.samples == cold.samples
        assert warm.error == cold.error
        place = min(place, len(cold.positions) - 1)
        for number, seen in enumerate([cold, warm]):
            at, rest = seen.positions[place], LIMIT - place
            assert tried(built("kept"), at, rest).samples == cold.samples[place:]
            assert tried(built(f"again{number}"), at, rest).samples == cold.samples[place:]


def numbers():
    return iter(range(31))


def stored(folder, reader=numbers, name="a"):
    return Pipeline(reader).cache(folder / name)


LOADED = {
    "bucket": lambda d: stored(d, documents).bucket([4, 9], batch_size=2, seed=0),
    "bucket of lists": lambda d: stored(d, lambda: map(list, documents())).bucket([4, 9], 2),
    "mix": lambda d: Pipeline(mix([stored(d), stored(d, name="b")], [3, 1], seed=1)).batch(4),
    "pack": lambda d: stored(d, documents).pack(8, seed=0).batch(2),
    "windows": lambda d: stored(d, documents).windows(5).batch(2),
    "shuffle": lambda d: stored(d).shuffle(8, seed=3).batch(4),
    "chain": lambda d: Pipeline(chain(arrays(np.arange(9)), stored(d))).shuffle(6, seed=2).batch(4),
    "two caches": lambda d: stored(d).map(lambda n: n + 1).cache(d / "b").batch(4),
    "cache in memory": lambda d: stored(d).cache().shuffle(8, seed=3).batch(4),
    "map": lambda d: stored(d).map(lambda n: n * 2, threads=2).batch(4),
    "filter": lambda d: stored(d).filter(lambda n: n % 3).batch(4),
}
STEPS = 22  # of epochs of 8 to 20


def fed(plan, at=None):
    """The feeds of some steps, and the cursor after each."""
    feeds = plan.load(drop_last=True).steps(STEPS, at=at)
    return zip(*[(as_text(feed), through_json(feeds.cursor)) for feed in feeds], strict=True)


def as_text(feed):
    return repr(jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), feed))


@pytest.mark.filterwarnings("error:this cursor")
@pytest.mark.parametrize(
    "made", [LOADED[each] for each in LOADED], ids=[each.replace(" ", "_") for each in LOADED]
)
def test_a_run_resumes_across_the_border_with_the_same_epochs_and_digests(tmp_path, made):
    feeds, cursors = fed(made(tmp_path / "kept"))
    again, warm = fed(made(tmp_path / "kept"))
    assert feeds == again
    assert [each["digest"] for each in cursors] == [each["digest"] for each in warm]
    for place in (0, 9, 15):  # in each of the first epochs
        for name, cursor in (("cold", cursors[place]), ("warm", warm[place])):
            for folder in ("kept", f"{name} {place}"):
                rest, _ = fed(made(tmp_path / folder), cursor)
                assert rest == feeds[place + 1 :]


@pytest.mark.parametrize(
    "order",
    [
        lambda docs: docs.bucket([4, 9], batch_size=2, seed=0),
        lambda docs: docs.pack(8, seed=0),
        lambda docs: mix([docs, numbers], seed=0),
    ],
)
def test_an_op_that_needs_all_samples_has_them_written_when_it_begins_and_not_before(
    tmp_path, order
):
    read = []
    docs = Pipeline(lambda: (read.append(len(read)) or each for each in documents()))
    plan = Pipeline(order(docs.cache(tmp_path / "kept")))
    repr(plan)
    plan._repr_html_()
    assert read == []
    assert not (tmp_path / "kept").exists()
    items = plan()
    next(items)
    assert read == list(range(37))
    list(items)
    assert read == list(range(37))


ASKED = {
    "repr": repr,
    "a picture": lambda plan: plan._repr_html_(),
    "a line of a shell": lambda plan: list(show(plan, "plan")),
    "shapes": lambda plan: plan.element_spec,
    "findings": lambda plan: jreader.lint(plan, measure=True),
}
WRITTEN_FIRST = {
    "shuffle above pack": lambda d: stored(d, documents).pack(8, seed=0).shuffle(seed=1).batch(2),
    "shuffle above mix": lambda d: (
        Pipeline(mix([stored(d), stored(d, name="b")], seed=1)).shuffle(seed=1).batch(4)
    ),
    "map above bucket": lambda d: LOADED["bucket"](d).map_batches(lambda batch: batch),
}


@pytest.mark.parametrize("name", [*LOADED, *WRITTEN_FIRST])
def test_nothing_is_written_by_a_question_and_the_order_stays(tmp_path, name):
    made = {**LOADED, **WRITTEN_FIRST}[name]
    plan = made(tmp_path / "asked")
    loader = plan.load(drop_last=True)
    for asked, ask in ASKED.items():
        for subject in (plan, loader):
            ask(subject)
            assert not (tmp_path / "asked").exists(), asked
    assert list(map(as_text, loader)) == list(
        map(as_text, made(tmp_path / "b").load(drop_last=True))
    )
    assert (tmp_path / "asked").exists()


def test_a_question_while_a_pass_writes_neither_waits_nor_writes_for_it(tmp_path):
    read = []
    plan = Pipeline(lambda: (read.append(n) or n for n in range(31))).cache(tmp_path / "kept")
    items = plan()
    assert [next(items), next(items)] == [0, 1]
    for _ in range(2):
        assert jreader.lint(plan.batch(4)) == []
        assert repr(plan.element_spec) == repr(Pipeline(arrays(np.arange(3))).element_spec)
    assert list(items) == list(range(2, 31))
    assert list(plan) == list(range(31))


def test_a_shuffle_of_a_length_that_stays_unknown_is_an_error_when_a_pass_begins(tmp_path):
    rows = stored(tmp_path, documents).pack(8, seed=0).filter(bool).shuffle(seed=0)
    with pytest.raises(ValueError, match="needs a buf_size"):
        next(rows())


def test_samples_are_handed_over_while_they_are_written_where_the_order_needs_no_others(tmp_path):
    read = []
    plan = Pipeline(lambda: (read.append(n) or n for n in range(31))).cache(tmp_path / "kept")
    next(plan.shuffle(8, seed=3).batch(2)())
    assert len(read) == 8


def test_what_is_missing_is_written_behind_what_a_pass_has_written(tmp_path):
    read = []
    docs = Pipeline(lambda: (read.append(len(read)) or each for each in documents()))
    docs = docs.cache(tmp_path / "kept")
    items = docs()
    head = [next(items) for _ in range(5)]
    rows = list(docs.pack(8, seed=0)())
    assert sum(int((row["segment_ids"] > 0).sum()) for row in rows) == sum(map(len, documents()))
    assert read == list(range(37))
    assert len(head) + len(list(items)) == 37


def test_a_pass_of_the_same_process_that_does_not_go_on_is_an_error_and_no_wait(tmp_path):
    items = stored(tmp_path, documents)()
    next(items)
    with pytest.raises(ReaderError, match="Another pass of this process has begun to write them"):
        next(stored(tmp_path, documents).pack(8, seed=0)())
    items.close()
    assert next(stored(tmp_path, documents).pack(8, seed=0)())


WRITING = """
from kept_samples import documents
from jreader import cache

items = cache(documents, FOLDER)()
next(items)
print("begun", flush=True)
open(GATE).read()
list(items)
"""


@pytest.mark.parametrize("killed", [False, True])
def test_a_process_waits_for_one_that_writes_and_resumes_if_that_is_killed(tmp_path, killed):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    names = f"FOLDER, GATE = {str(tmp_path / 'a')!r}, {str(gate)!r}"
    with program(names, WRITING) as writing, ThreadPoolExecutor(1) as other:
        assert writing.says() == "begun"
        rows = other.submit(lambda: list(stored(tmp_path, documents).pack(8, seed=0)))
        assert not rows.done()
        if killed:
            writing.signal(signal.SIGKILL)
        else:
            gate.write_text("go on")
        packed = rows.result(PATIENCE)
    tokens = [row["tokens"][row["segment_ids"] > 0] for row in packed]
    assert sorted(np.concatenate(tokens)) == sorted(np.concatenate(list(documents())))


def test_two_caches_in_a_row_are_read_again_when_the_first_is_whole(tmp_path):
    for _ in range(3):
        both = stored(tmp_path).map(lambda n: n + 1).cache(tmp_path / "b")
        assert list(both) == list(range(1, 32))


@pytest.mark.parametrize("several", [chain, interleave, lambda *both: mix([*both], seed=0)])
def test_a_cache_resumes_with_other_threads_in_a_member_and_not_with_swapped_ones(
    tmp_path, several
):
    def plan(threads, first=0):
        parts = [
            Pipeline(arrays(np.arange(each, each + 9))).map(lambda n: n * 2, threads=threads)
            for each in (first, 20 - first)
        ]
        return cache(several(*parts), tmp_path / "kept")

    made = list(plan(0)())
    assert list(plan(2)()) == made
    with pytest.raises(ValueError, match="of another plan"):
        list(plan(0, 20)())
