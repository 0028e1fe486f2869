"""The arguments of `mix`: readers by name, and their weights as whole numbers.

A float stands for the number that it is printed as: 0.7 is 7 / 10, so that 0.7 and 0.3 are exactly
7 : 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from fractions import Fraction
from typing import Any

from jreader import errors
from jreader.orders.turns import MOST_LEVELS, levels_of
from jreader.readers import Reader, described

_MAX_SUM = 1 << 46  # of the sum: counts are exact up to 2**46 turns
_TEMPERED = 1 << 40  # powers of lengths are not exact numbers


def whole_weights(
    given: Any, names: Sequence[str] | None, many: int, what: str = "weights"
) -> tuple[int, ...]:
    """Convert the weights of sources to whole numbers in the same proportion.

    >>> whole_weights({"web": 0.7, "code": 0.3}, ["web", "code"], 2)
    (7, 3)
    >>> whole_weights([2, 4, 0], None, 3)
    (1, 2, 0)

    Args:
        given: A mapping from names to numbers, a sequence of numbers, or None for equal weights.
        names: The names of the sources; None if they have none.
        many: The number of sources.
        what: The argument's name, for errors.

    Raises:
        TypeError: It has another form, or a weight is not a number.
        ValueError: A weight is negative, too small beside the others, missing, or one too many; or
            all are 0.
    """
    if given is None:
        return (1,) * many
    called = list(names or range(many))
    numbers = _numbers_of(given, names, many, what)
    exact = [_exact(number, name, what) for number, name in zip(numbers, called, strict=True)]
    if not any(exact):
        raise ValueError(f"{what} of mix are all 0: give at least one reader a share above 0.")
    return _whole_numbers(exact, called, what)


def _numbers_of(given: Any, names: Sequence[str] | None, many: int, what: str) -> list[Any]:
    """Return the numbers in the order of the sources."""
    if isinstance(given, Mapping):
        names = _checked_names(given, names, what)
        return [given[name] for name in names]
    if isinstance(given, str) or not (isinstance(given, Sequence) or hasattr(given, "tolist")):
        raise TypeError(
            f"{what} of mix needs a number for each source, not {given!r}: give a dict by the "
            f"names of the readers, or a list."
        )
    if len(given) != many:
        raise ValueError(
            f"{what} of mix needs {many} numbers, one for each of {list(names or range(many))}, "
            f"not {len(given)}."
        )
    return list(given)


def weights_of_lengths(
    lengths: Sequence[int | None], names: Sequence[str] | None, temperature: Any
) -> tuple[int, ...]:
    """Return weights in proportion to the sources' lengths to the power 1 / temperature.

    >>> weights_of_lengths([900, 100], None, 1), weights_of_lengths([900, 100], None, 2)
    ((9, 1), (3, 1))

    Raises:
        TypeError: `temperature` is not a number.
        ValueError: `temperature` is not above 0, or a source has no known length, or no samples.
    """
    called = list(names or range(len(lengths)))
    heat = _exact(temperature, None, "temperature")
    known = [_length_of_source(*pair) for pair in zip(called, lengths, strict=True)]
    if heat == 1:
        return _whole_numbers(list(map(Fraction, known)), called, "temperature")
    logs = [math.log(length) / float(heat) for length in known]
    powers = [math.exp(log - max(logs)) for log in logs]
    shares = [Fraction(round(power / sum(powers) * _TEMPERED)) for power in powers]
    return _whole_numbers(_plainer(shares, powers), called, "temperature")


def _length_of_source(name: Any, length: int | None) -> int:
    if not length:
        seen = "no samples" if length == 0 else "no length that is known before it is read"
        raise ValueError(
            f"temperature of mix makes weights from lengths, and {name!r} has {seen}: give "
            "weights= instead, or a source with a length, as jreader.arrays(...) has."
        )
    return length


def _plainer(shares: list[Fraction], powers: list[float]) -> list[Fraction]:
    """Return small whole numbers in the proportion of these powers, if possible, such as 3 : 1."""
    least = min(powers)
    ratios = [Fraction(power / least).limit_denominator(1000) for power in powers]
    same = all(
        abs(float(ratio) * least - power) < power * 1e-12
        for ratio, power in zip(ratios, powers, strict=True)
    )
    return ratios if same else shares


def _checked_names(
    given: Mapping[str, Any], names: Sequence[str] | None, what: str
) -> Sequence[str]:
    if names is None:
        raise TypeError(
            f"{what} of mix has the names {list(given)}, and the readers have none: give the "
            f"readers as a dict with these names, or weights in a list."
        )
    for name in given:
        if name not in names:
            close = get_close_matches(str(name), names, 1)
            meant = f" Was {close[0]!r} meant?" if close else ""
            raise ValueError(
                f"{what} of mix has {name!r}, and no reader is called so: they are called "
                f"{list(names)}.{meant}"
            )
    if missing := [name for name in names if name not in given]:
        raise ValueError(
            f"{what} of mix has no number for {missing}: give one for each reader, 0 for no "
            f"samples, or leave those readers out."
        )
    return names


def _exact(number: Any, name: Any, what: str) -> Fraction:
    """Check a weight of a source (or the temperature, without a name); return it as printed."""
    of, needed = what, "a number above 0 is needed, such as 7 or 0.7"
    if name is not None:
        of, needed = f"{what} of mix: that of {name!r}", f"{needed}, or 0 for no samples"
    item = number.item() if getattr(number, "shape", None) == () else number
    if isinstance(item, bool) or not isinstance(item, (int, float, Fraction)):
        raise TypeError(f"{of} is {number!r}, and {needed}.")
    if not 0 <= item < math.inf or (name is None and not item):
        raise ValueError(f"{of} is {item}, and {needed}.")
    return Fraction(repr(item) if isinstance(item, float) else item)


def _whole_numbers(
    numbers: Sequence[Fraction], called: Sequence[Any], what: str
) -> tuple[int, ...]:
    scale = math.lcm(*(number.denominator for number in numbers))
    whole = [int(number * scale) for number in numbers]
    if (total := sum(whole)) > _MAX_SUM:
        whole = [round(Fraction(number * (_MAX_SUM - len(whole)), total)) for number in whole]
    shares = [each for each, number in zip(whole, numbers, strict=True) if number]
    least = min(shares)
    if not least or levels_of(shares) > MOST_LEVELS:
        smallest = min(filter(None, numbers))
        name, share = called[numbers.index(smallest)], float(smallest / sum(numbers))
        raise ValueError(
            f"{what} of mix leaves {name!r} a share of {share:.1e}, and the least that is dealt is "
            f"{2.0**-MOST_LEVELS:.1e}: give it more, or leave it out."
        )
    common = math.gcd(*whole)
    return tuple(number // common for number in whole)


def named_readers(readers: Any) -> tuple[tuple[str, ...] | None, tuple[Reader[Any], ...]]:
    """Return the names of readers, if they have any, and the readers."""
    call = "mix(readers)"
    if isinstance(readers, Mapping):
        names: tuple[str, ...] | None = tuple(readers)
        several = tuple(readers.values())
        for name in readers:
            if not isinstance(name, str):
                raise TypeError(f"{call} needs texts for names, not {name!r}.")
    elif isinstance(readers, Sequence) and not isinstance(readers, str):
        names, several = None, tuple(readers)
    else:
        raise TypeError(
            f"{call} needs a dict or a list of readers, not {described(readers)}: type "
            f'mix([web, code]), or mix({{"web": web, "code": code}}).'
        )
    if not several:
        raise ValueError(f"{call} needs at least one reader, and got none.")
    for reader in several:
        errors.check_reader(call, reader)
    return names, several


def changes_of(
    at: Any, names: tuple[str, ...] | None, many: int
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return the weights from later turns on, in the order of the turns."""
    if at is None:
        return ()
    if not isinstance(at, Mapping):
        raise TypeError(
            f"at of mix is a dict of weights by the number of the sample from which they hold, as "
            f"at={{10_000: weights}}, not {described(at)}."
        )
    turns = [(errors.check_number("at of mix", turn, 1), given) for turn, given in at.items()]
    return tuple(
        (turn, whole_weights(given, names, many, f"at={{{turn}: ...}}"))
        for turn, given in sorted(turns, key=lambda change: change[0])
    )
