"""Clips of sounds in a random order: what a clip costs, beside soundfile by hand and torchaudio.

    python -m tests.benchmarks.sounds [turns]

Eight files of a minute in each format (16 kHz, one channel), clips of two seconds, shuffled, in
batches of 32. Each turn runs all ways one after another on the same clips; a figure is the median
of the turns: CPU time of all threads, in microseconds for a clip, and how many times as many clips
jreader gives in a CPU second. By hand is `soundfile.read(path, start=, frames=)` into a batch; the
last row also resamples, from 44.1 kHz, what a clip needs, and no more. torchaudio is left out where
it cannot be imported.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import soundfile
import soxr

from jreader import Pipeline, audio

FILES, SECONDS, CLIP, BATCH, CLIPS = 8, 60, 2, 32, 512
FORMATS = {"WAV": "wav", "FLAC": "flac", "Ogg": "ogg", "MP3": "mp3", "WAV, resampled": "wav"}


def written(folder, suffix, rate):
    rng = np.random.default_rng(0)
    for number in range(FILES):
        swell = np.abs(np.sin(np.arange(SECONDS * rate) / 9000))
        sound = 0.2 * rng.standard_normal(SECONDS * rate) * swell
        soundfile.write(folder / f"{number}.{suffix}", sound.astype(np.float32), rate)


def by_hand(paths, places, own):
    for low in range(0, len(places), BATCH):
        some = places[low : low + BATCH]
        batch = np.empty((len(some), CLIP * 16_000), np.float32)
        for row, (file, first) in zip(batch, some, strict=True):
            begin, many = first * own // 16_000, CLIP * own
            clip, _ = soundfile.read(paths[file], start=begin, frames=many, dtype="float32")
            row[:] = clip if own == 16_000 else soxr.resample(clip, own, 16_000)


def by_torchaudio(paths, places, own):
    import torch  # noqa: PLC0415  # not everybody has it
    import torchaudio  # noqa: PLC0415  # likewise

    torch.set_num_threads(1)
    for low in range(0, len(places), BATCH):
        clips = []
        for file, first in places[low : low + BATCH]:
            begin, many = first * own // 16_000, CLIP * own
            clip, _ = torchaudio.load(paths[file], frame_offset=begin, num_frames=many)
            clips.append(torchaudio.functional.resample(clip[0], own, 16_000))
        torch.stack(clips)


def by_jreader(batches, _places, _own):
    for _ in batches:
        pass


def cpu_time(way, *given):
    began = time.process_time()
    way(*given)
    return (time.process_time() - began) / CLIPS * 1e6


def measured(name, turns):
    suffix, own = FORMATS[name], 44_100 if "resampled" in name else 16_000
    with tempfile.TemporaryDirectory() as folder:
        written(Path(folder), suffix, own)
        clips = audio(folder, rate=16_000).windows(seconds=CLIP, stride=0.1, drop_last=True)
        plan = Pipeline(clips).shuffle(seed=0)[:CLIPS]
        places = [(int(clip["file"]), int(clip["begin"])) for clip in plan]
        ways = {"by hand": (by_hand, clips.paths), "jreader": (by_jreader, plan.batch(BATCH))}
        try:
            by_torchaudio(clips.paths, places[:1], own)
            ways["torchaudio"] = by_torchaudio, clips.paths
        except ImportError:
            pass
        taken = {way: [] for way in ways}
        for _ in range(turns):
            for way, (run, data) in ways.items():
                taken[way].append(cpu_time(run, data, places, own))
    return {way: median(times) for way, times in taken.items()}


def main(turns="5"):
    print("| | by hand | torchaudio | jreader | as many clips as by hand |\n|---|---|---|---|---|")
    for name in FORMATS:
        took = measured(name, int(turns))
        ratio = took["by hand"] / took["jreader"]
        ways = ("by hand", "torchaudio", "jreader")
        cells = [f"{took[way]:.0f}" if way in took else "-" for way in ways]
        print(f"| {name} | {' | '.join(cells)} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
