"""Clips of video files, decoded and scaled, beside the libraries that do the same.

    python -m tests.benchmarks.peers.video_files [files] [rounds]

Files of 300 frames of 256 x 340 pixels (H.264, B-frames, a key frame at most every 48) become
uint8[8, 16, 128, 170, 3]: clips of 16 frames in random order, each frame once. A figure is
milliseconds of all cores for a frame that was handed over, and frames in a second by the clock: the
medians of turns that the contestants take one after another, of which the first is not counted.
Indices are made before. Who cannot be imported is left out; SPDL and torchcodec need FFmpeg.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

FRAMES, CLIP, BATCH, THREADS, RATE = 300, 16, 8, 2, 25
SIDES, SMALL = (256, 340), (128, 170)

Clip = tuple[str, int]
Epoch = Callable[[], Iterable[Any]]


def filmed(folder: str, number: int) -> list[str]:
    """Films that pan over the two photographs that scikit-learn ships."""
    import av
    from sklearn.datasets import load_sample_images

    photographs, paths = load_sample_images().images, list[str]()
    for nth in range(number):
        paths.append(str(Path(folder, f"{nth}.mp4")))
        with av.open(paths[-1], "w") as out:
            stream: Any = out.add_stream("libx264", rate=RATE, options={"crf": "23"})
            (stream.height, stream.width), stream.pix_fmt = SIDES, "yuv420p"
            stream.gop_size = 48
            for at in range(FRAMES):
                top, left = (at // 4 + 9 * nth) % 171, (at + 31 * nth) % 300
                picture = photographs[nth % 2][top : top + SIDES[0], left : left + SIDES[1]]
                frame: Any = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), "rgb24")
                frame.pts, frame.time_base = at, Fraction(1, RATE)
                out.mux(stream.encode(frame))
            out.mux(stream.encode(None))
    return paths


def clips_of(paths: Sequence[str]) -> list[Clip]:
    """All clips, in an order that does not change."""
    every = [(path, first) for path in paths for first in range(0, FRAMES - CLIP + 1, CLIP)]
    return [every[at] for at in np.random.default_rng(0).permutation(len(every))]


def of_jreader(paths: Sequence[str]) -> Epoch:
    """`video(paths, size=...).windows(16)`, shuffled."""
    from jreader import Pipeline, video

    clips = video(paths, size=SMALL).windows(CLIP, drop_last=True)
    batches = Pipeline(clips).shuffle(seed=0).batch(BATCH)
    return lambda: (batch.columns["video"] for batch in batches)


def stacked(paths: Sequence[str], decode: Callable[[Clip], Any]) -> Epoch:
    """What decodes one clip, on threads, in order."""
    from concurrent.futures import ThreadPoolExecutor

    clips = clips_of(paths)

    def epoch() -> Iterator[Any]:
        with ThreadPoolExecutor(THREADS) as pool:
            decoded = pool.map(decode, clips)
            while batch := list(islice(decoded, BATCH)):
                yield np.stack(batch)

    return epoch


def of_pyav(paths: Sequence[str], *, tuned: bool = False) -> Epoch:
    """By hand: seek, decode, leave out what comes before, and scale."""
    import av
    from av.video.reformatter import VideoReformatter

    def decode(clip: Clip) -> Any:
        path, first = clip
        scaler = VideoReformatter()
        with av.open(path) as opened:
            stream = opened.streams.video[0]
            stream.thread_count = 1
            begin = int(first / RATE / stream.time_base)
            opened.seek(begin, stream=stream)
            taken: list[Any] = []
            for frame in opened.decode(stream):
                if frame.pts >= begin:
                    height, width = SMALL
                    if tuned:
                        small = scaler.reformat(frame, width, height, "rgb24", threads=1)
                        taken.append(small.to_ndarray())
                    else:
                        taken.append(frame.to_ndarray(format="rgb24", height=height, width=width))
                if len(taken) == CLIP:
                    return np.stack(taken)
        return np.stack(taken)

    return stacked(paths, decode)


def of_tuned_pyav(paths: Sequence[str]) -> Epoch:
    """The same with one scaler for a clip, which starts no threads of its own."""
    return of_pyav(paths, tuned=True)


def of_spdl(paths: Sequence[str]) -> Epoch:
    """Its demuxer, decoder and scaling filter, on as many threads, in its own pipeline."""
    import spdl.io
    from spdl.pipeline import PipelineBuilder

    height, width = SMALL
    scaled = f"scale={width}:{height}:flags=bilinear,format=rgb24"
    clips = clips_of(paths)

    def decode(clip: Clip) -> Any:
        path, first = clip
        span = (first - 0.5) / RATE, (first + CLIP - 0.5) / RATE
        packets = spdl.io.demux_video(path, timestamp=span)
        frames = spdl.io.decode_packets(packets, filter_desc=f"{spans(span)},{scaled}")
        return spdl.io.to_numpy(spdl.io.convert_frames(frames))

    def spans(span: tuple[float, float]) -> str:
        return f"trim=start={max(span[0], 0)}:end={span[1]}"

    decode(clips[0])

    def epoch() -> Iterator[Any]:
        piped = PipelineBuilder().add_source(clips)
        piped = piped.pipe(decode, concurrency=THREADS, output_order="input")
        piped = piped.aggregate(BATCH).pipe(np.stack).add_sink(2)
        pipeline = piped.build(num_threads=THREADS)
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()

    return epoch


def of_torchcodec(paths: Sequence[str]) -> Epoch:
    """Its decoder, which scales."""
    from torchcodec.decoders import VideoDecoder
    from torchcodec.transforms import Resize

    def decode(clip: Clip) -> Any:
        path, first = clip
        decoder = VideoDecoder(
            path, dimension_order="NHWC", num_ffmpeg_threads=1, transforms=[Resize(SMALL)]
        )
        return decoder.get_frames_in_range(first, first + CLIP).data.numpy()

    return stacked(paths, decode)


CONTESTANTS: dict[str, Callable[[Sequence[str]], Epoch]] = {
    "jreader": of_jreader,
    "PyAV by hand": of_pyav,
    "PyAV, tuned": of_tuned_pyav,
    "SPDL": of_spdl,
    "torchcodec": of_torchcodec,
}


def turn(epoch: Epoch, number: int) -> tuple[float, float]:
    """Milliseconds of all cores for a frame, and frames a second; all have to come."""
    began, busy, seen = time.perf_counter(), time.process_time(), 0
    for batch in epoch():
        assert batch.shape[1:] == (CLIP, *SMALL, 3), batch.shape
        seen += len(batch) * CLIP
    assert seen == number, (seen, number)
    return (time.process_time() - busy) / seen * 1e3, seen / (time.perf_counter() - began)


def main(files: int = 8, rounds: int = 5) -> None:
    """Prints a line for each contestant."""
    epochs, figures = dict[str, Epoch](), dict[str, list[tuple[float, float]]]()
    with tempfile.TemporaryDirectory() as folder:
        paths = filmed(folder, files)
        for name, begin in CONTESTANTS.items():
            try:
                epochs[name] = begin(paths)
            except (ImportError, RuntimeError) as error:  # the second where FFmpeg is not there
                print(f"{name} is left out: {error}")
        for nth in range(rounds + 1):
            for name, epoch in epochs.items():
                figure = turn(epoch, len(clips_of(paths)) * CLIP)
                if nth:
                    figures.setdefault(name, []).append(figure)
    ours = figures["jreader"]
    for name, each in figures.items():
        busy, speed = map(statistics.median, zip(*each, strict=True))
        ratio = statistics.median([b / a for (a, _), (b, _) in zip(ours, each, strict=True)])
        print(
            f"{name:14} {busy:6.2f} ms of CPU a frame ({ratio:.2f} x jreader), "
            f"{speed:5.0f} a second"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
