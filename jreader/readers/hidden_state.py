"""What values hold besides attributes: compiled functions, seeds, masks, tokenizers, keys of jax.

Cursors have it in a part of its own (`Plan.values`), since those of earlier releases do not.
"""

from __future__ import annotations

import random
import re
import sys
from hashlib import blake2b
from typing import Any

import numpy as np

_DRAWN = 64  # bits: an entropy of more is taken for one that the system drew
_LONG = 1 << 16  # bytes that are looked at whole


def hidden_state(value: Any) -> Any:
    """What the attributes of a value do not show, as numbers, texts and arrays; None for nothing.

    It is the same for equal values in every process. Of random generators it is the seed, which
    stays when numbers are drawn, where they keep it; else the state. A seed that the system drew is
    left out, since every process has another one.

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
    """The seed of a generator, or the state of one that keeps no seed.

    That of a global generator is every module's; NumPy's are imported where there is one of them.
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
    """Whether a generator is one that all modules share, or draws from the system."""
    if isinstance(value, random.Random):
        shared: Any = random.random
        return value is shared.__self__ or isinstance(value, random.SystemRandom)
    shared = np.random.normal
    return value is shared.__self__


def _is_entropy(seeds: np.random.SeedSequence) -> bool:
    """Whether the system drew the entropy."""
    entropy = seeds.entropy
    return isinstance(entropy, int) and entropy.bit_length() > _DRAWN


def _compiled_name(value: Any) -> str | None:
    """What is called and has no code that Python could show, by name; a tokenizer by all it is."""
    kind = type(value)
    if kind.__module__.partition(".")[0] in ("tokenizers", "transformers"):
        known = getattr(value, "backend_tokenizer", value)  # that of transformers is inside
        return blake2b(known.to_str().encode()).hexdigest() if hasattr(known, "to_str") else None
    library = kind.__module__.partition(".")[0] in ("numpy", "jax", "jaxlib")
    if isinstance(value, type) or not (library or kind.__name__ == "cython_function_or_method"):
        return None
    named = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    return named if callable(value) and isinstance(named, str) else None
