r"""`tokens`: read files of token ids, as written for training, as documents.

Four layouts are recognized by the first bytes of a file, and by an `.idx` beside it:

- `.npy`: one axis of integers.
- llm.c: 256 int32 before the tokens; the first three are 20240520 (tokens are uint16) or 20240801
  (uint32), the version (1 or 7), and the number of tokens.
- Megatron (and fairseq): a `.bin` with nothing but tokens, and an `.idx` that begins with
  `MMIDIDX\0\0`, and says where each sequence begins; that of Megatron says too which sequences
  begin documents, and may end with a byte for each sequence, its mode.
- Anything else is tokens from the first byte to the last, as nanoGPT writes them.

Before the first document is read, only file headers are read (and `.idx` files whole), so 1,000
files with 10^10 tokens open in milliseconds. Several threads find where documents end (at a token);
this index is kept in the cache folder. `lazy_maps.py` has the maps.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from jreader.errors import check_number
from jreader.readers import argument, op, set_fields
from jreader.readers.columns import Array, ArrayColumn
from jreader.readers.joined_columns import ConcatArray
from jreader.readers.ragged import Ragged
from jreader.sources.columns import FileTable
from jreader.sources.file_checks import are_files, damaged, path_text, reading
from jreader.sources.files.block_store import Store, checked_block, checked_store
from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.files.file_readers import FileReader, braces_expanded
from jreader.sources.files.file_rows import FileRows, npy_header
from jreader.sources.files.index_cache import FileIndex, in_threads
from jreader.sources.files.magic_numbers import both_ends_read, foreign_format
from jreader.sources.files.set_indices import MANY, SetIndex
from jreader.sources.files.stored_files import open_file
from jreader.sources.lazy_maps import LazyMap, ResidentBytes
from jreader.sources.remote import is_remote

LLMC = {20240520: (1, "uint16"), 20240801: (7, "uint32")}  # magic number: version, dtype
LLMC_HEAD = 1024  # bytes
IDX_MAGIC = b"MMIDIDX\0\0"
_IDX = "the .idx of a .bin file, as Megatron writes it"
_IDX_HEAD = 26  # bytes: magic, version (8), dtype (1), number of sequences (8)
IDX_DTYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}
_CHUNK = 1 << 24  # bytes that a thread scans at a time


def _integer_dtype(call: str, dtype: Any) -> str:
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
    """Return the `.bin` file for its `.idx`, or for a path without a suffix."""
    path = path_text(given)
    if path is None:
        return given  # `keep` raises the error
    if path.endswith(".idx"):
        return f"{path.removesuffix('.idx')}.bin"
    return f"{path}.bin" if are_files([path, f"{path}.bin"]) == [False, True] else given


def _named_once(paths: list[Any]) -> list[Any]:
    """Return the files for the paths; drop an `.idx` whose `.bin` is listed too."""
    named = set(map(path_text, paths))
    return [file for path in paths if (file := _with_suffix(path)) == path or file not in named]


@op
class tokens(FileReader[Array], FileTable[Array]):
    """Read the documents in files of token ids, which are mapped into memory.

    It reads flat files like nanoGPT's, llm.c files (which have a header), Megatron's pairs of
    `.bin` and `.idx`, and `.npy` files. Each sample is a document, an array of its tokens (a
    read-only view of the file). The `.idx`, or the token `eos`, marks where documents begin and
    end; with neither, each file is one document.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.array([5, 6, 0, 7, 0, 8], np.uint16).tofile(f"{folder}/train.bin")
    ...     documents = tokens(f"{folder}/train.bin", eos=0)
    ...     len(documents), [document.tolist() for document in documents()]
    (3, [[5, 6, 0], [7, 0], [8]])

    For training, `windows` cuts them into samples of a fixed size (over all documents as one
    stream, as nanoGPT does), and `pack` combines whole documents.

    The first pass with an `eos` scans the files for the ends of documents, on several threads. For
    files of 16 MB or more, it caches what it found in `jreader/documents`, under `$XDG_CACHE_HOME`
    or `~/.cache`, until the files change. At most about 300 MB of the files are resident at a time.

    From remote files (`s3://`, `https://`), jreader fetches only the byte ranges that a batch's
    documents or windows need, and each `.idx` as a whole.

    Args:
        paths: A file, a folder (its `.bin` and `.npy` files), a pattern such as
            `"data/train_*.bin"`, or a list of these. The files of a folder or pattern are sorted by
            name. For Megatron, give either of its two files, or their path without a suffix. No
            document spans two files.
        dtype: The dtype of the tokens: an integer type. Used only for flat files; the other formats
            declare it.
        eos: The token that separates documents (50256 in GPT-2). It is the last token of each
            document, or, in llm.c files, the first. Not needed if there is an `.idx`.
        store: Caches blocks of remote files on disk (`Store`).
        block: The size of blocks for `shuffle(blocks=)` over documents or their `windows`, such as
            "4MB"; None for no blocks.

    Raises:
        TypeError: A path is neither a str nor an `os.PathLike`, or `eos` is not a whole number.
        ValueError: The dtype is not an integer type, `eos` is not one of its values, or `block` is
            not a size; or, when the documents are first read, a file declares another dtype.
        FileNotFoundError: A file does not exist, a pattern matches no files, or a folder contains
            none.
        DamagedData: When a pass begins: a file is empty, truncated, in another format (text,
            pickle, Arrow and safetensors, among others, are recognized by their first bytes or
            suffix), does not match its `.idx`, or has changed since it was first read.
    """

    shown_call = "tokens(paths, dtype, eos)"
    suffixes = (".bin", ".npy")
    paths: tuple[str, ...]
    dtype: str = argument(_integer_dtype, default="uint16")
    eos: int | None = None
    store: Store | None = argument(checked_store, default=None, cursor="never")
    block: int | None = argument(checked_block, default=None, named=True, cursor="never")

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        dtype: Any = "uint16",
        eos: int | None = None,
        *,
        store: Store | None = None,
        block: int | str | None = None,
    ) -> None:
        several = paths if isinstance(paths, (list, tuple)) else [paths]
        each = [path for given in several for path in braces_expanded(given)]
        self.keep(_named_once(each), dtype=dtype, store=store, block=block)
        set_fields(self, paths=tuple(path for path in self.paths if not path.endswith(".idx")))
        if eos is not None:
            eos, most = check_number(f"eos of {self.shown_call}", eos), np.iinfo(self.dtype).max
            if eos > most:
                raise ValueError(
                    f"{self.shown_call}: eos={eos} does not fit {self.dtype}, which ends at {most}."
                )
        set_fields(self, eos=eos)

    def opened(self) -> Any:
        """Return the documents, a `Ragged`; reads only the file headers, and each `.idx`."""
        every, begins = self._documents
        lasts = begins[1:] - 1
        counts = every[lasts]
        values = self._values(counts)
        for file in self.files if len(counts) < MANY else ():
            file.close()  # they are mapped
        if len(counts) == 1:
            return Ragged(values, every)
        firsts = np.repeat(np.cumsum(counts) - counts, np.diff(begins))
        return Ragged(values, np.delete(every + firsts, lasts[:-1]))

    @property
    def _documents(self) -> SetIndex:
        """Where the documents of each file begin (in tokens), and its number of tokens."""
        if not any(self._indices) and (self.eos is not None or len(self.paths) >= MANY):
            asked = f"{np.dtype(self.dtype).str} {self.eos}"
            return self.found_in_files(FileIndex("documents", self._look, self._fits, asked))
        open_all = in_threads if any(map(is_remote, self.paths)) else map
        pairs = list(zip(self.files, self._indices, strict=True))
        return SetIndex.of_parts(list(open_all(lambda pair: self._look(*pair), pairs)))

    def _look(self, file: ByteFile, beside: str | None = None) -> Array:
        """Return the entry of a file for `_documents`: by its `.idx`, or by `eos`."""
        found = _tokens_of(file, np.dtype(self.dtype))
        if beside is None:
            return _documents_in(found, self.eos)
        return _documents_of(found, open_file(beside, self.store))

    def _fits(self, file: ByteFile, index: Array) -> bool:
        whole = index.ndim == 1 and len(index) > 1 and index[0] == 0
        return bool(whole and index[-1] == _tokens_of(file, np.dtype(self.dtype)).count)

    def _values(self, counts: Array) -> ArrayColumn:
        """Return the tokens of all files: mapped, or read by ranges if remote.

        Args:
            counts: The number of tokens at the end of each file.
        """
        kind = np.dtype(self.dtype)
        sizes = self._first_seen.identities()[0][: len(counts)]
        spans = list(zip((sizes - counts * kind.itemsize).tolist(), counts.tolist(), strict=True))
        if any(map(is_remote, self.paths)):
            parts = zip(self.files, spans, strict=True)
            return FileRows([(file, *span) for file, span in parts], kind)
        resident = ResidentBytes(int(counts.sum()) * kind.itemsize)
        maps = [
            LazyMap(path, *span, kind, resident, seen)
            for path, span, seen in zip(self.paths, spans, self._first_seen, strict=False)
        ]
        return maps[0] if len(maps) == 1 else ConcatArray(maps)

    @property
    def _named(self) -> tuple[str, ...]:
        return (*self.paths, *(path for path in self._indices if path is not None))

    @cached_property
    def _indices(self) -> list[str | None]:
        """The `.idx` of each file, if it has one."""
        beside = [f"{path.removesuffix('.bin')}.idx" for path in self.paths]
        bins = [
            index for path, index in zip(self.paths, beside, strict=True) if path[-4:] == ".bin"
        ]
        there = dict(zip(bins, are_files(bins), strict=True))
        return [index if there.get(index) else None for index in beside]


def _tokens_of(file: ByteFile, kind: np.dtype[Any]) -> Tokens:
    """Locate the tokens of a file.

    Raises:
        DamagedData: The file is empty, truncated or of another format.
        ValueError: It has another dtype.
    """
    expected, path, size = f"a file of {kind} tokens", file.path, file.size
    looked_at = both_ends_read(file)
    head = looked_at.read(0, min(size, 16))
    if head.startswith(np.lib.format.MAGIC_PREFIX):
        return _npy_tokens(file, looked_at, kind)
    if not size:
        raise damaged(path, expected, "it is empty")
    magic, version, count = struct.unpack("<3i", head[:12].ljust(12, b"\0"))
    if magic in LLMC:
        return _llmc(file, kind, magic, version, count)
    if said := foreign_format(looked_at, kind.itemsize):
        raise damaged(path, expected, f"it is {said}")
    if size % kind.itemsize:
        last = size - size % kind.itemsize
        raise damaged(
            path, expected, f"it has {size:,} bytes, so the token at byte {last:,} is not whole"
        )
    return Tokens(file, 0, size // kind.itemsize, kind)


def _npy_tokens(file: ByteFile, looked_at: ByteFile, kind: np.dtype[Any]) -> Tokens:
    path, expected = file.path, "a .npy file of one axis of token ids"
    with reading(path, expected):
        shape, _, dtype, first = npy_header(looked_at)
    if len(shape) != 1 or not shape[0]:
        raise damaged(path, expected, f"it has the shape {shape}")
    if dtype != kind:
        raise _other_dtype(path, kind, str(dtype))
    _check_size(file, expected, first + shape[0] * kind.itemsize, f"{shape[0]:,} tokens")
    return Tokens(file, first, shape[0], kind)


def _llmc(file: ByteFile, kind: np.dtype[Any], magic: int, version: int, count: int) -> Tokens:
    path, expected, (known, dtype) = file.path, "a file of tokens of llm.c", LLMC[magic]
    if version != known:
        raise damaged(path, expected, f"byte 4 says version {version}, not {known}")
    if dtype != kind.name:
        raise _other_dtype(path, kind, dtype)
    needed = LLMC_HEAD + max(count, 0) * kind.itemsize
    _check_size(file, expected, needed, f"byte 8 says {count:,} tokens")
    if count < 1:
        raise damaged(path, expected, f"byte 8 says that it has {count:,} tokens")
    return Tokens(file, LLMC_HEAD, count, kind, leads=True)


def _documents_of(file: Tokens, beside: ByteFile) -> Array:
    """Return where the documents of an `.idx` begin (in tokens), and the number of tokens.

    Raises:
        DamagedData: It is not an `.idx`, or not that of the file.
        ValueError: It has another dtype.
    """
    path, index = beside.path, beside.read(0, beside.size)
    begin, many, marks = _idx_layout(beside, index, file.dtype)
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
        raise damaged(file.file.path, f"the .bin of {path}", seen)
    if marks is None:
        return offsets
    at = np.frombuffer(index, "<i8", marks, begin + 12 * many)
    if not len(at) or at[0] != 0 or at[-1] != many or (np.diff(at) < 0).any():
        raise damaged(path, _IDX, f"its documents do not go from sequence 0 to {many:,} in order")
    return np.asarray(offsets[at])


def _idx_layout(file: ByteFile, index: bytes, kind: np.dtype[Any]) -> tuple[int, int, int | None]:
    """Return where the numbers of an `.idx` begin, and how many sequences and marks it has."""
    path, head, size = file.path, index[: _IDX_HEAD + 8], len(index)
    if not head.startswith(IDX_MAGIC) or len(head) < _IDX_HEAD:
        raise damaged(path, _IDX, f"it begins with the bytes [{head[:9].hex(' ')}]")
    version, code, many = struct.unpack_from("<QBQ", head, len(IDX_MAGIC))
    if version != 1:
        raise damaged(path, _IDX, f"byte 9 says version {version}, not 1")
    if code not in IDX_DTYPES:
        raise damaged(path, _IDX, f"byte 17 has {code}, which is not an integer dtype")
    if IDX_DTYPES[code] != kind.name:
        raise _other_dtype(path, kind, IDX_DTYPES[code])
    if size == _IDX_HEAD + 12 * many:  # of fairseq, where each sequence is a document
        return _IDX_HEAD, many, None
    marks = int.from_bytes(head[_IDX_HEAD:], "little")
    needed = _IDX_HEAD + 8 + 12 * many + 8 * marks
    if size != needed + many:  # with modes
        _check_size(file, _IDX, needed, f"{many:,} sequences and {marks:,} marks of documents")
    return _IDX_HEAD + 8, many, marks


def _check_size(file: ByteFile, expected: str, needed: int, said: str) -> None:
    if file.size != needed:
        seen = f"it has {file.size:,} bytes, and with {said} it would have {needed:,}"
        raise damaged(file.path, expected, seen)


def _other_dtype(path: str, kind: np.dtype[Any], said: str) -> ValueError:
    return ValueError(
        f"{path} says that its tokens are {said}, and {tokens.shown_call} was given {kind}: type "
        f"tokens(..., dtype={said!r})."
    )


@dataclass(frozen=True)
class Tokens:
    """The tokens of a file, and how its documents end.

    Attributes:
        file: The file.
        first: The byte where its tokens begin.
        count: The number of tokens.
        dtype: The dtype of the tokens.
        leads: True if `eos` begins each document, as in files of llm.c, instead of ending it.
    """

    file: ByteFile
    first: int
    count: int
    dtype: np.dtype[np.generic]
    leads: bool = False


def _documents_in(file: Tokens, eos: int | None) -> Array:
    """Return where the documents of a file begin (in tokens), and its number of tokens.

    Without `eos`, a file is one document.

    Raises:
        DamagedData: The file shrank while it was read.
    """
    if eos is None:
        return np.array([0, file.count])
    ends = in_threads(lambda part: _ends(file, part, eos), _token_ranges(file))
    last = [] if _ended(ends, file) else [file.count]
    return np.concatenate([[0], *ends, last]).astype(np.int64)


def _token_ranges(file: Tokens) -> list[range]:
    step = _CHUNK // file.dtype.itemsize
    return [range(low, min(low + step, file.count)) for low in range(0, file.count, step)]


def _ends(file: Tokens, part: range, eos: int) -> Array:
    """Return the tokens of a part after which documents end."""
    each = file.dtype.itemsize
    data = file.file.read(file.first + part.start * each, len(part) * each)
    tokens = np.frombuffer(data, file.dtype)
    at = np.flatnonzero(tokens == eos) + part.start
    if not file.leads:
        return at + 1
    return at[1:] if len(at) and at[0] == 0 else at


def _ended(ends: Sequence[Array], file: Tokens) -> bool:
    """Return whether the last document ends with the file."""
    return next((each[-1] == file.count for each in reversed(ends) if len(each)), False)
