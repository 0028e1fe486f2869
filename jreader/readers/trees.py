"""Samples with structure: mappings, tuples, lists, named tuples and dataclasses, without jax.

The rules are those of `jax.tree`, except that None is a leaf (it is a legal sample), and that
mappings of any kind and dataclasses are trees without being registered. Results made from a mapping
are dicts, as jax expects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import fields, is_dataclass
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from typing import Any, Generic, TypeVar, overload

import numpy as np

T = TypeVar("T")


class Rows(list[T]):
    """A list that is one leaf: samples side by side that are not stacked.

    >>> leaves({"text": Rows(["a", "b"])}), leaves({"text": ["a", "b"]})
    ([['a', 'b']], ['a', 'b'])
    """


# a quick check: most trees are a few leaves side by side
_SCALARS = {bool, int, float, str, bytes, type(None), np.float32, np.float64, np.int32, np.int64}
_LEAVES = frozenset({np.ndarray, Rows, *_SCALARS})
_PLAIN = frozenset({dict, tuple, list})
_NOTHING = type(None)


def branches(tree: Any) -> dict[Any, Any] | None:
    """Return the branches of a tree by key, or None for a leaf.

    >>> branches((5, "a")), branches(5)
    ({0: 5, 1: 'a'}, None)
    """
    kind: Any = type(tree)
    if _is_leaf(kind):
        return None
    if isinstance(tree, dict):
        return tree
    if isinstance(tree, (tuple, list)):
        return dict(enumerate(tree))
    if is_dataclass(tree):
        return {field.name: getattr(tree, field.name) for field in fields(tree)}
    return dict(tree)


@lru_cache(512)  # a look takes 3 us
def _is_leaf(kind: type) -> bool:
    """Return whether values of a type have no branches."""
    return (
        not (issubclass(kind, (dict, tuple, list, Mapping)) or is_dataclass(kind)) or kind is Rows
    )


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of a tree, in order.

    >>> leaves({"image": (1, 2), "label": None})
    [1, 2, None]
    """
    kind = type(tree)
    if kind in _LEAVES:
        return [tree]
    if kind in _PLAIN:
        row = list(tree.values() if kind is dict else tree)
        if _LEAVES.issuperset(map(type, row)):
            return row
    parts = branches(tree)
    return [tree] if parts is None else [leaf for part in parts.values() for leaf in leaves(part)]


def named_leaves(tree: Any, name: str = "") -> list[tuple[str, Any]]:
    """Return the leaves of a tree with their paths; the path of a tree that is a leaf is "".

    >>> named_leaves({"image": (1, 2), "label": None})
    [('image.0', 1), ('image.1', 2), ('label', None)]
    """
    parts = branches(tree)
    if parts is None:
        return [(name, tree)]
    named: list[tuple[str, Any]] = []
    for key, part in parts.items():
        named += named_leaves(part, f"{name}.{key}" if name else str(key))
    return named


def rebuilt(tree: Any, values: Iterator[Any]) -> Any:
    """Return the same tree with other leaves, taken from `values` in order.

    >>> rebuilt({"image": (1, 2), "label": None}, iter("abc"))
    {'image': ('a', 'b'), 'label': 'c'}
    """
    kind = type(tree)
    if kind in _PLAIN:
        row = tree.values() if kind is dict else tree
        if _LEAVES.issuperset(map(type, row)):
            made = islice(values, len(row))
            return dict(zip(tree, made, strict=True)) if kind is dict else kind(made)
    parts = branches(tree)
    if parts is None:
        return next(values)
    return joined(tree, {key: rebuilt(part, values) for key, part in parts.items()})


def joined(tree: Any, parts: dict[Any, Any]) -> Any:
    """Return the same kind of tree with other branches.

    >>> joined((5, "a"), {0: 6, 1: "b"})
    (6, 'b')
    """
    if isinstance(tree, (dict, Mapping)) and not is_dataclass(tree):
        return parts
    if hasattr(tree, "_fields"):
        return type(tree)(*parts.values())
    if isinstance(tree, (tuple, list)):
        return (tuple if isinstance(tree, tuple) else list)(parts.values())
    if all(field.init for field in fields(tree)):
        return type(tree)(**parts)
    made = object.__new__(type(tree))  # its __init__ would recompute some of the fields
    for name, part in parts.items():
        object.__setattr__(made, name, part)
    return made


def restores(tree: Any) -> bool:
    """Return whether `rebuilt` restores such a tree, and not as plainer containers.

    >>> from collections import OrderedDict
    >>> restores({"a": (1, 2)}), restores(OrderedDict(a=1))
    (True, False)
    """
    parts = branches(tree)
    if parts is None:
        return True
    plain = type(tree) in {dict, list, tuple} or hasattr(tree, "_fields")
    exact = plain or not isinstance(tree, (Mapping, list, tuple))
    return exact and all(map(restores, parts.values()))


def map_tree(fn: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Apply `fn` to every leaf, with the leaves at the same position in the other trees.

    >>> map_tree(lambda a, b: a + b, {"x": 1, "y": (2,)}, {"x": 10, "y": (20,)})
    {'x': 11, 'y': (22,)}

    A leaf of the first tree that is None stays None.

    >>> map_tree(lambda a: a + 1, {"x": 1, "y": None})
    {'x': 2, 'y': None}

    Raises:
        ValueError: The trees differ in structure.
    """
    for other in others:
        if not same_structure(tree, other):
            raise ValueError(f"trees differ in structure: {tree!r} and {other!r}")
    columns = [leaves(tree), *map(leaves, others)]
    if _NOTHING in map(type, columns[0]):
        rows = zip(*columns, strict=True)
        return rebuilt(tree, (None if row[0] is None else fn(*row) for row in rows))
    return rebuilt(tree, map(fn, *columns))


def copied(tree: Any) -> Any:
    """Return a tree with copies of its arrays; other leaves are unchanged."""
    return map_tree(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, tree)


def first_column(columns: Any) -> Any:
    """Return the first leaf of a tree of columns that is not None: all have as many rows.

    >>> first_column({"id": None, "label": np.array([5, 0, 4])})
    array([5, 0, 4])
    """
    every = leaves(columns)
    while every[0] is None:  # a generator would cost one more call per batch
        del every[0]
    return every[0]


def same_structure(tree: Any, other: Any) -> bool:
    """Return whether two trees have the same branches, down to the leaves.

    >>> same_structure((1, {"a": 2}), (3, {"a": 4})), same_structure((1, 2), [1, 2])
    (True, False)
    """
    parts, others = branches(tree), branches(other)
    if parts is None or others is None:
        return parts is others
    return (
        type(tree) is type(other)
        and parts.keys() == others.keys()
        and all(same_structure(part, others[key]) for key, part in parts.items())
    )


def leaves_in_order(tree: Any, other: Any) -> list[Any]:
    """Return another tree's leaves in the order of a tree, as far as both have the same branches.

    jax sorts the keys of dicts, so trees from jax are in another order.

    >>> leaves_in_order({"b": 0, "a": (0, 0)}, {"a": (1, 2), "b": 3})
    [3, 1, 2]
    """
    parts, others = branches(tree), branches(other)
    if parts is None or others is None or parts.keys() != others.keys():
        return [other]
    return [leaf for key, part in parts.items() for leaf in leaves_in_order(part, others[key])]


def zipped(tree: Any, parts: Sequence[Iterable[Any]]) -> Iterator[Any]:
    """Yield trees like `tree`, one for each value of the parts, which replace its leaves.

    >>> list(zipped({"image": None, "label": None}, ["ab", [5, 0]]))
    [{'image': 'a', 'label': 5}, {'image': 'b', 'label': 0}]
    """
    if branches(tree) is None:
        return iter(parts[0])
    rows = zip(*parts, strict=True)
    whole = len(tree) == len(parts) if type(tree) in {tuple, dict} else False
    if whole and all(branches(part) is None for part in branches(tree).values()):  # type: ignore[union-attr]  # a tuple or dict
        return rows if type(tree) is tuple else (dict(zip(tree, row, strict=True)) for row in rows)
    return (rebuilt(tree, iter(row)) for row in rows)


class Columns(Sequence[T], Generic[T]):
    """A batch: stacked arrays that read as a sequence of samples.

    >>> batch = Columns({"image": np.zeros((3, 28)), "label": np.array([5, 0, 4])})
    >>> len(batch), batch[2]["label"], [int(sample["label"]) for sample in batch]
    (3, np.int64(4), [5, 0, 4])

    A field that is None in all samples is None instead of an array.

    >>> Columns({"label": np.array([5, 0]), "note": None})[1]
    {'label': np.int64(0), 'note': None}

    Samples that are not stacked are one column, `Rows`, so that a batch can also say which of its
    rows they are:

    >>> Columns(Rows(["a", "b"]), rows=4, valid=np.array([0, 3]))[1]
    'b'

    Attributes:
        columns: A tree of arrays of equal length along their first axis; or `Rows`.
        arrays: The leaves of that tree, in order, without those that are None.
        made_of: The number of samples they were made from; None for the number of rows.
        full: The number of samples in a full batch of its kind; None if the plan determines it.
        rows: The number of rows of the whole batch, on all processes; None for those here.
        valid: The rows of this process that hold samples, if others are empty; None for the first
            ones.
        fresh: Whether any of its samples is from this epoch, and not from lanes that restarted.
        numbers: For each leaf, the Python number type of its rows as samples; None for rows of the
            arrays.
        named: Whether its columns are already the named arrays of a feed.

    Raises:
        TypeError: A column has no rows.
        ValueError: The columns differ in length, or there are none.
    """

    made_of: int | None = None
    full: int | None = None
    rows: int | None = None
    valid: np.ndarray[Any, Any] | None = None
    fresh: bool = True
    numbers: Sequence[type | None] | None = None
    named: bool = False

    def __init__(
        self,
        columns: Any,
        made_of: int | None = None,
        full: int | None = None,
        *,
        rows: int | None = None,
        valid: np.ndarray[Any, Any] | None = None,
    ) -> None:
        arrays = leaves(columns)
        if _NOTHING in map(type, arrays):
            arrays = [array for array in arrays if array is not None]
        try:
            lengths = set(map(len, arrays))
        except TypeError as error:
            raise TypeError(
                f"columns need arrays with a row for each sample ({error}): give a tree of arrays "
                f"of one length"
            ) from None
        if not arrays:
            raise ValueError(
                f"columns need an array, and {columns!r} has none: a batch has as many samples as "
                "its arrays have rows, and None stands for a field that a sample lacks. Give one "
                "field a number or an array in each sample, or leave these samples out: .filter(fn)"
            )
        if len(lengths) != 1:
            raise ValueError(
                f"columns need one length, not {[len(array) for array in arrays]}: give arrays "
                f"with as many rows each as the batch has samples"
            )
        self.columns, self.arrays, self.made_of, self.full = columns, arrays, made_of, full
        self.rows, self.valid = rows, valid

    @classmethod
    def collated(cls, feed: Any, made_of: int | None) -> Columns[Any]:
        """Return the batch of so many samples that a function has made into a feed, of any form."""
        made: Columns[Any] = cls.__new__(cls)
        made.columns, made.arrays = feed, [each for each in leaves(feed) if each is not None]
        made.made_of = made_of
        return made

    def having(self, columns: Any) -> Columns[Any]:
        """Return the same batch with other columns, unchecked."""
        made = copy(self)
        made.columns, made.arrays = columns, [each for each in leaves(columns) if each is not None]
        return made

    @property
    def stacked(self) -> bool:
        """True if the samples are rows of arrays."""
        return type(self.columns) is not Rows

    @property
    def is_placeholder(self) -> bool:
        """True if none of its rows is valid: they only show the shapes."""
        return self.valid is not None and not len(self.valid)

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays, by NumPy's count."""
        return sum(getattr(array, "nbytes", 0) for array in self.arrays)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.arrays[0])

    def __iter__(self) -> Iterator[T]:
        """Return the samples, one after another."""
        every = leaves(self.columns)
        if self.numbers:
            pairs = zip(every, self.numbers, strict=True)
            every = [each.tolist() if kind else each for each, kind in pairs]
        elif len(every) > len(self.arrays):
            every = [[None] * len(self) if each is None else each for each in every]
        return zipped(self.columns, every)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Columns[T]: ...
    def __getitem__(self, index: int | slice) -> T | Columns[T]:
        """Return one sample, or the columns of several."""
        try:
            picked: Any = map_tree(itemgetter(index), self.columns)
        except IndexError as error:
            if not isinstance(index, str):
                raise
            says = f"a batch is a sequence of samples: type batch.columns[{index!r}] for a field."
            raise TypeError(says) from error
        if isinstance(index, slice):
            part: Columns[T] = Columns(picked if self.stacked else Rows(picked))
            part.numbers = self.numbers
            return part
        if self.numbers:
            row = zip(leaves(picked), self.numbers, strict=True)
            picked = rebuilt(self.columns, (each.item() if kind else each for each, kind in row))
        sample: T = picked
        return sample

    def __repr__(self) -> str:
        """Show the shapes, not the data."""
        return f"Columns({', '.join(map(_column_text, self.arrays))})"


def _column_text(column: Any) -> str:
    """Describe a column; a user's function may return something with rows that is no array."""
    if hasattr(column, "dtype") and hasattr(column, "shape"):
        return f"{column.dtype}{list(column.shape)}"
    return f"{type(column).__name__}[{len(column)}]"
