"""Errors that cross processes, and the rooms in which readers in processes must work."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from jreader import ReaderError, map_readers, multiprocess_reader, xmap_readers

BOTH = pytest.mark.parametrize("use_pipe", [True, False])


class BoomError(Exception):
    """A user's own."""


class FussyError(Exception):
    """One that is not made of its `args`."""

    def __init__(self, what, *, where):
        super().__init__(f"{what} at {where}")
        self.where = where


class LockedError(Exception):
    """One that cannot be pickled."""

    def __init__(self):
        super().__init__("locked")
        self.lock = threading.Lock()


def failing(good, error=BoomError):
    def source():
        yield from range(good)
        raise error

    return source


def ends(items):
    """The samples of a pass, and the error that it raised; nothing comes after it."""
    samples = []
    with pytest.raises(Exception) as raised:  # noqa: PT011, PT012  # compared by the caller
        while True:
            samples.append(next(items))
    assert list(items) == []
    assert next(items, "end") == "end"
    return samples, raised.value


class TestErrors:
    """They cross with their own type, after the good samples, and say where they come from."""

    @BOTH
    @pytest.mark.parametrize("good", [0, 2, 5])
    def test_a_source_that_raises_gives_its_good_samples_first(self, good, use_pipe):
        made = multiprocess_reader([failing(good, BoomError("own"))], use_pipe=use_pipe)
        samples, raised = ends(made())
        assert samples == [*range(good)]
        assert (type(raised), raised.args) == (BoomError, ("own",))
        worker, here = raised.__notes__
        assert "Traceback" in worker
        assert "in source\n    raise error" in worker
        assert "raised by reader 0 (" in here
        assert here.endswith(f"of multiprocess_reader, made at {made.made_at}")
        assert made.made_at.startswith(__file__)

    def test_what_arrived_from_other_readers_comes_before_the_error(self, tmp_path):
        """Both have sent everything, and ended, before the second sample is asked for."""
        gates = [tmp_path / "bad", tmp_path / "good"]
        for gate in gates:
            os.mkfifo(gate)

        def bad():
            gates[0].read_bytes()
            raise BoomError
            yield

        def good():
            yield 0
            gates[1].read_bytes()
            yield from (1, 2)

        items = multiprocess_reader([bad, good], use_pipe=False)()
        assert next(items) == 0
        for gate in gates:
            gate.write_bytes(b"")
        for child in items.gi_frame.f_locals["crew"].children:
            child.worker.process.wait()
        samples, raised = ends(items)
        assert (samples, type(raised)) == ([1, 2], BoomError)

    def test_an_error_that_is_not_made_of_its_args_keeps_its_type_and_state(self):
        def source():
            yield 1
            raise FussyError("tea", where="noon")

        _, raised = ends(multiprocess_reader([source])())
        assert (type(raised), str(raised), raised.where) == (FussyError, "tea at noon", "noon")

    def test_an_error_that_cannot_be_pickled_is_told(self):
        def source():
            yield 1
            raise LockedError

        samples, raised = ends(multiprocess_reader([source])())
        assert (samples, type(raised)) == ([1], ReaderError)
        assert "LockedError: locked" in str(raised)
        assert "raise LockedError" in str(raised)

    def test_an_exit_of_a_reader_is_an_error(self):
        _, raised = ends(multiprocess_reader([failing(1, SystemExit(123))])())
        assert "SystemExit: 123" in str(raised)

    def test_a_sample_that_cannot_be_pickled_says_what_to_do(self):
        def source():
            yield 1
            yield threading.Lock()

        samples, raised = ends(multiprocess_reader([source])())
        assert (samples, type(raised)) == ([1], TypeError)
        assert "cannot be sent from a worker process" in str(raised)
        assert "map it to arrays" in str(raised)

    def test_a_reader_that_cannot_be_sent_says_what_to_do(self):
        lock = threading.Lock()
        made = multiprocess_reader([failing(1), lambda: [lock]])
        samples, raised = ends(made())
        assert (samples, type(raised)) == ([], TypeError)
        (note,) = raised.__notes__
        assert "reader 1 (" in note
        assert f"made at {made.made_at}, cannot be sent to a process: open files, locks" in note

    def test_a_reader_that_cannot_be_read_in_the_worker_is_an_error(self, python):
        script = """
            import jreader, sys, types
            elsewhere = types.ModuleType("elsewhere")
            sys.modules["elsewhere"] = elsewhere
            exec("def reader(): yield 1", elsewhere.__dict__)
            try:
                list(jreader.multiprocess_reader([elsewhere.reader])())
            except ModuleNotFoundError as error:
                print(error, error.__notes__[-1])
        """
        said = python(script, timeout=10).stdout
        assert said.startswith("No module named 'elsewhere' raised by reader 0 (")

    def test_a_reader_of_a_mapper_that_raises_names_the_mapper(self):
        def picky(sample):
            return 1 / sample

        for reader in (
            map_readers(picky, lambda: [1, 0]),
            xmap_readers(picky, lambda: [1, 0], 2, 2, order=True),
        ):
            samples, raised = ends(multiprocess_reader([reader])())
            assert (samples, type(raised)) == ([1], ZeroDivisionError)
            assert (
                f"raised by picky(0) in {type(reader).__name__}, made at {__file__}"
                in (raised.__notes__[0])
            )


class TestRooms:
    """Where it runs: any script, any descriptor limit, big samples, readers with threads."""

    @pytest.mark.parametrize("how", ["script", "-c", "stdin"])
    def test_functions_of_main_travel_and_no_guard_is_needed(self, python, tmp_path, how):
        script = (
            "import jreader\n"
            "print('main')\n"
            "class Point:\n"
            "    def __init__(self, x): self.x = x\n"
            "def double(n): return 2 * n\n"
            "def source():\n"
            "    print('worker')\n"
            "    yield from map(Point, map(double, range(3)))\n\n"
            "samples = list(jreader.multiprocess_reader([source, source])())\n"
            "print([p.x for p in samples], {type(p) is Point for p in samples})\n"
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
        assert sorted(done.stdout.split("\n")) == [
            "",
            "[0, 0, 2, 2, 4, 4] {True}",
            "main",
            "worker",
            "worker",
        ]

    @BOTH
    def test_two_passes_at_once_have_processes_of_their_own(self, use_pipe):
        reader = multiprocess_reader([lambda: range(5), lambda: range(10, 12)], use_pipe=use_pipe)
        one, other = reader(), reader()
        seen = [next(one)], [next(other), *other]
        assert sorted([*seen[0], *one]) == sorted(seen[1]) == [0, 1, 2, 3, 4, 10, 11]
        assert (next(one, "end"), next(one, "end")) == ("end", "end")

    def test_many_big_samples_pass_one_by_one(self, python):
        """A gigabyte in all, though a process may read a thousand samples ahead."""
        script = """
            import re
            import jreader
            def source():
                for place in range(100):
                    yield place, bytes([place]) * 10_000_000
            for place, (number, data) in enumerate(jreader.multiprocess_reader([source])()):
                assert (number, len(data), data[0], data[-1]) == (place, 10_000_000, place, place)
            # not ru_maxrss: a child inherits that of the process that started it
            print(place, re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
        """
        place, kilobytes = map(int, python(script, timeout=30).stdout.split())
        assert place == 99
        assert kilobytes < 400_000

    def test_a_reader_may_have_threads_and_processes_of_its_own(self):
        def source():
            gone = threading.Event()
            threading.Thread(target=gone.wait).start()
            inner = multiprocess_reader([lambda: range(3)])
            yield from xmap_readers(str, inner, 2, 2, order=True)()

        assert list(multiprocess_reader([source])()) == ["0", "1", "2"]

    def test_modules_where_a_program_runs_do_not_hide_those_of_python(self, python, tmp_path):
        """As for a script that lies elsewhere: only `python -c` looks there."""
        (tmp_path / "json.py").write_text("raise ImportError('this is not json')")
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "script.py").write_text(
            "import jreader\nprint(*jreader.multiprocess_reader([lambda: range(3)])())\n"
        )
        script = """
            import subprocess, sys
            subprocess.run([sys.executable, "elsewhere/script.py"], check=True)
        """
        assert python(script, cwd=tmp_path).stdout == "0 1 2\n"

    def test_too_few_descriptors_are_an_error_that_says_so(self, python):
        script = """
            import errno, gc, os, resource
            import jreader
            resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
            reader = jreader.multiprocess_reader([lambda: range(3)] * 30)
            before = len(os.listdir("/proc/self/fd"))
            try:
                list(reader())
            except OSError as error:
                print(errno.errorcode[error.errno])
            import threading
            for thread in threading.enumerate():
                if thread is not threading.current_thread():
                    thread.join(10)
            gc.collect()
            print(len(os.listdir("/proc/self/fd")) - before)
            print(*jreader.multiprocess_reader([lambda: range(3)])())
        """
        assert python(script, timeout=20).stdout.splitlines() == ["EMFILE", "0", "0 1 2"]
