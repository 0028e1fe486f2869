"""Functions in worker processes that draw from the global generators: told, with what to type."""

import random
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from jreader import Pipeline, source

SAYS = r"draws from the global generators.*rng=True"


def of_numpy(sample):
    return sample + np.random.rand()  # noqa: NPY002  # what is to be told


def of_python(sample):
    return sample + random.random()  # likewise


def of_numpy_late(sample):
    return sample + (np.random.rand() if sample >= 50 else 0)  # noqa: NPY002  # likewise


def of_its_own(sample):
    return sample + np.random.default_rng(sample).random()


def at_first(sample, drawn=[]):  # noqa: B006  # as a module that draws while it is imported
    if not drawn:
        drawn.append(random.random())
    return sample


def seeded(sample):
    np.random.seed(sample)  # noqa: NPY002  # likewise
    random.seed(sample)
    return sample + np.random.rand() + random.random()  # noqa: NPY002  # likewise


def numbers():
    return Pipeline(source(list(range(20))))


@pytest.mark.parametrize("fn", [of_numpy, of_python])
@pytest.mark.parametrize("batched", [False, True])
def test_what_draws_from_them_in_processes_is_told_at_the_line_of_the_map(fn, batched):
    plan = numbers().map(fn, processes=1)
    with pytest.warns(UserWarning, match=SAYS) as told:
        list(plan.batch(4) if batched else plan)
    assert told[0].filename == __file__
    assert fn.__name__ in str(told[0].message)


def test_what_draws_from_them_for_later_samples_only_is_told_too():
    plan = Pipeline(source(list(range(400)))).map(of_numpy_late, processes=1, window=8)
    with pytest.warns(UserWarning, match=f"^of_numpy_late in map_samples, .*{SAYS}"):
        list(plan)


def test_a_function_of_batches_that_draws_from_them_is_told_to_draw_below_them():
    plan = numbers().batch(4).map_batches(of_numpy, processes=1)
    with pytest.warns(UserWarning, match=r"^of_numpy in map_batches, .*before samples are batched"):
        list(plan)


def test_what_draws_from_them_in_another_executor_of_processes_is_told(processes):
    with pytest.warns(UserWarning, match=SAYS):
        list(numbers().map(of_numpy, executor=processes))


@pytest.mark.parametrize("fn", [of_its_own, at_first, seeded, abs])
def test_what_gives_the_same_in_each_run_is_not_told(fn, processes):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, again = (list(numbers().map(fn, processes=1)) for _ in range(2))
        assert first == again == list(numbers().map(fn, executor=processes))


def test_what_draws_in_this_program_is_not_told():
    with warnings.catch_warnings(), ThreadPoolExecutor(1) as threads:
        warnings.simplefilter("error")
        for how in ({}, {"threads": 1}, {"executor": threads}):
            list(numbers().map(of_numpy, **how))


def test_what_draws_from_its_own_generator_draws_the_same_in_processes():
    def noisy(sample, rng):
        return sample + rng.random()

    def drawn(**how):
        return list(numbers().map(noisy, rng=True, seed=0, **how))

    assert drawn() == drawn(processes=1) == drawn(processes=2)
