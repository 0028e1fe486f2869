"""Whatever the plan, wherever it stops, whatever is changed for the rest: the sequence is one."""

import json
import re
import warnings
from itertools import islice

import jax
import numpy as np
import pytest
from graphs import number, recipes
from hypothesis import given, settings
from hypothesis import strategies as st
from widths import examples

from jreader import (
    ComposeNotAligned,
    FeedMismatch,
    Pipeline,
    Processes,
    ReaderError,
    ShortEpoch,
    epochs,
    firstn,
    map_samples,
)
from jreader.batches import batching

# random filters and windows of few samples do so, and it is told
pytestmark = [
    pytest.mark.filterwarnings("ignore::jreader.LintWarning"),  # of random plans
    pytest.mark.filterwarnings("ignore:.* left none of the samples"),
    pytest.mark.filterwarnings("ignore:windows.* leaves out"),
]

OF_THEMSELVES = (
    "has no samples, and its turn came in mix|has nothing to pack"
    # of windows over samples of any kind
    "|is ragged: sample 0 has|which no array can hold|need one structure|is None: does the function"
)
MOST = 24
WORKERS = Processes(2)  # begun by the first plan whose batches are found by number
DEVICES = jax.devices()

layouts = st.fixed_dictionaries(
    {
        "size": st.integers(1, 3),
        "capacity": st.sampled_from([0, 1, 5]),
        "workers": st.sampled_from([0, 0, 1, 3]),
        "devices": st.sampled_from([0, 0, 0, 1, 2, 4]),
        "pmap": st.booleans(),
        "buffered": st.booleans(),
        "elsewhere": st.booleans(),
        "chunk": st.sampled_from([None, None, 2]),
    }
)


def code(sample):
    return number(sample) >> 1


def loader(recipe, layout):
    """A loader of at most so many samples, as numbers."""
    several = epochs(recipe.build(), 4)  # plans are short
    plan = Pipeline(map_samples(code, firstn(several, MOST), threads=layout["workers"]))
    plan = plan.prefetch(3) if layout["buffered"] else plan
    devices = layout["devices"]
    where = {"sharding": None if devices else "host"}
    where["workers"] = WORKERS if layout["elsewhere"] and batching(plan.batch(1)).indexed else None
    if devices and layout["pmap"]:
        where |= {"sharding": None, "pmap": DEVICES[:devices]}
    elif devices:
        where["sharding"] = jax.sharding.Mesh(np.array(DEVICES[:devices]), ("data",))
    size = layout["size"] * max(devices, 1)
    made = plan.batch(size).load(capacity=layout["capacity"], drop_last=False, **where)
    return made.chunk(layout["chunk"]) if layout["chunk"] else made


def samples(feed, layout):
    """The samples of a feed, without padding, in their order."""
    column, mask = map(np.asarray, feed)
    if layout["chunk"] and column.ndim == 3:
        column, mask = column.swapaxes(0, 1), mask.swapaxes(0, 1)
    return column[mask].tolist()


def seen(recipe, layout, at=None, most=MOST):
    """The samples that are left, and the cursor after each feed with how many were given."""
    found, cursors, made = [], [], loader(recipe, layout)
    with made.epoch(1, at=at) as feeds:
        cursors.append((0, json.loads(json.dumps(feeds.cursor))))
        for feed in islice(feeds, most):
            found += samples(feed, layout)
            cursors.append((len(found), json.loads(json.dumps(feeds.cursor))))
    return found, cursors


def whole(recipe, layout):
    """Those of a plan that does not fail of itself; None for one that does."""
    try:
        return seen(recipe, layout)
    except (ComposeNotAligned, ShortEpoch):
        return None
    except (ReaderError, FeedMismatch) as error:
        if re.search(OF_THEMSELVES, str(error)):
            return None
        raise


def rests(recipe, layout, other, last):
    """Stops at every position, goes on in another layout, stops, and goes on in a third."""
    first = whole(recipe, layout)
    if first is None:
        return 0
    expected, cursors = first
    for done, cursor in cursors:
        rest, again = seen(recipe, other, cursor)
        assert rest == expected[done:]
        more, stopped = again[len(again) // 2]
        assert stopped["samples"] == done + more
        assert seen(recipe, last, stopped)[0] == expected[done + more :]
    return len(expected)


@examples(80)  # each begins up to 50 passes
@given(recipes(), layouts, layouts, layouts)
@pytest.mark.filterwarnings("ignore:epoch . is empty")
def test_the_rest_follows_in_any_layout(recipe, layout, other, last):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*epoch.* is empty|the feeds of this", UserWarning)
        rests(recipe, layout, other, last)


@pytest.mark.slow
def test_the_plans_of_this_law_give_samples():
    counts = []

    @settings(max_examples=300, database=None)
    @given(recipes(), layouts)
    def collect(recipe, layout):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*epoch.* is empty|the feeds of this", UserWarning)
            found = whole(recipe, layout)
        counts.append(len(found[0]) if found else 0)

    collect()
    assert sum(count > 5 for count in counts) > 60, counts
