"""Recordings: whole ones, and clips of them that are found by arithmetic."""

from __future__ import annotations

import re
import warnings
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from byte_recordings import DECODED, FOLDER, Bytes, byte_recordings, clips_recorded, recorded
from hypothesis import given
from hypothesis import strategies as st

from jreader import DamagedData, Pipeline
from jreader.readers import indexed

counts = st.lists(st.integers(0, 9), min_size=1, max_size=6)
numbers = st.integers(1, 4)


def clips_by_hand(lengths, size, stride):
    """Where clips lie: (file, first frame)."""
    return [
        (file, first)
        for file, many in enumerate(lengths)
        for first in range(0, many - size + 1, stride)
    ]


def places(clips):
    return [(int(clip["file"]), int(clip["begin"])) for clip in clips]


@given(counts, numbers, numbers)
def test_clips_are_those_of_a_loop_by_hand(lengths, size, stride):
    given = list(clips_recorded(lengths, size, stride)())
    assert places(given) == clips_by_hand(lengths, size, stride)
    for clip in given:
        frames = np.arange(clip["begin"], clip["begin"] + size)
        assert clip["pairs"].tolist() == [[clip["file"], frame] for frame in frames]


@given(counts, numbers, st.integers(0, 99))
def test_a_batch_in_any_order_has_the_clips_of_its_numbers(lengths, size, seed):
    reader = clips_recorded(lengths, size, 1)
    inorder = list(reader())
    plan = Pipeline(reader).shuffle(seed=seed)
    order = indexed(plan).route(np.arange(len(inorder)))[0]
    given = [clip for batch in plan.batch(3)() for clip in batch]
    assert places(given) == [places(inorder)[row] for row in order]
    expected = [inorder[row]["pairs"].tolist() for row in order]
    assert [clip["pairs"].tolist() for clip in given] == expected


@given(counts, numbers, numbers)
def test_a_batch_decodes_once_what_its_clips_share(lengths, size, stride):
    before = len(DECODED)
    clips = [
        clip
        for batch in Pipeline(clips_recorded(lengths, size, stride)).batch(99)
        for clip in batch
    ]
    read = sum(many for _, many in DECODED[before:])
    shared = {(file, begin + n) for file, begin in places(clips) for n in range(size)}
    assert read == len(shared)


def test_one_clip_is_decoded_alone():
    reader = Pipeline(clips_recorded([50, 60, 70], 5, 5))
    before = len(DECODED)
    assert places([reader[-1]]) == [(2, 65)]
    assert DECODED[before:] == [(65, 5)]


@given(counts)
def test_whole_recordings_are_samples_of_any_length(lengths):
    given = list(recorded(lengths)())
    assert [int(each["file"]) for each in given] == [*range(len(lengths))]
    assert [each["pairs"][:, 1].tolist() for each in given] == [[*range(n)] for n in lengths]


@given(counts, st.data())
def test_any_run_of_frames_is_found_across_files(lengths, data):
    frames = indexed(recorded(lengths)).columns["pairs"].values
    every = np.concatenate([each["pairs"] for each in recorded(lengths)()])
    places = st.integers(0, len(every))
    low, high = data.draw(places), data.draw(places)
    assert frames[low:high].tolist() == every[low:high].tolist()
    rows = np.array(data.draw(st.lists(places)), int) % max(len(every), 1)
    rows = rows[: len(rows) * bool(len(every))]
    assert frames.gather(rows).tolist() == every[rows].tolist()


def test_recordings_are_padded_and_batched_by_their_lengths():
    batches = Pipeline(recorded([3, 0, 5])).padded_batch(3)
    shapes = [{name: column.shape for name, column in each.columns.items()} for each in batches]
    assert shapes == [{"pairs": (3, 5, 2), "pairs_mask": (3, 5), "file": (3,)}]


def test_frames_that_fill_no_clip_are_told_once():
    with pytest.warns(UserWarning, match=r"leaves out 6 frames at the ends of 3 recordings"):
        len(Pipeline(recorded([7, 2, 9]).windows(4)))
    with warnings.catch_warnings(action="error"):
        len(Pipeline(recorded([7, 2, 9]).windows(4, drop_last=True)))
        len(Pipeline(recorded([8, 0, 4]).windows(4)))


def test_a_damaged_recording_is_an_error_behind_the_clips_before_it(tmp_path):
    reader = recorded([6, 6, 6], tmp_path)
    path = tmp_path / "001-6.pairs"
    path.write_bytes(bytes([9]) + path.read_bytes()[1:])
    given, clips = deque(), reader.windows(3, drop_last=True)()
    with pytest.raises(DamagedData, match=r"001-6\.pairs is truncated, .* frame 6: only 0 bytes"):
        given.extend(clips)
    assert places(given) == [(0, 0), (0, 3), (1, 0), (1, 3)]


def test_a_recording_that_cannot_be_looked_at_is_named(tmp_path):
    reader = recorded([6], tmp_path)
    (tmp_path / "000-6.pairs").write_bytes(b"")
    with pytest.raises(DamagedData, match=r"000-6\.pairs is truncated, or not a file of pairs"):
        list(byte_recordings(reader.paths)())


@pytest.mark.parametrize(("held", "still_open"), [(1 << 24, 32), (1 << 28, 2), (1 << 40, 1)])
def test_as_many_recordings_stay_open_as_memory_allows(held, still_open, monkeypatch):
    monkeypatch.setattr(Bytes, "held", held)
    frames = indexed(recorded([2] * 70)).columns["pairs"].values
    for number in range(70):
        frames.read(number, 0, np.empty((2, 2), np.uint8))
    assert len(frames._free) == still_open


def test_a_file_that_was_replaced_is_an_error(tmp_path):
    reader = recorded([6], tmp_path).windows(2)
    assert len(list(reader())) == 3
    (tmp_path / "000-6.pairs").write_bytes(b"\x01ab")
    with pytest.raises(DamagedData, match=r"had 13 bytes, and has 3 now"):
        list(reader())


def test_a_recording_that_claims_too_many_frames_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("JREADER_UNPACKED_LIMIT", "100")
    (tmp_path / "a.pairs").write_bytes(bytes([200]))
    with pytest.raises(DamagedData, match=r"a\.pairs would unpack to more than 100 bytes"):
        list(byte_recordings(tmp_path)())


def test_each_recording_is_read_by_one_thread_at_a_time():
    reader = Pipeline(clips_recorded([90] * 3, 2, 1)).shuffle(seed=1).batch(4)
    with ThreadPoolExecutor(3) as passes:  # each has threads of its own, and shares what is open
        found = [*passes.map(lambda _: len(list(reader())), range(3))]
    assert found == [len(reader)] * 3


def test_far_recordings_are_read_by_ranges():
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://far.pairs", "wb") as out:
        out.write(bytes([4, 0, 0, 0, 1, 0, 2, 0, 3]))
    clips = list(byte_recordings("memory://far.pairs").windows(2)())
    assert [clip["pairs"][:, 1].tolist() for clip in clips] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"size": 0}, "size of windows(size, stride) of byte_recordings(paths) needs a whole"),
        ({"size": 2, "stride": 0}, "stride of windows(size, stride)"),
        ({"size": 2.5}, "size of windows"),
        ({"size": 2, "drop_last": "no"}, "drop_last of windows(size, stride)"),
    ],
)
def test_arguments_of_windows_are_checked(wrong, said):
    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        recorded([3]).windows(**wrong)


def test_clips_are_not_cut_again():
    with pytest.raises(TypeError, match=r"windows\(2, stride=1\) has clips already"):
        recorded([3]).windows(2, stride=1).windows(2)


def test_a_plan_shows_the_calls_that_made_it():
    assert repr(recorded([3]).windows(2)) == (
        f"byte_recordings('{FOLDER.name}/000-3.pairs').windows(2, stride=2)"
    )
