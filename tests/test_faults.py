"""What goes wrong in one process: errors, threads, a consumer that leaves, Ctrl-C, the end."""

from __future__ import annotations

import inspect
import signal
import threading
from itertools import islice

import pytest
from programs import program
from samples import ends, kept_in_order
from widths import few

import jreader
from jreader import (
    batch,
    buffered,
    cache,
    chain,
    compose,
    epochs,
    filter,  # noqa: A004  # the field's word
    firstn,
    flat_map,
    map_readers,
    shard,
    shuffle,
    skip,
    xmap_readers,
)


class BoomError(Exception):
    """A user's own."""


def failing(good, after=5):
    """A source of `after` samples that raises once it gave `good`; says whether it was closed."""

    def source():
        try:
            for place in range(after):
                if place == good:
                    raise error
                yield place
            if good == after:
                raise error
        finally:
            closed.append(True)

    error, closed = BoomError("source"), []
    return source, error, closed


def same(sample):
    return sample


UNDER = {
    "map_readers": lambda reader: map_readers(same, reader),
    "map of two": lambda reader: map_readers(max, reader, lambda: range(9)),
    "filter": lambda reader: filter(lambda _: True, reader),
    "flat_map": lambda reader: flat_map(lambda sample: [sample], reader),
    "cache": cache,
    "compose": lambda reader: map_readers(max, compose(reader, reader, check_alignment=False)),
    "chain": lambda reader: chain(list, reader),
    "shuffle": kept_in_order,
    "firstn": lambda reader: firstn(reader, 9),
    "skip": lambda reader: skip(reader, 0),
    "shard": lambda reader: shard(reader, 1, 0),
    "epochs": lambda reader: epochs(reader, 1),
    "batch": lambda reader: flat_map(same, batch(reader, 1)),
    "Pipeline": jreader.Pipeline,
    "buffered 0": lambda reader: buffered(reader, 0),
    "buffered": lambda reader: buffered(reader, 2),
    "xmap in order": lambda reader: xmap_readers(same, reader, 3, 2, order=True),
    "xmap of one thread": lambda reader: xmap_readers(same, reader, 1, 2),
}


class TestASourceThatRaises:
    """The good samples first, then its own error, once; then the end, again and again."""

    @pytest.mark.parametrize("good", [0, 2, 5])
    @pytest.mark.parametrize("op", UNDER)
    def test_every_op_hands_over_the_good_samples_and_then_the_error(self, op, good):
        source, error, _ = failing(good)
        samples, raised = ends(UNDER[op](source)())
        assert samples == [*range(good)]
        assert raised is error

    @pytest.mark.parametrize("good", [0, 2, 5])
    def test_out_of_order_too_no_good_sample_is_lost(self, good):
        source, error, _ = failing(good)
        samples, raised = ends(xmap_readers(same, source, 4, 3)())
        assert sorted(samples) == [*range(good)]
        assert raised is error

    @pytest.mark.parametrize("op", [lambda r: shuffle(r, 3, seed=0), lambda r: batch(r, 3)])
    def test_a_window_that_is_not_full_is_withheld(self, op):
        source, error, _ = failing(4)
        samples, raised = ends(op(source)())
        assert sum(len(sample) if isinstance(sample, list) else 1 for sample in samples) == 3
        assert raised is error

    @pytest.mark.parametrize("op", ["buffered", "xmap in order", "xmap of one thread"])
    def test_threads_name_themselves_and_the_line(self, op):
        source, _, _ = failing(2)
        made, line = UNDER[op](source), inspect.getsourcelines(UNDER[op])[1]
        _, raised = ends(made())
        name = "buffered" if op == "buffered" else "xmap_readers"
        (note,) = raised.__notes__
        assert note == f"raised while {name}, made at {__file__}:{line}, read ahead"

    def test_a_reader_that_fails_before_it_gives_anything_is_an_error_of_the_pass(self):
        def reader():
            raise BoomError("opening")

        for op in UNDER.values():
            with pytest.raises(BoomError):
                next(op(reader)())


MAPPING = {
    "map_readers": lambda fn, reader: map_readers(fn, reader),  # noqa: PLW0108  # its own line
    "filter": lambda fn, reader: filter(fn, reader),  # noqa: PLW0108  # likewise
    "flat_map": lambda fn, reader: flat_map(fn, reader),  # noqa: PLW0108  # likewise
    "map_batches": lambda fn, reader: jreader.map_batches(fn, batch(reader, 1)),
    "xmap_readers": lambda fn, reader: xmap_readers(fn, reader, 1, 2),
    "xmap_readers ": lambda fn, reader: xmap_readers(fn, reader, 3, 2, order=True),
}


class TestAFunctionThatRaises:
    """Its error names the op, the user's line, the function and the sample."""

    @pytest.mark.parametrize("op", MAPPING)
    def test_the_error_says_what_raised_it_where_and_for_which_sample(self, op):
        def picky(sample):
            if sample == 2:
                raise BoomError(sample)
            return [sample]

        made, line = MAPPING[op](picky, lambda: range(5)), inspect.getsourcelines(MAPPING[op])[1]
        samples, raised = ends(made())
        assert (len(samples), type(raised), raised.args[0]) == (2, BoomError, 2)
        sample = "int64[1]" if op == "map_batches" else "2"
        (note,) = raised.__notes__
        expected = f"raised by picky({sample}) in {op.strip()}, made at {__file__}:{line}"
        assert note == expected

    @pytest.mark.parametrize("op", MAPPING)
    def test_stop_iteration_is_an_error_not_an_end(self, op):
        def stopping(_):
            raise StopIteration

        samples, raised = ends(MAPPING[op](stopping, lambda: range(5))())
        assert (samples, type(raised), str(raised)) == (
            [],
            RuntimeError,
            "stopping raised StopIteration",
        )
        assert isinstance(raised.__cause__, StopIteration)
        assert f"in {op.strip()}, made at {__file__}" in raised.__notes__[0]

    @pytest.mark.parametrize("raising", ["mapper", "source"])
    @pytest.mark.parametrize("order", [True, False])
    def test_a_sample_in_work_comes_before_the_error(self, order, raising):
        """The mapper is held at sample 0 until the error is on its way."""
        on_its_way = threading.Event()

        class LateError(Exception):
            def add_note(self, note):
                on_its_way.set()
                super().add_note(note)

        def mapper(sample):
            if sample == 1:
                raise LateError
            on_its_way.wait()
            return sample

        def source():
            yield 0
            if raising == "source":
                raise LateError
            yield 1

        samples, raised = ends(xmap_readers(mapper, source, 2, 2, order)())
        assert (samples, type(raised)) == ([0], LateError)

    def test_a_lone_exit_in_a_thread_reaches_the_consumer(self):
        def leaving(_):
            raise SystemExit(3)

        for order in (True, False):
            with pytest.raises(SystemExit):
                list(xmap_readers(leaving, lambda: range(5), 2, 2, order)())


class TestPasses:
    """A pass is its own; who leaves it lets go of everything."""

    @pytest.mark.parametrize("op", UNDER)
    def test_two_passes_at_once_do_not_disturb_each_other(self, op):
        reader = UNDER[op](lambda: range(5))
        one, other = reader(), reader()
        assert (next(one), next(other), next(one)) == (0, 0, 1)
        assert (list(other), list(one)) == ([1, 2, 3, 4], [2, 3, 4])
        assert (next(one, "end"), next(one, "end")) == ("end", "end")

    @pytest.mark.parametrize(
        "op", few(["map_readers", "buffered", "xmap in order", "cache", "chain"], ["buffered"])
    )
    def test_whoever_leaves_closes_the_source(self, python, op):
        """No garbage collection is needed; the threads are joined, not polled."""
        script = f"""
            import gc, threading
            from jreader import start
            from tests.test_faults import UNDER, failing
            gc.disable()
            def close(reader):
                here = start(reader)
                next(here.items)
                here.close()
            def drop(reader):
                items = reader()
                next(items)
                del items
            def break_off(reader):
                for sample in reader():
                    break
            def fail(reader):
                try:
                    for sample in reader():
                        raise KeyError("the user's own")
                except KeyError:
                    pass
            for leave in (close, drop, break_off, fail):
                source, error, closed = failing(4)
                leave(UNDER[{op!r}](source))
                for thread in threading.enumerate():
                    if thread is not threading.current_thread():
                        thread.join(60)
                print(leave.__name__, threading.active_count(), *closed)
        """
        told = [f"{leave} 1 True" for leave in ("close", "drop", "break_off", "fail")]
        assert python(script).stdout.splitlines() == told

    @pytest.mark.parametrize(
        "op", few(["buffered", "xmap in order", "xmap of one thread"], ["xmap in order"])
    )
    def test_a_thousand_abandoned_passes_leave_nothing(self, python, op):
        script = f"""
            import gc, os, threading
            from tests.test_faults import UNDER
            gc.disable()
            closed = []
            def source():
                try:
                    yield from range(100)
                finally:
                    closed.append(True)
            reader = UNDER[{op!r}](source)
            next(reader())
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(1000):
                next(reader())
            for thread in threading.enumerate():
                if thread is not threading.current_thread():
                    thread.join(60)
            print(threading.active_count(), len(closed), len(os.listdir("/proc/self/fd")) - before)
        """
        assert python(script).stdout.split() == ["1", "1001", "0"]

    def test_a_pass_never_begun_holds_nothing(self):
        source, _, closed = failing(2)
        for op in ("buffered", "xmap in order"):
            items = UNDER[op](source)()
            assert list(islice(items, 0)) == []
            del items
        assert closed == []


BLOCKED = """
    import sys, threading
    from tests.test_faults import UNDER
    def source():
        yield 0
        print("waiting\\n", end="", flush=True)
        threading.Event().wait()
"""


@pytest.mark.slow  # kills and exits
class TestLeavingTheProgram:
    """A source that never answers holds nobody up."""

    @pytest.mark.parametrize("op", ["buffered", "xmap in order", "xmap of one thread"])
    def test_ctrl_c_ends_the_wait(self, op):
        with program(BLOCKED, f"for sample in UNDER[{op!r}](source)(): pass") as running:
            assert running.says() == "waiting"
            code, errors = running.told(signal.SIGINT)
        assert code == -signal.SIGINT
        assert errors.count("KeyboardInterrupt") == 1

    @pytest.mark.parametrize("op", ["buffered", "xmap in order", "xmap of one thread"])
    def test_ctrl_c_can_be_caught_and_the_program_resumes(self, op):
        rest = f"""
            try:
                for sample in UNDER[{op!r}](source)(): pass
            except KeyboardInterrupt:
                print("caught", list(UNDER[{op!r}](lambda: range(3))()), flush=True)
        """
        with program(BLOCKED, rest) as running:
            assert running.says() == "waiting"
            running.signal(signal.SIGINT)
            assert running.says() == "caught [0, 1, 2]"

    @pytest.mark.parametrize("op", ["buffered", "xmap in order", "xmap of one thread"])
    def test_ctrl_c_while_a_thread_starts_is_no_other_error(self, op):
        """The thread interrupts before it ever lets the main thread go on."""
        rest = f"""
            import os, signal
            sys.setswitchinterval(100)
            def interrupting():
                os.kill(os.getpid(), signal.SIGINT)
                yield from source()
            try:
                list(UNDER[{op!r}](interrupting)())
            except KeyboardInterrupt:
                print("caught\\n", end="", flush=True)
        """
        with program(BLOCKED, rest) as running:
            assert {running.says(), running.says()} == {"waiting", "caught"}

    @pytest.mark.parametrize(
        ("op", "held"), [("buffered", True), ("buffered", False), ("xmap in order", True)]
    )
    def test_a_source_blocked_for_ever_does_not_keep_the_program(self, op, held):
        rest = f"""
            items = UNDER[{op!r}](source)()
            next(items)
            if not {held}: del items
            sys.exit(7)
        """
        with program(BLOCKED, rest) as running:
            code, errors = running.ends()
        assert (code, errors) == (7, "")

    def test_an_error_of_the_program_itself_is_what_it_ends_with(self):
        rest = """
            for sample in UNDER["buffered"](source)():
                raise LookupError("the user's own")
        """
        with program(BLOCKED, rest) as running:
            code, errors = running.ends()
        assert (code, errors.strip().splitlines()[-1]) == (1, "LookupError: the user's own")
