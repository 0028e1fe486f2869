"""`group_by`: consecutive samples of one key as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jreader import errors
from jreader.batches.batching import gives_batches
from jreader.batches.stacked import stack
from jreader.readers import Node, Pass, Position, Reader, described, explained, op, start


@op
class group_by(Node[Any]):
    """Consecutive samples for which `fn` is equal as one sample, stacked along a new first axis.

    >>> events = [("ann", 1), ("ann", 2), ("bob", 7), ("ann", 3)]
    >>> [counts.tolist() for _, counts in group_by(lambda event: event[0], lambda: events)()]
    [[1, 2], [7], [3]]

    As with `itertools.groupby`, a key that comes again later begins another group: sort the data by
    it, or write it in that order. Groups differ in length; `padded_batch` and `bucket` take them.

    Cost: one group is in memory, and the first sample of the next one. Resuming goes to the
    beginning of a group.

    Args:
        fn: Takes a sample, and returns its key, which is compared by `==`.
        reader: Any reader of samples that can be stacked.

    Raises:
        TypeError: `reader` gives batches.
        FeedMismatch: The samples of a group cannot be stacked (while iterating).
    """

    fn: Callable[[Any], Any]
    reader: Reader[Any]

    def check_arguments(self) -> dict[str, Any]:
        """Checks that the reader gives samples."""
        if gives_batches(self.reader):
            raise TypeError(
                f"group_by(fn, reader) needs samples, and {described(self.reader)} gives batches: "
                f"type .group_by(fn) before .batch(...)."
            )
        return {}

    def start(self, at: Position) -> Pass[Any]:
        """Begins a pass; its position is that of `reader` before the next group."""
        up, key_of = start(self.reader, at).watched(self, 2), explained(self, self.fn)
        begin = up.position()

        def deal() -> Iterator[Any]:
            nonlocal begin
            held: list[Any] = []
            key, end = None, begin
            for sample in up.items:
                now = key_of(sample)
                if held and not bool(now == key):
                    begin = end
                    yield self._stacked(held)
                    held = []
                held.append(sample)
                key, end = now, up.position()
            if held:
                begin = end
                yield self._stacked(held)

        return Pass(deal(), lambda: begin, up.close)

    def _stacked(self, samples: list[Any]) -> Any:
        try:
            return stack(samples)
        except errors.FeedMismatch as error:
            error.add_note(f"in a group of {len(samples)} samples, made at {self.made_at}")
            raise
