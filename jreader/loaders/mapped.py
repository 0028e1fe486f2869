"""Data sets to feeds: index batches, fetched and collated, then placed like any other batch.

There is no second engine: a data set is read as `fetched(collation, batches of indices)`, a plan
like every other, so that epochs, seeds and cursors reach its samplers. What differs is what a feed
may hold: strings, and whatever else no device holds, stay in its tree on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import is_
from typing import Any

import numpy as np

from jreader import errors
from jreader.batches import batch, collate
from jreader.datasets.batchsamplers import BatchSampler, again
from jreader.datasets.mapped import check_dataset, fetch, is_stream
from jreader.datasets.samplers import RandomSampler, SequenceSampler, check_flag
from jreader.devices import placeable
from jreader.feeds import FeedList, Feeds, cast
from jreader.loaders.groups import Grouping
from jreader.readers import Columns, Reader, branches, described, joined, leaves
from jreader.workers import fetched

_CALL = "DataLoader(dataset, ...)"


def indices(
    dataset: Any,
    batch_size: int | None,
    shuffle: bool,
    drop_last: bool,
    batch_sampler: Any,
    seed: Any,
) -> Reader[Any]:
    """A reader of what to collate: lists of indices or of samples; or single ones, unbatched.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: Arguments contradict one another.
    """
    check_dataset(_CALL, dataset)
    check_flag(f"shuffle of {_CALL}", shuffle)
    check_flag(f"drop_last of {_CALL}", drop_last)
    _check_together(dataset, batch_size, shuffle, drop_last, batch_sampler, seed)
    if batch_sampler is not None:
        return again(f"batch_sampler of {_CALL}", batch_sampler)
    if batch_size is not None:
        batch_size = errors.check_number(f"batch_size of {_CALL}", batch_size, 1)
    if is_stream(dataset):
        samples = again(f"dataset of {_CALL}", dataset)
        return samples if batch_size is None else batch(samples, batch_size, drop_last)
    if batch_size is None:
        return RandomSampler(dataset, seed=seed) if shuffle else SequenceSampler(dataset)
    return BatchSampler(dataset, None, shuffle, batch_size, drop_last, seed)


def _check_together(
    dataset: Any, batch_size: Any, shuffle: bool, drop_last: bool, batch_sampler: Any, seed: Any
) -> None:
    """Refuses arguments that contradict one another."""
    if is_stream(dataset) and (shuffle or batch_sampler is not None):
        given = "shuffle" if shuffle else "batch_sampler"
        raise ValueError(
            f"{given} of {_CALL} needs indices, and {described(dataset)} is read from its "
            f"beginning: leave it out, or shuffle in windows, as in "
            f"Pipeline(lambda: iter(dataset)).shuffle(1000).batch(32).load()."
        )
    if batch_sampler is not None and (batch_size != 1 or shuffle or drop_last or seed is not None):
        raise ValueError(
            f"{_CALL} takes batch_sampler, or batch_size, shuffle, drop_last and seed, not both: "
            f"give them to BatchSampler(dataset, ...)."
        )
    if batch_size is None and drop_last:
        raise ValueError(f"{_CALL} makes no batches with batch_size=None: leave drop_last out.")


def on_threads(
    collation: Collation,
    asked: Reader[Any],
    num_workers: int,
    timeout: float,
    worker_init_fn: Callable[[int], object] | None,
    persistent_workers: bool,
) -> Reader[Any]:
    """A reader of host feeds: what was asked for, collated in order.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: A number is negative.
    """
    check_flag(f"persistent_workers of {_CALL}", persistent_workers)
    workers = errors.check_number(f"num_workers of {_CALL}", num_workers)
    if not isinstance(timeout, (int, float)) or isinstance(timeout, bool) or not timeout >= 0:
        raise ValueError(f"timeout of {_CALL} needs seconds >= 0, 0 for any, not {timeout!r}.")
    check_optional("worker_init_fn", worker_init_fn)
    return fetched(collation, asked, workers, timeout, worker_init_fn)


def check_optional(name: str, fn: object) -> None:
    """Refuses what is neither a function nor None."""
    if fn is not None and not callable(fn):
        raise TypeError(f"{name} of {_CALL} needs a function, not {described(fn)}.")


@dataclass(frozen=True, eq=False, repr=False)
class Collation:
    """What makes one host feed of the indices, or samples, of a batch.

    >>> pairs = [(1, "a"), (2, "b"), (3, "c")]
    >>> Collation(pairs, batched=True)([2, 0])
    [array([3, 1]), ['c', 'a']]

    Attributes:
        dataset: Where samples come from.
        batched: Whether it is given several indices, or samples.
        collate_fn: The user's function of a list of samples, or of a sample, if any.
        feed_list: The fields.
        return_list: Whether tuples become lists, and named fields a list.
    """

    dataset: Any
    batched: bool
    collate_fn: Callable[[Any], Any] | None = None
    feed_list: FeedList | None = None
    return_list: bool = True

    def __post_init__(self) -> None:
        """Refuses what is no function, and no flag."""
        check_optional("collate_fn", self.collate_fn)
        check_flag(f"return_list of {_CALL}", self.return_list)

    def __call__(self, asked: Any) -> Any:
        """The feed."""
        given = asked if self.batched else [asked]
        samples = (
            given if is_stream(self.dataset) else fetch(self.dataset, list(map(_plain, given)))
        )
        if self.collate_fn is None:
            self._check_samples(samples, given)
        if self.batched:
            feed = self._collated(samples, asked)
        else:
            feed = self._of_arrays(self._made(samples[0], asked))
        if not self.return_list:
            return feed
        return list(feed.values()) if self.feed_list is not None else _lists(feed)

    def __repr__(self) -> str:
        """What an error calls it."""
        return f"fetch({type(self.dataset).__name__})"

    def _collated(self, samples: Sequence[Any], asked: Any) -> Any:
        if self.collate_fn:
            return self._of_arrays(self._made(list(samples), asked))
        if self.feed_list is None:
            return collate(samples)
        return Feeds(self.feed_list).from_samples(samples, lists=True)

    def _of_arrays(self, feed: Any) -> Any:
        # copied: whoever made them may fill them anew, while a device reads them
        return _copied(feed) if self.feed_list is None else self._named(_copied(feed))

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
            raise errors.FeedMismatch(
                f"{described(self.collate_fn)} returned None for {of}: return the feed, or leave "
                f"the samples out of the data set."
            )
        return made

    def _check_samples(self, samples: Sequence[Any], given: Sequence[Any]) -> None:
        """Refuses None: it is a sample to every op, but nothing that a device could hold."""
        if not isinstance(samples, Columns) and any(map(is_, samples, repeat(None))):
            place = next(at for at, sample in enumerate(samples) if sample is None)
            which = (
                f"sample {place} of a batch"
                if is_stream(self.dataset)
                else f"sample {given[place]}"
            )
            raise errors.FeedMismatch(
                f"{which} of {described(self.dataset)} is None: does __getitem__ lack a return? To "
                f"leave samples out, give Subset(dataset, indices), or a collate_fn, which is "
                f"handed None as it is."
            )


def _plain(index: Any) -> Any:
    """An index as Python has it: data sets look it up in lists, dicts and JSON."""
    return index.item() if isinstance(index, np.generic) else index


def _copied(tree: Any) -> Any:
    """The tree with arrays of its own for those of any library; the rest stays as it is."""
    parts = branches(tree)
    if parts is not None:
        return joined(tree, {key: _copied(part) for key, part in parts.items()})
    return np.array(tree) if hasattr(tree, "__array__") else tree


def _lists(tree: Any) -> Any:
    """The tree with lists for plain tuples, as Paddle and torch give them."""
    parts = branches(tree)
    if parts is None:
        return tree
    rest = {key: _lists(part) for key, part in parts.items()}
    return list(rest.values()) if type(tree) is tuple else joined(tree, rest)


@dataclass
class Collated(Grouping):
    """What turns a group of host feeds into one: side by side, padded, or as it is.

    Feeds that are not cut over several devices keep the size they have.
    """

    @property
    def masked(self) -> bool:
        """Whether every feed carries a mask: where devices need equal parts of it."""
        return not self.drop_last and self.placement.splits

    def feed(self, group: Sequence[Any]) -> Any | None:
        """The host feed of a group; None where it is short and short ones are dropped."""
        trees = [_cast(tree, self.placement.canonical) for tree in group]
        columns = [[leaf for leaf in leaves(tree) if placeable(leaf)] for tree in trees]
        if not self.placement.splits:
            return self._joined(trees, iter(self._laid_out(columns)))
        _check_rows(columns)
        arrays = super().feed(columns)
        if arrays is None:
            return None
        mask = arrays.pop() if self.masked else None
        return self._finished(self._joined(trees, iter(arrays)), mask)

    def _named(self, batch: Any) -> Any:
        return batch

    def _joined(self, trees: list[Any], arrays: Iterator[Any]) -> Any:
        """The tree with these arrays; what holds none is a list with one for each part."""
        first = trees[0]
        if placeable(first):
            return next(arrays)
        parts = branches(first)
        if parts and any(map(placeable, leaves(first))):
            inner = [branches(tree) or {} for tree in trees]
            return joined(
                first, {key: self._joined([part[key] for part in inner], arrays) for key in parts}
            )
        if self.placement.parts is None:
            return first
        return [*trees, *([] for _ in range(self.placement.parts - len(trees)))]


def _cast(tree: Any, canonical: Callable[[Any], Any], path: tuple[Any, ...] = ()) -> Any:
    """The tree with the dtypes that the device has; a value that would change is refused."""
    parts = branches(tree)
    if parts is not None:
        return joined(
            tree, {key: _cast(part, canonical, (*path, key)) for key, part in parts.items()}
        )
    if not placeable(tree):
        return tree
    name = f"field {path[0]!r}{''.join(f'[{key!r}]' for key in path[1:])}" if path else "the sample"
    return cast(tree, canonical(tree.dtype.newbyteorder("=")), name)


def _check_rows(columns: list[list[Any]]) -> None:
    """Refuses what devices cannot have parts of."""
    for arrays in columns:
        shapes = [list(array.shape) for array in arrays]
        if not arrays or len({tuple(shape[:1]) for shape in shapes}) > 1 or not shapes[0]:
            raise errors.FeedMismatch(
                f"a batch over several places needs arrays with one row for each sample, not the "
                f"shapes {shapes}: collate it so, or leave places out."
            )
