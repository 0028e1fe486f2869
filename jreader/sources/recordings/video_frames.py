"""Find video frames by number: each equals, bit by bit, that of a decode from the beginning.

A frame is identified by its presentation time. Packets list the times of all frames, and which of
them are key frames, so nothing has to be decoded to find them. Decoding begins at the key frame
before, in presentation order: frames that an open group of pictures shows before its key frame are
decoded from the previous one. Some formats seek badly, so packets are skipped until the key frame
comes, if necessary from the beginning of the file. And some decoders output a frame only if they
began earlier (H.264 that refreshes a part of the picture at a time); then decoding does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from io import SEEK_END, BufferedReader
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np

from jreader.extras import extra
from jreader.readers.columns import Array
from jreader.sources.file_checks import check_unpacked, most_unpacked
from jreader.sources.recordings.recorded import Recording

_NEAR = 8  # frames before a key frame from which decoding continues instead of seeking
_HIDDEN = ("vp8",)  # codecs whose packets may show no frame
HEAD = 7
"""How many numbers `written` puts before the times; the last two count times and keys."""


def pyav() -> Any:
    """Import PyAV.

    Raises:
        ModuleNotFoundError: It is not installed.
    """
    return extra("av", "video", "jreader.video(paths) needs PyAV")


class FrameIndex(NamedTuple):
    """The index of the frames of a file.

    Attributes:
        sides: Height and width in pixels, as displayed.
        turns: How to display a decoded picture: 1 if its sides are swapped; then -1 if rows are
            reversed; -1 if columns are.
        times: The presentation time of each frame, in display order.
        keys: The frame numbers of key frames, or of the frames that they precede.
        key_times: The presentation times of the key frames.
    """

    sides: tuple[int, int]
    turns: tuple[int, int, int]
    times: Array
    keys: Array
    key_times: Array

    def written(self) -> Array:
        """Pack the index into one int64 array."""
        head = *self.sides, *self.turns, len(self.times), len(self.keys)
        return np.concatenate([head, self.times, self.keys, self.key_times]).astype(np.int64)

    @classmethod
    def read(cls, written: Array) -> FrameIndex:
        """Unpack an index that was `written`."""
        height, width, swapped, down, across, many, keys = written[:HEAD].tolist()
        parts = np.split(written[HEAD:], [many, many + keys])
        return cls((height, width), (swapped, down, across), *parts)


class _Packet(NamedTuple):
    """The frame of a packet: its display time, whether it is a key frame or cut by an edit list."""

    time: Any
    key: bool
    cut: bool


class _OpenVideo:
    """An open video file: its FFmpeg container and video stream."""

    def __init__(self, stream: BufferedReader, *, strict: bool = False) -> None:
        self.bytes, self.size, self.av = stream, stream.seek(0, SEEK_END), pyav()
        self.limits = {"max_pixels": str(most_unpacked(self.size) // 3)}
        self.strict = {"err_detect": "explode"} if strict else {}
        self.open()

    def open(self) -> None:
        """Open the file at the beginning."""
        self.bytes.seek(0)
        self.container = self.av.open(self.bytes, options=self.limits)
        self.stream = self.container.streams.best("video")
        if self.stream is None or self.stream.codec_context is None:
            raise ValueError("it has no video that FFmpeg decodes")
        context = self.stream.codec_context
        path = cast("Any", self.bytes).raw.file.path
        check_unpacked(path, 3 * context.height * context.width, self.size)
        context.options, context.thread_count = self.limits | self.strict, 1
        # only this format counts frames, and its edit lists drop some
        counted = "mp4" in self.container.format.name
        self.least = len(self.stream.index_entries) if counted else 0

    def __del__(self) -> None:
        """Close the container: it is in a reference cycle of few objects, but many bytes."""
        if hasattr(self, "container"):
            self.container.close()

    def packets(self) -> Any:
        """Return the packets from here on; the last one is empty, and flushes the decoder."""
        return self.container.demux(self.stream)


def _stated_size(stream: BufferedReader) -> int:
    """Return the least file size stated by Matroska, WebM and AVI headers; 0 if none is.

    FFmpeg would take the end of a truncated file for the end of the video.
    """
    at = 0
    for name in (b"\x1aE\xdf\xa3", b"\x18S\x80g"):  # EBML: a header, and the rest
        stream.seek(at)
        head = stream.read(12).ljust(12, b"\xff")
        width = 9 - head[4].bit_length()  # of the size that follows
        size = int.from_bytes(head[4 : 4 + width]) % (1 << 7 * width)
        if head.startswith(name) and size + 1 < 1 << 7 * width:  # otherwise the size was unknown
            at += 4 + width + size
    stream.seek(at)
    while (head := stream.read(8)).startswith(b"RIFF") and head[4:] != b"\xff" * 4:
        at += 8 + int.from_bytes(head[4:], "little")
        stream.seek(at)
    return at


def frames_in(stream: BufferedReader) -> FrameIndex:
    """Index the frames of a file: demux all of it, and decode only if necessary.

    Raises:
        EOFError: There are fewer bytes or packets than the header states.
        ValueError: There is no video, no frame, or a rotation that is not a multiple of 90 degrees.
    """
    if (stated := _stated_size(stream)) > (size := stream.seek(0, SEEK_END)):
        raise EOFError(f"its header says {stated:,} bytes, and {size:,} are there")
    film, packets, picture = _OpenVideo(stream), list[_Packet](), None
    for packet in film.packets():
        if packet.size:
            packets.append(_Packet(packet.pts, packet.is_keyframe, packet.is_discard))
        if picture is None:
            picture = next(iter(packet.decode()), None)
    if film.least > len(packets):
        raise EOFError(f"only {len(packets):,} of {film.least:,} frames are there")
    times = _display_times(film, packets)
    if picture is None or None in times:
        raise ValueError("it has no frames, or frames without presentation times")
    turns, sides = _rotation(picture), (picture.height, picture.width)
    return FrameIndex(
        sides[::-1] if turns[0] else sides, turns, np.array(times), *_key_frames(times, packets)
    )


def _display_times(film: _OpenVideo, packets: list[_Packet]) -> list[Any]:
    """Return the times of the frames in display order."""
    if _packets_suffice(film, packets):
        return sorted(packet.time for packet in packets if not packet.cut)
    film.open()
    return [frame.pts for packet in film.packets() for frame in packet.decode()]


def _key_frames(times: list[int], packets: list[_Packet]) -> tuple[Array, Array]:
    """Return the numbers and times of the key frames, by increasing number."""
    shown, last = np.array(times), max(times)
    every = np.array([each.time for each in packets if each.key and each.time <= last])
    order = shown.argsort()
    numbers = order[shown.searchsorted(every, sorter=order)]
    rising = numbers.argsort()
    return numbers[rising], every[rising]


def _packets_suffice(film: _OpenVideo, packets: list[_Packet]) -> bool:
    """Return whether packets alone show which frames are displayed, and in which order."""
    times, context = [packet.time for packet in packets], film.stream.codec_context
    if None in times or len(set(times)) < len(times) or context.name in _HIDDEN:
        return False
    in_order = film.container.format.name != "avi" or not context.has_b_frames
    return in_order and packets[0].key and min(times) == times[0]


def _rotation(picture: Any) -> tuple[int, int, int]:
    """Return how to display a picture, from the display matrix of its file."""
    matrix = picture.side_data.get("DISPLAYMATRIX")
    if matrix is None:
        return 0, 1, 1
    a, b, c, d = np.sign(np.frombuffer(matrix, np.int32)[[0, 1, 3, 4]]).tolist()
    if (a, d) != (0, 0) != (b, c) or (a, d) == (b, c):
        raise ValueError("its frames are turned by less than a quarter: turn them with FFmpeg")
    return int(a == 0), b or d, a or c


class VideoDecoder(Recording):
    """An open video file, read at a stride of `every` frames, in one size.

    Args:
        stream: Its bytes.
        written: The index of its frames, as `written`.
        every: The stride of the frames to read.
        size: The height and width to scale to; None for those of the file.
    """

    def __init__(
        self, stream: BufferedReader, written: Array, every: int, size: tuple[int, int] | None
    ) -> None:
        self.frames, self.every, self.size = FrameIndex.read(written), every, size
        # strict decoders detect more damage, but reject some valid files of other codecs
        self._film = _OpenVideo(stream, strict=len(self.frames.times) == len(self.frames.keys))
        height, width = self.frames.sides
        self.held = 16 * height * width  # a decoder holds its reference pictures
        self._coming: Iterator[Any] = iter(())
        self._next = -_NEAR  # the number of the next frame
        self._reformat = self._film.av.video.reformatter.VideoReformatter().reformat

    def read(self, first: int, out: Array) -> None:
        """Fill `out` with frames, from number `first` on."""
        for number, row in enumerate(out, first):
            self._write_frame(self._frame(number * self.every), row)

    def _frame(self, number: int) -> Any:
        """Decode a frame, continuing from the current position or from an earlier key frame.

        Raises:
            EOFError: The decoder does not output it.
            ValueError: The decoder reports damage.
        """
        times, keys = self.frames.times, self.frames.keys
        key = max(int(keys.searchsorted(number, "right")) - 1, 0)
        begins: list[int | None] = [key, max(key - 1, 0), 0]
        if keys[key] - _NEAR <= self._next <= number:
            begins.insert(0, None)
        for begin in dict.fromkeys(begins):
            if begin is not None:
                self._next = int(keys[begin])
                self._begin(int(self.frames.key_times[begin]))
            for frame in self._coming:
                at = self._next
                if frame.pts == times[at]:
                    if frame.is_corrupt:
                        raise ValueError(f"frame {at:,} is damaged")
                    self._next += 1
                    if at == number:
                        return frame
                elif frame.pts in times[at:]:
                    break  # decoding cannot begin at this frame
        raise EOFError(f"frame {number:,} does not come out of the decoder")

    def _begin(self, time: int) -> None:
        """Start decoding at the key frame with a presentation time."""
        film = self._film
        for seek in (True, False):
            if seek:
                with suppress(film.av.FFmpegError):
                    film.container.seek(time, stream=film.stream)
            else:
                film.container.close()
                film.open()
            packets = film.packets()
            for packet in packets:
                if packet.is_keyframe and packet.pts == time:
                    every = chain([packet], packets)
                    self._coming = chain.from_iterable(each.decode() for each in every)
                    return
                if packet.dts is not None and packet.dts > time:
                    break
        raise EOFError(f"the key frame of time {time:,} is missing")

    def _write_frame(self, frame: Any, row: Array) -> None:
        """Write a frame into a row, oriented and scaled."""
        swapped, down, across = self.frames.turns
        sides = (frame.width, frame.height) if swapped else (frame.height, frame.width)
        if self.size is None and sides != self.frames.sides:
            raise ValueError(
                f"a frame has {sides[0]} x {sides[1]} pixels: give size=(height, width)"
            )
        wanted = row.shape[:2]
        scale = max(want / side for want, side in zip(wanted, sides, strict=True))
        tall, wide = np.maximum([round(side * scale) for side in sides], wanted).tolist()
        height, width = (wide, tall) if swapped else (tall, wide)
        plane = self._reformat(frame, width, height, "rgb24", threads=1).planes[0]
        lines = np.frombuffer(plane, np.uint8, height * plane.line_size)
        pixels = lines.reshape(height, -1)[:, : 3 * width].reshape(height, width, 3)
        upright = (pixels.swapaxes(0, 1) if swapped else pixels)[::down, ::across]
        top, left = (tall - wanted[0]) // 2, (wide - wanted[1]) // 2
        row[...] = upright[top:, left:][: wanted[0], : wanted[1]]
