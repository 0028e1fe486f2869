"""Rules about fields, for the first feed of a loop, or for the first samples that `lint` reads."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from jreader.batches import batching
from jreader.batches.padded_batches import padded_batch
from jreader.linting.findings import Finding, warn_of
from jreader.linting.plan_parts import (
    Fed,
    gathered_columns,
    known_length,
    last_function,
    of_batches,
    peeked,
    prefixes,
    sample_leaves,
)
from jreader.readers import Columns, Reader, branches, indexed, leaves
from jreader.readers.nodes import ops_of
from jreader.readers.seeds import seeded
from jreader.transforms import cache
from jreader.workers.memory_estimates import estimated_bytes

Kinds: TypeAlias = set[tuple[str, int]]
"""Dtypes of fields, and their number of elements per sample."""

_MIN_BYTES = 1 << 20  # of a field in a feed: fewer cost less than the call that sends them
_ROWS = 64  # samples per batch, by default
_MAX_SHAPES = 8  # shapes that a step may reasonably be compiled for
_NO_LIMIT = 1 << 60


def fields(fed: Fed) -> Iterator[Finding]:
    """Find `host-float32` and `narrowed` in one feed; reads the first samples."""
    kinds = {each for reader in prefixes(fed.plan) for each in _kinds_of(sample_leaves(reader))}
    if fed.first is not None:
        yield from of_feed(fed.plan, fed.first(), fed.axes, kinds)
        return
    first = peeked(fed.plan)
    batched = of_batches(fed.plan) or isinstance(next(iter(first), None), Columns)
    rows = batching(fed.plan).size or (len(first[0]) if first and batched else _ROWS)
    feed = {
        f"{name}": np.broadcast_to(np.zeros((), leaf.dtype), (rows, *np.shape(leaf)))
        for name, leaf in enumerate(sample_leaves(fed.plan))
        if isinstance(leaf, (np.ndarray, np.generic))
    }
    yield from of_feed(fed.plan, feed, 1, kinds)


def warn_of_fields(plan: Reader[Any], feed: Any, axes: int) -> None:
    """Warn of findings in the first feed of a loop, given the arrays that it is gathered from."""
    if not any(_array_bytes(leaf) >= _MIN_BYTES for leaf in leaves(feed)):
        return
    for finding in of_feed(plan, feed, axes, _kinds_of(gathered_columns(plan), 1)):
        warn_of(finding)


def of_feed(plan: Reader[Any], feed: Any, axes: int, kinds: Kinds) -> Iterator[Finding]:
    """Yield the findings in one feed.

    Args:
        plan: The plan of the feed.
        feed: A feed on the host: a tree of arrays.
        axes: How many leading axes count samples.
        kinds: The kinds of arrays that its fields were made from.
    """
    function = last_function(plan)
    made_at = getattr(function.op if function else plan, "made_at", "")
    for name, leaf in _named_fields(feed, least=_MIN_BYTES):
        each = math.prod(leaf.shape[axes:])
        made_of = {kind for kind, elements in kinds if elements == each}
        what = f"field {name!r}" if name else "the feed"
        if leaf.dtype.kind == "f" and each > 1 and (small := made_of & {"uint8", "int8"}):
            yield _widened(what, leaf, max(small), made_at, mapped=function is not None)
        if wide := _wide(leaf, made_of):
            yield _narrowed(what, leaf, wide, made_at)


def _widened(what: str, leaf: Any, small: str, made_at: str, *, mapped: bool) -> Finding:
    """Report floats that were bytes when they were read."""
    on_device = "load().on_device(lambda feed: ...)."
    return Finding(
        "host-float32",
        f"{what} is {small} where it is read, and {leaf.dtype} when it goes to the devices: "
        f"{leaf.dtype.itemsize} x the bytes, {_megabytes(leaf)} in each feed.",
        f"Send the bytes, and convert them there: {on_device}"
        if mapped
        else f"Declare {small} in the feed_list, and convert on the devices: {on_device}",
        made_at,
    )


def _narrowed(what: str, leaf: Any, wide: str, made_at: str) -> Finding:
    """Report 64-bit values on the host that have 32 bits on the devices."""
    narrow = wide.replace("64", "32")
    return Finding(
        "narrowed",
        f"{what} is {wide} on the host, and {narrow} on the devices: {_megabytes(leaf)} of each "
        "feed are read at twice the width, and then cast.",
        f"Store it as {narrow}, or map it to that where it is made; for 64 bits on the devices, "
        'jax.config.update("jax_enable_x64", True).',
        made_at,
    )


def _wide(leaf: Any, kinds: set[str]) -> str | None:
    """Return the 64-bit dtype that a field has on the host, and loses on devices."""
    wide = ("int64", "uint64", "float64")
    if leaf.dtype.name in wide:
        return None if _takes_64_bits() else str(leaf.dtype)
    if leaf.dtype.itemsize != 4:  # bytes
        return None
    same = (kind for kind in wide if np.dtype(kind).kind == leaf.dtype.kind)
    return next((kind for kind in same if kind in kinds), None)


def _takes_64_bits() -> bool:
    """Return whether jax, if imported, keeps 64 bits."""
    jax = sys.modules.get("jax")
    if jax is not None:
        return bool(jax.config.jax_enable_x64)
    return os.environ.get("JAX_ENABLE_X64", "").lower() in ("1", "true", "yes")


def caches(fed: Fed) -> Iterator[Finding]:
    """Find `large-cache`: a cache in memory that needs more bytes than the machine has."""
    for op in ops_of(fed.plan):
        many = known_length(op.reader) if isinstance(op, cache) and op.path is None else None
        if not many or not isinstance(op, cache):
            continue
        if indexed(seeded(op.reader, 0)) is not None:
            continue  # indexed samples are not kept: they are read again
        each = sum(map(estimated_bytes, peeked(op.reader)))
        if each * many > (there := memory()):
            yield Finding(
                "large-cache",
                f"cache() keeps {many:,} samples of some {each:,.0f} bytes: "
                f"{each * many / 2**30:,.1f} GiB, and this machine has {there / 2**30:,.1f}.",
                "Keep them on disk, as in cache(path), or cache something smaller, such as "
                "samples that are not yet decoded.",
                op.made_at,
            )


def memory() -> int:
    """Return the bytes of memory available to this process: of the machine, or its container."""
    limits = [_NO_LIMIT]
    with suppress(AttributeError, ValueError, OSError):  # not available on Windows
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # "max" is not a number
            limits.append(int(Path(path).read_text()))
    return min(limit for limit in limits if limit > 0)


def shapes(fed: Fed) -> Iterator[Finding]:
    """Find `many-shapes` and `ragged-last-batch`: feeds that make a step recompile."""
    made_at = getattr(fed.plan, "made_at", "")
    again = "the step is recompiled for each"
    try:
        found = fed.shapes() if fed.shapes else []
    except TypeError:
        yield Finding(
            "many-shapes",
            f"a batch is as long as its longest sample, and any length may come: {again}.",
            "Name the lengths that batches may have: padded_batch(n, to=[128, 256]), or bucket.",
            made_at,
        )
        return
    except ValueError:  # there are no batches
        return
    if len(found) > _MAX_SHAPES:
        op = batching(fed.plan).op
        few = "to=[128, 256, 512]" if isinstance(op, padded_batch) else "fewer bounds"
        yield Finding(
            "many-shapes",
            f"the feeds of an epoch have {len(found)} shapes: {again}, {len(found)} times.",
            f"Give {few}; loader.shapes() lists them, loader.warm(step) compiles ahead.",
            made_at,
        )
    elif fed.keeps and not batching(fed.plan).sizes and (len(found) > 1 or _ends_short(fed)):
        yield Finding(
            "ragged-last-batch",
            f"the last batch of an epoch is shorter than the others: {again}, twice.",
            "Leave it out with drop_last=True, or pad it under a mask with last='pad'.",
            made_at,
        )


def _ends_short(fed: Fed) -> bool:
    """Return whether the last batch is short, even if a function makes feeds from batches."""
    found = batching(fed.plan)
    many = known_length(found.op.reader) if found.op and found.whole else None
    if many is None or found.op is None or found.op.drop_last:
        return False
    full, end = found.op.sizes.full(0, many)
    return full > 0 and end < many


def _kinds_of(arrays: Iterable[Any], axes: int = 0) -> Kinds:
    """Return the dtypes of arrays, and their elements per sample, without the first `axes`."""
    return {
        (str(leaf.dtype), math.prod(leaf.shape[axes:]))
        for leaf in arrays
        if isinstance(leaf, (np.ndarray, np.generic))
    }


def _named_fields(feed: Any, least: int) -> Iterator[tuple[str, Any]]:
    """Yield the arrays of a feed with at least so many bytes, with the names of their fields."""
    parts = branches(feed)
    for key, part in ({"": feed} if parts is None else parts).items():
        yield from ((str(key), leaf) for leaf in leaves(part) if _array_bytes(leaf) >= least)


def _array_bytes(leaf: Any) -> int:
    size = getattr(leaf, "nbytes", 0)
    return size if isinstance(size, int) and hasattr(leaf, "dtype") else 0


def _megabytes(leaf: Any) -> str:
    return f"{leaf.nbytes / 1e6:.1f} MB"
