"""The arrays of collated feeds, which are placed, beside what else a user's function put there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jreader.devices import placeable
from jreader.errors import FeedMismatch
from jreader.feeds import cast
from jreader.readers import branches, joined, leaves


def arrays_of(tree: Any, canonical: Callable[[Any], Any]) -> list[Any]:
    """The arrays of a tree in dtypes of the device; raises FeedMismatch if a value would change."""
    arrays = list(filter(placeable, leaves(tree)))
    dtypes = [canonical(array.dtype.newbyteorder("=")) for array in arrays]
    if dtypes == [array.dtype for array in arrays]:
        return arrays
    return list(map(cast, arrays, dtypes, _names(tree)))


def _names(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[str]:
    """What errors call the arrays of a tree."""
    parts = branches(tree)
    for key, part in (parts or {}).items():
        yield from _names(part, (*path, key))
    if placeable(tree):
        inner = "".join(f"[{key!r}]" for key in path[1:])
        yield f"field {path[0]!r}{inner}" if path else "the sample"


def check_rows(arrays: list[Any]) -> None:
    """Raises FeedMismatch if arrays do not have one row for each sample, to be split by."""
    shapes = [list(array.shape) for array in arrays]
    if not arrays or len({tuple(shape[:1]) for shape in shapes}) > 1 or not shapes[0]:
        raise FeedMismatch(
            f"a batch over several places needs arrays with one row for each sample, not the "
            f"shapes {shapes}: collate it so, or leave places out."
        )


def refilled(trees: Sequence[Any], arrays: Iterator[Any], beside: int | None) -> Any:
    """The first tree with other arrays; other leaves become a list, one per batch.

    Args:
        trees: The feeds of the batches, of one structure.
        arrays: The arrays of the feed, in order.
        beside: How many batches are side by side in a feed; None where one is a feed.
    """
    first = trees[0]
    if placeable(first):
        return next(arrays)
    if any(map(placeable, leaves(first))):
        inner = [branches(tree) or {} for tree in trees]
        made = {key: refilled([part[key] for part in inner], arrays, beside) for key in inner[0]}
        return joined(first, made)
    if first is None or beside is None:
        return first
    return [*trees, *([] for _ in range(beside - len(trees)))]


def without_texts(tree: Any) -> Any:
    """The tree with empty lists where it has one text for each sample."""
    parts = branches(tree)
    if parts and any(map(placeable, leaves(tree))):
        return joined(tree, {key: without_texts(part) for key, part in parts.items()})
    return [] if isinstance(tree, list) else tree
