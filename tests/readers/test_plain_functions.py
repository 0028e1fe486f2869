"""A pass over a plain function: each call has to make an iterator of its own."""

from __future__ import annotations

import gc
import weakref

import pytest

from jreader import IterableDataset, Pipeline, ReaderError, cache, start

AGAIN = "returned an iterator that it has returned before"


def generator():
    yield from range(5)


class Countdown:
    """An iterator that begins again where it is iterated again, as many are written by hand."""

    def __init__(self, again):
        self.left, self.again = 5, again

    def __iter__(self):
        self.left = 5 if self.again else self.left
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left


class Unhashable(Countdown):
    __hash__ = None


class Small(Unhashable):
    """No weak reference leads to it."""

    __slots__ = ("again", "left")


ITERATORS = {
    "generator": generator,
    "generator expression": lambda: (n for n in range(5)),
    "iter": lambda: iter(range(5)),
    "zip": lambda: zip(range(5), range(5), strict=True),
    "map": lambda: map(float, range(5)),
    "of a class": lambda: Countdown(again=False),
    "that cannot be hashed": lambda: Unhashable(again=False),
    "that is small": lambda: Small(again=False),
    "another pass": lambda: iter(Pipeline(generator).skip(0)),
}


class Holding(IterableDataset):
    def __init__(self, iterator):
        self.iterator = iterator

    def __iter__(self):
        return self.iterator


def giving(samples):
    return lambda: samples


READERS = {
    "lambda": lambda iterator: lambda: iterator,
    "iter of it": lambda iterator: lambda: iter(iterator),
    "its own __iter__": lambda iterator: iterator.__iter__,
    "data set": Holding,
    "function that gives a data set": lambda iterator: giving(Holding(iterator)),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("iterator", ITERATORS)
class TestAReaderThatGivesOneIteratorTwice:
    def test_is_refused_for_the_second_pass(self, iterator, reader):
        plan = Pipeline(READERS[reader](ITERATORS[iterator]()))
        assert len(list(plan)) == 5
        with pytest.raises(ReaderError, match=AGAIN):
            list(plan)

    @pytest.mark.filterwarnings("ignore:generator-object")
    def test_is_refused_for_the_second_epoch_of_a_loader(self, iterator, reader):
        loader = Pipeline(READERS[reader](ITERATORS[iterator]())).batch(5).load(sharding="host")
        feeds = loader.steps(10)
        next(feeds)
        with pytest.raises(ReaderError, match=AGAIN):
            next(feeds)


@pytest.mark.parametrize("reader", READERS)
def test_a_generator_is_refused_though_it_has_more_to_give(reader):
    plan = Pipeline(READERS[reader](generator()))
    assert plan.peek() == 0
    with pytest.raises(ReaderError, match=AGAIN):
        plan.peek()


def test_the_error_names_the_reader_its_line_and_what_to_write():
    def reader():
        return samples

    samples, line = generator(), reader.__code__.co_firstlineno
    list(start(reader).items)
    with pytest.raises(ReaderError) as raised:
        start(reader)
    assert str(raised.value) == (
        f"reader, written at {__file__}:{line}, returned an iterator that it has returned before "
        f"(a generator), which gives its samples only once: make a new one in each call. For a "
        f"generator function f, type Pipeline(f), or lambda: f(...), which calls it anew."
    )


class TestReadersThatBeginAnew:
    def passes(self, reader, times=4):
        return [list(Pipeline(reader)) for _ in range(times)]

    def test_a_plain_function_may_return_one_list_each_time(self):
        numbers = [1, 2]
        assert self.passes(lambda: numbers) == [[1, 2]] * 4

    @pytest.mark.parametrize("samples", [(), "ab"])
    def test_may_return_a_new_iterator_where_an_old_one_was(self, samples):
        assert self.passes(lambda: map(str, samples)) == [list(samples)] * 4
        assert self.passes(lambda: iter(samples)) == [list(samples)] * 4
        assert self.passes(lambda: (each for each in samples)) == [list(samples)] * 4

    def test_may_keep_the_iterator_that_they_return(self):
        class Kept:
            def __call__(self):
                self.samples = zip("ab", strict=True)
                return self.samples

        assert self.passes(Kept()) == [[("a",), ("b",)]] * 4

    @pytest.mark.parametrize("kind", [Countdown, Small])
    def test_a_plain_function_may_return_an_object_that_restarts(self, kind):
        countdown = kind(again=True)
        assert self.passes(lambda: countdown) == [[4, 3, 2, 1, 0]] * 4
        first = start(lambda: countdown)
        next(first.items)
        assert list(start(lambda: countdown, first.position()).items) == [3, 2, 1, 0]

    def test_a_cache_reads_a_plain_function_once(self):
        samples = generator()
        assert self.passes(cache(lambda: samples)) == [[0, 1, 2, 3, 4]] * 4


@pytest.mark.parametrize("kind", [generator, lambda: Countdown(again=True)])
def test_an_iterator_that_was_read_is_let_go(kind):
    made = []

    def reader():
        samples = kind()
        made.append(weakref.ref(samples))
        return samples

    assert [len(list(Pipeline(reader))) for _ in range(3)] == [5, 5, 5]
    gc.collect()
    assert [each() for each in made] == [None] * 3
