"""What processes tell one another of a pass, and what each makes of it.

`Side` (tests/helpers/words.py) is one process of several that live in this one.
"""

import gc
import time
import weakref
from collections import defaultdict
from itertools import count
from threading import Thread

import jax
import pytest
from words import Side

from jreader import ReaderError, ShortEpoch, start
from jreader.loaders.checkpoints.cursors import beginning
from jreader.loaders.multihost import board as boards
from jreader.loaders.multihost.agreement import Agreement
from jreader.loaders.multihost.board import Board


class Counted:
    """A store that counts what is asked of it."""

    def __init__(self, store):
        self.store, self.calls = store, defaultdict(int)

    def __getattr__(self, name):
        self.calls[name] += 1
        return getattr(self.store, name)


def plan(*ops):
    return {"plan": {"ops": list(ops), "functions": []}}


class TestAPass:
    def test_hands_over_what_all_have_and_no_more(self, board):
        one, _ = Side(board(0), range(9), timeout=1), Side(board(1), range(9)).ahead(4)
        assert one.takes(4) == [0, 1, 2, 3]
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=r"at feed 4 of .* process 1 has reported 4 feeds, "):
            one.takes(1)
        assert time.monotonic() - began >= 1

    @pytest.mark.parametrize("many", [6, 7])
    def test_has_told_of_what_it_hands_over(self, board, many):
        """Else whoever leaves behind it, or awaits that step, would leave the others waiting."""
        one, other = Side(board(0), window=16), Side(board(1), window=4)
        other.ahead(8)
        assert one.takes(many) == list(range(many))
        one.close()
        assert other.takes(many) == list(range(many))

    def test_reports_once_a_window_where_it_looks_ahead_and_then_asks_nothing(self, board):
        mine, theirs = board(0), board(1)
        other = Side(theirs, range(64), window=64).ahead(64)
        one = Side(mine, range(64), window=16)
        mine._store = counted = Counted(mine._store)
        one.ahead(64)
        # what it has itself; a number for 7 feeds, which two windows may share; and how far all are
        assert counted.calls.pop("key_value_delete") == 1
        assert counted.calls == {"key_value_increment": 13, "key_value_set": 4 + 13}
        asked = dict(counted.calls)
        assert one.takes(64) == list(range(64))
        assert counted.calls == asked
        assert other.takes(63) == list(range(63))

    def test_asks_the_same_of_the_store_however_many_processes_there_are(self, board):
        asked = []
        for many in (2, 16):
            boards = [board(me, f"train.py:{many}", range(many)) for me in range(many)]
            for each in boards:
                each._store = Counted(each._store)
            sides = [Side(each, range(6)) for each in boards]
            for _ in range(3):
                for side in sides:
                    side.agreement._listen = list  # nobody else runs meanwhile
                    side.ahead(2)
            for side in sides:
                assert side.takes(6) == list(range(6))
            asked.append(max(sum(each._store.calls.values()) for each in boards))
            assert not any(each._store.calls["key_value_dir_get"] for each in boards)
        assert asked[1] <= 1.5 * asked[0]  # numbers that count for more hold fewer feeds

    def test_over_a_stream_is_refused_where_no_number_can_count_all(self, board):
        one = Side(board(0, "most.py:1", range(2**15 - 1)), window=1)
        one.agreement._listen = list
        assert len(one.ahead(2).drawn) == 2
        with pytest.raises(ReaderError, match="32768 processes read a stream, and at most 32767"):
            Side(board(0, "more.py:1", range(2**15)))

    def test_listens_no_more_once_one_has_ended(self, board):
        mine = board(0)
        Side(board(1), range(1)).ahead(9)
        one = Side(mine, range(8))
        mine._store = counted = Counted(mine._store)
        one.ahead(8)
        assert counted.calls["key_value_increment"] == 1
        assert not counted.calls["blocking_key_value_get"]

    def test_does_not_look_ahead_for_longer_because_others_are_slower(self, board):
        slower, one = Side(board(1)).ahead(1), Side(board(0)).ahead(2)
        assert (len(slower.drawn), len(one.drawn)) == (1, 2)

    def test_ends_where_all_do(self, board):
        one, other = (Side(board(me), range(3)).ahead(9) for me in (0, 1))
        assert one.takes() == other.takes() == [0, 1, 2]
        assert (one.takes(), other.takes()) == ([], [])

    @pytest.mark.parametrize("window", [1, 2, 3, 16])
    def test_that_is_shorter_than_another_is_an_error_on_both(self, board, window):
        one, other = Side(board(0), range(3), window), Side(board(1), range(4), window)
        one.ahead(9)
        other.ahead(9)
        for side in (one, other):
            assert side.takes(3) == [0, 1, 2]
            with pytest.raises(ShortEpoch, match="process 0 has 3 feeds in epoch 0, and process 1"):
                side.takes()

    def test_that_fails_says_so_behind_its_good_feeds(self, board):
        def failing():
            yield from range(3)
            raise OSError("the disk is gone")

        one, other = Side(board(0), failing()), Side(board(1))
        with pytest.raises(OSError, match="gone"):
            one.ahead(4)
        assert other.takes(3) == [0, 1, 2]
        with pytest.raises(
            ReaderError, match=r"process 0 stopped after 3 .*: OSError: the disk is"
        ):
            other.takes()

    def test_waits_for_one_that_comes_later(self, board):
        one, theirs = Side(board(0)), board(1)
        later = Thread(target=lambda: Side(theirs).takes(8))
        later.start()
        assert one.takes(8) == list(range(8))
        later.join()

    def test_that_nobody_else_begins_is_an_error(self, board):
        began = time.monotonic()
        with pytest.raises(
            TimeoutError, match=r"process 1 has reported none, .* for 0\.1 s: .*out="
        ):
            Side(board(0), timeout=0.1).takes()
        assert time.monotonic() - began >= 0.1

    def test_asks_only_the_processes_that_feed_the_same_arrays(self, board):
        one, other = (board(me, processes=(0, 2)) for me in (0, 2))
        stranger = board(1, processes=(1, 3))
        Side(stranger, range(1), **plan("others")).ahead(9)
        other = Side(other, range(4)).ahead(9)
        assert Side(one, range(4)).takes() == other.takes() == [0, 1, 2, 3]

    def test_holds_nothing_that_it_has_handed_over(self, board):
        class Feed:
            pass

        one, _ = Side(board(0), (Feed() for _ in count())), Side(board(1)).ahead(4)
        feeds = one.takes(2)
        kept = list(map(weakref.ref, feeds))
        del feeds
        gc.collect()
        assert [ref() for ref in kept] == [None, None]

    def test_is_not_mixed_up_with_another_over_the_same_loader(self, board):
        boards = board(0), board(1)
        firsts = [Side(each, range(3)).ahead(9) for each in boards]
        seconds = [Side(each, range(5)).ahead(9) for each in boards]
        assert [side.takes() for side in seconds] == [list(range(5))] * 2
        assert [side.takes() for side in firsts] == [list(range(3))] * 2


class TestABeginning:
    def refused(self, board, before, here, match):
        """What the second process is told, and the first one, which waits already."""
        first = Side(board(0), **before)
        with pytest.raises(ReaderError, match=match):
            Side(board(1), **here)
        with pytest.raises(ReaderError):
            first.takes(1)

    @pytest.mark.parametrize(
        ("before", "here", "line"),
        [
            (plan("a", "b"), plan("a", "c"), r"line 2 is b; here it is c\. .*seeds"),
            (plan("a", "b"), plan("a"), "line 2 is b; here it is no line"),
            ({"about": ["drop"]}, {"about": ["pad"]}, "line 1 is drop; here it is pad"),
            (
                {"skipped": [[3, 5, 8]]},
                {},
                r"line 1 is skip_steps=range\(3, 5\); here it is no line",
            ),
        ],
    )
    def test_with_another_plan_is_refused(self, board, before, here, line):
        message = f"process 0 begins epoch 0, step 0 with another plan, whose {line}"
        self.refused(board, before, here, message)

    def test_at_another_place_of_the_plan_is_refused(self, board):
        before, here = ({"step": 1, "samples": 8, "position": at} for at in (8, 9))
        self.refused(board, before, here, "step 1 at another position: resume all from the same")

    @pytest.mark.parametrize("here", [{"epoch": 1}, {"step": 3, "samples": 9, "position": 9}])
    def test_at_another_step_is_refused(self, board, here):
        epoch, step = here.get("epoch", 0), here.get("step", 0)
        message = rf"process 0 began at epoch 0, step 0, and this one at epoch {epoch}, step {step}"
        self.refused(board, {}, here, f"{message}: .*from the same cursor")

    def test_at_a_cursor_of_the_first_step_is_the_beginning(self, board):
        one = Side(board(0), position=[None, 8, 0]).ahead(2)
        assert Side(board(1)).takes(2) == one.takes(2)

    def test_is_compared_with_the_same_pass_of_others_not_with_a_later_one(self, board):
        ahead, behind = board(0), board(1)
        Agreement(ahead, beginning(0), 1, ["training"])
        Agreement(ahead, beginning(0), 1, ["evaluation"])
        Agreement(behind, beginning(0), 1, ["training"])
        with pytest.raises(ReaderError, match="line 1 is evaluation; here it is training"):
            Agreement(behind, beginning(0), 1, ["training"])

    def test_of_a_later_pass_may_be_elsewhere_where_places_tell_what_is_read(self, board):
        looks, other = board(0), board(1)
        for epoch in (0, 0, 1):
            Agreement(looks, beginning(epoch), 1)
        for epoch in (0, 1):
            Agreement(other, beginning(epoch), 1)

    def test_elsewhere_of_a_later_pass_over_a_stream_is_refused(self, board):
        boards = board(0), board(1)
        for each in boards:
            Side(each)
        Side(boards[0], step=4, samples=4, position=4).ahead(2)
        with pytest.raises(ReaderError, match=r"process 0 began at epoch 0, step 4, and this one"):
            Side(boards[1]).takes(1)


class TestAProcess:
    def test_that_fails_ahead_of_a_loop_that_has_left_keeps_nobody_waiting(self, board):
        def failing():
            yield from range(4)
            raise OSError("the disk is gone")

        one, other = Side(board(0), failing()), Side(board(1)).ahead(9)
        one.ahead(2).takes(1)
        one.agreement.leave()
        with pytest.raises(OSError, match="the disk is gone"):
            one.ahead(9)
        heard = []

        def takes():
            try:
                other.takes()
            except ReaderError as error:
                heard.append(str(error))

        waiting = Thread(target=takes, daemon=True)
        waiting.start()
        waiting.join(60)
        assert "process 0 stopped after 2 feeds of this pass: OSError: the disk" in heard[0]

    def test_that_was_lost_is_lost_to_later_loaders_and_passes(self, board, monkeypatch):
        monkeypatch.setattr(boards, "_lost", set())
        boards._lose(1)
        later = board(0, "later.py:1")
        for _ in range(3):
            with pytest.raises(ReaderError, match="process 1: it was killed"):
                Side(later).takes()

    def test_that_is_gone_after_its_last_feed_is_not_missed_by_those_that_are_slower(self, board):
        slow, quick = (Agreement(board(me, processes=range(3)), beginning(0), 1) for me in (0, 1))
        assert len(list(quick.agreed(start(lambda: range(3)), streamed=False).items)) == 3
        feeds = slow.agreed(start(count), streamed=False).items
        assert next(feeds) == 0
        for process in (1, 2):
            slow._board.lose(process)
        with pytest.raises(ReaderError, match="process 2: it was killed"):
            list(feeds)

    def test_that_ends_wakes_its_threads_at_once(self, board):
        many = board(0, processes=range(2000))
        one = Side(many).agreement
        many._store = counted = Counted(many._store)
        one._start_watching(streamed=False)
        while not counted.calls["blocking_key_value_get"]:
            assert one.threads[0].is_alive()
        one.stop()  # as the program does at exit
        one.threads[0].join(10)  # a call of it takes 20 s
        assert not one.threads[0].is_alive()


class TestABoard:
    def test_is_that_of_the_loader_of_the_same_line_iterated_as_the_same(self, board):
        board(0, "train.py:8")  # which only one process has
        pairs = [[board(me) for me in (0, 1)] for _ in range(2)]
        for number, (one, other) in enumerate(pairs):
            one.post("greeting", str(number))
            assert other.read("greeting") == {0: str(number)}
            assert one.read("greeting") == {}

    def test_is_found_wherever_the_program_lies(self, board):
        board(0, "/home/one/train.py:9").post("greeting", "hello")
        assert board(1, "/mnt/other/train.py:9").read_of("greeting", 0) == "hello"

    def test_tells_what_is_not_there_from_what_cannot_be_asked(self, board):
        class Gone:
            def key_value_try_get(self, _key):
                raise jax.errors.JaxRuntimeError("UNAVAILABLE: no coordinator")

        here = board(0)
        assert here.read_of("greeting", 1) is None
        assert here.read("greeting") == {}
        here._store = Gone()
        with pytest.raises(jax.errors.JaxRuntimeError, match="no coordinator"):
            here.read_of("greeting", 1)

    def test_forgets_what_nobody_will_ask_for(self, board, store):
        boards = board(0), board(1)
        for number in range(60):
            for side in [Side(each, range(3), 16, epoch=number).ahead(9) for each in boards]:
                assert len(side.takes()) == 3
        kept = [key.split("/")[3] for key, _ in store.key_value_dir_get("jreader/train.py:7/")]
        assert len(kept) < 2 * 3 * 20
        assert {"59", "50"} <= set(kept)
        assert "40" not in kept

    def test_forgets_feeds_that_all_got_long_ago(self, board, store):
        one, other = (Side(board(me), range(9000), 100) for me in (0, 1))
        for _ in range(90):
            for side in (one, other):
                side.agreement._listen = list
                side.ahead(100)
            assert one.takes(100) == other.takes(100)
        kept = store.key_value_dir_get("jreader/train.py:7/")
        assert len(kept) < 2 * 4400

    def test_needs_the_store_of_jax_distributed(self):
        with pytest.raises(RuntimeError, match=r"call jax\.distributed\.initialize\(\) before"):
            Board({0, 1}, "train.py:7")
