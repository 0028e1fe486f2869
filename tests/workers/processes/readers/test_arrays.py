"""Arrays of readers in processes come through shared memory, and are what they were."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from memory import mapping

import jreader
from jreader import multiprocess_reader, start

pytestmark = pytest.mark.usefixtures("by_value")


def pictures(n, size=100_000, beginning=0):
    def reader():
        for number in range(beginning, n):
            yield np.full(size, number % 256, "u1"), f"{number}", number

    return reader


def equal(samples, numbers, size=100_000):
    return [label for _, _, label in samples] == [*numbers] and all(
        image.shape == (size,) and (image == label % 256).all() and name == f"{label}"
        for image, name, label in samples
    )


class TestArrays:
    def test_samples_are_what_they_were_however_many_are_kept(self, use_pipe):
        samples = list(multiprocess_reader([pictures(300)], use_pipe=use_pipe)())
        assert equal(samples, range(300))

    def test_memory_is_used_again(self, python):
        """A gigabyte in all."""
        script = """
            from pathlib import Path
            import numpy as np
            import jreader
            def source():
                for number in range(100):
                    yield np.full(10_000_000, number, "u1")
            most = 0
            for number, image in enumerate(jreader.multiprocess_reader([source], queue_size=3)()):
                assert image[0] == image[-1] == number
                most = max(most, Path("/proc/self/maps").read_text().count("memfd:jreader"))
            print(most)
        """
        assert int(python(script).stdout) <= 9

    def test_it_lies_in_shared_memory_aligned(self):
        for image, _, _ in multiprocess_reader([pictures(10)])():
            assert "memfd:jreader" in mapping(image)
            assert image.ctypes.data % 64 == 0
            assert image.flags.writeable

    def test_a_reader_may_fill_its_array_anew(self):
        def filling():
            image = np.zeros(100_000)
            for number in range(50):
                image[:] = number
                yield image

        kept = list(multiprocess_reader([filling, filling])())
        assert [float(image.max()) for image in kept] == [n / 1 for n in range(50) for _ in "ab"]

    def test_samples_of_varying_size_some_larger_than_any_block(self):
        sizes = np.random.default_rng(0).integers(0, 2_000_000, 60).tolist()

        def varying():
            for number, size in enumerate(sizes):
                yield {"x": np.full(size, number % 100, "i4"), "n": number}

        for number, sample in enumerate(multiprocess_reader([varying], queue_size=5)()):
            assert sample["n"] == number
            assert sample["x"].shape == (sizes[number],)
            assert (sample["x"] == number % 100).all()

    @pytest.mark.slow
    def test_a_pass_is_resumed_at_its_positions(self):
        reader = multiprocess_reader([pictures(3), pictures(5, beginning=1)])
        whole = [label for _, _, label in reader()]
        for place in (0, 2, 5):
            up = start(reader)
            head = [next(up.items) for _ in range(place)]
            position = json.loads(json.dumps(up.position()))
            up.close()
            rest = list(start(reader, position).items)
            assert [label for _, _, label in [*head, *rest]] == whole
            assert all((image == label).all() for image, _, label in [*head, *rest])

    def test_where_there_is_no_memory_they_are_pickled(self):
        def poor():
            import resource  # noqa: PLC0415  # of the worker

            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
            yield from pictures(40)()
            yield "/memfd:jreader" in Path("/proc/self/maps").read_text()

        *samples, shared = multiprocess_reader([poor])()
        assert equal(samples, range(40))
        assert not shared

    def test_samples_that_came_before_a_death_are_whole(self, tmp_path):
        os.mkfifo(tmp_path / "gate")

        def dying():
            yield from pictures(30)()
            (tmp_path / "gate").read_text()
            os._exit(1)

        items = multiprocess_reader([dying], queue_size=30)()
        kept = [next(items) for _ in range(30)]
        (tmp_path / "gate").write_text("")
        with pytest.raises(jreader.WorkerDied, match="exit code 1"):
            next(items)
        assert equal(kept, range(30))

    def test_samples_outlive_their_pass(self):
        items = multiprocess_reader([pictures(100)], queue_size=10)()
        kept = [next(items) for _ in range(7)]
        items.close()
        del items
        list(multiprocess_reader([pictures(100)])())
        assert equal(kept, range(7))


class TestAhead:
    @pytest.mark.parametrize("make", [bytes, lambda size: np.zeros(size, "u1")])
    def test_a_process_is_no_more_ahead_than_32_mib(self, make, tmp_path):
        size = 4 << 20

        def source():
            for number in range(200):
                (tmp_path / "drawn").write_text(f"{number + 1}\n")
                yield make(size)

        items = multiprocess_reader([source])()
        for taken in range(1, 60):
            assert len(next(items)) == size
            lines = (tmp_path / "drawn").read_text().split()  # it may be just written
            assert not lines or int(lines[0]) <= taken + 9
