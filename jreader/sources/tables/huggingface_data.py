"""`huggingface`: data sets of Hugging Face by their Arrow columns, not row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from jreader.readers import Plane, argument, op, set_fields
from jreader.readers.columns import Array
from jreader.readers.excerpts import spread
from jreader.readers.hashing import text_hash
from jreader.readers.messages import described
from jreader.sources.columns import Table
from jreader.sources.files.file_readers import check_given, typed_arguments
from jreader.sources.tables.arrow_columns import Nulls, pyarrow
from jreader.sources.tables.column_names import check_fills, checked_names, checked_nulls
from jreader.sources.tables.media import with_media
from jreader.sources.tables.table_files import columns_in

_LOOKED_AT = 16  # rows, for hashes


class DatasetTable:
    """The table of a data set, and the order of its rows.

    Cursors and hashes look at it as at an array: at its length, and at some rows.

    Args:
        dataset: A `datasets.Dataset`.
    """

    dtype, nbytes = "Dataset", 0

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Hashes of some rows."""
        table, order = self.table, self.order
        places = list(spread(len(self), _LOOKED_AT))
        rows = places if order is None else order[places].tolist()
        values = [repr(table.slice(row, 1).to_pylist()) for row in rows]
        return np.array([text_hash(self.shape, str(table.schema), *values)])

    @property
    def shape(self) -> tuple[int]:
        """The number of rows."""
        return (len(self.dataset),)

    @cached_property
    def table(self) -> Any:
        """The table of Arrow, with the columns that the format of the data set leaves."""
        table, features = self.dataset.data.table, self.dataset.features or {}
        left = (self.dataset.format or {}).get("columns") or table.column_names
        columns = {name: table.column(name) for name in table.column_names if name in left}
        return pyarrow().table(
            {name: with_media(column, features.get(name)) for name, column in columns.items()}
        )

    @cached_property
    def order(self) -> Array | None:
        """The row of the table of each row of the data set; None for the same."""
        mapping = getattr(self.dataset, "_indices", None)  # no other way leads to it
        if mapping is None:
            return None
        order: Array = mapping.table.column(0).combine_chunks().to_numpy().view(np.int64)
        return order

    def __reduce__(self) -> tuple[Any, ...]:
        """A data set that lies in files travels as their names."""
        return DatasetTable, (self.dataset,)


def _checked_dataset(call: str, dataset: Any) -> DatasetTable:
    """The table of a data set.

    Raises:
        TypeError: It is none, or several.
        ValueError: A function is applied to its rows.
    """
    if isinstance(dataset, DatasetTable):
        return dataset
    if isinstance(dataset, Mapping):
        names = ", ".join(map(repr, dataset))
        raise TypeError(f"{call} needs one data set, not several: choose a split of {names}.")
    if not hasattr(dataset, "features") or not hasattr(getattr(dataset, "data", None), "table"):
        stream = hasattr(dataset, "features") and hasattr(dataset, "__iter__")
        hint = (
            "a stream is a reader as it is, Pipeline(lambda: dataset)"
            if stream
            else "give what datasets.load_dataset(name, split='train') returns"
        )
        raise TypeError(f"{call} needs a datasets.Dataset, not {described(dataset)}: {hint}.")
    if (dataset.format or {}).get("type") == "custom":
        raise ValueError(
            f"{call} reads the columns as they are stored, and this data set has a function that "
            f"is applied to rows when they are read: give dataset.with_format(None), and the "
            f"function to map, or use source(dataset)."
        )
    return DatasetTable(dataset)


@op
class huggingface(Table[Any]):
    """A reader of the rows of a Hugging Face data set, from its Arrow columns.

    Nothing is copied or decoded row by row: numbers are gathered from the data set's own memory, or
    its files that are mapped, as those of `arrow` are. Images and other media stay the bytes that
    they are stored as, or those of their files, where the data set has only paths, as that of
    `imagefolder`. The order of a data set that was shuffled, sorted or filtered is kept.

    >>> from datasets import Dataset
    >>> from jreader import batch
    >>> digits = Dataset.from_dict({"image": [[0.5, 0.0], [0.0, 1.0]], "label": [5, 0]})
    >>> rows = huggingface(digits, columns=["label"])
    >>> rows, next(iter(batch(rows, 2)())).columns
    (huggingface(Dataset[2], columns=['label']), {'label': array([5, 0])})

    Args:
        dataset: A `datasets.Dataset`. Of its format, only the choice of columns is applied.
        columns: The names of the columns to read, in the order that samples are to have; of a
            struct also some fields (`"answer.text"`). None for all columns. A single str gives bare
            values instead of dicts.
        nulls: What stands for nulls, by column: `{"age": -1}`, `{"ids[]": 0}` for the values of
            lists, `{"messages[].name": None}` for an optional key of dicts in a list (None keeps
            nulls as None, there and inside). Without it, a null is an error.

    Raises:
        TypeError: It is not a `datasets.Dataset`: choose a split of a `DatasetDict`; for an
            `IterableDataset`, type `Pipeline(lambda: dataset)`.
        ValueError: A function is applied to its rows when they are read (`set_transform`); or, when
            a pass begins, there is no such column, or it has nulls.
    """

    dataset: Any = argument(_checked_dataset)
    names: tuple[str, ...] | str | None = argument(checked_names, default=None)
    nulls: Mapping[str, Any] | None = argument(checked_nulls, default=None)

    def __init__(
        self,
        dataset: Any,
        columns: Sequence[str] | str | None = None,
        nulls: Mapping[str, Any] | None = None,
    ) -> None:
        pyarrow()
        set_fields(self, dataset=dataset, names=columns, nulls=nulls)
        check_given(self, "huggingface(dataset, columns, nulls)")

    @cached_property
    def columns(self) -> Any:
        """The columns of the table, over its own memory."""
        table, nulls = self.dataset.table, self.nulls or {}
        check_fills(nulls, self.names or table.column_names)
        return columns_in(table, self.names, Nulls("the data set", 0, nulls, as_stored=True))

    def plane(self) -> Plane:
        """The index plane: the rows of the table, in the order of the data set."""
        plane, order = super().plane(), self.dataset.order
        if order is None:
            return plane
        return plane.reordered(
            len(order), lambda indices: indices.__array_namespace__().asarray(order)[indices]
        )

    def length(self) -> int:
        """The number of rows."""
        return len(self.dataset)

    def __repr__(self) -> str:
        """The call that makes this reader."""
        named = [f"{name}={value!r}" for name, value in typed_arguments(self).items()]
        return f"huggingface({', '.join([f'Dataset[{len(self.dataset)}]', *named])})"
