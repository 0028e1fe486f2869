"""Random plans over the rows of arrays, of which those that only move samples are indexed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from graphs import OPS, Recipe, op_recipes
from hypothesis import strategies as st

from jreader import Columns, arrays
from jreader.readers import Node, indexed


@dataclass(frozen=True)
class Rows:
    """The rows of arrays, as a plain function with a length: nothing about it is indexed."""

    count: int
    base: int
    form: str

    @property
    def columns(self):
        rows = np.arange(self.count) + 100 * self.base
        if self.form == "bare":
            return rows
        if self.form == "tuple":
            return rows, rows[:, None] * np.ones(2, np.float32)
        return {"id": rows, "inner": (rows % 7, rows[:, None])}

    def __call__(self):
        return iter(Columns(self.columns))

    def __len__(self):
        return self.count


rows = st.builds(
    lambda count, base, form: Recipe(None, {}, leaf=Rows(count, base, form)),
    st.integers(0, 25),
    st.integers(0, 3),
    st.sampled_from(["bare", "tuple", "tree"]),
)


MOVERS = tuple(op for op in OPS if op.plane is not Node.plane)


@cache
def plans(ops, depth=4):
    if depth == 0:
        return rows
    below = deeper(ops, depth - 1)
    return st.one_of(below, *[op_recipes(op, below) for op in ops])


@st.composite
def deeper(draw, ops, depth):
    return draw(plans(ops, depth))


def naive(recipe):
    return recipe.build()


def fast(recipe):
    return recipe.build(lambda leaf: arrays(leaf.columns))


seeded = deeper(tuple(OPS), 4).filter(lambda recipe: recipe.seeded)
moving = deeper(MOVERS, 4).filter(
    lambda recipe: recipe.seeded and indexed(fast(recipe)) is not None
)
