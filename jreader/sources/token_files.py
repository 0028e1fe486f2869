r"""`tokens`: files of token ids as they are written for training, as documents.

Four layouts are told apart by what a file begins with, and by the `.idx` beside it:

- `.npy`: one axis of integers.
- llm.c: 256 int32 before the tokens, of which the first three are 20240520 (tokens are uint16) or
  20240801 (uint32), the version (1 or 7), and the number of tokens.
- Megatron (and fairseq): a `.bin` with nothing but tokens, and an `.idx` that begins with
  `MMIDIDX\0\0`, and says where each sequence begins; that of Megatron says too which sequences
  begin documents, and may end with a byte for each sequence, its mode.
- Anything else is tokens from the first byte to the last, as nanoGPT writes them.

Only the beginnings of files are read before a document is asked for (an `.idx` as a whole), so that
1,000 files and 10^10 tokens begin in milliseconds. jreader finds on several threads where documents
end (at a token), and keeps that in the cache folder. The maps are in `lazy_maps.py`.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from jreader.errors import check_number
from jreader.readers import argument, op, set_fields
from jreader.readers.columns import Array
from jreader.readers.joined_columns import Joined
from jreader.readers.ragged import Ragged
from jreader.sources.columns import FileTable
from jreader.sources.file_checks import changed, damaged, is_file, path_text, reading, state_of
from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.files.file_readers import FileReader, braces_expanded
from jreader.sources.files.kept_indices import in_threads, kept
from jreader.sources.files.magic_numbers import foreign_format
from jreader.sources.files.stored_files import open_file
from jreader.sources.lazy_maps import LazyMap, ResidentBytes

_LLMC = {20240520: (1, "uint16"), 20240801: (7, "uint32")}  # magic number: version, dtype
_LLMC_HEAD = 1024  # bytes
_IDX_MAGIC = b"MMIDIDX\0\0"
_IDX = "the .idx of a .bin file, as Megatron writes it"
_IDX_HEAD = 26  # bytes: magic, version (8), dtype (1), number of sequences (8)
_IDX_DTYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}
_AT_ONCE = 1 << 24  # bytes that a thread looks through in one go


def _checked_dtype(call: str, dtype: Any) -> str:
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = np.dtype(object)
    if kind.kind not in "iu":
        raise ValueError(
            f"{call} needs an integer dtype, such as 'uint16', 'int32' or 'uint32', not {dtype!r}."
        )
    return str(kind.newbyteorder("=").name)


def _with_suffix(given: Any) -> Any:
    """The `.bin` file that its `.idx`, or a path without a suffix, stands for."""
    path = path_text(given)
    if path is None:
        return given  # `keep` says what it is
    if path.endswith(".idx"):
        return f"{path.removesuffix('.idx')}.bin"
    return f"{path}.bin" if state_of(path) is None and is_file(f"{path}.bin") else given


@op
class tokens(FileReader[Array], FileTable[Array]):
    """A reader of the documents in files of token ids; the files are mapped into memory.

    It reads flat files as nanoGPT writes them, those of llm.c (which have a header), the `.bin` and
    `.idx` of Megatron, and `.npy`. Each sample is a document, an array of its tokens (a read-only
    view of the file). The `.idx`, or the token `eos`, says where documents begin and end; without
    both, each file is one document.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.array([5, 6, 0, 7, 0, 8], np.uint16).tofile(f"{folder}/train.bin")
    ...     documents = tokens(f"{folder}/train.bin", eos=0)
    ...     len(documents), [document.tolist() for document in documents()]
    (3, [[5, 6, 0], [7, 0], [8]])

    For training, `windows` cuts them into samples of one size (over all documents as one stream, as
    nanoGPT does), and `pack` puts whole documents together.

    The first pass with an `eos` looks through the files, on several threads; of 16 MB or more,
    what it finds is kept in the folder `jreader/documents` of `$XDG_CACHE_HOME` or `~/.cache`, for
    as long as the files do not change. Some 300 MB of the files are resident at a time, at most.

    Args:
        paths: A file, a folder (its `.bin` and `.npy` files), a pattern such as
            `"data/train_*.bin"`, or a list of these. The files of a folder or pattern are sorted by
            name. Of Megatron's two files, either one is enough, or the path without a suffix. No
            document goes on in the next file.
        dtype: The dtype of the tokens: an integer type, which only flat files do not say by
            themselves.
        eos: The token that ends a document, and is its last one (GPT-2 has 50256); in files of
            llm.c, it is the first token of each document. Documents of an `.idx` need none.

    Raises:
        TypeError: A path is neither a str nor a path, or `eos` is not a whole number.
        ValueError: The dtype is not an integer type, or `eos` is not one of its values; or, when
            the documents are first asked for, a file says that it has another dtype.
        FileNotFoundError: A file does not exist, or a pattern or a folder has none.
        DamagedData: When a pass begins: a file is empty, truncated, of another format (also text,
            a pickle, Arrow or safetensors, by its first bytes or its suffix), does not fit its
            `.idx`, or has changed since it was first read.
    """

    shown_call = "tokens(paths, dtype, eos)"
    suffixes = (".bin", ".npy")
    far = False
    paths: tuple[str, ...]
    dtype: str = argument(_checked_dtype, default="uint16")
    eos: int | None = None

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        dtype: Any = "uint16",
        eos: int | None = None,
    ) -> None:
        several = paths if isinstance(paths, (list, tuple)) else [paths]
        each = [path for given in several for path in braces_expanded(given)]
        self.keep(list(map(_with_suffix, each)), dtype=dtype)
        set_fields(self, paths=tuple(path for path in self.paths if not path.endswith(".idx")))
        if eos is not None:
            eos, most = check_number(f"eos of {self.shown_call}", eos), np.iinfo(self.dtype).max
            if eos > most:
                raise ValueError(
                    f"{self.shown_call}: eos={eos} does not fit {self.dtype}, which ends at {most}."
                )
        set_fields(self, eos=eos)

    def opened(self) -> Any:
        """The documents, a `Ragged`; only the beginnings of files are read, and each `.idx`."""
        kind = np.dtype(self.dtype)
        files = [_tokens_of(path, kind) for path in self.paths]
        every = self._offsets_in(files)
        resident = ResidentBytes(sum(file.count * kind.itemsize for file in files))
        maps = [
            LazyMap(file.path, file.first, file.count, kind, resident, seen)
            for file, seen in zip(files, self._first_seen, strict=False)
        ]
        if len(maps) == 1:
            return Ragged(maps[0], every[0])
        begins = np.cumsum([0, *(file.count for file in files)])
        shifted = [at[:-1] + begin for at, begin in zip(every, begins, strict=False)]
        return Ragged(Joined(maps), np.concatenate([*shifted, begins[-1:]]))

    def _offsets_in(self, files: Sequence[Tokens]) -> list[Array]:
        """Where the documents of each file begin: by its `.idx`, or by `eos`."""
        pairs = list(zip(files, self._indices, strict=True))
        split = iter(document_offsets([file for file, index in pairs if index is None], self.eos))
        return [
            next(split) if index is None else _documents_of(file, index) for file, index in pairs
        ]

    @property
    def _named(self) -> tuple[str, ...]:
        return (*self.paths, *(path for path in self._indices if path is not None))

    @cached_property
    def _indices(self) -> list[str | None]:
        """For each file, its `.idx`, if it has one."""
        beside = [f"{path.removesuffix('.bin')}.idx" for path in self.paths]
        return [
            index if path.endswith(".bin") and is_file(index) else None
            for path, index in zip(self.paths, beside, strict=True)
        ]


def _tokens_of(path: str, kind: np.dtype[Any]) -> Tokens:
    """Where the tokens of a file lie.

    Raises:
        DamagedData: The file is empty, truncated or of another format.
        ValueError: It has another dtype.
    """
    expected = f"a file of {kind} tokens"
    with io.FileIO(path) as file:
        size, head = os.fstat(file.fileno()).st_size, file.read(16)
        if head.startswith(np.lib.format.MAGIC_PREFIX):
            return _npy_tokens(path, kind)
    if not size:
        raise damaged(path, expected, "it is empty")
    magic, version, count = struct.unpack("<3i", head[:12].ljust(12, b"\0"))
    if magic in _LLMC:
        return _llmc(path, kind, size, magic, version, count)
    if said := foreign_format(path, kind.itemsize):
        raise damaged(path, expected, f"it is {said}")
    if size % kind.itemsize:
        last = size - size % kind.itemsize
        raise damaged(
            path, expected, f"it has {size:,} bytes, so the token at byte {last:,} is not whole"
        )
    return Tokens(path, 0, size // kind.itemsize, kind)


def _npy_tokens(path: str, kind: np.dtype[Any]) -> Tokens:
    expected = "a .npy file of one axis of token ids"
    with reading(path, expected), Path(path).open("rb") as file:
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        shape, _, dtype = read[np.lib.format.read_magic(file)](file)
        first, size = file.tell(), os.fstat(file.fileno()).st_size
    if len(shape) != 1 or not shape[0]:
        raise damaged(path, expected, f"it has the shape {shape}")
    if dtype != kind:
        raise _other_dtype(path, kind, str(dtype))
    _check_size(path, expected, size, first + shape[0] * kind.itemsize, f"{shape[0]:,} tokens")
    return Tokens(path, first, shape[0], kind)


def _llmc(
    path: str, kind: np.dtype[Any], size: int, magic: int, version: int, count: int
) -> Tokens:
    expected, (known, dtype) = "a file of tokens of llm.c", _LLMC[magic]
    if version != known:
        raise damaged(path, expected, f"byte 4 says version {version}, not {known}")
    if dtype != kind.name:
        raise _other_dtype(path, kind, dtype)
    needed = _LLMC_HEAD + max(count, 0) * kind.itemsize
    _check_size(path, expected, size, needed, f"byte 8 says {count:,} tokens")
    if count < 1:
        raise damaged(path, expected, f"byte 8 says that it has {count:,} tokens")
    return Tokens(path, _LLMC_HEAD, count, kind, leads=True)


def _documents_of(file: Tokens, path: str) -> Array:
    """The tokens at which the documents of an `.idx` begin, and how many there are.

    Raises:
        DamagedData: It is no `.idx`, or not that of the file.
        ValueError: It has another dtype.
    """
    index = np.fromfile(path, np.uint8)
    begin, many, marks = _idx_layout(path, index.data, file.dtype)
    sizes = np.frombuffer(index, "<i4", many, begin)
    pointers = np.frombuffer(index, "<i8", many, begin + 4 * many)
    each = file.dtype.itemsize
    ends = np.concatenate([[0], pointers + sizes * np.int64(each)])
    odd = (sizes < 0) | (pointers != ends[:-1])
    if odd.any():
        which = int(odd.argmax())
        seen = f"{sizes[which]:,} tokens from byte {pointers[which]:,} on"
        raise damaged(
            path, _IDX, f"sequence {which:,} has {seen}, and those before end at {ends[which]:,}"
        )
    offsets = ends // each
    if offsets[-1] != file.count:
        seen = f"it has {file.count:,} tokens, not {offsets[-1]:,}"
        raise damaged(file.path, f"the .bin of {path}", seen)
    if marks is None:
        return offsets
    at = np.frombuffer(index, "<i8", marks, begin + 12 * many)
    if not len(at) or at[0] != 0 or at[-1] != many or (np.diff(at) < 0).any():
        raise damaged(path, _IDX, f"its documents do not go from sequence 0 to {many:,} in order")
    return np.asarray(offsets[at])


def _idx_layout(path: str, index: memoryview, kind: np.dtype[Any]) -> tuple[int, int, int | None]:
    """Where the numbers of an `.idx` begin, how many sequences it has, and marks of documents."""
    head, size = bytes(index[: _IDX_HEAD + 8]), len(index)
    if not head.startswith(_IDX_MAGIC) or len(head) < _IDX_HEAD:
        raise damaged(path, _IDX, f"it begins with the bytes [{head[:9].hex(' ')}]")
    version, code, many = struct.unpack_from("<QBQ", head, len(_IDX_MAGIC))
    if version != 1:
        raise damaged(path, _IDX, f"byte 9 says version {version}, not 1")
    if code not in _IDX_DTYPES:
        raise damaged(path, _IDX, f"byte 17 has {code}, which is not an integer dtype")
    if _IDX_DTYPES[code] != kind.name:
        raise _other_dtype(path, kind, _IDX_DTYPES[code])
    if size == _IDX_HEAD + 12 * many:  # fairseq's, where each sequence is a document
        return _IDX_HEAD, many, None
    marks = int.from_bytes(head[_IDX_HEAD:], "little")
    needed = _IDX_HEAD + 8 + 12 * many + 8 * marks
    if size != needed + many:  # with modes
        _check_size(
            path, _IDX, size, needed, f"{many:,} sequences and {marks:,} marks of documents"
        )
    return _IDX_HEAD + 8, many, marks


def _check_size(path: str, expected: str, size: int, needed: int, said: str) -> None:
    if size != needed:
        raise damaged(
            path, expected, f"it has {size:,} bytes, and with {said} it would have {needed:,}"
        )


def _other_dtype(path: str, kind: np.dtype[Any], said: str) -> ValueError:
    return ValueError(
        f"{path} says that its tokens are {said}, and {tokens.shown_call} was told {kind}: type "
        f"tokens(..., dtype={said!r})."
    )


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
