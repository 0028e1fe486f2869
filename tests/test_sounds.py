"""Sounds in memory: decoded from the bytes of files, and made log-mel spectrograms on a device."""

from __future__ import annotations

import io

import jax
import numpy as np
import pytest
from sound_files import FORMATS, sound

from jreader import DamagedData, sounds

soundfile = pytest.importorskip("soundfile")
soxr = pytest.importorskip("soxr")

LIBROSA = [  # 0.11.0, in float64: power_to_db(melspectrogram(...), top_db=None), transposed
    [4.88254, -14.00779, -21.37276, -19.82603, -21.60098, -21.97573],
    [7.10179, 1.89744, -17.61632, -19.5866, -18.55517, -17.9691],
    [4.50881, 5.66283, -16.81967, -18.35735, -19.03774, -17.87313],
    [-1.82628, 7.79173, -16.5352, -18.17897, -18.81004, -18.74713],
    [-17.85382, 6.95717, 1.46942, -17.40938, -17.81719, -18.15436],
    [-17.66347, 4.37453, 5.19515, -16.98229, -17.85085, -19.04444],
    [-17.75106, -2.17075, 7.25561, -15.61793, -18.8778, -19.11405],
    [-17.14637, -17.24533, 6.66482, -0.55488, -18.56935, -18.1768],
    [-18.97604, -16.4639, 2.10585, -0.19138, -18.67239, -21.52399],
]
SETTINGS = {"n_fft": 512, "hop_length": 500, "n_mels": 6}


def chirp():
    """A tone that rises, among what looks like noise, and is the same for ever."""
    t = np.arange(4000) / 8000
    noise = np.sin(12.9898 * np.arange(4000) ** 2 % 1000)
    return (0.3 * np.sin(2 * np.pi * (300 + 900 * t) * t) + 0.05 * noise).astype(np.float32)


def encoded(suffix, rate=16000, channels=2, seconds=0.5):
    kind, subtype = FORMATS[suffix]
    file = io.BytesIO()
    soundfile.write(file, sound(seconds, rate, channels), rate, format=kind, subtype=subtype)
    return file.getvalue()


def test_log_mel_is_that_of_librosa():
    made = np.asarray(sounds.log_mel(chirp(), 8000, **SETTINGS))
    np.testing.assert_allclose(made, LIBROSA, rtol=0, atol=1e-4)


def test_log_mel_is_traced_and_mapped():
    both = np.stack([chirp(), chirp()[::-1]])
    made = jax.jit(lambda audio: sounds.log_mel(audio, 8000, **SETTINGS))(both)
    mapped = jax.vmap(lambda audio: sounds.log_mel(audio, 8000, **SETTINGS))(both)
    np.testing.assert_allclose(made, mapped, rtol=0, atol=1e-4)
    np.testing.assert_allclose(made[0], LIBROSA, rtol=0, atol=1e-4)


def test_silence_has_the_least_power():
    assert np.unique(sounds.log_mel(np.zeros(4000), 1600, n_fft=256)).tolist() == [-100]


@pytest.mark.parametrize("wrong", ["rate", "n_fft", "hop_length", "n_mels"])
def test_numbers_of_log_mel_are_checked(wrong):
    with pytest.raises(ValueError, match=rf"{wrong} of log_mel\(audio, rate\) needs a whole"):
        sounds.log_mel(np.zeros(9), **{"rate": 8000, wrong: 0})


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_bytes_of_a_file_are_its_waveform(suffix):
    data = encoded(suffix, 48000)
    expected, _ = soundfile.read(io.BytesIO(data), dtype="float32")
    np.testing.assert_array_equal(sounds.waveform(data, None, mono=False), expected)
    np.testing.assert_array_equal(sounds.waveform(memoryview(data), 48000), expected.mean(axis=1))
    resampled = soxr.resample(expected.mean(axis=1), 48000, 16000)
    np.testing.assert_array_equal(sounds.waveform(data, 16000), resampled)


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "mp3"])
def test_bytes_that_were_cut_off_say_so(suffix):
    data = encoded(suffix, seconds=2)
    with pytest.raises(DamagedData, match=r"bytes that begin with \[.*\] are cut off, or no sound"):
        sounds.waveform(data[: len(data) * 2 // 3], None)


def test_what_is_no_sound_says_so():
    with pytest.raises(DamagedData, match=r"0 bytes that begin with \[\] are cut off, or no sound"):
        sounds.waveform(b"", 16000)
    with pytest.raises(TypeError, match=r"not 'a\.wav': for paths, type jreader\.audio"):
        sounds.waveform("a.wav", 16000)
    with pytest.raises(ValueError, match=r"rate of waveform\(data, rate\) needs a whole number"):
        sounds.waveform(encoded("wav"), 0)


def test_bytes_that_claim_too_much_are_refused(monkeypatch):
    monkeypatch.setenv("JREADER_UNPACKED_LIMIT", "1000")
    with pytest.raises(DamagedData, match=r"a sound would unpack to more than 1,000 bytes"):
        sounds.waveform(encoded("flac"), None)
