"""Bars are shown where somebody looks at a terminal, late, and by no worker process."""

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import PATIENCE
from terminals import Terminal, looked_at
from widths import examples

import jreader
from jreader import Pipeline, arrays, progress, start
from jreader.datasets.downloads import download
from jreader.progress import Bar


@pytest.fixture
def terminal(monkeypatch):
    return looked_at(monkeypatch)


def through(bar, steps=4):
    with bar:
        for _ in range(steps):
            bar.add()
    return bar


def fails(bar):
    with bar:
        bar.add()
        raise KeyError


class TestABar:
    def test_shows_how_far_it_is(self, terminal):
        through(Bar("reading", 4))
        assert "reading:  25%" in terminal.getvalue()
        assert "1/4" in terminal.getvalue()

    def test_goes_away_in_the_end_unless_it_stays(self, terminal):
        through(Bar("reading", 4))
        assert terminal.getvalue().endswith("\r")
        assert "\n" not in terminal.getvalue()
        through(Bar("reading", 4, stay=True))
        assert "100%" in terminal.getvalue().splitlines()[-1]

    def test_shows_nothing_of_what_is_soon_over(self, terminal):
        through(Bar("reading", 4, delay=3600))
        assert terminal.getvalue() == ""

    @pytest.mark.parametrize("value", ["0", "no", "OFF", " false "])
    def test_is_turned_off_by_the_environment(self, terminal, monkeypatch, value):
        monkeypatch.setenv("JREADER_PROGRESS", value)
        assert through(Bar("reading", 4)).off
        assert terminal.getvalue() == ""

    @pytest.mark.parametrize("value", ["", "1", "yes"])
    def test_is_turned_off_by_nothing_else(self, terminal, monkeypatch, value):
        monkeypatch.setenv("JREADER_PROGRESS", value)
        through(Bar("reading", 4))
        assert "reading" in terminal.getvalue()

    def test_is_turned_off_by_an_argument(self, terminal):
        through(Bar("reading", 4, show=False))
        assert terminal.getvalue() == ""

    @pytest.mark.parametrize("file", [io.StringIO(), None, "closed"])
    def test_writes_nothing_where_there_is_no_terminal(self, terminal, monkeypatch, file):
        if file == "closed":
            file = Terminal()
            file.close()
        monkeypatch.setattr(progress.sys, "stderr", file)
        assert through(Bar("reading", 4)).off
        assert not isinstance(file, io.StringIO) or file.closed or file.getvalue() == ""

    def test_ends_where_an_error_ends_what_it_shows(self, terminal):
        bar = Bar("reading", 4)
        with pytest.raises(KeyError):
            fails(bar)
        assert bar.off
        assert terminal.getvalue().endswith("\r")

    def test_says_more_behind_it(self, terminal):
        with Bar("reading", 4) as bar:
            bar.say("waited 3%")
            bar.add()
        assert "waited 3%" in terminal.getvalue()

    def test_counts_bytes_in_their_units(self, terminal):
        with Bar("reading", 4_000_000, "B") as bar:
            bar.add(1_000_000)
        assert "1.00M/4.00M" in terminal.getvalue()

    def test_is_moved_by_threads_at_the_same_time(self, terminal):
        @examples(10)
        @given(st.lists(st.integers(0, 50), min_size=1, max_size=4))
        def law(steps):
            with Bar("reading", sum(steps), stay=True) as bar:
                threads = [
                    threading.Thread(target=lambda n=n: [bar.add() for _ in range(n)])
                    for n in steps
                ]
                for each in threads:
                    each.start()
                for each in threads:
                    each.join()
            if sum(steps):
                assert f"{sum(steps)}/{sum(steps)}" in terminal.getvalue().splitlines()[-1]

        law()


FORKS = """
import io, os, threading
from jreader.progress import Bar
class Terminal(io.StringIO):
    def isatty(self):
        return True
with Bar("reading", 4, delay=0, file=Terminal()) as bar:
    held, left = threading.Event(), threading.Event()
    def hold():
        with bar._lock:
            held.set()
            left.wait()
    threading.Thread(target=hold, daemon=True).start()
    assert held.wait(60)
    child = os.fork()
    if not child:
        bar.add()
        os._exit(0 if bar.off else 1)
    left.set()
    assert os.waitpid(child, 0)[1] == 0
    assert not bar.off
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_bar_is_off_in_a_forked_process_whoever_held_its_lock(monkeypatch):
    monkeypatch.delenv("JREADER_PROGRESS", raising=False)
    subprocess.run([sys.executable, "-c", FORKS], check=True, timeout=PATIENCE)


def test_tqdm_is_not_imported_where_no_bar_is_shown():
    code = (
        "import sys\n"
        "from jreader.progress import Bar\n"
        "with Bar('reading', 4) as bar:\n"
        "    bar.add()\n"
        "print('tqdm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("False", "")


class TestBarsOf:
    def test_downloads(self, terminal, tmp_path):
        (tmp_path / "data").write_bytes(b"abc")
        known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        download((tmp_path / "data").as_uri(), [tmp_path / "kept"], known)
        assert "data: 100%" in terminal.getvalue()

    def test_indices_of_lines(self, terminal, tmp_path):
        for name in "ab":
            Path(tmp_path, f"{name}.jsonl").write_text("1\n2\n")
        assert list(jreader.jsonl(tmp_path)()) == [1, 2, 1, 2]
        assert "finding lines:  50%" in terminal.getvalue()

    def test_caches(self, terminal, tmp_path):
        reader = jreader.cache(arrays(np.arange(8)), str(tmp_path / "kept"))
        assert len(list(reader())) == 8
        written = terminal.getvalue()
        assert "caching in kept:" in written
        assert len(list(reader())) == 8  # from the disk
        assert terminal.getvalue() == written

    def test_replays(self, terminal):
        assert list(start(lambda: iter(range(9)), 5).items) == [5, 6, 7, 8]
        assert "reading up to the position:  20%" in terminal.getvalue()

    @pytest.mark.parametrize("split", ["never", "always"])
    def test_plans_of_pack(self, terminal, split):
        documents = jreader.ragged(np.arange(9), [0, 4, 9])
        packed = jreader.pack(documents, 5, seed=0, split=split)
        assert len(packed) == 2
        assert "planning packs" in terminal.getvalue()

    def test_writing(self, terminal, tmp_path):
        jreader.write(arrays(np.arange(8)), tmp_path / "rows", "npy")
        assert "writing rows" in terminal.getvalue()

    def test_training(self, terminal):
        def step(state, feed):
            return state, None

        for show in (True, False):
            terminal.seek(0)
            terminal.truncate(0)
            jreader.train(step, 0, lambda: [[(1,), (2,)]], {"x": 0}, progress=show)
            assert ("pass 1/1: 2 samples" in terminal.getvalue()) == show

    def test_none_in_worker_processes(self, terminal):
        def seen(_sample):
            return os.environ.get("JREADER_PROGRESS")

        mapped = Pipeline(arrays(np.arange(2))).map(seen, processes=1)
        assert list(mapped()) == ["0", "0"]
