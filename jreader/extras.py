"""Packages that not every user has, imported when first needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def extra(module: str, name: str, says: str) -> Any:
    """Import a module that an extra of jreader installs.

    >>> extra("no_such_module", "far", "this needs fsspec")
    Traceback (most recent call last):
    ModuleNotFoundError: No module named 'no_such_module'
    this needs fsspec: python -m pip install 'jreader[far]'

    Args:
        module: Its name.
        name: The name of the extra.
        says: The text of the error before the command, such as "this needs fsspec".

    Raises:
        ModuleNotFoundError: It is not installed; a note says what to type.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        error.add_note(f"{says}: python -m pip install 'jreader[{name}]'")
        raise
