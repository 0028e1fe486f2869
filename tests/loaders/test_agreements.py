"""Real processes that differ, or come to an end: each ends with an error that says so, in time."""

import pytest
from together import ended, processes

ENDS = """
from jreader import Pipeline, ShortEpoch, arrays

mesh = jax.make_mesh((many,), ("data",))
rows = np.arange(22)
total = jax.jit(lambda feed: feed["n"].sum())
def sums(plan, **options):
    loader = plan.batch(8).load(sharding=mesh, **options)
    found = []
    try:
        found += [int(total(feed)) for feed in loader]
        found += [int(total(feed)) for feed in loader.epoch(1)]
    except ShortEpoch as error:
        found.append(str(error)[:40])
    return found
indexed = Pipeline(arrays(n=rows)).shuffle(seed=1)
numbers = [int(row["n"]) for row in indexed]
streamed = Pipeline(lambda: ({"n": np.int32(n)} for n in numbers))
found = {}
for last in ("drop", "pad", "wrap", "error"):
    found[last] = sums(indexed, last=last), sums(streamed, last=last)
    found[last + " 2 steps"] = (
        sums(indexed, last=last, steps_per_epoch=2), sums(streamed, last=last, steps_per_epoch=2)
    )
    found[last + " 4 steps"] = (
        sums(indexed, last=last, steps_per_epoch=4), sums(streamed, last=last, steps_per_epoch=4)
    )
say(found)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [2, 4])
def test_uneven_ends_are_alike_everywhere_under_each_policy(count):
    (alone,) = processes(ENDS, 1)
    every = processes(ENDS, count)
    assert every == [alone] * count
    full = 2
    for name, (indexed, streamed) in alone.items():
        last, *steps = name.split()
        wanted = int(steps[0]) if steps else full + (last in ("pad", "wrap"))
        short = (wanted > full and last != "wrap" and bool(steps)) or name == "error"
        assert (len(indexed), isinstance(indexed[-1], str)) == (
            (1, True) if short else (2 * wanted, False)
        )
        assert isinstance(streamed[-1], str) == short
        assert short or streamed[:wanted] == indexed[:wanted]  # epoch 1 of a stream is epoch 0


DIFFERING = """
import os, time
from jax._src import distributed
from jreader import DataLoader, Pipeline, arrays

mesh = jax.make_mesh((many,), ("data",))
first = me == 0
def stream(count):
    def numbers():
        for n in range(count):
            yield {"n": np.int32(n)}
    return Pipeline(numbers)
def failing():
    yield from stream(20)()
    raise OSError("the disk is gone")
def stuck():
    yield from stream(20)()
    while True:
        time.sleep(1)
plans = {
    "short": stream(24 if first else 40),
    "short at once": stream(0 if first else 40),
    "batches": stream(40 if first else 41),
    "failing": Pipeline(failing) if first else stream(40),
    "stuck": Pipeline(stuck) if first else stream(40),
    "another seed": Pipeline(arrays(n=np.arange(40))).shuffle(seed=me),
    "another length": Pipeline(arrays(n=np.arange(40 + me))),
    "another stream": stream(40).shuffle(8, seed=me),
}
plan = plans[given["how"]].batch(8)
loader = plan.load(sharding=mesh, drop_last=False, capacity=given["capacity"], timeout=3)
total = jax.jit(lambda feed: feed["n"].sum())
sums, came, error = [], time.monotonic(), None
try:
    for feed in loader:
        sums.append(int(total(feed)))
        assert loader.state_dict()["step"] == len(sums)
except Exception as raised:
    error = raised
say([sums, type(error).__name__, str(error), time.monotonic() - came])
if error:  # not by the usual way: jax would wait for those that hang
    try:
        distributed.global_state.client.wait_at_barrier("all have said it", 2000)
    except jax.errors.JaxRuntimeError:
        pass
    os._exit(0)
"""


def differing(how, count, capacity=2):
    every = ended(DIFFERING, count, given={"how": how, "capacity": capacity}, limit=60)
    assert [each.code for each in every] == [0] * count, every
    return [each.said for each in every]


SUMS = [28, 92, 156, 220, 284]


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("how", "count", "capacity", "feeds"),
    [
        ("short", 2, 2, 3),
        ("short", 4, 0, 3),
        ("short", 2, 1, 3),
        ("short", 2, 16, 3),
        ("short at once", 2, 2, 0),
        ("batches", 2, 3, 5),
    ],
)
def test_a_stream_that_ends_sooner_on_one_process_is_an_error_on_all(how, count, capacity, feeds):
    for sums, error, message, took in differing(how, count, capacity):
        assert sums == SUMS[:feeds]
        assert error == "ShortEpoch"
        assert f"has {feeds} feeds in epoch 0, and process" in message
        assert "give all the same files" in message
        assert took < 3


@pytest.mark.slow
def test_a_stream_that_fails_on_one_process_stops_all():
    first, second = differing("failing", 2)
    assert first[:3] == [SUMS[:2], "OSError", first[2]]
    assert second[:2] == [SUMS[:2], "ReaderError"]
    assert "process 0 stopped after 2 feeds" in second[2]
    assert "OSError: the disk is gone" in second[2]
    assert second[3] < 3


@pytest.mark.slow
def test_a_process_that_is_not_heard_of_is_an_error_after_the_timeout():
    first, second = ended(DIFFERING, 2, given={"how": "stuck", "capacity": 2}, limit=20)
    sums, error, message, took = second.said
    assert (sums, error) == (SUMS[:2], "TimeoutError")
    assert "process 0 has told of 2 feeds, and of nothing else for 3 s" in message
    assert 3 <= took < 15
    assert first.code in (-6, -9)  # stuck until it is killed, by jax or by the test


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "line"),
    [
        ("another seed", "line 2 is shuffle(buf_size=None, seed="),
        ("another length", "line 1 is arrays(columns={'n': int64[4"),
        ("another stream", "line 2 is shuffle(buf_size=8, seed="),
    ],
)
def test_another_plan_on_one_process_is_told_before_the_first_step(how, line):
    every = ended(DIFFERING, 2, given={"how": how, "capacity": 2}, limit=30)
    told = [each.said for each in every if each.out and each.said[1] == "ReaderError"]
    assert told  # at least the one that begins later
    for sums, _, message, _ in told:
        assert sums == []
        assert line in message
        assert "give all the same data, ops and seeds" in message
