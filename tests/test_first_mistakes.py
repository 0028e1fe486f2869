"""Mistakes of a first program: each error says what to type."""

import json
from collections.abc import Callable

import numpy as np
import pytest

from jreader import Pipeline, arrays

ROWS = Pipeline(arrays(x=np.arange(8.0)))
LOADER = ROWS.batch(4).load()


def read(path: str) -> list[str]:
    return [path]


def stream() -> list[int]:
    return [1]


@pytest.mark.parametrize(
    ("mistake", "kind", "message"),
    [
        (lambda: Pipeline(read), TypeError, r"read has to be given path.*lambda: read\(path\)"),
        (lambda: Pipeline(np.zeros(3)), TypeError, "not an ndarray"),
        (lambda: ROWS.map(None), TypeError, r"type the function itself, fn, not fn\(\.\.\.\)"),
        (lambda: LOADER.on_device(3), TypeError, "a function of a feed, not the int 3"),
        (lambda: ROWS.batch("4"), TypeError, "^batch_size of batch"),
        (lambda: ROWS.batch(4).load(capacity=-1), ValueError, "^capacity of a loader"),
        (lambda: ROWS.split(0.8), TypeError, r"list .*not 0\.8: type \[0\.8, 0\.2\]"),
        (lambda: ROWS.split(test_size=0.2), TypeError, r"type parts=\[0\.8, 0\.2\]"),
        (lambda: LOADER.batch(4), AttributeError, r"before \.load\(\)"),
        (lambda: LOADER.cursor, AttributeError, r"feeds = loader\.steps\(n\)"),
        (lambda: len(Pipeline(stream)), TypeError, r"loader\.steps\(n\)"),
        (
            lambda: LOADER.steps(2, at=json.dumps({"step": 1})),
            ValueError,
            r"json\.loads\(text\)",
        ),
        (
            lambda: list(Pipeline(lambda: [{"i": None}]).batch(1).load()),
            ValueError,
            "None stands for a field that a sample lacks",
        ),
        (
            lambda: list(Pipeline(lambda: [{"a": 1}, {"b": 1}]).batch(2).load()),
            ValueError,
            r"sample 0 is \{'a': 1\} and sample 1 is \{'b': 1\}",
        ),
    ],
)
def test_a_mistake_of_a_first_program_says_what_to_type(
    mistake: Callable[[], object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        mistake()
