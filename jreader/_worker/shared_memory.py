"""Shared memory: a worker writes large arrays there, and its parent reads them without a copy.

It comes in blocks. A block has no name that could stay behind (it is a memfd; if the system has
none, a `shm_open` that is unlinked at once), and goes when the last process lets go of it. Its
pages are allocated when it is made: running out of them later would be a SIGBUS. Fresh pages cost
six times as much as warm ones, so blocks are reused: the parent returns one when the last array
over it is gone.
"""

from __future__ import annotations

import mmap
import os
import pickle
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import prod
from typing import Any, NamedTuple

import numpy as np

from jreader._worker.pickling import LARGE, pickled_from_worker
from jreader.staging import Array, Memory, leased

MAX_BYTES_AHEAD = 32 << 20  # bytes that each worker may be ahead, if the number of items is unknown

_ALIGNED = 64
_PAGE = mmap.PAGESIZE
_MAX_BLOCKS, _MAX_BLOCKS_OF_ALL = 64, 256  # each is a file descriptor in the parent too
_MIN_BLOCKS = 8  # per process, however many processes there are
_STALE = 64  # results after which an unused block is freed
_ROOMY = 4  # times the bytes of a value: a larger free block is not used for it


def anonymous_memory(size: int) -> int:
    """Allocate shared memory without a name, and return its file descriptor.

    Raises:
        OSError: There is not enough, or no descriptor is left.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("jreader", os.MFD_CLOEXEC)
    else:
        import _posixshmem  # type: ignore[import-not-found]  # noqa: PLC0415  # not on every system

        name = f"/jreader-{secrets.token_hex(6)}"
        descriptor = _posixshmem.shm_open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        _posixshmem.shm_unlink(name)
    try:
        os.ftruncate(descriptor, size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def map_memory(descriptor: int, size: int, *, private: bool = False) -> Memory:
    """Map the memory of a descriptor, which may then be closed; private writes stay here."""
    owner = mmap.mmap(descriptor, size, mmap.MAP_PRIVATE if private else mmap.MAP_SHARED)
    return Memory(owner, np.frombuffer(owner, np.uint8).ctypes.data)


def blocks_for_each(processes: int) -> int:
    """Return the number of blocks that each of so many worker processes may have.

    >>> blocks_for_each(2), blocks_for_each(16), blocks_for_each(100)
    (64, 16, 8)
    """
    return max(_MIN_BLOCKS, min(_MAX_BLOCKS, _MAX_BLOCKS_OF_ALL // processes))


def aligned(size: int, to: int = _ALIGNED) -> int:
    """Return a size in bytes, rounded up to a multiple."""
    return size + -size % to


class SharedPickle(NamedTuple):
    """A pickled value whose large arrays are in shared memory.

    Attributes:
        data: The pickled value, without those arrays.
        buffers: For each array the block, the first byte in it, and the number of bytes.
    """

    data: bytes
    buffers: tuple[tuple[int, int, int], ...] = ()


class BlockUpdates(NamedTuple):
    """Changes to a worker's blocks since its last report to the parent.

    Attributes:
        made: Numbers and sizes of new ones, whose descriptors are sent along.
        full: Numbers of those that are not written to again until they are returned.
        gone: Numbers of those that were freed.
    """

    made: tuple[tuple[int, int], ...] = ()
    full: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()


@dataclass(eq=False)
class _Block:
    number: int
    size: int
    memory: Memory
    whole: Array
    used: int = 0  # bytes written
    last: int = 0  # the latest result that used it
    held: int = 0  # arrays of this process over it
    sent: bool = False

    def copied(self, array: Array) -> int:
        """Copy an array behind those in the block; return where it begins."""
        first = self.used
        self.whole[first : first + array.nbytes] = array
        self.used = aligned(first + array.nbytes)
        return first


@dataclass(eq=False)
class Blocks:
    """The blocks of one worker, and the arrays in them to send.

    Args:
        room: The least bytes of a block. If it is more than zero, values share a block until it is
            full; otherwise a block has the arrays of one value.
        most: The most blocks; arrays beyond travel inside their frame.
    """

    room: int = 0
    most: int = _MAX_BLOCKS
    blocks: dict[int, _Block] = field(default_factory=dict)
    free: list[_Block] = field(default_factory=list)  # the last one used is used next
    open: _Block | None = None
    results: int = 0  # sent so far
    made: list[_Block] = field(default_factory=list)
    full: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    returned: deque[int] = field(default_factory=deque)  # by the parent, on any thread
    dropped: deque[_Block] = field(default_factory=deque)  # by finalizers here, on any thread
    numbers: Iterator[int] = field(default_factory=count)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
        """Return an uninitialised array in its own block, which is sent without a copy.

        None if it is too small to be worth it, or no block is available.
        """
        size = prod(shape) * dtype.itemsize
        if size < LARGE or dtype.hasobject:
            return None
        self._reclaim()
        block = self._acquired(size)
        if block is None:
            return None
        block.used = size
        block.held += 1
        dropped = self.dropped
        # on any thread, without a lock
        raw = leased(block.memory, lambda _: dropped.append(block), (size,), np.dtype(np.uint8))
        return raw.view(dtype).reshape(shape)

    def pickled(self, value: object, what: str) -> SharedPickle:
        """Pickle a value, and put its large arrays into shared memory.

        Raises:
            TypeError: It cannot be pickled.
        """
        self.results += 1
        self._reclaim()
        taken: list[pickle.PickleBuffer] = []
        data = pickled_from_worker(value, what, taken)
        if not taken:
            return SharedPickle(data)
        buffers = self._buffers_of([np.frombuffer(buffer.raw(), np.uint8) for buffer in taken])
        return (
            SharedPickle(pickled_from_worker(value, what))
            if buffers is None
            else SharedPickle(data, tuple(buffers))
        )

    def _buffers_of(self, arrays: list[Array]) -> list[tuple[int, int, int]] | None:
        """Return where the arrays are, copied to a block if necessary; None if there is no room."""
        places = [self._block_holding(array) for array in arrays]
        missing = [index for index, place in enumerate(places) if place is None]
        if missing:
            block = self._block_with_room(sum(aligned(arrays[index].nbytes) for index in missing))
            if block is None:
                return None
            for index in missing:
                places[index] = block, block.copied(arrays[index])
        buffers, full = [], set()
        for array, (block, first) in zip(arrays, filter(None, places), strict=True):
            block.sent, block.last = True, self.results
            buffers.append((block.number, first, array.nbytes))
            if block is not self.open:
                full.add(block.number)
        self.full.extend(full)
        return buffers

    def _block_holding(self, array: Array) -> tuple[_Block, int] | None:
        """Return the block in which the array was made, if any, and its first byte there."""
        address = array.ctypes.data
        for block in self.blocks.values():
            first = address - block.memory.address
            if block.held and not block.sent and 0 <= first < block.size:
                return block, first
        return None

    def _block_with_room(self, size: int) -> _Block | None:
        """Return a block with room for so many bytes."""
        if self.open is not None and self.open.size - self.open.used >= size:
            return self.open
        if not self.room:
            return self._acquired(size)
        if self.open is not None:
            self.full.append(self.open.number)
        self.open = self._acquired(max(size, self.room))
        return self.open

    def _acquired(self, size: int) -> _Block | None:
        """Return an unused block: the free one that fits best, or else a new one.

        A far larger one would be occupied, as a whole, for as long as the value lives.
        """
        most = _ROOMY * max(size, self.room)
        fitting = [block for block in self.free if size <= block.size <= most]
        if fitting:
            block = min(reversed(fitting), key=lambda each: each.size)
            self.free.remove(block)
        else:
            made = self._allocated(aligned(size + size // 8, _PAGE))
            if made is None:
                return None
            block = made
        block.used, block.last, block.sent = 0, self.results, False
        return block

    def _allocated(self, size: int) -> _Block | None:
        if len(self.blocks) >= self.most and not self._release(self.free[:1]):
            return None
        try:
            descriptor = anonymous_memory(size)
        except OSError:
            return None
        try:
            memory = map_memory(descriptor, size)
        except (OSError, ValueError):
            os.close(descriptor)
            return None
        number = next(self.numbers)
        block = _Block(number, size, memory, np.frombuffer(memory.owner, np.uint8))
        self.blocks[number] = block
        self.made.append(block)
        self.descriptors.append(descriptor)
        return block

    def _reclaim(self) -> None:
        """Reclaim unused blocks, and free those unused for long."""
        while self.returned:
            block = self.blocks[self.returned.popleft()]
            block.sent = False
            if not block.held:
                self.free.append(block)
        while self.dropped:
            block = self.dropped.popleft()
            block.held -= 1
            if not block.held and not block.sent:
                self.free.append(block)
        self._release([block for block in self.free if self.results - block.last > _STALE])

    def _release(self, blocks: Sequence[_Block]) -> bool:
        for block in blocks:
            self.free.remove(block)
            del self.blocks[block.number]
            self.gone.append(block.number)
        return bool(blocks)

    def updates(self) -> tuple[BlockUpdates, list[int]]:
        """Return the report to the parent, and descriptors of new blocks to send and close."""
        made = tuple((block.number, block.size) for block in self.made)
        updates, descriptors = (
            BlockUpdates(made, tuple(self.full), tuple(self.gone)),
            self.descriptors,
        )
        self.made, self.full, self.gone, self.descriptors = [], [], [], []
        return updates, descriptors
