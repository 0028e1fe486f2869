"""Errors of readers that run in processes of their own."""

from __future__ import annotations

import os
import threading
from concurrent.futures import wait

import pytest
from programs import PATIENCE
from samples import ends
from widths import few

from jreader import ReaderError, map_readers, multiprocess_reader, start, xmap_readers
from jreader.workers.processes import worker_pool

pytestmark = pytest.mark.usefixtures("by_value")


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


class TestErrors:
    """They cross with their own type, after the good samples, and say where they come from."""

    @pytest.mark.parametrize("good", few([0, 2, 5], [2]))
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
        readers = items.gi_frame.f_locals["self"].readers
        wait([reader.task for reader in readers], timeout=PATIENCE)
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
        *_, name, note = raised.__notes__  # from Python 3.14 on, also pickle's own
        assert name == "what cannot be sent is `lock` of <lambda>"
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
        said = python(script).stdout
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


class TestSending:
    """A reader is pickled before there is a process for it."""

    def test_one_that_cannot_be_sent_is_told_again_at_each_call(self):
        lock = threading.Lock()
        here = start(multiprocess_reader([lambda: [lock]]))
        for ask in (here.position, here.position, lambda: next(here.items)):
            with pytest.raises(TypeError, match="cannot pickle"):
                ask()

    def test_one_that_takes_longer_to_pickle_than_idle_processes_stay_is_read(self, monkeypatch):
        monkeypatch.setattr(worker_pool, "_IDLE_SECONDS", 0.05)

        class Slow:
            def __call__(self):
                return iter("abc")

            def __reduce__(self):
                threading.Event().wait(0.3)
                return Slow, ()

        assert list(multiprocess_reader([Slow()])()) == ["a", "b", "c"]
