"""The laws: what is true of every op, on random plans (tests/conftest.py: on how many)."""

from __future__ import annotations

import threading
from itertools import islice

import cloudpickle
import graphs
import pytest
import seen
from graphs import (
    CREATORS,
    OPS,
    PROCESSES,
    SAMPLERS,
    BoomError,
    Leaf,
    Recipe,
    drawn_for,
    joined,
    kept,
    leaf_recipes,
    recipes,
    several,
    tagged,
)
from hypothesis import given
from hypothesis import strategies as st
from movers import fast, moving
from programs import PATIENCE
from seen import LIMIT, canonical, see
from widths import examples

import jreader
from jreader import (
    Pipeline,
    Processes,
    at_epoch,
    batch,
    chain,
    compose,
    epochs,
    firstn,
    map_readers,
    shard,
    shuffle,
)
from jreader.batches import Engine, batching, gives_batches, made_in_workers
from jreader.datasets import Sampler
from jreader.readers import length, start
from jreader.readers.lanes import dealt_below

# random filters of few samples do so, and windows of short documents, and it is told
pytestmark = [
    pytest.mark.filterwarnings("ignore:.* left none of the samples"),
    # plans of several examples are parts of one, since their leaves are equal
    pytest.mark.filterwarnings("ignore:.*and an earlier part of the same plan split"),
    pytest.mark.filterwarnings("ignore:.*leaves out .* tokens of"),
]

plans = recipes()
seeded = plans.filter(lambda recipe: recipe.seeded)
with_processes = st.one_of(
    *[
        st.builds(
            lambda op, below, size: Recipe(op, {"queue_size": size}, tuple(below)),
            st.just(op),
            st.lists(recipes(depth=1), min_size=1, max_size=3),
            st.integers(1, 4),
        )
        for op in PROCESSES
    ]
)


def explosive(_leaf: Leaf):
    def source():
        raise AssertionError("read while the plan was built")

    return source


@given(plans)
def test_building_reads_nothing(recipe):
    plan = recipe.build(explosive)
    repr(plan)
    length(plan)
    at_epoch(plan, 3)


@given(seeded)
def test_seeded_passes_are_equal(recipe):
    plan = recipe.build()
    first = see(plan)
    assert see(plan) == first == see(recipe.build())


def resumes(recipe, limit=LIMIT, step=1):
    """A position is a place: the rest of the pass follows, in an equal plan that was never read."""
    whole = see(recipe.build(), limit=limit)
    cold = recipe.build()
    for place in range(0, len(whole.positions), step):
        rest = see(cold, whole.positions[place], limit - place)
        assert rest.samples == whole.samples[place:]
        assert rest.error == whole.error
        middle = len(rest.positions) // 2
        again = see(recipe.build(), rest.positions[middle], limit - place - middle)
        assert again.samples == whole.samples[place + middle :]
    if whole.after is not None:
        assert see(cold, whole.after).samples == []


@given(plans)
def test_a_position_is_a_place(recipe):
    resumes(recipe)


@given(plans)
@examples(150)  # as the law above, and each begins up to 15 passes
def test_a_position_of_endless_epochs_is_a_place(recipe):
    endless = Recipe(epochs, {"n": None}, (recipe,))
    resumes(endless, limit=30, step=7)


@pytest.fixture(scope="module")
def sent_by_value():
    """Processes are sent what plans are made of; they would import hypothesis, and every op."""
    for module in (graphs, seen):
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in (graphs, seen):
        cloudpickle.unregister_pickle_by_value(module)


@pytest.mark.slow
@pytest.mark.usefixtures("sent_by_value")
@given(with_processes)
@examples(4)
def test_a_position_in_processes_is_a_place(recipe):
    resumes(recipe, step=7)  # each pass begins up to three processes


@given(seeded, st.integers(0, 20))
def test_an_error_arrives_after_the_good_samples_and_the_rest_can_be_resumed(recipe, after):
    def failing(leaf):
        return Leaf(leaf.kind, leaf.count, leaf.base, after) if after <= leaf.count else leaf

    healthy = see(recipe.build())
    broken = see(recipe.build(failing))
    if broken.error is BoomError:
        given_ = len(broken.samples)
        assert broken.samples == healthy.samples[:given_]
        rest = see(recipe.build(), broken.positions[-1], LIMIT - given_)
        assert rest.samples == healthy.samples[given_:]
    else:
        assert broken == healthy


@given(plans)
def test_a_known_length_is_the_number_of_samples(recipe):
    plan = recipe.build()
    known = length(plan)
    if known is not None and known < 5000:
        seen = see(plan, limit=known + 1)
        if seen.error is None:
            assert known == len(seen.samples)


@given(seeded, st.integers(1, 3))
def test_epochs_are_the_passes_of_each_epoch(recipe, n):
    one_by_one = [see(at_epoch(recipe.build(), epoch)) for epoch in range(n)]
    if all(seen.error is None and len(seen.samples) < LIMIT for seen in one_by_one):
        together = see(epochs(joined(recipe.build()), n), limit=LIMIT * n)
        assert together.samples == [s for seen in one_by_one for s in seen.samples]


@given(st.integers(2, 9), st.integers(0, 5))
def test_epochs_inside_epochs_are_all_different(outer, seed):
    passes = epochs(epochs(shuffle(lambda: range(60), 60, seed), 2), outer)
    orders = [tuple(part) for part in batch(passes, 60)()]
    assert len(set(orders)) == len(orders) == 2 * outer


def test_an_unseeded_order_below_a_cache_is_found_again():
    """The window that is dealt begins where the cache began: at what was drawn for it."""

    def plan():
        return shuffle(jreader.cache(shuffle(lambda: range(20), 20)), 7)

    first = start(plan())
    head = [next(first.items) for _ in range(3)]
    rest = list(start(plan(), first.position()).items)
    assert rest == list(first.items)
    assert sorted(head + rest) == list(range(20))


def test_an_unseeded_order_below_a_cache_is_found_again_before_its_turn_and_after():
    def plan():
        kept = jreader.cache(shuffle(lambda: range(20), 20))
        return chain(lambda: range(2), kept, shuffle(kept, 5), lambda: range(2))

    whole = see(plan())
    for place, position in enumerate(whole.positions):
        assert see(plan(), position).samples == whole.samples[place:]


def test_what_a_cache_keeps_stays_after_another_pass_was_resumed():
    def plan():
        return jreader.cache(shuffle(lambda: range(20), 20))

    warm, other = plan(), see(plan())
    kept = see(warm).samples
    assert see(warm, other.positions[3]).samples == other.samples[3:]
    assert see(warm).samples == kept != other.samples


def test_a_cache_that_was_resumed_first_keeps_what_it_was_resumed_with():
    def plan():
        return jreader.cache(shuffle(lambda: range(20), 20))

    whole, cold = see(plan()), plan()
    assert see(cold, whole.positions[3]).samples == whole.samples[3:]
    assert see(cold).samples == whole.samples


def test_an_unseeded_order_below_a_cache_is_read_once():
    reads = []

    def source():
        reads.append("read")
        return range(20)

    plan = chain(jreader.cache(shuffle(source, 20)), lambda: range(2))
    assert see(plan).samples == see(epochs(plan, 1)).samples
    assert reads == ["read"]


def test_an_unseeded_order_below_a_cache_stays_though_no_pass_reached_its_end():
    three = compose(
        lambda: range(3), jreader.cache(shuffle(lambda: range(20), 20)), check_alignment=False
    )
    assert list(three()) == list(three())


@given(seeded)
def test_epoch_zero_changes_nothing(recipe):
    assert see(at_epoch(recipe.build(), 0)) == see(recipe.build())


@pytest.mark.parametrize("high", [2**32, 2**33, 2**63, 2**64 - 2**32])
def test_epochs_that_differ_beyond_32_bits_differ(high):
    reader = shuffle(lambda: range(60), 60, seed=1)
    for low in (0, 1, 2**32 - 1):
        assert see(at_epoch(reader, high + low)) != see(at_epoch(reader, low))
        later = at_epoch(at_epoch(reader, 3), high + low)
        assert see(later) != see(at_epoch(at_epoch(reader, 3), low))
    with pytest.raises(ValueError, match=r"below 2\*\*64"):
        at_epoch(reader, high + 2**64)


@given(seeded, seeded, seeded)
def test_chain_is_a_monoid(one, two, three):
    a, b, c = one.build(), two.build(), three.build()
    assert see(chain(chain(a, b), c)).samples == see(chain(a, chain(b, c))).samples
    assert see(chain(a, chain())).samples == see(chain(chain(), a)).samples == see(a).samples


@given(seeded)
def test_maps_compose(recipe):
    twice = map_readers(tagged, map_readers(tagged, recipe.build()))
    once = map_readers(lambda sample: tagged(tagged(sample)), recipe.build())
    assert see(twice).samples == see(once).samples


@given(seeded, st.integers(0, 20), st.integers(0, 20))
def test_firstn_takes_the_minimum(recipe, n, more):
    twice = see(firstn(firstn(recipe.build(), n), more)).samples
    assert twice == see(recipe.build()).samples[: min(n, more)]


@given(leaf_recipes, st.integers(2, 20), st.integers(0, 5))
def test_shuffle_permutes_within_windows(recipe, size, seed):
    plain = see(recipe.build()).samples
    dealt = see(shuffle(recipe.build(), size, seed)).samples
    for place in range(0, len(plain), size):
        window = slice(place, place + size)
        assert sorted(map(repr, dealt[window])) == sorted(map(repr, plain[window]))


@given(seeded, st.integers(2, 20), st.integers(0, 5))
def test_shuffle_is_blind_to_what_it_deals(recipe, size, seed):
    above = see(map_readers(tagged, shuffle(recipe.build(), size, seed)))
    below = see(shuffle(map_readers(tagged, recipe.build()), size, seed))
    assert above.samples == below.samples


@given(seeded, st.integers(1, 6), st.booleans())
def test_batch_loses_nothing(recipe, size, drop_last):
    plain = see(recipe.build())
    batches = see(batch(joined(recipe.build()), size, drop_last))
    if plain.error is None and len(plain.samples) < LIMIT:
        together = [sample for part in batches.samples for sample in part[1:]]
        left = len(plain.samples) % size if drop_last else 0
        assert together == plain.samples[: len(plain.samples) - left]
        assert all(len(part) - 1 == size for part in batches.samples[:-1])


@given(seeded, st.integers(1, 5))
def test_shards_partition(recipe, parts):
    plain = see(recipe.build())
    if plain.error is None and len(plain.samples) < LIMIT:
        shards = [see(shard(recipe.build(), parts, index)).samples for index in range(parts)]
        for place, sample in enumerate(plain.samples):
            assert shards[place % parts][place // parts] == sample
        assert sum(map(len, shards)) == len(plain.samples)


@given(seeded, st.integers(0, 6), st.integers(1, 4))
def test_workers_are_invisible(recipe, size, threads):
    plain = see(recipe.build())
    assert see(jreader.buffered(recipe.build(), size)).samples == plain.samples
    if plain.error is None:
        assert see(jreader.cache(recipe.build())).samples == plain.samples
    mapped = see(jreader.xmap_readers(tagged, recipe.build(), threads, size + 1, order=True))
    assert mapped.samples == see(map_readers(tagged, recipe.build())).samples


@pytest.fixture(scope="module")
def elsewhere():
    """Worker processes that are begun once."""
    with Processes(2) as workers:
        yield workers


def found_by_number(plan, functions, size, drop_last):
    """Batches of a plan that are found by their number; None where only reading finds them."""
    for rng in functions:
        plan = jreader.map_samples(drawn_for, plan, rng=rng, seed=3 if rng else None)
    if dealt_below(plan) is not None:
        return None
    plan = plan if gives_batches(plan) else batch(plan, size, drop_last)
    found = batching(plan)
    return plan if found.indexed and not found.lanes else None


@given(
    st.one_of(moving.map(fast), seeded.map(Recipe.build)),
    st.lists(st.booleans(), max_size=2),
    st.integers(1, 5),
    st.booleans(),
    st.integers(0, 2),
)
@examples(100)
def test_batches_made_elsewhere_are_those_made_here(
    elsewhere, plan, functions, size, drop_last, epoch
):
    plan = found_by_number(plan, functions, size, drop_last)
    if plan is None:
        return
    here = at_epoch(plan, epoch)
    there = at_epoch(made_in_workers(plan, plan, Engine(elsewhere, {})), epoch)
    expected = see(here)
    assert see(there) == expected
    for place in range(0, len(expected.positions), 3):
        rest = see(there, expected.positions[place], LIMIT - place)
        assert rest.samples == expected.samples[place:]


@given(leaf_recipes, st.integers(1, 4), st.integers(1, 4))
def test_arrival_order_loses_nothing(recipe, threads, size):
    expected = see(map_readers(tagged, recipe.build())).samples
    found = [*map(canonical, jreader.xmap_readers(tagged, recipe.build(), threads, size)())]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 4), st.booleans(), st.integers(0, 9))
@examples(25)
def test_look_ahead_is_bounded(size, threads, buffer_size, order, taken):
    for bound, made in [
        (size, lambda source: jreader.buffered(source, size)),
        (
            threads + buffer_size,
            lambda source: jreader.xmap_readers(tagged, source, threads, buffer_size, order),
        ),
    ]:
        full, beyond = threading.Event(), threading.Event()
        allowed = taken + 1 + bound
        held_back = bound // 4  # of a chunk that is partly handed over, which is no larger

        def source(allowed=allowed, least=allowed - held_back, full=full, beyond=beyond):
            for pulled in range(1, 100):
                if pulled >= least:
                    full.set()
                if pulled > allowed:
                    beyond.set()
                yield pulled

        items = made(source)()
        for _ in range(taken + 1):
            next(items)
        assert full.wait(PATIENCE)
        assert not beyond.wait(0.02)


@given(plans, st.integers(0, 10))
@examples(200)
def test_a_pass_that_is_closed_leaves_no_thread(recipe, n):
    others = {*threading.enumerate()}
    here = start(recipe.build())
    try:
        for _ in islice(here.items, n):
            pass
    except Exception:  # how it went is another law
        pass
    here.close()
    del here
    for thread in {*threading.enumerate()} - others:
        if thread.name.startswith("jreader "):
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_plans_travel(tmp_path, python):
    """The same plan is printed, and the same samples come out, in another process."""
    made = []

    @given(plans.filter(lambda recipe: recipe.seeded))
    @examples(300, least=30)
    def collect(recipe):
        plan = recipe.build()
        made.append((plan, repr(plan), repr(see(plan))))

    collect()
    (tmp_path / "plans").write_bytes(cloudpickle.dumps(made))
    script = """
        import pickle
        from seen import see
        plans = pickle.load(open("plans", "rb"))
        for plan, written, seen in plans:
            assert repr(plan) == written
            assert repr(see(plan)) == seen
        print(len(plans))
    """
    assert int(python(script, cwd=tmp_path).stdout) == len(made) > 20


def test_every_op_is_under_the_laws():
    assert {op.__name__ for op in OPS} >= {"map_readers", "shuffle", "buffered", "cache"}
    assert Pipeline in OPS
    rooms = ("jreader.sources.", "jreader.datasets.")
    assert all(op.__module__.startswith(rooms) for op in CREATORS)
    assert {op for op in CREATORS if op.__module__.startswith(rooms[1])} == {Sampler, *SAMPLERS}


def test_functions_of_the_laws_do_what_they_should():
    assert {kept(n) for n in range(20)} == {True, False}
    assert {len(list(several(n))) for n in range(40)} == {0, 1, 2, 3}
