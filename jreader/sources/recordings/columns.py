"""The frames of recordings, and clips of them, as columns: decoded when they are asked for."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import prod
from typing import Any, Protocol, TypeAlias

import numpy as np

from jreader.cores import usable_cores
from jreader.errors import ReaderError
from jreader.readers.columns import Array, ArrayColumn, Column, Where, offsets_of
from jreader.readers.joined_columns import found
from jreader.sources.file_checks import check_unpacked, damaged
from jreader.sources.files.byte_ranges import ByteFile, FileObject
from jreader.sources.files.kept_indices import in_threads
from jreader.sources.files.set_indices import SetIndex
from jreader.sources.files.stored_files import Latest

_OPEN = 64  # recordings that stay open: to open one may cost as much as to decode a second of it
_AT_ONCE = 1 << 20  # bytes that are decoded at once where clips are wanted one by one
_THREADS = max(usable_cores() // 4, 1)  # for each of the four batches that a pass has on their way


class Recording(Protocol):
    """A recording that is open; one thread at a time reads from it."""

    def read(self, first: int, out: Array) -> None:
        """Fills `out` with the frames from `first` on; what it raises becomes DamagedData."""


Open: TypeAlias = Callable[[io.BufferedReader, Array], Recording]
"""Opens a recording, given its bytes, and what was found when it was looked at."""


class Frames(ArrayColumn):
    """A column of the frames of all recordings, end to end.

    A recording stays open for the next clip of it, for one thread at a time.

    Args:
        files: The files.
        index: What was found in each.
        counts: How many frames each has.
        frame: The shape and the dtype of one frame.
        opener: Opens one.
        expected: What errors say that a file should be.
    """

    late = True

    def __init__(
        self,
        files: Latest[ByteFile],
        index: SetIndex,
        counts: Array,
        frame: tuple[tuple[int, ...], Any],
        opener: Open,
        expected: str,
    ) -> None:
        self.files, self.counts, self.starts = files, counts, offsets_of(counts)
        self.dtype, self.shape = np.dtype(frame[1]), (int(self.starts[-1]), *frame[0])
        self._index, self._open, self._expected = index, opener, expected
        self._free = OrderedDict[int, tuple[FileObject, Recording]]()
        self.at_once = max(_AT_ONCE // self.bytes_of(1), 1)

    def __getstate__(self) -> dict[str, Any]:
        """Without the recordings that are open."""
        return {**vars(self), "_free": OrderedDict()}

    def bytes_of(self, frames: int) -> int:
        """How many bytes so many frames have."""
        return frames * prod(self.shape[1:]) * self.dtype.itemsize

    def spans(self, begins: Array, ends: Array) -> Iterator[Array]:
        """The frames from each begin to its end, which may lie in several recordings."""
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            file = min(int(self.starts.searchsorted(begin, "right")), len(self.counts)) - 1
            check_unpacked(self.files[file].path, self.bytes_of(end - begin), self.files[file].size)
            taken, done = np.empty((end - begin, *self.shape[1:]), self.dtype), 0
            while done < len(taken):
                first = begin + done - int(self.starts[file])
                part = taken[done : done + int(self.counts[file]) - first]
                self.read(file, first, part)
                done, file = done + len(part), file + 1
            yield taken

    def gather(self, rows: Array) -> Array:
        """Those frames; runs of them are decoded at once."""
        runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(rows) else []
        begins, ends = (np.array([run[at] for run in runs], np.int64) for at in (0, -1))
        empty = np.empty((0, *self.shape[1:]), self.dtype)
        return np.concatenate([empty, *self.spans(begins, ends + 1)])

    def where(self, rows: Array) -> list[Where]:
        """The file of each."""
        return [Where(self.files[file].path, 0) for file in found(self.starts, rows)[0]]

    def read(self, number: int, first: int, out: Array) -> None:
        """Fills an array with the frames of a recording from `first` on.

        Raises:
            DamagedData: The file cannot be decoded, or has changed.
        """
        if not len(out):
            return
        file = self.files[number]
        raw, recording = self._free.pop(number, None) or (FileObject(file), None)
        with decoding(raw, self._expected, f"frame {first:,}: "):
            if recording is None:
                known = self._index.values[slice(*self._index.begins[number : number + 2])]
                recording = self._open(io.BufferedReader(raw, file.near), known)
            recording.read(first, out)
        self._free[number] = raw, recording
        with suppress(KeyError):  # another thread was quicker
            while len(self._free) > _OPEN:
                self._free.popitem(last=False)


class Clips(Column):
    """A column of clips of one size: clip i of a recording begins at its frame i * stride.

    Args:
        frames: The frames of all recordings.
        name: The field that holds those of a clip.
        size: How many a clip has.
        stride: How many lie between the begins of two clips.
    """

    late = True

    def __init__(self, frames: Frames, name: str, size: int, stride: int) -> None:
        self.frames, self.name, self.size, self.stride = frames, name, size, stride
        self.starts = offsets_of(np.maximum((frames.counts - size) // stride + 1, 0))
        self.at_once = max(_AT_ONCE // frames.bytes_of(size), 1)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def left_out(self) -> int:
        """How many frames at the ends of recordings are in no clip."""
        clips = np.diff(self.starts)
        ends = np.where(clips, (clips - 1) * self.stride + self.size, 0)
        return int((self.frames.counts - ends).sum())

    def gather(self, rows: Array) -> dict[str, Array]:
        """Those clips, and for each the number of its file, and its first frame."""
        files, begins = self._places(rows)
        taken = np.empty((len(rows), self.size, *self.frames.shape[1:]), self.frames.dtype)

        def fill(some: Array) -> None:
            for at in some.tolist():
                self.frames.read(int(files[at]), int(begins[at]), taken[at])

        order = np.lexsort((begins, files))  # a decoder that goes on need not seek
        in_threads(fill, np.array_split(order, min(_THREADS, max(len(rows), 1))))
        return {self.name: taken, "file": files, "begin": begins}

    def where(self, rows: Array) -> list[Where]:
        """The file of each."""
        return [Where(self.frames.files[file].path, 0) for file in self._places(rows)[0]]

    def _places(self, rows: Array) -> tuple[Array, Array]:
        files, number = found(self.starts, rows)
        return files, number * self.stride


@contextmanager
def decoding(raw: FileObject, expected: str, said: str = "") -> Iterator[None]:
    """Whatever a decoder raises that reads from a file becomes DamagedData, which names the file.

    >>> from jreader.sources.files import open_file
    >>> raw = FileObject(open_file(__file__))
    >>> try:
    ...     with decoding(raw, "a video file", "frame 3: "):
    ...         int(raw.read(3))
    ... except ReaderError as error:
    ...     str(error).partition(" is ")[2][:50]
    'truncated, or not a video file: frame 3: invalid l'
    """
    try:
        yield
    except (ReaderError, MemoryError):
        raise
    except Exception as error:  # a decoder in C may hide what a read has raised
        raise raw.error or damaged(raw.file.path, expected, f"{said}{error}") from error
