"""Batches that are made in the memory they are sent from."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from memory import mapping, same

from jreader.workers import Processes, map_and_stack


class TestInPlace:
    """`map_and_stack` gives what stacking the samples would."""

    @pytest.mark.parametrize("where", ["here", "in a worker"])
    def test_alike_samples_are_stacked(self, two, where):
        def made(n):
            return {"image": np.full((64, 64, 3), n, "u1"), "more": (n, np.full(2, n, "f4"))}

        def run():
            return map_and_stack(made, range(10))

        tree, samples = run() if where == "here" else two.submit(run).result()
        assert samples is None
        assert same(
            tree,
            {
                "image": np.stack([made(n)["image"] for n in range(10)]),
                "more": (np.arange(10), np.stack([np.full(2, n, "f4") for n in range(10)])),
            },
        )

    @pytest.mark.parametrize(
        "odd",
        [
            None,
            (np.zeros(5000), "text"),
            (np.zeros(5001), 0),
            (np.zeros(5000, "f4"), 0),
            [np.zeros(5000), 0],
            (np.zeros(5000), 0, 0),
            ("text", 0),
            (np.zeros(5000), np.zeros(3)),
        ],
    )
    @pytest.mark.parametrize("place", [0, 1, 3])
    def test_samples_that_are_not_alike_are_given_as_they_are(self, two, odd, place):
        samples = [(np.full(5000, float(n)), n) for n in range(4)]
        samples[place] = odd

        def run():
            return map_and_stack(samples.__getitem__, range(4))

        for tree, given_back in (run(), two.submit(run).result()):
            assert tree is None
            assert same(given_back, samples)

    def test_the_place_is_where_it_is_sent_from(self):
        """So the worker holds the batch once."""

        def run():
            return map_and_stack(lambda n: np.full(10**5, n), range(8))[0]

        def addresses():
            from jreader._worker import stacking  # noqa: PLC0415  # of the worker

            return [block.used for block in stacking.blocks.blocks.values()]

        with Processes(1, lambda number: None) as one:  # not one that others used
            kept = one.submit(run).result()
            assert one.submit(addresses).result() == [kept.nbytes]
            assert [row[-1] for row in kept] == [*range(8)]

    def test_what_is_kept_does_not_change_while_others_pass(self):
        """Neither here nor in the worker, where it was sent from."""

        def run(n):
            made = map_and_stack(lambda row: np.full(10**5, 10 * n + row), range(4))[0]
            sys.modules.setdefault("kept by a test", {})[n] = made
            return made

        def intact():
            kept = sys.modules["kept by a test"]
            return [(made[:, -1] == 10 * n + np.arange(4)).all() for n, made in kept.items()]

        with Processes(1, lambda number: None) as one:  # not one that others used
            kept = {}
            for n in range(20):
                made = one.submit(run, n).result()
                if n % 3 == 0:
                    kept[n] = made
                del made
            assert one.submit(intact).result() == [True] * 20
        assert all((made[:, 0] == 10 * n + np.arange(4)).all() for n, made in kept.items())

    def test_what_is_kept_here_does_not_change(self):
        def run(n):
            return map_and_stack(lambda row: np.full(10**5, 10 * n + row), range(4))[0]

        with Processes(1, lambda number: None) as one:  # not one that others used
            kept = [one.submit(run, n).result() for n in range(20)]
        for n, made in enumerate(kept):
            assert (made[:, 0] == 10 * n + np.arange(4)).all()

    def test_a_place_that_was_not_sent_is_used_again(self):
        def run(n):
            made = map_and_stack(lambda n: np.full(10**5, n), range(4))[0]
            if n % 2:
                raise ValueError(n)
            return int(made.sum())

        with Processes(1, lambda number: None) as one:  # not one that others used
            for n in range(100):
                future = one.submit(run, n)
                assert (future.exception() is None) == (n % 2 == 0)
            assert one.submit(lambda: len([*Path("/proc/self/fd").iterdir()])).result() < 20


def test_a_small_result_does_not_hold_the_memory_of_a_large_one():
    def made(size):
        return np.zeros(size, np.uint8)

    with Processes(1) as one:
        large = one.submit(made, 64 << 20).result()
        del large
        kept = [one.submit(made, 1 << 16).result() for _ in range(4)]
        sizes = [_mapped_bytes(array) for array in kept]
    assert max(sizes) < 4 << 20, sizes


def _mapped_bytes(array):
    first, last = (int(end, 16) for end in mapping(array).split(maxsplit=1)[0].split("-"))
    return last - first
