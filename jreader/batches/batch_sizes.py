"""The batch sizes of a pass: one for all steps, or another from some step on.

The first sample of a batch decides its size, and the steps determine from which sample on each size
holds. So the beginning of any batch is arithmetic, starting at any sample, even one at which
batches of other sizes ended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from jreader.errors import check_number

NO_END = 1 << 62  # more samples than any pass has


class BatchSizes(NamedTuple):
    """The batch sizes of a pass.

    >>> sizes = BatchSizes.of({0: 2, 3: 4})
    >>> sizes.at(5), sizes.at(6), sizes.after(0, 4), sizes.full(0, 15)
    (2, 4, 10, (5, 14))

    Attributes:
        sizes: The sizes, in order.
        begins: The first sample of batches of each size.
    """

    sizes: tuple[int, ...]
    begins: tuple[int, ...] = (0,)

    @classmethod
    def of(cls, given: int | Mapping[int, int]) -> BatchSizes:
        """Convert an argument that `checked_sizes` returned."""
        if isinstance(given, int):
            return cls((given,))
        begins = [0]
        for (step, size), (later, _) in pairwise(given.items()):
            begins.append(begins[-1] + (later - step) * size)
        return cls(tuple(given.values()), tuple(begins))

    @property
    def vary(self) -> bool:
        """True if there are several sizes."""
        return len(self.sizes) > 1

    def times(self, many: int) -> BatchSizes:
        """Multiply each size by `many`."""
        return self._replace(sizes=tuple(size * many for size in self.sizes))

    def at(self, sample: int) -> int:
        """Return the size of a batch that begins at this sample."""
        return self.sizes[bisect_right(self.begins, sample) - 1]

    def pieces(self, low: int) -> Iterator[tuple[int, int]]:
        """Yield each batch size from a sample on, with the sample where its last batch ends."""
        for size, until in zip(self.sizes, (*self.begins[1:], NO_END), strict=True):
            if low < until:
                low += -(-(until - low) // size) * size
                yield size, low

    def full(self, low: int, high: int) -> tuple[int, int]:
        """Return the number of full batches between two samples, and where the last one ends."""
        many = 0
        for size, end in self.pieces(low):
            here = (min(end, high) - low) // size
            many, low = many + here, low + here * size
            if low < end:
                break
        return many, low

    def after(self, sample: int, steps: int) -> int:
        """Return the sample that is `steps` batches after this one, which begins a batch."""
        for size, end in self.pieces(sample):
            here = min((end - sample) // size, steps)
            sample, steps = sample + here * size, steps - here
        return sample

    def ends(self, low: int, high: int) -> Iterator[int]:
        """Yield the end of each batch between two samples; the last batch may be short.

        >>> list(BatchSizes.of({0: 2, 3: 4}).ends(4, 13))
        [6, 10, 13]
        """
        while low < high:
            low = min(low + self.at(low), high)
            yield low


def checked_sizes(call: str, given: Any) -> Any:
    """Check a batch size, or a dict of sizes by first step.

    >>> checked_sizes("batch(reader, batch_size)", {10: 4, 0: 2})
    {0: 2, 10: 4}
    >>> checked_sizes("batch(reader, batch_size)", {10: 4})
    Traceback (most recent call last):
    ValueError: batch(reader, batch_size) needs the size of the first batches too, and {10: 4} has \
none for step 0: type {0: 4, ...}.

    Raises:
        TypeError: It is neither a whole number nor a dict of them.
        ValueError: A size is less than 1, or the first step is not 0.
    """
    if not isinstance(given, Mapping):
        return check_number(f"batch_size of {call}", given, 1)
    what, sizes = f"batch sizes {given!r} of {call}", dict[int, int]()
    for step, size in given.items():
        number = check_number(f"a step of the {what}", step)
        sizes[number] = check_number(f"each of the {what}", size, 1)
    if 0 not in sizes:
        raise ValueError(
            f"{call} needs the size of the first batches too, and {given!r} has none for step 0: "
            f"type {{0: {sizes[min(sizes)] if sizes else 32}, ...}}."
        )
    return dict(sorted(sizes.items())) if len(sizes) > 1 else sizes[0]
