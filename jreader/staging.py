"""Host memory for batches, used again and again.

A batch of images in fresh pages costs twice a batch in warm ones, and memory that begins at a
multiple of 64 bytes is taken by the CPU backend of jax as it is, without a copy. So batches are
gathered into aligned memory that is *leased*: the base object of the array gives the memory back
when the last reference to it dies, on whatever thread, be it a view, a feed, or a device array that
lies over it. Nothing else tells when memory is free: `block_until_ready` of what was made of a
batch does not (294 of 400 batches were wrong).

What is free is bounded twice: by what was in use at once, 32 arrays of one size at most, and in
time: it is kept by the passes that gather that size, and by the batches that are left of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

_ALIGNED = 64
_WORTH = 16384  # bytes; to copy less costs less than a lease
_FREE = 32  # batches of one size that are in use at once while their steps are not awaited: some 25


class Memory(NamedTuple):
    """Bytes, and where they begin; `owner` keeps them there."""

    owner: Any
    address: int


class _Lease:
    """The base of a leased array: gives the memory back when nothing lies over it any longer."""

    __slots__ = ("__array_interface__", "give_back", "memory")

    def __init__(
        self,
        memory: Memory,
        give_back: Callable[[Memory], object],
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> None:
        self.memory, self.give_back = memory, give_back
        self.__array_interface__ = {
            "version": 3,
            "data": (memory.address, False),
            "shape": shape,
            "typestr": dtype.str,
        }

    def __del__(self) -> None:
        self.give_back(self.memory)  # runs anywhere, also inside gc: it must take no lock


def leased(
    memory: Memory,
    give_back: Callable[[Memory], object],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> Array:
    """An array over memory that is somebody's, who gets it back when its last reference dies.

    >>> room, back = np.zeros(4, np.uint8), []
    >>> memory = Memory(room, room.ctypes.data)
    >>> array = leased(memory, back.append, (2,), np.dtype(np.uint16))
    >>> array[:] = 257
    >>> del array
    >>> room.tolist(), back == [memory]
    ([1, 1, 1, 1], True)

    Args:
        memory: At least as many bytes as the array has.
        give_back: Called with the memory, on whatever thread, maybe in the middle of something: it
            may take no lock. `deque.append` does not.
        shape: That of the array.
        dtype: A dtype of NumPy's own; others are viewed as bytes first.
    """
    return np.asarray(_Lease(memory, give_back, shape, dtype))


class _Pool:
    """The free memory of one size."""

    __slots__ = ("__weakref__", "free", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.free: deque[Memory] = deque(maxlen=_FREE)  # its methods are atomic

    def memory(self) -> Memory:
        try:
            return self.free.pop()
        except IndexError:
            owner = np.empty(self.size + _ALIGNED, np.uint8)
            address = owner.ctypes.data
            return Memory(owner, address + -address % _ALIGNED)

    def put(self, memory: Memory) -> None:
        self.free.append(memory)


_POOLS: WeakValueDictionary[int, _Pool] = WeakValueDictionary()


class Staging:
    """Aligned arrays of one dtype and of up to as many rows, each in memory of its own.

    >>> staged = Staging(1000, (28, 28), np.dtype(np.uint8))
    >>> first, second = staged(1000), staged(10)
    >>> first.shape, second.shape, first.ctypes.data % 64, np.shares_memory(first, second)
    ((1000, 28, 28), (10, 28, 28), 0, False)
    >>> address = first.ctypes.data
    >>> del first
    >>> staged(1000).ctypes.data == address
    True

    Args:
        rows: The most rows that will be asked for.
        shape: That of a row.
        dtype: That of the arrays.
    """

    __slots__ = ("_dtype", "_pool", "_shape")

    def __init__(self, rows: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Finds the pool of that size, or begins one."""
        size = rows * prod(shape) * dtype.itemsize
        # kind V: the dtypes of ml_dtypes have no typestr that NumPy reads
        leases = size >= _WORTH and dtype.kind in "biufc"
        self._pool = _POOLS.setdefault(size, _Pool(size)) if leases else None
        self._shape, self._dtype = shape, dtype

    def __call__(self, rows: int) -> Array:
        """An array of that many rows; what is in it is left over from others."""
        shape = (rows, *self._shape)
        if self._pool is None:
            return np.empty(shape, self._dtype)
        return leased(self._pool.memory(), self._pool.put, shape, self._dtype)


def lease(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """One array of staged memory, for who does not gather batch after batch.

    >>> lease((512, 784), np.dtype(np.float32)).ctypes.data % 64
    0
    """
    return Staging(shape[0], shape[1:], dtype)(shape[0]) if shape else np.empty(shape, dtype)
