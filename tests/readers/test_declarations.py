"""An op is declared by its fields, and checks them where it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from jreader import Node, Pass, Reader, start
from jreader.readers import op, whole
from jreader.readers.nodes import may_not_end


@op
class scaled(Node):
    fn: Callable[[Any], Any]
    reader: Reader
    times: int = whole(least=1)
    most: int | None = whole(default=None)

    def start(self, at) -> Pass:
        return start(self.reader, at).mapped(lambda sample: self.fn(sample) * self.times)


def ones():
    yield 1


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((abs, [1], 2), TypeError, r"scaled\(fn, reader, times, most\) needs a reader"),
        ((3, ones, 2), TypeError, r"scaled\(fn, reader, times, most\) needs a function"),
        ((abs, ones, 0), ValueError, r"times of scaled\(.*\) needs a whole number of at least 1"),
        ((abs, ones, 2.5), TypeError, r"times of scaled\(.*\) needs a whole number"),
        ((abs, ones, True), TypeError, r"times of scaled\(.*\) needs a whole number"),
        (
            (abs, ones, 2, -1),
            ValueError,
            r"most of scaled\(.*\) needs a whole number of at least 0",
        ),
    ],
)
def test_an_argument_is_checked_where_the_op_is_made(arguments, error, said):
    with pytest.raises(error, match=said):
        scaled(*arguments)


def test_a_number_without_a_default_has_to_be_given():
    with pytest.raises(TypeError, match="times"):
        scaled(abs, ones)


def test_a_default_of_none_stands_for_no_number():
    assert scaled(abs, ones, 2).most is None
    with pytest.raises(TypeError, match="times of"):
        scaled(abs, ones, None)


def test_an_index_of_another_library_becomes_an_int():
    class Two:
        def __index__(self):
            return 2

    assert type(scaled(abs, ones, Two()).times) is int


def test_an_op_with_checks_of_its_own_keeps_those_of_its_fields():
    @op
    class even(scaled):
        def check_arguments(self):
            if self.times % 2:
                raise ValueError(f"even needs an even number of times, not {self.times}")
            return {}

    assert list(even(abs, ones, 2)()) == [2]
    with pytest.raises(ValueError, match="even number"):
        even(abs, ones, 3)
    with pytest.raises(ValueError, match=r"times of even\("):
        even(abs, ones, 0)


def test_arguments_that_change_with_others_are_returned():
    @op
    class clipped(scaled):
        def check_arguments(self):
            return {"most": self.times if self.most is None else self.most}

    assert clipped(abs, ones, 2).most == 2
    assert clipped(abs, ones, 2, 5).most == 5


def test_an_op_that_is_decorated_as_a_dataclass_is_the_same():
    @dataclass(frozen=True, eq=False, repr=False)
    class shifted(Node):
        reader: Reader
        by: int = 0
        epoch: int = field(default=0, init=False)

        def start(self, at) -> Pass:
            return start(self.reader, at).mapped(lambda sample: sample + self.by)

    assert list(shifted(ones, -3)()) == [-2]
    assert repr(shifted(ones, by=-3)) == "shifted(ones, by=-3)"
    with pytest.raises(TypeError, match=r"shifted\(reader, by\) needs a reader"):
        shifted([1])


def test_fields_may_be_named_as_the_framework_would():
    """An op of a user's, whose words are its own."""

    @op
    class repeated(Node):
        reader: Reader
        n: int = whole(least=0)
        call: Any = len
        endless: bool = False

        def start(self, at):
            return start(self.reader, at)

    assert may_not_end(repeated(lambda: range(4), 3))
    with pytest.raises(ValueError, match=r"^repeated\(reader, n, call, endless\) needs a whole"):
        repeated(lambda: range(4), -1)
