"""Every epoch begins: one that cannot is an error that says why, never the end of the run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import numpy as np
import pytest
from steps import stream

from jreader import (
    DataLoader,
    IterableDataset,
    Pipeline,
    map_readers,
    multiprocess_reader,
    source,
    start,
)

pytestmark = pytest.mark.usefixtures("by_value")


def four():
    return iter(map(np.float32, range(4)))


class Samples(IterableDataset):
    """Samples whose `__iter__` raises StopIteration after so many passes."""

    def __init__(self, passes):
        self.left = passes

    def __iter__(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        return four()


def called(passes):
    samples = Samples(passes)
    return lambda: iter(samples)


def iterated(passes):
    samples = Samples(passes)
    return lambda: samples


def same(sample):
    return sample


def loader_of(plan):
    return lambda reader: Pipeline(plan(Pipeline(reader))).batch(2).load()


LOADERS = {
    "plain": loader_of(same),
    "map": loader_of(lambda plan: plan.map(same)),
    "map with keys": loader_of(lambda plan: plan.map(lambda n, rng: n, rng=True, seed=0)),
    "threads": loader_of(lambda plan: plan.map(same, threads=2)),
    "processes": loader_of(lambda plan: plan.map(same, processes=2)),
    "executor": loader_of(lambda plan: plan.map(same, executor=ThreadPoolExecutor(2))),
    "xmap": loader_of(lambda plan: plan.xmap(same, 2, 2, order=True)),
    "xmap as they come": loader_of(lambda plan: plan.xmap(same, 2, 2)),
    "buffered": loader_of(lambda plan: plan.prefetch(2)),
    "shuffle": loader_of(lambda plan: plan.shuffle(2, seed=0)),
    "unseeded shuffle": loader_of(lambda plan: plan.shuffle(2)),
    "filter": loader_of(lambda plan: plan.filter(lambda _: True)),
    "chain": loader_of(lambda plan: Pipeline(four).chain(plan)),
    "compose": loader_of(lambda plan: Pipeline(four).compose(plan)),
    "map of two": loader_of(lambda plan: map_readers(max, plan, four)),
    "epochs": loader_of(lambda plan: plan.epochs(2)),
    "wrap": lambda reader: Pipeline(reader).batch(3).load(last="wrap"),
    "chunk": lambda reader: Pipeline(reader).batch(2).load().chunk(2),
    "nothing ahead": lambda reader: Pipeline(reader).batch(2).load(capacity=0),
    "samples": lambda reader: DataLoader.from_generator().set_sample_generator(
        lambda: ((n,) for n in reader()), 2
    ),
    "batches": lambda reader: DataLoader.from_generator().set_batch_generator(
        map_readers(lambda n: (n[None],), reader)
    ),
}
ONCE = {
    "cache": loader_of(lambda plan: plan.cache()),
    "multiprocess_reader": loader_of(lambda plan: multiprocess_reader([plan])),
    "multiprocess_reader as they come": loader_of(
        lambda plan: multiprocess_reader([plan, plan], use_pipe=False)
    ),
}


def check_stops(loader, at_least):
    given = []
    with pytest.raises(RuntimeError, match="raised StopIteration when"):
        given.extend(loader.steps(100))
    assert len(given) >= at_least


@pytest.mark.parametrize("reader", [called, iterated])
@pytest.mark.parametrize("engine", LOADERS)
def test_a_reader_that_raises_stop_iteration_for_a_later_epoch_is_an_error(engine, reader):
    check_stops(LOADERS[engine](reader(passes=3)), at_least=3)


@pytest.mark.parametrize("reader", [called, iterated])
@pytest.mark.parametrize("engine", LOADERS | ONCE)
def test_and_so_is_one_that_raises_it_for_the_first(engine, reader):
    check_stops((LOADERS | ONCE)[engine](reader(passes=0)), at_least=0)


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("passes", [0, 2])
def test_and_so_is_a_data_set_that_raises_it_when_it_is_iterated(passes, workers):
    passes *= workers == 0  # in a process it is a copy, which counts its own
    check_stops(DataLoader(Samples(passes), batch_size=2, num_workers=workers), at_least=passes)


@pytest.mark.parametrize("workers", [0, 2])
def test_and_so_is_a_sampler_of_another_library(workers):
    batches = map_readers(lambda n: [int(n)], Samples(2))
    check_stops(DataLoader(range(9), batch_sampler=batches, num_workers=workers), at_least=8)


@pytest.mark.parametrize("last", ["drop", "error", "pad"])
@pytest.mark.parametrize("asked", range(40))
def test_and_so_is_a_data_set_that_raises_it_when_it_is_asked_for_its_length(asked, last):
    class Numbers:
        left = asked

        def __len__(self):
            self.left -= 1
            if self.left < 0:
                raise StopIteration
            return 4

        def __getitem__(self, index):
            return index

    numbers = Numbers()
    try:
        feeds = list(Pipeline(source(numbers)).batch(2).load(last=last).steps(10))
    except RuntimeError as error:
        assert "raised StopIteration when" in str(error)  # noqa: PT017  # or there is none
    else:
        assert len(feeds) == 10
        assert numbers.left >= 0


def test_the_error_names_the_reader_its_line_and_the_op():
    def reader():
        next(iter(()))

    plan = Pipeline(reader).firstn(3)
    with pytest.raises(RuntimeError) as raised:
        start(plan)
    line = reader.__code__.co_firstlineno
    assert str(raised.value).startswith(
        f"reader, written at {__file__}:{line}, raised StopIteration when it was called for a pass"
    )
    (note,) = raised.value.__notes__
    assert note == f"raised in Pipeline(reader), made at {__file__}:{line + 3}"
    assert type(raised.value.__cause__) is StopIteration


def test_a_loader_that_has_given_an_epoch_can_be_pickled():
    loader = Pipeline(source(range(4))).batch(2).load()
    list(loader)
    assert stream(cloudpickle.loads(cloudpickle.dumps(loader))) == [[0, 1], [2, 3]]
