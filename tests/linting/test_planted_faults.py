"""The linter finds each fault that is planted here, and says nothing where there is none."""

from __future__ import annotations

import re
import threading
import time
import warnings
from collections import Counter
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
from interpreter import GIL
from programs import PATIENCE

import jreader
from jreader import DataLoader, LintWarning, Pipeline, arrays, lint, map_readers, ragged, source
from jreader.linting import RULES, Fed, Finding, field_rules

IMAGES = np.zeros((512, 64, 64, 3), np.uint8)
PAGE = (Path(__file__).parents[2] / "docs" / "linting.md").read_text()


def rows(many=10_000):
    return Pipeline(arrays(x=np.arange(many, dtype=np.int32)))


def numbers():
    yield from range(1000)


def stream():
    return Pipeline(numbers)


def pictures():
    return Pipeline(arrays(image=IMAGES, label=np.arange(512))).shuffle(seed=0)


def scaled(feed):
    return {**feed, "image": feed["image"].astype(np.float32) / 255}


def sum_of_squares(_):
    return sum(number * number for number in range(3000))


def twice_mapped():
    return rows().map(str).chain(rows().map(str))


class OfSeveral:
    """What a loader tells of a plan of which each process feeds a part (`tests/loaders`)."""

    def __init__(self, plan):
        self.plan = plan

    def _fed(self):
        return Fed(self.plan, shared=True)


def shared_generator():
    used = (number for number in range(10))
    return Pipeline(lambda: used).batch(2)


def documents(many):
    ends = np.cumsum([0, *range(1, many + 1)])
    return Pipeline(ragged(np.arange(ends[-1], dtype=np.int32), ends))


PLANTED = {
    "small-window": lambda: rows().shuffle(50, seed=0).batch(32),
    "shuffle-after-batch": lambda: rows().batch(32).shuffle(seed=0),
    "map-below-shuffle": lambda: twice_mapped().shuffle(seed=0).batch(32),
    "map-on-every-process": lambda: OfSeveral(twice_mapped().batch(32)),
    "generator-object": shared_generator,
    "same-left-out": lambda: rows().batch(64).load(),
    "host-float32": lambda: pictures().batch(128).map_batches(scaled),
    "narrowed": lambda: Pipeline(arrays(np.zeros((256, 10_000)))).shuffle(seed=0).batch(128),
    "unordered": lambda: stream().xmap(abs, 2, 4).batch(2),
    "large-cache": lambda: rows(1 << 30).map(lambda _: np.zeros(1 << 20)).cache(),
    "many-shapes": lambda: documents(40).padded_batch(2).load(),
    "ragged-last-batch": lambda: DataLoader(range(10), batch_size=4),
    "scalar-map": lambda: Pipeline(arrays(np.ones((640, 4)))).map(np.tanh).batch(64),
    "held-lock": lambda: stream().map(sum_of_squares, threads=2).batch(4),
}

NEEDS_GIL = {"held-lock"}


def names(found):
    return [finding.name for finding in found]


@pytest.fixture(autouse=True)
def little_memory(request, monkeypatch):
    """A cache of a terabyte is large on any machine, an array of it is not made for that."""
    if "large-cache" in request.node.name:
        monkeypatch.setitem(PLANTED, "large-cache", _cached)


def _cached():
    many = np.broadcast_to(np.zeros(1, np.int8), (1 << 40, 1))
    return Pipeline(arrays(many)).map(lambda _: np.zeros(1 << 10)).cache()


@pytest.mark.filterwarnings("ignore::jreader.LintWarning")
class TestEveryRule:
    def test_each_has_a_planted_fault(self):
        assert {*PLANTED} == {*RULES}

    @pytest.mark.parametrize("name", RULES)
    def test_a_planted_fault_is_found_and_nothing_else(self, name):
        timed = name in ("scalar-map", "held-lock")
        found = lint(PLANTED[name](), measure=timed)
        assert names(found) == ([] if name in NEEDS_GIL and not GIL else [name])
        if not found:
            return
        (finding,) = found
        assert re.fullmatch(r"\S.*\.", finding.sentence)
        assert re.fullmatch(r"[A-Z`l].*\.", finding.fix)
        assert Path(__file__).name in finding.made_at

    @pytest.mark.parametrize("name", RULES)
    def test_it_is_left_out_where_its_name_is(self, name):
        timed = name in ("scalar-map", "held-lock")
        assert lint(PLANTED[name](), measure=timed, ignore=[name]) == []

    @pytest.mark.parametrize("name", RULES)
    def test_it_is_on_the_page_with_its_moment(self, name):
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))
        assert (RULES[name] or "you ask") in row

    def test_the_page_has_no_other(self):
        assert set(re.findall(r"^\| `([a-z0-9-]+)` \|", PAGE, re.MULTILINE)) == {*RULES}


class TestWindows:
    @pytest.mark.parametrize(
        "plan",
        [
            rows().shuffle(100, seed=0).batch(32),
            rows(20).shuffle(20, seed=0).batch(32),
            stream().shuffle(64, seed=0).batch(64),
            stream().shuffle(500, seed=0).shuffle(4, seed=1).batch(8),
            stream().shuffle(4, seed=0),
            stream().flat_map(lambda n: [n] * 9).shuffle(64, seed=0).batch(9),
            rows().shuffle(seed=0).batch(32).shuffle(4, seed=1),
        ],
        ids=repr,
    )
    def test_windows_that_mix_are_none(self, plan):
        assert lint(plan) == []

    def test_one_smaller_than_a_batch_is_found_in_a_stream_too(self):
        (finding,) = lint(stream().filter(bool).shuffle(16, seed=0).map(abs).batch(64))
        assert "a batch has 64" in finding.sentence
        assert "shuffle(64, seed=0)" in finding.fix

    def test_its_fix_is_no_finding(self):
        assert lint(rows().shuffle(seed=0).batch(32)) == []

    def test_a_length_that_fails_is_left_to_those_who_need_it(self):
        class Asked:
            def __call__(self):
                raise AssertionError

            def __len__(self):
                raise OSError

        jreader.linting.warn_of_plan(Pipeline(Asked()).shuffle(4, seed=0))


class TestMaps:
    @pytest.mark.parametrize(
        "plan",
        [
            rows().shuffle(seed=0).map(str).batch(8),
            rows().map(str).shuffle(seed=0).batch(8),
            rows().skip(3).map(str, threads=2).firstn(100).shuffle(seed=0).batch(8),
            rows().map(lambda row, rng: str(row), rng=True, seed=1).shuffle(seed=0).batch(8),
            rows().shuffle(seed=0).batch(8).map_batches(dict),
            rows().map(str).shuffle(500, seed=0).batch(8),
            rows().filter(bool).map(str).shuffle(500, seed=0).batch(8),
            rows().map(str).cache().shuffle(seed=0).batch(8),
            rows().prefetch(2).shuffle(seed=0).batch(8),
            Pipeline(source([*range(9)])).shuffle(seed=0).batch(3),
            Pipeline(map_readers(max, numbers, numbers)).shuffle(64, seed=0).batch(8),
        ],
        ids=repr,
    )
    def test_those_that_are_called_when_a_sample_is_due_are_none(self, plan):
        assert lint(plan) == []

    def test_those_of_readers_that_are_joined_are_called_for_every_sample_before_the_first(self):
        mapped = twice_mapped()
        (finding,) = lint(mapped.shuffle(seed=0).batch(8))
        assert finding.name == "map-below-shuffle"
        assert f"for all {len(mapped):,} samples" in finding.sentence
        with pytest.warns(LintWarning, match="^map-below-shuffle: "):
            mapped.shuffle(seed=0).batch(8).load()

    def test_what_the_finding_says_is_so_and_its_fix_mends_it(self):
        called = []

        def note(row):
            called.append(row["x"])
            return row["x"]

        before = rows(30).map(note).chain(rows(30).map(note)).shuffle(seed=0)
        after = rows(30).chain(rows(30)).map(note).shuffle(seed=0)
        first = [next(before()), next(after())]
        assert first[0] == first[1]
        assert len(called) == 60 + 1
        assert list(before()) == list(after())
        assert lint(after.batch(4)) == []

    @pytest.mark.parametrize(
        "plan",
        [
            rows().batch(8),
            rows().shuffle(seed=0).map(str).batch(8),
            rows().map(str).shuffle(seed=0).batch(8),
            rows().batch(8).map_batches(dict),
            stream().map(abs).batch(8),
            Pipeline(source([*range(9)])).batch(3),
        ],
        ids=repr,
    )
    def test_on_several_processes_each_maps_its_own_rows_or_there_is_no_map(self, plan):
        assert lint(OfSeveral(plan)) == []


class TestFields:
    def test_bytes_that_stay_bytes_are_fine(self):
        assert lint(pictures().batch(128).load().on_device(scaled)) == []

    def test_floats_that_were_floats_are_fine(self):
        floats = np.zeros((128, 64, 64), np.float32)
        assert lint(Pipeline(arrays(floats)).map(lambda image: image / 2).batch(128)) == []

    def test_a_few_bytes_are_not_worth_a_word(self):
        assert lint(pictures().batch(2).map_batches(scaled)) == []
        assert lint(Pipeline(arrays(np.arange(10.0))).batch(5)) == []

    @pytest.mark.parametrize("capacity", [0, 2])
    def test_the_first_feed_of_a_loop_warns_of_floats_made_on_the_host(self, capacity):
        loader = pictures().batch(128).map_batches(scaled).load(capacity=capacity)
        with pytest.warns(LintWarning, match="^host-float32: field 'image' is uint8 where") as told:
            assert len(list(loader)) == 4
        assert len(told) == 1
        assert len(list(loader)) == 4  # which is silent: the first feed was

    def test_a_feed_of_64_bits_warns_as_it_is_narrowed(self):
        loader = Pipeline(arrays(np.zeros((256, 4096)))).shuffle(seed=0).batch(128).load()
        with pytest.warns(LintWarning, match="^narrowed: the feed is float64 on the host, and f"):
            next(iter(loader))

    def test_to_look_at_a_loader_warns_of_nothing(self):
        loader = pictures().batch(128).map_batches(scaled).load()
        assert loader.peek()["image"].dtype == np.float32
        assert loader.element_spec["image"].dtype == np.float32
        assert names(lint(loader)) == ["host-float32"]

    def test_memory_is_that_of_a_machine(self):
        assert 2**27 < field_rules.memory() < 2**50


class TestShapes:
    def test_any_length_may_come_where_none_is_known(self):
        loader = Pipeline(lambda: iter([[1], [2, 3]])).padded_batch(2).load(last="pad")
        (finding,) = lint(loader)
        assert finding.name == "many-shapes"
        assert "any length may come" in finding.sentence

    def test_a_few_are_fine(self):
        plan = documents(40)
        assert lint(plan.padded_batch(2, to=[20, 40]).load()) == []

    @pytest.mark.parametrize("options", [{"drop_last": True}, {"last": "pad"}])
    def test_batches_of_one_size_are_fine(self, options):
        assert lint(DataLoader(range(10), batch_size=4, **options)) == []

    def test_texts_that_stay_on_the_host_have_none(self):
        pairs = [(number, str(number)) for number in range(8)]
        loader = DataLoader(pairs, batch_size=4)
        assert lint(loader) == []
        assert len(loader.shapes()) == 1


class TestMeasured:
    def test_a_function_that_waits_outside_the_lock_holds_none(self):
        plan = stream().map(lambda _: time.sleep(0.001), threads=2)
        assert lint(plan, measure=True) == []

    def test_it_leaves_no_thread_and_no_setting(self):
        import sys  # noqa: PLC0415  # of this test alone

        before = sys.getswitchinterval()
        threads = set(threading.enumerate())  # of which those of earlier tests may end meanwhile
        lint(stream().map(sum_of_squares, threads=2), measure=True)
        assert sys.getswitchinterval() == before
        assert set(threading.enumerate()) <= threads

    def test_functions_that_no_batch_fits_are_fine(self):
        plan = rows().map(lambda row: int(row["x"]) if row["x"] < 10**9 else 0)
        assert lint(plan, measure=True) == []

    def test_a_function_that_fails_is_left_to_the_pass(self):
        def picky(number):
            if number:
                raise ValueError
            return number

        assert lint(stream().map(picky, threads=2), measure=True) == []

    def test_nothing_is_called_without_it(self):
        calls = Counter()

        def counted(number):
            calls["f"] += 1
            return number

        lint(stream().map(counted))
        assert calls["f"] < 10


class TestBuilding:
    def test_a_loader_that_is_built_warns_at_the_line_of_the_op(self):
        plan = rows().shuffle(50, seed=0)  # here
        with pytest.warns(LintWarning, match="^small-window: ") as told:
            plan.batch(32).load()
        (each,) = told
        assert each.filename == __file__
        line = Path(__file__).read_text().splitlines()[each.lineno - 1]
        assert line.endswith("# here")

    def test_each_warns_once(self):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("default")
            for _ in range(3):
                rows().shuffle(51, seed=0).batch(32).load()
        assert len(told) == 1

    @pytest.mark.parametrize("filtered", ["small-window", "small-"])
    def test_it_is_silenced_by_name(self, filtered):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=filtered)
            rows().shuffle(50, seed=0).batch(32).load()

    def test_an_environment_variable_silences_it(self, python):
        script = """
            import numpy as np
            from jreader import Pipeline, arrays
            Pipeline(arrays(np.arange(9000))).shuffle(50, seed=0).batch(32).load()
        """
        quiet = python(script, PYTHONWARNINGS="ignore:small-window")
        assert "small-window" not in quiet.stderr

    def test_every_door_has_it(self):
        reader = jreader.shuffle(rows(), 50, seed=0)
        batches = jreader.batch(reader, 32)
        for made in (
            lambda: DataLoader.from_generator().set_sample_generator(reader, 32),
            lambda: DataLoader.from_generator().set_sample_list_generator(batches),
            lambda: Pipeline(batches).load(sharding="host"),
        ):
            with pytest.warns(LintWarning, match="small-window"):
                made()

    def test_it_reads_nothing(self):
        def unreadable():
            raise AssertionError

        reader = Pipeline(unreadable).map(abs).cache().shuffle(8, seed=0).batch(4)
        assert reader.load().next_epoch == 0

    def test_plans_at_hand_are_looked_at_in_less_than_a_millisecond(self):
        plan = pictures().map(abs).chain(pictures()).cache().batch(128).map_batches(scaled)
        least = min(_seconds(lambda: jreader.linting.warn_of_plan(plan)) for _ in range(20))
        assert least < 1e-3 * PATIENCE / 10


def _seconds(call):
    began = time.thread_time()
    call()
    return time.thread_time() - began


class TestAsking:
    def test_a_generator_that_is_shared_is_not_used_up_by_looking(self):
        plan = shared_generator()
        assert names(lint(plan, measure=True)) == ["generator-object"]
        assert list(plan) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]

    @pytest.mark.parametrize("reader", [numbers, lambda: range(3), [1, 2].__iter__, Counter().keys])
    def test_functions_that_make_an_iterable_are_readers(self, reader):
        assert lint(reader) == []

    def test_a_default_and_a_method_may_hold_a_generator(self):
        held = (number for number in range(3))
        for reader in (lambda g=held: g, held.__iter__):
            assert names(lint(reader)) == ["generator-object"]

    def test_a_loader_and_a_function_are_subjects(self):
        assert lint(numbers) == []
        assert lint(rows().batch(10).load()) == []

    @pytest.mark.parametrize("subject", [3, [1, 2], "abc", int])
    def test_nothing_else_is(self, subject):
        with pytest.raises(TypeError, match="needs a reader, a pipeline or a loader, not"):
            lint(subject)

    def test_a_loader_without_a_source_says_so(self):
        with pytest.raises(RuntimeError, match="has no source"):
            lint(DataLoader.from_generator())

    def test_an_unknown_rule_is_refused_with_the_names_of_all(self):
        with pytest.raises(ValueError, match=r"no rule 'window': its rules are small-window, "):
            lint(numbers, ignore=["window"])
        with pytest.raises(TypeError, match=r"as in \['small-window'\]"):
            lint(numbers, ignore="small-window")

    def test_a_finding_is_plain_data(self):
        finding = Finding("a-name", "A sentence.", "A fix.", "a.py:3")
        assert repr(finding) == (
            "Finding(name='a-name', sentence='A sentence.', fix='A fix.', made_at='a.py:3')"
        )
        assert str(finding) == "a-name: A sentence. A fix."
        with pytest.raises(FrozenInstanceError):
            finding.name = "b"

    def test_no_pass_moves(self):
        loader = rows().shuffle(seed=0).batch(10).load()
        feeds = iter(loader)
        first = next(feeds)["x"].tolist()
        lint(loader)
        assert loader.next_epoch == 1
        assert next(iter(loader.epoch(0)))["x"].tolist() == first
