"""`audio`: clips of sounds are those of a decode of the whole file."""

from __future__ import annotations

import re
from itertools import chain, repeat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sound_files import FORMATS, sound, write_sound

from jreader import DamagedData, Pipeline, audio
from jreader.readers import indexed
from jreader.sources.files.byte_ranges import LocalFile
from jreader.sources.recordings.audio_files import resampled_length

soundfile = pytest.importorskip("soundfile")
soxr = pytest.importorskip("soxr")
EXACT = {"mp3": 3e-7}


@pytest.fixture(name="folder", scope="module")
def folder_of_sounds(tmp_path_factory):
    """A sound of some seconds in every format."""
    folder = tmp_path_factory.mktemp("sounds")
    for place, suffix in enumerate(FORMATS):
        rate = 48000 if suffix == "opus" else 16000
        seconds = 2 if suffix == "opus" else 6
        write_sound(soundfile, folder / f"a.{suffix}", sound(seconds, rate, 2, seed=place), rate)
    return folder


def whole(path, rate=None):
    """All frames by libsndfile and soxr, mono."""
    frames, own = soundfile.read(path, dtype="float32", always_2d=True)
    mono = frames.mean(axis=1)
    return mono if rate in (None, own) else soxr.resample(mono, own, rate)


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("size", [700, 5000])
def test_clips_in_any_order_are_parts_of_the_whole(folder, suffix, size):
    path = folder / f"a.{suffix}"
    expected = whole(path)
    reader = audio(path).windows(size, stride=371, drop_last=True)
    assert len(Pipeline(reader)) == (len(expected) - size) // 371 + 1
    shuffled = Pipeline(reader).shuffle(seed=0)
    for clip in shuffled[:150].chain(reader):  # and then one behind the other
        part = expected[clip["begin"] : clip["begin"] + size]
        np.testing.assert_allclose(clip["audio"], part, rtol=0, atol=EXACT.get(suffix, 0))


@pytest.mark.parametrize("rates", [(44100, 16000), (16000, 24000), (48000, 8000), (11025, 16000)])
def test_resampled_clips_are_parts_of_the_resampled_whole(tmp_path, rates):
    own, rate = rates
    path = write_sound(soundfile, tmp_path / "a.wav", sound(1.5, own), own)
    expected = whole(path, rate)
    clips = audio(path, rate=rate).windows(1000, stride=777, drop_last=True)
    assert len(Pipeline(clips)) == (len(expected) - 1000) // 777 + 1
    for clip in Pipeline(clips).shuffle(seed=0):
        part = expected[clip["begin"] : clip["begin"] + 1000]
        np.testing.assert_allclose(clip["audio"], part, rtol=0, atol=1e-6)
    (sample,) = audio(path, rate=rate)()
    np.testing.assert_array_equal(sample["audio"], expected)


@given(st.integers(0, 9999), st.integers(4000, 96000), st.integers(4000, 96000))
def test_resampled_sounds_are_as_long_as_soxr_makes_them(frames, own, rate):
    made = soxr.resample(np.zeros(frames, np.float32), own, rate)
    assert len(made) == resampled_length(frames, own, rate)


def test_all_formats_and_rates_make_one_data_set(folder):
    clips = Pipeline(audio(folder, rate=16000).windows(seconds=1.5, stride=0.5, drop_last=True))
    batches = list(clips.shuffle(seed=3).batch(8))
    assert {batch.columns["audio"].dtype for batch in batches} == {np.dtype(np.float32)}
    assert {int(clip["file"]) for batch in batches for clip in batch} == set(range(len(FORMATS)))
    assert all(clip["audio"].shape == (24000,) for batch in batches for clip in batch)


def test_channels_stay_apart_if_they_are_to(folder):
    (sample,) = audio(folder / "a.flac", mono=False)()
    expected, _ = soundfile.read(folder / "a.flac", dtype="float32")
    np.testing.assert_array_equal(sample["audio"], expected)


def test_whole_sounds_are_found_by_number(tmp_path):
    for place, seconds in enumerate((0.5, 0.25, 0.75)):
        write_sound(soundfile, tmp_path / f"{place}.wav", sound(seconds, 8000), 8000)
    reader = audio(tmp_path)
    assert indexed(reader).length == 3
    assert [len(sample["audio"]) for sample in reader()] == [4000, 2000, 6000]
    (batch,) = Pipeline(reader).padded_batch(3)
    assert batch.columns["audio"].shape == (3, 6000)


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "mp3"])
def test_a_sound_that_was_cut_off_is_named(folder, tmp_path, suffix):
    data = (folder / f"a.{suffix}").read_bytes()
    path = tmp_path / f"cut.{suffix}"
    path.write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(DamagedData, match=rf"cut\.{suffix} is truncated, or not a sound: "):
        list(audio(path).windows(1000, drop_last=True)())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # cffi's news
@pytest.mark.parametrize("suffix", FORMATS)
def test_a_read_that_fails_is_not_the_end_of_a_sound(suffix, folder, monkeypatch):
    frames, read, failed = len(whole(folder / f"a.{suffix}")), LocalFile.read, 0
    for good in range(9):
        answers = chain(repeat(read, good), [None], repeat(read))  # a disk that fails once
        monkeypatch.setattr(LocalFile, "read", lambda *asked, each=answers: next(each)(*asked))
        try:
            (sample,) = audio(folder / f"a.{suffix}")()
        except TypeError as error:
            failed += "'NoneType' object is not callable" in str(error)
        else:
            assert len(sample["audio"]) == frames
    assert failed


def test_the_end_of_an_ogg_is_read_at_once(server, quick, tmp_path):
    path = write_sound(soundfile, tmp_path / "a.ogg", sound(60, 16000), 16000)
    server.put(path.name, path.read_bytes())
    assert len(Pipeline(audio(f"{server.url}/{path.name}").windows(100, drop_last=True))) == 9600
    assert len(server.tries()) <= 3
    assert path.stat().st_size > 1 << 17


def test_a_flac_that_does_not_know_its_length_says_what_to_type(tmp_path):
    path = write_sound(soundfile, tmp_path / "a.flac", sound(0.1, 8000), 8000)
    data = bytearray(path.read_bytes())
    data[21:26] = (data[21] & 0xF0).to_bytes(1) + bytes(4)  # as encoders write it to a pipe
    path.write_bytes(data)
    with pytest.raises(DamagedData, match=r"a\.flac .*has no length: .*ffmpeg -i in\.flac"):
        list(audio(path, rate=16000)())


@pytest.mark.parametrize("data", [b"", b"no sound at all" * 9])
def test_what_is_no_sound_is_named(tmp_path, data):
    (tmp_path / "a.wav").write_bytes(data)
    with pytest.raises(DamagedData, match=r"a\.wav is truncated, or not a sound"):
        list(audio(tmp_path)())


def test_a_stream_of_wav_that_did_not_know_its_length_is_read(tmp_path):
    path = write_sound(soundfile, tmp_path / "a.wav", sound(0.1, 8000), 8000)
    data = bytearray(path.read_bytes())
    data[40:44] = data[4:8] = b"\xff" * 4
    path.write_bytes(data)
    (sample,) = audio(path)()
    assert len(sample["audio"]) == 800


def test_sounds_of_different_rates_or_channels_say_what_to_type(tmp_path):
    write_sound(soundfile, tmp_path / "a.wav", sound(0.1, 8000), 8000)
    write_sound(soundfile, tmp_path / "b.wav", sound(0.1, 16000, 2), 16000)
    said = f"a.wav has 8,000, {tmp_path}/b.wav 16,000: type rate=16000"
    with pytest.raises(ValueError, match=re.escape(said)):
        list(audio(tmp_path)())
    with pytest.raises(ValueError, match=r"one number of channels.*type mono=True"):
        list(audio(tmp_path, rate=8000, mono=False)())


@pytest.mark.parametrize(
    "given",
    [{}, {"size": 3, "seconds": 1.0}, {"seconds": 1.0}, {"seconds": "1"}, {"seconds": np.nan}],
    ids=["nothing", "both", "no rate", "a text", "no number"],
)
def test_clips_need_a_size_or_seconds_at_a_rate(folder, given):
    rate = None if given == {"seconds": 1.0} else 16000
    with pytest.raises(TypeError, match=r"needs a size in frames, or seconds=2\.0 and the rate"):
        audio(folder, rate=rate).windows(**given)


def test_arguments_are_checked(folder):
    with pytest.raises(ValueError, match=r"rate of audio\(paths\)|audio\(paths\) needs a whole"):
        audio(folder, rate=0)
    with pytest.raises(TypeError, match=r"mono of audio\(paths\) needs True or False"):
        audio(folder, mono="yes")
