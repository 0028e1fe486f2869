"""`mds`: read the samples of MosaicML Streaming's shards by number.

The `index.json` of a folder describes its shards. A shard holds the number of its samples, the
bytes where each begins and where the last one ends (uint32, little-endian), a text, and the
samples. A sample holds the sizes of its variable-size columns (uint32), and then its columns.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cached_property, partial
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np

from jreader.readers import argument, op
from jreader.readers.columns import Array
from jreader.readers.credentials import masked
from jreader.readers.hashing import text_hash
from jreader.sources.file_checks import are_files, damaged, not_found_error, reading
from jreader.sources.files.block_store import Store
from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.files.file_readers import Paths, files_named
from jreader.sources.files.records import Parse, RecordFiles, Records
from jreader.sources.files.stored_files import open_file
from jreader.sources.tables.column_names import Names, checked_names

_INDEX, _SHARDS, _EXPECTED = "index.json", "an index of MDS shards", "an MDS shard"
_NUMBERS = [np.dtype(code).name for code in "bhiqBHIQefd"]
_TEXTS = {"str": bytes.decode, "json": json.loads, "str_int": int, "str_float": float}


@op
class mds(RecordFiles[Any]):
    r"""Read the samples of MDS shards, as MosaicML Streaming writes them.

    Samples are dicts of the columns, with the values that `StreamingDataset` gives: `int` is an
    int, `str` a str, `json` the parsed value, `int32` and the like NumPy scalars, and `ndarray` a
    read-only array. Columns of other encodings are the stored bytes: `jpeg` and `png` for
    `images.decode`, `pkl` for `pickle.loads`, which runs code in them. Neither torch nor Streaming
    is needed.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> shard = np.array([2, 16, 21, 26, 1], "<u4").tobytes() + b"a" + b"\1\0\0\0b"
    >>> entry = {"format": "mds", "samples": 2, "zip_data": None, "column_names": ["text"],
    ...     "column_encodings": ["str"], "column_sizes": [None],
    ...     "raw_data": {"basename": "shard.00000.mds", "bytes": 26, "hashes": {}}}
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "index.json").write_text(json.dumps({"version": 2, "shards": [entry]}))
    ...     _ = Path(folder, "shard.00000.mds").write_bytes(shard)
    ...     list(mds(folder)())
    [{'text': 'a'}, {'text': 'b'}]

    The reader is indexed: you can shuffle it as a whole, shard it, and resume at any sample, and it
    reads only the samples that a pass needs. Each shard is a block: `shuffle(seed=0, blocks=64)`
    reads each shard whole, once per epoch. Checksums are not verified, and compressed shards are
    not read: unpack them beside their index.

    Args:
        paths: A folder with an `index.json`, an `index.json`, a pattern such as
            `"data/**/index.json"`, or a list of these: one sequence, in that order. Or single
            shards that the `index.json` of their folder names, or the nearest one above.
        columns: The columns to read, in the order of the samples' fields; None for all. A single
            str gives bare values instead of dicts.
        store: Caches blocks of remote files on disk (`Store`).

    Raises:
        TypeError: A path is neither a str nor an `os.PathLike`, or columns are not names.
        FileNotFoundError: A file does not exist, or a pattern or folder matches no file.
        NotImplementedError: A shard is compressed (such as `zstd`), with no unpacked copy beside
            it.
        ValueError: Two indices name the same shard; or, when a pass begins, there is no such
            column.
        DamagedData: An index is not one of MDS shards, or names none; or, when a pass begins, or
            reaches the sample: a shard is truncated, of another format, has changed, or differs
            from its index.
    """

    shown_call = "mds(paths, columns)"
    suffixes = (_INDEX,)
    kind = "mds"
    names: tuple[str, ...] | str | None = argument(checked_names, default=None)

    def __init__(self, paths: Paths, columns: Names = None, *, store: Store | None = None) -> None:
        named = files_named(self.shown_call, paths, self.suffixes)
        listed = {path: [*_shards_of(path)] for path in named if path.endswith(_INDEX)}
        shards = [*chain.from_iterable(listed.get(path, [path]) for path in named)]
        if not shards:
            raise damaged(named[0], _SHARDS, "it names none")
        seen = Counter(chain.from_iterable(listed.values()))
        if twice := [path for path, many in seen.items() if many > 1]:
            said = f"two of the indices name {masked(twice[0])!r}, which would be read twice"
            raise ValueError(f"{self.shown_call}: {said}: leave out one of the two.")
        self.keep(shards, names=columns, store=store)

    @cached_property
    def _shards(self) -> dict[str, tuple[int, Any, str]]:
        """The entries of the shards in the indices of their folders, or of folders above."""
        folders = {path[: path.rfind("/") + 1] for path in self.paths}
        indices = {*map(_index_of, folders)}
        known = dict(chain.from_iterable(_shards_of(index).items() for index in indices))
        if unknown := {*self.paths} - {*known}:
            raise damaged(min(unknown), f"a shard that the nearest {_INDEX} names", "it is not")
        return {path: known[path] for path in self.paths}

    def layout(self) -> str:
        """Hash the shards' index entries, since all data sets name their shards alike."""
        return text_hash([said for _, _, said in self._shards.values()])

    def find(self, file: ByteFile) -> Array:
        """Return where samples begin, and the size of the file."""
        samples, *_ = self._shards[file.path]
        head = file.read(0, min(4 * samples + 8, file.size))
        table = np.frombuffer(head, "<u4", len(head) // 4).astype(np.int64)
        good = [len(table), *table[:1], *table[-1:]] == [samples + 2, samples, file.size]
        if not good or np.diff(table[1:], prepend=len(head)).min() < 0:
            raise damaged(file.path, _EXPECTED, f"it does not begin with {samples:,} places in it")
        return table[1:]

    def parser(self) -> Parse[Any]:
        """Return the function that decodes the wanted columns."""
        shards = self._shards.items()
        return partial(
            _parsed, {path: _decoders(path, of, self.names) for path, (_, of, _) in shards}
        )

    def opened(self) -> Records:
        """Return the samples, in blocks: the shards."""
        rows = super().opened()
        rows.block_starts = rows.starts[:-1]
        return rows


def _index_of(folder: str) -> str:
    """Return the `index.json` of a folder, or that of the nearest folder above.

    Raises:
        FileNotFoundError: There is none.
    """
    above = folder
    while not are_files([above + _INDEX])[0]:
        below, above = above, above[: above[:-1].rfind("/") + 1]
        if above == below or above.endswith("//"):
            raise not_found_error(mds.shown_call, masked(folder) + _INDEX, "a file")
    return above + _INDEX


def _shards_of(index: str) -> dict[str, tuple[int, Any, str]]:
    """Parse an index: the number of samples, columns and hash of each shard, by file.

    Raises:
        DamagedData: It is not an index of MDS shards.
    """
    file, folder = open_file(index), index.removesuffix(_INDEX)
    text, found = file.read(0, file.size), dict[str, tuple[int, Any, str]]()
    with reading(index, _SHARDS):
        for shard in json.loads(text)["shards"]:
            raw, kinds = shard["raw_data"], shard["column_encodings"]
            name, samples = raw["basename"], len(range(shard["samples"]))
            is_inside = {"", ".", ".."}.isdisjoint(str.split(name, "/"))
            if shard["format"] != "mds" or not samples or not is_inside or folder + name in found:
                raise ValueError(f"it has no MDS shard in {name!r}, or has it twice")
            if (packed := shard["zip_data"]) and are_files([folder + name]) == [False]:
                said = f"{packed['basename']} is packed: unpack it to {name}, in its folder"
                raise NotImplementedError(f"{masked(index)}: {said}.")
            columns = zip(
                shard["column_names"], shard["column_sizes"], map(_decoder, kinds), strict=True
            )
            fields = {each[0]: each[1:] for each in columns}
            said = text_hash(samples, raw.get("bytes"), raw.get("hashes"), [*fields], kinds)
            found[folder + name] = samples, fields, said
    return found


def _decoders(path: str, columns: Any, names: Any) -> tuple[Any, list[Any]]:
    """Return the wanted names; and for each column, its name, size and decoder."""
    wanted = (names,) if isinstance(names, str) else names or [*columns]
    if unknown := {*wanted} - {*columns}:
        seen = f"{masked(path)} has no column {min(unknown)!r}"
        raise ValueError(f"{seen}: it has {', '.join(columns)}.")
    every = columns.items()
    return names or wanted, [(name, size, name in wanted and get) for name, (size, get) in every]


def _parsed(fields: Any, file: Any, offset: int, data: bytes, *ends: Any) -> Iterator[Any]:
    names, columns = fields[file.path]
    many = sum(size is None for _, size, _ in columns)
    for begin, end in zip(*ends, strict=True):
        with reading(f"{file.path}, at byte {offset + begin:,},", _EXPECTED):
            sizes = iter(np.frombuffer(data, "<u4", many, begin).tolist())
            each = (next(sizes) if size is None else size for _, size, _ in columns)
            places = [*accumulate(each, initial=begin + 4 * many)]
            if places[-1] != end:
                raise ValueError(f"its columns end at byte {offset + places[-1]:,}")
            parts = zip(columns, pairwise(places), strict=True)
            found = {name: get(data[low:high]) for (name, _, get), (low, high) in parts if get}
        yield found[names] if isinstance(names, str) else {name: found[name] for name in names}


def _decoder(encoding: str) -> Any:
    """Return the decoder of a column; unknown encodings stay bytes."""
    kind, dtype, shape = [*str.split(encoding, ":"), "", ""][:3]
    if kind == "ndarray":
        return partial(_decoded, dtype, [*map(int, shape.split(","))] if shape else None)
    if kind == "int":
        return partial(int.from_bytes, byteorder="little", signed=True)
    return partial(_decoded, kind, ()) if kind in _NUMBERS else _TEXTS.get(kind, bytes)


def _decoded(dtype: str, shape: Any, data: bytes) -> Any:
    """Decode an array, or a scalar if the shape is (); data begin with the dtype if it is ""."""
    if not dtype:
        dtype, data = f"{'uif'[data[0] & 3]}{data[0] >> 3}", data[1:]
    if shape is None:
        axes, width = data[0] >> 2, 1 << (data[0] & 3)
        shape = np.frombuffer(data, f"<u{width}", axes, 1).tolist()
        data = data[1 + axes * width :]
    return np.frombuffer(data, dtype).reshape(shape)[()]
