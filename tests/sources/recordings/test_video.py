"""Video: every frame is that of a decode from the beginning, whatever is asked for first."""

from __future__ import annotations

import gc
import random
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from videos import decoded, encode

from jreader import DamagedData, Pipeline, video
from jreader.readers import indexed

av = pytest.importorskip("av")

ALONE = "log-level=none:pools=none:frame-threads=1"
BLOCKS = {"codec": "libx265", "size": (64, 64)}  # of narrower frames, x265 breaks the heap
FILES = {
    "h264.mp4": {},
    "h264.mkv": {},
    "reordered.avi": {},  # says neither presentation times nor the order
    "stream.ts": {},
    "open.mp4": {"options": {"x264-params": "open-gop=1:keyint=8:bframes=3:scenecut=0"}},
    "refreshed.mp4": {
        "many": 40,
        "size": (48, 64),
        "options": {"x264-params": "intra-refresh=1:keyint=12"},
    },
    "slices.mp4": {"options": {"x264-params": "slices=4"}},
    "rates.mp4": {"times": np.cumsum(np.arange(30) % 4 + 1).tolist()},
    "short_groups.mp4": {"group": 3},
    "cut.mp4": {"times": list(range(-11, 19)), "container": {"avoid_negative_ts": "disabled"}},
    "fragments.mp4": {"container": {"movflags": "frag_keyframe+empty_moov"}},
    "hevc.mp4": {**BLOCKS, "options": {"x265-params": ALONE}},
    "open_hevc.mkv": {
        **BLOCKS,
        "options": {"x265-params": f"{ALONE}:open-gop=1:keyint=8:min-keyint=8:bframes=3"},
    },
    "mpeg4.mp4": {"codec": "mpeg4", "reordered": 2},
    "mpeg4.avi": {"codec": "mpeg4", "reordered": 0},
    "program.mpg": {"codec": "mpeg2video", "reordered": 2},
    "vp8.webm": {"codec": "libvpx", "options": {"auto-alt-ref": "1", "lag-in-frames": "16"}},
    "vp9.webm": {"codec": "libvpx-vp9", "options": {"lag-in-frames": "16", "cpu-used": "8"}},
    "av1.mkv": {"codec": "libsvtav1", "size": (64, 64), "options": {"preset": "12"}},
    "mjpeg.avi": {"codec": "mjpeg", "colors": "yuvj420p"},
    "ffv1.mkv": {"codec": "ffv1"},
}


def whole(reader):
    """All frames of each file."""
    return [sample["video"] for sample in reader()]


def check_every_frame(path):
    """Runs of frames, in any order, are those of a decode from the beginning."""
    wanted, chosen = decoded(path), random.Random(0)
    for _ in range(5):
        column = indexed(video(path)).columns["video"]
        assert column.lengths().tolist() == [len(wanted)]
        for _ in range(6):
            first = chosen.randrange(len(wanted))
            last = min(first + chosen.randint(1, 9), len(wanted))
            (clip,) = column.values.spans(np.array([first]), np.array([last]))
            assert np.array_equal(clip, wanted[first:last])


@pytest.mark.parametrize("name", FILES)
def test_every_frame_is_that_of_a_decode_from_the_beginning(name, tmp_path):
    check_every_frame(encode(tmp_path / name, **FILES[name]))


@pytest.mark.parametrize("milliseconds", [900, 600, 330])
def test_frames_behind_the_end_of_an_edit_list_are_left_out(milliseconds, tmp_path):
    path = encode(tmp_path / "a.mp4")
    data = bytearray(path.read_bytes())
    at = data.index(b"elst") + 12
    data[at : at + 4] = milliseconds.to_bytes(4)
    path.write_bytes(data)
    assert len(decoded(path)) < 30
    check_every_frame(path)


@pytest.mark.parametrize("packets", [20, 30, 40])
def test_a_stream_may_begin_between_key_frames(packets, tmp_path):
    path = encode(tmp_path / "a.ts")
    path.write_bytes(path.read_bytes()[188 * packets :])
    check_every_frame(path)


def test_a_file_without_presentation_times_is_refused(tmp_path):
    path = encode(tmp_path / "a.h264")
    with pytest.raises(DamagedData, match=r"a\.h264 .* without presentation times"):
        list(video(path)())


@pytest.mark.parametrize(
    ("angle", "across", "down"), [*product((0, 90, 180, 270), (False, True), (False, True))]
)
def test_frames_are_turned_and_mirrored_as_the_file_says(angle, across, down, tmp_path):
    path = encode(tmp_path / "a.mp4", many=2, turned=(angle, across, down))
    turned = [np.rot90(frame, angle // 90) for frame in decoded(path)]
    flipped = [frame[:: -1 if down else 1, :: -1 if across else 1] for frame in turned]
    (frames,) = whole(video(path))
    assert np.array_equal(frames, flipped)


def test_a_turn_of_less_than_a_quarter_is_refused(tmp_path):
    path = encode(tmp_path / "a.mp4", many=2, turned=(45,))
    with pytest.raises(DamagedData, match=r"a\.mp4 .* turned by less than a quarter"):
        list(video(path)())


def test_of_every_third_frame_those_between_are_left_out(tmp_path):
    path = encode(tmp_path / "a.mp4", many=20)
    (frames,) = whole(video(path, every=3))
    assert np.array_equal(frames, decoded(path)[::3])
    assert len(Pipeline(video(path, every=3).windows(2, drop_last=True))) == 3


@pytest.mark.parametrize("turned", [(0,), (90,)])
def test_frames_cover_the_size_and_the_middle_is_cut_out(turned, tmp_path):
    path = encode(tmp_path / "a.mp4", many=1, size=(32, 64), turned=turned)
    (large,), (scaled,) = (whole(video(path, size=size)) for size in ((48, 96), (16, 24)))
    tall = turned == (90,)
    (covering,) = whole(video(path, size=(48, 24) if tall else (16, 32)))
    assert large.shape == (1, 48, 96, 3)
    assert np.array_equal(scaled, covering[:, 16:32] if tall else covering[:, :, 4:28])


def test_files_of_several_sizes_need_a_size(tmp_path):
    encode(tmp_path / "a.mp4", many=2)
    encode(tmp_path / "b.mp4", many=3, size=(64, 48))
    with pytest.raises(ValueError, match=r"a\.mp4 has 32 x 48, .*b\.mp4 64 x 48: type size="):
        list(video(tmp_path)())
    assert [frames.shape for frames in whole(video(tmp_path, size=24))] == [
        (2, 24, 24, 3),
        (3, 24, 24, 3),
    ]


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"size": 0}, ValueError, "size of video"),
        ({"size": (1, 2, 3)}, TypeError, "height, width"),
        ({"size": 2.5}, TypeError, "size of video"),
        ({"every": 0}, ValueError, "needs a whole number of at least 1"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(given, error, said):
    with pytest.raises(error, match=said):
        video(__file__, **given)


@pytest.mark.parametrize("left", [0.0, 0.01, 0.5, 0.9])
def test_a_file_that_is_cut_off_is_an_error_that_names_it(left, tmp_path):
    path = encode(tmp_path / "a.mp4", container={"movflags": "faststart"})
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * left)])
    with pytest.raises(DamagedData, match=r"a\.mp4 is truncated, or not a video"):
        list(video(path)())


@pytest.mark.parametrize("left", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("name", ["h264.mkv", "vp9.webm", "mpeg4.avi", "mjpeg.avi"])
def test_a_file_that_says_its_size_is_not_read_if_it_is_cut_off(name, left, tmp_path):
    path = encode(tmp_path / name, **FILES[name])
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * left)])
    said = rf"is truncated, .*: its header says {len(data):,} bytes, and {path.stat().st_size:,} "
    with pytest.raises(DamagedData, match=said):
        list(video(path)())


@pytest.mark.parametrize("name", ["h264.mkv", "vp9.webm", "mpeg4.avi"])
def test_a_file_that_was_written_to_a_pipe_does_not_say_its_size(name, tmp_path):
    path = encode(tmp_path / name, **FILES[name], piped=True)
    assert b"\xff" * 4 in path.read_bytes()[:100]
    check_every_frame(path)


def test_a_film_that_is_let_go_of_is_closed_before_garbage_is_collected(tmp_path):
    frames = indexed(video(encode(tmp_path / "a.mp4"))).columns["video"].values
    before, _ = films_in_memory(), gc.disable()
    try:
        frames[3:5]
        assert films_in_memory() == before + 1
        frames._free.clear()
        assert films_in_memory() == before
    finally:
        gc.enable()


def films_in_memory():
    """How many files of FFmpeg there are, garbage included."""
    return sum(type(each).__name__ == "InputContainer" for each in gc.get_objects())


def test_a_file_of_another_format_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "a.mp4"
    path.write_bytes(Path(__file__).read_bytes())
    with pytest.raises(DamagedData, match=r"a\.mp4 is truncated, or not a video"):
        list(video(path)())


def test_a_file_of_sound_alone_is_no_video(tmp_path):
    with av.open(str(tmp_path / "a.mp4"), "w") as out:
        sound = out.add_stream("aac", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        frame.sample_rate = 8000
        out.mux([*sound.encode(frame), *sound.encode(None)])
    with pytest.raises(DamagedData, match=r"a\.mp4 .*it has no video"):
        list(video(tmp_path / "a.mp4")())


def test_frames_that_are_too_large_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    path = encode(tmp_path / "a.mp4", many=2, size=(64, 64))
    monkeypatch.setenv("JREADER_UNPACKED_LIMIT", "12000")
    with pytest.raises(DamagedData, match=r"a\.mp4 would unpack to more than 12,000 bytes"):
        list(video(path)())


def noticed(path, wanted):
    """Whether a damaged file is an error, behind frames that are what they were."""
    given, said = [], ""
    try:
        given.extend(Pipeline(video(path).windows(1)))
    except DamagedData as error:
        said = str(error)
    good = (
        np.array_equal(clip["video"][0], frame) for clip, frame in zip(given, wanted, strict=False)
    )
    return f"{path} is truncated, or not a video file: frame" in said and all(good)


@pytest.mark.parametrize(("codec", "colors"), [("mpeg4", "yuv420p"), ("mjpeg", "yuvj420p")])
def test_a_damaged_frame_is_an_error_where_the_decoder_notices(codec, colors, tmp_path):
    options = {"movflags": "faststart"}
    path = encode(tmp_path / "a.mp4", codec, 24, (48, 64), colors=colors, container=options)
    wanted, whole = decoded(path), path.read_bytes()
    begin, found = whole.index(b"mdat") + 4, 0
    for tenth in range(3, 10):
        at = begin + (len(whole) - begin) * tenth // 10
        damage = bytes(byte ^ 0x55 for byte in whole[at : at + 40])
        path.write_bytes(whole[:at] + damage + whole[at + 40 :])
        found += noticed(path, wanted)
    assert found >= 4


def test_a_clip_of_a_long_file_is_read_from_the_key_frame_before(server, quick, tmp_path):
    name = encode(tmp_path / "a.mp4", "mpeg4", 400, (128, 192), options={"b": "20M"}).name
    server.put(name, (tmp_path / name).read_bytes())
    clips = Pipeline(video(f"{server.url}/{name}").windows(8))
    clips[40]  # the file is looked through, and opened
    before, size = server.sent[name], len(server.files[name])
    for number in (20, 21, 22):
        clips[number]
    assert server.sent[name] - before < size // 4
