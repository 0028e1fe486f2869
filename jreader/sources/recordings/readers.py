"""`Recordings`: what readers of sounds and of videos share."""

from __future__ import annotations

import io
from typing import Any, ClassVar

import numpy as np

from jreader.errors import check_flag, check_number, warn
from jreader.readers import argument, op
from jreader.readers.columns import Array
from jreader.readers.ragged import Ragged
from jreader.sources.columns import FileTable
from jreader.sources.files.block_store import Store, checked_store
from jreader.sources.files.byte_ranges import ByteFile, FileObject
from jreader.sources.files.file_readers import FileReader
from jreader.sources.files.kept_indices import FileIndex
from jreader.sources.files.set_indices import SetIndex
from jreader.sources.recordings.columns import Clips, Frames, Open, decoding


@op
class Recordings(FileReader[Any], FileTable[Any]):
    """A reader of recordings, or of clips of them; a format says how to look at them and decode.

    Attributes:
        kind: The folder of the cache folder that keeps what was found, and the field of clips.
        expected: What errors say that a file should be.
        index_rules: By which rules `look` goes; with others, what was kept is found anew.
        cut: The size and the stride of clips, and whether they may leave out frames without a
            warning; None for whole recordings.
    """

    kind: ClassVar[str]
    expected: ClassVar[str]
    index_rules: ClassVar[str] = ""
    paths: tuple[str, ...]
    store: Store | None = argument(checked_store, default=None, cursor="never")
    cut: tuple[int, int, bool] | None = argument(default=None, cursor="if given")

    def look(self, stream: io.BufferedReader) -> Array:
        """What is kept of a file, as int64; called on several threads.

        What it raises becomes DamagedData.
        """
        raise NotImplementedError(f"{type(self).__name__} must define look(self, stream)")

    def measured(self, index: SetIndex) -> tuple[Array, tuple[tuple[int, ...], Any]]:
        """How many frames each file has, and the shape and dtype of one frame.

        Args:
            index: What was found in each file.

        Raises:
            ValueError: Frames differ from file to file.
        """
        raise NotImplementedError(f"{type(self).__name__} must define measured(self, index)")

    def opener(self) -> Open:
        """What opens recordings; it must not hold this reader, which holds its files."""
        raise NotImplementedError(f"{type(self).__name__} must define opener(self)")

    def opened(self) -> Any:
        """The recordings, or their clips; files are looked at, if what was found is not kept."""
        index = self.found_in_files(FileIndex(self.kind, self._look, asked=self.index_rules))
        counts, frame = self.measured(index)
        frames = Frames(self.files, index, counts, frame, self.opener(), self.expected)
        if self.cut is None:
            return {self.kind: Ragged(frames, frames.starts), "file": np.arange(len(counts))}
        size, stride, drop_last = self.cut
        clips = Clips(frames, self.kind, size, stride)
        if not drop_last and (left := clips.left_out()):
            warn(
                f"{self!r} leaves out {left:,} frames at the ends of {len(counts):,} recordings, "
                f"which fill no clip: type drop_last=True if they may be left out, or read whole "
                f"recordings, as {self.shown_call} does without windows.",
                self.made_at,
            )
        return clips

    def windows(self, size: int, *, stride: int | None = None, drop_last: bool = False) -> Any:
        """A reader of clips of `size` frames.

        Each sample is a dict of the frames of a clip, the number of its `file` in `paths`, and the
        frame at which it has its `begin` there. The reader is indexed: any clip is found by its
        number. The last frames of a recording, where they are too few for a clip, are left out.

        Args:
            size: How many frames a clip has.
            stride: How many frames lie between the begins of two clips; None for `size`.
            drop_last: Whether frames may be left out without a warning that tells how many.

        Raises:
            TypeError: A size is no whole number, or this is a reader of clips already.
            ValueError: A size is less than one.
        """
        if self.cut is not None:
            raise TypeError(f"{self!r} has clips already: type windows(...) once.")
        call = f"windows(size, stride) of {self.shown_call}"
        size = check_number(f"size of {call}", size, 1)
        stride = size if stride is None else check_number(f"stride of {call}", stride, 1)
        return self.changed({"cut": (size, stride, check_flag(f"drop_last of {call}", drop_last))})

    def __repr__(self) -> str:
        """The calls that make this reader."""
        if self.cut is None:
            return super().__repr__()
        size, stride, _ = self.cut
        return f"{self.changed({'cut': None})!r}.windows({size}, stride={stride})"

    def _look(self, file: ByteFile) -> Array:
        raw = FileObject(file)
        with decoding(raw, self.expected):
            return np.asarray(self.look(io.BufferedReader(raw, file.near)), np.int64)
