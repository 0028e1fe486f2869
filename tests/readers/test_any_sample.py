"""Any object is a sample: None, an empty text, an array, an error; none of them ends a pass."""

from __future__ import annotations

import numpy as np
import pytest
from samples import kept_in_order
from seen import canonical

import jreader
from jreader import (
    batch,
    buffered,
    cache,
    chain,
    compose,
    epochs,
    filter,  # noqa: A004  # the field's word
    firstn,
    flat_map,
    map_readers,
    multiprocess_reader,
    shard,
    shuffle,
    skip,
    xmap_readers,
)

SAMPLES = [
    None,
    "",
    0,
    b"",
    [],
    np.arange(3),
    np.arange(1),
    np.zeros((0, 2)),
    np.float32(1.5),
    KeyError("sample"),
    StopIteration(1),
    {"row": np.ones(2), "id": None},
    (None, "", np.arange(2)),
    StopIteration,
    ...,
]

THROUGH = {
    "map_readers": lambda reader: map_readers(lambda sample: sample, reader),
    "cache": lambda reader: cache(cache(reader)),
    "buffered": lambda reader: buffered(reader, 3),
    "compose": lambda reader: map_readers(
        lambda row: row[0], compose(map_readers(lambda sample: (sample,), reader))
    ),
    "chain": chain,
    "shuffle": kept_in_order,
    "firstn": lambda reader: firstn(reader, 99),
    "skip": lambda reader: skip(reader, 0),
    "shard": lambda reader: shard(reader, 1, 0),
    "filter": lambda reader: filter(lambda _: True, reader),
    "flat_map": lambda reader: flat_map(lambda sample: [sample], reader),
    "epochs": lambda reader: epochs(reader, 1),
    "xmap": lambda reader: xmap_readers(lambda sample: sample, reader, 3, 3, order=True),
    "xmap_unordered": lambda reader: xmap_readers(lambda sample: sample, reader, 1, 3),
    "multiprocess": lambda reader: multiprocess_reader([reader]),
    "multiprocess_unordered": lambda reader: multiprocess_reader([reader], use_pipe=False),
    "batch": lambda reader: flat_map(list, batch(reader, 4)),
    "Pipeline": jreader.Pipeline,
}


@pytest.mark.parametrize("verb", THROUGH)
def test_no_sample_is_taken_for_anything_but_a_sample(verb):
    found = list(THROUGH[verb](lambda: SAMPLES)())
    assert canonical(found) == canonical(SAMPLES)


def test_shuffled_samples_are_only_moved():
    found = list(shuffle(lambda: iter(SAMPLES), 99, seed=1)())
    assert sorted(map(id, found)) == sorted(map(id, SAMPLES))


def test_a_mapper_may_give_none():
    for order in (True, False):
        assert list(xmap_readers(lambda _: None, range(10).__iter__, 2, 2, order)()) == [None] * 10
    assert list(map_readers(lambda _: None, range(10).__iter__)()) == [None] * 10


def test_a_class_is_a_reader_whose_length_only_its_instances_know():
    assert list(batch(list, 2)()) == []
    assert jreader.readers.length(list) is None
    with pytest.raises(ValueError, match="needs a buf_size"):
        shuffle(list)
    assert "length unknown" in batch(list, 2)._repr_html_()


def test_a_stop_iteration_of_a_length_loses_no_sample():
    class Three:
        def __len__(self):
            raise StopIteration

        def __call__(self):
            return iter([1, 2, 3])

    assert jreader.readers.length(Three()) is None
    assert list(chain(Three(), batch(Three(), 2))()) == [1, 2, 3, [1, 2], [3]]


def test_a_stop_iteration_of_what_maps_a_pass_is_an_error_not_the_end():
    def stopping(sample):
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(jreader.start(lambda: [1, 2]).mapped(stopping).items)


def test_an_op_with_a_start_of_its_own_may_wrap_the_call_of_its_base():
    def counted(call):  # a decorator that does not keep the name
        def inner(self):
            calls.append(1)
            return call(self)

        return inner

    class Twice(jreader.map_readers):
        def start(self, at):
            return jreader.start(self.input_readers[0], at).mapped(lambda sample: 2 * sample)

        @counted
        def __call__(self):
            return super().__call__()

    calls = []
    assert list(Twice(abs, lambda: [1, 2])()) == [2, 4]
    assert calls == [1]
