"""Feeds as instances of a class that takes their fields by keyword: `load(into=cls)`."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from jreader.errors import FeedMismatch
from jreader.readers import described


def made_into(make: Callable[..., Any], feed: Any) -> Any:
    """A feed as `make(**feed)`.

    >>> from collections import namedtuple
    >>> made_into(namedtuple("Pair", "x y"), {"y": 2, "x": 1})
    Pair(x=1, y=2)

    Raises:
        FeedMismatch: `make` takes other fields, or those of the feed have no names.
    """
    try:
        return make(**feed)
    except TypeError:
        check_takes(make, feed)
        raise  # an error of its own


def check_takes(make: Callable[..., Any], fields: Any) -> None:
    """Checks that a function takes all fields of feeds by keyword, and needs no others.

    >>> from collections import namedtuple
    >>> check_takes(namedtuple("Pair", "x y"), ["x", "z"])
    Traceback (most recent call last):
    jreader.errors.FeedMismatch: load(into=Pair) takes the fields ['x', 'y'], and feeds have \
['x', 'z']: missing a required argument: 'y'. Say which field of a sample each one is, as in \
load({'x': 'x', 'y': ...}, into=Pair); last='pad' adds a mask.

    Args:
        make: The function, or class.
        fields: Their names, or a feed; None where they are not known.

    Raises:
        FeedMismatch: It does not.
    """
    given = dict.fromkeys(fields) if isinstance(fields, (dict, list)) else {}
    try:
        takes = signature(make)
        (takes.bind_partial if fields is None else takes.bind)(**given)
    except ValueError:  # a class that is written in C does not say what it takes
        return
    except TypeError as error:
        ways = ", ".join(f"{n!r}: {n!r}" if n in given else f"{n!r}: ..." for n in takes.parameters)
        raise FeedMismatch(
            f"load(into={described(make)}) takes the fields {[*takes.parameters]}, and feeds have "
            f"{[*given] or described(fields)}: {error}. Say which field of a sample each one is, "
            f"as in load({{{ways}}}, into={described(make)}); last='pad' adds a mask."
        ) from error
