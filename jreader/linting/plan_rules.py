"""Rules about the plan alone: they read nothing, so every new loader runs them."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator
from itertools import repeat
from types import FunctionType, GeneratorType, MethodType
from typing import Any, TypeGuard

from jreader.batches import batching, bucket, padded_batch, plain_batch
from jreader.errors import place_of_caller
from jreader.linting.findings import Finding
from jreader.linting.plan_parts import (
    Call,
    Fed,
    known_length,
    last_function,
    mixes,
    of_batches,
    one_for_one,
)
from jreader.readers import Node, Reader, described, indexed, length
from jreader.readers.lanes import dealt_below
from jreader.readers.mapped_rows import mapped_rows
from jreader.readers.nodes import ops_of
from jreader.readers.seeds import random_ops, seeded
from jreader.transforms import shuffle
from jreader.transforms.maps import without_maps
from jreader.workers import multiprocess_reader, xmap_readers

_PERCENT = 100  # a window under 1 % of the data is small
_SHORT = 64  # bytes of code: returning a value unchanged takes fewer


def small_window(fed: Fed) -> Iterator[Finding]:
    """Find a shuffle in windows of less than 1 % of the data, or smaller than a batch."""
    if not any(map(_has_window, ops_of(fed.plan))):
        return
    for op, rows in _in_windows(fed.plan, None):
        size, many = op.buf_size or 0, known_length(op.reader)
        seen = _why_small(size, many, rows)
        if not seen:
            continue
        if indexed(seeded(op.reader, 0)) is not None:
            fix = "Leave buf_size out: the plan is indexed, and shuffle(seed=0) shuffles all of it."
        else:
            least = max(-(-(many or 0) // _PERCENT), rows or 0)
            fix = (
                f"Give a window of at least {least:,}, as in shuffle({least}, seed=0), or shuffle "
                f"the files, or the indices, that samples are read from."
            )
        sentence = f"shuffle(buf_size={size}) mixes {size:,} samples at a time, {seen}."
        yield Finding("small-window", sentence, fix, op.made_at)


def _why_small(size: int, many: int | None, rows: int | None) -> str:
    """Return why a window of `size` is small for `many` samples and `rows` per batch; "" if not."""
    if size < 2 or (many is not None and many <= size):
        return ""  # `shuffle` itself warns of fewer; more is the whole
    if many is not None and size * _PERCENT < many:
        return f"of {many:,}: those that lie far apart never meet in a batch"
    if rows is not None and size < rows:
        return f"and a batch has {rows:,}: it holds whole windows, the same ones in all epochs"
    return ""


def _in_windows(reader: Reader[Any], rows: int | None) -> Iterator[tuple[shuffle[Any], int | None]]:
    """Yield each shuffle in windows of samples not shuffled below, and the rows of its batches.

    Args:
        reader: The plan.
        rows: How many samples of this reader make a batch; None if unknown.
    """
    left = [(reader, rows)]
    while left:
        op, rows = left.pop()
        if _has_window(op) and _is_only_order(op):
            yield op, rows
        if isinstance(op, Node):
            rows = _rows_below(op, rows)
            left += zip(reversed(op.input_readers), repeat(rows), strict=False)


def _has_window(op: Reader[Any]) -> TypeGuard[shuffle[Any]]:
    return isinstance(op, shuffle) and op.buf_size is not None


def _is_only_order(op: shuffle[Any]) -> bool:
    """Return whether it shuffles samples that nothing below it shuffles."""
    return not of_batches(op) and not any(isinstance(each, shuffle) for each in ops_of(op)[1:])


def _rows_below(op: Node[Any], rows: int | None) -> int | None:
    """Return how many samples of an op's readers make a batch, if `rows` of its own do."""
    if (made := plain_batch(op)) is not None:
        dealt = dealt_below(made.reader)
        return max(made.sizes.sizes) // (dealt.lanes if dealt and not dealt.owned else 1)
    return rows if one_for_one(op) or mixes(op) else None


def shuffle_after_batch(fed: Fed) -> Iterator[Finding]:
    """Find a shuffle of batches whose samples are not shuffled."""
    for op in ops_of(fed.plan):
        if not isinstance(op, shuffle) or not of_batches(op.reader):
            continue
        if any(isinstance(below, (shuffle, bucket)) for below in ops_of(op.reader)):
            continue
        yield Finding(
            "shuffle-after-batch",
            "shuffle after batch orders whole batches: the samples of each stay together, in the "
            "same batch of all epochs.",
            "Shuffle the samples: .shuffle(seed=0).batch(n).",
            op.made_at,
        )


def map_below_shuffle(fed: Fed) -> Iterator[Finding]:
    """Find a shuffle of all samples over several mapped readers of indexed data."""
    for op in ops_of(fed.plan):
        if not isinstance(op, shuffle) or op.buf_size is not None:
            continue
        if (mapped := _mapped_over_indexed(op.reader)) is not None:
            many, name = length(op.reader), described(mapped.function)
            yield Finding(
                "map-below-shuffle",
                f"shuffle calls {name} for all {many:,} samples of an epoch, and holds what it "
                f"returns, before the first one is there.",
                "Map after the readers are joined, as in chain(a, b).map(fn): fn is then called "
                "when a sample is due.",
                op.made_at,
            )


def map_on_every_process(fed: Fed) -> Iterator[Finding]:
    """Find several mapped readers in a plan of which each process feeds a part."""
    counted = batching(fed.plan).counted if fed.shared else None
    if counted is None or isinstance(counted, padded_batch):
        return
    if (mapped := _mapped_over_indexed(counted.reader)) is not None:
        name = described(mapped.function)
        yield Finding(
            "map-on-every-process",
            f"every process calls {name} for all samples of each batch, and keeps its own rows.",
            "Map after the readers are joined, as in chain(a, b).map(fn): each process then calls "
            "fn for its own rows only.",
            mapped.op.made_at,
        )


def _mapped_over_indexed(reader: Reader[Any]) -> Call | None:
    """Return the call of a map that has to be read in order, over indexed rows; else None.

    Users cannot move the maps of jreader's own data sets.
    """
    mapped = last_function(reader)
    module = getattr(mapped and mapped.function, "__module__", None) or ""
    if mapped is None or module.startswith("jreader."):
        return None
    drawn = seeded(reader, 0)
    in_order = mapped_rows(drawn) is None and indexed(without_maps(drawn)) is not None
    return mapped if in_order else None


def generator_object(fed: Fed) -> Iterator[Finding]:
    """Find a function that returns the same generator every time, which lasts one epoch only."""
    for reader, made_at in _plain_functions(fed.plan):
        if isinstance(_returned(reader), (GeneratorType, map, zip)):
            kind = type(_returned(reader)).__name__
            yield Finding(
                "generator-object",
                f"{described(reader)} returns the same {kind} in every call, which is empty from "
                f"the second epoch on.",
                "Give the generator function itself, f, or make a new iterator in each call: "
                "lambda: f(path).",
                made_at or place_of_caller(),
            )


def _plain_functions(reader: Reader[Any]) -> Iterator[tuple[Reader[Any], str]]:
    """Yield the plain functions that a plan reads, and where the op that reads each was made."""
    if not isinstance(reader, Node):
        yield reader, ""
    for op in ops_of(reader):
        for up in op.input_readers:
            if not isinstance(up, Node):
                yield up, op.made_at


def _returned(function: Callable[..., Any]) -> Any:
    """Return what a function holds and returns unchanged; None if it does more."""
    if isinstance(function, MethodType) or not isinstance(function, FunctionType):
        named = getattr(function, "__name__", "") == "__iter__"
        return getattr(function, "__self__", None) if named else None
    code = function.__code__
    if len(code.co_code) > _SHORT:
        return None
    steps = [step for step in dis.get_instructions(code) if step.opname not in _NO_WORK]
    if [step.opname for step in steps[1:]] != ["RETURN_VALUE"] or steps[0].opname in _MAKES:
        return None
    return _values_held(function).get(steps[0].argval)


_NO_WORK = ("RESUME", "COPY_FREE_VARS", "NOP", "MAKE_CELL", "GET_ITER")
_MAKES = ("LOAD_CONST", "LOAD_SMALL_INT")


def _values_held(function: FunctionType) -> dict[str, Any]:
    """Return the globals, cells and defaults that a function reads, by name."""
    parameters = inspect.signature(function).parameters.values()
    defaults = {each.name: each.default for each in parameters}
    try:
        held = inspect.getclosurevars(function)
    except ValueError:  # a cell is still empty
        return defaults
    return {**held.globals, **held.nonlocals, **defaults}


def unordered(fed: Fed) -> Iterator[Finding]:
    """Find an op that yields samples in order of arrival, which no cursor can reproduce."""
    for op in ops_of(fed.plan):
        if isinstance(op, xmap_readers) and not op.order:
            keyword = "order=True"
        elif isinstance(op, multiprocess_reader) and not op.use_pipe and len(op.readers) > 1:
            keyword = "use_pipe=True"
        else:
            continue
        name = type(op).__name__
        yield Finding(
            "unordered",
            f"{name} hands samples over as they arrive: no two runs see the same batches, and a "
            f"cursor of this plan is refused.",
            f"Give {name}(..., {keyword}), which works as far ahead.",
            op.made_at,
        )


def left_out(fed: Fed) -> Iterator[Finding]:
    """Find samples that every epoch leaves out, if the length shows how many."""
    found = batching(fed.plan)
    if not fed.loses or found.op is None or found.op.drop_last or not found.whole:
        return
    many = known_length(found.op.reader)
    rest = 0 if many is None else many - found.op.sizes.full(0, many)[1]
    if rest and not is_shuffled(fed.plan):
        yield same_left_out(fed.plan, rest)


def is_shuffled(reader: Reader[Any]) -> bool:
    """Return whether the last samples of a reader of batches change every epoch."""
    buckets = batching(reader).buckets
    if buckets is not None and length(buckets) is None:
        reader = buckets.reader  # which orders the samples of a stream
    return bool(random_ops(reader))


def same_left_out(reader: Reader[Any], samples: int) -> Finding:
    """Return the finding for samples that no epoch has, since their last batch is short."""
    those = "sample" if samples == 1 else f"{samples} samples"
    return Finding(
        "same-left-out",
        f"each epoch leaves out the same {those}: its last batch is short, and "
        f"{described(reader)} is not shuffled.",
        "load(last='pad') pads it with zeros, under a mask, so that evaluation sees every sample "
        "once; load(last='drop') leaves it out without this warning.",
        getattr(reader, "made_at", ""),
    )
