"""Programs that are run to be interrupted, or only to be read, with a clock; and their children."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HELPERS = Path(__file__).parent
ROOT = HELPERS.parents[1]
PATIENCE = 300  # seconds that no machine is so busy as to need: they end what hangs
SOON = 60  # likewise, of what is over in four seconds at most where nobody else runs


class Program:
    """A script in a process group of its own."""

    def __init__(self, script: str) -> None:
        self.said = b""
        paths = os.pathsep.join([str(HELPERS), str(ROOT)])
        self.process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": ""},  # whole lines
        )

    def says(self) -> str:
        """The next line that it prints."""
        while b"\n" not in self.said:
            ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
            assert ready, "it says nothing"
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            assert more, self.process.stderr.read().decode()
            self.said += more
        line, _, self.said = self.said.partition(b"\n")
        return line.decode()

    def watch(self, count: int) -> Watch:
        """Over so many processes, whose numbers it prints next."""
        return Watch(*(int(self.says()) for _ in range(count)))

    def signal(self, number: int) -> None:
        """To the whole group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def ends(self) -> tuple[int, str]:
        """Its exit code and what it wrote to stderr; it has to be gone soon."""
        return self.process.wait(SOON), self.process.stderr.read().decode()

    def told(self, number: int) -> tuple[int, str]:
        """What `ends` says, after a signal."""
        self.signal(number)
        return self.ends()


@contextmanager
def program(*parts: str) -> Iterator[Program]:
    """Runs the parts of a script, and leaves nothing of it behind."""
    running = Program("\n".join(map(textwrap.dedent, parts)))
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            running.signal(signal.SIGKILL)
        running.process.communicate(timeout=PATIENCE)


def printed(script: str, how: str, folder: Path) -> list[str]:
    """What a script prints, run in a folder as its "script", with "-c", or from "stdin"."""
    (folder / "script.py").write_text(script)
    arguments = {"script": ["script.py"], "-c": ["-c", script], "stdin": []}[how]
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        input=script if how == "stdin" else "",
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return done.stdout.split("\n")


def children(of: int | None = None) -> set[int]:
    """The processes that a process (this one) has started, and that have not ended."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            pid, rest = stat.parent.name, stat.read_text().rpartition(")")[2].split()
            if int(rest[1]) == (of or os.getpid()) and rest[0] != "Z":
                found.add(int(pid))
    return found


class Watch:
    """Whether processes end; opened while they live, so that no pid is taken for another's."""

    def __init__(self, *pids: int) -> None:
        self.ends = [os.pidfd_open(pid) for pid in pids]

    def all_gone(self) -> bool:
        """Whether all end soon."""
        limit = time.monotonic() + SOON
        gone = []
        for end in self.ends:
            gone += select.select([end], [], [], max(0, limit - time.monotonic()))[0]
        for end in self.ends:
            os.close(end)
        return gone == self.ends
