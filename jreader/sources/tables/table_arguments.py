"""What readers of tables are asked for: names of columns, and what stands for nulls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any


def checked_names(call: str, columns: Any) -> tuple[str, ...] | str | None:
    """The names of columns as they were given, checked to be that: a str, several, or None.

    >>> checked_names("parquet(paths, columns)", ["x", "y"])
    ('x', 'y')

    Raises:
        TypeError: They are no names.
        ValueError: There are none, or one occurs twice.
    """
    if columns is None or isinstance(columns, str):
        return columns
    several = columns if isinstance(columns, Iterable) and not isinstance(columns, Mapping) else ()
    names = tuple(several)
    if not names or not all(isinstance(name, str) for name in names):
        kind = ValueError if isinstance(columns, (list, tuple)) and not names else TypeError
        raise kind(
            f"{call} needs names of columns, such as columns=['image', 'label'] (or one str for "
            f"bare values), not {columns!r}: leave it out for all columns."
        )
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{call} was given the column {twice[0]!r} twice: name it once.")
    return names


def checked_nulls(call: str, nulls: Any) -> dict[str, Any] | None:
    """What stands for nulls as it was given, checked to be a dict of names and values.

    >>> checked_nulls("parquet(paths, nulls)", {"age": -1})
    {'age': -1}

    Raises:
        TypeError: It is no such dict.
    """
    if nulls is None:
        return None
    if not isinstance(nulls, Mapping) or not all(isinstance(name, str) for name in nulls):
        raise TypeError(
            f"{call} needs a dict of columns and what stands for a null in each, such as "
            f"nulls={{'age': -1}}, not {nulls!r}."
        )
    return dict(nulls)


def check_fills(nulls: Mapping[str, Any], names: Sequence[str] | str) -> None:
    """Raises ValueError if something stands for the nulls of what is no column.

    >>> check_fills({"point.x": 0.0, "ids[]": 0}, ["point", "ids"])
    """
    names = [names] if isinstance(names, str) else names
    for name in nulls:
        if not any(name == each or name.startswith((f"{each}.", f"{each}[")) for each in names):
            raise ValueError(
                f"nulls={{{name!r}: ...}} names no column that is read: these are "
                f"{', '.join(map(repr, names))}."
            )


def shown(names: tuple[str, ...] | str | None, nulls: Mapping[str, Any] | None) -> Iterator[str]:
    """These arguments as a user would type them.

    >>> list(shown(("x",), {"x": 0}))
    ["columns=['x']", "nulls={'x': 0}"]
    """
    if names is not None:
        yield f"columns={names if isinstance(names, str) else list(names)!r}"
    if nulls:
        yield f"nulls={nulls!r}"
