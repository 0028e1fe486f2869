"""`files`: the names of files, as samples."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from jreader.readers import op
from jreader.readers.planes import Array
from jreader.sources.columns import Table
from jreader.sources.file_checks import FileNode
from jreader.sources.files.named_files import Paths, files_named, written


@op
class files(FileNode[str], Table[str]):
    """A reader of the names of files: each sample is a path, as a str.

    The reader is indexed, so that files can be shuffled, sharded and dealt to lanes (`read`). No
    file is opened; one that changes in size after a pass has begun makes the next pass an error.

    >>> from pathlib import Path
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

    def __init__(self, paths: Paths) -> None:
        """Finds the files; opens none."""
        object.__setattr__(self, "paths", files_named("files(paths)", paths, (), far=False))

    @cached_property
    def columns(self) -> Any:
        """The names."""
        return _Names(self.paths)

    def __repr__(self) -> str:
        """The call that makes this reader; of many files, the first and the last."""
        return f"files({written(self.paths)})"


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
