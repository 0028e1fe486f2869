"""The frames and clips of recordings as columns, decoded on demand, and a reader of both."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from jreader.errors import ReaderError, check_flag, check_number, warn
from jreader.readers import argument, op
from jreader.readers.columns import Array, ArrayColumn, Column, Where, offsets_of
from jreader.readers.joined_columns import locate
from jreader.readers.memos import keep_latest
from jreader.readers.ragged import Ragged
from jreader.sources.columns import FileTable
from jreader.sources.file_checks import check_unpacked, damaged
from jreader.sources.files.block_store import Store, checked_store
from jreader.sources.files.byte_ranges import ByteFile, FileObject
from jreader.sources.files.file_readers import FileReader
from jreader.sources.files.index_cache import FileIndex
from jreader.sources.files.set_indices import SetIndex
from jreader.sources.files.stored_files import Latest

_OPEN = 1 << 29  # bytes held by recordings that stay open: opening one may take a second
_CHUNK = 1 << 20  # bytes to decode at a time when clips are requested one by one


class Recording(Protocol):
    """An open recording; one thread at a time reads it.

    Attributes:
        held: About how many bytes it holds while open.
    """

    held: int

    def read(self, first: int, out: Array) -> None:
        """Fill `out` with the frames from `first` on; errors become DamagedData."""


Open: TypeAlias = Callable[[io.BufferedReader, Array], Recording]
"""Opens a recording, given its bytes and its index."""

Measured: TypeAlias = tuple[Array, tuple[tuple[int, ...], Any]]
"""The number of frames in each recording, and the shape and dtype of a frame."""


class Frames(ArrayColumn):
    """A column of the frames of all recordings, concatenated.

    A recording stays open for its next clip; one thread at a time uses it.

    Args:
        files: The files.
        index: The index of each file.
        measured: The number of frames in each file, and the shape and dtype of a frame.
        opener: Opens a recording.
        name: The expected format, for errors.
    """

    late = True

    def __init__(
        self, files: Latest[ByteFile], index: SetIndex, measured: Measured, opener: Open, name: str
    ) -> None:
        self.counts, (shape, dtype) = measured
        self.files, self.starts, self.dtype = files, offsets_of(self.counts), np.dtype(dtype)
        self.shape = (int(self.starts[-1]), *shape)
        self._index, self._open, self._name = index, opener, name
        self._free = dict[int, tuple[FileObject, Recording]]()  # the latest is last
        self.at_once = max(_CHUNK // self.bytes_of(1), 1)

    def bytes_of(self, frames: int) -> int:
        """Return the size of so many frames in bytes."""
        return frames * prod(self.shape[1:]) * self.dtype.itemsize

    def spans(self, begins: Array, ends: Array) -> Iterator[Array]:
        """Yield the frames from each begin to its end, which may span several recordings."""
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
        """Return those frames; runs of them are decoded together."""
        begins = rows[np.diff(rows, prepend=-2) != 1]
        ends = rows[np.diff(rows, append=-2) != 1] + 1
        none = np.empty((0, *self.shape[1:]), self.dtype)
        return np.concatenate([none, *self.spans(begins, ends)])

    def where(self, rows: Array) -> list[Where]:
        """Return the file of each frame."""
        return [Where(self.files[file].path, 0) for file in locate(self.starts, rows)[0]]

    def read(self, number: int, first: int, out: Array) -> None:
        """Fill an array with the frames of a recording from `first` on.

        Raises:
            DamagedData: The file cannot be decoded, or has changed.
        """
        if not len(out):
            return
        file = self.files[number]
        raw, recording = self._free.pop(number, None) or (FileObject(file), None)
        with decoding(raw, self._name, f"frame {first:,}: "):
            if recording is None:
                known = self._index.values[slice(*self._index.begins[number : number + 2])]
                recording = self._open(io.BufferedReader(raw, file.near), known)
            recording.read(first, out)
        self._free[number] = raw, recording
        keep_latest(self._free, max(_OPEN // recording.held, 1))


class Clips(Column):
    """A column of clips of one size: clip i of a recording begins at its frame i * stride.

    Args:
        frames: The frames of all recordings.
        name: The field of the samples for the frames of a clip.
        size: Frames per clip.
        stride: The distance between the starts of two clips, in frames.
    """

    late = True

    def __init__(self, frames: Frames, name: str, size: int, stride: int) -> None:
        self.frames, self.name, self.size, self.stride = frames, name, size, stride
        self.starts = offsets_of(np.maximum((frames.counts - size) // stride + 1, 0))
        self.at_once = max(_CHUNK // frames.bytes_of(size), 1)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def left_out(self) -> int:
        """Return the number of frames at the ends of recordings that are in no clip."""
        clips = np.diff(self.starts)
        ends = np.where(clips, (clips - 1) * self.stride + self.size, 0)
        return int((self.frames.counts - ends).sum())

    def gather(self, rows: Array) -> dict[str, Array]:
        """Return those clips, and for each the number of its file and its first frame."""
        files, number = locate(self.starts, rows)
        begins = number * self.stride
        taken = np.empty((len(rows), self.size, *self.frames.shape[1:]), self.frames.dtype)
        before = None
        for at in np.lexsort((begins, files)).tolist():  # in file order, decoders need not seek
            file, first, known = int(files[at]), int(begins[at]), 0
            if before is not None and files[before] == file:  # overlapping clips share frames
                known = max(int(begins[before]) + self.size - first, 0)
                taken[at, :known] = taken[before, self.size - known :]
            self.frames.read(file, first + known, taken[at, known:])
            before = at
        return {self.name: taken, "file": files, "begin": begins}


@contextmanager
def decoding(raw: FileObject, expected: str, said: str = "") -> Iterator[None]:
    """Convert any error of a decoder to DamagedData, which names the file.

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
    except Exception as error:  # a decoder in C may hide the error of a read
        raise raw.error or damaged(raw.file.path, expected, f"{said}{error}") from error
    if raw.error is not None:  # or take the error for the end of the file
        raise raw.error


@op
class Recordings(FileReader[Any], FileTable[Any]):
    """Read recordings, or clips of them; a format inspects and decodes them.

    Attributes:
        kind: The subfolder of the cache folder for indices, and the field of the samples.
        expected: The expected format, for errors.
        index_rules: The version of the rules of `look`; a new version rebuilds stored indices.
        cut: The size and stride of clips, and whether frames may be dropped without a warning; None
            for whole recordings.
    """

    kind: ClassVar[str]
    expected: ClassVar[str]
    index_rules: ClassVar[str] = ""
    paths: tuple[str, ...]
    store: Store | None = argument(checked_store, default=None, cursor="never")
    cut: tuple[int, int, bool] | None = argument(default=None, cursor="if given")

    def look(self, stream: io.BufferedReader) -> Array:
        """Return the index of a file, as int64; called on several threads.

        Errors become DamagedData.
        """
        raise NotImplementedError(f"{type(self).__name__} must define look(self, stream)")

    def measured(self, index: SetIndex) -> Measured:
        """Return the number of frames in each file, and the shape and dtype of a frame.

        Args:
            index: The index of each file.

        Raises:
            ValueError: Frames differ between files.
        """
        raise NotImplementedError(f"{type(self).__name__} must define measured(self, index)")

    def opener(self) -> Open:
        """Return what opens recordings; it must not hold this reader, which holds its files."""
        raise NotImplementedError(f"{type(self).__name__} must define opener(self)")

    def opened(self) -> Any:
        """Return the recordings, or their clips; inspect the files unless the index is cached."""
        index = self.found_in_files(FileIndex(self.kind, self._look, asked=self.index_rules))
        measured = self.measured(index)
        frames = Frames(self.files, index, measured, self.opener(), self.expected)
        if self.cut is None:
            return {self.kind: Ragged(frames, frames.starts), "file": np.arange(len(self.paths))}
        size, stride, drop_last = self.cut
        clips = Clips(frames, self.kind, size, stride)
        if not drop_last and (left := clips.left_out()):
            warn(
                f"{self!r} leaves out {left:,} frames at the ends of {len(self.paths):,} "
                f"recordings, which fill no clip: type drop_last=True if they may be left out, or "
                f"read whole recordings, as {self.shown_call} does without windows.",
                self.made_at,
            )
        return clips

    def check_same(self, values: Array, what: str, needed: str) -> None:
        """Raise ValueError unless all files have the same value.

        Args:
            values: The value of each file.
            what: Its name, as in "number of channels".
            needed: What to type if they differ.
        """
        if other := int((values != values[0]).reshape(len(values), -1).any(axis=1).argmax()):
            said = [" x ".join(map("{:,}".format, np.ravel(values[at]))) for at in (0, other)]
            raise ValueError(
                f"{self.shown_call} needs files of one {what}, and {self.paths[0]} has {said[0]}, "
                f"{self.paths[other]} {said[1]}: type {needed}."
            )

    def windows(self, size: int, *, stride: float | None = None, drop_last: bool = False) -> Any:
        """Read clips of `size` frames.

        Each sample is a dict of the frames of a clip, the number of its `file` in `paths`, and its
        first frame there, `begin`. The reader is indexed: any clip is found by its number. The last
        frames of a recording are left out if they are too few for a clip.

        Args:
            size: Frames per clip.
            stride: The distance between the starts of two clips, in frames; None for `size`.
            drop_last: Whether to drop leftover frames without a warning.

        Raises:
            TypeError: A size is not a whole number, or this reader has clips already.
            ValueError: A size is less than one.
        """
        if self.cut is not None:
            raise TypeError(f"{self!r} has clips already: type windows(...) once.")
        call = f"windows(size, stride) of {self.shown_call}"
        size = check_number(f"size of {call}", size, 1)
        step = size if stride is None else check_number(f"stride of {call}", stride, 1)
        return self.changed({"cut": (size, step, check_flag(f"drop_last of {call}", drop_last))})

    def __repr__(self) -> str:
        """Return the calls that make this reader."""
        if self.cut is None:
            return super().__repr__()
        return f"{self.changed({'cut': None})!r}.windows({self.cut[0]}, stride={self.cut[1]})"

    def _look(self, file: ByteFile) -> Array:
        raw = FileObject(file)
        with decoding(raw, self.expected):
            return np.asarray(self.look(io.BufferedReader(raw, file.near)), np.int64)
