"""`image_folder`: images in a folder for each class, found by number."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from jreader.readers import argument, op, set_fields
from jreader.readers.columns import Array, Objects, Where
from jreader.readers.declarations import convert_fields
from jreader.sources.columns import Table
from jreader.sources.file_checks import damaged, is_folder, path_text, state_of
from jreader.sources.files.file_readers import typed_arguments, typed_call
from jreader.sources.files.stored_files import open_file

_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def _checked_folder(call: str, path: Any) -> str:
    name = path_text(path)
    if name is None:
        raise TypeError(f"{call} needs a str or a path, not {path!r}.")
    if not is_folder(name):
        why = "does not exist" if state_of(name) is None else "is no folder"
        raise FileNotFoundError(
            f"{call} cannot read {name!r}, which {why}. Check the spelling, and the folder that "
            f"the program runs in, {Path.cwd()}."
        )
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
    """A reader of the images in a folder that has a folder for each class.

    Each sample is a dict of `image`, the bytes of the file, and `label`, the number of its class:
    an int, from 0, in the order of the sorted names of the folders (`classes`). Files of a class
    are sorted too, folder by folder, so that samples have the numbers that they have in
    torchvision's ImageFolder. The reader is indexed: it can be shuffled as a whole, sharded, and
    resumed at any image, and only the images that a pass needs are read.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("dog/a.png", "cat/b.jpg", "cat/a.jpg"):
    ...         Path(folder, name).parent.mkdir(exist_ok=True)
    ...         _ = Path(folder, name).write_bytes(name.encode())
    ...     pets = image_folder(folder)
    ...     pets.classes, [(sample["label"], sample["image"]) for sample in pets()]
    (('cat', 'dog'), [(0, b'cat/a.jpg'), (0, b'cat/b.jpg'), (1, b'dog/a.png')])

    The names of the files are listed when the first pass begins; each file is opened when its image
    is asked for. Files and folders whose name begins with a dot are left out.

    Args:
        path: The folder. Its folders are the classes, with the images in them, also in folders of
            their own.
        skip: Suffixes of files that are not images, such as `(".txt", ".json")`, to leave out;
            None for none.
        with_paths: Whether samples have a field `path` too, the name of the file: the note under an
            error of a function of samples, such as one that decodes them, shows it.

    Attributes:
        classes: The names of the classes, by label.

    Raises:
        TypeError: The path is neither a str nor a path, `skip` is not a collection of suffixes, or
            `with_paths` is not a bool.
        FileNotFoundError: The folder does not exist, or has no folders.
        ValueError: Raised when the first pass begins, if a file has a suffix of no image and none
            to skip, a class has no image, or an image is in no class.
        DamagedData: Raised during a pass, where a file is empty, or gone.
    """

    shown_call = "image_folder(path, skip, with_paths)"
    path: str = argument(_checked_folder)
    skip: tuple[str, ...] = argument(_checked_suffixes, default=())
    with_paths: bool | None = argument(default=None, cursor="if given")  # None for False

    def __init__(
        self,
        path: str | os.PathLike[str],
        skip: str | Sequence[str] | None = (),
        *,
        with_paths: bool = False,
    ) -> None:
        if not isinstance(with_paths, bool):
            raise TypeError(
                f"{self.shown_call} needs True or False for with_paths, not {with_paths!r}."
            )
        set_fields(self, path=path, skip=skip, with_paths=with_paths or None)
        convert_fields(self)
        if not self.classes:
            raise FileNotFoundError(
                f"{self.shown_call} finds no folder in {self.path!r}: give the folder that has a "
                "folder of images for each class, such as train/cat and train/dog."
            )

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, by label."""
        with os.scandir(self.path) as entries:
            return tuple(sorted(each.name for each in entries if _is_folder(each)))

    @cached_property
    def columns(self) -> Objects:
        """The images and labels; the names of the files are listed at the first use."""
        names, ends, labels = self._listed
        where = partial(_files, names, ends)
        make = partial(_images, where, labels, with_paths=self.with_paths is True)
        return Objects(len(labels), make, where, "images")

    @cached_property
    def _listed(self) -> tuple[bytes, Array, Array]:
        """The names of all files end to end, where each begins and ends, and the labels."""
        if loose := sorted(_loose(self.path)):
            raise ValueError(
                f"{self._inside}{loose[0]} is not in the folder of a class: put it into one of the "
                f"folders of {self.path}, or elsewhere."
            )
        labels, names = list[Array](), list[str]()
        for label, name in enumerate(self.classes):
            found = list(_images_below(f"{self._inside}{name}", self.skip))
            if not found:
                raise ValueError(
                    f"{self._inside}{name} has no image: remove the folder, or give it one; a "
                    f"class that has none would have a label that never occurs."
                )
            labels.append(np.full(len(found), label))
            names += found
        encoded = list(map(os.fsencode, names))  # a str each would cost three times as much
        ends = np.cumsum([0, *map(len, encoded)])
        return b"".join(encoded), ends, np.concatenate(labels)

    def layout(self) -> str:
        """How many files there are, and a hash of their names in the folder."""
        return f"{len(self.columns)} files, {self._digest}"

    @cached_property
    def _digest(self) -> str:
        (listed, ends, _), folder = self._listed, len(os.fsencode(self._inside))
        names = (listed[low + folder : high] for low, high in pairwise(ends.tolist()))
        return blake2b(b"\0".join(names), digest_size=8).hexdigest()

    @property
    def _inside(self) -> str:
        """What the names of all files begin with: a Path for each would cost more."""
        return self.path.rstrip(os.sep) + os.sep

    def __repr__(self) -> str:
        """The call that makes this reader."""
        skip = {"skip": self.skip} if self.skip else {}
        return typed_call(self, repr(self.path), typed_arguments(self) | skip)


def _images(
    where: Callable[[Array], list[Where]], labels: Array, rows: Array, *, with_paths: bool
) -> Iterator[dict[str, Any]]:
    """Those samples one by one: each file is read when it is asked for."""
    for (path, _), label in zip(where(rows), labels[rows].tolist(), strict=True):
        file = open_file(path)
        if not file.size:
            raise damaged(path, "an image", "it is empty")
        sample = {"image": file.read(0, file.size), "label": label}
        yield {"path": path, **sample} if with_paths else sample


def _files(names: bytes, ends: Array, rows: Array) -> list[Where]:
    """The file of each row."""
    spans = zip(ends[rows].tolist(), ends[rows + 1].tolist(), strict=True)
    return [Where(os.fsdecode(names[begin:end]), 0) for begin, end in spans]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith(".") and entry.is_dir()


def _loose(folder: str) -> list[str]:
    """The images that are in no class."""
    with os.scandir(folder) as entries:
        named = [each.name for each in entries if not each.is_dir()]
    return [name for name in named if name.lower().endswith(_IMAGES) and not name.startswith(".")]


def _images_below(folder: str, skip: tuple[str, ...]) -> Iterator[str]:
    """The images of a class, folder by folder in the order of their paths, as torchvision has them.

    Raises:
        ValueError: A file has a suffix of no image, and none to skip.
    """
    for root, names in sorted(_walked(folder)):
        for name in sorted(names):
            if name.startswith(".") or (skip and name.endswith(skip)):
                continue
            if not name.lower().endswith(_IMAGES):
                suffix = Path(name).suffix or name
                raise ValueError(
                    f"{root}{os.sep}{name} does not have the name of an image: to leave such files "
                    f"out, type image_folder(path, skip=({suffix!r},))."
                )
            yield f"{root}{os.sep}{name}"


def _walked(folder: str) -> Iterator[tuple[str, list[str]]]:
    for root, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield root, files
