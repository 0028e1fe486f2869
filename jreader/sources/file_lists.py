"""`files`: yield the names of files, or parts of them, as samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from jreader.errors import check_number
from jreader.readers import argument, op, set_fields
from jreader.readers.columns import Array, Objects
from jreader.sources.columns import Table
from jreader.sources.file_checks import FileNode, States, check_state, state_of
from jreader.sources.files.file_parts import FilePart
from jreader.sources.files.file_readers import (
    Paths,
    files_named,
    typed_arguments,
    typed_call,
    written,
)

_PACKED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip")


@op
class files(FileNode[Any], Table[Any]):
    """Yield the names of files: each sample is a path, as a str, or a part of a file.

    The reader is indexed, so you can shuffle files, shard them, or divide them among lanes
    (`read`). It opens no files; if one changes its size during a pass, the next pass raises an
    error.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("b.txt", "a.txt"):
    ...         _ = Path(folder, name).write_text(name)
    ...     names = files(f"{folder}/*.txt")
    ...     len(names), [Path(name).name for name in names()]
    (2, ['a.txt', 'b.txt'])

    Args:
        paths: A file, a pattern such as `"data/*.tar"` (or `"data/**/*.tar"`, to include
            subfolders), or a list of these. The files of a pattern are sorted by name.
        parts: The number of parts to read each file in; each sample is then a `FilePart`. None for
            whole files.

    Raises:
        TypeError: A path is neither a str nor an `os.PathLike`, or there is none.
        ValueError: A compressed file is to be read in parts.
        FileNotFoundError: A file does not exist, or a pattern has none.
    """

    paths: tuple[str, ...]
    parts: int | None = argument(default=None, cursor="if given")

    def __init__(self, paths: Paths, parts: int | None = None) -> None:
        """Find the files; open none."""
        found = files_named("files(paths)", paths, (), remote=False)
        if parts is not None:
            parts = check_number("parts of files(paths, parts)", parts, 1)
            packed = [path for path in found if path.endswith(_PACKED)]
            if packed and parts > 1:
                raise ValueError(
                    f"files(paths, parts={parts}) cannot read {packed[0]!r} in parts, since a "
                    "compressed file has to be unpacked from its beginning: unpack it, or leave "
                    "parts out."
                )
        set_fields(self, paths=found, parts=parts)

    @cached_property
    def columns(self) -> Objects:
        """The names, or parts; parts need the sizes of the files."""
        make = partial(_checked_path, self.paths, self._first_seen, self.parts)
        return Objects(len(self.paths) * (self.parts or 1), make)

    def check_files(self) -> None:
        """Check nothing: each file is checked when its name is yielded, not all for each lane."""

    def __repr__(self) -> str:
        """Return the call that makes this reader; of many files, the first and the last."""
        return typed_call(self, written(self.paths), typed_arguments(self))


def _checked_path(
    names: Sequence[str], first_seen: States, parts: int | None, rows: Array
) -> Iterator[str | FilePart]:
    """Yield the names, or parts, of those rows; check each file first."""
    which, numbers = np.divmod(rows, parts or 1)
    for file, number in zip(which.tolist(), numbers.tolist(), strict=True):
        name, state = names[file], first_seen[file]
        check_state(name, state, state_of(name))
        size = state.st_size if state else 0
        yield name if parts is None else FilePart(name, number, parts, size)
