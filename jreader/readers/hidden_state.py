"""State outside attributes: compiled functions, seeds, masks, tokenizers, keys of jax.

Cursors store it in its own part (`Plan.values`), which those of earlier releases lack.
"""

from __future__ import annotations

import random
import re
import sys
from hashlib import blake2b
from typing import Any

import numpy as np

_DRAWN = 64  # bits: more entropy than this was drawn by the system
_LONG = 1 << 16  # bytes that are hashed whole


def hidden_state(value: Any) -> Any:
    """Return the state that attributes do not show, as numbers, texts and arrays; else None.

    It is the same for equal values in every process. For random generators it is the seed, if they
    keep it, which stays when numbers are drawn; else the state. It leaves out a seed that the
    system drew, which every process draws anew.

    >>> hidden_state(np.add), hidden_state(memoryview(b"abc")), hidden_state([1])
    ('add', b'abc', None)
    >>> hidden_state(np.random.default_rng(7))
    ('PCG64', (7, (), 4))
    """
    if type(value).__module__.startswith("numpy.random") or isinstance(value, random.Random):
        return _seed_of(value)
    if isinstance(value, memoryview):
        return value.tobytes() if value.nbytes <= _LONG else np.asarray(value)
    if isinstance(value, re.Pattern):
        return value.pattern, value.flags
    if isinstance(value, np.ma.MaskedArray):
        return np.ma.getmaskarray(value), value.fill_value
    kind = getattr(value, "dtype", None)
    if not isinstance(kind, np.dtype) and "key<" in str(kind) and "jax" in sys.modules:
        return str(value.dtype), np.asarray(sys.modules["jax"].random.key_data(value))
    return _compiled_name(value)


def _seed_of(value: Any) -> Any:
    """Return the seed of a generator, or the state of one that keeps no seed.

    Modules share a global generator; NumPy's are imported only if such an object exists.
    """
    if _is_of_program(value):
        return None
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.Generator):
        value = value.bit_generator
    if isinstance(value, np.random.BitGenerator):
        seeds = getattr(value, "seed_seq", None)
        kept = _seed_of(seeds) if isinstance(seeds, np.random.SeedSequence) else value.state
        return type(value).__name__, kept
    if isinstance(value, np.random.SeedSequence):
        return None if _is_entropy(value) else (value.entropy, value.spawn_key, value.pool_size)
    if isinstance(value, np.random.RandomState):
        return value.get_state(legacy=False)
    return _compiled_name(value)


def _is_of_program(value: Any) -> bool:
    """Return whether all modules share a generator, or it draws from the system."""
    if isinstance(value, random.Random):
        shared: Any = random.random
        return value is shared.__self__ or isinstance(value, random.SystemRandom)
    shared = np.random.normal
    return value is shared.__self__


def _is_entropy(seeds: np.random.SeedSequence) -> bool:
    """Return whether the system drew the entropy."""
    entropy = seeds.entropy
    return isinstance(entropy, int) and entropy.bit_length() > _DRAWN


def _compiled_name(value: Any) -> str | None:
    """Return the name of a callable without Python code; for a tokenizer, all of its state."""
    kind = type(value)
    if kind.__module__.partition(".")[0] in ("tokenizers", "transformers"):
        known = getattr(value, "backend_tokenizer", value)  # transformers wraps it
        return blake2b(known.to_str().encode()).hexdigest() if hasattr(known, "to_str") else None
    library = kind.__module__.partition(".")[0] in ("numpy", "jax", "jaxlib")
    if isinstance(value, type) or not (library or kind.__name__ == "cython_function_or_method"):
        return None
    named = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    return named if callable(value) and isinstance(named, str) else None
