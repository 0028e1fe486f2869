"""Frames: what processes send each other, and what crosses with them.

A frame is its size (8 bytes) and a pickled tuple of plain things; what users made (functions,
samples, errors) is in it as bytes, which are unpickled where an error of theirs can be told.
Descriptors of shared memory travel beside the frame that speaks of them.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import socket
import struct
import traceback
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import numpy as np

from jreader._worker.captured_state import draws, held_as, moving
from jreader.errors import ReaderError, noted, warn
from jreader.readers import described
from jreader.readers.overlaps import below
from jreader.staging import Array

NUMBER = struct.Struct("<Q")
WORTH = 1 << 16  # bytes of an array; a smaller one costs less inside the frame

_AT_ONCE = 1 << 16  # bytes read in one go; many more, where a large frame is on its way
_MANY = 1 << 20
_SPACE = getattr(socket, "CMSG_SPACE", int)  # not on Windows, where none of this runs
_BESIDE = _SPACE(64 * array("i").itemsize)  # for more descriptors than a frame has
_FLAGS = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # else a child of the user's would hold our memory


def packed(message: tuple[Any, ...]) -> bytes:
    """A message of plain things as a frame."""
    data = pickle.dumps(message, protocol=5)
    return NUMBER.pack(len(data)) + data


def beside(descriptors: list[int]) -> list[tuple[int, int, bytes]]:
    """What `sendmsg` takes to send descriptors along."""
    if not descriptors:
        return []
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors).tobytes())]


def send(connection: socket.socket, message: tuple[Any, ...], descriptors: list[int]) -> None:
    """Sends a frame, with descriptors, which it closes; in vain where nobody listens any more."""
    frame = memoryview(packed(message))
    try:
        connection.sendall(frame[connection.sendmsg([frame], beside(descriptors)) :])
    except (BrokenPipeError, ConnectionResetError):
        pass  # the other side is gone, which whoever reads is told
    except OSError:  # it would wait for this frame for ever: but it sees the end of a process
        traceback.print_exc()
        os._exit(os.EX_OSERR)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


class Arrivals:
    """Frames that arrive in pieces, with the descriptors sent along."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.open = True
        self.descriptors: deque[int] = deque()
        self._data = bytearray()

    def read(self, *, wait: bool) -> bool:
        """Takes what has arrived; false where nothing waits, or nothing will come any more."""
        flags = _FLAGS | (0 if wait else socket.MSG_DONTWAIT)
        try:
            # not `socket.recv_fds`, which forgets its flags
            data, beside, _, _ = self.connection.recvmsg(
                _AT_ONCE if len(self._data) < _AT_ONCE else _MANY, _BESIDE, flags
            )
        except BlockingIOError:
            return False
        except OSError:  # the other side is gone, or this one was closed
            data, beside = b"", []
        for _, _, descriptors in beside:
            self.descriptors.extend(array("i", descriptors))
        self._data += data
        self.open = bool(data)
        return self.open

    def whole(self) -> Iterator[tuple[Any, ...]]:
        """The frames that are here whole."""
        while len(self._data) >= NUMBER.size:
            (size,) = NUMBER.unpack_from(self._data)
            if len(self._data) < NUMBER.size + size:
                return
            with memoryview(self._data)[NUMBER.size : NUMBER.size + size] as frame:
                message = pickle.loads(frame)  # noqa: S301  # from our own process
            del self._data[: NUMBER.size + size]
            yield message

    def next(self) -> tuple[Any, ...] | None:
        """The next frame, waited for; None once the other side has closed."""
        while True:
            for message in self.whole():
                return message
            if not self.read(wait=True):
                return None

    def close(self) -> None:
        """Lets go what arrived and was never asked for."""
        self.open = False
        while self.descriptors:
            os.close(self.descriptors.popleft())


def pickled(value: object, what: str, taken: list[pickle.PickleBuffer] | None = None) -> bytes:
    """A user's value as bytes; the memory of its large arrays is put into `taken`, if given.

    Raises:
        TypeError: It cannot be pickled.
    """
    take = None if taken is None else large(taken)
    try:
        return pickle.dumps(value, protocol=5, buffer_callback=take)
    except Exception:
        if taken is not None:
            taken.clear()
        try:
            return bytes(cloudpickle.dumps(value, protocol=5, buffer_callback=take))
        except Exception as error:
            raise TypeError(
                f"the {what} {described(value)} cannot be sent from a worker process ({error}): "
                f"map it to arrays, numbers, texts, or containers of them inside the process"
            ) from error


class Sender(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles what workers are sent, windows over an array as the array and its strides.

    Args:
        room: A file.
        take: The `buffer_callback` of pickle.
        function: What is called again and again, if that is what is sent: it may hold nothing that
            moves on, of which each worker would have a copy.
    """

    def __init__(self, room: Any, take: Any = None, function: Any = None) -> None:
        super().__init__(room, protocol=5, buffer_callback=take)
        self.function = self.latest = function
        self.still: set[type] = set()
        self.drawing: Any = None  # a generator of random numbers

    def reducer_override(self, obj: Any) -> Any:
        if self.function is not None:
            self.latest = obj
            self._check_still(obj)
        if type(obj) is np.ndarray and (found := below(obj)):
            stored, offset = found
            layout = obj.dtype, obj.shape, offset, obj.strides, obj.flags.writeable
            return _strided, (stored, *layout)
        return super().reducer_override(obj)

    def _check_still(self, obj: Any) -> None:
        """Refuses what each worker would have a copy of that moves on by itself."""
        if type(obj) in self.still:
            return
        if kind := moving(obj):
            raise TypeError(
                f"{held_as(self.function, obj)} is {kind}, and each worker process would have a "
                f"copy, and read it from the same place on: make it inside the function, or use "
                f"threads (threads=n)."
            )
        if draws(obj):
            self.drawing = obj
        elif not isinstance(obj, io.IOBase):
            self.still.add(type(obj))


def _strided(
    stored: Array,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    offset: int,
    strides: tuple[int, ...],
    writeable: bool,
) -> Array:
    array: Array = np.ndarray(shape, dtype, stored, offset, strides)
    array.flags.writeable = writeable and array.flags.writeable
    return array


def sent(value: object, take: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    """What a worker is sent, functions too; `take` is the `buffer_callback` of pickle.

    An array whose rows overlap (windows, one row for all) takes the bytes that it lies over.

    >>> windows = np.lib.stride_tricks.sliding_window_view(np.arange(999), 500)
    >>> windows.nbytes, len(sent(windows)) < 9000
    (2000000, True)
    """
    room = io.BytesIO()
    Sender(room, take).dump(value)
    return room.getvalue()


def sent_function(fn: Any, take: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    """The same for a function, which workers call again and again.

    Raises:
        TypeError: It holds an open file, or an iterator: each worker would go on with its own.
    """
    room = io.BytesIO()
    sender = Sender(room, take, fn)
    try:
        sender.dump(fn)
    except Exception as error:
        if not moving(sender.latest):
            noted(error, f"what cannot be sent is {held_as(fn, sender.latest)}")
        raise
    if sender.drawing is not None:
        warn(
            f"{held_as(fn, sender.drawing)} is a generator of random numbers, and each worker "
            f"process has a copy, which draws the same ones: write map(fn, rng=True), whose "
            f"generator belongs to the sample, or make one from the sample's number."
        )
    return room.getvalue()


def large(taken: list[pickle.PickleBuffer]) -> Callable[[pickle.PickleBuffer], bool]:
    """A `buffer_callback` of pickle that puts what is worth a place of its own into a list."""

    def take(buffer: pickle.PickleBuffer) -> bool:
        with buffer.raw() as view:
            small = view.nbytes < WORTH
        if not small:
            taken.append(buffer)
        return small

    return take


def pickled_error(error: BaseException) -> bytes:
    """The error with its traceback as a note; only its traceback where it cannot travel."""
    told = "".join(traceback.format_exception(error))
    return pickle.dumps((_travelling(error, told) if isinstance(error, Exception) else b"", told))


def _travelling(error: Exception, told: str) -> bytes:
    said = None
    with contextlib.suppress(Exception):  # of classes that a user wrote
        said = str(error)
    try:
        error.add_note(f"in a worker process:\n{told}")
    except Exception:  # a frozen one: as text, it has its traceback
        return b""
    found = []
    for sent in (error, _Bare(error)):
        with contextlib.suppress(Exception):
            data = bytes(cloudpickle.dumps(sent))
            made = pickle.loads(data)  # noqa: S301  # our own
            if isinstance(made, type(error)):
                found.append(data)
                if str(made) == said:  # an __init__ that makes the message would do it twice
                    return data
    return next(iter(found), b"")


def unpickled_error(data: bytes) -> Exception:
    """The error that a process sent, or one of ours that tells it where it cannot be made here."""
    sent, told = pickle.loads(data)  # noqa: S301  # from our own process
    reason = ""
    if sent:
        try:
            error = pickle.loads(sent)  # noqa: S301  # likewise
            if isinstance(error, Exception):
                return error
            reason = f": it became {described(error)}"
        except Exception as failed:  # its module is only there, its class opens a file, ...
            reason = f": {type(failed).__name__}: {failed}"
    made = ReaderError(f"a worker process raised:\n{told}")
    if reason:
        made.add_note(f"its own class cannot be made here{reason}")
    return made


class _Bare:
    """An error whose class cannot be called with its `args`, as an own `__init__` makes it."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _revived, (type(self.error), self.error.args, self.error.__dict__)


def _revived(kind: type[Exception], args: tuple[Any, ...], state: dict[str, Any]) -> Exception:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error
