"""Plain functions are read again up to a position, with a bar only where that takes long."""

import threading

import pytest
from tqdm import tqdm

from jreader import NotResumable, start
from jreader.readers import replays


def numbers():
    return iter(range(40))


def test_what_takes_little_time_shows_no_bar_and_waits_for_no_lock_of_tqdm(capsys):
    rest = []
    with tqdm.get_lock():  # as one that a fork, or an interrupt, left behind
        thread = threading.Thread(target=lambda: rest.extend(start(numbers, 30).items), daemon=True)
        thread.start()
        thread.join(60)
    assert rest == [*range(30, 40)]
    assert capsys.readouterr().err == ""


def test_what_takes_long_shows_how_far_it_is(capsys, monkeypatch):
    monkeypatch.setattr(replays, "_QUIET", 0)
    assert list(start(numbers, 30).items) == [*range(30, 40)]
    said = capsys.readouterr().err
    assert "reading up to the position:   3%" in said
    assert "1/30" in said


def test_a_bar_of_too_few_samples_ends_with_the_reason(capsys, monkeypatch):
    monkeypatch.setattr(replays, "_QUIET", 0)
    with pytest.raises(
        NotResumable, match=r"cannot go on after sample 50 of .* it gave 40 samples"
    ):
        list(start(numbers, 50).items)
    assert "1/50" in capsys.readouterr().err
