"""`jreader peek`: show the first samples in readable form; `check`: list problems."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Any

import numpy as np

from jreader.batches import stack
from jreader.chats import decoder_of, marked_text
from jreader.commands.contact_sheets import sheet
from jreader.commands.named_pipelines import CommandFailed, is_loader, reader_of
from jreader.commands.show import aligned_rows
from jreader.linting import lint
from jreader.linting.plan_parts import of_batches, peeked
from jreader.pipelines.locking import check_lock
from jreader.readers import Columns
from jreader.readers.trees import named_leaves

_SHOWN = 6  # of an array
_WIDE = 60  # characters of a text
_SHEET = 64  # images on a sheet


def peek(
    subject: Any,
    many: int = 5,
    png: str | None = None,
    decode: Callable[[Any], str] | None = None,
) -> Iterator[str]:
    """Show the fields of the first samples, batches or feeds: name, dtype, shape, first values.

    >>> from jreader import Pipeline, arrays
    >>> rows = Pipeline(arrays(image=np.arange(16).reshape(2, 8), label=[3, 5]))
    >>> for line in peek(rows, 1):
    ...     print(line)
    0 image int64[8] 0 1 2 3 4 5 ...
      label int64    3

    Args:
        subject: A reader or a loader.
        many: The number of samples to show.
        png: A file for the images of the first 64 samples, side by side.
        decode: Turns a row of tokens into text to show. Samples with a `loss_mask` are also shown
            with marks around what counts; for a plan with `chat`, even without it.

    Raises:
        CommandFailed: There is nothing to show; or, with `png`, no field is an image.
    """
    items = first_items(subject, max(many, _SHEET if png else 0))
    if not items:
        raise CommandFailed("yields nothing: there is no first sample to look at")
    rows = []
    for number, item in enumerate(items[:many]):
        leaves = _named_arrays(item)
        fields = [
            (name, _dtype_and_shape(leaf), _shown_values(leaf, decode)) for name, leaf in leaves
        ]
        firsts = [str(number), *[""] * len(fields)]
        rows += [(first, *field) for first, field in zip(firsts, fields, strict=False)]
    yield from aligned_rows(rows)
    yield from _marked_chats(items[:many], decode or decoder_of(reader_of(subject)))
    if png is not None:
        yield sheet([leaf for item in items for _, leaf in _named_arrays(item)], png, _SHEET)


def _marked_chats(items: list[Any], decode: Any) -> Iterator[str]:
    for number, item in enumerate(items):
        if decode and isinstance(item, dict) and getattr(item.get("loss_mask"), "ndim", 0) == 1:
            yield f"{number} {marked_text(item, (decode, decode))}"


def check(
    subject: Any,
    ignore: Collection[str] = (),
    *,
    measure: bool = True,
    locked: str | None = None,
) -> Iterator[str]:
    """Lint a plan or a loader, timing functions: yield the line of each op, and the fix.

    >>> from jreader import Pipeline
    >>> list(check(Pipeline(lambda: range(10)).batch(2)))
    []

    Args:
        subject: A reader or a loader.
        ignore: The names of findings to skip.
        measure: Whether to time functions.
        locked: A lock to compare with instead; None to lint.

    Raises:
        CommandFailed: The plan yields nothing, so there is nothing to check.
    """
    if locked is not None:
        yield from check_lock(reader_of(subject), locked)
        return
    found = lint(subject, measure=measure, ignore=ignore)
    if not found and not is_loader(subject) and not first_items(subject, 1):
        raise CommandFailed("yields nothing: there is no first sample to check")
    for finding in found:
        yield f"{finding.made_at}: {finding}" if finding.made_at else str(finding)


def first_items(subject: Any, many: int) -> list[Any]:
    """Return the first samples of a reader (batches as arrays), or the first feeds of a loader."""
    if is_loader(subject):
        with subject.epoch(0) as feeds:
            return list(islice(feeds, many))
    items = peeked(subject, many)
    if of_batches(subject):
        return [_stacked_batch(item) for item in items]
    return [item.columns if isinstance(item, Columns) else item for item in items]


def _stacked_batch(batch: Any) -> Any:
    try:
        return stack(batch)
    except Exception:  # such as samples of different shapes
        return batch


def _named_arrays(tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a sample with names such as image or pair.0."""
    for name, leaf in named_leaves(tree):
        is_array = hasattr(leaf, "dtype") and hasattr(leaf, "shape")
        yield name, np.asarray(leaf) if is_array else leaf


def _dtype_and_shape(leaf: Any) -> str:
    if isinstance(leaf, np.ndarray):
        shape = ", ".join(map(str, leaf.shape))
        return f"{leaf.dtype}[{shape}]" if shape else str(leaf.dtype)
    size = f"[{len(leaf)}]" if isinstance(leaf, (str, bytes, bytearray)) else ""
    return f"{type(leaf).__name__}{size}"


def _shown_values(leaf: Any, decode: Callable[[Any], str] | None) -> str:
    """Return the first values of a leaf in short; for tokens with a decoder, their text."""
    if not isinstance(leaf, np.ndarray):
        return _shortened(repr(leaf[:_WIDE] if isinstance(leaf, (str, bytes, bytearray)) else leaf))
    if decode and leaf.ndim == 1 and leaf.dtype.kind in "iu":
        return _shortened(repr(decode(leaf.tolist())))
    some = [_shortened(_number_text(each)) for each in islice(leaf.flat, _SHOWN)]
    return " ".join(some) + " ..." * (leaf.size > _SHOWN)


def _number_text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDE else f"{text[: _WIDE - 3]}..."
