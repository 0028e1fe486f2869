"""Maps that write to their samples: the data stay as they are, and each engine gives the same."""

import copy
import pickle
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jreader import Pipeline, arrays, chain, lint, ragged, source
from jreader.datasets import ComposeDataset, ConcatDataset, Subset, TensorDataset
from tests.helpers.widths import examples, few

ROWS = 6
NOTE = "copy it first"


class Pair(NamedTuple):
    """A sample that is a named tuple."""

    x: object
    y: object


@dataclass
class Record:
    """A sample that is an object of a class of the user's own."""

    x: object
    y: object


def scribbled(sample):
    """Writes to whatever of a sample can be written to, and returns what it is then."""
    made = sample
    if isinstance(sample, np.ndarray):
        sample[...] = np.zeros((), sample.dtype)
        made = sample.tolist()
    elif isinstance(sample, np.void):
        sample["a"] = 3
        made = sample.tolist()
    elif isinstance(sample, list):
        made = [scribbled(part) for part in sample]
        sample.append("more")
    elif isinstance(sample, dict):
        made = {name: scribbled(part) for name, part in sample.items()}
        sample["more"] = 1
    elif isinstance(sample, tuple):
        made = [scribbled(part) for part in sample]
    elif isinstance(sample, Record):
        sample.y = 2 * sample.y
        made = [scribbled(sample.x), sample.y]
    return made, len(sample) if isinstance(sample, (list, dict)) else None


def grown(sample):
    """Writes to the containers of a sample only."""
    if isinstance(sample, dict):
        sample["y"] = sample.get("y", 0)
        sample["n"] = len(sample)
        return len(sample), grown(next(iter(sample.values())))
    if isinstance(sample, list):
        sample.append(1)
        return len(sample)
    return len(sample) if hasattr(sample, "__len__") else 0


def _numbers():
    return np.arange(ROWS * 4, dtype=float).reshape(ROWS, 4)


def _objects():
    return [{"x": row, "tags": ["a"], "n": n} for n, row in enumerate(_numbers())]


STRUCTURED = np.dtype([("a", int), ("b", float)])

# what the user holds, a reader of it, and the samples that it has
SOURCES = {
    "arrays": (_numbers, lambda held: arrays(x=held, y=np.arange(ROWS))),
    "arrays of other strides": (lambda: _numbers().T.copy().T, lambda held: arrays((held, held))),
    "structured arrays": (lambda: np.zeros(ROWS, STRUCTURED), arrays),
    "arrays of objects": (
        lambda: np.array([{"tags": ["a"]} for _ in range(ROWS)], object),
        lambda held: arrays(x=held),
    ),
    "ragged": (lambda: np.arange(9.0), lambda held: ragged(held, [0, 2, 2, 5, 6, 8, 9])),
    "chained": (_numbers, lambda held: chain(arrays(held), arrays(held[:2]))),
    "windows": (_numbers, lambda held: Pipeline(arrays(held)).sliding_window(2, stride=1)),
    "an array as a data set": (_numbers, source),
    "a list of dicts": (_objects, source),
    "a list of arrays": (lambda: list(_numbers()), source),
    "a list of lists": (lambda: [[1], [2, [3]], []], source),
    "a list of named tuples": (lambda: [Pair(row, [1]) for row in _numbers()], source),
    "a list of objects": (lambda: [Record(row, 5) for row in _numbers()], source),
    "a function that returns a list": (_objects, lambda held: lambda: held),
    "a tensor data set": (_numbers, lambda held: source(TensorDataset(held, np.arange(ROWS)))),
    "a subset of a list": (_objects, lambda held: source(Subset(held, [3, 0, 3]))),
    "two lists": (_objects, lambda held: source(ConcatDataset([held, held[:1]]))),
    "lists side by side": (
        _objects,
        lambda held: source(ComposeDataset([held, [1] * ROWS])),
    ),
}

OPS = {
    "nothing": lambda plan: plan,
    "cache": lambda plan: plan.cache(),
    "shuffle and cache": lambda plan: plan.shuffle(4, seed=1).cache(),
    "firstn": lambda plan: plan.firstn(4),
    "shuffle": lambda plan: plan.shuffle(8, seed=0),
    "prefetch": lambda plan: plan.prefetch(2),
    "mix": lambda plan: plan.mix(plan, seed=0),
    "the first process": lambda plan: plan.map(lambda sample: sample),
}


def outcome(plan, epochs=2):
    """What each epoch gives, or that an error with the note was raised."""
    found = []
    for _ in range(epochs):
        try:
            found.append(list(plan))
        except ValueError as error:
            assert NOTE in "".join(error.__notes__), error  # noqa: PT017  # its notes count
            found.append("refused")
    assert all(each == found[0] for each in found)
    return found[0]


def state(held):
    return pickle.dumps(held)


def expected(plan, fn):
    """What a function gives for fresh copies of the samples."""
    return [fn(copy.deepcopy(sample)) for sample in list(plan)]


def in_each_engine(name, op, fn, engines):
    make, reader_of = SOURCES[name]
    held = make()
    before = state(held)
    right = expected(OPS[op](Pipeline(reader_of(make()))), _writable(fn))
    seen = None
    for engine in engines:
        now = outcome(OPS[op](Pipeline(reader_of(held))).map(fn, **engine))
        assert state(held) == before
        assert now in (right, "refused")
        assert seen in (None, now), engine
        seen = now


class _writable:
    """A function of samples whose arrays may be written to."""

    def __init__(self, fn):
        self.fn = fn

    def __call__(self, sample):
        return self.fn(unlocked(sample))


def unlocked(sample):
    """A sample with arrays that can be written to."""
    if isinstance(sample, np.ndarray):
        return np.array(sample)
    if isinstance(sample, np.void):
        return np.array(sample)[()]
    if isinstance(sample, dict):
        return {name: unlocked(part) for name, part in sample.items()}
    if isinstance(sample, list):
        return [unlocked(part) for part in sample]
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*map(unlocked, sample))
    return tuple(map(unlocked, sample)) if isinstance(sample, tuple) else sample


@examples(200, least=15)
@given(
    st.sampled_from([*SOURCES]),
    st.sampled_from([*OPS]),
    st.sampled_from([scribbled, grown]),
)
def test_no_map_changes_the_data_and_threads_give_the_same(threads, name, op, fn):
    in_each_engine(name, op, fn, [{}, {"threads": 2}, {"executor": threads}])


@examples(60, least=3)
@given(
    st.sampled_from([*SOURCES]),
    st.sampled_from([*OPS]),
    st.sampled_from([scribbled, grown]),
)
def test_no_map_changes_the_data_and_processes_give_the_same(name, op, fn):
    in_each_engine(name, op, fn, [{}, {"processes": 1}])


@pytest.mark.parametrize("name", few(SOURCES, ["arrays", "arrays of other strides"]))
def test_an_executor_of_processes_gives_the_same(name, processes):
    in_each_engine(name, "nothing", scribbled, [{}, {"executor": processes}])


def test_a_map_that_halves_its_sample_is_told_to_copy_it():
    held = np.ones((3, 2))

    def halved(sample):
        sample["x"] /= 2
        return sample

    plan = Pipeline(arrays(x=held)).map(halved)
    for look in (list, Pipeline.peek, Pipeline.element_spec.fget, lambda plan: plan[0]):
        with pytest.raises(ValueError, match="read-only") as raised:
            look(plan)
        assert "halved" in raised.value.__notes__[0]
        assert NOTE in raised.value.__notes__[1]
    with suppress(ValueError):
        lint(plan, measure=True)
    assert held.tolist() == np.ones((3, 2)).tolist()


@pytest.mark.parametrize("op", ["filter", "flat_map"])
def test_other_functions_of_samples_are_told_to_copy_them_too(op):
    def negated(sample):
        return np.negative(sample, out=sample)

    with pytest.raises(ValueError, match="read-only") as raised:
        list(getattr(Pipeline(arrays(np.ones((3, 2)))), op)(negated))
    assert NOTE in raised.value.__notes__[1]


def test_a_batch_is_gathered_and_belongs_to_its_user():
    held = np.ones((4, 2))

    def halved(columns):
        columns["x"] /= 2
        return columns

    plan = Pipeline(arrays(x=held)).batch(2).map_batches(halved)
    for _ in range(2):
        assert [batch.columns["x"].tolist() for batch in plan] == [[[0.5, 0.5]] * 2] * 2
    assert held.min() == 1


def test_batches_that_are_kept_are_not_changed():
    def halved(columns):
        columns["x"] /= 2
        return columns

    plan = Pipeline(arrays(x=np.ones((4, 2)))).batch(2).cache()
    with pytest.raises(ValueError, match="read-only") as raised:
        list(plan.map_batches(halved))
    assert NOTE in raised.value.__notes__[1]
    assert all((batch.columns["x"] == 1).all() for batch in plan)


def test_pictures_that_are_made_smaller_in_place_stay_as_large_as_they_are():
    image = pytest.importorskip("PIL.Image")
    held = [image.new("L", (8, 8)) for _ in range(2)]

    def thumbnail(picture):
        picture.thumbnail((4, 4))
        return picture.size

    plan = Pipeline(source(held)).map(thumbnail)
    assert list(plan) == list(plan) == [(4, 4)] * 2
    assert {picture.size for picture in held} == {(8, 8)}


def test_objects_that_cannot_be_copied_are_handed_over_as_they_are():
    lock = threading.Lock()
    assert list(source([lock])()) == [lock]


def test_numbers_and_texts_are_not_looked_at_twice():
    kept = Pipeline(lambda: iter(["a", 1, 2.5, None, (1, b"")])).cache()
    assert list(kept) == list(kept) == ["a", 1, 2.5, None, (1, b"")]


def test_opencv_that_draws_on_a_sample_is_told_to_copy_it():
    cv2 = pytest.importorskip("cv2")
    plan = Pipeline(arrays(np.zeros((2, 8, 8, 3), np.uint8)))
    with pytest.raises(cv2.error) as raised:
        list(plan.map(lambda image: cv2.rectangle(image, (0, 0), (3, 3), (1, 1, 1))))
    assert NOTE in raised.value.__notes__[1]
