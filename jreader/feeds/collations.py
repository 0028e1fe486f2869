"""From the indices of a batch to its feed on the host: fetch, collate, name the fields.

Worker processes do this too, so nothing here imports jax. The loader places the arrays of such a
feed (`arrays_of`), and puts them back beside what else a user's function put there (`refilled`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from operator import is_, itemgetter
from typing import Any

import numpy as np

from jreader import errors
from jreader.batches import collate
from jreader.batches.stacked import texts_or_column
from jreader.datasets.fetching import fetch, fetch_one, gathers, is_stream
from jreader.errors import FeedMismatch
from jreader.feeds.casts import cast, placeable
from jreader.feeds.layouts import FeedList, Feeds
from jreader.readers import Columns, branches, described, joined, leaves, map_tree, rebuilt
from jreader.workers import get_worker_info, map_and_stack

_CALL = "DataLoader(dataset, ...)"


def check_optional(name: str, fn: object) -> None:
    """Raises TypeError if an optional function is neither callable nor None."""
    if fn is not None and not callable(fn):
        raise TypeError(f"{name} of {_CALL} needs a function, not {described(fn)}.")
    if errors.is_async(fn):
        raise TypeError(
            f"{name} of {_CALL} needs a plain function, and {described(fn)} is async: it returns a "
            "coroutine, which is not awaited. Type lambda samples: asyncio.run(fn(samples))."
        )


@dataclass(frozen=True, eq=False, repr=False)
class Collation:
    """A function that makes one feed on the host from the indices, or the samples, of a batch.

    >>> pairs = [(1, "a"), (2, "b"), (3, "c")]
    >>> made = Collation(pairs, batched=True)([2, 0])
    >>> made.columns, made.made_of
    ([array([3, 1]), ['c', 'a']], 2)

    Attributes:
        dataset: The data set that indices belong to; for a stream, samples are given instead.
        batched: Whether it is called with a list (of indices or samples), or with a single one.
        collate_fn: The user's function of the list of samples (or of the single one), if any.
        feed_list: The fields of the feed, if they are declared.
        return_list: Whether tuples become lists, and named fields become a list.

    Raises:
        TypeError: `collate_fn` is no function, or `return_list` no bool.
    """

    dataset: Any
    batched: bool
    collate_fn: Callable[[Any], Any] | None = None
    feed_list: FeedList | None = None
    return_list: bool = True

    def __post_init__(self) -> None:
        """Checks the arguments."""
        check_optional("collate_fn", self.collate_fn)
        errors.check_flag(f"return_list of {_CALL}", self.return_list)

    def __call__(self, asked: Any) -> Columns[Any]:
        """Returns the feed, and the number of samples in it, which a `collate_fn` may hide."""
        return Columns.collated(self._fed(asked), len(asked) if self.batched else 1)

    def _fed(self, asked: Any) -> Any:
        if self.batched and not hasattr(asked, "__len__"):
            raise TypeError(
                f"batch_sampler of {_CALL} gave {asked!r}, and a batch is a list of indices: give "
                f"BatchSampler(sampler=sampler, batch_size=2)."
            )
        given = asked if self.batched else [asked]
        feed, samples = self._in_place(given)
        if samples is not None and self.collate_fn is None:
            self._check_samples(samples, given)
        if samples is None:
            pass
        elif self.batched:
            feed = self._collated(samples, asked)
        else:
            feed = self._of_arrays(self._made(samples[0], asked))
        if not self.return_list:
            return feed
        return list(feed.values()) if self.feed_list is not None else _lists(feed)

    def __repr__(self) -> str:
        """The name that errors use."""
        return f"fetch({type(self.dataset).__name__})"

    def _in_place(self, given: Sequence[Any]) -> tuple[Any, Sequence[Any] | None]:
        """Returns (feed, None), or (None, samples) if the feed is still to be made.

        A worker writes large arrays straight into the memory that they are sent in.
        """
        if is_stream(self.dataset):
            return None, given
        plain = {int}.issuperset(map(type, given))  # known at a glance, as most of them are
        indices = list(given if plain else map(_plain, given))
        whole = self.batched and self.collate_fn is None and self.feed_list is None
        if not whole or get_worker_info() is None or not indices or gathers(self.dataset):
            return None, fetch(self.dataset, indices)
        return map_and_stack(partial(fetch_one, self.dataset), indices, texts_or_column)

    def _collated(self, samples: Sequence[Any], asked: Any) -> Any:
        if self.collate_fn:
            return self._of_arrays(self._made(list(samples), asked))
        if self.feed_list is None:
            return collate(samples)
        return Feeds(self.feed_list).from_samples(samples, lists=True)

    def _of_arrays(self, feed: Any) -> Any:
        # copied: their maker may overwrite them while a device still reads them
        copies = map_tree(_numpy_copy, feed)
        return copies if self.feed_list is None else self._named(copies)

    def _named(self, feed: Any) -> Any:
        return Feeds(self.feed_list).from_arrays(feed)

    def _made(self, samples: Any, asked: Any) -> Any:
        if self.collate_fn is None:
            return samples
        made = self.collate_fn(samples)
        if made is None:
            of = (
                "a batch of samples"
                if is_stream(self.dataset)
                else f"the indices {described(asked)}"
            )
            raise FeedMismatch(
                f"{described(self.collate_fn)} returned None for {of}: return the feed, or leave "
                f"the samples out of the data set."
            )
        return made

    def _check_samples(self, samples: Sequence[Any], given: Sequence[Any]) -> None:
        """Raises FeedMismatch for a None: ops accept it as a sample, but no device can hold it."""
        if not isinstance(samples, Columns) and any(map(is_, samples, repeat(None))):
            index = next(at for at, sample in enumerate(samples) if sample is None)
            which = (
                f"sample {index} of a batch"
                if is_stream(self.dataset)
                else f"sample {given[index]}"
            )
            raise FeedMismatch(
                f"{which} of {described(self.dataset)} is None: does __getitem__ lack a return? To "
                f"leave samples out, give Subset(dataset, indices), or a collate_fn, which is "
                f"handed None as it is."
            )


def _plain(index: Any) -> Any:
    """An index as Python's own type, since data sets use it in lists, dicts and JSON."""
    return index.item() if isinstance(index, np.generic) else index


def _numpy_copy(leaf: Any) -> Any:
    """A NumPy copy of an array, of any library; any other leaf as it is."""
    return np.array(leaf) if hasattr(leaf, "__array__") else leaf


def _lists(tree: Any) -> Any:
    """The tree with lists in place of plain tuples, as Paddle and PyTorch return them."""
    parts = branches(tree)
    if parts is None:
        return tree
    rest = list(map(_lists, parts.values()))
    return rest if type(tree) is tuple else joined(tree, dict(zip(parts, rest, strict=True)))


def arrays_of(tree: Any, canonical: Callable[[Any], Any]) -> list[Any]:
    """The arrays of a tree in dtypes of the device; raises FeedMismatch if a value would change."""
    arrays = list(filter(placeable, leaves(tree)))
    dtypes = [canonical(array.dtype.newbyteorder("=")) for array in arrays]
    with suppress(FeedMismatch):
        return list(map(cast, arrays, dtypes, repeat("")))
    return list(map(cast, arrays, dtypes, _names(tree)))  # named only where one is refused


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


def refilled(trees: Sequence[Any], arrays: Sequence[Any], beside: int | None) -> Any:
    """The first tree with other arrays; other leaves become a list, one per batch.

    Args:
        trees: The feeds of the batches, of one structure.
        arrays: The arrays of the feed, in order.
        beside: How many batches are side by side in a feed; None where one is a feed.
    """
    if beside is None and len(leaves(trees[0])) == len(arrays):
        return rebuilt(trees[0], iter(arrays))
    return _refilled_in_part(trees, iter(arrays), beside)


def _refilled_in_part(trees: Sequence[Any], arrays: Iterator[Any], beside: int | None) -> Any:
    first = trees[0]
    if placeable(first):
        return next(arrays)
    if any(map(placeable, leaves(first))):
        inner: list[Any] = list(map(branches, trees))
        made = {
            key: _refilled_in_part(list(map(itemgetter(key), inner)), arrays, beside)
            for key in inner[0]
        }
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
