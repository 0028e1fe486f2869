"""What tells plans apart: a hash, the same in every process, of any parts, in milliseconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from changed_programs import Scaled
from hypothesis import given
from hypothesis import strategies as st

import jreader
from jreader import (
    Pipeline,
    arrays,
)
from jreader.readers import fingerprint
from jreader.readers.hashing import identity
from jreader.readers.ragged import Ragged


def of_this_thread(fn, *args):
    """The seconds of the processor that a call takes, at best."""

    def seconds():
        began = time.thread_time()
        fn(*args)
        return time.thread_time() - began

    return min(seconds() for _ in range(5))


def test_hashes_cost_milliseconds():
    images, labels = np.zeros((60_000, 28, 28), np.uint8), np.zeros(60_000, np.int64)
    plan = Pipeline(arrays(image=images, label=labels)).shuffle(seed=1).map(Scaled(images))
    plan = plan.filter(lambda row: row["label"] >= 0 and Scaled(2)).batch(64).map_batches(dict)

    # 2 ms where nobody else runs, against 60
    assert of_this_thread(fingerprint, plan) < of_this_thread(sha256, images) / 4


def test_hashes_do_not_depend_on_equal_dtypes_that_were_hashed_before():
    packed, aligned = (np.zeros(3, np.dtype([("a", "i4")], align=each)) for each in (False, True))
    assert packed.dtype == aligned.dtype
    assert str(packed.dtype) != str(aligned.dtype)
    assert identity(packed) != identity(aligned)


@pytest.mark.parametrize("make", [bytes, bytearray, lambda size: "x" * size])
def test_long_texts_cost_milliseconds_too_and_their_ends_count(make):
    long = make(1 << 24)

    # 0.1 ms where nobody else runs; 75 to 750 to write it out
    assert of_this_thread(identity, long) < of_this_thread(sha256, bytes(1 << 24)) / 4
    assert identity(long) == identity(make(1 << 24)) != identity(make((1 << 24) + 1))
    assert identity(long) != identity(long[:-1] + ("y" if make not in (bytes, bytearray) else b"y"))


lengths = st.lists(st.sampled_from([0, 1, 2, 255, 256, 65_535, 65_536]), max_size=6)


def documents(lengths, dtype=np.int64, first=0):
    offsets = (first + np.cumsum([0, *lengths])).astype(dtype)
    return Ragged(np.broadcast_to(np.uint16(0), int(offsets[-1])), offsets)


@given(lengths, lengths)
def test_columns_have_one_digest_if_their_rows_have_one_length_each(one, other):
    assert (documents(one).digest == documents(other).digest) == (one == other)
    assert documents(one).digest == documents(one, np.int32, first=3).digest


@pytest.mark.parametrize("row", [0, (1 << 20) - 1, 1 << 20, (1 << 20) + 2])
def test_the_length_of_every_row_is_part_of_a_digest(row):
    same = np.full((1 << 20) + 4, 2)
    moved = same.copy()
    moved[row], moved[row + 1] = 3, 1
    assert documents(moved).digest != documents(same).digest


def test_what_refers_to_itself_or_has_no_end_is_hashed():
    loop = [1]
    loop.append(loop)
    held = Scaled(None)
    held.by = held
    deep = []
    for _ in range(10_000):
        deep = [deep]
    for value in (loop, held, deep, {n: [n] * 9 for n in range(10**5)}, globals()):
        assert identity(value) == identity(value)


def test_objects_in_sets_of_one_another_are_hashed_in_any_order():
    class City:
        def __init__(self, name):
            self.name, self.near = name, set()

    def cities(names, homes):
        made = {name: City(name) for name in names}
        for one in names:
            made[one].near.update(made[other] for other in names if other != one)
        made["a"].homes = [{City(home), City("x")} for home in homes]
        return made["a"]

    assert identity(cities("abcdef", range(300))) == identity(cities("fedcba", range(300)))
    assert identity(cities("abc", "d")) != identity(cities("abc", "e"))


def test_long_chains_have_one_hash_wherever_it_is_asked_for():
    long = None
    for number in range(400):
        long = [number, long]

    def asked(depth):
        return asked(depth - 1) if depth else identity(long)

    assert asked(0) == asked(7) == asked(50)


def test_of_a_mapping_that_lies_in_files_only_what_is_looked_at_is_read():
    class Stored(Mapping):
        read = 0

        def __len__(self):
            return 5000

        def __iter__(self):
            return iter(range(5000))

        def __getitem__(self, key):
            Stored.read += 1
            return key

    assert identity(Stored()) == identity(Stored())
    assert Stored.read < 1000


def test_what_is_made_for_one_process_is_no_part_of_a_hash():
    for make in (object, threading.Lock, lambda: iter([]), Path(__file__).open):
        one, other = make(), make()
        assert identity(one) == identity(other)
        for each in (one, other):
            getattr(each, "close", int)()


def test_names_of_jreader_that_were_used_are_no_part_of_a_hash():
    def read():
        return jreader.firstn(list, 3)

    vars(jreader).pop("firstn", None)  # as where nobody has used it
    before = identity(read)
    assert jreader.firstn
    assert identity(read) == before
