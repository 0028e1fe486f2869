"""Workers that die: their work is done again by others, or the error names what killed them."""

from __future__ import annotations

import pytest
from leftovers import said

ENDS = {
    "os.kill(os.getpid(), signal.SIGKILL)": "exit code -9 (killed: perhaps out of memory)",
    "os.kill(os.getpid(), signal.SIGTERM)": "exit code -15",
    "ctypes.string_at(0)": "exit code -11 (a segmentation fault",
    "os.abort()": "exit code -6 (aborted",
    "os._exit(3)": "exit code 3",
}


@pytest.mark.slow  # kills and exits
class TestDeaths:
    def test_what_a_worker_leaves_is_done_again(self, tmp_path):
        """Nothing is lost, nothing comes twice, and no order changes."""
        lines = said(f"""
            def work(n, end):
                if n in (3, 11) and once(f"{tmp_path}/{{n}} {{end}}"):
                    exec(end, {{"os": os, "signal": signal, "ctypes": ctypes}})
                return np.full(20_000, n)
            with Processes(2) as workers:
                for end in {list(ENDS)}:
                    made = workers.map(work, range(30), [end] * 30)
                    print([int(each[-1]) for each in made], flush=True)
            clean()
        """)
        assert lines == [str([*range(30)])] * len(ENDS)
        assert len(list(tmp_path.iterdir())) == 2 * len(ENDS)

    @pytest.mark.slow
    def test_what_kills_every_worker_is_an_error_that_names_it(self):
        lines = said(f"""
            def work(n, end):
                if n == 5:
                    exec(end, {{"os": os, "signal": signal, "ctypes": ctypes}})
                return n
            with Processes(2) as workers:
                for end in {list(ENDS)}:
                    futures = [workers.submit(work, n, end) for n in range(12)]
                    print(*(each.exception() or each.result() for each in futures), flush=True)
            clean()
        """)
        for line, (end, told) in zip(lines, ENDS.items(), strict=True):
            assert line.startswith("0 1 2 3 4 3 worker processes died one after another while ")
            assert f"they worked on work(5, {end!r}); the last one ended with {told}" in line
            assert line.endswith("6 7 8 9 10 11")

    def test_a_death_is_noticed_at_once(self):
        lines = said("""
            with Processes(1) as one:
                pid = one.submit(os.getpid).result()
                for held in (False, True):
                    if held:  # by a process that the worker started: its connection stays open
                        one.submit(subprocess.Popen, ["sleep", "600"], close_fds=False).exception()
                    future = one.submit(signal.pause)
                    for _ in range(3):
                        while not (tasks := [m for m in one._pool.workers if m.ready and m.task]):
                            time.sleep(0.01)
                        tasks[0].process.kill()
                        tasks[0].process.wait()
                        while one._pool.workers and one._pool.workers[0] is tasks[0]:
                            time.sleep(0.01)
                    print(type(future.exception(60)).__name__, flush=True)
            for pid in children(1):  # what nobody is the parent of any more
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if command.split(b"\\0") == [b"sleep", b"600", b""]:
                    os.kill(pid, signal.SIGKILL)
            clean()
        """)
        assert lines == ["WorkerDied", "WorkerDied"]

    def test_all_killed_at_once_and_while_they_are_idle(self):
        lines = said("""
            with Processes(3) as workers:
                for _ in range(2):
                    wait([workers.submit(time.sleep, 0.05) for _ in range(6)])
                    for pid in children():
                        os.kill(pid, signal.SIGKILL)
                    print(*workers.map(abs, range(6)), flush=True)
            clean()
        """)
        assert lines == ["0 1 2 3 4 5"] * 2

    def test_a_worker_killed_while_it_sends(self, tmp_path):
        """Half a frame is here; the rest never comes."""
        lines = said(f"""
            def work(n):
                if n == 2 and once("{tmp_path}/killed"):
                    pid = os.getpid()
                    threading.Timer(0.1, lambda: os.kill(pid, signal.SIGKILL)).start()
                    class Endless:
                        def __reduce__(self):
                            time.sleep(0.05)
                            return str, ("x" * 300_000_000,)
                    return Endless()
                return n
            with Processes(2) as workers:
                print(*workers.map(work, range(6)), flush=True)
            clean()
        """)
        assert lines == ["0 1 2 3 4 5"]

    def test_workers_that_cannot_begin_are_an_error_at_once(self, tmp_path):
        """They are not begun for ever."""
        (tmp_path / "jreader").mkdir()
        (tmp_path / "jreader" / "__init__.py").write_text("import os; os._exit(7)")
        lines = said(f"""
            sys.path.insert(0, "{tmp_path}")
            with Processes(2) as workers:
                print(workers.submit(abs, 1).exception(), flush=True)
                sys.path.pop(0)
                print(workers.submit(abs, 1).result(), flush=True)
            clean()
        """)
        assert "worker processes ended with exit code 7 before they started" in lines[0]
        assert lines[1] == "1"

    def test_out_of_memory_is_an_error_of_the_task(self):
        lines = said("""
            def limit(number):
                resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
            with Processes(1, limit) as one:
                print(type(one.submit(np.ones, 10**9).exception()).__name__, flush=True)
                print(one.submit(np.ones, 10**6).result().sum(), flush=True)
            clean()
        """)
        assert lines[0] in ("MemoryError", "_ArrayMemoryError")
        assert lines[1] == "1000000.0"
