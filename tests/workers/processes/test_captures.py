"""What a function holds goes to processes as a copy; what moves on by itself is refused there."""

from __future__ import annotations

import functools
import io
import itertools
import random
import socket
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
import pytest

from jreader import DataLoader, Dataset, Pipeline, multiprocess_reader


class Holder:
    def __init__(self, held):
        self.held = held

    def __call__(self, sample):
        return sample

    def method(self, sample):
        return sample


class Held(Dataset):
    def __init__(self, held):
        self.held = held

    def __getitem__(self, index):
        return index

    def __len__(self):
        return 4


def closure(held):
    def captures(sample):
        return sample if held else None

    return captures


def default(held):
    def captures(sample, held=held):
        return sample

    return captures


def nested(held):
    parts = {"one": [held]}
    return lambda sample: sample if parts else None


FUNCTIONS = {
    "closure": (closure, "`held` of captures"),
    "default": (default, "`default 0` of captures"),
    "partial": (lambda held: functools.partial(max, held), "`args[0]` of "),
    "object": (Holder, "`held` of Holder"),
    "method": (lambda held: Holder(held).method, "`held` of Holder"),
    "container": (nested, "`parts['one'][0]` of <lambda>"),
}
ENGINES = {
    "processes": lambda fn: Pipeline(lambda: range(4)).map(fn, processes=2),
    "batches of processes": lambda fn: Pipeline(lambda: range(4)).map(fn, processes=2).batch(2),
    "executor": lambda fn: Pipeline(lambda: range(4)).map(fn, executor=ProcessPoolExecutor(2)),
    "multiprocess_reader": lambda fn: multiprocess_reader([lambda: map(fn, range(4))]),
}


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("one\ntwo\n")
    with path.open() as file:
        yield file


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("engine", ENGINES)
class TestWhatMovesOn:
    def test_an_open_file_is_refused_by_name(self, engine, function, lines):
        make, name = FUNCTIONS[function]
        with pytest.raises(TypeError) as raised:
            list(ENGINES[engine](make(lines))())
        assert str(raised.value).startswith(name)
        assert f"is an open file ({lines.name!r}), and each worker process" in str(raised.value)

    @pytest.mark.parametrize(
        "iterator", [map(str, "ab"), itertools.count(), iter([1]), (n for n in "a")], ids=type
    )
    def test_an_iterator_is_refused_by_name(self, engine, function, iterator):
        make, name = FUNCTIONS[function]
        with pytest.raises(TypeError) as raised:
            list(ENGINES[engine](make(iterator))())
        assert str(raised.value).startswith(name)
        assert f"is an iterator ({type(iterator).__name__}), and each" in str(raised.value)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "held", [threading.Lock(), socket.socket(), sys._getframe()], ids=["lock", "socket", "frame"]
)
def test_what_no_process_can_have_is_named_too(engine, held):
    with pytest.raises(TypeError, match="cannot pickle") as raised:
        list(ENGINES[engine](closure(held))())
    assert "what cannot be sent is `held` of captures" in raised.value.__notes__


@dataclass(frozen=True)
class Refused(Exception):
    """Of a class that takes no notes."""

    reason: str


class Secret:
    def __reduce__(self):
        raise Refused("secret")


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="pickle itself adds notes, and fails")
@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_class_raises_when_it_is_sent_arrives_as_it_is(engine):
    with pytest.raises(Refused, match="secret"):
        list(ENGINES[engine](closure(Secret()))())


@pytest.mark.parametrize("held", ["lines", "iterator"])
def test_a_data_set_of_a_loader_with_workers_is_no_exception(held, lines):
    dataset = Held({"lines": lines, "iterator": iter([1, 2])}[held])
    assert len(list(DataLoader(dataset))) == 4
    with pytest.raises(TypeError, match=r"^`held` of Held is an "):
        list(DataLoader(dataset, num_workers=2))


def test_threads_share_it(lines):
    plan = Pipeline(lambda: range(2)).map(lambda n: (n, next(lines)), threads=1)
    assert list(plan) == [(0, "one\n"), (1, "two\n")]
    with ThreadPoolExecutor(1) as threads:
        lines.seek(0)
        assert list(Pipeline(lambda: range(2)).map(lambda _: next(lines), executor=threads)) == [
            "one\n",
            "two\n",
        ]


@pytest.mark.parametrize(
    "held", [lambda: io.BytesIO(b"ab"), lambda: sys.stderr, lambda: [1], lambda: np.arange(3)]
)
def test_what_does_not_move_on_is_sent(held, capsys):
    with capsys.disabled():
        assert list(Pipeline(lambda: range(4)).map(Holder(held()), processes=2)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "held", [np.random.default_rng(0), np.random.RandomState(0), random.Random(0)]
)
@pytest.mark.parametrize("engine", ["processes", "multiprocess_reader"])
def test_a_random_generator_is_told_by_name(engine, held):
    with pytest.warns(UserWarning, match="`held` of captures is a generator of random") as told:
        list(ENGINES[engine](closure(held))())
    assert {each.filename for each in told} == {__file__}


def test_and_at_the_users_line_where_an_executor_pickles_elsewhere():
    plan = Pipeline(lambda: range(2))
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor,
        pytest.warns(UserWarning, match="is a generator of random") as told,
    ):
        list(plan.map(closure(np.random.default_rng(0)), executor=executor))
    assert [each.filename for each in told] == [__file__]
