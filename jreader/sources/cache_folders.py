"""The folder for what can be made again: downloads, and indices of large files."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder `jreader` in `$XDG_CACHE_HOME`, or in `~/.cache`; it need not exist.

    >>> cache_folder().name
    'jreader'
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "jreader"
