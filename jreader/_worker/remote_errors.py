"""Errors of workers, sent to the program and raised there, with the traceback as a note."""

from __future__ import annotations

import contextlib
import pickle
import traceback
from typing import Any

import cloudpickle

from jreader._worker.unpickling import unpickled
from jreader.errors import ReaderError
from jreader.readers import described


def pickled_error(error: BaseException) -> bytes:
    """Pickle an error with its traceback as a note; only the traceback if pickle cannot."""
    trace = "".join(traceback.format_exception(error))
    return pickle.dumps(
        (_pickled_if_possible(error, trace) if isinstance(error, Exception) else b"", trace)
    )


def _pickled_if_possible(error: Exception, trace: str) -> bytes:
    message = None
    with contextlib.suppress(Exception):  # a user's class may raise
        message = str(error)
    try:
        error.add_note(f"in a worker process:\n{trace}")
    except Exception:  # a frozen one: as text, it has its traceback
        return b""
    found = []
    for one in (error, _WithoutInit(error)):
        with contextlib.suppress(Exception):
            data = bytes(cloudpickle.dumps(one))
            made = unpickled(data)
            if isinstance(made, type(error)):
                found.append(data)
                if str(made) == message:  # an __init__ that makes the message would do so twice
                    return data
    return next(iter(found), b"")


def unpickled_error(data: bytes) -> Exception:
    """Return the error that a worker sent, or a ReaderError that describes it."""
    one, trace = unpickled(data)
    reason = ""
    if one:
        try:
            error = unpickled(one)
            if isinstance(error, Exception):
                return error
            reason = f": it became {described(error)}"
        except Exception as failed:  # its module is only there, its class opens a file, ...
            reason = f": {type(failed).__name__}: {failed}"
    made = ReaderError(f"a worker process raised:\n{trace}")
    if reason:
        made.add_note(f"its own class cannot be made here{reason}")
    return made


class _WithoutInit:
    """Pickles an error whose class cannot be called with its `args`, as if it had no `__init__`."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_without_init, (type(self.error), self.error.args, self.error.__dict__)


def _made_without_init(
    kind: type[Exception], args: tuple[Any, ...], state: dict[str, Any]
) -> Exception:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error
