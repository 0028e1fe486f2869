"""A pass over a plain function, which is read again up to a position if it cannot jump there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, NoReturn, TypeVar

from jreader.errors import NotResumable, place_of_caller, warn
from jreader.progress import Bar
from jreader.readers.messages import described
from jreader.readers.nodes import Reader, length
from jreader.readers.passes import Pass, Position, checked_position, counted
from jreader.readers.plain_functions import opened_function, owner_of

T = TypeVar("T")


def replayed(reader: Reader[T], at: Position) -> Pass[T]:
    """Return a pass over a plain function, which is read again up to a position.

    Args:
        reader: A function that is no op, or the `__iter__` of an op.
        at: The position: the number of samples handed over before; with the state of the function's
            stream, if that can resume from it without reading.

    Raises:
        NotResumable: There are too few samples (while iterating), or it is no position.
    """
    done, state = checked_position(at, (0, "")) if isinstance(at, (tuple, list)) else (at, "")
    done = checked_position(done, 0)
    source, close, state_of = opened_function(reader, state)
    parts: list[Iterator[T]] = [source]
    if done and (not state or state_of is None):
        parts.insert(0, _skipped(reader, source, done))
    if (said := length(owner_of(reader))) is not None:
        parts.append(_checked_length(owner_of(reader), said, place_of_caller(), lambda: given()))  # noqa: PLW0108  # below
    items, given = counted(chain(*parts) if len(parts) > 1 else source, done)
    if state_of is None:
        return Pass(items, given, close)
    begin = (done, state) if state else done

    def position() -> Position:
        moved = given() > done or not begin  # also before the first sample: its order may be drawn
        return (given(), state_of()) if moved else begin

    return Pass(items, position, close)


def _checked_length(
    reader: Reader[Any], said: int, place: str, count: Callable[[], int]
) -> Iterator[NoReturn]:
    """Yield nothing; after the last sample, warn if `__len__` says another number."""
    if count() != said:
        warn(
            f"{described(reader)} says that it has {said} samples, and gave {count()} in this "
            "pass: len(loader), shuffles of the whole and the steps of an epoch follow what it "
            "says. Correct its __len__, or leave it out.",
            place,
        )
    yield from ()


def _skipped(reader: Reader[T], source: Iterator[T], done: int) -> Iterator[NoReturn]:
    items, count = counted(islice(source, done))
    with Bar("reading up to the position", done) as bar:
        if bar.off:
            deque(items, maxlen=0)
        for _ in items:
            bar.add()
    if count() < done:
        raise NotResumable(
            f"cannot resume after sample {done} of {described(reader)}: it gave {count()} samples. "
            f"Start at the beginning (at=None), or give it the data it had."
        )
    yield from ()
