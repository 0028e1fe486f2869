"""What readers give, in a form to compare: as plain values, from any place on, up to an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from jreader import Reader, shuffle, start
from jreader.readers import Columns


def everything(reader: Reader[Any]) -> list[Any]:
    """The samples as plain Python values, which compare without surprises."""
    return [plain(sample) for sample in reader()]


def plain(value: Any) -> Any:
    """A sample with lists for its tuples and arrays, or a batch with those of its columns."""
    if isinstance(value, Columns):
        return plain(value.columns)
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def check_resumes_everywhere(reader: Reader[Any]) -> None:
    """A position is a place: through JSON, before, between and after the samples, twice over."""
    whole = everything(reader)
    for done in range(len(whole) + 1):
        first = start(reader)
        head = [plain(next(first.items)) for _ in range(done)]
        second = start(reader, json.loads(json.dumps(first.position())))
        assert json.dumps(second.position()) == json.dumps(first.position())
        third = start(reader, json.loads(json.dumps(second.position())))
        assert head + [plain(sample) for sample in second.items] == whole
        assert head + [plain(sample) for sample in third.items] == whole
        for ended in (second, third):
            assert list(start(reader, json.loads(json.dumps(ended.position()))).items) == []
        first.close()


def kept_in_order(reader: Reader[Any], buf_size: int = 1, seed: Any = 0) -> shuffle[Any]:
    """A shuffle of windows too small to deal, which says so."""
    with pytest.warns(UserWarning, match="keeps the order"):
        return shuffle(reader, buf_size, seed)


def ends(items: Iterator[Any]) -> tuple[list[Any], BaseException]:
    """The samples of a pass, and the error that it raised; nothing comes after it."""
    samples = []
    with pytest.raises(Exception) as raised:  # noqa: PT011, PT012  # compared by the caller
        while True:
            samples.append(next(items))
    assert list(items) == []
    assert next(items, "end") == "end"
    return samples, raised.value
