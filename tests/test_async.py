"""Async functions: refused where they are given, with what to type."""

import asyncio
from functools import partial

import pytest

from jreader import DataLoader, Pipeline, arrays, source
from jreader.transforms import map_readers


async def fetched(sample):
    return sample + 1


async def numbers():
    yield 1


class Fetched:
    """An object that is called, and awaited."""

    async def __call__(self, sample):
        return sample


class Rows:
    """A data set whose samples have to be awaited."""

    def __len__(self):
        return 3

    async def __getitem__(self, index):
        return index


def plain(sample):
    return [sample]


PLAN = Pipeline(arrays([1, 2, 3]))


@pytest.mark.parametrize("fn", [fetched, numbers, Fetched(), partial(fetched)])
@pytest.mark.parametrize(
    "build",
    [
        PLAN.map,
        lambda fn: PLAN.map(fn, threads=2),
        lambda fn: PLAN.map(fn, processes=2),
        PLAN.filter,
        PLAN.flat_map,
        PLAN.batch(2).map_batches,
        lambda fn: PLAN.xmap(fn, 2, 4),
        lambda fn: map_readers(fn, lambda: "ab"),
        lambda fn: PLAN.read(fn, lanes=1),
        lambda fn: DataLoader([1, 2], collate_fn=fn),
        Pipeline,
        lambda fn: DataLoader.from_generator(capacity=2).set_sample_generator(fn, 2),
    ],
)
def test_an_async_function_is_refused_where_it_is_given(build, fn):
    with pytest.raises(TypeError, match=r"is async.*asyncio\.run"):
        build(fn)


def test_an_async_data_set_is_refused_where_it_is_given():
    for build in (source, DataLoader, lambda rows: DataLoader(rows, batch_size=2)):
        with pytest.raises(TypeError, match=r"is async.*asyncio\.run"):
            build(Rows())


def test_what_the_message_says_works():
    assert list(PLAN.map(lambda sample: asyncio.run(fetched(int(sample))))) == [2, 3, 4]


def test_a_function_that_returns_an_async_generator_raises_in_the_pass():
    def unfinished():
        return numbers()

    with pytest.raises(TypeError, match="plain generator"):
        list(Pipeline(unfinished))
