"""The rows of a source that samples are made of, as a brute search finds them."""

import numpy as np

from jreader.readers.columns import Column, column_of
from jreader.readers.compounds import source_begins
from jreader.readers.joined_columns import ConcatColumn
from jreader.readers.stacked_rows import StackedRows


def cut_of_documents(column):
    """Whether its rows are windows or packs, of which other rows are asked for."""
    if isinstance(column, (StackedRows, ConcatColumn)):
        return any(map(cut_of_documents, getattr(column, "parts", None) or [column.column]))
    return isinstance(column, Column) and column.source is not column


def rows_in_source(column, rows):
    """For each row of a column, the rows of its source that it is made of, as a list."""
    while isinstance(column, StackedRows):
        column, rows = column.column, column.inner_rows(rows)
    if column_of(column).in_pairs:
        rows = np.array(source_begins(column.parts))[rows[..., 1]] + rows[..., 0]
    return [np.ravel(row).tolist() for row in rows]
