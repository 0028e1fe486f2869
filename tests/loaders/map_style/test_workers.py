"""`num_workers` are processes: the same stream for any number, whatever becomes of them."""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from broken import Slow, Stream
from hypothesis import given
from hypothesis import strategies as st
from programs import program
from steps import stream
from widths import examples

import jreader
from jreader import DataLoader, Dataset, FeedMismatch
from jreader.datasets import TensorDataset

pytestmark = pytest.mark.usefixtures("by_value")


def pictures(n=24, side=80):
    """A data set whose samples are large enough to be put where they are sent from."""

    class Pictures(Dataset):
        def __getitem__(self, index):
            return {
                "image": np.random.default_rng(index).integers(0, 255, (side, side, 3), "u1"),
                "name": f"picture {index}",
                "at": (index, np.float32(index / 2)),
            }

        def __len__(self):
            return n

    return Pictures()


def same(one, other):
    return jax.tree.all(jax.tree.map(lambda a, b: bool(np.array_equal(a, b)), one, other))


class TestStream:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "options",
        [
            {"batch_size": 4},
            {"batch_size": 5, "drop_last": True},
        ],
    )
    def test_it_is_the_same_for_0_1_2_4_and_7(self, options):
        streams = [
            list(DataLoader(pictures(), shuffle=True, seed=3, num_workers=workers, **options))
            for workers in (0, 1, 2, 4, 7)
        ]
        assert len(streams[0]) == (24 - 4 * ("drop_last" in options)) // options["batch_size"] + (
            24 % options["batch_size"] > 0 and "drop_last" not in options
        )
        for other in streams[1:]:
            assert len(other) == len(streams[0])
            assert all(map(same, streams[0], other))

    @pytest.mark.usefixtures("held")
    @given(st.integers(0, 20), st.integers(1, 5), st.sampled_from([1, 2, 3]), st.booleans())
    @examples(20, least=3)
    @pytest.mark.filterwarnings("ignore:epoch . is empty")
    def test_a_cursor_of_any_number_goes_on_with_any_other(self, n, size, workers, of_stream):
        dataset = Stream(n) if of_stream else range(n)
        options = {} if of_stream else {"shuffle": True, "seed": 1}
        whole = stream(DataLoader(dataset, size, **options))
        loader = DataLoader(dataset, size, num_workers=workers, **options)
        feeds = iter(loader)
        head = [next(feeds).tolist() for _ in range(len(whole) // 2)]
        cursor = json.loads(json.dumps(loader.state_dict()))
        feeds.close()
        rest = DataLoader(dataset, size, num_workers=3 - workers, **options)
        rest.load_state_dict(cursor)
        assert head + stream(rest) == whole

    def test_kinds_of_data_sets(self):
        table = TensorDataset([np.arange(90_000).reshape(90, 1000), np.arange(90)])
        mixed = [np.full(9000, n, "i4") if n % 3 else np.full(9000, 0.5, "f4") for n in range(1, 9)]
        rows = np.arange(50_000.0).reshape(50, 1000)
        for dataset in (table, rows, mixed, [*range(20)], "abcdefgh"):
            feeds = [list(DataLoader(dataset, 8, num_workers=workers)) for workers in (0, 2)]
            assert all(map(same, *feeds))

    def test_own_collate_functions_fields_and_no_batches(self):
        def collated(samples):
            return np.stack([sample["image"] for sample in samples]).mean(0), len(samples)

        for options in (
            {"batch_size": 4, "collate_fn": collated},
            {"batch_size": None},
            {"batch_size": None, "collate_fn": lambda sample: sample["image"]},
        ):
            feeds = [list(DataLoader(pictures(), num_workers=w, **options)) for w in (0, 2)]
            assert all(map(same, *feeds))
        rows = [(np.full(9000, n, "f4"), n) for n in range(10)]
        fields = [jreader.data("x", [None, 9000]), jreader.data("y", [None, 1], "int32")]
        feeds = [
            list(DataLoader(rows, 3, feed_list=fields, return_list=False, num_workers=workers))
            for workers in (0, 2)
        ]
        assert feeds[0][0].keys() == {"x", "y"}
        assert all(map(same, *feeds))

    def test_feeds_that_are_kept_do_not_change(self):
        """They lie over shared memory, which is used again."""
        loader = DataLoader(pictures(400, 60), 4, num_workers=2)
        kept = list(loader)
        rows = [float(np.asarray(feed["image"]).mean()) for feed in kept]
        for _ in loader:
            pass
        assert [float(np.asarray(feed["image"]).mean()) for feed in kept] == rows
        expected = [float(feed["image"].mean()) for feed in DataLoader(pictures(400, 60), 4)]
        np.testing.assert_allclose(rows, expected, rtol=1e-5)

    def test_a_feed_is_placed_without_a_copy(self):
        """On the CPU: the device array lies in the memory that the worker wrote to."""
        (feed,) = DataLoader(pictures(8), 8, num_workers=1)
        address = feed["image"].unsafe_buffer_pointer()
        mappings = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
        spans = [[int(end, 16) for end in parts[0].split("-")] for parts in mappings]
        (found,) = [
            parts[-2:]
            for parts, (first, last) in zip(mappings, spans, strict=True)
            if first <= address < last
        ]
        assert "/memfd:jreader" in found

    def test_shapes_that_differ_are_told_as_they_are_without_workers(self):
        def told(workers):
            rows = [np.zeros((70, 100 + (n == 5))) for n in range(8)]
            with pytest.raises(FeedMismatch) as raised:
                list(DataLoader(rows, 4, num_workers=workers))
            return str(raised.value)

        assert told(0) == told(2)


class TestWorkers:
    def test_a_data_set_that_cannot_be_sent_says_what_to_do(self):
        class Locked(Dataset):
            def __init__(self):
                self.lock = threading.Lock()

            def __getitem__(self, index):
                return index

            def __len__(self):
                return 4

        for options in ({}, {"persistent_workers": True}):
            with pytest.raises(TypeError, match="cannot pickle") as raised:
                next(iter(DataLoader(Locked(), 2, num_workers=2, **options)))
            notes = "\n".join(raised.value.__notes__)  # from Python 3.14 on, also pickle's own
            assert "what cannot be sent is `lock` of Locked" in notes
            assert "fetch(Locked) cannot be sent to worker processes: open files, locks" in notes
            assert "__getitem__ of a data set" in notes

    @pytest.mark.slow
    def test_a_worker_that_is_killed_costs_nothing_but_time(self, tmp_path):
        class Deadly(Dataset):
            def __getitem__(self, index):
                if index in (5, 6, 17):
                    try:
                        (tmp_path / str(index)).touch(exist_ok=False)
                    except FileExistsError:
                        return index
                    os.kill(os.getpid(), signal.SIGKILL)
                return index

            def __len__(self):
                return 24

        loader = DataLoader(Deadly(), 3, shuffle=True, seed=0, num_workers=2)
        assert stream(loader) == stream(DataLoader(range(24), 3, shuffle=True, seed=0))
        assert len(list(tmp_path.iterdir())) == 3

    def test_one_that_kills_every_worker_is_named(self):
        class Deadly(Dataset):
            def __getitem__(self, index):
                return os._exit(9) if index == 6 else index

            def __len__(self):
                return 12

        feeds = iter(DataLoader(Deadly(), 2, num_workers=2))
        assert [next(feeds).tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
        with pytest.raises(jreader.WorkerDied) as raised:
            next(feeds)
        said = str(raised.value) + "".join(getattr(raised.value, "__notes__", []))
        assert "exit code 9" in said
        assert "6, 7" in said

    def test_after_a_timeout_the_next_epoch_has_workers(self, tmp_path):
        os.mkfifo(tmp_path / "never")

        class Once(Slow):
            def __getitem__(self, index):
                if index == 4 and (tmp_path / "never").exists():
                    return (tmp_path / "never").read_text()
                return index

        begun = DataLoader(range(2), num_workers=1, persistent_workers=True)
        assert len(stream(begun)) == 2  # the worker is there before the clock begins
        loader = DataLoader(Once(None, None, 6), 1, num_workers=1, timeout=2)
        with pytest.raises(TimeoutError, match=r"made of \[4\]"):
            stream(loader)
        (tmp_path / "never").unlink()
        loader = DataLoader(Once(None, None, 6), 1, num_workers=1)
        assert stream(loader) == [[0], [1], [2], [3], [4], [5]]

    def test_few_are_ahead_of_a_loop_that_stays_away(self, tmp_path):
        class Seen(Dataset):
            def __getitem__(self, index):
                (tmp_path / str(index)).touch()
                return np.zeros(50_000), index

            def __len__(self):
                return 200

        feeds = iter(DataLoader(Seen(), 1, num_workers=2, persistent_workers=True))
        next(feeds)
        most = 0
        for _ in range(20):
            time.sleep(0.02)
            next(feeds)
            most = max(most, len(list(tmp_path.iterdir())))
        feeds.close()
        assert most <= 21 + 64 + 3

    def test_loaders_of_a_number_share_their_processes(self):
        class Pid(Dataset):
            def __getitem__(self, index):
                return os.getpid()

            def __len__(self):
                return 8

        loaders = [DataLoader(Pid(), 1, num_workers=3) for _ in range(4)]
        pids = {int(feed[0]) for loader in loaders for feed in loader}
        assert len(pids) <= 3
        assert os.getpid() not in pids


class TestRooms:
    @pytest.mark.slow
    def test_workers_have_no_jax_though_the_program_has(self, python):
        """It would cost each of them a second before the first batch."""
        script = """
            import sys
            import jax
            import numpy as np
            import jreader
            class Numbers(jreader.Dataset):
                def __len__(self): return 64
                def __getitem__(self, index):
                    return np.full(784, index, "f4"), "jax" in sys.modules
            for image, has_jax in jreader.DataLoader(Numbers(), 8, num_workers=2):
                print(has_jax.any())
        """
        assert set(python(script).stdout.split()) == {"False"}

    @pytest.mark.slow
    def test_a_cell_of_a_notebook(self, python):
        """What is defined in a cell lives in `__main__`, which no worker can import."""
        script = """
            import __main__
            cells = [
                "import numpy as np, jreader",
                "SIZE = 4",
                "class Cell(jreader.Dataset):\\n"
                "    def __len__(self): return SIZE\\n"
                "    def __getitem__(self, i): return scaled(i)",
                "def scaled(i): return 2 * i",
                "print([f.tolist() for f in jreader.DataLoader(Cell(), 2, num_workers=2)])",
                "def scaled(i): return 3 * i",
                "print([f.tolist() for f in jreader.DataLoader(Cell(), 2, num_workers=2)])",
            ]
            for cell in cells:
                exec(compile(cell, "<ipython-input>", "exec"), __main__.__dict__)
        """
        assert python(script).stdout.splitlines() == [
            "[[0, 2], [4, 6]]",
            "[[0, 3], [6, 9]]",
        ]

    def test_ctrl_c_in_a_loop_is_one_traceback_and_leaves_nothing(self):
        with program(
            """
            import os, signal, jreader
            class Stuck(jreader.Dataset):
                def __len__(self): return 8
                def __getitem__(self, index):
                    print(os.getpid(), flush=True)
                    signal.pause()
            for feed in jreader.DataLoader(Stuck(), num_workers=2): pass
            """
        ) as running:
            watch = running.watch(2)
            code, errors = running.told(signal.SIGINT)
            assert watch.all_gone()
            assert (code, errors.count("KeyboardInterrupt")) == (-signal.SIGINT, 1)

    def test_an_error_in_the_loop_is_the_users_own(self):
        def train():
            for _feed in DataLoader(range(100), 1, num_workers=2):
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine") as raised:
            train()
        assert raised.traceback[-1].name == "train"
        del raised
        gc.collect()
