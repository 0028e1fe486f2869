"""Recordings of the simplest format: each frame is two bytes, and what was decoded is told."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import numpy as np
from kept_samples import FAST

from jreader.readers import op
from jreader.sources.recordings import Recordings

DECODED: list[tuple[int, int]] = []
"""The first frame and the number of frames of each read, in this process."""


class Bytes:
    """A recording of pairs of bytes, of which one thread at a time may read."""

    held = 1 << 20

    def __init__(self, stream, known):
        self.stream, self.known, self.turn = stream, known, threading.Lock()

    def read(self, first, out):
        assert self.turn.acquire(blocking=False), "two threads read from one recording"
        DECODED.append((first, len(out)))
        self.stream.seek(1 + 2 * first)
        given = self.stream.read(out.nbytes)
        if len(given) < out.nbytes:
            raise EOFError(f"only {len(given)} bytes follow")
        out[...] = np.frombuffer(given, np.uint8).reshape(out.shape)
        self.turn.release()


@op
class byte_recordings(Recordings):
    """Files of one byte, how many frames there are, and as many pairs of bytes."""

    shown_call = "byte_recordings(paths)"
    suffixes = (".pairs",)
    kind = "pairs"
    expected = "a file of pairs"

    def __init__(self, paths, *, store=None):
        self.keep(paths, store=store)

    def look(self, stream):
        return np.array([stream.read(1)[0]])

    def measured(self, index):
        return index.values, ((2,), np.uint8)

    def opener(self):
        return Bytes


FOLDER = tempfile.TemporaryDirectory(dir=FAST)  # until the tests end


def recorded(counts, folder=None):
    """Recordings of these numbers of frames; frame f of recording r is (r, f)."""
    paths = []
    for file, many in enumerate(counts):
        path = Path(folder or FOLDER.name, f"{file:03}-{many}.pairs")
        if not path.exists():
            frames = [(file % 256, frame % 256) for frame in range(many)]
            path.write_bytes(bytes([many]) + np.array(frames, np.uint8).tobytes())
        paths.append(path)
    return byte_recordings(paths)


def clips_recorded(counts, size, stride):
    """Clips of such recordings."""
    return recorded(counts).windows(size, stride=stride, drop_last=True)
