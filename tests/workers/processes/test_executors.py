"""Worker processes are an executor, as those of `concurrent.futures` are."""

from __future__ import annotations

import os

import cloudpickle
import pytest

from jreader.workers import Processes


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

    def test_on_windows_it_says_what_works(self, python, tmp_path):
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
            sys.platform, sys.modules["fcntl"] = "win32", None
            import jreader
            print(list(jreader.Pipeline(lambda: range(3)).map(str, threads=2)))
            for make in (
                lambda: jreader.Processes(2),
                lambda: jreader.multiprocess_reader([list]),
                lambda: jreader.write(range(3).__iter__, "new", "npy", progress=False),
                lambda: list(jreader.cache(lambda: range(3), "cached")()),
            ):
                try:
                    make()
                except NotImplementedError as error:
                    print(error)
        """
        said = python(script, cwd=tmp_path).stdout.splitlines()
        assert said[0] == "['0', '1', '2']"
        assert "use threads there (threads=n)" in said[1]
        assert "use buffered or xmap_readers there" in said[2]
        assert len(said) == 5
        assert all("a lock that Windows does not have" in each for each in said[3:])
