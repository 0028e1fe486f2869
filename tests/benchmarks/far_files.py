"""Far files beside the bare client: ranges by aiohttp, by jreader, and through a store.

    python -m tests.benchmarks.far_files [megabytes] [throttle in MB/s ...]

A server of this machine, in a process of its own, gives one file, as fast as it can (0) or so many
megabytes a second over all connections. All ask for the whole of it in ranges of 4 MB, 16 of them
on their way at the same time. Contestants take turns; a figure is the median of their megabytes a
second, and of the CPU time of this process for a megabyte, and the median of the ratios, turn by
turn, to the bare client of that turn.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import fsspec

from jreader import Store
from jreader.sources.files import open_file

TURNS, RANGE, AT_ONCE = 7, 1 << 22, 16
PIECE = 1 << 18  # bytes that a throttled server sends at once

Contestants = dict[str, Callable[[], int]]


def serve(path: str, throttle: float) -> None:
    """Serves the file until standard input ends; prints its port."""
    file, size = os.open(path, os.O_RDONLY), Path(path).stat().st_size
    gate, free = threading.Lock(), [time.monotonic()]

    def wait(many: int) -> None:
        with gate:
            free[0] = max(free[0], time.monotonic()) + many / throttle / 1e6
            until = free[0]
        time.sleep(max(until - time.monotonic(), 0))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

        def do_HEAD(self) -> None:
            self.head(200, size)

        def do_GET(self) -> None:
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            low, high = (int(asked[1]), min(int(asked[2]) + 1, size)) if asked else (0, size)
            self.head(206 if asked else 200, high - low, f"bytes {low}-{high - 1}/{size}")
            self.wfile.flush()
            while low < high:
                many = min(PIECE, high - low) if throttle else high - low
                if throttle:
                    wait(many)
                low += os.sendfile(self.connection.fileno(), file, low, many)

        def head(self, status: int, many: int, span: str = "") -> None:
            self.send_response(status)
            if status == 206:
                self.send_header("Content-Range", span)
            self.send_header("Content-Length", str(many))
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", '"one"')
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


@contextmanager
def served(path: Path, throttle: float) -> Iterator[str]:
    """The URL of the file, of a server that ends with the block."""
    command = [sys.executable, "-m", "tests.benchmarks.far_files", "serve", path, str(throttle)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/file"
        server.communicate()


def by_hand(url: str, size: int) -> int:
    """The bytes of all ranges, by aiohttp alone."""

    async def every() -> int:
        gate = asyncio.Semaphore(AT_ONCE)
        connections = aiohttp.TCPConnector(limit=AT_ONCE)
        async with aiohttp.ClientSession(connector=connections) as session:

            async def one(low: int) -> int:
                span = f"bytes={low}-{min(low + RANGE, size) - 1}"
                async with gate, session.get(url, headers={"Range": span}) as answer:
                    return len(await answer.read())

            return sum(await asyncio.gather(*map(one, range(0, size, RANGE))))

    return asyncio.run(every())


def by_fsspec(url: str, size: int) -> int:
    """The same by fsspec's file system, which keeps all ranges in memory."""
    system = fsspec.filesystem("http")
    lows = range(0, size, RANGE)
    ends = [min(low + RANGE, size) for low in lows]
    parts = system.cat_ranges([url] * len(lows), list(lows), ends, batch_size=AT_ONCE)
    return sum(map(len, parts))


def by_jreader(url: str, size: int, store: Store | None = None) -> int:
    """The same through the files that readers read, with a store or without."""
    file = open_file(url, store)
    ranges = [(low, min(RANGE, size - low)) for low in range(0, size, RANGE)]
    return sum(map(len, file.read_many(ranges)))


def contestants(url: str, size: int, folder: Path) -> Contestants:
    """Who takes part; the folder `cold` is deleted before each turn."""

    warm = Store(folder / "warm")
    by_jreader(url, size, warm)
    return {
        "aiohttp by hand": lambda: by_hand(url, size),
        "fsspec.cat_ranges": lambda: by_fsspec(url, size),
        "jreader": lambda: by_jreader(url, size),
        "jreader, cold store": lambda: by_jreader(url, size, Store(folder / "cold")),
        "jreader, warm store": lambda: by_jreader(url, size, warm),
    }


def turn(read: Callable[[], int], size: int) -> tuple[float, float]:
    """Seconds, and seconds of CPU time of this process, for a megabyte."""
    clock, began = time.perf_counter(), time.process_time()
    many = read()
    took, worked = time.perf_counter() - clock, time.process_time() - began
    if many != size:
        raise AssertionError(f"{many:,} of {size:,} bytes came")
    return took / size * 1e6, worked / size * 1e6


def main(megabytes: int, *throttles: float) -> None:
    """Prints a line for each contestant at each throttle."""
    size = megabytes * 1_000_000
    with TemporaryDirectory() as room:
        path = Path(room, "file")
        path.write_bytes(os.urandom(1_000_000) * megabytes)
        for throttle in throttles:
            with served(path, throttle) as url, TemporaryDirectory() as folder:
                field = contestants(url, size, Path(folder))
                figures: dict[str, list[tuple[float, float]]] = {name: [] for name in field}
                for _ in range(TURNS):
                    for name, read in field.items():
                        shutil.rmtree(Path(folder, "cold"), ignore_errors=True)
                        figures[name].append(turn(read, size))
            said = f"{throttle:g} MB/s" if throttle else "unthrottled"
            bare = figures["aiohttp by hand"]
            for name, each in figures.items():
                speed, work = 1 / median(took for took, _ in each), median(w for _, w in each)
                ratio = median(hand / took for (hand, _), (took, _) in zip(bare, each, strict=True))
                best = min(bare)[0] / min(each)[0]
                print(
                    f"{said}: {name:20} {speed:7.0f} MB/s {work * 1e3:7.2f} ms of CPU a MB, "
                    f"{ratio:5.2f} x by hand (of the best turns {best:.2f})"
                )


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2], float(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else 256, *(map(float, sys.argv[2:] or ["0", "200"])))
