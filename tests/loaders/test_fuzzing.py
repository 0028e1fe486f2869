"""Cursors that somebody, or a disk, has changed: all are refused, and nothing else happens."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from widths import examples

from jreader import DataLoader, NotResumable, Pipeline, arrays, chain, compose

COUNT = 40


def numbers():
    return iter(range(COUNT))


def rows(count=COUNT):
    return Pipeline(arrays(n=np.arange(count)))


LOADERS = {
    "indexed": lambda: rows().shuffle(seed=1).batch(4).load(),
    "unseeded": lambda: rows().shuffle(9).map(dict).shuffle(5).batch(4).load(),
    "endless": lambda: rows().shuffle(seed=1).epochs().batch(4).load(),
    "a stream": lambda: Pipeline(numbers).shuffle(9, seed=1).batch(4).load(),
    "joined": lambda: (
        Pipeline(chain(numbers, compose(numbers, numbers))).shuffle(5, 1).epochs(3).batch(4).load()
    ),
    "cached": lambda: Pipeline(numbers).shuffle(5).cache().skip(1).shard(2, 0).batch(4).load(),
    "wrapped": lambda: rows(42).batch(4).load(last="wrap"),
    "a data set": lambda: DataLoader(list(range(COUNT)), 4, shuffle=True, seed=1),
    "resident": lambda: rows().shuffle(seed=1).batch(4).load(resident=True),
}


@cache
def loaded(name):
    """A loader, and cursors of it: before the first feed, inside two epochs, and between them."""
    loader = LOADERS[name]()
    feeds, texts = loader.steps(), []
    for step in range(13):
        if step in (0, 1, 3, 9, 10, 12):
            texts.append(json.dumps(feeds.cursor))
        next(feeds)
    feeds.close()
    return loader, texts


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 60)
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "0", "epoch", "0123456789abcdef:8"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


def places(tree, path=()):
    """Where something can be changed: every part of a tree."""
    if path:
        yield path
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield from places(tree[key], (*path, key))


def edited(data, cursor, others):
    """The cursor after an edit: a part replaced, moved on, left out, doubled, or of another."""
    (*path, last) = data.draw(st.sampled_from(list(places(cursor))))
    inside, other = cursor, others
    for key in path:
        inside = inside[key]
        other = other[key] if isinstance(other, (dict, list)) and _has(other, key) else None
    how = data.draw(st.sampled_from(["value", "moved", "gone", "twice", "of another"]))
    if how == "moved" and type(inside[last]) is int:
        inside[last] += data.draw(st.sampled_from([-4, -1, 1, 4, 32, 2**32, 2**64]))
    elif how == "gone" and (path or last != "check"):
        del inside[last]
    elif how == "twice" and isinstance(inside, list):
        inside.insert(last, inside[last])
    elif how == "of another" and isinstance(other, (dict, list)) and _has(other, last):
        inside[last] = other[last]
    else:
        inside[last] = data.draw(values)
    return cursor


def _has(tree, key):
    return key in tree if isinstance(tree, dict) else isinstance(key, int) and key < len(tree)


@given(st.data())
@examples(1000)
def test_a_cursor_that_was_changed_is_refused_at_every_door(data):
    loader, texts = loaded(data.draw(st.sampled_from(list(LOADERS))))
    text, another = (data.draw(st.sampled_from(texts)) for _ in range(2))
    cursor = json.loads(text)
    for _ in range(data.draw(st.integers(1, 3))):
        cursor = edited(data, cursor, json.loads(another))
    if json.dumps(cursor, sort_keys=True) in [
        json.dumps(json.loads(each), sort_keys=True) for each in texts
    ]:
        return
    for door in (
        loader.load_state_dict,
        lambda at: loader.epoch(0, at),
        lambda at: loader.steps(9, at),
    ):
        try:
            door(cursor)
        except (ValueError, NotResumable):
            continue
        raise AssertionError(f"{cursor} was accepted")


def test_the_cursors_that_were_not_changed_are_accepted():
    for name in LOADERS:
        loader, texts = loaded(name)
        for text in texts:
            next(loader.steps(at=json.loads(text)))
