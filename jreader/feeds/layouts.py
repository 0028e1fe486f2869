"""Batches to feeds: which part of a sample is which field."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import compress, repeat
from operator import attrgetter, is_, is_not, itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jreader.batches import stack
from jreader.batches.stacked import refuse_none
from jreader.errors import FeedMismatch, check_number
from jreader.feeds.casts import Array, DType, cast
from jreader.feeds.fields import Canonical, FeedField, data, field_name, known
from jreader.readers import Columns, described, first_column, leaves, map_tree, rebuilt, set_fields
from jreader.readers.trees import named_leaves, restores

FeedList: TypeAlias = (
    Sequence[data | str]
    | Mapping[str, int]
    | Mapping[str, str]
    | Mapping[data, int]
    | Mapping[data, str]
)

_kind_of_array = attrgetter("dtype", "shape")
_ARRAY = frozenset({np.ndarray})
_MOST = 256  # kinds of batches that are remembered at once

_LIST = (
    "{} is a list, {!r}: a batch reader yields lists of samples, and each sample is a tuple: "
    "[([1, 1, 1],), ([2, 2, 2],)] is valid, while [[1, 1, 1], [2, 2, 2]] is ambiguous: is it two "
    "samples of one field, or two of three fields? Make each sample a tuple."
)


class _Recipe(NamedTuple):
    """How a field is made of the arrays of a batch.

    Attributes:
        source: Which of them it is.
        dtype: That of the field; None if it is the array as it is.
        name: How errors call the field.
    """

    source: int
    dtype: DType | None
    name: str


@dataclass(frozen=True, eq=False)
class Feeds:
    """Turns batches into feeds: host arrays by name, in the order of a feed_list.

    >>> feeds = Feeds([data("image", [None, 4]), data("label", [None, 1], "int64")])
    >>> feed = feeds.from_samples([([[0, 1], [2, 3]], 7), ([[4, 5], [6, 7]], 8)])
    >>> feed["image"].tolist(), feed["label"].tolist()
    ([[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]], [[7], [8]])

    Names alone do, too, where dtypes and shapes are to be those of the samples:

    >>> Feeds(["image", "label"]).from_samples([(1.5, 7), (2.5, 8)])
    {'image': array([1.5, 2.5]), 'label': array([7, 8])}

    Tuples, named ones too, are matched by position; dicts and dataclasses by name. A mapping takes
    fields from where it says, as often as it likes, and leaves the others out:

    >>> Feeds({"x": 0, "y": 0}).from_samples([(1, "a"), (2, "b")])
    {'x': array([1, 2]), 'y': array([1, 2])}

    Without a feed_list, feeds have the tree of the samples:

    >>> Feeds().from_samples([{"image": 1.5}, {"image": 2.5}])
    {'image': array([1.5, 2.5])}

    A field that is None in all samples is None in the feed, where jax takes it for an empty tree.
    One that a feed_list names must have values.

    Args:
        feed_list: The fields, as `data` or names; or a mapping from them to positions or keys.
        canonical: Gives the dtype that stands for another on the device. It is called on whatever
            thread makes feeds, so what depends on the thread must be settled before.
        on_host: Returns which leaves of a feed stay on the host, where they may hold texts,
            and keep their dtypes.

    Attributes:
        names: The names of the fields in order; None where feeds have the tree of the samples.

    Raises:
        TypeError: The feed_list holds neither names nor `data`, or keys of the wrong kind.
        ValueError: The feed_list is empty, or has a name twice.
    """

    feed_list: FeedList | None = None
    canonical: Canonical = lambda dtype: dtype
    on_host: Callable[[Any], list[bool]] = lambda feed: [False] * len(leaves(feed))
    names: tuple[str, ...] | None = field(init=False, repr=False)
    _fields: tuple[FeedField, ...] = field(init=False, repr=False)
    _known: dict[Hashable, list[_Recipe]] = field(init=False, repr=False)  # []: the tree as it is
    _nothing: dict[str, list[bool]] = field(init=False, repr=False)  # which leaves are None

    def __post_init__(self) -> None:
        """Raises an error if the feed_list does not say which fields there are."""
        declared = [_declared(*pair) for pair in _pairs(self.feed_list)]
        names = tuple(each.name for each in declared)
        if self.feed_list is not None and not names:
            raise ValueError('feed_list needs a field, as in [data("image", [None, 784])], or None')
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"feed_list has the name {twice[0]!r} twice: each field needs its own")
        set_fields(self, names=names or None, _known={}, _nothing={})
        fields = map(_placed, declared, self._canonicals(dict.fromkeys(names)))
        set_fields(self, _fields=tuple(fields))

    def _canonicals(self, feed: Any) -> list[Canonical | None]:
        """What gives the dtype of each leaf of a feed on its device; None on the host."""
        homes = self.on_host(feed) if leaves(feed) else []
        return [None if home else self.canonical for home in homes]

    @property
    def places(self) -> dict[str, int | str]:
        """Where each field comes from: its position in a sample, or its key."""
        return self._keys(by_name=False)

    def from_samples(self, samples: Sequence[Any], *, lists: bool = False) -> Any:
        """The feed of a batch of samples.

        Args:
            samples: A list of samples, or `Columns`.
            lists: Whether a sample may be a list of its fields. It may where a reader yields single
                samples; in a batch that was made by hand, a list is ambiguous.

        Raises:
            FeedMismatch: The samples do not fit the feed_list, or each other.
        """
        if not isinstance(samples, Columns):
            if odd := self._no_batch(samples, lists=lists):
                raise FeedMismatch(odd)
            if self._fields:
                return self._fed(self._picked([*samples], "sample {} of the batch", lists=lists))
            tree = stack(samples)
            every = leaves(tree)
            arrays = list(compress(every, map(is_not, every, repeat(None))))
        else:
            arrays, tree = samples.arrays, samples.columns
        form = tuple(tree) if type(tree) is dict else type(tree)
        kind = (form, *map(_kind_of_array, arrays))
        ways = self._known.get(kind)
        if ways is None:
            stacked = samples if isinstance(samples, Columns) else Columns(tree)
            return self._from_columns(stacked, kind, lists=lists)
        if not ways:
            return tree
        made = []  # no comprehension: one is a call, for each batch
        for source, dtype, name in ways:
            array = arrays[source]
            made.append(array if dtype is None else cast(array, dtype, name))
        names = self.names
        return dict(zip(names, made, strict=True)) if names else rebuilt(tree, iter(made))

    def _no_batch(self, samples: Sequence[Any], *, lists: bool) -> str:
        """Why a value is not a batch of samples; "" if it may be one."""
        one = type(samples) is not list and not lists and _is_one(samples)
        if one or not isinstance(samples, Sequence):
            return (
                f"a batch of samples is a list of them, not {described(samples)}: type .batch(n) "
                f"before .load(), or batch(reader, n) around a reader of samples; for batches that "
                f"are arrays already, use set_batch_generator."
            )
        if not samples:
            return "an empty batch cannot be fed: give at least one sample" if self._fields else ""
        listed = not (lists or self._fields) and isinstance(samples[0], list)
        return _LIST.format("sample 0 of the batch", samples[0]) if listed else ""

    def _from_columns(self, samples: Columns[Any], kind: Hashable, *, lists: bool) -> Any:
        """The feed of stacked samples; remembers how it is made, if dtypes are all that changes."""
        tree = samples.columns
        if self._fields:
            picked = self._picked([tree], "each sample of the batch", lists=lists)
            names, sources = [each.name for each in self._fields], [each for (each,) in picked]
            if not all(isinstance(array, np.ndarray) for array in sources):
                return self._fed(self._picked(list(samples), "each sample", lists=lists))
            feed = self._fed(sources)
        else:
            names, sources = _paths_to_leaves(tree), samples.arrays
            feed = self._from_tree(tree, names)
        if len(samples.arrays) == len(leaves(tree)):  # else the kind says nothing of those
            ways = _ways(samples.arrays, sources, leaves(feed), names)
            if ways is not None and (self._fields or restores(tree)):
                self._remember(kind, ways)
        return feed

    def _remember(self, kind: Hashable, ways: list[_Recipe]) -> None:
        if len(self._known) >= _MOST:
            self._known.clear()
        same = not self.names and all(way.dtype is None for way in ways)
        self._known[kind] = [] if same else ways

    def from_arrays(self, batch: Any) -> Any:
        """The feed of a batch that is arrays already: by position, by name, or a single one.

        An array that has its dtype and shape already is handed on, not copied.

        Raises:
            FeedMismatch: The arrays do not fit the feed_list, or differ in length.
        """
        arrays = _flat_arrays(batch)
        if not arrays:
            return self._from_tree(batch.columns if isinstance(batch, Columns) else batch)
        form = tuple(batch) if type(batch) is dict else type(batch)
        kind = (form, *map(_kind_of_array, arrays))
        ways = self._known.get(kind)
        if ways is None:
            return self._from_first_arrays(batch, arrays, kind)
        if not ways:
            return batch
        made = [
            arrays[source] if dtype is None else cast(arrays[source], dtype, name)
            for source, dtype, name in ways
        ]
        names = self.names
        return dict(zip(names, made, strict=True)) if names else rebuilt(batch, iter(made))

    def _from_first_arrays(self, batch: Any, arrays: list[Array], kind: Hashable) -> Any:
        """The same of the first batch of a kind; remembers how it is made, likewise."""
        names = self.names or _paths_to_leaves(batch)
        feed, sources = self._from_tree(batch, names), arrays
        if self._fields:
            sources = [each for (each,) in self._picked([batch], "the batch", lists=True)]
        ways = _ways(arrays, sources, leaves(feed), names)
        if ways is not None:
            self._remember(kind, ways)
        return feed

    def _from_tree(self, batch: Any, paths: Sequence[str] = ()) -> Any:
        if self._fields:
            return self._fed(values for (values,) in self._picked([batch], "the batch", lists=True))
        self.check_none(batch)
        every = leaves(batch)
        there = [leaf is not None for leaf in every]
        homes = zip(paths or _paths_to_leaves(batch), self._canonicals(batch), strict=True)
        fields = [FeedField(name, canonical=home) for name, home in compress(homes, there)]
        left = iter(_made(fields, compress(every, there)))
        return rebuilt(batch, (next(left) if full else None for full in there))

    def check_none(self, feed: Any) -> None:
        """Checks that the fields that are None are those that were None in the first feed.

        Raises:
            FeedMismatch: One was None and is not, or is None and was not.
        """
        nothing = list(map(is_, leaves(feed), repeat(None)))
        before = self._nothing.setdefault("first", nothing)
        if before == nothing or len(before) != len(nothing):
            return
        place = next(at for at, each in enumerate(nothing) if each != before[at])
        change = "is None, and had values" if nothing[place] else "has values, and was None"
        name = field_name(_paths_to_leaves(feed)[place])
        raise FeedMismatch(
            f"{name} {change} in the batches before: a field is None "
            "in all samples or in none, since feeds have one tree. Give it a value in .map(fn), or "
            "leave such samples out with .filter(fn)."
        )

    def traced(self, batch: Any) -> Any:
        """The feed of a batch of jax arrays, traced or not, whose values are not looked at.

        Raises:
            FeedMismatch: The shapes of the arrays do not fit the feed_list.
        """
        batch = batch.columns if isinstance(batch, Columns) else batch
        if not self._fields:
            return map_tree(lambda array: array.astype(self.canonical(array.dtype)), batch)
        picked = self._picked([batch], "the batch", lists=True)
        return {
            each.name: each.traced(array)
            for each, (array,) in zip(self._fields, picked, strict=True)
        }

    def specs(self, batch_size: int) -> dict[str, tuple[tuple[int, ...], DType]] | None:
        """Shape and dtype of each field at a batch size; None where only a batch shows them.

        >>> Feeds([data("image", [None, 784])]).specs(32)
        {'image': ((32, 784), dtype('float32'))}
        """
        specs = {}
        for each in self._fields:
            inner = None if each.shape is None else known(each.shape[1:])
            if inner is None or each.dtype is None:
                return None
            specs[each.name] = (batch_size, *inner), each.dtype
        return specs or None

    def _fed(self, picked: Iterable[Any]) -> dict[str, Array]:
        made = _made(self._fields, picked)
        return {each.name: array for each, array in zip(self._fields, made, strict=True)}

    def _picked(self, samples: list[Any], what: str, *, lists: bool) -> list[list[Any]]:
        """For each field, what the samples hold there; `what` is how an error calls a sample."""
        kind = _kind_of_all(samples)
        if kind == "list" and not lists:
            raise FeedMismatch(_LIST.format(what.format(0), samples[0]))
        rows, by_name = _samples_as_fields(samples, kind), kind in {"dict", "dataclass"}
        if odd := self._first_wrong(rows, by_name=by_name):
            index, wrong = odd
            if kind == "bare" and not lists:
                wrong += f" If {described(samples)} is one sample, type .batch(n) before .load()."
            raise FeedMismatch(f"{what.format(index)} {wrong}")
        return [list(map(itemgetter(key), rows)) for key in self._keys(by_name=by_name).values()]

    def _first_wrong(self, rows: list[Any], *, by_name: bool) -> tuple[int, str] | None:
        """The first sample that does not have the fields, and what is wrong with it.

        Lengths and keys are gathered in sets, in C: a Python call for each sample would cost more
        than stacking them.
        """
        form: Callable[[Any], Any] = tuple if by_name else len
        for seen in set(map(form, rows)):
            if wrong := self._wrong(seen if by_name else range(seen), by_name=by_name):
                return next(at for at, row in enumerate(rows) if form(row) == seen), wrong
        return None

    def _keys(self, *, by_name: bool) -> dict[str, int | str]:
        """Where samples have each field: its position, or its key."""
        return {
            each.name: each.key if each.key is not None else each.name if by_name else place
            for place, each in enumerate(self._fields)
        }

    def _wrong(self, present: Sequence[Any], *, by_name: bool) -> str | None:
        """What is wrong with samples that have these keys or positions; None if nothing is."""
        keys = self._keys(by_name=by_name)
        has = f"has the fields {list(present)}" if by_name else f"has {len(present)} field(s)"
        for name, key in keys.items():
            if key not in present:
                cure = _cure(name, key, list(present) if by_name else [])
                return f"{has}, and {key!r}, for {name!r}, is missing: {cure}."
        surplus = [key for key in present if key not in keys.values()]
        if not surplus or isinstance(self.feed_list, Mapping):
            return None
        return (
            f"{has}, of which {surplus} are not in the feed_list: name them there too, or leave "
            f"them out with a mapping, as in feed_list={keys}."
        )


class FeedsThere(Feeds):
    """The feeds that workers make, who know of no device, and get the batches in no order.

    Whoever puts these in order asks `check_none` there.

    >>> FeedsThere(["x"]).from_samples([(1.5,), (2.5,)])
    {'x': array([1.5, 2.5])}
    """

    def check_none(self, feed: Any) -> None:
        """Does nothing: there is no batch before."""


def in_one_home(on_host: bool, feed: Any) -> list[bool]:
    """That each leaf of a feed stays on the host, or none does."""
    return [on_host] * len(leaves(feed))


def _cure(name: str, key: int | str, names: list[Any]) -> str:
    """What to do where a field is missing in samples that have fields of these names."""
    if isinstance(key, int) and key < len(names):
        return f"name it, as in feed_list={ {name: names[key]} }, since the samples are dicts"
    return "yield it too, or change the feed_list"


def _made(fields: Sequence[FeedField], values: Iterable[Any]) -> list[Array]:
    """The arrays of fields, as long as one another."""
    made = [each.feed(value) for each, value in zip(fields, values, strict=True)]
    if len(set(map(len, made))) != 1:
        lengths = {each.name: len(array) for each, array in zip(fields, made, strict=True)}
        raise FeedMismatch(
            f"the arrays of a batch need one length, not {lengths}: give as many rows in each as "
            f"the batch has samples, and at least one array"
        )
    return made


def _samples_as_fields(samples: list[Any], kind: str) -> list[Any]:
    """Samples of a kind as tuples, lists or dicts of their fields."""
    if kind == "bare":
        return [(sample,) for sample in samples]
    if kind == "dataclass":
        return [{each.name: getattr(row, each.name) for each in fields(row)} for row in samples]
    return samples


def _ways(
    arrays: Sequence[Array], sources: Iterable[Any], made: Iterable[Array], names: Iterable[str]
) -> list[_Recipe] | None:
    """How fields were made of arrays; None if there is more to one of them than its dtype."""
    numbers, ways = {id(array): index for index, array in enumerate(arrays)}, list[_Recipe]()
    for source, array, name in zip(sources, made, names, strict=True):
        known = id(source) in numbers and type(source) is np.ndarray
        if not known or array.shape != source.shape:
            return None
        if array is not source and array.dtype == source.dtype:
            return None  # a copy, for a reason that others of the kind may not have
        dtype = None if array is source else array.dtype
        ways.append(_Recipe(numbers[id(source)], dtype, field_name(name)))
    return ways


def _pairs(feed_list: Any) -> list[tuple[Any, int | str | None]]:
    """What declares each field, and where it comes from; None for where it stands."""
    if feed_list is None:
        return []
    if isinstance(feed_list, Mapping):
        if len({isinstance(key, str) for key in feed_list.values()}) > 1:
            raise TypeError(
                "feed_list needs places only (for samples that are tuples) or keys only (for "
                "dicts), not both"
            )
        return [(each, _key(given)) for each, given in feed_list.items()]
    if isinstance(feed_list, Sequence) and not isinstance(feed_list, str):
        return [(each, None) for each in feed_list]
    meant = f": type .batch({feed_list}) for batches of so many" if type(feed_list) is int else ""
    raise TypeError(
        f"feed_list needs a list of names, [data(...), ...] or a mapping, not {feed_list!r}{meant}"
    )


def _declared(each: Any, key: int | str | None) -> FeedField:
    if isinstance(each, data):
        return FeedField(each.name, key, each.shape, each.dtype)
    if isinstance(each, str) and each:
        return FeedField(each, key)
    raise TypeError(
        f'feed_list needs names of fields, as in ["image", "label"], each with its place, '
        f'as in {{"image": 0}}, or declared, as in [data("image", [None, 784])], not '
        f"{each!r}"
    )


def _placed(declared: FeedField, canonical: Canonical | None) -> FeedField:
    dtype = declared.dtype and canonical(declared.dtype) if canonical else declared.dtype
    return replace(declared, dtype=dtype, canonical=canonical)


def _key(given: object) -> int | str:
    return given if isinstance(given, str) else check_number('feed_list={"image": place}', given)


def _kind_of_all(samples: list[Any]) -> str:
    kinds = {_kind(each) for each in set(map(type, samples))}
    if len(kinds) == 1:
        return kinds.pop()
    refuse_none(samples)
    first = samples[0]
    index = next(
        at for at, sample in enumerate(samples) if _kind(type(sample)) != _kind(type(first))
    )
    raise FeedMismatch(
        f"samples of one batch need one structure, but sample 0 is {described(first)} and sample "
        f"{index} is {described(samples[index])}: map them to the same fields first"
    )


def _is_one(samples: Sequence[Any]) -> bool:
    """Whether what should be a batch is one sample: a text, or a tuple whose parts are no samples.

    A tuple of tuples, dicts or dataclasses may be a batch: `itertools.batched` makes such ones.
    """
    if not isinstance(samples, tuple):
        return isinstance(samples, (str, bytes, bytearray))
    kinds = {_kind(type(each)) for each in samples}
    return hasattr(samples, "_fields") or len(kinds) > 1 or not kinds.isdisjoint({"bare", "list"})


def _kind(each: type) -> str:
    for tree in (tuple, list, dict):
        if issubclass(each, tree):
            return tree.__name__
    if is_dataclass(each):
        return "dataclass"
    return "dict" if issubclass(each, Mapping) else "bare"


def _flat_arrays(batch: Any) -> list[Array]:
    """The arrays of a tuple or a dict of nothing else; none of any other batch."""
    if type(batch) not in {tuple, dict}:
        return []
    arrays = list(batch.values() if type(batch) is dict else batch)
    return arrays if _ARRAY.issuperset(map(type, arrays)) else []


def _paths_to_leaves(tree: Any) -> list[str]:
    """How errors call the leaves: by their paths."""
    return [path for path, _ in named_leaves(tree)]


def padded(feed: Any, rows: int, places: Array | None = None) -> tuple[Any, Array]:
    """A feed filled up with zeros to `rows` rows, and a mask that is true for its own rows.

    Its own rows are the first ones, or stand at `places`.

    >>> feed, mask = padded({"label": np.array([5, 4])}, 3)
    >>> feed, mask.tolist()
    ({'label': array([5, 4, 0])}, [True, True, False])

    Raises:
        FeedMismatch: The feed has more rows than that.
    """
    have = len(first_column(feed))
    if have > rows:
        raise FeedMismatch(f"a batch of {have} samples cannot be padded to {rows}: batch fewer")
    own: Any = slice(have) if places is None else places
    mask = np.zeros(rows, bool)
    mask[own] = True

    def longer(array: Array) -> Array:
        whole = np.zeros((rows, *array.shape[1:]), array.dtype)
        whole[own] = array
        return whole

    return map_tree(longer, feed) if have < rows else feed, mask


def with_mask(feed: Any, mask: Any) -> Any:
    """A feed with its mask added: by name, or as the last field.

    >>> with_mask({"label": 5}, True), with_mask((5, 4), True), with_mask(5, True)
    ({'label': 5, 'mask': True}, (5, 4, True), (5, True))

    Raises:
        FeedMismatch: A field has that name already.
    """
    if isinstance(feed, dict):
        if "mask" in feed:
            raise FeedMismatch(
                "the samples have a field 'mask', and the mask that last='pad' (or "
                "drop_last=False) adds has that name: rename the field"
            )
        return {**feed, "mask": mask}
    if isinstance(feed, list):
        return [*feed, mask]
    return (*(feed if isinstance(feed, tuple) else (feed,)), mask)
