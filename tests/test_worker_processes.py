"""Worker processes as an executor: what goes in comes out, through memory that is used again."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import types
from concurrent.futures import wait
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import Watch, children

import jreader
from jreader._worker.memory import anonymous
from jreader.workers import Processes, in_place
from jreader.workers.processes import crews

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def two():
    """The same two workers for all tests of this file."""
    with Processes(2) as workers:
        yield workers


def blocks(workers):
    """How many blocks of shared memory each worker has."""
    return [len(member.memory.blocks) for member in workers._crew.members]


class TestExecutor:
    def test_results_are_those_of_the_function(self, two):
        assert list(two.map(lambda a, b: a - b, range(50), range(50, 0, -1))) == [
            *range(-50, 50, 2)
        ]
        assert two.submit(lambda *args, **options: (args, options), 1, x=2).result() == (
            (1,),
            {"x": 2},
        )

    def test_work_goes_to_whoever_is_free(self, two, tmp_path):
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        waiting = two.submit(gate.read_text)
        assert [two.submit(lambda n=n: n).result() for n in range(20)] == [*range(20)]
        gate.write_text("opened")
        assert waiting.result() == "opened"

    def test_an_error_arrives_with_its_type_and_the_traceback_of_the_worker(self, two):
        def dividing(n):
            return 1 / n

        with pytest.raises(ZeroDivisionError) as raised:
            two.submit(dividing, 0).result()
        assert "in dividing\n    return 1 / n" in raised.value.__notes__[0]

    def test_what_waits_can_be_cancelled(self, tmp_path):
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        with Processes(1) as one:
            first = one.submit(gate.read_text)
            rest = [one.submit(pow, 2, n) for n in range(5)]
            assert [future.cancel() for future in rest[1:]] == [True] * 4
            gate.write_text("opened")
            assert (first.result(), rest[0].result()) == ("opened", 1)
            assert [future.cancelled() for future in rest] == [False, True, True, True, True]

    def test_nothing_is_taken_after_a_shutdown(self):
        workers = Processes(2)
        future = workers.submit(pow, 2, 3)
        workers.shutdown()
        assert future.result(0) == 8
        with pytest.raises(RuntimeError, match="after shutdown"):
            workers.submit(pow, 2, 3)

    def test_it_travels_as_it_was_written_and_has_workers_of_its_own_there(self, two):
        assert (
            repr(cloudpickle.loads(cloudpickle.dumps(Processes(3, print)))) == "Processes(3, print)"
        )

        def inside(workers):
            with workers:
                return workers.submit(os.getppid).result(), os.getpid()

        parent, worker = two.submit(inside, Processes(1)).result()
        assert parent == worker != os.getpid()

    @pytest.mark.parametrize(
        ("arguments", "error", "says"),
        [
            ((0,), ValueError, "at least 1"),
            ((2.5,), TypeError, "whole number"),
            ((2, 3), TypeError, "needs a function"),
        ],
    )
    def test_wrong_arguments_are_refused_where_they_were_written(self, arguments, error, says):
        with pytest.raises(error, match=says):
            Processes(*arguments)

    def test_on_windows_it_says_what_works(self, python):
        script = """
            import mmap, os, select, signal, socket, sys
            import numpy, subprocess, tempfile, multiprocessing, asyncio, concurrent.futures.thread
            import hypothesis
            for room, names in [
                (os, "memfd_create posix_fallocate register_at_fork pidfd_open EX_OSERR fork"),
                (socket, "CMSG_SPACE SCM_RIGHTS MSG_DONTWAIT MSG_CMSG_CLOEXEC send_fds recv_fds"),
                (mmap, "MAP_PRIVATE MAP_SHARED PROT_READ"), (select, "poll POLLRDHUP epoll"),
            ]:
                for name in names.split():
                    delattr(room, name)
            sys.platform = "win32"
            import jreader
            print(list(jreader.Pipeline(lambda: range(3)).map(str, workers=2)))
            for make in (lambda: jreader.Processes(2), lambda: jreader.multiprocess_reader([list])):
                try:
                    make()
                except NotImplementedError as error:
                    print(error)
        """
        said = python(script, timeout=30).stdout.splitlines()
        assert said[0] == "['0', '1', '2']"
        assert "use threads there (workers=n)" in said[1]
        assert "use buffered or xmap_readers there" in said[2]


class TestCrews:
    def test_all_of_one_size_are_the_same_workers_which_end_with_the_last(self):
        one, other = Processes(3), Processes(3)
        pids = {workers.submit(os.getpid).result() for workers in (one, other) for _ in range(4)}
        assert len(pids) <= 3
        watch = Watch(*pids)
        one.shutdown()
        assert other.submit(os.getpid).result() in pids
        del other
        assert watch.all_gone(within=10)

    def test_workers_stay_for_the_next_that_asks_soon(self):
        pids = set()
        for _ in range(3):
            with Processes(1) as one:
                pids.add(one.submit(os.getpid).result())
        assert len(pids) == 1

    def test_they_are_begun_when_there_is_something_to_do(self):
        before = children()
        with Processes(5) as five:
            assert children() == before
            five.submit(pow, 2, 3).result()
            assert len(children() - before) == 1

    def test_each_is_begun_with_the_function_and_knows_who_it_is(self):
        assert jreader.get_worker_info() is None

        def begin(number):
            os.environ["BEGAN"] = os.environ.get("BEGAN", "") + f"{number} "

        def told():
            return os.environ["BEGAN"], jreader.get_worker_info()

        with Processes(2, begin) as workers:
            infos = [workers.submit(told).result() for _ in range(6)]
        for numbers, info in infos:
            assert (numbers, info.num_workers, info.dataset) == (f"{info.id} ", 2, None)
        assert len({info.seed for _, info in infos}) == len({info.id for _, info in infos})
        with pytest.raises(AttributeError):
            infos[0][1].id = 7

    def test_a_forked_child_has_workers_of_its_own(self, python):
        """It inherits the connections of its parent's."""
        script = """
            import os
            from jreader.workers import Processes
            workers = Processes(1)
            mine = workers.submit(os.getpid).result()
            child = os.fork()
            if not child:
                assert workers.submit(os.getpid).result() != mine
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            print(workers.submit(os.getpid).result() == mine)
        """
        assert python(script, timeout=30).stdout == "True\n"

    @pytest.mark.parametrize("how", ["script", "-c", "stdin"])
    def test_no_guard_is_needed_and_main_is_not_run_again(self, tmp_path, how):
        script = (
            "import sys\n"
            "from jreader.workers import Processes\n"
            "print('main')\n"
            "class Point:\n"
            "    def __init__(self, x): self.x = x\n"
            "def made(x): return Point(x), 'jax' in sys.modules\n"
            "(point, jax) = Processes(1).submit(made, Point(3).x).result()\n"
            "print(point.x, type(point) is Point, jax)\n"
        )
        (tmp_path / "script.py").write_text(script)
        arguments = {"script": ["script.py"], "-c": ["-c", script], "stdin": []}[how]
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            input=script if how == "stdin" else "",
            env={"PYTHONPATH": str(Path(__file__).parent.parent)},
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        assert done.stdout.split("\n") == ["main", "3 True False", ""]


class Counted:
    """A function that says each time it is unpickled, and how many bytes it weighs."""

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
        parcels = two._crew.parcels
        number = parcels.of(fn).number
        del fn
        for n in range(5):  # some of the latest are kept, for the next pass
            two.submit(lambda n=n: n).result()
        wait([two.submit(pow, 2, 2) for _ in range(20)])
        assert all(number not in member.known for member in two._crew.members)
        assert not any(entry[1].number == number for entry in parcels._known.values())
        without = {path.name for path in tmp_path.glob("* is without it")}
        assert len(without - {f"{os.getpid()} is without it"}) >= 1

    def test_large_arrays_in_it_are_shared_and_what_is_written_is_the_workers_own(self, two):
        table = np.zeros(10**6)

        def written(n):
            before = table.copy()
            table[:] = n
            time.sleep(0.1)  # so that the other worker is asked too
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


def same(one, other):
    """Whether two trees are equal, types and dtypes too."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and all(map(same, one, other)) and len(one) == len(other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


class TestResults:
    @given(trees)
    @settings(max_examples=60)
    def test_any_tree_comes_back_as_it_is(self, tree):
        with Processes(2) as workers:
            assert same(workers.submit(lambda: tree).result(), tree)

    def test_large_arrays_are_aligned_writeable_and_lie_in_shared_memory(self, two):
        made = two.submit(lambda: (np.full((300, 1000), 3, "f4"), np.ones(70000, "u1"))).result()
        assert [array.ctypes.data % 64 for array in made] == [0, 0]
        assert [array.flags.writeable for array in made] == [True, True]
        maps = Path("/proc/self/maps").read_text().splitlines()
        for array in made:
            (line,) = [line for line in maps if within(array.ctypes.data, line)]
            assert "memfd:jreader" in line

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
            member = one._crew.members[0]
            watch = Watch(member.process.pid)
        assert watch.all_gone(within=10)
        del member, one
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
        assert all(len(future.result(30)) == 5_000_001 for future in futures)


def within(address, line):
    """Whether a line of `maps` is of the mapping around an address."""
    first, last = (int(end, 16) for end in line.split()[0].split("-"))
    return first <= address < last


class TestWithoutSharedMemory:
    """Whatever a system refuses, results are the same, if slower."""

    def test_all_pages_are_there_when_it_is_made(self):
        """To run out of them later would be a SIGBUS."""
        descriptor = anonymous(1 << 20)
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


class TestInPlace:
    """`in_place` gives what stacking the samples would."""

    @pytest.mark.parametrize("where", ["here", "in a worker"])
    def test_alike_samples_are_stacked(self, two, where):
        def made(n):
            return {"image": np.full((64, 64, 3), n, "u1"), "more": (n, np.full(2, n, "f4"))}

        def run():
            return in_place(made, range(10))

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
            return in_place(samples.__getitem__, range(4))

        for tree, given_back in (run(), two.submit(run).result()):
            assert tree is None
            assert same(given_back, samples)

    def test_the_place_is_where_it_is_sent_from(self):
        """So the worker holds the batch once."""

        def run():
            return in_place(lambda n: np.full(10**5, n), range(8))[0]

        def addresses():
            from jreader._worker import rooms  # noqa: PLC0415  # of the worker

            return [block.used for block in rooms.blocks.blocks.values()]

        with Processes(1, lambda number: None) as one:  # not one that others used
            kept = one.submit(run).result()
            assert one.submit(addresses).result() == [kept.nbytes]
            assert [row[-1] for row in kept] == [*range(8)]

    def test_what_is_kept_does_not_change_while_others_pass(self):
        """Neither here nor in the worker, where it was sent from."""

        def run(n):
            made = in_place(lambda row: np.full(10**5, 10 * n + row), range(4))[0]
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
            return in_place(lambda row: np.full(10**5, 10 * n + row), range(4))[0]

        with Processes(1, lambda number: None) as one:  # not one that others used
            kept = [one.submit(run, n).result() for n in range(20)]
        for n, made in enumerate(kept):
            assert (made[:, 0] == 10 * n + np.arange(4)).all()

    def test_a_place_that_was_not_sent_is_used_again(self):
        def run(n):
            made = in_place(lambda n: np.full(10**5, n), range(4))[0]
            if n % 2:
                raise ValueError(n)
            return int(made.sum())

        with Processes(1, lambda number: None) as one:  # not one that others used
            for n in range(100):
                future = one.submit(run, n)
                assert (future.exception() is None) == (n % 2 == 0)
            assert one.submit(lambda: len([*Path("/proc/self/fd").iterdir()])).result() < 20


def test_a_pickled_array_is_not_copied_twice(two):
    """What pickle itself does with protocol 5 is the specification."""
    array = np.arange(10**5)
    taken = []
    data = pickle.dumps(array, protocol=5, buffer_callback=taken.append)
    assert same(pickle.loads(data, buffers=taken), two.submit(lambda: array).result())


def test_the_stuck_are_counted_out(two):
    """A crew whose worker never answers goes on with the others; the signal is no accident."""
    stuck = two.submit(signal.pause)
    assert [two.submit(pow, 2, n).result(10) for n in range(5)] == [1, 2, 4, 8, 16]
    pid = next(each.process.pid for each in two._crew.members if each.task)
    watch = Watch(pid)
    assert not stuck.cancel()
    assert watch.all_gone(within=10)
    assert isinstance(stuck.exception(10), jreader.WorkerDied)
    assert sorted({two.submit(os.getpid).result() for _ in range(9)}) != [pid]
    assert crews._crews
