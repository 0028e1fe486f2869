"""Columns that are read in blocks: each is decoded once, ahead, few at a time."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import PATIENCE
from seen import canonical, see
from widths import examples

from jreader import DamagedData, batch, chain
from jreader.readers import indexed, length, op, start
from jreader.sources.blocks.block_columns import BlockColumns
from jreader.sources.columns import Table


@dataclass(eq=False)
class Blocks:
    """Blocks of rows in memory, that write down which were decoded."""

    sizes: list[int]
    fails: frozenset[int] = frozenset()
    decoded: list[int] = field(default_factory=list)

    @property
    def starts(self):
        return np.cumsum([0, *self.sizes])[:-1]

    def __call__(self, block):
        self.decoded.append(block)
        if block in self.fails:
            raise OSError(f"block {block} cannot be read")
        rows = np.arange(self.sizes[block]) + self.starts[block]
        return {"n": rows, "pair": np.stack([rows, -rows], 1).astype(np.float32)}

    def column(self, **more):
        return BlockColumns(self.starts, sum(self.sizes), self, **more)


@op
class in_blocks(Table):
    columns: object


uneven = st.lists(st.integers(0, 6), min_size=1, max_size=9)


@given(uneven, st.integers(1, 5))
def test_the_rows_of_blocks_are_those_of_the_arrays_that_they_hold(sizes, size):
    blocks = Blocks(sizes)
    plan = in_blocks(blocks.column())
    rows = np.arange(sum(sizes))
    assert length(plan) == len(rows)
    assert [int(sample["n"]) for sample in plan()] == rows.tolist()
    found = [canonical(part.columns) for part in batch(plan, size)()]
    assert [each["n"] for each in found] == [
        canonical(rows[low : low + size]) for low in range(0, len(rows), size)
    ]


@given(uneven)
def test_a_pass_in_order_decodes_each_block_once(sizes):
    for read in (lambda plan: list(plan()), lambda plan: list(batch(plan, 3)())):
        blocks = Blocks(sizes)
        read(in_blocks(blocks.column()))
        assert sorted(blocks.decoded) == [block for block, rows in enumerate(sizes) if rows]


@given(uneven, st.lists(st.integers(0, 53), max_size=20))
def test_any_rows_in_any_order_are_found(sizes, wanted):
    rows = np.array([row for row in wanted if row < sum(sizes)], int)
    plane = indexed(in_blocks(Blocks(sizes).column(open_blocks=2)))
    assert [int(sample["n"]) for sample in plane.take(rows)] == rows.tolist()
    assert [int(sample["n"]) for sample in plane.each(rows)] == rows.tolist()


@examples(150)  # each begins up to 55 passes, and a thread for each
@given(uneven)
def test_a_position_is_a_place(sizes):
    plan = in_blocks(Blocks(sizes).column())
    whole = see(plan)
    for place, position in enumerate(whole.positions):
        assert see(plan, position).samples == whole.samples[place:]


def test_an_error_comes_with_the_first_sample_of_its_block():
    plan = in_blocks(Blocks([3, 2, 4], frozenset({1})).column())
    here = start(plan)
    assert [int(next(here.items)["n"]) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="block 1 cannot be read"):
        next(here.items)
    batches = batch(plan, 3)()
    assert next(batches).columns["n"].tolist() == [0, 1, 2]
    with pytest.raises(OSError, match="block 1 cannot be read"):
        next(batches)


def test_a_block_with_other_rows_than_announced_is_said():
    column = BlockColumns([0, 3], 5, lambda block: np.arange(3), name="a.parquet")
    with pytest.raises(DamagedData, match=r"block 1 of a\.parquet has 3 rows, .* announced with 2"):
        list(in_blocks(column)())


def test_blocks_that_come_next_are_decoded_while_the_first_is_read():
    others = threading.Event()

    def decode(block):
        if block == 2:
            others.set()
        return np.arange(4) + 4 * block

    before = {*threading.enumerate()}
    here = start(in_blocks(BlockColumns([0, 4, 8, 12], 16, decode)))
    next(here.items)
    assert others.wait(PATIENCE)
    here.close()
    for thread in {*threading.enumerate()} - before:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_blocks_of_strings_and_ragged_rows_are_lists_of_samples():
    plan = in_blocks(BlockColumns([0, 2], 4, lambda block: {"text": [f"a{block}", f"b{block}"]}))
    (samples,) = batch(plan, 4)()
    assert [sample["text"] for sample in samples] == ["a0", "b0", "a1", "b1"]


def test_chains_of_blocks_are_blocks():
    plan = chain(in_blocks(Blocks([2, 3]).column()), in_blocks(Blocks([0, 4]).column()))
    assert [int(sample["n"]) for sample in plan()] == [0, 1, 2, 3, 4, 0, 1, 2, 3]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_a_fork_ends_and_is_told_to_begin_a_pass_of_its_own(python):
    script = """
        import os, sys, warnings
        warnings.simplefilter("ignore")  # of os.fork where there are threads
        from block_sources import Blocks
        from jreader import ReaderError, batch, shuffle

        plan = batch(shuffle(Blocks([10] * 20).reader(), blocks=2, seed=0), 5)
        batches = iter(plan())
        next(batches)
        child = os.fork()
        if not child:
            try:
                list(batches)
            except ReaderError as error:
                print("was forked from it" in str(error), flush=True)
            print(len(list(plan())), flush=True)
            sys.exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(list(batches)))
    """
    assert python(script).stdout.split() == ["True", "40", "7", "39"]


def test_a_fork_ends_though_a_thread_that_stays_behind_holds_the_lock(python):
    script = """
        import os, sys, threading, warnings
        import numpy as np
        warnings.simplefilter("ignore")  # of os.fork where there are threads
        from jreader import ReaderError
        from jreader.sources.blocks import BlockColumns

        inside, done = threading.Event(), threading.Event()

        class Decode:
            def __call__(self, block):
                return np.arange(10) + 10 * block

            def announce(self, blocks, *, first):  # with the lock
                inside.set()
                done.wait()

        reading = BlockColumns([0, 10], 20, Decode()).reading()
        threading.Thread(target=reading.prefetch, args=[np.arange(20)]).start()
        inside.wait()
        child = os.fork()
        if not child:
            for use in (reading.prefetch, reading.gather):
                try:
                    use(np.arange(2))
                except ReaderError as error:
                    print("was forked from it" in str(error), flush=True)
            reading.close()
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        done.set()
    """
    assert python(script).stdout.split() == ["True", "True", "7"]
