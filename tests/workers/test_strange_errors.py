"""Errors and results whose classes are strange: name, message and the worker's lines arrive."""

from __future__ import annotations

import importlib
import sys

import pytest
from engines import numbers

from jreader import DataLoader, Dataset, ReaderError, map_samples, multiprocess_reader
from jreader.workers import fetch_batches

STRANGE = '''
class Fussy(Exception):
    """It is not made of its args."""

    def __init__(self, what, *, where):
        super().__init__(f"{what} at {where}")


class Twice(Exception):
    """To make it of its args would make its message of its message."""

    def __init__(self, what):
        super().__init__(f"seen: {what}")


class Reading(Exception):
    """To make it opens a file that is not there."""

    def __reduce__(self):
        return open, ("/no/such/file",)


class Nothing(Exception):
    """It becomes something else."""

    def __reduce__(self):
        return int, ()


class Frozen(Exception):
    def __setattr__(self, name, value):
        raise AttributeError(name)


class Locked(Exception):
    def __init__(self, what):
        super().__init__(what)
        self.lock = __import__("threading").Lock()


class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")


class Value:
    """What it is made of cannot be had where it is not."""

    def __init__(self, how):
        self.how = how

    def __reduce__(self):
        return self.how, ("/no/such/file",)
'''

RAISED = {
    "Fussy": 'strange.Fussy("tea", where="noon")',
    "Twice": 'strange.Twice("tea at noon")',
    "Reading": 'strange.Reading("tea at noon")',
    "Nothing": 'strange.Nothing("tea at noon")',
    "Frozen": 'strange.Frozen("tea at noon")',
    "Locked": 'strange.Locked("tea at noon")',
    "Elsewhere": 'strange.Elsewhere("tea at noon")',
    "OSError": 'OSError("tea at noon")',
}


def raising(text, folder):
    """A function that raises for sample 3 what only a worker can make."""

    def fn(sample):
        if sample == 3:
            import os  # noqa: PLC0415  # there

            sys.path.insert(0, folder)
            strange = importlib.import_module("strange")
            sys.path.remove(folder)
            if os.getpid() != here:
                strange.Elsewhere = type("Elsewhere", (Exception,), {"__module__": "strange"})
            raise eval(text, {"strange": strange})  # one of those above
        return sample

    here = __import__("os").getpid()
    return fn


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "strange.py").write_text(STRANGE)
    monkeypatch.delitem(sys.modules, "strange", raising=False)
    yield str(tmp_path)
    sys.modules.pop("strange", None)


THEIRS = pytest.mark.filterwarnings("ignore")  # what engines warn of
CLUSTERS = [
    pytest.param("dask", marks=[THEIRS, pytest.mark.slow]),  # test_clusters.py begins one
    pytest.param("ray", marks=[THEIRS, pytest.mark.peers]),
]


@pytest.fixture(params=["executor", "processes", "readers", "fetch_batches", *CLUSTERS])
def stream(request):
    """All samples of a function, made in other processes."""
    kind = request.param
    if kind == "executor":
        executor = request.getfixturevalue("processes")
    elif kind == "dask":
        executor = request.getfixturevalue("dask")
    elif kind == "ray":
        executor = request.getfixturevalue("ray")
    if kind == "processes":
        return lambda fn: list(map_samples(fn, numbers(8), processes=2)())
    if kind == "readers":
        return lambda fn: list(multiprocess_reader([map_samples(fn, numbers(8))])())
    if kind == "fetch_batches":
        return lambda fn: list(fetch_batches(fn, numbers(8), process_num=2)())
    return lambda fn: list(map_samples(fn, numbers(8), executor=executor)())


class TestErrors:
    @pytest.mark.parametrize("kind", RAISED)
    def test_name_message_and_traceback_arrive(self, stream, folder, kind):
        with pytest.raises(Exception, match="tea at noon") as caught:
            stream(raising(RAISED[kind], folder))
        error = caught.value
        told = "\n".join([type(error).__name__, str(error), *getattr(error, "__notes__", [])])
        assert kind in told
        assert "tea at noon" in told
        assert "raise eval(text" in told
        assert type(error) is ReaderError or type(error).__name__ == kind

    def test_from_the_data_set_of_a_loader_with_workers(self, folder):
        class Rows(Dataset):
            def __init__(self):
                self.fn = raising(RAISED["Elsewhere"], folder)

            def __getitem__(self, index):
                return self.fn(index)

            def __len__(self):
                return 8

        with pytest.raises(ReaderError, match="Elsewhere: tea at noon") as caught:
            list(DataLoader(Rows(), batch_size=2, num_workers=2))
        assert "raise eval(text" in str(caught.value)

    def test_an_error_whose_str_raises(self, stream, folder):
        with pytest.raises(Exception) as caught:  # noqa: PT011  # it has no words
            stream(raising("strange.Mute()", folder))
        told = "\n".join(getattr(caught.value, "__notes__", []))
        assert "raise eval(text" in told or "raise eval(text" in str(caught.value)

    def test_one_that_is_made_of_its_message_says_it_once(self, stream, folder):
        with pytest.raises(Exception) as caught:  # noqa: PT011  # as follows
            stream(raising(RAISED["Twice"], folder))
        assert str(caught.value).count("seen:") == 1 or type(caught.value) is ReaderError


class TestResults:
    def test_one_that_cannot_be_read_here_is_told_and_is_no_loss(self, stream, folder):
        def fn(sample):
            sys.path.insert(0, folder)
            strange = importlib.import_module("strange")
            return strange.Value(open) if sample == 3 else sample

        with pytest.raises(FileNotFoundError) as caught:
            stream(fn)
        assert "unpickled" in "".join(caught.value.__notes__)

    def test_one_that_cannot_be_sent_names_the_sample(self, stream):
        def fn(sample):
            return (each for each in "ab") if sample == 3 else sample

        with pytest.raises(TypeError, match="cannot be sent from a worker process") as caught:
            stream(fn)
        told = "".join(caught.value.__notes__)
        assert "fn(3)" in told or "reader 0" in told or "fn" in told
