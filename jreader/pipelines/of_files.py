"""`files`: a pipeline that begins with the names of files."""

from __future__ import annotations

from typing import Any, overload

from jreader.pipelines.pipeline import Pipeline
from jreader.sources import file_lists
from jreader.sources.files.file_parts import FilePart
from jreader.sources.files.file_readers import Paths


@overload
def files(paths: Paths, parts: None = None) -> Pipeline[str]: ...
@overload
def files(paths: Paths, parts: int) -> Pipeline[FilePart]: ...
def files(paths: Paths, parts: int | None = None) -> Pipeline[Any]:
    r"""Make a pipeline of file names: each sample is a path, as a str, or a part of a file.

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

    If there are fewer files than lanes, read each in `parts`. A part is a range of the bytes of a
    file, and its samples are those that begin in it: lines, row groups, records. `text`, `jsonl`,
    `parquet`, `tfrecord` and `tar` read one; your own function uses its `path`, its first byte
    (`begin`), and the byte after its last (`end`).

    >>> import jreader
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("one\ntwo\nthree\nfour\n")
    ...     list(files(f"{folder}/a.txt", parts=2).read(jreader.text, lanes=2))
    ['one', 'four', 'two', 'three']

    Args:
        paths: A file, a pattern such as `"data/*.tar"` (or `"data/**/*.tar"`, for folders in it
            too), or a list of these. The files of a pattern are sorted by name.
        parts: The number of parts of each file, equal in bytes; None for whole files. Choose it for
            the largest run, as `lanes`: other parts mean another order.

    Raises:
        TypeError: A path is neither a str nor an `os.PathLike`, or there is none.
        ValueError: A compressed file (`.gz`) is to be read in parts.
        FileNotFoundError: A file does not exist, or a pattern has none.
    """
    return Pipeline(file_lists.files(paths, parts))
