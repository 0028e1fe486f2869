"""Mistakes of a first program: each error says what to type."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import jreader
from jreader import DamagedData, DataLoader, Pipeline, arrays

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
        (lambda: Pipeline(jreader.arrays), TypeError, r"call it with its arguments, as in arrays"),
        (lambda: Pipeline(None), TypeError, "NoneType. Does the function .* lack a return"),
        (lambda: Pipeline((np.zeros(3), np.ones(3))), TypeError, r"arrays\(images, labels\)"),
        (lambda: ROWS.chain([ROWS, ROWS]), TypeError, "Give the readers themselves"),
        (lambda: ROWS.interleave(lambda x: x), TypeError, r"a lambda has to be given x.*flat_map"),
        (lambda: ROWS.map(lambda x, y: x), TypeError, r"takes x, y: type .* fn\(\*sample\)"),
        (lambda: ROWS.filter(lambda x, y: x), TypeError, r"takes x, y: type .* fn\(\*\*sample\)"),
        (lambda: LOADER.on_device(lambda x, y: x), TypeError, r"type lambda feed: fn\(\*feed\)"),
        (lambda: jreader.map_readers(ROWS, abs), TypeError, "one sample, not the Pipeline"),
        (lambda: ROWS.batch(4).load(16), TypeError, r"not 16: type \.batch\(16\)"),
        (lambda: DataLoader("/data/train", 4), TypeError, r"letters: type .*image_folder\(path\)"),
        (
            lambda: DataLoader((np.zeros(3), np.ones(3))),
            TypeError,
            r"type TensorDataset\(\*arrays\)",
        ),
        (lambda: jreader.csv(__file__, header=None), TypeError, r"not None"),
        (lambda: Pipeline(ROWS()), TypeError, r"read only once\. Pass .*itself: `f`"),
        (
            lambda: list(ROWS.map_batches(dict)),
            ValueError,
            r"type \.batch\(n\) before \.map_batches",
        ),
        (lambda: ROWS[np.arange(8) > 3], TypeError, r"type np\.flatnonzero\(mask\)"),
        (lambda: ROWS.batch(2).peek()["x"], TypeError, r"type batch\.columns\['x'\]"),
        (lambda: DataLoader(LOADER), TypeError, r"is a loader already: iterate it"),
        (lambda: setattr(LOADER, "next_epoch", "3"), TypeError, "loader.next_epoch needs a whole"),
        (lambda: jreader.as_function(LOADER), TypeError, "is a loader, or"),
        (
            lambda: arrays([[1], [1, 2]]),
            ValueError,
            r"rows of one shape.*ragged\(values, offsets\)",
        ),
        (lambda: ROWS.map(abs, executor=ThreadPoolExecutor), TypeError, "not ThreadPoolExecutor"),
        (lambda: LOADER.shuffle, AttributeError, r"type \.shuffle\(\.\.\.\) before \.load\(\)"),
        (lambda: LOADER.steps(2, at="{" * 999), ValueError, r"cursor: '\{{37}\.{3}\{+'\. Give"),
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


def test_one_array_of_json_is_read_by_source(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[\n  {"a": 1}\n]')
    with pytest.raises(DamagedData, match=r"type source\(json\.load\(file\)\)"):
        list(jreader.jsonl(tmp_path / "a.json")())


@pytest.mark.parametrize("number", [1, 42])
def test_a_number_that_is_a_likely_seed_is_asked_about(number: int) -> None:
    with pytest.warns(UserWarning, match=f"was seed={number} meant"):
        ROWS.shuffle(number)
    assert list(ROWS.shuffle(42, seed=0).firstn(0)) == []  # meant as it is written
