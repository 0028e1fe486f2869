"""Values to arrays of another dtype, none of them changed in silence."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import numpy as np

from jreader.batches.stacked import not_stackable_error
from jreader.errors import FeedMismatch
from jreader.readers import described
from jreader.staging import lease

Array: TypeAlias = np.ndarray[Any, Any]
DType: TypeAlias = np.dtype[Any]

_EXACT = 2**53 - 1  # beyond it, several integers share a float64
_WIDEST = -(2**63), 2**64 - 1
_NUMBERS = frozenset("?bBhHiIlLqQefdFDE")  # chars; those of ml_dtypes among them are numbers
_NO_NUMBERS = np.void, np.longdouble, np.clongdouble  # on a device

_NARROW = {
    np.dtype(wide): np.dtype(narrow)
    for wide, narrow in (
        ("int64", "int32"),
        ("uint64", "uint32"),
        ("float64", "float32"),
        ("complex128", "complex64"),
    )
}


def narrowed(dtype: DType) -> DType:
    """The dtype that stands for another on devices without 64 bits.

    >>> narrowed(np.dtype("int64")), narrowed(np.dtype("uint8"))
    (dtype('int32'), dtype('uint8'))
    """
    return _NARROW.get(dtype, dtype)


def cast(array: Array, dtype: DType, name: str) -> Array:
    """`array` in another dtype, with the values it had; `name` is how an error calls it.

    Floats are rounded to the precision of `dtype`, and so are integers that become floats.

    >>> cast(np.array([1.0, 2.0]), np.dtype("int32"), "field 'label'")
    array([1, 2], dtype=int32)
    >>> cast(np.array([1, 300]), np.dtype("uint8"), "field 'label'")
    Traceback (most recent call last):
    jreader.errors.FeedMismatch: field 'label' holds 300 in sample 1 of its batch, which uint8 \
cannot hold: map it to a value that fits, or declare a dtype that holds it.

    Raises:
        FeedMismatch: A value would change.
    """
    if array.dtype == dtype:
        return array
    if _safe(array.dtype, dtype):
        return _aligned_copy(array, dtype)
    if array.dtype.kind == "c" and dtype.kind != "c":
        raise FeedMismatch(
            f"{name} holds complex numbers, which {dtype} cannot hold: declare complex64, or map "
            "them to real numbers."
        )
    if limits := _whole(dtype):  # labels, mostly: errstate costs more than they do
        if (bad := _not_whole(array, *limits)) is not None:
            raise _unfit(array, bad, dtype, name)
        return _aligned_copy(array, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        changed = _aligned_copy(array, dtype)
    if not np.isfinite(changed).all():
        bad = np.isfinite(array) & ~np.isfinite(changed)
        if bad.any():
            raise _unfit(array, bad, dtype, name)
    return changed


def _aligned_copy(array: Array, dtype: DType) -> Array:
    """The array in another dtype, in memory that the CPU backend takes as it is."""
    changed = lease(array.shape, dtype)
    np.copyto(changed, array, casting="unsafe")
    return changed


@cache
def _safe(given: DType, wanted: DType) -> bool:
    return np.can_cast(given, wanted, "safe")


@cache
def _whole(dtype: DType) -> tuple[int, int] | None:
    """The least and the greatest value, where a dtype holds whole numbers only."""
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind == "V":
        import ml_dtypes  # noqa: PLC0415  # there where such a dtype is: it comes with jax

        try:
            small = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]  # it has no types
        except ValueError:
            return None
        return int(small.min), int(small.max)
    if dtype.kind not in "iu":
        return None
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def _not_whole(array: Array, least: int, most: int) -> Array | None:
    """Where values are no whole numbers between `least` and `most`; None if nowhere."""
    if array.dtype.kind in "iu":
        if not array.size or (least <= int(array.min()) and int(array.max()) <= most):
            return None
        return np.asarray((array < least) | (array > most))
    values = array.astype(np.float64)
    inside = (values >= max(least, -_EXACT)) & (values <= min(most, _EXACT))
    bad = np.asarray(~(inside & (np.trunc(values) == values)))
    return bad if bad.any() else None


def _unfit(array: Array, bad: Array, dtype: DType, name: str) -> FeedMismatch:
    index = np.unravel_index(int(bad.argmax()), bad.shape)
    narrowed = _NARROW.get(array.dtype) == dtype
    hint = ' (64 bits need jax.config.update("jax_enable_x64", True))' if narrowed else ""
    return FeedMismatch(
        f"{name} holds {array[index]} in sample {index[0]} of its batch, which {dtype} cannot "
        f"hold: map it to a value that fits, or declare a dtype that holds it{hint}."
    )


def column(values: Any, name: str, *, on_host: bool) -> Array:
    """A column as an array, given as one or as a list of what the samples hold.

    Unless it stays on the host, it has to hold numbers.
    """
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise not_stackable_error(values, name, error) from None
    number = on_host or array.dtype.char in _NUMBERS  # no call, since feeds ask of every array
    if not number and (why := unplaceable(array.dtype)):
        raise _no_numbers(np.asarray(values, dtype=object), f"{name} ({array.dtype})", why)
    if not array.ndim or not len(array):
        raise FeedMismatch(
            f"{name} is {described(array)}, which holds no samples: give an array with a row for "
            f"each sample of the batch, and at least one."
        )
    return array


def _no_numbers(array: Array, name: str, why: str) -> FeedMismatch:
    odd = ((index, held) for index, held in np.ndenumerate(array) if not _is_number(held))
    index, held = next(odd, ((), None))
    where = f" in sample {index[0]} of its batch" if index else ""
    if isinstance(held, int):
        why = "no dtype of a device is wide enough for it"
    return FeedMismatch(
        f"{name} holds {described(held)}{where}: {why}. Map it to numbers first, or keep "
        f'the field on the host, as in load(sharding={{"image": mesh, "id": "host"}}), or leave it '
        f"out: by `columns=[...]` of a source of files, or with a mapping to the index or "
        f'the key of each field that is fed, as in feed_list={{"image": 0}}.'
    )


def _is_number(held: object) -> bool:
    if isinstance(held, int):
        return _WIDEST[0] <= held <= _WIDEST[1]
    return isinstance(held, (float, complex, np.number, np.bool_))


def unplaceable(dtype: DType) -> str | None:
    """Why values of this dtype cannot live on a device; None where they can."""
    if dtype.kind == "S":
        return f"bytes ({dtype}) cannot live on a device (images: jreader.images.decode)"
    if dtype.kind == "U":
        return f"strings ({dtype}) cannot live on a device"
    if dtype.kind == "O":
        return "Python objects cannot live on a device"
    if dtype.kind in "mM":
        return f"dates and times ({dtype}) cannot live on a device"
    # The numbers that NumPy learned from ml_dtypes are of kind V too, but of a type of their own.
    if dtype.kind not in "biufcV" or issubclass(dtype.type, _NO_NUMBERS):
        return f"{dtype} cannot live on a device"
    return None


def placeable(leaf: object) -> bool:
    """Whether a device can hold a leaf: an array of numbers, not of strings or of objects.

    >>> placeable(np.zeros(2)), placeable(np.array(["a"])), placeable("a")
    (True, False, False)
    """
    if not isinstance(leaf, np.ndarray):
        return False
    return leaf.dtype.char in _NUMBERS or unplaceable(leaf.dtype) is None
