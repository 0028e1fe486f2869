"""Which short cuts a class is read by: those that no method was overridden after.

A subclass that overrides `__getitem__`, `__iter__` or `start` alone inherits short cuts that know
nothing of it (`__getitems__`, `plane`): they would go round what was written. This is the one place
that decides, for data sets, samplers and ops.
"""

from __future__ import annotations


def stands_for(kind: type, short: str, *spelled: str) -> bool:
    """Whether a method, or an attribute, of a class is at least as new as others that it is for.

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
