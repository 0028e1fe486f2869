"""Which folders `write` takes: new and empty ones, or with `overwrite` those of shards alone."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from jreader.readers.credentials import masked
from jreader.sources.far_systems import is_far
from jreader.sources.transactions import entries

_CALL = "write(reader, path, format)"
_SHARD = re.compile(r".*-\d{5,}-of-\d{5,}\.\w+")


def checked_folder(path: Any, suffixes: tuple[str, ...]) -> Path:
    """The folder that a path names, absolute and without links.

    Raises:
        TypeError: It is no path.
        ValueError: It is elsewhere, or is named like a file.
    """
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(name, str) or not name:
        raise TypeError(f"path of {_CALL} needs the name of a folder, not {path!r}.")
    if is_far(name):
        raise ValueError(
            f"{_CALL} writes to this machine, and {masked(name)!r} is elsewhere: write to a "
            f"folder here, and copy that."
        )
    folder = Path(os.path.realpath(name))
    if folder.suffix in suffixes:
        raise ValueError(
            f"path of {_CALL} needs a folder, for several files, and {name!r} is named like one "
            f"file: type {str(Path(name).with_suffix(''))!r}, with shards=1 for a single file."
        )
    if not folder.name:
        raise ValueError(f"path of {_CALL} needs a folder with a name, not {name!r}.")
    return folder


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Raises FileExistsError if there is something in a folder that would be lost.

    With `overwrite`, shards that were written before are no such thing; other files are.
    """
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"path of {_CALL} needs a folder, and {str(folder)!r} is a file.")
    names = entries(folder)
    others = [name for name in names if not _SHARD.fullmatch(name)]
    if overwrite and others:
        raise FileExistsError(
            f"{str(folder)!r} has other files than shards in it, such as {min(others)!r}, which "
            f"overwrite=True would delete: give a folder of its own."
        )
    if names and not overwrite:
        raise FileExistsError(
            f"{str(folder)!r} has files in it already, such as {min(names)!r}: give another "
            f"folder, or overwrite=True to replace them once all samples are written."
        )
