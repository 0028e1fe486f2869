"""A cursor is a place: whatever was ahead of the consumer, what is left of the run follows."""

import json
from itertools import islice, product

import jax
import numpy as np
import pytest
from seen import through_json
from steps import stream, told, with_cursors
from widths import few

from jreader import DataLoader, NotResumable, Pipeline, arrays, batch, shuffle

DEVICES = jax.devices()
COUNT = 44


def numbers():
    return iter(range(COUNT))


def indexed(seed=1):
    return Pipeline(arrays(n=np.arange(COUNT))).shuffle(seed=seed).batch(4)


def streamed(seed=1):
    return Pipeline(numbers).shuffle(9, seed).map(lambda n: {"n": n}).prefetch(3).batch(4)


def by_samples(seed=1, **options):
    loader = DataLoader.from_generator(**options)
    return loader.set_sample_generator(
        shuffle(numbers, 9, seed), 2, drop_last=False, places=DEVICES[:2]
    )


def by_lists(seed=1, **options):
    loader = DataLoader.from_generator(return_list=True, **options)
    return loader.set_sample_list_generator(batch(shuffle(numbers, 9, seed), 4))


def by_batches(seed=1, **options):
    batches = Pipeline(shuffle(numbers, 9, seed)).batch(4).map_batches(lambda columns: columns)
    loader = DataLoader.from_generator(use_double_buffer=False, **options)
    return loader.set_batch_generator(batches)


LOADERS = {
    "indexed": lambda seed=1, **options: indexed(seed).load(**options),
    "streamed": lambda seed=1, **options: streamed(seed).load(pmap=DEVICES[:2], **options),
    "samples": by_samples,
    "lists": by_lists,
    "batches": by_batches,
}
of_every_kind = pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)
CAPACITIES = (0, 1, 4, 64)
SEEDS = (1, None)


@of_every_kind
@pytest.mark.parametrize(
    ("capacity", "seed", "drop_last"),
    few(
        product(CAPACITIES, SEEDS, (True, False)),
        [(0, 1, False), (1, None, True), (4, 1, True), (64, None, False)],
    ),
)
def test_every_cursor_of_an_epoch_gives_the_rest_of_it(make, capacity, seed, drop_last):
    loader = make(seed, capacity=capacity, drop_last=drop_last)
    seen, cursors = with_cursors(loader.epoch(2))
    assert len(seen) == 11
    for done, cursor in enumerate(cursors):
        assert (cursor["epoch"], cursor["step"]) == (2, done)
        assert stream(loader.epoch(2, at=cursor)) == seen[done:]


@of_every_kind
def test_a_loader_of_another_capacity_goes_on_alike(make):
    seen, cursors = with_cursors(make(None, capacity=64).epoch(0))
    assert stream(make(None, capacity=1).epoch(0, at=cursors[3])) == seen[3:]


@of_every_kind
@pytest.mark.parametrize(("capacity", "seed"), few(product(CAPACITIES, SEEDS), [(1, None), (4, 1)]))
def test_steps_go_on_from_epoch_to_epoch(make, capacity, seed):
    loader = make(seed, capacity=capacity)
    seen, cursors = with_cursors(loader.steps(27))
    assert [cursor["step"] for cursor in cursors] == list(range(28))
    for done in (0, 1, 10, 11, 12, 21, 22, 26, 27):
        rest = stream(loader.steps(27, at=cursors[done]))
        left = -done % 11 if done else 11  # unseeded, later epochs are drawn anew
        assert (rest if seed else rest[:left]) == (seen[done:] if seed else seen[done:][:left])
        assert len(rest) == 27 - done


@of_every_kind
def test_steps_give_the_epochs_one_after_another(make):
    loader = make()
    epochs = [feed for epoch in range(3) for feed in stream(loader.epoch(epoch))]
    assert stream(loader.steps(30)) == epochs[:30]
    assert stream(islice(loader.steps(), 30)) == epochs[:30]
    assert epochs[:11] != epochs[11:22]


@of_every_kind
def test_iterating_counts_epochs_up(make):
    loader = make()
    assert [stream(loader) for _ in range(3)] == [stream(loader.epoch(n)) for n in range(3)]
    assert loader.next_epoch == 3


@of_every_kind
def test_state_is_that_of_the_latest_pass(make):
    loader, fresh = make(None), make(None)
    list(loader)
    feeds = iter(loader)
    head = [told(next(feeds)) for _ in range(4)]
    state = through_json(loader.state_dict())
    tail = stream(feeds)
    fresh.load_state_dict(state)
    assert fresh.state_dict() == state
    assert fresh.next_epoch == 1
    again = iter(fresh)
    assert (again.epoch, again.step, len(head)) == (1, 4, 4)
    assert stream(again) == tail
    assert fresh.next_epoch == 2


def test_state_survives_the_pass_that_was_broken_off():
    loader = LOADERS["indexed"](capacity=4)
    for feed in loader:
        if feed["n"].shape and loader.state_dict()["step"] == 3:
            break
    assert loader.state_dict()["step"] == 3
    loader.load_state_dict(loader.state_dict())
    assert stream(loader) == stream(loader.epoch(0))[3:]


def test_after_an_epoch_the_state_is_the_beginning_of_the_next():
    loader = LOADERS["indexed"]()
    list(loader)
    state = loader.state_dict()
    assert (state["epoch"], state["step"], state["position"]) == (1, 0, None)
    fresh = LOADERS["indexed"]()
    fresh.load_state_dict(state)
    assert stream(fresh) == stream(loader.epoch(1))


def test_a_cursor_is_small():
    feeds = LOADERS["streamed"](None, capacity=64).epoch(0)
    next(feeds)
    assert len(json.dumps(feeds.cursor)) < 450


def test_a_fresh_process_goes_on(python):
    script = """
        import json, sys
        from loaders.test_resuming import LOADERS, told
        for name, cursor in json.loads(sys.argv[1]).items():
            print(json.dumps(list(map(told, LOADERS[name](None).epoch(0, at=cursor)))))
    """
    cursors, tails = {}, []
    for name, make in LOADERS.items():
        seen, places = with_cursors(make(None).epoch(0))
        cursors[name] = places[5]
        tails.append(seen[5:])
    done = python(script.replace("sys.argv[1]", repr(json.dumps(cursors))))
    assert list(map(json.loads, done.stdout.splitlines())) == tails


class TestOtherData:
    def test_a_cursor_of_more_data_is_refused(self):
        held = [*range(40)]
        loader = Pipeline(lambda: iter(held)).batch(4).load()
        cursor = with_cursors(loader.epoch(0))[1][-1]
        del held[8:]
        with pytest.raises(NotResumable, match="cannot resume after sample 40"):
            list(loader.epoch(0, at=cursor))

    def test_a_place_in_no_order_is_refused(self):
        loader = Pipeline(numbers).xmap(int, 2, 2).batch(4).load()
        feeds = iter(loader)
        next(feeds)
        with pytest.raises(NotResumable, match="order=True"):
            list(loader.epoch(0, at=through_json(feeds.cursor)))


@pytest.mark.filterwarnings("ignore:epoch . is empty")
def test_an_endless_run_over_nothing_ends_with_an_error():
    loader = DataLoader.from_generator().set_sample_generator(tuple, 4)
    with pytest.raises(Exception, match="epoch 0 gave no feed"):
        list(loader.steps())


def test_an_infinite_reader_has_one_epoch():
    loader = indexed().epochs().load(capacity=4)
    with pytest.raises(TypeError, match="not known"):
        len(loader)
    assert len(stream(islice(loader, 100))) == 100


def test_a_run_that_has_done_more_steps_than_it_is_asked_for_is_told():
    loader = Pipeline(arrays(np.arange(12))).batch(2).load()
    feeds = loader.steps(5)
    assert len(list(feeds)) == 5
    with pytest.warns(
        UserWarning, match=r"ends a run at step 3, and this one has done 5, .*steps\(8"
    ):
        assert list(loader.steps(3, at=feeds.cursor)) == []
    assert list(loader.steps(5, at=feeds.cursor)) == []  # a run that is over, begun again
