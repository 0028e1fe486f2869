"""`map_readers`, `filter` and `flat_map`: apply a function to samples; remove maps from plans."""

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
_NESTED = 64  # longer rows of maps are fused: Python's stack is limited


@op
class map_readers(Node[T]):
    """Apply `func` to each sample of a reader, or to samples of several readers together.

    The map ends with the shortest reader.

    >>> list(map_readers(lambda a, b: a + b, lambda: [1, 2, 3], lambda: [10, 20])())
    [11, 22]

    Cost: calls `func` once per sample, on the thread that iterates, and keeps nothing. Resuming
    costs as much as resuming the readers; `func` is not called for earlier samples.

    Args:
        func: Takes one sample from each reader, and returns one sample.
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
        """Start a pass; its position is that of the reader, or those of several."""
        if len(self.readers) == 1:
            row, reader = self._fused_maps()
            up = start(reader, at)
            return Pass(self._through_maps(row, up.items), up.position, up.close)
        ups = started(self.readers, at)
        rows = zip(*(up.items for up in ups), strict=False)
        return Pass(self._starmapped(rows), lambda: positions(ups), lambda: close(ups))

    @staticmethod
    def _through_maps(row: list[map_readers[Any]], samples: Iterator[Any]) -> Iterator[Any]:
        """Pass samples through one map, or through many in one loop, without nested calls."""
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
        """Return the maps to call in one loop, and the first one's reader; do not fuse few maps."""
        row, reader = [self], unwrapped(self.readers[0])
        while type(reader) is map_readers and len(reader.readers) == 1:
            row.append(reader)
            reader = unwrapped(reader.readers[0])
        return (row[::-1], reader) if len(row) > _NESTED else ([self], self.readers[0])

    def beside_key(self) -> Node[Any]:
        """Return the map for samples that have a key beside them."""
        return self.changed({"func": BesideKey(self.func)})

    def lazily(self) -> Node[Any] | None:
        """Return the map with lazily made fields, if `func` supports that, without threads."""
        lazily = getattr(self.func, "lazily", None) if len(self.readers) == 1 else None
        return lazily and self.changed({"func": lazily(0)})

    def length(self) -> int | None:
        """Return the length of the shortest reader."""
        return shortest(self.readers if len(self.readers) > 1 else (self._fused_maps()[1],))

    def lookup(self) -> Callable[[int], T] | None:
        """Apply `func` to the samples that `readers` find."""
        row, reader = self._fused_maps()
        if len(row) > 1:
            found = lookup_of(reader)
            return found and (lambda index: next(self._through_maps(row, iter([found(index)]))))
        finds = [find for find in map(lookup_of, self.readers) if find]
        if len(finds) < len(self.readers):
            return None
        return lambda index: next(self._starmapped(iter([tuple(find(index) for find in finds)])))


def _mapped(op: map_readers[T], samples: Iterator[Any]) -> Iterator[T]:
    """Yield the results of a map of one reader."""
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

    With `keep`, a folder stores the result of `fn` for each sample of `reader`, as one bit; samples
    are not copied. The first pass computes the bits; if it fails or is killed, the next one
    continues. Build the plan again once all bits are known, and it no longer calls `fn`. If
    `reader` is indexed, so is the filter: it has a length, can be shuffled as a whole, and resumes
    anywhere immediately.

    >>> from jreader import arrays
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     seen = [int(n) for n in filter(lambda n: n % 2, arrays(range(6)), folder)()]
    ...     seen, len(filter(lambda n: n % 2, arrays(range(6)), folder))
    ([1, 3, 5], 3)

    As with `cache(reader, path)`, the folder belongs to one plan and one function, and a shuffle
    before the filter keeps one order in all epochs: put shuffles after it. `bucket`, `pack`, `mix`
    and a `shuffle` of all samples first compute the missing bits. A run that began with missing
    bits resumes as a stream.

    Cost: calls `fn` once per sample of `reader`, and holds nothing in memory. The length is not
    known before a pass, and samples cannot be looked up by index. Resuming costs as much as
    resuming `reader`. With `keep`, the folder takes 1.13 bits per sample, and is mapped into
    memory; finding a sample takes about 0.2 us in batches, and storing its bit 1 us. A pass that
    resumes beyond the known bits stores none, and leaves them to the next one.

    Args:
        fn: Takes a sample, and returns whether to keep it.
        reader: Any reader. With `keep`, it must give the same samples in the same order in every
            pass: give its shuffles a seed.
        keep: A folder for the bits, created if it does not exist; None to store nothing.

    Raises:
        TypeError: `fn` cannot be called, or `keep` is neither a str nor an `os.PathLike`.
        ValueError: `keep` is a file, or a folder with unrelated files; `reader` draws new random
            numbers in each pass; or, when a pass begins, the bits belong to another plan or
            function: the message shows the line that differs.
        DamagedData: Files in the folder were modified (when a pass begins): delete the folder.
        ReaderError: `reader` has more or fewer samples than there are stored bits, or yields them
            in whatever order they arrive.
        OSError: The disk is full (while iterating), or the folder cannot be written.
    """

    fn: Callable[[T], object]
    reader: Reader[T]
    keep: str | os.PathLike[str] | None = argument(check_folder, default=None, cursor="never")
    pinned: bool = field(default=False, init=False)  # with `keep`, as below a cache
    moves: Literal["", "rows", "keys", "samples"] = field(default="", init=False)
    whole: bool = field(default=False, init=False)  # whether all bits were known then
    first: bool = field(default=False, init=False)  # whether to compute all bits first
    kept: Any = field(default=None, init=False)  # the bits
    from_reader = "some"

    def check_arguments(self) -> dict[str, Any]:
        """Check whether all bits are known; a pass checks that they belong to this plan."""
        if self.keep is None:
            return {}
        check_one_order("filter(fn, reader, keep)", self.reader, "keep none, as in filter(fn)")
        kept = KeptBits(filter(self.fn, self.reader), str(self.keep))
        whole = read_table(str(self.keep)).whole
        return {"pinned": True, "moves": "rows", "whole": whole, "kept": kept}

    @property
    def stores(self) -> bool:
        """True if the filter is indexed once all bits are known."""
        return self.keep is not None

    @property
    def lazy_length(self) -> bool:
        """True if its length is known only by reading files."""
        return (self.whole or self.first) and not self.kept.whole

    def cursor_extra(self) -> str:
        """Return whether bits are kept, which changes positions."""
        return "" if self.keep is None else "kept"

    def length(self) -> int | None:
        """Return the number of kept samples, if all bits are known and samples have indices."""
        return None if self.keep is None else self.kept.length(self)

    def plane(self) -> Plane | None:
        """Return the plane of `reader` with only the kept samples, if all bits are known."""
        return None if self.keep is None else self.kept.plane(self)

    def over_rows(self, rows: Reader[Any]) -> Node[Any] | None:
        """Select the same places of other rows, if all bits are known."""
        known = self.keep is not None and self.kept.is_complete(self)
        return self.changed({"reader": rows}) if known else None

    def start(self, at: Position) -> Pass[T]:
        """Start a pass; its position is that of `reader`, with bits also the samples read."""
        if self.keep is not None:
            kept: Pass[T] = self.kept.start(self, at)
            return kept
        up = start(self.reader, at)
        return Pass(self._kept(up.items, resumed=at is not None), up.position, up.close)

    def _kept(self, samples: Iterator[T], *, resumed: bool) -> Iterator[T]:
        fn, kept = self.fn, resumed
        sample: Any = _NONE
        with located_errors(self):
            for sample in samples:  # read after the loop
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
        """Warn that a pass kept no samples."""
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

    Cost: calls `fn` once per sample of `reader`, and has one iterable open at a time. Resuming
    calls `fn` for the current sample again and reads its iterable up to the position, or finds it
    directly in an indexed reader.

    Args:
        fn: Takes a sample, and returns an iterable of samples, or a reader. It must return equal
            samples for equal input, or a pass cannot resume inside them. If it returns a plan with
            a shuffle, each epoch reshuffles it.
        reader: Any reader.
    """

    fn: Callable[[Any], Iterable[S] | Node[S]]
    reader: Reader[Any]
    epoch: int = field(default=0, init=False)

    def start(self, at: Position) -> Pass[S]:
        """Start a pass; its position is (that before a sample, samples done of its iterable)."""
        before, done = checked_position(at, (None, 0))
        up = start(self.reader, before)
        before = up.position()

        def deal() -> Generator[S, None, None]:
            nonlocal before, done
            fresh = True  # only the first of several generators is checked
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

        dealt = deal()  # closes the iterables of `fn` on this thread
        return Pass(dealt, lambda: (before, done), lambda: close((dealt, up)))


def _nothing_to_close() -> None:
    """Close nothing, for a plain iterable."""


def _started_at(reader: Reader[S], epoch: int, done: int) -> Pass[S]:
    """Start a pass over a returned plan after `done` samples; if indexed, without reading them."""
    plan = at_epoch(reader, epoch) if epoch else reader
    return start(skip(plan, 0).changed({"n": done}) if done else plan)  # not noted as a part


def started(readers: tuple[Reader[Any], ...], at: Position) -> list[Pass[Any]]:
    """Start a pass over each reader."""
    inner = checked_position(at, (None,) * len(readers))
    return [start(reader, where) for reader, where in zip(readers, inner, strict=True)]


def positions(ups: list[Pass[Any]]) -> Position:
    """Return the positions of several passes."""
    return tuple(up.position() for up in ups)


def close(ups: Iterable[Generator[Any, None, None] | Pass[Any]]) -> None:
    """Close several passes."""
    for up in ups:
        up.close()


def shortest(readers: tuple[Reader[Any], ...]) -> int | None:
    """Return the smallest length, if all are known."""
    known = [length(reader) for reader in readers]
    return None if None in known else min((n for n in known if n is not None), default=0)


def without_maps(reader: Reader[Any]) -> Reader[Any]:
    """Remove the ops that make one sample of each, which do not change the order.

    >>> from jreader import arrays, map_readers, shuffle
    >>> without_maps(shuffle(map_readers(abs, arrays([3, 4])), seed=1))
    shuffle(arrays(int64[2]), seed=1)

    The keys of random maps are removed too, except below a random op, whose order depends on how
    many there are.
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
    """Return whether an op makes one sample of each; with `keys`, also the keys of random maps."""
    one_for_one = declares(type(node), "in_cursor") and node.in_cursor == "never"
    one_for_one = one_for_one and getattr(node, "on_error", "raise") == "raise"
    return (one_for_one or (keys and isinstance(node, keyed))) and len(node.input_readers) == 1
