"""Files of sounds, of every format, and what libsndfile makes of them as a whole."""

from __future__ import annotations

import numpy as np

FORMATS = {
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "ogg": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
}


def sound(seconds, rate, channels=1, seed=0):
    """Noise that swells, so that packets differ in their sizes: float32[frames, channels]."""
    frames = int(seconds * rate)
    noise = np.random.default_rng(seed).standard_normal((frames, channels))
    return (0.1 * noise * np.sin(np.arange(frames) / 3000)[:, None] ** 8).astype(np.float32)


def write_sound(soundfile, path, frames, rate):
    """A file in the format of its suffix."""
    kind, subtype = FORMATS[path.suffix[1:]]
    soundfile.write(path, frames, rate, format=kind, subtype=subtype)
    return path
