"""Indices of data sets of many files: one index file for all, cached like that of a single file.

It is a mapped int64 array, which all processes of a machine share: the state of each file (its size
and modification time), hashes of the names, and the contents found in each. Its own name is a hash
of the file names. When files change, only these are scanned again; and as the last indices of a
folder are kept, a data set that grew is scanned only for new files. It is stored in the folder
`.jreader` beside the files, if that exists and is writable, for all hosts that read them (`jreader
index` creates it); else in the cache folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jreader.progress import Bar
from jreader.readers.columns import Array, offsets_of
from jreader.readers.credentials import masked
from jreader.sources.file_checks import States, number_of
from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.files.index_cache import (
    FileIndex,
    cache_folder,
    in_threads,
    load_index,
    remove_unused,
    save_index,
)
from jreader.sources.files.stored_files import Latest
from jreader.sources.remote import remote_among

MANY = 256
"""The number of files from which on a data set has one index."""

BESIDE = ".jreader"
"""The folder beside the files that holds their indices, if it exists."""

SETS = "sets"
"""The subfolder of the cache folder for the other indices."""

_CHUNK = 64  # files that a thread scans in one task
_REMOTE_THREADS = 32  # threads that scan remote files, which are slow
_SIBLINGS = 8  # indices to keep per folder: the most recently used
_UNKNOWN = -1  # the state of a file whose index is not trusted
_NOTHING = np.zeros(0, np.int64)


def folder_beside(paths: Sequence[str]) -> Path | None:
    """Return the folder beside files that may hold their index; None for remote files.

    >>> str(folder_beside(["/data/a/1.tar", "/data/b/1.tar"]))
    '/data/.jreader'
    """
    return None if remote_among(paths) else Path(shared_folder(paths), BESIDE).absolute()


def shared_folder(paths: Sequence[str]) -> str:
    """Return the folder that contains all files, judging by their names."""
    low, high = min(paths), max(paths)
    differ = (at for at, (one, other) in enumerate(zip(low, high, strict=False)) if one != other)
    return low[: low.rfind("/", 0, next(differ, len(low))) + 1]


class SetIndex(NamedTuple):
    """The contents found in each file of a data set.

    Attributes:
        values: The concatenated contents.
        begins: Where those of each file begin, and where the last ones end.
    """

    values: Array
    begins: Array

    @classmethod
    def of_parts(cls, parts: Sequence[Array]) -> SetIndex:
        """Concatenate the contents found in each file."""
        values = parts[0] if len(parts) == 1 else np.concatenate([_NOTHING, *parts])
        return cls(values, offsets_of([*map(len, parts)]))


def set_index(
    index: FileIndex, paths: Sequence[str], seen: States, files: Latest[ByteFile]
) -> SetIndex:
    """Return the index of a data set: from the cache, or found and cached.

    Args:
        index: Describes the index of each file.
        paths: The names of the files.
        seen: Their states when first checked.
        files: The files.

    Raises:
        DamagedData: `find` raised it; the error is that of the first such file in order. Contents
            found before are cached.
    """
    place, states = _IndexFiles(index, paths), seen.identities()
    parts = dict[int, Array]()
    for path, kept in place.kept():
        if path.name.endswith(place.name) and np.array_equal(kept.states, states):
            if path.parent != place.folders[0][0]:  # from now on it is shared
                place.save(kept)
            return kept.found
        parts |= kept.unchanged(place.hashes, states)
    missing, good = [at for at in range(len(paths)) if at not in parts], states.copy()
    good[:, missing] = _UNKNOWN

    def look(some: Sequence[int]) -> None:
        for at in some:
            file = files[at]
            parts[at] = index.of(file)
            if index.fits(file, parts[at]):
                good[:, at] = states[:, at]
            file.close()
            bar.add()

    try:
        with Bar(f"finding {index.kind}", len(missing), " files") as bar:
            chunks = [missing[at : at + _CHUNK] for at in range(0, len(missing), _CHUNK)]
            in_threads(look, chunks, threads=_REMOTE_THREADS if seen.remote else 0)
    finally:
        found = SetIndex.of_parts([parts.get(at, _NOTHING) for at in range(len(paths))])
        place.save(_StoredIndex(good, place.hashes, found))
    return found


class _StoredIndex(NamedTuple):
    """A stored index: states of files, hashes of their names, and the contents found."""

    states: Array
    hashes: Array
    found: SetIndex

    def written(self) -> Array:
        parts = [self.states.ravel(), self.hashes, np.diff(self.found.begins), self.found.values]
        return np.concatenate([[len(self.hashes)], *parts])

    @classmethod
    def read(cls, path: Path) -> _StoredIndex | None:
        """Load a `written` index; None if the file is missing or invalid."""
        written = load_index(path, mapped=True)
        if written is None or written.ndim > 1:
            return None
        many = int(written[:1].sum())
        end = 1 + 4 * many
        if not 1 < end <= len(written):
            return None
        head, found = written[1:end].reshape(4, many), written[end:]
        begins = offsets_of(head[3])
        if head[3].min() < 0 or begins[-1] != len(found):
            return None
        return cls(head[:2], head[2], SetIndex(found, begins))

    def unchanged(self, hashes: Array, states: Array) -> dict[int, Array]:
        """Return the contents of files whose names and states are unchanged, by file number."""
        order = self.hashes.argsort()
        at = order[np.searchsorted(self.hashes, hashes, sorter=order).clip(0, len(order) - 1)]
        same = (self.hashes[at] == hashes) & (self.states[:, at] == states).all(axis=0)
        begins, ends = self.found.begins[at].tolist(), self.found.begins[at + 1].tolist()
        return {n: self.found.values[begins[n] : ends[n]] for n in np.flatnonzero(same).tolist()}


class _IndexFiles:
    """The places of a data set's index.

    Attributes:
        name: The suffix of its file name, a hash of the file names.
        folders: The candidate folders, each with the name prefix that indices of the data set's
            folder share there; the first that is writable is used.
    """

    def __init__(self, index: FileIndex, paths: Sequence[str]) -> None:
        shared, beside = shared_folder(paths), folder_beside(paths)
        self._names = [masked(path) if beside is None else path[len(shared) :] for path in paths]
        blob = "\0".join(self._names).encode(errors="surrogateescape")
        self.name = f"-{blake2b(blob, digest_size=12).hexdigest()}.npy"
        kin = f"{index.kind}.{number_of(index.asked) % (1 << 64):016x}"
        folder = masked(shared) if beside is None else os.path.realpath(beside)
        of = number_of(folder) % (1 << 64)
        self.folders = [(cache_folder() / SETS, f"{kin}.{of:016x}")]
        if beside is not None and beside.is_dir():
            self.folders.insert(0 if os.access(beside, os.W_OK) else 1, (beside, kin))

    @cached_property
    def hashes(self) -> Array:
        """Hashes of the names."""
        return np.fromiter(map(number_of, self._names), np.int64, len(self._names))

    def kept(self) -> Iterator[tuple[Path, _StoredIndex]]:
        """Yield the index of files with these names; then those of data sets in the same folder."""
        own = (folder / f"{begin}{self.name}" for folder, begin in self.folders)
        kin = (path for folder, begin in self.folders for path in folder.glob(f"{begin}-*.npy"))
        for path in chain(own, kin):
            if kept := _StoredIndex.read(path):
                yield path, kept

    def save(self, kept: _StoredIndex) -> None:
        """Save an index in the first writable folder; unused ones are removed later."""
        for folder, begin in self.folders:
            with suppress(OSError):
                save_index(folder / f"{begin}{self.name}", kept.written())
                remove_unused(folder, [begin], _SIBLINGS)
                return
