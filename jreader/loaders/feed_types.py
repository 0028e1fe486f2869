"""The type of a feed, which type checkers read and nothing at run time does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `TypeVar(default=...)` came with Python 3.13
    import jax
    from typing_extensions import TypeVar

    Feed = TypeVar("Feed", default=dict[str, jax.Array])
else:
    from typing import TypeVar

    Feed = TypeVar("Feed")
