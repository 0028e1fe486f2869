"""Real processes that differ, or come to an end: each ends with an error that says so, in time.

They are started once for all cases; tests/loaders/test_host_messages.py has the rules one by one.
"""

import pytest
from together import processes

ENDS = """
from jreader import Pipeline, ShortEpoch, arrays

mesh = jax.make_mesh((many,), ("data",))
rows = np.arange(22)
total = jax.jit(lambda feed: feed["n"].sum())
def sums(plan, **options):
    again = int(plan is indexed)  # a stream that is cut into epochs goes on: 0 is where it begins
    loader = plan.batch(8).load(sharding=mesh, **options)
    found = []
    try:
        found += [int(total(feed)) for feed in loader]
        found += [int(total(feed)) for feed in loader.epoch(again)]
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
def test_uneven_ends_are_alike_everywhere_under_each_policy():
    (alone,) = processes(ENDS, 1)
    assert processes(ENDS, 4) == [alone] * 4  # the last feed has nothing for one of them
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
import os, tempfile, time
from jax._src import distributed
from tqdm import tqdm
from jreader import Pipeline, arrays

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
    store.wait_at_barrier("given up", 300_000)
    raise OSError("too late")
indexed = Pipeline(arrays(n=np.arange(40)))
def unknown(folder=tempfile.mkdtemp()):
    return indexed.filter(lambda row: row["n"] % 2, keep=folder)
def known():
    unknown().prepare()
    return unknown()
cursors = [feeds.cursor for feeds in [indexed.batch(8).load().epoch(0)] for _ in feeds]
plans = {
    "short": stream(24 if first else 40),
    "short at once": stream(0 if first else 40),
    "batches": stream(40 if first else 41),
    "failing": Pipeline(failing) if first else stream(40),
    "another seed": indexed.shuffle(seed=me),
    "another length": Pipeline(arrays(n=np.arange(40 + me))),
    "another stream": stream(40).shuffle(8, seed=me),
    "another batch size": stream(40),
    "another batch size of arrays": indexed,
    "another end": indexed,
    "other steps left out": indexed,
    "another cursor": indexed,
    "other folders": known() if first else unknown(),
    "a bar on one": stream(40),
    "stuck": Pipeline(stuck) if first else stream(40),
}
store = distributed.global_state.client
total = jax.jit(lambda feed: feed["n"].sum())
found = {}
for how, capacity in given:
    options = {"steps_per_epoch": 4 + me} if how == "another end" else {}
    batches = plans[how].batch(8 + 8 * me if "batch size" in how else 8)
    options |= {"peer_timeout": 10 if how == "stuck" else 300, "drop_last": False}
    loader = batches.load(sharding=mesh, capacity=capacity, **options)
    store.wait_at_barrier(f"{how} {capacity}", 300_000)
    sums, error, began = [], None, time.monotonic()
    try:
        at = cursors[2 + me] if how == "another cursor" else None
        skip = range(1, 3) if how == "other steps left out" and first else None
        feeds = loader.epoch(0, at, skip_steps=skip)
        for feed in tqdm(loader, disable=not first) if how == "a bar on one" else feeds:
            # who has heard of no other one yet goes on, and would wait in a collective
            sums.append(None if "other" in how else int(total(feed)))
            assert loader.state_dict()["step"] >= len(sums)
    except Exception as raised:
        error = raised
    found[f"{how} {capacity}"] = sums, type(error).__name__, str(error), time.monotonic() - began
    if how == "stuck" and not first:
        store.wait_at_barrier("given up", 300_000)
say(found)
"""
SHORT = [("short", 2), ("short", 1), ("short", 16), ("short at once", 2), ("batches", 3)]
SAME = {
    "another seed": "line 2 is shuffle(buf_size=None, seed=",
    "another length": "line 1 is arrays(columns={'n': int64[4",
    "another batch size of arrays": "line 3 is feeds of 1 batches of ",
    "another end": "Remainder(last='pad', steps=",
    "other steps left out": "skip_steps=range(1, 3)",
    "another cursor": "resume from the same cursor",
    "other folders": "samples by index, since its folders are complete",
    "another stream": "line 2 is shuffle(buf_size=8, seed=",
    "another batch size": "line 2 is feeds of 1 batches of ",
}
SUMS = [28, 92, 156, 220, 284]


@pytest.fixture(scope="module")
def said():
    """What two processes said of all cases."""
    hows = [*SHORT, ("failing", 2), *((how, 2) for how in SAME), ("a bar on one", 2), ("stuck", 2)]
    return processes(DIFFERING, 2, given=hows)


def check_short(case, feeds):
    sums, error, message, _ = case
    assert sums == SUMS[:feeds]
    assert error == "ShortEpoch"
    assert f"has {feeds} feeds in epoch 0, and process" in message
    assert "give all of them the same files" in message


@pytest.mark.slow
class TestTwoProcesses:
    @pytest.mark.parametrize(
        ("case", "feeds"), list(zip(SHORT, [3, 3, 3, 0, 5], strict=True)), ids=str
    )
    def test_of_which_one_has_less_both_get_an_error(self, said, case, feeds):
        for one in said:
            check_short(one["{} {}".format(*case)], feeds)

    def test_of_which_one_fails_both_stop(self, said):
        first, second = (one["failing 2"] for one in said)
        assert first[:3] == [SUMS[:2], "OSError", first[2]]
        assert second[:2] == [SUMS[:2], "ReaderError"]
        assert "process 0 stopped after 2 feeds" in second[2]
        assert "OSError: the disk is gone" in second[2]

    def test_of_which_one_is_not_heard_of_give_up_after_the_timeout(self, said):
        sums, error, message, took = said[1]["stuck 2"]
        assert (sums, error) == (SUMS[:2], "TimeoutError")
        assert "process 0 has reported 2 feeds, and nothing else for 10 s" in message
        assert took >= 10  # `processes` ends what takes too long, here and above

    @pytest.mark.parametrize("how", SAME)
    def test_that_begin_with_another_plan_are_told_before_the_first_step(self, said, how):
        told = [one[f"{how} 2"] for one in said]
        refused = [each for each in told if each[1] == "ReaderError"]
        assert refused  # at least the one that begins later
        assert len(refused) == 2 or how not in ("another stream", "another batch size")
        for sums, _, message, _ in refused:
            assert sums == []
            assert SAME[how] in message

    def test_may_show_a_bar_on_one(self, said):
        assert [one["a bar on one 2"][:2] for one in said] == [[SUMS, "NoneType"]] * 2


@pytest.mark.slow
def test_a_stream_that_ends_sooner_on_one_of_four_processes_is_an_error_on_all():
    for said in processes(DIFFERING, 4, given=[("short", 0)]):
        check_short(said["short 0"], 3)


UNEVEN = """
from jax._src import distributed
from jreader import Pipeline, arrays

devices = np.array(jax.devices())[[[0, 2, 3], [1, 4, 5]]]  # process 0 has rows of both halves
mesh = jax.sharding.Mesh(devices, ("data", "model"))
indexed = Pipeline(arrays(n=np.arange(32))).batch(8)
if me == 0:
    looked = next(iter(indexed.load(sharding=mesh)))
loader = indexed.load(sharding=mesh, peer_timeout=300)
rows = [
    sorted({int(shard.data[0]) for shard in feed["n"].addressable_shards})
    for epoch in range(2) for feed in loader
]
store = distributed.global_state.client
store.wait_at_barrier("read", 300_000)
keys = [key.split("/")[1:] for key, _ in store.key_value_dir_get("jreader/")]
keys = [key for key in keys if key[0] != "at"]  # where each listens
line = max(line for line, *_ in keys)
say([rows, sorted(key[2:] for key in keys if key[0] == line)])
"""


@pytest.mark.slow
def test_nobody_waits_for_words_of_what_is_found_by_place():
    starts = [0, 8, 16, 24] * 2
    parts = [[[at, at + 4] for at in starts], [[at] for at in starts], [[at + 4] for at in starts]]
    begun = [[turn, word] for turn in "01" for word in ("begun", "begun lines")]  # of one process
    said = [*begun, *(["over", me] for me in "012")]
    assert processes(UNEVEN, 3, devices=2) == [[part, said] for part in parts]


MAPPED = """
import os
import tempfile
import warnings
from jax.sharding import Mesh
from jreader import DataLoader, Pipeline, arrays, source
from jreader.datasets import Dataset
called = tempfile.NamedTemporaryFile()
def note(row, path=called.name):
    file = os.open(path, os.O_WRONLY | os.O_APPEND)  # a worker may call it
    os.write(file, b".")
    os.close(file)
    return np.int32(row)
def note_and_draw(row, rng):
    return note(row) + rng.integers(9)
class Made(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, row):
        return note(row)
rows = Pipeline(arrays(np.arange(40, dtype=np.int32)))
mesh = Mesh(np.array(jax.devices()), ("data",))
plans = {
    "map": rows.shuffle(seed=0).map(note),
    "map below shuffle": rows.map(note).shuffle(seed=0),
    "map below windows": rows.map(note).shuffle(9, seed=0),
    "threads": rows.map(note, threads=2).shuffle(seed=0),
    "processes": rows.map(note, processes=1).shuffle(seed=0),
    "a generator": rows.map(note_and_draw, rng=True, seed=1).shuffle(seed=0),
    "xmap": rows.shuffle(seed=0).xmap(note, 2, 4, order=True),
    "list": Pipeline(source([*range(40)])).map(note).shuffle(seed=0),
    "data set": Pipeline(source(Made())).shuffle(seed=0),
}
loaders = {name: plan.batch(8).load(sharding=mesh) for name, plan in plans.items()}
for workers in (0, 2):
    loaders[f"loader of a data set, {workers} workers"] = DataLoader(
        Made(), batch_size=8, shuffle=True, seed=0, places=mesh, drop_last=True, num_workers=workers
    )
said = {}
for name, loader in loaders.items():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        os.truncate(called.name, 0)
        for feed in loader.epoch(0):
            jax.block_until_ready(feed)
    said[name] = [os.path.getsize(called.name), [str(each.message)[:80] for each in told]]
say(said)
"""


@pytest.mark.slow
@pytest.mark.parametrize("many", [1, 4])
def test_processes_together_call_a_map_once_for_each_row(many):
    found = processes(MAPPED, many)
    assert len(found[0]) == 11
    for said in found:
        assert said == {name: [40 // many, []] for name in said}
