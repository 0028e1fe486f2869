"""An executor that is shut down, a scheduler that goes away: one error of ours, at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from engines import numbers
from programs import PATIENCE, ROOT

from jreader import Processes, WorkerDied, map_samples

pytestmark = pytest.mark.filterwarnings("ignore")  # Dask's are its own


def gone(executor, path, leave):
    """What a pass raises whose executor leaves while a sample is waited for."""
    entered, opened = (os.fspath(path.with_suffix(end)) for end in (".entered", ".opened"))
    os.mkfifo(entered)
    os.mkfifo(opened)
    ends = [os.open(each, os.O_RDWR) for each in (entered, opened)]

    def gated(sample):
        if sample == 3:
            gate = os.open(opened, os.O_RDWR)  # before the test may close it
            os.write(os.open(entered, os.O_RDWR), b"1")
            os.read(gate, 1)
        return sample

    def leaving():
        os.read(ends[0], 1)
        leave()

    items = map_samples(gated, numbers(), executor=executor, concurrency=1, window=4)()
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    thread = threading.Thread(target=leaving)
    thread.start()
    try:
        with pytest.raises(WorkerDied, match="takes no more tasks") as caught:
            list(items)
    finally:
        os.write(ends[1], b"1" * 8)  # for a task that is sent again, too
        thread.join(PATIENCE)
        for end in ends:
            os.close(end)
    return caught.value


class TestDask:
    @pytest.mark.parametrize("who", ["the client", "the executor"])
    def test_what_is_closed_here_is_told_at_once(self, who, tmp_path):
        distributed = pytest.importorskip("distributed")
        with (
            distributed.LocalCluster(
                n_workers=1, processes=False, dashboard_address=None, silence_logs=50
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            executor = client.get_executor()
            leave = client.close if who == "the client" else lambda: executor.shutdown(wait=False)
            gone(executor, tmp_path / "gate", leave)

    @pytest.mark.slow
    def test_a_scheduler_that_is_killed_is_told_at_once(self, tmp_path):
        distributed = pytest.importorskip("distributed")
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        begin = [sys.executable, "-W", "ignore", "-m", "distributed.cli.dask_"]

        def begun(what, *options):
            command = [*begin[:-1], begin[-1] + what, *options, "--no-dashboard"]
            return subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL, cwd=tmp_path)

        told = tmp_path / "scheduler.json"
        scheduler = begun("scheduler", "--port", "0", "--scheduler-file", str(told))
        worker = begun("worker", "--scheduler-file", str(told), "--nthreads", "1")
        try:
            client = distributed.Client(scheduler_file=str(told), timeout=PATIENCE)
            client.wait_for_workers(1, PATIENCE)
            error = gone(client.get_executor(), tmp_path / "gate", scheduler.kill)
            assert "its Dask client has no scheduler any more" in str(error)
        finally:
            for process in (worker, scheduler):
                process.kill()
                process.wait(PATIENCE)
            with suppress(TimeoutError):  # it goes on looking for its scheduler
                client.close(2)


class TestOthers:
    @pytest.mark.parametrize("kind", [ThreadPoolExecutor, Processes])
    def test_one_that_is_shut_down_is_told_after_what_was_done(self, kind):
        executor = kind(1)
        items = map_samples(abs, numbers(), executor=executor, concurrency=1, window=2)()
        got = [next(items)]
        executor.shutdown()
        with pytest.raises(WorkerDied, match="takes no more tasks"):
            got.extend(items)
        assert got == [*range(len(got))]
        assert len(got) >= 1
