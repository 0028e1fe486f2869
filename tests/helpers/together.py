"""Real processes under `jax.distributed`, on this machine."""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from programs import HELPERS, ROOT

COUNT = "device_count"  # in a flag of XLA
BEFORE = """
import json, sys
import jax, numpy as np
me, many, devices, port, patience = map(int, sys.argv[1:])
given = json.load(sys.stdin)
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", devices)
if many > 1:
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=many, process_id=me,
                               shutdown_timeout_seconds=patience,
                               heartbeat_timeout_seconds=patience)
def say(value):
    print(json.dumps(value), flush=True)
"""
AFTER = """
if many > 1:
    jax.distributed.shutdown()
"""


class Ended(NamedTuple):
    """How a process ended.

    Attributes:
        code: Its exit status; -9 where it was killed, for it was still there at the limit. One that
            raises says so in `err`, but may end with -6, some ten seconds later, as do the others:
            before they leave, they wait for each other, and jax gives them up.
        out: What it printed.
        err: What it wrote to stderr.
    """

    code: int
    out: str
    err: str

    @property
    def said(self) -> Any:
        """The JSON of the last line that it printed."""
        return json.loads(self.out.splitlines()[-1])


def processes(script: str, count: int, **options: Any) -> list[Any]:
    """What each process said last, where all of them end well; the options are those of `ended`."""
    every = ended(script, count, **options)
    assert [each.code for each in every] == [0] * count, every
    return [each.said for each in every]


def ended(
    script: str,
    count: int,
    *,
    devices: int = 1,
    given: Any = None,
    limit: float = 300,
    patience: int = 60,
    stays: int | None = None,
) -> list[Ended]:
    """How each of several processes of one `jax.distributed` run ended, also those that failed.

    Those that hang are killed at the limit, by SIGKILL: inside XLA a SIGTERM is not heard.

    Args:
        script: What each of them runs. It finds `jax`, `np`, `json` and `sys` imported, its own
            number as `me`, the number of processes as `many`, and a function `say(value)`.
        count: How many; one is alone, without `jax.distributed`.
        devices: The CPU devices of each.
        given: What the script finds as `given`, through JSON.
        limit: After how many seconds those still there are killed.
        patience: For how many seconds jax waits for one that says nothing, or does not end.
        stays: The number of one that does not end by itself, and is killed after all others.
    """
    began, port = time.monotonic(), str(free_port())
    flags = os.environ.get("XLA_FLAGS", "").split()
    kept = {**os.environ, "XLA_FLAGS": " ".join(flag for flag in flags if COUNT not in flag)}
    kept.setdefault("NPROC", "32")  # or un-awaited sharded steps deadlock inside XLA
    paths = {"PYTHONPATH": os.pathsep.join([str(HELPERS), str(ROOT)])}
    with ExitStack() as stack:
        # files, not pipes: a full pipe would stop one process, and with it all the others
        files = [[stack.enter_context(TemporaryFile("w+")) for _ in "ioe"] for _ in range(count)]
        children: list[subprocess.Popen[bytes]] = []
        stack.callback(_end, children)
        for number, (told, out, err) in enumerate(files):
            json.dump(given, told)
            told.seek(0)
            words = [sys.executable, "-c", BEFORE + script + AFTER]
            child = subprocess.Popen(
                [*words, str(number), str(count), str(devices), port, str(patience)],
                env={**kept, **paths},
                stdin=told,
                stdout=out,
                stderr=err,
            )
            children.append(child)
        for number, child in enumerate(children):
            if number != stays:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(max(began + limit - time.monotonic(), 0))
        _end(children)
        return [
            Ended(child.returncode, _text(out), _text(err))
            for child, (_, out, err) in zip(children, files, strict=True)
        ]


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    for child in children:
        child.kill()  # all, before one notices that another has gone, and writes of that
    for child in children:
        child.wait()


def _text(file: Any) -> str:
    file.seek(0)
    return str(file.read())


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
