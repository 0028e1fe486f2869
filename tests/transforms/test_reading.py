"""`read`: files dealt to lanes."""

import cloudpickle
import pytest

from jreader import Pipeline, read, source, start


def lines(file):
    yield from file.split()


FILES = ["a b c", "d", "e f"]


def test_files_are_dealt_in_turn_and_lanes_give_one_sample_each():
    assert "".join(read(lines, source(FILES), lanes=2)()) == "adbcef"
    assert "".join(read(lines, source(FILES))()) == "abcdef"


def test_a_stream_of_names_will_do():
    assert "".join(Pipeline(lambda: iter(FILES)).read(lines, lanes=2)) == "adbcef"


def test_too_few_files_are_refused_with_both_numbers_and_what_to_type():
    with pytest.raises(ValueError, match=r"3 files cannot fill 64 lanes: type lanes=3 or less"):
        Pipeline(source(FILES)).read(lines, lanes=64)
    with pytest.raises(
        ValueError, match=r"parts of files, as read\(fn, files\(paths, parts=22\), lanes=64"
    ):
        Pipeline(source(FILES)).read(lines, lanes=64)


def test_parts_of_files_fill_more_lanes():
    def part(each):
        path, number = each
        yield from FILES[path].split()[number::2]

    parts = [(path, number) for path in range(3) for number in range(2)]
    assert sorted(Pipeline(source(parts)).read(part, lanes=6)) == [*"abcdef"]


def test_nothing_is_read_before_a_pass_and_a_file_when_its_turn_comes():
    opened = []

    def noted(file):
        opened.append(file)
        yield from file.split()

    items = start(Pipeline(source(FILES)).read(noted, lanes=3)).items
    assert opened == []
    assert next(items) == "a"
    assert opened == ["a b c"]


def test_a_plan_in_lanes_travels():
    plan = Pipeline(source(FILES)).read(lines, lanes=2).shuffle(2, seed=1).batch(2)
    copy = cloudpickle.loads(cloudpickle.dumps(plan))
    assert repr(copy) == repr(plan)
    assert [*map(list, copy)] == [*map(list, plan)]


def test_the_error_of_a_function_names_read_and_its_line():
    def failing(file):
        raise OSError(file)
        yield

    with pytest.raises(OSError, match="a b c") as caught:
        list(Pipeline(source(FILES)).read(failing, lanes=2))
    (note,) = caught.value.__notes__
    assert "in read, made at" in note
    assert __file__ in note
