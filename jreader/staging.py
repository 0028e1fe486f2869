"""Host memory for batches, used again and again.

A batch of images in fresh pages costs twice a batch in warm ones. Memory that begins at a multiple
of 64 bytes is used by the CPU backend of jax without a copy. So batches are gathered into aligned
memory that is *leased*: the base object of the array returns the memory when the last reference to
it dies, on any thread, be it a view, a feed, or a device array over it. Nothing else shows when
memory is free: `block_until_ready` of a result does not (294 of 400 batches were wrong).

Free memory is bounded twice: by number, at most 32 arrays of one size that were in use at once; and
in
time: the passes that gather that size, and their remaining batches, keep it.
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
_MIN_LEASED = 16384  # bytes; a smaller copy costs less than a lease
_MAX_FREE = 32  # free buffers kept per size; a loop that does not wait for its steps uses some 25


class Memory(NamedTuple):
    """Bytes, and where they begin; `owner` keeps them alive."""

    owner: Any
    address: int


class _Lease:
    """The base of a leased array: returns the memory when nothing uses it any longer."""

    __slots__ = ("__array_interface__", "give_back", "memory")
    __array_interface__: dict[str, Any]
    give_back: Callable[[Memory], object]
    memory: Memory

    def __del__(self) -> None:
        self.give_back(self.memory)  # runs anywhere, also inside gc: it must take no lock


def leased(
    memory: Memory,
    give_back: Callable[[Memory], object],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> Array:
    """Return an array over lent memory, which is returned when the array's last reference dies.

    >>> room, back = np.zeros(4, np.uint8), []
    >>> memory = Memory(room, room.ctypes.data)
    >>> array = leased(memory, back.append, (2,), np.dtype(np.uint16))
    >>> array[:] = 257
    >>> del array
    >>> room.tolist(), back == [memory]
    ([1, 1, 1, 1], True)

    Args:
        memory: At least as many bytes as the array has.
        give_back: Called with the memory, on any thread, perhaps in the middle of something: it may
            take no lock. `deque.append` takes none.
        shape: The shape of the array.
        dtype: A dtype of NumPy's own; others are viewed as bytes first.
    """
    lease = _Lease()  # without an __init__, which would be one more call per batch
    lease.memory, lease.give_back = memory, give_back
    lease.__array_interface__ = {
        "version": 3,
        "data": (memory.address, False),
        "shape": shape,
        "typestr": dtype.str,
    }
    return np.asarray(lease)


_POOLS: WeakValueDictionary[int, deque[Memory]] = WeakValueDictionary()
"""The free memory of each size, in bytes; the methods of a deque are atomic."""


class Staging:
    """Makes aligned arrays of one dtype and up to so many rows, each in its own memory.

    >>> staged = Staging(1000, (28, 28), np.dtype(np.uint8))
    >>> first, second = staged(1000), staged(10)
    >>> first.shape, second.shape, first.ctypes.data % 64, np.shares_memory(first, second)
    ((1000, 28, 28), (10, 28, 28), 0, False)
    >>> address = first.ctypes.data
    >>> del first
    >>> staged(1000).ctypes.data == address
    True

    Args:
        rows: The most rows of any array.
        shape: The shape of a row.
        dtype: The dtype of the arrays.
    """

    __slots__ = ("_dtype", "_pool", "_shape", "_size")

    def __init__(self, rows: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Find the pool of that size, or begin one."""
        self._shape, self._dtype = shape, dtype
        self._size = rows * prod(shape) * dtype.itemsize
        self._pool: deque[Memory] | None = None
        # kind V: the dtypes of ml_dtypes have no typestr that NumPy reads
        if self._size >= _MIN_LEASED and dtype.kind in "biufc":
            self._pool = _POOLS.setdefault(self._size, deque(maxlen=_MAX_FREE))

    @property
    def leases(self) -> bool:
        """True if the memory is reused: small arrays are new ones, which cost less."""
        return self._pool is not None

    @property
    def nbytes(self) -> int:
        """The bytes of the most rows; 0 if the memory is not reused."""
        return self._size if self.leases else 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        return self._shape

    def __call__(self, rows: int) -> Array:
        """Return an array of that many rows, with arbitrary contents."""
        shape, pool = (rows, *self._shape), self._pool
        if pool is None:
            return np.empty(shape, self._dtype)
        try:
            memory = pool.pop()
        except IndexError:
            owner = np.empty(self._size + _ALIGNED, np.uint8)
            address = owner.ctypes.data
            memory = Memory(owner, address + -address % _ALIGNED)
        return leased(memory, pool.append, shape, self._dtype)


def lease(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return one array of staged memory, for callers that need no other like it.

    >>> lease((512, 784), np.dtype(np.float32)).ctypes.data % 64
    0
    """
    return Staging(shape[0], shape[1:], dtype)(shape[0]) if shape else np.empty(shape, dtype)
