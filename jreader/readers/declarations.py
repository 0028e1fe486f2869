"""How an op is declared: its fields are its arguments, and most check themselves.

`@op` is `dataclass(frozen=True, eq=False, repr=False)` by a shorter name, and `whole` a field that
holds a whole number; a class that is decorated in the long way is an op too.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import lru_cache
from typing import Any, TypeVar, dataclass_transform

from jreader.errors import check_function, check_number, check_reader

K = TypeVar("K")


def whole(*, default: Any = MISSING, least: int = 0) -> Any:
    """A field of an op that takes a whole number, and is checked to be one.

    >>> from jreader.readers import Node, Reader
    >>> @op
    ... class every(Node):
    ...     reader: Reader
    ...     n: int = whole(least=1)
    >>> every(lambda: "abc", 0)
    Traceback (most recent call last):
    ValueError: every(reader, n) needs a whole number of at least 1 (an int), not 0.

    Args:
        default: Its default; a default of None stands for no number.
        least: The smallest number that is allowed.
    """
    return field(default=default, metadata={"least": least})


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field, whole))
def op(kind: type[K]) -> type[K]:
    """Makes a class an op: `dataclass(frozen=True, eq=False, repr=False)`, and nothing else.

    When an op is made, its fields `reader` and `fn` are checked, and those declared by `whole`. A
    class that checks more in `__post_init__` begins it with `super().__post_init__()`.

    >>> from jreader.readers import Node, Reader, start
    >>> @op
    ... class doubled(Node):
    ...     reader: Reader
    ...     def start(self, at):
    ...         return start(self.reader, at).mapped(lambda sample: 2 * sample)
    >>> list(doubled(lambda: "abc")())
    ['aa', 'bb', 'cc']
    """
    return dataclass(frozen=True, eq=False, repr=False)(kind)


def declared(node: object) -> tuple[Field[Any], ...]:
    """The fields that the class of an op declares."""
    kind: Any = type(node)
    return _declared_by(kind)


def declared_names(node: object) -> tuple[str, ...]:
    """The names of the fields that the class of an op declares."""
    kind: Any = type(node)
    return _names_by(kind)


@lru_cache(256)  # each pass asks for them, several times for each op
def _declared_by(kind: type) -> tuple[Field[Any], ...]:
    return fields(kind) if is_dataclass(kind) else ()


@lru_cache(256)
def _names_by(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in _declared_by(kind))


def check_fields(node: Any) -> None:
    """Raises if a field is not what its name, or its declaration, says.

    Raises:
        TypeError: A reader or a function cannot be called, or a number is no whole number.
        ValueError: A number is less than its least.
    """
    given = [each for each in declared(node) if each.init]
    call = f"{type(node).__name__}({', '.join(each.name for each in given)})"
    numbers = [each for each in given if "least" in each.metadata]
    for each in given:
        value = getattr(node, each.name)
        if value is None is each.default:
            continue
        if each.name == "reader":
            check_reader(call, value)
        elif each.name in ("fn", "mapper"):
            check_function(call, value)
        elif each in numbers:
            which = f"{each.name} of {call}" if len(numbers) > 1 else call
            number = check_number(which, value, each.metadata["least"])
            object.__setattr__(node, each.name, number)
