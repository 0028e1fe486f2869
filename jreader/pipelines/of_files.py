"""`files`: a pipeline that begins with the names of files."""

from __future__ import annotations

from jreader.pipelines.pipeline import Pipeline
from jreader.sources import file_lists
from jreader.sources.files.named_files import Paths


def files(paths: Paths) -> Pipeline[str]:
    """A pipeline of the names of files: each sample is a path, as a str.

    It is indexed: files can be shuffled and sharded. `read` opens them.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> def lines(path):
    ...     yield from Path(path).read_text().split()
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("b.txt", "a.txt"):
    ...         _ = Path(folder, name).write_text(f"{name} 1 2")
    ...     list(files(f"{folder}/*.txt").read(lines, lanes=2))
    ['a.txt', 'b.txt', '1', '1', '2', '2']

    Args:
        paths: A file, a pattern such as `"data/*.tar"` (or `"data/**/*.tar"`, for folders in it
            too), or a list of these. The files of a pattern are sorted by name.

    Raises:
        TypeError: A path is neither a str nor a path, or there is none.
        FileNotFoundError: A file does not exist, or a pattern has none.
    """
    return Pipeline(file_lists.files(paths))
