"""Random plans over the rows of arrays, of which those that only move samples are indexed."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from block_sources import in_blocks
from graphs import OPS, Recipe, op_recipes
from held_rows import rows_in_source
from hypothesis import strategies as st

import jreader
from jreader import Columns, arrays, source
from jreader.readers import Node, indexed, leaves, map_tree, op, start
from jreader.readers.columns import column_of
from jreader.readers.joined_columns import ConcatArray, ConcatColumn
from jreader.readers.stacked_rows import StackedRows
from jreader.sources.blocks import BlockColumns


@dataclass(frozen=True)
class Rows:
    """The rows of arrays, as a plain function with a length: nothing about it is indexed."""

    count: int
    base: int
    form: str

    @property
    def columns(self):
        rows = np.arange(self.count) + 100 * self.base
        if self.form.startswith("bare"):
            return rows
        if self.form.startswith("tuple"):
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
    st.sampled_from(
        [
            *("bare", "tuple", "tree", "bare, asked", "tuple, asked", "tree, listed"),
            *("bare, in blocks", "tree, in blocks"),
        ]
    ),
)


MOVERS = tuple(op for op in OPS if op.plane is not Node.plane)


@cache
def plans(ops, depth=4):
    if depth == 0:
        return rows
    below = deeper(ops, depth - 1)
    return st.one_of(below, *[op_recipes(op, below).map(_without_blocks) for op in ops])


def _without_blocks(recipe):
    """What a plain function can do too: it has no blocks that a shuffle could deal."""
    return replace(
        recipe, given={**recipe.given, "blocks": None} if "blocks" in recipe.given else recipe.given
    )


@st.composite
def deeper(draw, ops, depth):
    return draw(plans(ops, depth))


def naive(recipe):
    return _told(recipe).build()


def _told(recipe):
    """The plan in which filters with bits tell their length, as they do where they are indexed."""
    below = tuple(map(_told, recipe.below))
    bits = recipe.op is jreader.filter and recipe.given["keep"]
    return replace(recipe, below=below, op=filter if bits else recipe.op)


def filter(fn, reader, keep):  # noqa: A001  # recipes know ops by their names
    left = jreader.filter(fn, reader, keep)
    if keep is None:
        return left
    with warnings.catch_warnings():  # that none are left
        warnings.simplefilter("ignore")
        return told(left, sum(1 for _ in left()))


filter.tells_of = jreader.filter


@op
class told(Node):
    """The samples of a reader of so many."""

    reader: object
    many: int

    def start(self, at):
        return start(self.reader, at)

    def length(self):
        return self.many


def fast(recipe):
    return recipe.build(_indexed)


def _indexed(leaf):
    if leaf.form.endswith("asked"):
        return source(Asked(leaf.columns), batched=True)
    if leaf.form.endswith("listed"):
        return source(list(Columns(leaf.columns)))
    if leaf.form.endswith("in blocks"):
        starts = np.minimum([0, 2, 2, 3, 9, 20], leaf.count)
        return in_blocks(BlockColumns(starts, leaf.count, partial(_block, leaf.columns, starts)))
    return arrays(leaf.columns)


def _block(columns, starts, block):
    part = slice(starts[block], None if block + 1 == len(starts) else starts[block + 1])
    return map_tree(lambda column: column[part], columns)


@dataclass(frozen=True)
class Asked:
    """A data set that is found by number, and not an array: only its rows tell what they are."""

    columns: object

    def __len__(self):
        return len(leaves(self.columns)[0])

    def __getitem__(self, rows):
        return map_tree(lambda column: column[rows], self.columns)


seeded = deeper(tuple(OPS), 4).filter(lambda recipe: recipe.seeded)


def moves(recipe):
    """Whether it is indexed, and what its windows stack has one structure."""
    plane = indexed(fast(recipe)) if recipe.seeded else None
    stacked = (
        column for column in leaves(plane and plane.columns) if isinstance(column, StackedRows)
    )
    return plane is not None and all(map(_alike, stacked))


def _alike(column):
    """Whether the rows of a column can be stacked: those of several readers may have several."""
    while isinstance(column, StackedRows):
        column = column.column
    if not isinstance(column, ConcatColumn):
        return True
    return len({_kind(part) for part in column.parts if len(part)}) < 2


def _kind(column):
    (sample,) = column_of(column).each(np.array([0]))
    return str(map_tree(lambda leaf: (leaf.dtype, leaf.shape), sample))


moving = deeper(MOVERS, 4).filter(moves)


def _of_arrays(recipe):
    columns = leaves(indexed(fast(recipe)).columns)
    return all(isinstance(column, (np.ndarray, ConcatArray)) for column in columns)


def _over_arrays(recipe):
    """The recipe over arrays alone, of which more plans are of arrays."""
    leaf = recipe.leaf and replace(recipe.leaf, form=recipe.leaf.form.partition(",")[0])
    return replace(recipe, leaf=leaf, below=tuple(map(_over_arrays, recipe.below)))


moving_arrays = deeper(MOVERS, 4).map(_over_arrays).filter(moves).filter(_of_arrays)


moving_alike = moving.filter(lambda recipe: all(map(_alike, leaves(indexed(fast(recipe)).columns))))


def source_rows(samples, number):
    """The rows of a column of each sample of a step, as its source counts them."""
    return rows_in_source(leaves(samples.columns)[number], leaves(samples.rows)[number])
