"""`files`: the names of files, as samples."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from jreader.readers import op
from jreader.readers.planes import Array
from jreader.sources.columns import Table
from jreader.sources.file_checks import FileNode, check_paths

_CALL = "files(paths)"


@op
class files(FileNode[str], Table[str]):
    """A reader of the names of files: each sample is a path, as a str.

    The reader is indexed, so that files can be shuffled, sharded and dealt to lanes (`read`). No
    file is opened; one that changes in size after a pass has begun makes the next pass an error.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("b.txt", "a.txt"):
    ...         _ = Path(folder, name).write_text(name)
    ...     names = files(f"{folder}/*.txt")
    ...     len(names), [Path(name).name for name in names()]
    (2, ['a.txt', 'b.txt'])

    Args:
        paths: A file, a pattern such as `"data/*.tar"` (or `"data/**/*.tar"`, for folders in it
            too), or a list of these. The files of a pattern are sorted by name.

    Raises:
        TypeError: A path is neither a str nor a path, or there is none.
        FileNotFoundError: A file does not exist, or a pattern has none.
    """

    paths: tuple[str, ...]

    def __init__(self, paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> None:
        """Finds the files; opens none."""
        several: Any = paths if isinstance(paths, (list, tuple)) else [paths]
        found = [path for each in several for path in _found(each)]
        object.__setattr__(self, "paths", check_paths(_CALL, tuple(found)))

    @cached_property
    def columns(self) -> Any:
        """The names."""
        return _Names(self.paths)

    def __repr__(self) -> str:
        """The call that makes this reader; of many files, the first."""
        if len(self.paths) == 1:
            return f"files({self.paths[0]!r})"
        rest = f", and {len(self.paths) - 2:,} more" if len(self.paths) > 2 else ""
        return f"files([{', '.join(map(repr, self.paths[:2]))}{rest}])"


class _Names:
    """The names of files as a column."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def gather(self, rows: Array) -> list[str]:
        """The names of the rows."""
        return list(self.each(rows))

    def each(self, rows: Array) -> Iterator[str]:
        """The names of the rows, one by one."""
        return map(self.names.__getitem__, rows.tolist())


def _found(given: Any) -> list[Any]:
    """The files that a path or a pattern stands for."""
    path = os.fspath(given) if isinstance(given, (str, os.PathLike)) else given
    if not isinstance(path, str) or os.path.isfile(path) or not glob.has_magic(path):  # noqa: PTH113  # a Path costs more, and there may be 100,000
        return [given]  # `check_paths` says what is wrong
    names = glob.glob(path, recursive=True)  # noqa: PTH207  # of any root
    if not (kept := sorted(name for name in names if os.path.isfile(name))):  # noqa: PTH113  # likewise
        raise FileNotFoundError(
            f"{_CALL} finds no file in {given!r}: give a pattern such as 'data/*.tar' (or "
            f"'data/**/*.tar', for folders in it too), or a list of paths. The program runs in "
            f"{Path.cwd()}."
        )
    return list(kept)
