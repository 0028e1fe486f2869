"""`FileReader`: read the files that paths, folders and patterns name, or a part of one file."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

from jreader.readers import Node, set_fields
from jreader.readers.credentials import masked
from jreader.readers.declarations import convert_fields, declared, declared_names
from jreader.sources.file_checks import (
    FileNode,
    check_paths,
    is_file,
    is_folder,
    path_text,
    state_of,
)
from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.files.file_parts import FilePart, Which, part_in
from jreader.sources.files.index_cache import FileIndex, kept
from jreader.sources.files.set_indices import MANY, SetIndex, set_index
from jreader.sources.files.stored_files import Latest, files_of
from jreader.sources.remote import is_remote, remote_matches

Paths: TypeAlias = "str | os.PathLike[str] | FilePart | Sequence[str | os.PathLike[str]]"
"""A file, a folder, a pattern such as `"data/*.tar"` or `"data/{0..9}.tar"`, or a list of these;
also remote ones, as in `"s3://bucket/data/*.tar"`; or, if a format can be read in parts, one of
`files(paths, parts=)`."""
_BRACES = re.compile(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}")
T = TypeVar("T")


def files_named(
    call: str, paths: Any, suffixes: tuple[str, ...], *, remote: bool = True
) -> tuple[str, ...]:
    """Return the files that paths name, those of each folder or pattern sorted by name.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("b.tar", "a.tar", "notes.txt"):
    ...         _ = Path(folder, name).write_bytes(b"")
    ...     [Path(path).name for path in files_named("tar(paths)", folder, (".tar",))]
    ['a.tar', 'b.tar']

    Args:
        call: The call, for errors.
        paths: A file, a folder, a pattern, or a list of these.
        suffixes: The suffixes of files in a folder; () if folders are not allowed.
        remote: Whether remote files are allowed.

    Raises:
        TypeError: There is no path, or one is neither a str nor a path.
        ValueError: A file is remote, and must not be.
        FileNotFoundError: A path names no file, or a folder or a pattern has none.
    """
    files = tuple(
        file for path in _each_path(paths) for file in _files_of_path(call, path, suffixes, remote)
    )
    return check_paths(call, files, remote=remote)


def _each_path(paths: Any) -> Iterator[Any]:
    """Yield the paths of a list, which may contain lists, as `*paths` does."""
    if isinstance(paths, (list, tuple)):
        for path in paths:
            yield from _each_path(path)
    else:
        yield paths


def _files_of_path(call: str, given: Any, suffixes: tuple[str, ...], remote: bool) -> Iterator[Any]:
    if isinstance(given, FilePart):
        raise TypeError(
            f"{call} reads whole files, or, in some formats, one part of a file by itself, and was "
            f"given {given}: give the names of whole files, such as those of files(paths) without "
            f"parts=."
        )
    path = path_text(given)
    here = path is not None and (remote or not is_remote(path))
    for each in braces_expanded(given):
        matches = matching(call, os.fspath(each), suffixes) if here else None
        yield from [each] if matches is None else matches  # `check_paths` raises the error


def braces_expanded(given: Any) -> list[Any]:
    """Expand braces in a path, in order; a path without braces is returned unchanged.

    >>> braces_expanded("a-{08..10}.tar"), braces_expanded("{train,test}/x")
    (['a-08.tar', 'a-09.tar', 'a-10.tar'], ['train/x', 'test/x'])
    """
    path = path_text(given)
    found = _BRACES.search(path) if path is not None else None
    if found is None or path is None or state_of(path) is not None:
        return [given]
    first, last, words = found.groups()
    choices = words.split(",") if words else _numbers_between(first, last)
    begin, end = path[: found.start()], path[found.end() :]
    every = [each for choice in choices for each in braces_expanded(f"{begin}{choice}{end}")]
    return list(dict.fromkeys(every))  # nested braces may repeat paths


def _numbers_between(first: str, last: str) -> list[str]:
    padded = any(len(end) > 1 and end[0] == "0" for end in (first, last))
    width = max(len(first), len(last)) if padded else 0
    low, high = int(first), int(last)
    step = 1 if low <= high else -1
    return [f"{number:0{width}}" for number in range(low, high + step, step)]


def matching(call: str, path: str, suffixes: tuple[str, ...]) -> list[str] | None:
    """Return the files of a folder or pattern, sorted; None if the path is neither.

    Raises:
        FileNotFoundError: There are none.
        OSError: They are remote, and cannot be reached.
    """
    found = (remote_matches if is_remote(path) else _matches_here)(path, suffixes)
    if found is None:
        return None
    if not found:
        raise _none_found(call, path, suffixes)
    return sorted(found)


def _matches_here(path: str, suffixes: tuple[str, ...]) -> list[str] | None:
    """Return the files of a local folder or pattern; None if the path is neither."""
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
    """Return paths as a user would type them; of many, the first and the last; or a file part.

    >>> written(("a",)), written(("a", "b")), written(("a",) * 9)
    ("'a'", "['a', 'b']", "['a', ..., 'a']")
    """
    if part is not None:
        return repr(FilePart(masked(paths[0]), *part))
    few = paths if len(paths) < 5 else (paths[0], paths[-1])
    shown = [repr(masked(path)) for path in few]
    if len(paths) == 1:
        return shown[0]
    return f"[{', '.join(shown if few is paths else [shown[0], '...', shown[1]])}]"


class FileReader(FileNode[T]):
    """Read the files that paths, folders and patterns name.

    The `__init__` of a format has the arguments that users type, and passes them to `keep`.

    Attributes:
        call: The call, for errors.
        suffixes: The suffixes of files in a folder.
        part: Which part of its only file it reads, if the format allows; None for whole files.
    """

    shown_call: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()
    paths: tuple[str, ...]
    part: Which | None = None

    def keep(self, paths: Paths | tuple[Paths, ...], **given: Any) -> None:
        """Set the fields, each converted by its declared check; opens no files.

        Raises:
            TypeError: A path is neither a str nor an `os.PathLike`, or another argument is invalid.
            FileNotFoundError: A path names no file, or a folder or a pattern has none.
        """
        if "part" in declared_names(self):
            paths, given["part"] = part_in(paths)
        given["paths"] = files_named(self.shown_call, paths, self.suffixes)
        set_fields(self, **given)
        convert_fields(self)

    @property
    def file_part(self) -> FilePart | None:
        """The part of its only file that it reads; None for whole files."""
        return None if self.part is None else FilePart(self.paths[0], *self.part)

    @cached_property
    def files(self) -> Latest[ByteFile]:
        """The files, in their state when first checked."""
        return files_of(self.paths, self._first_seen, getattr(self, "store", None))

    def found_in_files(self, index: FileIndex) -> SetIndex:
        """Return the index of each file, cached per file; for many files, in one index."""
        if len(self.paths) < MANY:
            return SetIndex.of_parts(kept(index, list(self.files)))
        return set_index(index, self.paths, self._first_seen, self.files)

    def shown(self) -> dict[str, Any]:
        """Return the arguments after the paths, as a user would type them."""
        return typed_arguments(self)

    def __repr__(self) -> str:
        """Return the call that makes this reader; of many files, the first and the last."""
        return typed_call(self, written(self.paths, self.part), self.shown())


def typed_call(node: Node[Any], data: str, arguments: Mapping[str, Any]) -> str:
    """Return the call that makes this reader, as a user would type it.

    `data` is inserted as it is: `written` masks the credentials of paths.
    """
    more = [f"{name}={value!r}" for name, value in arguments.items()]
    return f"{type(node).__name__}({', '.join([data, *more])})"


def typed_arguments(node: Node[Any]) -> dict[str, Any]:
    """Return the arguments that a user gave and that affect what is read, except the data."""
    found = dict[str, Any]()
    for field in declared(node):
        value = getattr(node, field.name)
        if value in (None, field.default, {}):
            continue
        if field.name not in ("path", "paths", "part", "dataset", "store"):
            name = "columns" if field.name == "names" else field.name
            found[name] = list(value) if isinstance(value, tuple) else value
    return found
