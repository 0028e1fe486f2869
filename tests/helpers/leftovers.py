"""A program that uses worker processes, and looks at what is left of them: it may be nothing.

No child, thread, descriptor or shared memory: `clean()` waits for that, and says what it saw.
"""

from __future__ import annotations

from programs import program

PROGRAM = """
    import ctypes, gc, os, resource, signal, subprocess, sys, threading, time
    from concurrent.futures import wait
    from pathlib import Path
    import numpy as np
    import jreader
    from jreader import Processes
    from jreader.workers.processes import worker_pool
    from programs import PATIENCE, children
    worker_pool._IDLE_SECONDS = 0.1  # what nobody uses ends at once

    def seen():
        gc.collect()
        threads = [each.name for each in threading.enumerate()]
        files = len(os.listdir("/proc/self/fd"))
        shared = Path("/proc/self/maps").read_text().count("memfd:jreader")
        return children(), threads, files, shared, [*Path("/dev/shm").glob("jreader*")]

    def clean():
        limit = time.monotonic() + 150
        while seen() != before and time.monotonic() < limit:
            time.sleep(0.05)
        print("clean" if seen() == before else (before, seen()), flush=True)

    def interrupted(place, fn):
        # as Ctrl-C does, when the first function of that name returns
        def at_return(frame, event, _):
            if event == "return" and frame.f_code.co_qualname.endswith(place):
                sys.setprofile(None)
                raise KeyboardInterrupt
        sys.setprofile(at_return)
        try:
            fn()
        except KeyboardInterrupt:
            print("interrupted", flush=True)

    def once(path):
        # true the first time that it is asked
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    before = seen()
"""


def said(*parts: str) -> list[str]:
    """The lines that a program says, up to the one that tells what is left of it."""
    with program(PROGRAM, *parts) as running:
        lines: list[str] = []
        while not lines or not lines[-1].startswith(("clean", "(")):
            lines.append(running.says())
    assert lines[-1] == "clean"
    return lines[:-1]
