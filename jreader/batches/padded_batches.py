"""`padded_batch`: batch samples that differ in length, each padded to one length.

A compiled step needs arrays of one shape, and is recompiled for every other. So a mask marks the
padding, and the user chooses the lengths: few lengths mean few shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, Literal, TypeVar

import numpy as np

from jreader import errors
from jreader.batches.padding import (
    Padding,
    Shape,
    by_name,
    checked_fields,
    checked_lengths,
    ragged_fields,
)
from jreader.batches.plain_batches import batch
from jreader.readers import Columns, Pass, Position, Reader, argument, flag, op, whole
from jreader.readers.declarations import check_choice

T = TypeVar("T")

_CALL = "padded_batch(reader, batch_size)"


def _checked_lengths(call: str, to: Any) -> Any:
    if isinstance(to, Mapping):
        return {name: _checked_to(name, each) for name, each in to.items()}
    if isinstance(to, int):
        raise TypeError(
            f"to={to!r} of {call} could mean a length or a multiple: type to=[{to}] for batches of "
            f"that length, multiple_of={to} for the longest row, rounded up."
        )
    if not isinstance(to, str):
        return checked_lengths(call, "to", to)
    if to != "longest":
        raise TypeError(f"to of {call} is 'longest' or a list of lengths, not {to!r}.")
    return to


def _checked_longer(call: str, longer: Any) -> Any:
    if longer not in ("error", "truncate"):
        raise ValueError(
            f"longer of {call} is 'error' or 'truncate', not {longer!r}; to leave samples out, "
            "type .filter(fn) before it."
        )
    return longer


def _checked_side(call: str, side: Any) -> Any:
    for each in side.values() if isinstance(side, Mapping) else [side]:
        check_choice(("right", "left"), f"padding_side of {call}", each)
    return side


def _checked_axes(call: str, axes: Any) -> Any:
    for number in axes.values() if isinstance(axes, Mapping) else [axes]:
        errors.check_number(f"axes of {call}", number, 1)
    return axes


@op
class padded_batch(batch[T]):
    """Batch samples that differ in length: pad them to one length, and add masks.

    >>> documents = lambda: [[7, 8, 9], [4], [5, 6], [1, 2, 3, 4, 5]]
    >>> for columns in padded_batch(documents, 2, to=[4, 8])():
    ...     print(columns.columns["tokens"].tolist())
    [[7, 8, 9, 0], [4, 0, 0, 0]]
    [[5, 6, 0, 0, 0, 0, 0, 0], [1, 2, 3, 4, 5, 0, 0, 0]]

    A batch is `Columns`. Dict samples keep their fields; each padded field gets a mask beside it,
    `<field>_mask`: bool, of shape [batch, length], true where the sample has a value. Bare
    documents become `tokens` and `tokens_mask`. Tuples get their masks as last items; named tuples
    and dataclasses become dicts of their fields. Several padded fields have a length each. A field
    of a nested dict has a dotted name, as in fields=["question.text"], and its mask beside it.

    >>> pairs = lambda: [{"source": [7, 8], "target": [1]}, {"source": [9], "target": [2, 3]}]
    >>> options = {"to": {"source": 3, "target": "longest"}, "padding_side": "left"}
    >>> for column in next(padded_batch(pairs, 2, **options)()).columns.values():
    ...     print(column.astype(int).tolist())
    [[0, 7, 8], [0, 0, 9]]
    [[0, 1], [2, 3]]
    [[0, 1, 1], [0, 0, 1]]
    [[0, 1], [1, 1]]

    Cost: keeps one batch in memory, and copies its rows once into padded arrays. Resuming costs as
    much as resuming `reader`.

    Args:
        reader: Any reader of arrays, or lists, that differ in length, alone or as fields.
        batch_size: Samples per batch.
        drop_last: Whether to drop an incomplete last batch, as in `batch`.
        to: The length of a batch: "longest" for that of its longest row; or a list of increasing
            lengths, of which it gets the first that fits (a list of one is a fixed length). Or a
            dict of these, or of single lengths, by field, for the fields to pad; a field of
            `fields` that it lacks is padded to its longest row.
        multiple_of: Round the length of the longest row up to a multiple of this.
        pad: The fill value: a number, or a dict of numbers by field.
        fields: The names of the fields to pad. None for those of `to`, if it is a dict, or for the
            ragged columns; where samples have to be read to know them, for the one field that is a
            list or an array.
        longer: What to do with rows longer than the last length of `to`: "error", or "truncate" to
            cut them there.
        padding_side: Where to pad: "right", after the values, or "left", before them, as generating
            decoders need it. Or a dict of these by field; a field that it lacks is padded on the
            right.
        axes: How many leading axes of a row to pad, each to a length by the same rule: a number, or
            a dict of numbers by field. With two, the mask has the shape [batch, length, length].
        same_length: Whether to pad all fields to one length, that of the longest row of any: for
            example, for two replies to one prompt that a model reads as one batch.

    Raises:
        TypeError: `to` is neither "longest" nor lengths, or there is nothing to pad.
        ValueError: The lengths do not increase; `to` and `multiple_of` are both given, or a dict
            `to` and `same_length`; `to`, `pad`, `axes` or `padding_side` names a field that is not
            padded; it is not clear which fields to pad; or a row is too long (while iterating).
    """

    to: Any = argument(_checked_lengths, default="longest", cursor="values")
    multiple_of: int | None = whole(default=None, least=1, cursor="values")
    pad: Any = argument(default=0, cursor="values")
    fields: Any = argument(checked_fields, default=None, cursor="values")
    longer: Literal["error", "truncate"] = argument(
        _checked_longer, default="error", cursor="values"
    )
    padding_side: Any = argument(_checked_side, default="right", cursor="values if given")
    axes: Any = argument(_checked_axes, default=1, cursor="values if given")
    same_length: bool = flag(default=False, cursor="values if given")

    def check_arguments(self) -> dict[str, Any]:
        """Check that the lengths fit `multiple_of` and the fields."""
        if self.multiple_of is not None and self.to != "longest":
            raise ValueError(
                f"{_CALL} takes a list of lengths or multiple_of, not both: type "
                f"to={_rounded(self.to, self.multiple_of)}."
            )
        if self.same_length and isinstance(self.to, Mapping):
            raise ValueError(
                f"{_CALL} has same_length=True, and to={self.to!r} gives each field its own: type "
                "to=[...] for all of them."
            )
        for name in self.to if isinstance(self.to, Mapping) and self.fields else ():
            if name not in self.fields:
                raise ValueError(
                    f"to of {_CALL} names {name!r}, and fields are {list(self.fields)}: name it "
                    "there too."
                )
        return super().check_arguments()

    def start(self, at: Position) -> Pass[Sequence[T]]:
        """Start a pass; its position is that of `reader`."""
        return super().start(at).mapped(self._padder())

    def lookup(self) -> Callable[[int], Sequence[T]] | None:
        """Find a batch by the indices of its samples."""
        find, padded = super().lookup(), self._padder()
        return find and (lambda index: padded(find(index)))

    @property
    def names(self) -> tuple[Any, ...] | None:
        """The fields to pad, as far as the arguments name them."""
        named: tuple[Any, ...] | None = self.fields
        return tuple(self.to) if named is None and isinstance(self.to, Mapping) else named

    def axes_of(self, name: Any) -> int:
        """Return how many axes of a field are padded."""
        axes: int = by_name(self.axes, name, 1)
        return axes

    def shapes_of(self, name: Any) -> list[Shape] | None:
        """Return the possible lengths of a field's padded axes; None for any."""
        to = by_name(self.to, name, "longest")
        return None if to == "longest" else list(product(to, repeat=self.axes_of(name)))

    def length_for(self, name: Any, longest: Shape) -> Shape:
        """Return the length of each padded axis of a field, given the longest row of the batch."""
        to, each = by_name(self.to, name, "longest"), self.multiple_of or 1
        if to == "longest":
            return tuple(max(-(-length // each), 1) * each for length in longest)
        return tuple(next((fit for fit in to if fit >= length), to[-1]) for length in longest)

    @property
    def padding(self) -> Padding:
        """The `Padding` that turns samples into arrays."""
        names = ragged_fields(self.reader, self.names) or self.names
        cuts = self.longer == "truncate"
        given = self.padding_side, self.axes, self.same_length
        return Padding(_CALL, names, self.pad, cuts, *given)

    def _padder(self) -> Callable[[Sequence[T]], Sequence[T]]:
        padding = self.padding

        def padded(samples: Sequence[T]) -> Sequence[T]:
            made: Columns[T] = Columns(padding.columns(list(samples), self.length_for))
            if isinstance(samples, Columns):
                made.full = samples.full
                if self.removed:
                    made.rows, made.valid = samples.rows, samples.valid
            return made

        return padded


def lengths_vary(reader: Reader[Any]) -> bool:
    """Return whether batches vary in length: a `padded_batch` without one fixed length.

    >>> lengths_vary(padded_batch(lambda: [[1]], 1))
    True
    """
    if not isinstance(reader, padded_batch):
        return False
    every = [reader.shapes_of(name) for name in reader.names or (None,)]
    return any(shapes is None or len(shapes) > 1 for shapes in every)


def _checked_to(name: Any, to: Any) -> Any:
    """Check `to` for one field: "longest", or increasing lengths, as a tuple."""
    if isinstance(to, str) and to == "longest":
        return to
    alone = isinstance(to, (int, np.integer))
    return checked_lengths(_CALL, f"to[{name!r}]", [to] if alone else to)


def _rounded(to: Any, each: int) -> Any:
    """Round lengths up to multiples of a number; a dict by field is rounded throughout."""
    if isinstance(to, Mapping):
        return {name: _rounded(lengths, each) for name, lengths in to.items()}
    return to if to == "longest" else [-(-length // each) * each for length in to]
