"""Store the samples of any reader as rows of columns: numbers, ragged arrays, text, objects.

A column has the simplest kind that fits all its rows: arrays of one shape; arrays that differ in
their first axis (ragged); texts or bytes; else pickled objects. This shows only as rows arrive, so
a column may have to be converted to a more general kind (`common`).
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from jreader.errors import DamagedData
from jreader.readers import branches, leaves, map_tree, rebuilt
from jreader.readers.columns import Array, Objects
from jreader.readers.ragged import Ragged
from jreader.readers.trees import restores

How: TypeAlias = Literal["array", "ragged", "text", "bytes", "object"]

_MOST = 64  # columns per sample; a sample with more leaves is one object
_BYTES = np.dtype(np.uint8)
_CHECK = 4  # bytes before each object
NUMBERS: dict[type, np.dtype[Any]] = {
    bool: np.dtype(np.bool_),
    int: np.dtype(np.int64),
    float: np.dtype(np.float64),
    complex: np.dtype(np.complex128),
}
"""The dtypes that store Python numbers."""
INT64 = range(-(1 << 63), 1 << 63)
"""The ints stored as numbers."""


@dataclass(frozen=True)
class Kind:
    """The kind of a column's rows.

    Attributes:
        how: "array", of one shape; "ragged", of one shape but for the first axis; "text"; "bytes";
            or "object", pickled.
        dtype: The dtype of the values in the file.
        shape: The shape of a row, if it is an array; otherwise of one of its values.
    """

    how: How
    dtype: np.dtype[Any] = _BYTES
    shape: tuple[int, ...] = ()


def kind_of(leaf: Any) -> Kind:
    """Return the kind that stores a leaf; Python numbers are 0-d arrays, as in NumPy.

    >>> kind_of(np.zeros((2, 3), np.uint8)), kind_of("a").how, kind_of(None).how
    (Kind(how='array', dtype=dtype('uint8'), shape=(2, 3)), 'text', 'object')
    >>> kind_of(3), kind_of(1 << 70).how
    (Kind(how='array', dtype=dtype('int64'), shape=()), 'object')
    """
    if (dtype := NUMBERS.get(type(leaf))) is not None:
        fits = type(leaf) is not int or leaf in INT64
        return Kind("array", dtype) if fits else Kind("object")
    if type(leaf) is str:
        return Kind("text")
    if type(leaf) is bytes:
        return Kind("bytes")
    array = type(leaf) in {np.ndarray, np.memmap} and leaf.ndim
    if (array or isinstance(leaf, np.generic)) and _is_plain(leaf.dtype):
        return Kind("array", leaf.dtype, leaf.shape)
    return Kind("object")


def common(one: Kind, other: Kind) -> Kind:
    """Return the kind of a column with rows of both kinds.

    >>> common(kind_of(np.zeros((2, 3))), kind_of(np.zeros((5, 3))))
    Kind(how='ragged', dtype=dtype('float64'), shape=(3,))
    """
    if one == other:
        return one
    rows, others = _inner_shape(one), _inner_shape(other)
    if rows is not None and rows == others and one.dtype == other.dtype:
        return Kind("ragged", one.dtype, rows)
    return Kind("object")


def _inner_shape(kind: Kind) -> tuple[int, ...] | None:
    """Return the shape of a value in a row of any length; None if rows have fixed lengths."""
    if kind.how == "ragged":
        return kind.shape
    return kind.shape[1:] if kind.how == "array" and kind.shape else None


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Return whether the bytes of values represent them completely."""
    return not dtype.hasobject and dtype.kind != "T" and dtype.itemsize > 0


def reloaded(sample: Any) -> Any:
    """Return the sample as any column that stores it will return it.

    >>> reloaded({"label": 3, "text": "a"})
    {'label': np.int64(3), 'text': 'a'}

    Raises:
        TypeError: It contains itself.
    """
    try:
        return map_tree(_leaf_reloaded, sample) if restores(sample) else sample
    except RecursionError:
        raise TypeError(
            f"cache(reader, path) keeps samples in files, and a {type(sample).__name__} that holds "
            "itself, or is nested hundreds deep, does not go there: take that part out with "
            ".map(fn) first, or leave path out."
        ) from None


def _leaf_reloaded(leaf: Any) -> Any:
    """Return a read-only copy of an array, or the NumPy scalar of a Python number."""
    if (dtype := NUMBERS.get(type(leaf))) is not None:
        return leaf if type(leaf) is int and leaf not in INT64 else dtype.type(leaf)
    if kind_of(leaf).how == "array" and isinstance(leaf, np.ndarray):
        copy = np.array(leaf, order="C", subok=False)
        copy.flags.writeable = False
        return copy
    return leaf


def skeleton(sample: Any) -> Any:
    """Return a sample's tree with its leaves numbered; None if it is stored as one object.

    >>> skeleton({"image": 5, "label": (1, 2)}), skeleton(7), skeleton([])
    ({'image': 0, 'label': (1, 2)}, 0, None)
    """
    many = len(leaves(sample)) if branches(sample) is not None else 1
    if not 0 < many <= _MOST or not restores(sample):
        return None
    try:
        tree = rebuilt(sample, iter(range(many)))
        pickle.dumps(tree)
    except Exception:  # a dataclass that validates its fields, or is local to a function
        return None
    return tree


def pickled(leaf: Any) -> bytes:
    """Pickle a leaf.

    Raises:
        TypeError: It cannot be pickled.
    """
    try:
        return pickle.dumps(leaf, 5)
    except Exception as error:
        raise TypeError(
            f"cache(reader, path) keeps samples in files, and {type(leaf).__qualname__} cannot be "
            f"pickled ({error}): give samples of arrays, numbers and strings, or cache(reader) "
            "without a path, which keeps them in memory."
        ) from error


def encoded(leaf: Any, kind: Kind) -> Any:
    """Return the leaf, or the bytes to write for it."""
    if kind.how == "text":
        return leaf.encode("utf-8", "surrogatepass")
    if kind.how == "object":
        held = pickled(leaf)
        return _checksum_of(held) + held
    return leaf


def _checksum_of(held: bytes) -> bytes:
    """Return the checksum to put before a pickled object: changed bytes could crash the program."""
    return zlib.crc32(held).to_bytes(_CHECK, "little")


def size_of(written: Any) -> int:
    """Return the number of bytes in a result of `encoded`."""
    return written.nbytes if hasattr(written, "nbytes") else len(written)


def values_of(rows: Sequence[Any], kind: Kind) -> tuple[Array, Array | None]:
    """Concatenate results of `encoded`; return the values, and the row lengths if they differ.

    >>> values_of([np.arange(2), np.arange(1)], kind_of(np.arange(2)))
    Traceback (most recent call last):
    ValueError: all input arrays must have the same shape
    >>> values_of([b"ab", b"c"], Kind("bytes"))
    (array([97, 98, 99], dtype=uint8), array([2, 1]))
    """
    if kind.how == "array":
        return np.stack(rows, dtype=kind.dtype), None  # keeps the byte order
    lengths = np.array([len(row) for row in rows], np.int64)
    if kind.how == "ragged":
        return np.concatenate(rows, dtype=kind.dtype), lengths
    return np.frombuffer(b"".join(rows), np.uint8), lengths


def damaged_column(path: Path, how: str) -> DamagedData:
    """Return the error for a file in a folder of columns that was modified."""
    return DamagedData(
        f"{path} {how}: it was changed after it was written. Delete the folder "
        f"{str(path.parent)!r}, so that it is made again, or give another one."
    )


def decoded_rows(kind: Kind, values: Array, offsets: Array, path: Path) -> Objects:
    """Return a column of texts, bytes or objects, which are decoded on demand.

    >>> letters = np.frombuffer(b"abc", np.uint8)
    >>> words = decoded_rows(Kind("text"), letters, np.array([0, 1, 3]), Path("0.npy"))
    >>> words, words.gather(np.array([1, 0]))
    (text[2], ['bc', 'a'])

    Args:
        kind: The kind: text, bytes or object.
        values: The concatenated bytes of all rows.
        offsets: Where each row begins, and where the last one ends.
        path: The file of the values, for errors.

    Raises:
        DamagedData: When rows are read: a pickled object does not match its checksum.
    """
    encoded = Ragged(values, offsets)
    column = Objects(len(encoded), partial(_decoded, encoded, kind.how, path), name=kind.how)
    column.arrays, column.tables = encoded.arrays, encoded.tables
    return column


def _decoded(encoded: Ragged, how: How, path: Path, rows: Array) -> Iterator[Any]:
    """Decode those rows of `decoded_rows`, one by one."""
    for row in encoded.each(rows):
        held = row.tobytes()
        if how == "text":
            yield held.decode("utf-8", "surrogatepass")
        else:
            yield _object(held, path) if how == "object" else held


def _object(held: bytes, path: Path) -> Any:
    check, held = held[:_CHECK], held[_CHECK:]
    if check != _checksum_of(held):
        raise damaged_column(path, "has a row that does not fit its checksum")
    return pickle.loads(held)  # noqa: S301  # own files, verified
