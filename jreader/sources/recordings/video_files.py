"""`video`: read frames of video files, decoded by FFmpeg, as clips that are found by number."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from io import BufferedReader

import numpy as np

from jreader.errors import check_sides
from jreader.readers import argument, op, whole
from jreader.readers.columns import Array
from jreader.sources.files.block_store import Store
from jreader.sources.files.file_readers import Paths
from jreader.sources.files.set_indices import SetIndex
from jreader.sources.recordings.recorded import Measured, Open, Recordings
from jreader.sources.recordings.video_frames import HEAD, VideoDecoder, frames_in, pyav


@op
class video(Recordings):
    """Read the frames of video files, decoded by FFmpeg: uint8[frames, height, width, 3].

    Sample i is file i: all of its frames, in RGB. For training, cut clips, which are found by
    number: `windows(16)` gives samples of 16 frames. Threads decode only the clips of a batch, from
    the key frame before, several batches ahead. You can shuffle clips as a whole, shard them, and
    resume at any clip.

    >>> clips = video("clips/*.mp4", size=112, every=2).windows(16)  # doctest: +SKIP
    >>> next(iter(clips.shuffle(seed=0).batch(8)))["video"].shape  # doctest: +SKIP
    (8, 16, 112, 112, 3)

    Frame i equals, bit by bit, the i-th frame of a decode from the beginning of the file: with open
    or closed groups of pictures, frames that refer to later ones, a variable frame rate, and edit
    lists that skip frames. Frames are rotated or mirrored as the file says. Sound is ignored, and
    so is the aspect ratio of pixels: they count as squares.

    The first pass demuxes the files, on several threads, and caches the times of frames and key
    frames in the index of the data set. AVI files of codecs that reorder frames, and VP8, do not
    have these: they are decoded once as a whole.

    Args:
        paths: A file, a folder (of the suffixes below), a pattern such as `"data/*.mp4"`, or a list
            of these. The files of a folder or pattern are sorted by name.
        size: The size to scale frames to, for both sides, or (height, width): frames keep their
            proportions, cover it, and are center-cropped. None if all files have the same size.
        every: The stride of the frames to read: 2 for frames 0, 2, 4, ...
        store: Caches blocks of remote files on disk (`Store`).

    Raises:
        ModuleNotFoundError: `python -m pip install 'jreader[video]'` is needed.
        TypeError: A path is neither a str nor an `os.PathLike`, or `size` or `every` is not a whole
            number.
        FileNotFoundError: A file does not exist, or a pattern or folder matches no file.
        ValueError: `size` or `every` is less than 1; or, when a pass begins, the sizes of frames
            differ, and `size` is None.
        DamagedData: When a pass begins: a file is truncated (as far as it states its length:
            MPEG-TS does not), is not a video, or has frames that would not fit into memory
            (`JREADER_UNPACKED_LIMIT`). When a frame is reached: the decoder detects that it is
            damaged.
    """

    shown_call = "video(paths, size, every)"
    suffixes = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".webm")
    kind = "video"
    expected = "a video file"
    size: tuple[int, int] | None = argument(check_sides, default=None, named=True, cursor="values")
    every: int = whole(default=1, least=1)

    def __init__(
        self,
        paths: Paths,
        *,
        size: int | Sequence[int] | None = None,
        every: int = 1,
        store: Store | None = None,
    ) -> None:
        pyav()  # otherwise the error would blame a file
        self.keep(paths, size=size, every=every, store=store)

    def look(self, stream: BufferedReader) -> Array:
        """Return the times of frames and of key frames, and the size."""
        return frames_in(stream).written()

    def measured(self, index: SetIndex) -> Measured:
        """Return the number of frames to read from each file, and their shape and dtype."""
        heads = index.values[index.begins[:-1, None] + np.arange(HEAD)]
        sides, many = heads[:, :2], heads[:, -2]
        if self.size is None:
            self.check_same(sides, "size of frames", "size=(height, width)")
        shape = self.size or tuple(sides[0].tolist())
        return -(-many // self.every), ((*shape, 3), np.uint8)

    def opener(self) -> Open:
        """Return the function that opens a file for decoding."""
        return partial(VideoDecoder, every=self.every, size=self.size)
