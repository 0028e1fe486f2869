"""The files that paths, folders, patterns and lists of them stand for, in a fixed order."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from jreader.readers.credentials import masked
from jreader.sources.far_systems import far_matches, is_far
from jreader.sources.file_checks import check_paths, is_file, is_folder, state_of
from jreader.sources.files.file_parts import FilePart, Which

Paths: TypeAlias = "str | os.PathLike[str] | FilePart | Sequence[str | os.PathLike[str]]"
"""A file, a folder, a pattern such as `"data/*.tar"` or `"data/{0..9}.tar"`, or a list of these;
also elsewhere, as in `"s3://bucket/data/*.tar"`; or, where a format is read in parts, one of
`files(paths, parts=)`."""

_BRACES = re.compile(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}")


def files_named(
    call: str, paths: Any, suffixes: tuple[str, ...], *, far: bool = True
) -> tuple[str, ...]:
    """The files that are meant, those of each folder or pattern sorted by name.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("b.tar", "a.tar", "notes.txt"):
    ...         _ = Path(folder, name).write_bytes(b"")
    ...     [Path(path).name for path in files_named("tar(paths)", folder, (".tar",))]
    ['a.tar', 'b.tar']

    Args:
        call: The call, as errors name it.
        paths: A file, a folder, a pattern, or a list of these.
        suffixes: What the names of the files of a folder end in; none where no folder is meant.
        far: Whether files elsewhere can be read, too.

    Raises:
        TypeError: There is no path, or one is neither a str nor a path.
        ValueError: A file is elsewhere, and must not be.
        FileNotFoundError: A path names no file, or a folder or a pattern has none.
    """
    files = tuple(
        file for path in _each_path(paths) for file in _files_of_path(call, path, suffixes, far)
    )
    return check_paths(call, files, far=far)


def _each_path(paths: Any) -> Iterator[Any]:
    """The paths in a list, which may hold lists, as `*paths` does."""
    if isinstance(paths, (list, tuple)):
        for path in paths:
            yield from _each_path(path)
    else:
        yield paths


def _files_of_path(call: str, given: Any, suffixes: tuple[str, ...], far: bool) -> Iterator[Any]:
    if isinstance(given, FilePart):
        raise TypeError(
            f"{call} reads whole files, or, in some formats, one part of a file by itself, and was "
            f"given {given}: give the names of whole files, such as those of files(paths) without "
            f"parts=."
        )
    path = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
    here = isinstance(path, str) and (far or not is_far(path))
    for each in braces_expanded(given):
        matches = matching(call, os.fspath(each), suffixes) if here else None
        yield from [each] if matches is None else matches  # `check_paths` says what it is


def braces_expanded(given: Any) -> list[Any]:
    """The paths that braces stand for, in that order; what is given itself if it has none.

    >>> braces_expanded("a-{08..10}.tar"), braces_expanded("{train,test}/x")
    (['a-08.tar', 'a-09.tar', 'a-10.tar'], ['train/x', 'test/x'])
    """
    path = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
    found = _BRACES.search(path) if isinstance(path, str) else None
    if found is None or not isinstance(path, str) or state_of(path) is not None:
        return [given]
    first, last, words = found.groups()
    choices = words.split(",") if words else _numbers_between(first, last)
    begin, end = path[: found.start()], path[found.end() :]
    every = [each for choice in choices for each in braces_expanded(f"{begin}{choice}{end}")]
    return list(dict.fromkeys(every))  # of braces in braces, some come twice


def _numbers_between(first: str, last: str) -> list[str]:
    padded = any(len(end) > 1 and end[0] == "0" for end in (first, last))
    width = max(len(first), len(last)) if padded else 0
    low, high = int(first), int(last)
    step = 1 if low <= high else -1
    return [f"{number:0{width}}" for number in range(low, high + step, step)]


def matching(call: str, path: str, suffixes: tuple[str, ...]) -> list[str] | None:
    """The files of a folder or a pattern, in order; None if the path is neither.

    Raises:
        FileNotFoundError: There are none.
        OSError: They are elsewhere, and cannot be reached.
    """
    found = (far_matches if is_far(path) else _matches_here)(path, suffixes)
    if found is None:
        return None
    if not found:
        raise _none_found(call, path, suffixes)
    return sorted(found)


def _matches_here(path: str, suffixes: tuple[str, ...]) -> list[str] | None:
    """The files of a folder or a pattern of this machine; None if the path is neither."""
    if suffixes and is_folder(path):
        return [each.path for each in os.scandir(path) if each.name.endswith(suffixes)]
    if is_file(path) or not glob.has_magic(path):
        return None
    every = glob.glob(path, recursive=True)  # noqa: PTH207  # of any root
    return [each for each in every if not is_folder(each)]


def _none_found(call: str, path: str, suffixes: tuple[str, ...]) -> FileNotFoundError:
    folder = f"a folder with {' or '.join(suffixes)} files, " if suffixes else ""
    some = suffixes[0] if suffixes else ".tar"
    return FileNotFoundError(
        f"{call} finds no file in {masked(path)!r}: give {folder}a pattern such as 'data/*{some}' "
        f"(or 'data/**/*{some}', for folders in it too), or a list of paths. The program runs in "
        f"{Path.cwd()}."
    )


def written(paths: tuple[str, ...], part: Which | None = None) -> str:
    """Paths as a user would type them; of many, the first and the last; or a part of a file.

    >>> written(("a",)), written(("a", "b")), written(("a",) * 9)
    ("'a'", "['a', 'b']", "['a', ..., 'a']")
    """
    if part is not None:
        return repr(FilePart(masked(paths[0]), *part))
    first, *more = map(repr, map(masked, paths))
    if not more:
        return first
    return f"[{', '.join([first, *more] if len(more) < 4 else [first, '...', more[-1]])}]"
