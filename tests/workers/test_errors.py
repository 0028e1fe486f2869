"""Errors arrive in their place, or are left out and counted."""

from __future__ import annotations

import importlib
import sys
import threading
import warnings
from itertools import islice

import pytest
from engines import bad, numbers, seen
from seen import see

import jreader
from jreader import map_samples


class TestErrors:
    """An error arrives after the good samples before it, once, and says where it came from."""

    def test_after_the_good_samples_and_once(self, engine):
        items = map_samples(bad(5, 6), numbers(), **engine)()
        good = []
        with pytest.raises(ValueError, match="bad 5") as caught:
            good.extend(items)
        assert good in ([], [0, 2, 4, 6, 8])
        told = "\n".join(caught.value.__notes__)
        assert "raised by fn(5) in map_samples, made at " in told
        assert __file__ in told
        frames = "".join(map(str, caught.traceback)) + told
        assert "in fn" in frames
        assert list(items) == []

    def test_the_good_samples_are_handed_over_first(self, engine):
        items = map_samples(bad(5), numbers(), **engine)()
        assert list(islice(items, 5)) == [0, 2, 4, 6, 8]
        with pytest.raises(ValueError, match="bad 5"):
            next(items)

    def test_of_the_source(self, engine):
        def source():
            yield from range(5)
            raise KeyError("source")

        items = map_samples(str, source, **engine)()
        assert list(islice(items, 5)) == list("01234")
        with pytest.raises(KeyError, match="source"):
            next(items)

    def test_a_stop_iteration_does_not_end_the_pass(self, engine):
        def fn(sample):
            raise StopIteration

        with pytest.raises(RuntimeError, match="fn raised StopIteration"):
            list(map_samples(fn, numbers(), **engine)())

    def test_an_error_that_cannot_be_pickled(self, engine):
        class Odd(Exception):
            def __init__(self, one, two):
                super().__init__(f"{one} {two}")
                self.held = threading.Lock()

        def fn(sample):
            raise Odd(sample, "odd")

        with pytest.raises(Exception, match="0 odd"):
            list(map_samples(fn, numbers(), **engine)())

    @pytest.mark.parametrize("on_error", ["raise", "skip"])
    def test_an_exit_is_not_swallowed(self, engine, on_error):
        def fn(sample):
            raise SystemExit(7)

        with pytest.raises((SystemExit, jreader.ReaderError), match="7"):
            list(map_samples(fn, numbers(), on_error=on_error, **engine)())

    def test_a_function_that_cannot_travel_says_what_to_do(self, processes):
        lock = threading.Lock()
        with pytest.raises(TypeError, match="cannot pickle") as caught:
            list(map_samples(lambda n: (n, lock), numbers(), executor=processes)())
        assert "locks and connections are opened inside the function" in caught.value.__notes__[-1]

    @pytest.mark.parametrize("on_error", ["raise", "skip"])
    def test_a_module_that_a_worker_cannot_import_is_named(self, processes, tmp_path, on_error):
        (tmp_path / "only_here.py").write_text("def fn(n):\n    return n\n")
        sys.path.insert(0, str(tmp_path))
        try:
            fn = importlib.import_module("only_here").fn
        finally:
            sys.path.remove(str(tmp_path))
        with pytest.raises(ModuleNotFoundError, match="only_here") as caught:
            list(map_samples(fn, numbers(), executor=processes, on_error=on_error)())
        assert "its modules must be there" in "".join(caught.value.__notes__)
        assert list(map_samples(abs, numbers(), executor=processes)()) == [*range(20)]

    def test_a_result_that_cannot_travel_says_what_to_do(self, processes):
        with pytest.raises(Exception, match="pickle") as caught:
            list(map_samples(lambda n: (n for n in "ab"), numbers(), executor=processes)())
        assert "map it to arrays" in str(caught.value)
        assert "raised by <lambda>(0) in map_samples" in caught.value.__notes__[-1]


class TestSkipping:
    """`on_error="skip"`: bad samples are left out, counted and told of; positions stay exact."""

    def skipping(self, count=20, *wrong, **engine):
        return map_samples(bad(*wrong), numbers(count), on_error="skip", **engine)

    def test_one_warning_when_the_pass_ends(self, engine):
        with pytest.warns(UserWarning, match=r"3 of 100 samples .* 4 \(ValueError\('bad 4'\)\)"):
            got = list(self.skipping(100, 4, 50, 99, **engine)())
        assert got == [2 * n for n in range(100) if n not in (4, 50, 99)]

    def test_clean_data_warn_of_nothing(self, engine):
        assert len(list(self.skipping(**engine)())) == 20

    def test_positions_are_exact(self, engine):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole = see(self.skipping(20, 3, 4, 19))
            assert seen(self.skipping(20, 3, 4, 19, **engine)) == seen(self.skipping(20, 3, 4, 19))
            for place, position in enumerate(whole.positions):
                rest = see(self.skipping(20, 3, 4, 19, **engine), position)
                assert rest.samples == whole.samples[place:]

    def test_too_many_are_an_error_that_lists_them_all(self, engine):
        items = map_samples(bad(4, 9, 17), numbers(), on_error="skip", max_errors=2, **engine)()
        assert len(list(islice(items, 15))) == 15
        with pytest.raises(ValueError, match="bad 17") as caught:
            next(items)
        told = "\n".join(caught.value.__notes__)
        assert "sample 17 is one more than max_errors=2" in told
        assert "4 (ValueError('bad 4')), 9 (ValueError('bad 9'))" in told

    def test_an_error_of_the_source_is_not_skipped(self, engine):
        def source():
            yield 0
            raise KeyError("source")

        with pytest.raises(KeyError, match="source"):
            list(map_samples(str, source, on_error="skip", **engine)())
