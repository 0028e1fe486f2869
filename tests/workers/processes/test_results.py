"""What a worker makes is what arrives, through memory that is used again, or without it."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory import mapping, same
from programs import Watch
from widths import examples

from jreader._worker.shared_memory import anonymous_memory
from jreader.workers import Processes


def blocks(workers):
    """How many blocks of shared memory each worker has."""
    return [len(worker.memory.blocks) for worker in workers._pool.workers]


trees = st.recursive(
    st.one_of(
        st.none(),
        st.integers(),
        st.text(),
        st.binary(max_size=10),
        st.builds(
            lambda kind, size: np.arange(size).astype(kind),
            st.sampled_from(["u1", "i8", "f4", "c16", "?", "M8[s]"]),
            st.sampled_from([0, 1, 8191, 8192, 20000, 66000]),
        ),
    ),
    lambda parts: st.one_of(
        st.lists(parts, max_size=3),
        st.tuples(parts, parts),
        st.dictionaries(st.text(max_size=3), parts, max_size=3),
    ),
    max_leaves=6,
)


class TestResults:
    @given(trees)
    @examples(60)
    def test_any_tree_comes_back_as_it_is(self, tree):
        with Processes(2) as workers:
            assert same(workers.submit(lambda: tree).result(), tree)

    def test_large_arrays_are_aligned_writeable_and_lie_in_shared_memory(self, two):
        made = two.submit(lambda: (np.full((300, 1000), 3, "f4"), np.ones(70000, "u1"))).result()
        assert [array.ctypes.data % 64 for array in made] == [0, 0]
        assert [array.flags.writeable for array in made] == [True, True]
        assert all("memfd:jreader" in mapping(array) for array in made)

    def test_kinds_of_arrays_that_numpy_packs_by_itself_come_back_too(self, two):
        column = np.zeros((3000, 200), order="F")
        records = np.zeros(30000, [("x", "f8"), ("y", "i4", 3)])
        objects = np.array([None, "a", {}], object)
        strided = np.arange(10**6)[::7]
        masked = np.ma.masked_array(np.arange(10**5), np.arange(10**5) % 2)
        made = two.submit(
            lambda: (column, records, objects, strided, masked, np.float32(3))
        ).result()
        assert made[0].flags.f_contiguous
        for one, other in zip(made[:4], (column, records, objects, strided), strict=True):
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)
        assert (made[4].sum(), made[5]) == (masked.sum(), np.float32(3))

    def test_a_block_is_used_again_once_its_arrays_are_gone(self):
        with Processes(1) as one:
            for n in range(200):
                made = one.submit(lambda n=n: np.full(10**5, n)).result()
                assert (made[0], made[-1]) == (n, n)
                part = made[5:50_000:3]
                del made
                assert part[-1] == n
            assert blocks(one)[0] <= 3

    def test_what_is_kept_does_not_change_while_others_pass(self):
        """More of them than there may be blocks, dropped at random."""
        rng = np.random.default_rng(0)
        kept = {}
        with Processes(2) as workers:
            for n in range(600):
                size = int(rng.integers(8_000, 40_000))
                kept[n] = workers.submit(lambda n=n, size=size: np.full(size, n)).result()
                if rng.random() < 0.5:
                    del kept[int(rng.choice(list(kept)))]
            assert len(kept) > 200
            assert all((array == n).all() for n, array in kept.items())
            assert max(blocks(workers)) <= 64
            kept.clear()
            for _ in range(200):
                workers.submit(np.zeros, 30_000).result()
            assert max(blocks(workers)) <= 5

    def test_one_of_several_arrays_keeps_the_block_of_all(self):
        with Processes(1) as one:
            kept = [one.submit(lambda n=n: [np.full(10**4, n)] * 2).result()[0] for n in range(5)]
            pairs = [
                one.submit(lambda n=n: (np.full(10**4, n), np.full(10**4, -n))) for n in range(5)
            ]
            kept += [pair.result()[n % 2] for n, pair in enumerate(pairs)]
            for _ in range(20):
                one.submit(np.ones, 10**5).result()
        assert [int(array[-1]) for array in kept] == [0, 1, 2, 3, 4, 0, -1, 2, -3, 4]

    def test_arrays_outlive_the_workers(self):
        with Processes(1) as one:
            kept = one.submit(np.full, 10**6, 7).result()
            worker = one._pool.workers[0]
            watch = Watch(worker.process.pid)
        assert watch.all_gone()
        del worker, one
        assert kept.sum() == 7 * 10**6

    def test_a_result_that_cannot_be_sent_says_what_to_do(self, two):
        with pytest.raises(TypeError, match=r"the result .* cannot be sent from a worker process"):
            two.submit(threading.Lock).result()

    def test_a_result_that_cannot_be_read_here_is_an_error(self, two):
        def made():
            import types  # noqa: PLC0415  # of the worker

            module = sys.modules["nowhere"] = types.ModuleType("nowhere")
            exec("class Kind: pass", module.__dict__)
            return module.Kind()

        with pytest.raises(ModuleNotFoundError, match="nowhere") as raised:
            two.submit(made).result()
        assert "result of a worker process was read" in raised.value.__notes__[-1]
        assert two.submit(pow, 2, 3).result() == 8

    def test_large_arguments_and_results_that_are_no_arrays_pass_at_once(self, two):
        """Neither side may wait for the other to read."""
        data = bytes(5_000_000)
        futures = [two.submit(lambda data: data + b"!", data) for _ in range(12)]
        assert all(len(future.result()) == 5_000_001 for future in futures)


class TestWithoutSharedMemory:
    """Whatever a system refuses, results are the same, if slower."""

    def test_all_pages_are_there_when_it_is_made(self):
        """To run out of them later would be a SIGBUS."""
        descriptor = anonymous_memory(1 << 20)
        try:
            told = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        assert (told.st_size, told.st_blocks * 512) == (1 << 20, 1 << 20)

    def check(self, begin):
        with Processes(1, begin) as one:
            for n in (3, 4):
                image, label = one.submit(lambda n=n: (np.full((300, 1000), n), n)).result()
                assert (image.shape, image.min(), image.max(), label) == ((300, 1000), n, n, n)
            return blocks(one)

    def test_where_there_is_no_memory(self):
        def begin(number):
            import resource  # noqa: PLC0415  # of the worker

            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))

        assert self.check(begin) == [0]

    def test_where_no_descriptor_is_left(self):
        def begin(number):
            import resource  # noqa: PLC0415  # of the worker

            resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))

        assert self.check(begin) == [0]

    def test_where_there_is_no_memfd_a_name_is_unlinked_at_once(self):
        def begin(number):
            del os.memfd_create

        assert self.check(begin) == [2]  # one is here while the next one is made
        assert not list(Path("/dev/shm").glob("jreader*"))

    def test_a_function_too(self, monkeypatch, two):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.memfd_create", full)
        table = np.arange(10**6)
        assert two.submit(table.sum).result() == table.sum()


def test_a_pickled_array_is_not_copied_twice(two):
    """What pickle itself does with protocol 5 is the specification."""
    array = np.arange(10**5)
    taken = []
    data = pickle.dumps(array, protocol=5, buffer_callback=taken.append)
    assert same(pickle.loads(data, buffers=taken), two.submit(lambda: array).result())
