"""`tar`: read samples of tar archives in WebDataset's layout, by number.

Consecutive members that share a key are one sample. Reading the headers once finds where samples
begin, and this index is cached. Reading a sample reads the bytes of its members at once, headers
included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from jreader.readers import argument, op
from jreader.readers.columns import Array
from jreader.sources.file_checks import damaged
from jreader.sources.files.block_store import Store
from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.files.file_readers import Paths
from jreader.sources.files.magic_numbers import first_bytes, known_format
from jreader.sources.files.records import Parse, RecordFiles
from jreader.sources.files.tar_members import BLOCK, DamagedMember, Member, members

_EXPECTED = "a tar archive"
_META = re.compile("__[^/]*__/")  # WebDataset's folders that hold no samples
_WINDOW, _STEP = 1 << 17, 1 << 11  # bytes to scan at a time: among small members, among large ones


@op
class tar(RecordFiles[dict[str, Any]]):
    """Read the samples in tar archives, one archive after another, as WebDataset does.

    Consecutive members with the same key make one sample. The key is the name up to the first dot
    after the last slash, with the folders: `train/0001.jpg` and `train/0001.cls` make the sample
    `{"__key__": "train/0001", "jpg": b"...", "cls": b"..."}`. Extensions are in lower case; values
    are bytes, which you decode in a `map`. The reader is indexed: you can shuffle it as a whole,
    shard it, and resume at any sample.

    >>> import io, tarfile
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with tarfile.open(f"{folder}/a.tar", "w") as archive:
    ...         for name, content in (("1.txt", b"one"), ("1.cls", b"7"), ("2.txt", b"two")):
    ...             member = tarfile.TarInfo(name)
    ...             member.size = len(content)
    ...             archive.addfile(member, io.BytesIO(content))
    ...     list(tar(f"{folder}/a.tar")())
    [{'__key__': '1', 'txt': b'one', 'cls': b'7'}, {'__key__': '2', 'txt': b'two'}]

    It reads ustar, pax and GNU archives, also several concatenated in one file. As in WebDataset,
    members without a key or an extension are skipped: folders, links, files whose name begins with
    a dot or has none (`README`), and those of a folder such as `__meta__/`.

    The first pass reads the headers, of several archives on several threads. For archives of 16 MB
    or more, it caches where samples begin in `jreader/tar` of `$XDG_CACHE_HOME` or `~/.cache`,
    until the files change. Unpack compressed archives (`.tar.gz`) first: their samples cannot be
    found by number.

    Args:
        paths: An archive, a folder (its `.tar` files), a pattern such as `"data/train-*.tar"`, or a
            list of these. The files of a folder or pattern are sorted by name. Or one part of a
            file, as `files(paths, parts=n)` yields it.
        store: Caches blocks of remote files on disk (`Store`).
        block: The size of the blocks that `shuffle(blocks=)` reads, such as "4MB"; None for none.
        with_url: Whether to add the path of the archive to each sample, as `__url__`.

    Raises:
        TypeError: A path is neither a str nor an `os.PathLike`.
        FileNotFoundError: A file does not exist, or a pattern or folder matches no file.
        ValueError: `block` is not a size; or, when a pass begins, no name in an archive has a dot,
            so it has no sample.
        DamagedData: Raised during a pass, after the samples before: an archive is truncated, empty,
            compressed or of another format, has changed, or has one name twice in a sample.
    """

    shown_call = "tar(paths)"
    suffixes = (".tar",)
    kind = "tar"
    index_rules = "names have a dot"
    with_url: bool | None = argument(default=None, cursor="if given")  # None for False

    def __init__(
        self,
        paths: Paths,
        *,
        store: Store | None = None,
        with_url: bool = False,
        block: int | str | None = None,
    ) -> None:
        self.keep(paths, store=store, with_url=True if with_url else None, block=block)

    def find(self, file: ByteFile) -> Array:
        """Return where samples begin, and the end; the last sample includes any damage."""
        if not file.size:
            return np.zeros(2, np.int64)
        found, end = _SampleBegins(), file.size
        try:
            for member in members(_Window(file).get, 0, file.size, file.size):
                found.add(member)
            if not found.begins and found.other:
                raise ValueError(
                    f"{file.path} has no sample: its members have no extension, such as "
                    f"{found.other!r}. Name them key.extension, as in '000001.jpg'."
                )
        except DamagedMember as error:  # the one before it is complete
            name, header = error.member or ("", error.place)
            if found.key is None or found.key != (split_name(name)[0] or found.key):
                found.begins.append(header)
            end = min(error.place + BLOCK, file.size)
        return np.array([*found.begins, end], np.int64)

    def parser(self) -> Parse[dict[str, Any]]:
        """Return the function that splits samples into their members."""
        return partial(_tar_samples, with_url=bool(self.with_url))


def split_name(name: str) -> tuple[str | None, str]:
    """Return the key and extension of a member; None and "" for a file that is in no sample.

    >>> split_name("train/a.b/7.seg.PNG"), split_name("a/._7.png"), split_name("readme")
    (('train/a.b/7', 'seg.png'), (None, ''), (None, ''))
    """
    folders, slash, file = name.rpartition("/")
    stem, dot, extension = file.partition(".")
    if not stem or not dot or _META.match(name):
        return None, ""
    return f"{folders}{slash}{stem}", extension.lower()


class _SampleBegins:
    """Finds where samples begin among the members of an archive.

    Attributes:
        begins: The bytes where samples begin.
        key: The key of the latest sample; None after an end of the archive.
        other: The latest member that is in no sample.
    """

    def __init__(self) -> None:
        self.begins, self.other = list[int](), ""
        self.key: str | None = None

    def add(self, member: Member | None) -> None:
        key = member and split_name(member.name)[0]
        if member is None:
            self.key = None
        elif key is None:
            self.other = member.name
        elif key != self.key:
            self.key = key
            self.begins.append(member.header)


class _Window:
    """Caches the latest bytes read: many where members are small, few where they are large."""

    def __init__(self, file: ByteFile) -> None:
        self.file, self.base, self.data, self.latest = file, 0, b"", 0

    def get(self, at: int, many: int) -> bytes:
        if not self.base <= at <= at + many <= self.base + len(self.data):
            size = _WINDOW if at - self.latest < _WINDOW >> 2 else _STEP
            size = min(max(size, many), self.file.size - at)
            self.base, self.data = at, self.file.read(at, size)
        self.latest = at
        return self.data[at - self.base : at - self.base + many]


def _tar_samples(
    file: ByteFile, offset: int, data: bytes, begins: list[int], ends: list[int], *, with_url: bool
) -> Iterator[dict[str, Any]]:
    last = offset + len(data)

    def get(at: int, many: int) -> bytes:
        if at + many > last:  # of an incomplete sample
            return file.read(at, many)
        return data[at - offset : at - offset + many]

    for begin, end in zip(begins, ends, strict=True):
        try:
            sample = _tar_sample(get, offset + begin, offset + end, file)
            yield {"__url__": file.path, **sample} if with_url else sample
        except DamagedMember as error:
            if not file.size:
                said = "it is empty"
            elif error.place == 0 and known_format(data[:16]) is not None:
                said = first_bytes(data[:16])
            else:
                said = str(error)
            raise damaged(file.path, _EXPECTED, said) from error


def _tar_sample(
    get: Callable[[int, int], bytes], begin: int, end: int, file: ByteFile
) -> dict[str, Any]:
    sample: dict[str, Any] = {}
    for member in members(get, begin, end, file.size):
        key, extension = (None, "") if member is None else split_name(member.name)
        if member is None or key is None:
            continue
        if sample.setdefault("__key__", key) != key:
            raise DamagedMember(member.header, f"another sample begins, {member.name!r}")
        if extension in sample:
            raise DamagedMember(member.header, f"a sample has {member.name!r} twice")
        sample[extension] = get(member.begin, member.size)
    return sample
