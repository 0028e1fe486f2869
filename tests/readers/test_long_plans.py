"""Plans of a thousand ops: what goes through a plan may not be as deep as the plan is long."""

from __future__ import annotations

import json
import operator
import sys
from functools import reduce
from itertools import islice

import numpy as np
import pytest

from jreader import DataLoader, Dataset, IterableDataset, Pipeline, arrays, chain, start
from jreader.readers import fingerprint

MANY = 1000


def rows():
    return Pipeline(arrays(np.arange(7)))


def stream():
    return Pipeline(lambda: iter(range(7)))


def mapped(source, times):
    return reduce(lambda plan, _: plan.map(lambda sample: sample + 1), range(times), source)


def chained(source, times, made=lambda: Pipeline(arrays(np.array([70, 71])))):
    return reduce(lambda plan, _: plan.chain(made()), range(times), source)


PLANS = {
    "maps of rows": (lambda: mapped(rows(), MANY), [*range(MANY, MANY + 7)]),
    "maps of a stream": (lambda: mapped(stream(), MANY), [*range(MANY, MANY + 7)]),
    "rows end to end": (lambda: chained(rows(), MANY), [*range(7), *[70, 71] * MANY]),
    "streams end to end": (
        lambda: chained(stream(), MANY, lambda: lambda: iter([70, 71])),
        [*range(7), *[70, 71] * MANY],
    ),
}


@pytest.fixture(params=PLANS, ids=lambda name: name.replace(" ", "-"))
def long(request):
    made, samples = PLANS[request.param]
    return made(), samples


def test_a_thousand_ops_are_read_and_resumed(long):
    plan, samples = long
    assert list(plan) == samples
    for done in (0, 1, len(samples) // 2, len(samples) - 1, len(samples)):
        up = start(plan)
        head = list(islice(up.items, done))
        at = json.loads(json.dumps(up.position()))
        assert head + list(start(plan, at).items) == samples


def test_a_thousand_ops_are_fed_from_a_cursor(long):
    plan, samples = long
    loader = plan.batch(3, drop_last=False).load(sharding="host")
    feeds = iter(loader)
    first = next(feeds)
    cursor = json.loads(json.dumps(loader.state_dict()))
    feeds.close()
    again = plan.batch(3, drop_last=False).load(sharding="host")
    again.load_state_dict(cursor)
    fed = [n for values, mask in [first, *again] for n in values[mask].tolist()]
    assert fed == samples


def test_a_thousand_ops_are_printed_and_measured(long):
    plan, samples = long
    assert repr(plan).startswith("Pipeline(")
    assert len(list(plan.epochs(2))) == 2 * len(samples)
    if "arrays" in repr(plan):
        assert len(plan) == len(samples)
        assert plan[3] == samples[3]
        assert sorted(plan.shuffle(seed=0)) == sorted(samples)


def test_three_hundred_ops_make_a_table():
    assert mapped(rows(), 300)._repr_html_().count("<tr>") == 301


def test_an_error_in_one_of_many_maps_names_it():
    plan = mapped(mapped(stream(), 200).map(lambda sample: 1 // (sample - 203)), 200)
    with pytest.raises(ZeroDivisionError) as error:
        list(plan)
    (note,) = error.value.__notes__
    assert "(203) in map_readers, made at" in note
    assert str(test_an_error_in_one_of_many_maps_names_it.__code__.co_firstlineno + 1) in note


def test_positions_of_nested_chains_that_earlier_versions_wrote_go_on():
    plan = chained(stream(), 99, lambda: lambda: iter([70, 71]))
    nested = [0, 3]  # after three samples of the innermost reader
    for _ in range(98):
        nested = [0, nested]
    assert list(start(plan, nested).items) == list(plan)[3:]
    assert list(start(plan, [1, 1]).items) == [71]
    assert list(start(plan, [0, [1, 1]]).items) == [71, 70, 71]
    assert not list(start(plan, [2, None]).items)


@pytest.mark.parametrize("made", [lambda n: chained(rows(), n), lambda n: mapped(rows(), n)])
def test_the_work_of_a_fingerprint_grows_as_the_plan_does(made):
    def calls(plan):
        count = 0

        def counted(_frame, event, _arg):
            nonlocal count
            count += event == "call"

        sys.setprofile(counted)
        try:
            fingerprint(plan)
        finally:
            sys.setprofile(None)
        return count

    assert calls(made(160)) < 3 * calls(made(80))


class Three(Dataset):
    def __getitem__(self, index):
        return np.int64(index)

    def __len__(self):
        return 3


class Stream(IterableDataset):
    def __iter__(self):
        yield from map(np.int64, range(3))


@pytest.mark.parametrize("kind", [Three, Stream])
def test_three_hundred_data_sets_are_added(kind):
    added = reduce(operator.add, [kind() for _ in range(300)])
    fed = [feed.tolist() for feed in DataLoader(added, batch_size=3, return_list=False)]
    assert fed == [[0, 1, 2]] * 300


def test_few_chains_keep_the_positions_that_they_had():
    plan = chain(chain(lambda: "ab", lambda: "cd"), lambda: "ef")
    up = start(plan)
    list(islice(up.items, 3))
    assert up.position() == (0, (1, 1))
