"""Where documents end in files of tokens: found in parallel, and kept in the cache folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jreader.readers.columns import Array
from jreader.sources.file_checks import changed
from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.files.kept_indices import in_threads, kept
from jreader.sources.files.opening import open_file

_AT_ONCE = 1 << 24  # bytes that a thread looks through in one go


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


def document_offsets(files: Sequence[Tokens], eos: int | None) -> list[Array]:
    """For each file, the tokens at which its documents begin, and how many tokens it has.

    Without an `eos`, a file is one document.

    Raises:
        DamagedData: A file became shorter while it was read.
    """
    if eos is None:
        return [np.array([0, file.count]) for file in files]
    every = {file.path: file for file in files}

    def find(opened: ByteFile) -> Array:
        file = every[opened.path]
        ends = in_threads(lambda part: _ends(file, part, eos), _token_ranges(file))
        last = [] if _ended(ends, file) else [file.count]
        return np.concatenate([[0], *ends, last]).astype(np.int64)

    def fits(opened: ByteFile, index: Array) -> bool:
        whole = index.ndim == 1 and len(index) > 1
        return bool(whole and index[0] == 0 and index[-1] == every[opened.path].count)

    asked = f"{files[0].dtype.str} {eos}" if files else ""
    return kept("documents", [open_file(file.path) for file in files], find, fits, asked=asked)


def _token_ranges(file: Tokens) -> list[range]:
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
