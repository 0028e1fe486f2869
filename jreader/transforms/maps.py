"""`map_readers`, `filter` and `flat_map`: ops with a function of samples; plans without maps."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import field
from itertools import islice, repeat
from typing import Any, Literal, TypeVar

from jreader import errors
from jreader.profiling import annotated, profiler
from jreader.readers import (
    Node,
    Pass,
    Plane,
    Position,
    Reader,
    argument,
    checked_position,
    described,
    explain,
    length,
    lookup_of,
    op,
    set_fields,
    start,
)
from jreader.readers.epochs import at_epoch, iterable_in_epoch
from jreader.readers.keyed import BesideKey
from jreader.readers.located import located_errors
from jreader.readers.nodes import declares, field_names, trampoline, unwrapped
from jreader.readers.rewriting import parts_changed
from jreader.sources.stored_columns import read_table
from jreader.transforms.disk_caches import check_folder, check_one_order
from jreader.transforms.kept_filters import KeptBits
from jreader.transforms.sample_rng import keyed
from jreader.transforms.slices import skip

T = TypeVar("T")
S = TypeVar("S")

_NONE: Any = object()
_NESTED = 64  # so many maps in a row may call one another; Python's stack has an end


@op
class map_readers(Node[T]):
    """Apply `func` to each sample of a reader, or to the samples of several readers side by side.

    The map ends with the shortest reader.

    >>> list(map_readers(lambda a, b: a + b, lambda: [1, 2, 3], lambda: [10, 20])())
    [11, 22]

    Cost: it calls `func` once for each sample, on the thread that iterates, and keeps nothing.
    Resuming costs what it costs in the readers; `func` is not called for earlier samples.

    Args:
        func: Takes one sample of each reader, and returns one sample.
        *readers: At least one reader.

    Raises:
        TypeError: `func` cannot be called, or there is no reader.
    """

    func: Callable[..., T]
    readers: tuple[Reader[Any], ...]
    in_cursor = "never"
    moves = "samples"

    def __init__(self, func: Callable[..., T], *readers: Reader[Any]) -> None:
        errors.check_function("map_readers(func, *readers)", func, takes=len(readers))
        if not readers:
            raise TypeError("map_readers(func, *readers) needs at least one reader after func.")
        for reader in readers:
            errors.check_reader("map_readers(func, *readers)", reader)
        set_fields(self, func=func, readers=readers)

    def start(self, at: Position) -> Pass[T]:
        """Begins a pass; its position is that of the reader, or those of several."""
        if len(self.readers) == 1:
            row, reader = self._fused_maps()
            up = start(reader, at)
            return Pass(self._through_maps(row, up.items), up.position, up.close)
        ups = started(self.readers, at)
        rows = zip(*(up.items for up in ups), strict=False)
        return Pass(self._starmapped(rows), lambda: positions(ups), lambda: close(ups))

    @staticmethod
    def _through_maps(row: list[map_readers[Any]], samples: Iterator[Any]) -> Iterator[Any]:
        """The samples through one map, or through many, none of which calls another."""
        if len(row) == 1:
            return _mapped(row[0], samples)
        given: list[list[Any]] = [[] for _ in row]
        results = [
            _mapped(op, map(list.pop, repeat(box))) for op, box in zip(row, given, strict=True)
        ]

        def through_all(result: Any) -> Any:
            for box, made in zip(given, results, strict=True):
                box.append(result)
                result = next(made)
            return result

        return (through_all(sample) for sample in samples)

    def _starmapped(self, rows: Iterator[tuple[Any, ...]]) -> Iterator[T]:
        func, label = self.func, f"map {described(self.func)}"
        with located_errors(self):
            for row in rows:
                try:
                    result = annotated(label, func, *row) if profiler.active else func(*row)
                except Exception as error:
                    explain(error, self, func, row)
                    raise
                yield result

    def _fused_maps(self) -> tuple[list[map_readers[Any]], Reader[Any]]:
        """The maps that one loop calls, and what the first one reads: many, or this one alone."""
        row, reader = [self], unwrapped(self.readers[0])
        while type(reader) is map_readers and len(reader.readers) == 1:
            row.append(reader)
            reader = unwrapped(reader.readers[0])
        return (row[::-1], reader) if len(row) > _NESTED else ([self], self.readers[0])

    def beside_key(self) -> Node[Any]:
        """The map of samples that have a key beside them."""
        return self.changed({"func": BesideKey(self.func)})

    def lazily(self) -> Node[Any] | None:
        """The map of a function that makes fields later, where `func` has one for no threads."""
        lazily = getattr(self.func, "lazily", None) if len(self.readers) == 1 else None
        return lazily and self.changed({"func": lazily(0)})

    def length(self) -> int | None:
        """The length of the shortest reader."""
        return shortest(self.readers if len(self.readers) > 1 else (self._fused_maps()[1],))

    def lookup(self) -> Callable[[int], T] | None:
        """Applies `func` to the samples that `readers` find."""
        row, reader = self._fused_maps()
        if len(row) > 1:
            found = lookup_of(reader)
            return found and (lambda index: next(self._through_maps(row, iter([found(index)]))))
        finds = [find for find in map(lookup_of, self.readers) if find]
        if len(finds) < len(self.readers):
            return None
        return lambda index: next(self._starmapped(iter([tuple(find(index) for find in finds)])))


def _mapped(op: map_readers[T], samples: Iterator[Any]) -> Iterator[T]:
    """The results of a map of one reader."""
    func, label = op.func, f"map {described(op.func)}"
    with located_errors(op):
        for sample in samples:
            try:
                result = annotated(label, func, sample) if profiler.active else func(sample)
            except Exception as error:
                explain(error, op, func, sample)
                raise
            yield result


@op
class filter(Node[T]):  # noqa: A001  # the field's word; used as jreader.filter
    """Keep the samples for which `fn` is true.

    >>> list(filter(lambda n: n % 2, lambda: range(6))())
    [1, 3, 5]

    With `keep`, a folder keeps the answer of `fn` for each sample of `reader`, in one bit; samples
    are not copied. The first pass learns the bits; if an error or a kill ends it, the next one
    continues. Build the plan again once all bits are known, and it no longer calls `fn`; if
    `reader` is indexed, so is the filter: it has a length, is shuffled as a whole, and resumes
    anywhere at once.

    >>> from jreader import arrays
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     seen = [int(n) for n in filter(lambda n: n % 2, arrays(range(6)), folder)()]
    ...     seen, len(filter(lambda n: n % 2, arrays(range(6)), folder))
    ([1, 3, 5], 3)

    As with `cache(reader, path)`, the folder belongs to one plan and one function, and epochs do
    not reach the ops below: shuffle behind it. `bucket`, `pack`, `mix` and a `shuffle` of all
    samples first learn what is missing. A run that began while bits were being learnt resumes as a
    stream.

    Cost: it calls `fn` once for each sample of `reader`, and keeps nothing. The length is not known
    before a pass, and samples are not found by index. Resuming costs what it costs in `reader`.
    With `keep`, the folder takes 1.13 bits for each sample, and is mapped into memory; finding a
    sample takes about 0.2 us in batches, and learning its bit 1 us. A pass that resumes beyond the
    known bits learns nothing, and leaves them to the next one.

    Args:
        fn: Takes a sample, and returns whether to keep it.
        reader: Any reader. With `keep`, it must give the same samples in the same order in every
            pass: give its shuffles a seed.
        keep: A folder for the bits, created if it does not exist; None to keep none.

    Raises:
        TypeError: `fn` cannot be called, or `keep` is neither a str nor a path.
        ValueError: `keep` is a file, or a folder of other files; `reader` draws new numbers in each
            pass; or, when a pass begins, the bits belong to another plan or function: the message
            names the line that differs.
        DamagedData: Files of the folder were changed (when a pass begins): delete the folder.
        ReaderError: `reader` has another number of samples than there are bits, or gives them in
            order of arrival.
        OSError: The disk is full (while iterating), or the folder cannot be written.
    """

    fn: Callable[[T], object]
    reader: Reader[T]
    keep: str | os.PathLike[str] | None = argument(check_folder, default=None, cursor="never")
    pinned: bool = field(default=False, init=False)  # with `keep`, as below a cache
    moves: Literal["", "rows", "keys", "samples"] = field(default="", init=False)
    whole: bool = field(default=False, init=False)  # whether all bits were known when it was made
    first: bool = field(default=False, init=False)  # whether to learn all before the first sample
    kept: Any = field(default=None, init=False)  # the bits
    from_reader = "some"

    def check_arguments(self) -> dict[str, Any]:
        """Checks whether all bits are known; a pass checks that they belong to this plan."""
        if self.keep is None:
            return {}
        check_one_order("filter(fn, reader, keep)", self.reader, "keep none, as in filter(fn)")
        kept = KeptBits(filter(self.fn, self.reader), str(self.keep))
        whole = read_table(str(self.keep)).whole
        return {"pinned": True, "moves": "rows", "whole": whole, "kept": kept}

    @property
    def stores(self) -> bool:
        """Whether the filter is indexed once all bits are known."""
        return self.keep is not None

    @property
    def lazy_length(self) -> bool:
        """Whether its length is known only by reading files."""
        return (self.whole or self.first) and not self.kept.whole

    def cursor_extra(self) -> str:
        """Whether bits are kept, which changes the positions."""
        return "" if self.keep is None else "kept"

    def length(self) -> int | None:
        """How many samples are left, if all bits are known and samples are found by index."""
        return None if self.keep is None else self.kept.length(self)

    def plane(self) -> Plane | None:
        """The plane of `reader` with the samples that are left, if all bits are known."""
        return None if self.keep is None else self.kept.plane(self)

    def over_rows(self, rows: Reader[Any]) -> Node[Any] | None:
        """The same places of other rows, where all bits are known."""
        known = self.keep is not None and self.kept.is_complete(self)
        return self.changed({"reader": rows}) if known else None

    def start(self, at: Position) -> Pass[T]:
        """Begins a pass; its position is that of `reader`; with bits, also how many were read."""
        if self.keep is not None:
            kept: Pass[T] = self.kept.start(self, at)
            return kept
        up = start(self.reader, at)
        return Pass(self._kept(up.items, resumed=at is not None), up.position, up.close)

    def _kept(self, samples: Iterator[T], *, resumed: bool) -> Iterator[T]:
        fn, kept = self.fn, resumed
        sample: Any = _NONE
        with located_errors(self):
            for sample in samples:  # looked at when there is no other
                try:
                    if not fn(sample):
                        continue
                except Exception as error:
                    explain(error, self, fn, sample)
                    raise
                kept = True
                yield sample
        if not kept and sample is not _NONE:
            self.warn_if_empty()

    def warn_if_empty(self) -> None:
        """Warns that a pass left nothing."""
        errors.warn(
            f"{self!r} left none of the samples of this pass: its function has to be true for "
            "those to keep.",
            self.made_at,
        )


@op
class flat_map(Node[S]):
    """Replace each sample by the samples of the iterable that `fn` returns for it.

    >>> list(flat_map(str.split, lambda: ["one two", "", "three"])())
    ['one', 'two', 'three']

    Cost: it calls `fn` once for each sample of `reader`, and has one iterable open at a time.
    Resuming calls `fn` for the current sample again and reads its iterable up to the position, or
    goes there at once in an indexed reader.

    Args:
        fn: Takes a sample, and returns an iterable of samples, or a reader. For equal samples it
            has to return equal ones, or a pass cannot be resumed inside them. If it returns a plan
            with a shuffle, each epoch reshuffles it.
        reader: Any reader.
    """

    fn: Callable[[Any], Iterable[S] | Node[S]]
    reader: Reader[Any]
    epoch: int = field(default=0, init=False)

    def start(self, at: Position) -> Pass[S]:
        """Begins a pass; its position is (that before a sample, samples of its iterable)."""
        before, done = checked_position(at, (None, 0))
        up = start(self.reader, before)
        before = up.position()

        def deal() -> Generator[S, None, None]:
            nonlocal before, done
            fresh = True  # of several generators, the first one is looked at
            with located_errors(self):
                for sample in up.items:
                    try:
                        made = self.fn(sample)
                        if isinstance(made, Node):
                            items, _, end = _started_at(made, self.epoch, done)
                        else:
                            if self.epoch and fresh:
                                made, fresh = iterable_in_epoch(made, self.epoch), False
                            items, end = islice(made, done, None), _nothing_to_close
                        try:
                            for item in items:
                                done += 1
                                yield item
                        finally:
                            end()
                    except Exception as error:
                        explain(error, self, self.fn, sample)
                        raise
                    before, done = up.position(), 0

        dealt = deal()  # closed here, where the pass was begun, and so what `fn` gave
        return Pass(dealt, lambda: (before, done), lambda: close((dealt, up)))


def _nothing_to_close() -> None:
    """What ends a plain iterable."""


def _started_at(reader: Reader[S], epoch: int, done: int) -> Pass[S]:
    """A pass over what a function returned, after its first samples; indexed, it reads none."""
    plan = at_epoch(reader, epoch) if epoch else reader
    return start(skip(plan, 0).changed({"n": done}) if done else plan)  # no part of a split


def started(readers: tuple[Reader[Any], ...], at: Position) -> list[Pass[Any]]:
    """A pass over each of several readers."""
    inner = checked_position(at, (None,) * len(readers))
    return [start(reader, where) for reader, where in zip(readers, inner, strict=True)]


def positions(ups: list[Pass[Any]]) -> Position:
    """The positions of several passes."""
    return tuple(up.position() for up in ups)


def close(ups: Iterable[Generator[Any, None, None] | Pass[Any]]) -> None:
    """Closes several passes."""
    for up in ups:
        up.close()


def shortest(readers: tuple[Reader[Any], ...]) -> int | None:
    """The smallest length, if all are known."""
    known = [length(reader) for reader in readers]
    return None if None in known else min((n for n in known if n is not None), default=0)


def without_maps(reader: Reader[Any]) -> Reader[Any]:
    """The plan without the ops that make one sample of each, which do not change its order.

    >>> from jreader import arrays, map_readers, shuffle
    >>> without_maps(shuffle(map_readers(abs, arrays([3, 4])), seed=1))
    shuffle(arrays(int64[2]), seed=1)

    The keys of random maps are left out, too; but they stay below a random op, whose order depends
    on how many there are.
    """
    found: Reader[Any] = trampoline(_without_maps, (reader, True))
    return found


def _without_maps(asked: tuple[Any, bool]) -> Generator[Any, Any, Any]:
    reader, keys = asked
    while isinstance(reader, Node) and _is_map(reader, keys):
        (reader,) = reader.input_readers
    if not isinstance(reader, Node) or reader.pinned:
        return reader
    keys = keys and "seed" not in field_names(reader)
    return (yield from parts_changed(reader, {}, lambda up: (up, keys)))


def _is_map(node: Node[Any], keys: bool) -> bool:
    """Whether an op makes one sample of each; with `keys`, also if it is a key of a random map."""
    one_for_one = declares(node, "in_cursor") and node.in_cursor == "never"
    one_for_one = one_for_one and getattr(node, "on_error", "raise") == "raise"
    return (one_for_one or (keys and isinstance(node, keyed))) and len(node.input_readers) == 1
