"""Video files that PyAV encodes, and their frames as it decodes them from the beginning."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kept_samples import FAST

import jreader

RATE = 25


def pictures(many: int, height: int, width: int) -> list[np.ndarray]:
    """Pictures of which no two are alike: a slope that moves, and a block that crosses it."""
    rows, columns = np.mgrid[:height, :width]
    made = []
    for number in range(many):
        slope = (columns * 3 + rows * 2 + number * 7) % 256
        picture = np.stack([slope, 255 - slope, np.full_like(slope, number * 37 % 256)], axis=-1)
        left = number * 3 % (width - 8)
        picture[4:12, left : left + 8] = (number * 5 % 256, number % 2 * 200, 255)
        made.append(picture.astype(np.uint8))
    return made


def encode(
    path: Any,
    codec: str = "libx264",
    many: int = 30,
    size: tuple[int, int] = (32, 48),
    *,
    group: int = 8,
    options: dict[str, str] | None = None,
    colors: str = "yuv420p",
    times: list[int] | None = None,
    reordered: int | None = None,
    turned: tuple[Any, ...] | None = None,
    container: dict[str, str] | None = None,
    piped: bool = False,
) -> Any:
    """Writes a video file, and returns its path.

    Args:
        path: The file; its suffix says the container.
        codec: The name of an encoder of FFmpeg.
        many: The number of frames.
        size: Height and width.
        group: Frames from one key frame to the next, at most.
        options: Those of the encoder.
        colors: The format of pixels.
        times: When frames are shown, in 25ths of a second.
        reordered: How many frames in a row may refer to later ones.
        turned: The angle, and whether frames are mirrored, left to right and upside down.
        container: Options of the muxer.
        piped: Whether the muxer cannot go back to write how large the file has become.
    """
    av = pytest.importorskip("av")
    kind = {"mkv": "matroska"}.get(path.suffix[1:], path.suffix[1:]) if piped else None
    with (
        _of_the_same_priority(),
        _Pipe(path) if piped else nullcontext(str(path)) as target,
        av.open(target, "w", format=kind, options=container or {}) as out,
    ):
        stream = out.add_stream(codec, rate=RATE, options=options or {})
        stream.height, stream.width = size
        stream.pix_fmt, stream.gop_size = colors, group
        stream.codec_context.thread_count = 1
        if reordered is not None:
            stream.max_b_frames = reordered
        if turned is not None:
            stream.set_display_rotation(*turned)
        for number, picture in enumerate(pictures(many, *size)):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format=colors)
            frame.pts = number if times is None else times[number]
            frame.time_base = Fraction(1, RATE)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


@contextmanager
def _of_the_same_priority() -> Iterator[None]:
    """Gives a thread its scheduling back: SVT-AV1, run by root, makes it one of real time."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


class _Pipe:
    """A file that is written from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")
        self.write = self.file.write

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


def decoded(path: Any) -> list[np.ndarray]:
    """All frames of a file, as PyAV decodes them from the beginning, not turned."""
    av = pytest.importorskip("av")
    with av.open(str(path)) as opened:
        return [frame.to_ndarray(format="rgb24") for frame in opened.decode(video=0)]


FOLDER = tempfile.TemporaryDirectory(dir=FAST)  # until the tests end


def clips_filmed(films: int, size: int, stride: int, every: int) -> Any:
    """Clips of the first of some tiny films, which are made once."""
    paths = [Path(FOLDER.name, f"{number}.mp4") for number in range(films)]
    for number, path in enumerate(paths):
        if not path.exists():
            encode(path, "mpeg4", 4 + 3 * number, (16, 16), group=3, reordered=number)
    return jreader.video(paths, every=every).windows(size, stride=stride, drop_last=True)
