"""`audio`: read WAV, FLAC, MP3 and Ogg sounds, whole or as clips, resampled while decoding.

libsndfile seeks exactly in WAV, FLAC and Opus. In MP3 and Vorbis, what it decodes after a seek is
wrong at first, or shifted, without an error: by up to 0.4 of full scale, in a tenth of all clips.
So MP3 is decoded from an earlier frame on, as far back as frames may borrow bits from one another;
Vorbis seeks to the first frame before each seek, and never into the last page, whose place
libsndfile gets wrong. Then clips are bit-equal to a decode from the first frame (MP3 within 1e-7).
"""

from __future__ import annotations

import io
import re
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from jreader.extras import extra
from jreader.readers import flag, op, whole
from jreader.readers.columns import Array
from jreader.sources.files.block_store import Store
from jreader.sources.files.file_readers import Paths
from jreader.sources.files.set_indices import SetIndex
from jreader.sources.recordings.recorded import Measured, Open, Recordings

_MP3_PREROLL = 1 << 14  # frames of MP3 to decode before a clip: 23 packets of 576, and more
_MARGIN = 256  # frames, at the lower rate, that soxr's filters use before and after
_STREAMED = 0x7FFF0000  # bytes: a WAV header claims at least this many if the length was unknown


soundfile = partial(extra, "soundfile", "audio", "this needs soundfile")
"""Import the package that decodes sounds; raise ModuleNotFoundError if it is not installed."""

soxr = partial(extra, "soxr", "audio", "rate= needs soxr")
"""Import the package that resamples sounds; raise ModuleNotFoundError if it is not installed."""


def sound_header(stream: Any) -> Array:
    """Return a sound's frames, rate and channels, and the last frame that libsndfile can seek to.

    Raises:
        EOFError: The file is truncated.
        RuntimeError: libsndfile does not support it.
    """
    with soundfile().SoundFile(stream) as sound:
        said = re.search(r"data : (\d+) \(should be (\d+)\)", sound.extra_info)
        if said and int(said[2]) < int(said[1]) < _STREAMED:
            raise EOFError(f"its header says {said[1]} bytes, and {said[2]} follow")
        if sound.frames > 1 << 62:  # how libsndfile shows a FLAC that was written to a pipe
            raise ValueError("its header has no length: type ffmpeg -i in.flac out.flac")
        last = sound.frames - (_last_page(stream) if sound.format == "OGG" else 0)
        return np.array([sound.frames, sound.samplerate, sound.channels, last])


def _last_page(stream: Any) -> int:
    """Return the number of frames in the last page of an Ogg file."""
    stream.seek(max(stream.seek(0, io.SEEK_END) - (1 << 17), 0))  # a page has 1 << 16 at most
    tail = stream.read(1 << 17)  # without a size, this would read in pieces
    pages = [page.start() for page in re.finditer(b"OggS\\0", tail)][-2:]
    if len(pages) < 2 or not tail[pages[1] + 5] & 4:
        raise EOFError("it ends before its last page")
    ends = [int.from_bytes(tail[page + 6 : page + 14], "little") for page in pages]
    return ends[1] - ends[0]


def resampled_length(frames: Any, rate: Any, to: Any) -> Any:
    """Return the number of frames at another rate, as soxr counts them."""
    return (2 * frames * to + rate) // (2 * rate)


class Sound:
    """An open sound.

    Args:
        stream: Its bytes.
        known: The result of `sound_header`.
        rate: The rate to resample to; None for its own.
        mono: Whether to average the channels.
    """

    held = 1 << 23

    def __init__(self, stream: Any, known: Array, rate: int | None, *, mono: bool) -> None:
        """Open the sound."""
        self._sound, self._mono, self._position = soundfile().SoundFile(stream), mono, 0
        self._frames, self._rate, _, self._last = known.tolist()
        self._target_rate = rate or self._rate

    def read(self, first: int, out: Array) -> None:
        """Fill `out` with the frames from `first` on, at the target rate.

        Raises:
            EOFError: There are fewer frames.
        """
        if self._target_rate == self._rate:
            out[...] = self._decoded(first, len(out))
            return
        down, up = Fraction(self._rate, self._target_rate).as_integer_ratio()
        margin = _MARGIN * max(-(-down // up), 1)
        # at multiples of `down`, frames of both rates coincide
        begin = max((first * down // up - margin) // down * down, 0)
        end = min(-(-(first + len(out)) * down // up) + margin, self._frames)
        made = soxr().resample(self._decoded(begin, end - begin), self._rate, self._target_rate)
        out[...] = made[first - begin // down * up :][: len(out)]

    def _decoded(self, first: int, many: int) -> Array:
        # after a seek and a read, libsndfile decodes MP3 wrongly
        continues = first == self._position and self._sound.format != "MP3"
        begin = first if continues else self._seek(first)
        taken = self._sound.read(first + many - begin, "float32", always_2d=True)
        self._position = begin + len(taken)
        if self._position < first + many:
            raise EOFError(f"only {self._position:,} of {self._frames:,} frames can be decoded")
        frames: Array = taken[first - begin :]
        if self._mono and frames.shape[1] > 1:  # the mean of short rows is slow
            frames = np.ascontiguousarray(frames.T).mean(axis=0)[:, None]
        return frames[:, 0] if self._mono else frames

    def _seek(self, first: int) -> int:
        """Seek to a frame, or to one before it from which decoding is exact."""
        if self._sound.subtype == "VORBIS":
            self._sound.seek(0)
            first = min(first, self._last)
        elif self._sound.format == "MP3":
            first = max(first - _MP3_PREROLL, 0)
        return int(self._sound.seek(first))


@op
class audio(Recordings):
    """Read sounds in files, or clips of them: WAV, FLAC, MP3 and Ogg.

    Each sample of `audio(paths)` is a dict of `audio`, all frames of a file as float32 from -1 to
    1, and the number of its `file` in `paths`. `audio(paths).windows(seconds=2.0)` gives clips of
    one size instead:

    >>> from tempfile import TemporaryDirectory
    >>> import soundfile
    >>> with TemporaryDirectory() as folder:
    ...     soundfile.write(f"{folder}/a.wav", np.zeros(20_000), 8000)
    ...     clips = audio(folder, rate=16_000).windows(seconds=1.0, drop_last=True)
    ...     [(clip["audio"].shape, int(clip["file"]), int(clip["begin"])) for clip in clips()]
    [((16000,), 0, 0), ((16000,), 0, 16000)]

    The reader is indexed: you can shuffle it as a whole, shard it, and resume at any clip, and
    threads decode only what a clip needs. The headers of all files are read when the first pass
    begins, and cached.

    Sounds in tar archives, Parquet or other files are bytes: map `jreader.sounds.waveform`, which
    decodes each as a whole. Only plain files have clips that are found by number.

    Args:
        paths: A file, a folder (its sounds), a pattern such as `"speech/**/*.flac"`, or a list of
            these, local or remote. The files of a folder or pattern are sorted by name.
        rate: Frames per second; sounds of other rates are resampled (soxr, "HQ"). None for the
            rate of the files, which must all agree.
        mono: Whether to average the channels, to float32[frames]; otherwise samples are
            float32[frames, channels].
        store: Caches blocks of remote files on disk (`Store`).

    Raises:
        ModuleNotFoundError: `python -m pip install 'jreader[audio]'` is needed.
        TypeError: A path is neither a str nor an `os.PathLike`, or `rate` is not a whole number.
        FileNotFoundError: A file does not exist, or a pattern or folder matches no file.
        ValueError: `rate` is less than 1; or, when a pass begins, files differ in their rate or
            their channels.
        DamagedData: Raised during a pass, after the samples before: a file is truncated, is not a
            sound, or has changed.
    """

    shown_call = "audio(paths)"
    suffixes = (".wav", ".flac", ".mp3", ".ogg", ".oga", ".opus")
    kind = "audio"
    expected = "a sound"
    rate: int | None = whole(default=None, least=1)
    mono: bool = flag(default=True, cursor="values")

    def __init__(
        self,
        paths: Paths,
        *,
        rate: int | None = None,
        mono: bool = True,
        store: Store | None = None,
    ) -> None:
        soundfile()
        self.keep(paths, rate=rate, mono=mono, store=store)

    def look(self, stream: io.BufferedReader) -> Array:
        """Return frames, rate, channels, and the last frame that libsndfile can seek to."""
        return sound_header(stream)

    def measured(self, index: SetIndex) -> Measured:
        """Return the number of frames of each file at the target rate, and the shape of one."""
        frames, rates, channels, _ = index.values.reshape(-1, 4).T
        if self.rate is None:
            self.check_same(rates, "number of frames a second", "rate=16000, to resample them")
        if not self.mono:
            self.check_same(channels, "number of channels", "mono=True, for the mean of them")
        shape = () if self.mono else (int(channels[0]),)
        return resampled_length(frames, rates, self.rate or rates), (shape, np.float32)

    def opener(self) -> Open:
        """Return the function that opens a sound."""
        return partial(Sound, rate=self.rate, mono=self.mono)

    def windows(
        self,
        size: int | None = None,
        *,
        seconds: float | None = None,
        stride: float | None = None,
        drop_last: bool = False,
    ) -> Any:
        """Read clips of `size` frames, or of `seconds` seconds.

        Each sample is a dict of `audio`, the number of its `file` in `paths`, and its first frame
        there, `begin`. Any clip is found by its number, without decoding what lies before it. The
        last frames of a file are left out if they are too few for a clip.

        Args:
            size: Frames per clip.
            seconds: The length of a clip, instead; the reader needs a `rate`.
            stride: The distance between the starts of two clips, in frames, or in seconds if
                `seconds` is given; None for clips that do not overlap.
            drop_last: Whether to drop leftover frames without a warning.

        Raises:
            TypeError: Neither or both of `size` and `seconds` are given, there is no rate, or this
                reader has clips already.
            ValueError: A clip has less than one frame.
        """
        rate = self.rate if size is None else None
        if rate and isinstance(seconds, (int, float, np.floating)) and np.isfinite(seconds):
            size, stride = round(seconds * rate), stride and round(stride * rate)
        elif seconds is not None or size is None:
            raise TypeError(
                f"windows(...) of {self!r} needs a size in frames, or seconds=2.0 and the rate to "
                f"count them in, as in audio(paths, rate=16000).windows(seconds=2.0)."
            )
        return super().windows(size, stride=stride, drop_last=drop_last)
