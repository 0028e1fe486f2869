"""How an op is declared: its fields are its arguments, and each says how it is checked.

`@op` is short for `dataclass(frozen=True, eq=False, repr=False)`. You declare a field of an op by
its kind (`whole`, `flag`, `choice`), or by `argument` with a function of your own. If arguments
depend on each other, the op defines `check_arguments`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast, dataclass_transform

from jreader.errors import check_flag, check_function, check_number, check_reader

K = TypeVar("K")
F = TypeVar("F", bound=Callable[..., Any])

Convert: TypeAlias = Callable[[str, Any], Any]
"""Takes an op's call, for errors, and an argument; returns the value that the op keeps."""


InCursor: TypeAlias = Literal["ordering", "if given", "values", "values if given", "never"]
"""What a field does to a run, and so to its cursor (`fingerprints`).

"ordering": it orders or counts samples, so a cursor resumes with no other value. "values": it
changes samples only: a cursor resumes with another value, with a warning. "never": it does neither,
like the size of a look-ahead. "if given": a cursor leaves out the default, as older cursors know
nothing of the field.
"""


def argument(
    convert: Convert | None = None,
    *,
    default: Any = MISSING,
    named: bool = False,
    cursor: InCursor = "ordering",
) -> Any:
    """Return a field of an op with its own check.

    >>> from jreader.readers import Node
    >>> def checked_name(call, name):
    ...     if not isinstance(name, str):
    ...         raise TypeError(f"{call} needs a name, not {name!r}.")
    ...     return name.lower()
    >>> @op
    ... class greeting(Node):
    ...     name: str = argument(checked_name)
    >>> greeting("Ada").name
    'ada'
    >>> greeting(3)
    Traceback (most recent call last):
    TypeError: greeting(name) needs a name, not 3.

    Args:
        convert: Checks the argument, and returns what the op keeps; None keeps it unchanged.
        default: Its default; a default of None is not checked.
        named: Whether `convert` gets "name of greeting(name)" instead of "greeting(name)".
        cursor: Its effect on a run, and so on its cursor.
    """
    return field(default=default, metadata={"convert": convert, "named": named, "cursor": cursor})


def whole(*, default: Any = MISSING, least: int = 0, cursor: InCursor = "ordering") -> Any:
    """Return a field of an op that takes an int, and is checked to be one.

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
        least: The smallest allowed number.
        cursor: Its effect on a run (`argument`).
    """
    checked = {"convert": partial(check_number, least=least), "least": least}
    return field(default=default, metadata={**checked, "cursor": cursor})


def flag(*, default: Any = MISSING, cursor: InCursor = "ordering") -> Any:
    """Return a field of an op that takes True or False.

    >>> from jreader.readers import Node
    >>> @op
    ... class greeting(Node):
    ...     loud: bool = flag(default=False)
    >>> greeting("yes")
    Traceback (most recent call last):
    TypeError: loud of greeting(loud) needs True or False, not 'yes'.
    """
    return argument(check_flag, default=default, named=True, cursor=cursor)


def truth(*, default: Any = MISSING, cursor: InCursor = "ordering") -> Any:
    """Return a field of an op that takes any true or false value, as Paddle's flags do."""
    return argument(lambda _call, value: bool(value), default=default, cursor=cursor)


def choice(*words: str, default: Any = MISSING, cursor: InCursor = "ordering") -> Any:
    """Return a field of an op that takes one of some words.

    >>> from jreader.readers import Node
    >>> @op
    ... class greeting(Node):
    ...     tone: str = choice("warm", "cool", "flat", default="warm")
    >>> greeting("loud")
    Traceback (most recent call last):
    ValueError: tone of greeting(tone) is 'warm', 'cool' or 'flat', not 'loud'.
    """
    return argument(partial(check_choice, words), default=default, named=True, cursor=cursor)


def check_choice(words: tuple[str, ...], call: str, value: Any) -> Any:
    """Return `value`, or raise ValueError if it is not one of the words."""
    if value not in words:
        *most, last = map(repr, words)
        raise ValueError(f"{call} is {', '.join(most)} or {last}, not {value!r}.")
    return value


@dataclass_transform(
    frozen_default=True,
    eq_default=False,
    field_specifiers=(field, argument, whole, flag, truth, choice),
)
def op(kind: type[K]) -> type[K]:
    """Make a class an op: `dataclass(frozen=True, eq=False, repr=False)`, and nothing else.

    It checks the fields of each new op: those called `reader` and `fn`, and those declared by a
    kind. An op checks more in `check_arguments`.

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
    """Return the fields that the class of an op declares."""
    return _declared_by(type(node))


def declared_names(node: object) -> tuple[str, ...]:
    """Return the names of the fields that the class of an op declares."""
    return names_by(type(node))


def cached_by_class(found: F) -> F:
    """Cache what a function finds out about classes: each pass asks, several times per op.

    A cast, since mypy loses the types of arguments of `lru_cache`, and takes classes of ops for
    unhashable.
    """
    return cast("F", lru_cache(1024)(found))


@cached_by_class
def _declared_by(kind: type) -> tuple[Field[Any], ...]:
    return fields(kind) if is_dataclass(kind) else ()


@cached_by_class
def names_by(kind: type, *, given: bool = False) -> tuple[str, ...]:
    """Return the names of the fields that a class declares; `given`: only those its user gives."""
    return tuple([each.name for each in _declared_by(kind) if each.init or not given])


def in_cursor(node: object, name: str, value: Any) -> InCursor:
    """Return the effect of an argument on a run; "never", if a cursor leaves out its default."""
    found = _cursor_by(type(node)).get(name)
    if found is None:
        return "ordering"
    cursor, default = found
    if not cursor.endswith("if given"):
        return cursor
    return "never" if value == default else "values" if cursor[0] == "v" else "ordering"


@cached_by_class
def _cursor_by(kind: Any) -> dict[str, tuple[InCursor, Any]]:
    """Return the effects of fields on a run, and defaults, without those that order samples."""
    rules = {each.name: each.metadata.get("cursor", "ordering") for each in _declared_by(kind)}
    rules |= dict.fromkeys(getattr(kind, "cursor_ignores", ()), "never")  # the spelling up to 0.2
    defaults = {each.name: each.default for each in _declared_by(kind)}
    return {name: (rule, defaults[name]) for name, rule in rules.items() if rule != "ordering"}


def set_fields(made: object, /, **values: Any) -> None:
    """Set fields of a frozen object while it is made, as a custom `__init__` would."""
    vars(made).update(values)


def convert_fields(node: Any) -> None:
    """Check the fields of an op that is being made, and set those that are converted.

    Raises:
        TypeError: A reader or a function cannot be called, or an argument is of another type.
        ValueError: A number is less than its least, or a word is not one of the choices.
    """
    kept = vars(node)
    for name, call, default, convert in _checks_by(type(node)):
        value = getattr(node, name)
        if value is not None or default is not None:
            kept[name] = convert(call, value)


_FEW = 4  # arguments; an error shows all of up to so many


class _Check(NamedTuple):
    """How to check a field."""

    name: str
    call: str
    default: Any
    convert: Convert


@cached_by_class
def _checks_by(kind: Any) -> tuple[_Check, ...]:
    """Return the checks of the fields that a user gives."""
    given = [each for each in _declared_by(kind) if each.init]
    several = sum("least" in each.metadata for each in given) > 1
    checks = []
    for each in given:
        convert = each.metadata.get("convert") or _BY_NAME.get(each.name)
        named = each.metadata.get("named", several) and each.name not in _BY_NAME
        if convert is not None:
            call = _call(kind, given, each)
            which = f"{each.name} of {call}" if named else call
            checks.append(_Check(each.name, which, each.default, convert))
    return tuple(checks)


def _call(kind: Any, given: list[Field[Any]], meant: Field[Any]) -> str:
    """Return the call as an error shows it; of many arguments, the required ones and this one."""
    if kind.shown_call:
        return str(kind.shown_call)
    shown = [each for each in given if each is meant or each.default is MISSING]
    names = [each.name for each in (given if len(given) <= _FEW else shown)]
    return f"{kind.__name__}({', '.join(names)})"


def _checked_reader(call: str, value: Any) -> Any:
    check_reader(call, value)
    return value


def _checked_function(call: str, value: Any) -> Any:
    check_function(call, value, takes=1)
    return value


_BY_NAME: dict[str, Convert] = {
    "reader": _checked_reader,
    "fn": _checked_function,
    "mapper": _checked_function,
}
