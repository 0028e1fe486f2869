"""Samples of a data set that `map(processes=n)` has fetched by its workers."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import jreader
from jreader import Pipeline, source

N = 40
HERE = os.getpid()


class Numbers:
    """Sample i is i, and the process that fetched it."""

    def __init__(self, bad=(), pad=0, lost=None):
        self.bad, self.pad, self.lost = frozenset(bad), bytes(pad), lost

    def __len__(self):
        return N

    def __getitem__(self, index):
        if index in self.bad:
            raise OSError(f"no sample {index}")
        if index == 11 and self.lost and not Path(self.lost).exists():
            Path(self.lost).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"n": index, "process": os.getpid()}


class Open(Numbers):
    """It cannot be sent to another process."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


def same(sample):
    return sample


def drawn(sample, rng):
    return {**sample, "drawn": int(rng.integers(1000))}


def odd(sample):
    if sample["n"] % 10 == 3:
        raise KeyError(sample["n"])
    return sample


def plans(data):
    rows = Pipeline(source(data))
    return {
        "plain": rows.map(same, processes=2),
        "below a batch": rows.map(same, processes=2).batch(7),
        "above a shuffle": rows.shuffle(seed=0).map(same, processes=2),
        "between both": rows.shuffle(seed=0).map(same, processes=2).batch(7),
        "below a shuffle": rows.map(same, processes=2).shuffle(seed=0).batch(7),
        "skipping": rows.map(odd, processes=2, on_error="skip").batch(7),
        "drawing": rows.map(drawn, processes=2, rng=True, seed=0).batch(7),
        "of two": rows.shuffle(seed=0).compose(source(data)).map(same, processes=2),
        "of one after the other": rows.chain(source(data)).map(same, processes=2).batch(7),
        "twice": rows.map(same, processes=2).batch(7).epochs(2),
    }


def samples(plan):
    """The samples one by one, whether batched or not."""
    every = list(plan)
    if every and not isinstance(every[0], (dict, tuple)):
        return [sample for batch in every for sample in batch]
    return every


def without_process(sample):
    parts = sample if isinstance(sample, tuple) else (sample,)
    return [{k: int(v) for k, v in part.items() if k != "process"} for part in parts]


def processes(sample):
    parts = sample if isinstance(sample, tuple) else (sample,)
    return {int(part["process"]) for part in parts}


@pytest.mark.parametrize("pad", [0, 1 << 20])
@pytest.mark.parametrize("name", list(plans(Numbers())))
@pytest.mark.filterwarnings("ignore:.*were left out")
def test_no_sample_of_a_data_set_is_fetched_on_the_trainer(pool, name, pad):
    found = samples(plans(Numbers(pad=pad))[name])
    assert found
    assert HERE not in set().union(*map(processes, found))


@pytest.mark.parametrize("chosen", [{}, {"rng": True, "seed": 3}])
@pytest.mark.parametrize("size", [None, 7])
def test_samples_and_positions_are_those_without_workers(pool, chosen, size):
    def plan(**engine):
        fn = drawn if chosen else same
        mapped = Pipeline(source(Numbers())).shuffle(seed=1).map(fn, **chosen, **engine)
        return (mapped.batch(size) if size else mapped).epochs(2)

    def seen(plan, at=None):
        here, found, positions = jreader.start(plan, at), [], []
        for item in here.items:
            batch = [item] if size is None else list(item)
            found.append([without_process(sample) for sample in batch])
            positions.append(here.position())
        here.close()
        return found, positions

    found, positions = seen(plan())
    assert seen(plan(processes=2)) == (found, positions)
    for done in (0, len(found) // 3, len(found) - 2):
        assert seen(plan(processes=2), positions[done])[0] == found[done + 1 :]
        assert seen(plan(), positions[done])[0] == found[done + 1 :]


@pytest.mark.parametrize("size", [None, 7])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_an_error_of_the_data_set_ends_the_pass_and_names_its_source(pool, size, on_error):
    mapped = Pipeline(source(Numbers(bad=[20]))).map(same, processes=2, on_error=on_error)
    found = []
    with pytest.raises(OSError, match="no sample 20") as raised:
        found.extend(samples_one_by_one(mapped if size is None else mapped.batch(size)))
    assert found == [sample for sample in range(20) if size is None or sample < 14]
    notes = "\n".join(raised.value.__notes__)
    assert "source" in notes
    assert "test_fetching.py" in notes


def samples_one_by_one(plan):
    for item in plan:
        for sample in [item] if isinstance(item, dict) else item:
            yield int(sample["n"])


def test_an_error_of_the_function_names_the_sample(pool):
    with pytest.raises(KeyError) as raised:
        list(Pipeline(source(Numbers())).map(odd, processes=2))
    assert any("'n': 3" in note for note in raised.value.__notes__)


def test_a_worker_that_dies_in_the_data_set_is_replaced(pool, tmp_path):
    data = Numbers(lost=str(tmp_path / "lost"))
    assert [s["n"] for s in Pipeline(source(data)).map(same, processes=2)] == list(range(N))
    assert (tmp_path / "lost").exists()


def test_a_data_set_that_cannot_be_sent_is_read_on_the_trainer(pool):
    found = list(Pipeline(source(Open())).map(same, processes=2))
    assert [sample["n"] for sample in found] == list(range(N))
    assert set().union(*map(processes, found)) == {HERE}


@pytest.mark.parametrize(("batched", "here"), [(False, True), (True, False)])
def test_an_executor_of_the_user_fetches_whole_batches_alone(pool, batched, here):
    with jreader.Processes(1) as executor:
        mapped = Pipeline(source(Numbers())).map(same, executor=executor)
        found = samples(mapped.batch(7) if batched else mapped)
    assert [int(sample["n"]) for sample in found] == list(range(N))
    assert (HERE in set().union(*map(processes, found))) == here


class Draws(Numbers):
    """It draws from a generator of its own, of which workers would have copies."""

    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index):
        return {"n": int(self.rng.integers(1 << 40)), "process": os.getpid()}


def test_a_data_set_that_draws_is_read_on_the_trainer(pool):
    found = [sample["n"] for sample in Pipeline(source(Draws())).map(same, processes=2)]
    data = Draws()
    assert found == [data[0]["n"] for _ in range(N)]
    assert len(set(found)) == N


def test_a_data_set_that_changed_is_sent_anew_for_the_next_pass(pool):
    data = Numbers()
    plan = Pipeline(source(data)).map(same, processes=2).batch(7)
    assert len(samples(plan)) == N
    data.bad = frozenset([0])
    with pytest.raises(OSError, match="no sample 0"):
        samples(plan)


def test_a_sampler_that_refills_its_list_is_not_warned_of_where_one_thread_fetches():
    class Refilling:
        def __iter__(self):
            batch = [0, 0]
            for low in range(0, 12, 2):
                batch[:] = low, low + 1
                yield batch

        def __len__(self):
            return 6

    loader = jreader.DataLoader(range(12), batch_sampler=Refilling(), timeout=300)
    assert [feed.tolist() for feed in loader] == [[n, n + 1] for n in range(0, 12, 2)]
