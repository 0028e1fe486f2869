"""Keys, which choose a random order, and the seeds they are made from."""

from __future__ import annotations

import operator
import sys
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jreader import errors
from jreader.orders.arithmetic import NARROW, integers, lifted, mixed
from jreader.readers import argument, described

STREAM_VERSION = 2

Number: TypeAlias = Any  # an int, or an array of integers, of NumPy or jax

_PATH_END = 1 << 64
_WORD = (1 << 32) - 1
_FIRST, _SHIFT, _SECOND = map(int, (NARROW.first, NARROW.shift, NARROW.second))
_TWEAKS = NARROW.tweaks[:4].tolist()
LENGTHS = 0x6A09E667F3BCC908  # the seed for hashing lengths: a number that no user types


class Key(NamedTuple):
    """Two uint32 words that choose an order, or two arrays of such words; made by `key`."""

    low: Any
    high: Any


_OPENED = Key(np.array([STREAM_VERSION], np.uint32), np.array([1], np.uint32))  # 64 bits of seed


def key(seed: Number, *path: Number) -> Key:
    """Make the key of one order: a 64-bit hash of the seed and of every number on the path.

    The order and the count of the numbers matter: epoch 1 of seed 42 has another key than epoch 0
    of seed 43, and `key(7)` is not `key(7, 0)`. If a number is an array, the result holds one key
    for each of its elements, equal to the key of that int; a traced number is such an array.

    >>> key(42, 1) == key(43, 0)
    False
    >>> key(7, 0, np.arange(3)[:, None]).low.shape
    (3, 1)

    Args:
        seed: An int >= 0 of any size, all of whose bits count; or an array of integers.
        path: Ints from 0 to 2**64 - 1, or arrays of them: epoch, place of the op in the plan,
            window.

    Returns:
        A `Key` whose words have the shape that the arrays broadcast to; (1,) if there are none.

    Raises:
        TypeError: A number is not an integer (a float, a bool, a string).
        ValueError: A number is negative or too large; jax arrays are not checked for that.
    """
    known, others = list[int](), list[Any]()  # ints with no array before them, and the rest
    for at, entry in enumerate((seed, *path)):
        number = _key_number(entry, at)
        (others if others or not isinstance(number, int) else known).append(number)
    state = _absorbed(tuple(known)) if known else _OPENED
    for number in others:
        state = _mixed_in(state, number)
    shape = np.broadcast_shapes(*map(np.shape, others)) if others else ()
    return Key(state.low.reshape(shape), state.high.reshape(shape))


def of_length(key: Key, n: int) -> Key:
    """Return the key with the length n added, so that orders of n and n + 1 are unrelated."""
    low, high = _absorbed((LENGTHS, n))
    return Key(lifted(key.low) ^ low, lifted(key.high) ^ high)


def distinct(numbers: Number) -> tuple[Number, Number | None]:
    """Return numbers without most repetitions, and the index of each in them; None if all stay.

    On the host, neighbours are mostly equal; a trace cannot compare them.
    """
    if not isinstance(numbers, np.ndarray) or not numbers.size:
        return numbers, None
    first, last = int(numbers.min()), int(numbers.max())
    if last - first >= numbers.size:
        return numbers, None
    return np.arange(first, last + 1), numbers - first


def as_seed(seed: Any, call: str = "shuffle(reader)") -> int:
    """Return a seed as an int: an int unchanged, a jax key as the int of its words.

    >>> as_seed(7), as_seed(np.array([1, 2], np.uint32)) == 1 * 2**32 + 2
    (7, True)

    Args:
        seed: An int >= 0, a jax key, or the uint32 words of one.
        call: The call that the seed was given to, for the error message.

    Raises:
        TypeError: The seed is neither an int nor a key.
        ValueError: The seed is negative.
    """
    if not hasattr(seed, "dtype") or isinstance(seed, np.integer):
        return errors.check_number(f"seed of {call}", seed)
    if not isinstance(seed, np.ndarray) and "key" in str(seed.dtype):
        seed = sys.modules["jax"].random.key_data(seed)  # a jax key exists, so jax is imported
    words = np.asarray(seed)
    if words.dtype != np.uint32 or words.ndim != 1:
        raise TypeError(
            f"seed of {call} needs an int or one jax key, not {described(words)}: give seed=0, or "
            f"jax.random.key(0)."
        )
    return int.from_bytes(words.astype(">u4").tobytes(), "big")


def random_seed(*, default: int | None = None) -> Any:
    """Return a field of an op that takes a seed; None lets each pass draw one."""
    return argument(lambda call, seed: as_seed(seed, call), default=default)


@lru_cache(4096)
def _absorbed(numbers: tuple[int, ...]) -> Key:
    """Return the state of the hash after some ints; read-only, since the cache shares it."""
    words = np.array(_absorbed_words(numbers), np.uint32)
    words.flags.writeable = False
    return Key(words[:1], words[1:])


@lru_cache(4096)
def _absorbed_words(numbers: tuple[int, ...]) -> tuple[int, int]:
    """Return the two words of that state as ints: for one number, NumPy takes ten times as long."""
    *before, last = numbers
    if before:
        return _int_mixed_in(*_absorbed_words(tuple(before)), last)
    shifts = range(0, max(1, last.bit_length()), 64)
    low, high = STREAM_VERSION, len(shifts)
    for shift in shifts:
        low, high = _int_mixed_in(low, high, (last >> shift) % _PATH_END)
    return low, high


def _int_mixed_in(low: int, high: int, number: int) -> tuple[int, int]:
    """Do as `_mixed_in`, for one state of ints."""
    low, high = low ^ number & _WORD, high ^ number >> 32
    for tweak in _TWEAKS:
        word = low + tweak & _WORD
        word ^= word >> 16
        word = word * _FIRST & _WORD
        word ^= word >> _SHIFT
        word = word * _SECOND & _WORD
        low, high = word ^ word >> 16 ^ high, low
    return low, high


def _mixed_in(state: Key, number: Any) -> Key:
    """Return the state after one more number: xor, then a fixed, invertible mix of its 64 bits."""
    number_low, number_high = _halves(number)
    low, high = state.low ^ number_low, state.high ^ number_high
    for tweak in NARROW.tweaks[: len(_TWEAKS)]:
        low, high = mixed(low + tweak) ^ high, low
    return Key(low, high)


def _halves(number: Any) -> tuple[Any, Any]:
    """Return the two uint32 words of a number; never 0-d, as NumPy warns of scalar overflow."""
    if isinstance(number, int):
        number = np.array([number], np.uint64)
    number = lifted(number)
    wide = number.dtype.itemsize > np.uint32(0).itemsize
    return number.astype(np.uint32), (number >> 32).astype(np.uint32) if wide else np.uint32(0)


def _key_number(value: Any, at: int) -> Any:
    """Check a number of a key, by its place: an int >= 0, after the seed < 2**64; or an array."""
    if isinstance(value, np.generic | np.ndarray) and not value.ndim:
        value = value.item()
    if hasattr(value, "__array_namespace__"):
        return integers(value, _number_name(at))
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{_needed(at, value)}: type an int, or an array of integers.")
    number = operator.index(value)
    if number < 0 or (at and number >= _PATH_END):
        instead = f"type {number % _PATH_END}, which is {number} % 2**64."
        raise ValueError(f"{_needed(at, value)}: {instead}")
    return number


def _number_name(at: int) -> str:
    return f"path[{at - 1}]" if at else "seed"


def _needed(at: int, value: Any) -> str:
    so = "a key needs whole numbers >= 0 and, after the seed, < 2**64"
    return f"{_number_name(at)} is {value!r}, but {so}"
