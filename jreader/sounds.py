"""Sounds: decoded on the host, and turned into log-mel spectrograms on the devices.

`jreader.audio` reads sound files; `waveform` is for their bytes, as from tar archives and Parquet
files. It needs the extra `audio` (soundfile and soxr). `log_mel` is part of a jitted stage.
Importing this module imports neither soundfile nor jax, so that worker processes start fast.

    >>> import numpy as np
    >>> from jreader import Pipeline, arrays, sounds
    >>> def spectrograms(feed):
    ...     return {"mel": sounds.log_mel(feed["audio"], 16_000, n_fft=400, hop_length=160)}
    >>> rows = Pipeline(arrays(audio=np.zeros((4, 16_000), np.float32))).batch(2)
    >>> [feed["mel"].shape for feed in rows.load().on_device(spectrograms)]
    [(2, 101, 128), (2, 101, 128)]
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from io import BytesIO
from typing import Any

import numpy as np

from jreader.errors import DamagedData, check_number
from jreader.readers import described
from jreader.readers.columns import Array
from jreader.sources.file_checks import check_unpacked
from jreader.sources.recordings.audio_files import Sound, resampled_length, sound_header

__all__ = ["log_mel", "waveform"]

_LINEAR, _LOG = 200 / 3, np.log(6.4) / 27  # Hz of a mel below 1 kHz, and of its logarithm above
_BREAK, _KHZ = 15.0, 1000.0  # mels, and Hz, where the scale changes


def waveform(data: Any, rate: int | None, *, mono: bool = True) -> Array:
    """Return the sound in the bytes of a file, as float32[frames] from -1 to 1.

    It is decoded as a whole: to find clips by number, use plain files (`jreader.audio`).

    >>> import io, soundfile
    >>> file = io.BytesIO()
    >>> soundfile.write(file, np.zeros((8000, 2)), 8000, format="FLAC")
    >>> waveform(file.getvalue(), 16_000).shape, waveform(file.getvalue(), None, mono=False).shape
    ((16000,), (8000, 2))

    Args:
        data: The bytes of a WAV, FLAC, MP3 or Ogg file.
        rate: Frames per second; another rate is resampled (soxr, "HQ"). None for the sound's own.
        mono: Whether to average the channels; otherwise the result is float32[frames, channels].

    Raises:
        ModuleNotFoundError: `python -m pip install 'jreader[audio]'` is needed.
        TypeError: `data` is not bytes.
        ValueError: `rate` is less than 1.
        DamagedData: The bytes are cut off, or are not sound; or the sound would be more than a
            hundred times as large, and more than 256 MB.
    """
    if not isinstance(data, (bytes, bytearray, memoryview, np.ndarray)):
        raise TypeError(
            f"data of waveform(data, rate) needs the bytes of a file, not {described(data)}: for "
            f"paths, type jreader.audio(paths)."
        )
    if rate is not None:
        check_number("rate of waveform(data, rate)", rate, 1)
    data = bytes(data)
    try:
        known = sound_header(BytesIO(data))
        frames = int(resampled_length(known[0], known[1], rate or known[1]))
        check_unpacked("a sound", 4 * frames * known[2], len(data))
        out = np.empty((frames,) if mono else (frames, known[2]), np.float32)
        Sound(BytesIO(data), known, rate, mono=mono).read(0, out)
    except (RuntimeError, EOFError, ValueError) as error:
        raise DamagedData(
            f"{len(data):,} bytes that begin with [{data[:8].hex(' ')}] are cut off, or no "
            f"sound: {error}. Fetch the file again, or leave it out: .map(fn, on_error='skip')."
        ) from error
    return out


def log_mel(
    audio: Any, rate: int, *, n_fft: int = 2048, hop_length: int = 512, n_mels: int = 128
) -> Any:
    """Return the power of sounds in mel bands over time, in decibels: float32[..., times, n_mels].

    It equals librosa's `power_to_db(melspectrogram(...), top_db=None)`, transposed: periodic Hann
    windows around every `hop_length`-th frame, zeros beyond the ends, and bands from 0 to half of
    `rate`, with Slaney's scale and area normalization (Slaney, "Auditory Toolbox", 1998). There are
    1 + frames // hop_length times.

    >>> log_mel(np.zeros((2, 16_000), np.float32), 16_000, n_mels=80).shape
    (2, 32, 80)

    Args:
        audio: [..., frames], of floats.
        rate: Frames per second.
        n_fft: Frames per window.
        hop_length: Frames between the begins of two windows.
        n_mels: The number of bands.

    Raises:
        TypeError: A number is not an int.
        ValueError: A number is less than 1.
    """
    numbers = {"rate": rate, "n_fft": n_fft, "hop_length": hop_length, "n_mels": n_mels}
    for name, number in numbers.items():
        check_number(f"{name} of log_mel(audio, rate)", number, 1)
    jnp = import_module("jax").numpy
    audio = jnp.asarray(audio, jnp.float32)
    padded = jnp.pad(audio, [(0, 0)] * (audio.ndim - 1) + [(n_fft // 2, n_fft // 2)])
    begins = np.arange(0, padded.shape[-1] - n_fft + 1, hop_length)
    frames = padded[..., begins[:, None] + np.arange(n_fft)]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n_fft) / n_fft)
    spectrum = jnp.fft.rfft(frames * window.astype(np.float32))
    power = spectrum.real**2 + spectrum.imag**2
    bands = jnp.matmul(power, _mel_bands(rate, n_fft, n_mels), precision="highest")
    return 10 * jnp.log10(jnp.maximum(bands, 1e-10))  # silence has -100 dB


@lru_cache(8)
def _mel_bands(rate: int, n_fft: int, n_mels: int) -> Array:
    """Return the share of each frequency's power in each band: float32[frequencies, n_mels]."""
    high = rate / 2
    most = high / _LINEAR if high < _KHZ else _BREAK + np.log(high / _KHZ) / _LOG
    mels = np.linspace(0, most, n_mels + 2)
    above = np.maximum(mels - _BREAK, 0)
    edges = np.where(above, _KHZ * np.exp(above * _LOG), mels * _LINEAR)
    at, widths = np.fft.rfftfreq(n_fft, 1 / rate)[:, None], np.diff(edges)
    rising, falling = (at - edges[:-2]) / widths[:-1], (edges[2:] - at) / widths[1:]
    triangles = np.maximum(np.minimum(rising, falling), 0)
    bands: Array = (triangles * 2 / (edges[2:] - edges[:-2])).astype(np.float32)
    return bands
