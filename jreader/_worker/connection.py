"""The connection between a program and its worker processes: frames over a socket.

A frame is its size (8 bytes) and a pickled tuple of plain values. Users' objects (functions,
samples, errors) are in it as bytes, which are unpickled where their errors can be reported.
Descriptors of shared memory travel beside the frame that mentions them.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import traceback
from array import array
from collections import deque
from collections.abc import Iterator
from typing import Any

from jreader._worker.unpickling import unpickled

_SIZE = struct.Struct("<Q")
_READ_SIZE = 1 << 16  # bytes per read; the large size once a large frame has begun
_LARGE_READ = 1 << 20
_SPACE = getattr(socket, "CMSG_SPACE", int)  # not on Windows, where none of this runs
_ANCILLARY = _SPACE(64 * array("i").itemsize)  # room for more descriptors than a frame has
_FLAGS = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # or a user's child would hold our memory


def to_frame(message: tuple[Any, ...]) -> bytes:
    """Return the bytes for a message of plain values: its size, and its pickle."""
    data = pickle.dumps(message, protocol=5)
    return _SIZE.pack(len(data)) + data


def ancillary(descriptors: list[int]) -> list[tuple[int, int, bytes]]:
    """Return file descriptors as the ancillary data of `sendmsg`."""
    if not descriptors:
        return []
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors).tobytes())]


def send(connection: socket.socket, message: tuple[Any, ...], descriptors: list[int]) -> None:
    """Send a message and descriptors, and close these; do nothing if the peer is gone."""
    frame = memoryview(to_frame(message))
    try:
        connection.sendall(frame[connection.sendmsg([frame], ancillary(descriptors)) :])
    except (BrokenPipeError, ConnectionResetError):
        pass  # the other side is gone: the reader notices
    except OSError:  # the peer would wait for ever, but sees that this process ends
        traceback.print_exc()
        os._exit(os.EX_OSERR)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


class FrameReceiver:
    """Joins frames that arrive in pieces, with the descriptors sent along.

    Attributes:
        open: Whether more may arrive.
        descriptors: The received descriptors that were not taken yet, in order.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.open = True
        self.descriptors: deque[int] = deque()
        self._data = bytearray()

    def receive(self, *, wait: bool) -> bool:
        """Read what has arrived; return False if there is nothing, or the other side has closed."""
        flags = _FLAGS | (0 if wait else socket.MSG_DONTWAIT)
        try:
            # `socket.recv_fds` ignores its flags
            data, beside, _, _ = self.connection.recvmsg(
                _READ_SIZE if len(self._data) < _READ_SIZE else _LARGE_READ, _ANCILLARY, flags
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

    def frames(self) -> Iterator[tuple[Any, ...]]:
        """Yield the messages that have arrived completely."""
        while len(self._data) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._data)
            if len(self._data) < _SIZE.size + size:
                return
            with memoryview(self._data)[_SIZE.size : _SIZE.size + size] as frame:
                message = unpickled(frame)
            del self._data[: _SIZE.size + size]
            yield message

    def next_frame(self) -> tuple[Any, ...] | None:
        """Wait for the next message; return None once the other side has closed."""
        while True:
            for message in self.frames():
                return message
            if not self.receive(wait=True):
                return None

    def close(self) -> None:
        """Close the received descriptors that were never taken."""
        self.open = False
        while self.descriptors:
            os.close(self.descriptors.popleft())
