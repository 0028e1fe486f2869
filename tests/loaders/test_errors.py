"""Errors of users arrive as they are, whatever their classes are like."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from jreader import DataLoader, Pipeline, arrays, source


@dataclass(frozen=True)
class Frozen(Exception):
    """An error that takes no notes."""

    code: int


class Failing:
    def __len__(self):
        return 3

    def __getitem__(self, index):
        raise Frozen(index)


def fail(_):
    raise Frozen(0)


REFUSING = {
    "a data set": DataLoader(Failing()),
    "a data set of a source": Pipeline(source(Failing())).batch(1).load(),
    "a function of batches": Pipeline(arrays(np.arange(3))).batch(1).map_batches(fail).load(),
    "a function": Pipeline(arrays(np.arange(3))).map(fail).batch(1).load(),
    "a collate_fn": DataLoader(range(3), collate_fn=fail),
    "a reader": Pipeline(lambda: (fail(n) for n in range(3))).batch(1).load(),
}


@pytest.mark.parametrize("where", REFUSING)
def test_an_error_that_takes_no_notes_arrives_as_it_is(where):
    with pytest.raises(Frozen):
        list(REFUSING[where])
