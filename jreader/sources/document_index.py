"""Where documents end in files of tokens: found in parallel, and kept in the cache folder.

A file has an index of its own, whose name says what it was made of: the path, the size and the time
of the last change of the file, the dtype, and the token that ends documents. So a file that has
changed gets a new one. It is written under another name first, and an index that is not whole is
made anew: neither a kill nor a second process that makes the same index does harm. Where the folder
cannot be written, the index is found again by each process, as it is for files that are soon read.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from jreader.readers.planes import Array
from jreader.sources.cache_folders import cache_folder
from jreader.sources.file_checks import changed

_AT_ONCE = 1 << 24  # bytes that a thread looks through in one go
_WORTH = 1 << 24  # bytes of all files: less are looked through in 10 ms


@dataclass(frozen=True)
class Tokens:
    """The tokens of a file, and how its documents are told apart.

    Attributes:
        path: The file.
        first: The byte at which its tokens begin.
        count: How many tokens it has.
        dtype: The dtype of the tokens.
        leads: Whether `eos` begins each document, as in files of llm.c, instead of ending it.
    """

    path: str
    first: int
    count: int
    dtype: np.dtype[np.generic]
    leads: bool = False


def document_offsets(files: Sequence[Tokens], eos: int) -> list[Array]:
    """For each file, the tokens at which its documents begin, and how many tokens it has.

    Raises:
        DamagedData: A file became shorter while it was read.
    """
    keep = sum(file.count * file.dtype.itemsize for file in files) >= _WORTH
    names = [_name(file, eos) if keep else "" for file in files]
    pairs = zip(names, files, strict=True)
    # a map would hold a file descriptor for each of many files
    kept = [_kept(name, file, mapped=len(files) == 1) if keep else None for name, file in pairs]
    missing = [number for number, offsets in enumerate(kept) if offsets is None]
    found = _found([files[number] for number in missing], eos)
    for number, offsets in zip(missing, found, strict=True):
        kept[number] = offsets
        if keep:
            _keep(names[number], offsets)
    return [offsets for offsets in kept if offsets is not None]


def _name(file: Tokens, eos: int) -> str:
    """The name of the index of a file: what it is of, and of which state of the file."""
    seen = os.stat(file.path)  # noqa: PTH116  # 1,000 files: a Path costs three times as much
    of = f"{os.path.realpath(file.path)} {file.first} {file.dtype.str} {eos} {file.leads}"
    key = blake2b(of.encode(errors="surrogateescape"), digest_size=12).hexdigest()
    return f"{key}-{seen.st_size}-{seen.st_mtime_ns}.npy"


def _folder() -> Path:
    return cache_folder() / "documents"


def _kept(name: str, file: Tokens, *, mapped: bool) -> Array | None:
    """The index that was kept; None if there is none, or it is not whole."""
    try:
        kept = np.asarray(np.load(_folder() / name, mmap_mode="r" if mapped else None))
    except (OSError, ValueError, EOFError):
        return None
    whole = kept.dtype == np.int64 and kept.ndim == 1 and len(kept) > 1
    return kept if whole and kept[0] == 0 and kept[-1] == file.count else None


def _keep(name: str, offsets: Array) -> None:
    folder = _folder()
    temporary = folder / f".{name}.{secrets.token_hex(8)}"
    with suppress(OSError):  # it is found again by the next process
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as out:
                np.save(out, offsets)
            temporary.replace(folder / name)
        finally:
            temporary.unlink(missing_ok=True)
        for old in folder.glob(f"{name.partition('-')[0]}-*.npy"):
            if old.name != name:  # of an earlier state of the file
                old.unlink(missing_ok=True)


def _found(files: Sequence[Tokens], eos: int) -> Iterator[Array]:
    """The offsets of each file; the memory that it takes is a part of a file for each thread."""
    parts = [_parts(file) for file in files]
    tasks = [(file, part) for file, some in zip(files, parts, strict=True) for part in some]
    threads = min(os.cpu_count() or 1, 8, max(len(tasks), 1))
    with ThreadPoolExecutor(threads, "jreader documents") as executor:
        found = executor.map(lambda task: _ends(task[0], task[1], eos), tasks)
        for file, some in zip(files, parts, strict=True):
            ends = [next(found) for _ in some]
            yield np.concatenate([[0], *ends, [] if _ended(ends, file) else [file.count]]).astype(
                np.int64
            )


def _parts(file: Tokens) -> list[range]:
    step = _AT_ONCE // file.dtype.itemsize
    return [range(low, min(low + step, file.count)) for low in range(0, file.count, step)]


def _ends(file: Tokens, part: range, eos: int) -> Array:
    """The tokens of a part at which documents end and others may begin."""
    tokens = np.fromfile(
        file.path, file.dtype, len(part), offset=file.first + part.start * file.dtype.itemsize
    )
    if len(tokens) < len(part):
        raise changed(file.path, f"ended at token {part.start + len(tokens):,}")
    at = np.flatnonzero(tokens == eos) + part.start
    if not file.leads:
        return at + 1
    return at[1:] if len(at) and at[0] == 0 else at


def _ended(ends: Sequence[Array], file: Tokens) -> bool:
    """Whether the last document ends with the file."""
    return next((each[-1] == file.count for each in reversed(ends) if len(each)), False)
