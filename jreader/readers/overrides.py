"""Which shortcuts of a class still hold in a subclass.

A subclass that overrides only `__getitem__`, `__iter__` or `start` inherits shortcuts such as
`__getitems__` and `plane`, which would bypass what it overrides. This is the one place that decides
whether to use them, for data sets, samplers and ops.
"""

from __future__ import annotations

from jreader.readers.declarations import cached_by_class


def stands_for(kind: type, short: str, *spelled: str) -> bool:
    """Return whether `short` is defined in the class that defines `spelled`, or in a subclass.

    >>> class Rows:
    ...     def __getitem__(self, index): ...
    ...     def __getitems__(self, indices): ...
    >>> class Scaled(Rows):
    ...     def __getitem__(self, index): ...
    >>> [stands_for(each, "__getitems__", "__getitem__") for each in (Rows, Scaled, list)]
    [True, False, False]
    """
    for each in kind.__mro__:
        names = vars(each)
        if short in names:
            return True
        if not names.keys().isdisjoint(spelled):
            return False
    return False


op_stands_for = cached_by_class(stands_for)
"""The same for classes of ops, whose methods stay as they are."""
