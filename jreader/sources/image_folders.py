"""`image_folder`: read images by number from a folder with a subfolder per class."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from jreader.readers import argument, op, set_fields
from jreader.readers.columns import Array, Column, Where
from jreader.readers.credentials import masked
from jreader.readers.declarations import convert_fields
from jreader.sources.columns import Table
from jreader.sources.file_checks import damaged, is_folder, not_found_error, path_text
from jreader.sources.files.block_store import Store, checked_store
from jreader.sources.files.file_readers import typed_arguments, typed_call
from jreader.sources.files.stored_files import open_file, read_many
from jreader.sources.remote import forget, is_remote, remote_entries, remote_states

_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_CHUNK = 64  # remote images to fetch at a time


def _checked_folder(call: str, path: Any) -> str:
    name = path_text(path)
    if name is None:
        raise TypeError(f"{call} needs a str or a path, not {path!r}.")
    if not is_remote(name) and not is_folder(name):
        raise not_found_error(call, name, "a folder")
    return name


def _checked_suffixes(call: str, skip: Any) -> tuple[str, ...]:
    given = () if skip is None else skip
    several = isinstance(given, Iterable) and not isinstance(given, str)
    suffixes = tuple(given) if several else (given,)
    for suffix in suffixes:
        if not isinstance(suffix, str) or not suffix:
            raise TypeError(
                f"{call} needs suffixes of names to skip, such as ('.txt',), not {suffix!r}."
            )
    return suffixes


@op
class image_folder(Table[dict[str, Any]]):
    """Read the images in a folder that has a subfolder for each class.

    Each sample is a dict of `image`, the bytes of the file, and `label`, the number of its class:
    an int, from 0, in the order of the sorted folder names (`classes`). Files of a class are sorted
    too, folder by folder, so the numbering equals that of torchvision's ImageFolder. The reader is
    indexed: you can shuffle it as a whole, shard it, and resume at any image, and it reads only the
    images that a pass needs.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("dog/a.png", "cat/b.jpg", "cat/a.jpg"):
    ...         Path(folder, name).parent.mkdir(exist_ok=True)
    ...         _ = Path(folder, name).write_bytes(name.encode())
    ...     pets = image_folder(folder)
    ...     pets.classes, [(sample["label"], sample["image"]) for sample in pets()]
    (('cat', 'dog'), [(0, b'cat/a.jpg'), (0, b'cat/b.jpg'), (1, b'dog/a.png')])

    File names are listed when the first pass begins; each file is opened when its image is needed.
    The folder may be remote (`s3://`, `https://`); then the images of a batch are fetched together.
    Files and folders whose name begins with a dot are left out.

    Args:
        path: The folder. Its subfolders are the classes, and hold the images, at any depth.
        skip: Suffixes of files that are not images, such as `(".txt", ".json")`, to leave out; None
            for none.
        with_paths: Whether samples also have a field `path`, the file name. If a function of a
            sample fails, such as a decoder, the note under its error then shows the file.
        store: Caches remote images on disk (`Store`).

    Attributes:
        classes: The names of the classes, by label.

    Raises:
        TypeError: The path is neither a str nor an `os.PathLike`, `skip` is not a collection of
            suffixes, or `with_paths` is not a bool.
        FileNotFoundError: The folder does not exist, or has no folders.
        ValueError: Raised when the first pass begins, if a file has neither the suffix of an image
            nor one to skip, a class has no image, or an image is in no class.
        DamagedData: Raised during a pass, if a file is empty, or gone.
    """

    shown_call = "image_folder(path, skip, with_paths)"
    path: str = argument(_checked_folder)
    skip: tuple[str, ...] = argument(_checked_suffixes, default=())
    with_paths: bool | None = argument(default=None, cursor="if given")  # None for False
    store: Store | None = argument(checked_store, default=None, cursor="never")

    def __init__(
        self,
        path: str | os.PathLike[str],
        skip: str | Sequence[str] | None = (),
        *,
        with_paths: bool = False,
        store: Store | None = None,
    ) -> None:
        if not isinstance(with_paths, bool):
            raise TypeError(
                f"{self.shown_call} needs True or False for with_paths, not {with_paths!r}."
            )
        set_fields(self, path=path, skip=skip, with_paths=with_paths or None, store=store)
        convert_fields(self)
        if not self.classes:
            raise FileNotFoundError(
                f"{self.shown_call} finds no folder in {masked(self.path)!r}: give the folder that "
                "has a folder of images for each class, such as train/cat and train/dog."
            )

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, by label."""
        entries = _folder_entries(self.path)
        return tuple(sorted(name for name in entries if entries[name] and not name.startswith(".")))

    @cached_property
    def columns(self) -> _Images:
        """The images and labels; file names are listed at the first use."""
        return _Images(self._listed, self)

    @cached_property
    def _listed(self) -> tuple[bytes, Array, Array]:
        """The concatenated file names, their offsets, and the labels."""
        labels, names = list[Array](), list[str]()
        walked = defaultdict[str, list[tuple[str, list[str]]]](list)  # by class
        for root, files in _walked(self._inside):
            walked[root[len(self._inside) :].partition(os.sep)[0]].append((root, files))
        loose = (name for _, files in walked[""] for name in files if not name.startswith("."))
        if lost := sorted(name for name in loose if name.lower().endswith(_IMAGES)):
            raise ValueError(
                f"{masked(self._inside)}{lost[0]} is not in the folder of a class: put it into "
                f"one of the folders of {masked(self.path)}, or elsewhere."
            )
        for label, name in enumerate(self.classes):
            found = list(_images_in(walked[name], self.skip))
            if not found:
                raise ValueError(
                    f"{masked(self._inside)}{name} has no image: remove the folder, or give it "
                    f"one; a class that has none would have a label that never occurs."
                )
            labels.append(np.full(len(found), label))
            names += found
        encoded = list(map(os.fsencode, names))  # a str each would take three times the memory
        ends = np.cumsum([0, *map(len, encoded)])
        return b"".join(encoded), ends, np.concatenate(labels)

    def layout(self) -> str:
        """Return the number of files, and a hash of their names in the folder."""
        return f"{len(self.columns)} files, {self._digest}"

    @cached_property
    def _digest(self) -> str:
        (listed, ends, _), folder = self._listed, len(os.fsencode(self._inside))
        names = (listed[low + folder : high] for low, high in pairwise(ends.tolist()))
        return blake2b(b"\0".join(names), digest_size=8).hexdigest()

    def file_paths(self) -> list[str]:
        """Return the images, in order."""
        return self.columns.paths(np.arange(len(self.columns)))

    @property
    def _inside(self) -> str:
        """The common prefix of all file names: a Path for each would cost more."""
        return self.path.rstrip(os.sep) + os.sep

    def __repr__(self) -> str:
        """Return the call that makes this reader."""
        skip = {"skip": self.skip} if self.skip else {}
        return typed_call(self, repr(masked(self.path)), typed_arguments(self) | skip)


class _Images(Column):
    """The samples of an `image_folder`; reads each file on demand, remote ones a few at a time.

    Args:
        listed: The concatenated file names, their offsets, and the labels.
        of: The `image_folder`.
    """

    stacks = False

    def __init__(self, listed: tuple[bytes, Array, Array], of: image_folder) -> None:
        self._names, self._ends, self._labels = listed
        self._store, self._with_paths, self.late = of.store, of.with_paths, is_remote(of.path)

    def __len__(self) -> int:
        return len(self._labels)

    def __repr__(self) -> str:
        return f"images[{len(self)}]"

    def each(self, rows: Array) -> Iterator[dict[str, Any]]:
        """Yield those samples."""
        names, labels = self.paths(rows), self._labels[rows].tolist()
        for path, data, label in zip(
            names, _file_contents(names, self._store), labels, strict=True
        ):
            if not data:
                raise damaged(path, "an image", "it is empty")
            sample = {"image": data, "label": label}
            yield {"path": masked(path), **sample} if self._with_paths else sample

    def where(self, rows: Array) -> list[Where]:
        """Return the file of each sample."""
        return [Where(masked(path), 0) for path in self.paths(rows)]

    def paths(self, rows: Array) -> list[str]:
        """Return the file of each row."""
        spans = zip(self._ends[rows].tolist(), self._ends[rows + 1].tolist(), strict=True)
        return [os.fsdecode(self._names[begin:end]) for begin, end in spans]


def _file_contents(paths: Sequence[str], store: Store | None) -> Iterator[bytes]:
    """Yield the contents of files."""
    many = _CHUNK if any(map(is_remote, paths[:1])) else 1
    for low in range(0, len(paths), many):
        some = paths[low : low + many]
        remote_states([path for path in some if is_remote(path)])  # all in parallel
        files = [open_file(path, store) for path in some]
        yield from read_many([(file, 0, file.size) for file in files])
        for path in some:
            forget(path)  # there may be millions


def _folder_entries(folder: str) -> dict[str, bool]:
    """Return the entries of a folder by name: whether each is a folder."""
    if is_remote(folder):
        return remote_entries(folder)
    with os.scandir(folder) as entries:
        return {each.name: each.is_dir() for each in entries}


def _images_in(walked: Sequence[tuple[str, list[str]]], skip: tuple[str, ...]) -> Iterator[str]:
    """Yield the images of a class, sorted by folder and name, as torchvision does.

    Raises:
        ValueError: A file has neither the suffix of an image nor one to skip.
    """
    for root, names in sorted(walked):
        for name in sorted(names):
            if name.startswith(".") or (skip and name.endswith(skip)):
                continue
            if not name.lower().endswith(_IMAGES):
                suffix = Path(name).suffix or name
                raise ValueError(
                    f"{masked(root)}/{name} does not have the name of an image: to leave such "
                    f"files out, type image_folder(path, skip=({suffix!r},))."
                )
            yield f"{root}{os.sep}{name}"


def _walked(folder: str) -> list[tuple[str, list[str]]]:
    """Return the folders in a folder, at any depth, each with its file names."""
    if is_remote(folder):
        return _walked_elsewhere(folder)
    walked = []
    for root, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        walked.append((root, files))
    return walked


def _walked_elsewhere(folder: str) -> list[tuple[str, list[str]]]:
    files = defaultdict[str, list[str]](list)
    for path in remote_entries(folder, deep=True):
        *folders, name = path.split("/")
        if not any(each.startswith(".") for each in folders):
            files["/".join([folder.rstrip("/"), *folders])].append(name)
    return [*files.items()]
