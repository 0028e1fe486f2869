"""`padded_batch`: batches of samples that differ in length, each padded to one length.

A compiled step needs arrays of one shape, and is compiled anew for every other one. So what is
padded is told by a mask, and to which lengths is the user's choice: few lengths are few shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from jreader.batches.padding import Padding, checked_fields, checked_lengths, ragged_fields
from jreader.batches.plain_batches import batch
from jreader.readers import Columns, Pass, Position, Reader, op, whole

T = TypeVar("T")

_CALL = "padded_batch(reader, batch_size)"


@op
class padded_batch(batch[T]):
    """Batches of samples that differ in length, padded to one length, with masks of what is there.

    >>> documents = lambda: [[7, 8, 9], [4], [5, 6], [1, 2, 3, 4, 5]]
    >>> for columns in padded_batch(documents, 2, to=[4, 8])():
    ...     print(columns.columns["tokens"].tolist())
    [[7, 8, 9, 0], [4, 0, 0, 0]]
    [[5, 6, 0, 0, 0, 0, 0, 0], [1, 2, 3, 4, 5, 0, 0, 0]]

    A batch is `Columns`: of dict samples their fields, and beside each field that is padded its
    mask, `<field>_mask`: bool, of shape [batch, length], true where the sample has a value. Bare
    documents become `tokens` and `tokens_mask`. Tuples get their masks as last items; named tuples
    and dataclasses become dicts of their fields. Several padded fields have a length each.

    Cost: one batch is in memory, and its rows are copied once into padded arrays. Resuming costs
    what it costs in `reader`.

    Args:
        reader: Any reader of arrays, or lists, that differ in length, alone or as fields.
        batch_size: Samples per batch.
        drop_last: What becomes of a last batch with fewer samples, as in `batch`.
        to: The length of a batch: "longest" for that of its longest row, or a list of lengths that
            rise, of which it gets the first that is long enough. A list of one is a fixed length.
        multiple_of: The length of the longest row is rounded up to a multiple of this.
        pad: What fills rows up: a number, or a dict of numbers by field.
        fields: The names of the fields to pad. None for the ragged columns; where samples have to
            be read to know them, for the one field that is a list or an array.
        longer: What to do with rows longer than the last length of `to`: "error", or "truncate" to
            cut them.

    Raises:
        TypeError: `to` is neither "longest" nor a list of lengths, or there is nothing to pad.
        ValueError: The lengths do not rise, `to` and `multiple_of` are both given, it is not clear
            which fields to pad, or a row is too long (while iterating).
    """

    to: Any = "longest"
    multiple_of: int | None = whole(default=None, least=1)
    pad: Any = 0
    fields: Any = None
    longer: Literal["error", "truncate"] = "error"
    cursor_ignores = ("to", "multiple_of", "pad", "fields", "longer")

    def __post_init__(self) -> None:
        super().__post_init__()
        call = _CALL
        if not isinstance(self.to, str):
            if isinstance(self.to, int):
                raise TypeError(
                    f"to={self.to!r} of {call} could mean a length or a multiple: type "
                    f"to=[{self.to}] for batches of that length, multiple_of={self.to} for the "
                    "longest row, rounded up."
                )
            object.__setattr__(self, "to", checked_lengths(call, "to", self.to))
        elif self.to != "longest":
            raise TypeError(f"to of {call} is 'longest' or a list of lengths, not {self.to!r}.")
        if self.multiple_of is not None and self.to != "longest":
            raise ValueError(
                f"{call} takes a list of lengths or multiple_of, not both: type "
                f"to={[-(-n // self.multiple_of) * self.multiple_of for n in self.to]}."
            )
        if self.longer not in ("error", "truncate"):
            raise ValueError(
                f"longer of {call} is 'error' or 'truncate', not {self.longer!r}; to leave samples "
                "out, type .filter(fn) before it."
            )
        object.__setattr__(self, "fields", checked_fields(call, self.fields))

    def start(self, at: Position) -> Pass[Sequence[T]]:
        """Begins a pass; its position is that of `reader`."""
        return super().start(at).mapped(self._padder())

    def lookup(self) -> Callable[[int], Sequence[T]] | None:
        """Finds a batch by the indices of its samples."""
        find, padded = super().lookup(), self._padder()
        return find and (lambda index: padded(find(index)))

    def length_for(self, longest: int) -> int:
        """The length of a batch whose longest row is so long."""
        if self.to == "longest":
            each = self.multiple_of or 1
            return max(-(-longest // each), 1) * each
        fit: list[int] = [length for length in self.to if length >= longest]
        return fit[0] if fit else int(self.to[-1])

    @property
    def padding(self) -> Padding:
        """How samples become arrays."""
        names = ragged_fields(self.reader, self.fields) or self.fields
        return Padding(_CALL, names, self.pad, self.longer == "truncate")

    def _padder(self) -> Callable[[Sequence[T]], Sequence[T]]:
        padding = self.padding

        def padded(samples: Sequence[T]) -> Sequence[T]:
            return Columns(padding.columns(list(samples), self.length_for))

        return padded


def varied(reader: Reader[Any]) -> bool:
    """Whether the batches of a reader differ in length: a `padded_batch` without one fixed length.

    >>> varied(padded_batch(lambda: [[1]], 1)), varied(padded_batch(lambda: [[1]], 1, to=[8]))
    (True, False)
    """
    return isinstance(reader, padded_batch) and (reader.to == "longest" or len(reader.to) > 1)
