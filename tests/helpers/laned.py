"""Random plans whose samples come in lanes."""

from __future__ import annotations

from functools import cache
from typing import Any

from graphs import ARGUMENTS, OPS, Recipe, op_recipes, several
from hypothesis import strategies as st

import jreader
from jreader.readers.lanes import dealt_below, joins_lanes

IN_LANES = [
    op
    for op in OPS
    if not joins_lanes(op) and not op.pinned and op not in (jreader.read, jreader.unbatch)
]
KEPT_SEEDS = ARGUMENTS["seed"].filter(lambda seed: seed is not None)


@st.composite
def dealt(draw: st.DrawFn) -> Recipe:
    """Some files, perhaps shuffled, of 0 to 3 samples each, in lanes."""
    lanes = draw(st.integers(1, 4))
    files = Recipe(jreader.arrays, {"rows": draw(st.integers(lanes, 12)), "width": 1})
    if draw(st.booleans()):
        files = Recipe(
            jreader.shuffle, {"buf_size": None, "seed": draw(KEPT_SEEDS), "blocks": None}, (files,)
        )
    return Recipe(jreader.read, {"lanes": lanes}, (files,))


@cache
def _plans(depth: int) -> st.SearchStrategy[Recipe]:
    if not depth:
        return dealt()
    below = _plans(depth - 1)
    return st.one_of(below, *[op_recipes(op, below) for op in IN_LANES])


@st.composite
def _in_lanes(draw: st.DrawFn) -> Recipe:
    return draw(_plans(3).filter(lambda recipe: recipe.seeded and dealt_below(recipe.build())))


in_lanes = _in_lanes()
"""Ops that run inside lanes, above files that are dealt to some."""


def lanes_of(plan: Any) -> int:
    found = dealt_below(plan)
    assert found is not None
    return found.lanes


__all__ = ["dealt", "in_lanes", "lanes_of", "several"]
