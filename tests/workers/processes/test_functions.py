"""Functions are sent to each worker once, with the arrays that they hold."""

from __future__ import annotations

import os
import sys
import threading
import time
import types
from concurrent.futures import wait
from pathlib import Path

import cloudpickle
import numpy as np
import pytest


class Counted:
    """A function of any weight, which leaves a file each time it is unpickled."""

    def __init__(self, folder, weight):
        self.folder, self.weight = folder, np.zeros(weight)

    def __call__(self, n):
        return n + self.weight[0]

    def __setstate__(self, state):
        self.__dict__.update(state)
        Path(self.folder, f"{os.getpid()} {time.perf_counter_ns()}").touch()


class TestFunctions:
    @pytest.mark.parametrize("weight", [1, 10**4, 10**6])
    def test_each_worker_is_sent_it_once_by_identity_or_content(self, two, tmp_path, weight):
        fn = Counted(str(tmp_path), weight)
        wait([two.submit(fn, n) for n in range(30)])
        wait([two.submit(Counted(str(tmp_path), weight), n) for n in range(3)])
        sent = [path.name.split()[0] for path in tmp_path.iterdir()]
        assert 1 <= len(sent) == len(set(sent)) <= 2

    def test_it_is_forgotten_when_it_is_gone_here(self, two, tmp_path):
        class Leaving(Counted):
            def __del__(self):
                Path(self.folder, f"{os.getpid()} is without it").touch()

        fn = Leaving(str(tmp_path), 10)
        sent = two.submit(fn, 1)
        assert sent.result() == 1
        functions = two._pool.functions
        number = functions.of(fn).number
        del fn
        for n in range(5):  # some of the latest are kept, for the next pass
            two.submit(lambda n=n: n).result()
        wait([two.submit(pow, 2, 2) for _ in range(20)])
        assert all(number not in worker.known_functions for worker in two._pool.workers)
        assert not any(entry[1].number == number for entry in functions._known.values())
        without = {path.name for path in tmp_path.glob("* is without it")}
        assert len(without - {f"{os.getpid()} is without it"}) >= 1

    def test_large_arrays_in_it_are_shared_and_what_is_written_is_the_workers_own(
        self, two, tmp_path
    ):
        table = np.zeros(10**6)

        def written(n):
            before = table.copy()
            table[:] = n
            (tmp_path / str(os.getpid())).touch()
            while len(list(tmp_path.iterdir())) < 2:  # until the other worker is asked too
                time.sleep(0.01)
            maps = Path("/proc/self/maps").read_text()
            kept = (table == n).all()
            return before.max(), kept, "memfd:jreader" in maps, os.getpid()

        futures = [two.submit(written, n) for n in range(1, 7)]
        befores = {}
        for n, future in enumerate(futures, 1):
            before, kept, shared, pid = future.result()
            assert kept
            assert shared
            assert before == befores.get(pid, 0)
            befores[pid] = n
        assert len(befores) == 2
        assert table.max() == 0

    def test_one_that_a_worker_cannot_import_says_what_to_do(self, two):
        module = sys.modules["elsewhere"] = types.ModuleType("elsewhere")
        exec("def fn(): return 3", module.__dict__)
        try:
            with pytest.raises(ModuleNotFoundError) as raised:
                two.submit(module.fn).result()
            assert "register_pickle_by_value" in raised.value.__notes__[0]
            cloudpickle.register_pickle_by_value(module)
            exec("def fn(): return 3", module.__dict__)  # another one: the first was sent as it was
            assert two.submit(module.fn).result() == 3
        finally:
            cloudpickle.unregister_pickle_by_value(module)
            del sys.modules["elsewhere"]

    def test_one_that_cannot_be_sent_says_what_to_do(self, two):
        lock = threading.Lock()
        with pytest.raises(TypeError) as raised:
            two.submit(lambda: lock)
        assert "cannot be sent to worker processes: open files" in raised.value.__notes__[-1]
        with pytest.raises(TypeError) as raised:
            two.submit(str, lock)
        assert "arguments of str" in raised.value.__notes__[-1]

    def test_a_module_that_starts_workers_when_it_is_imported_is_named(self, python, tmp_path):
        Path(tmp_path, "eager.py").write_text(
            "from jreader import Pipeline\n"
            "def doubled(n): return 2 * n\n"
            "every = list(Pipeline(lambda: range(3)).map(doubled, processes=1))\n"
        )
        done = python("import eager", cwd=tmp_path, check=False, PYTHONSAFEPATH="")
        assert "RuntimeError: the module eager starts worker processes" in done.stderr
        assert "in a function" in done.stderr
