"""MNIST: 70,000 handwritten digits of 28x28 pixels, read from the four original IDX files.

The files are searched for in the folder `$JREADER_DATA`, then in the user's cache folder
(`$XDG_CACHE_HOME/jreader` or `~/.cache/jreader`). Missing files are downloaded into the cache
folder, from the usual public mirror or from `$JREADER_MNIST_MIRROR`. A file is used only if it has
the SHA-256 of the original.
"""

from __future__ import annotations

import os
from functools import cache
from hashlib import file_digest
from pathlib import Path

from jreader.datasets import images
from jreader.datasets.images import Array, Mode, Sample
from jreader.errors import DamagedData
from jreader.readers import Node
from jreader.sources.array_files import idx
from jreader.sources.files.index_cache import cache_folder

MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"

SUMS = {
    "train-images-idx3-ubyte.gz": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
    ),
    "train-labels-idx1-ubyte.gz": (
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
    ),
    "t10k-images-idx3-ubyte.gz": (
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
    ),
    "t10k-labels-idx1-ubyte.gz": (
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
    ),
}


def train() -> Node[Sample]:
    """Read the 60,000 training digits of MNIST.

    >>> train(), len(train())
    (map_readers(scaled, mnist.arrays('train')), 60000)

    Returns:
        A reader of pairs: an image, float32[784] from -1 (paper) to 1 (ink), and its label, an
        int64 from 0 to 9. Files are read, or downloaded, when the first pass begins, which raises
        the errors of `arrays`.
    """
    return images.reader(arrays, "train", 60_000)


def test() -> Node[Sample]:
    """Read the 10,000 test digits of MNIST.

    >>> test(), len(test())
    (map_readers(scaled, mnist.arrays('test')), 10000)

    Returns:
        A reader of pairs: an image, float32[784] from -1 (paper) to 1 (ink), and its label, an
        int64 from 0 to 9. Files are read, or downloaded, when the first pass begins, which raises
        the errors of `arrays`.
    """
    return images.reader(arrays, "test", 10_000)


def arrays(mode: Mode) -> tuple[Array, Array]:
    """Read the digits of MNIST as arrays, downloading missing files.

    Args:
        mode: "train" or "test".

    Returns:
        Images, uint8[n, 28, 28] from 0 (paper) to 255 (ink), and labels, uint8[n].

    Raises:
        ValueError: The mode is neither of these.
        FileNotFoundError: A file is in neither folder, and could not be downloaded.
        DamagedData: A file is truncated, or not the original.
    """
    images.check_mode("mnist.arrays(mode)", mode)
    prefix = "train" if mode == "train" else "t10k"
    paths = [_path(name) for name in SUMS if name.startswith(prefix)]
    columns: tuple[Array, Array] = idx(*paths).columns
    return columns


def found() -> bool:
    """Return whether all four files exist locally, so that nothing would be downloaded.

    >>> found() in (True, False)
    True
    """
    return all(map(_present, SUMS))


def _folders() -> list[Path]:
    """Return the folders to search for files; the last one is the cache, for downloads."""
    given = os.environ.get("JREADER_DATA")
    return [*([Path(given).expanduser()] if given else []), cache_folder()]


def _present(name: str) -> Path | None:
    return next((path for folder in _folders() if (path := folder / name).is_file()), None)


def _path(name: str) -> Path:
    """Return the path of a file with the right SHA-256, downloading it if missing."""
    path = _present(name)
    if path is None:
        # urllib takes longer to import than all of jreader, and is seldom needed
        from jreader.datasets.downloads import download  # noqa: PLC0415  # as said

        mirror = os.environ.get("JREADER_MNIST_MIRROR") or MIRROR
        return download(f"{mirror.rstrip('/')}/{name}", _folders(), SUMS[name])
    state = path.stat()
    if (seen := _sum(path, state.st_size, state.st_mtime_ns)) != SUMS[name]:
        what = "Replace it with the original."
        if path.parent == _folders()[-1]:
            path.unlink(missing_ok=True)
            what = "It was removed: run again to download it."
        raise DamagedData(
            f"{path} is truncated, or not the original: it has {state.st_size} bytes and the "
            f"SHA-256 {seen}, not {SUMS[name]}. {what}"
        )
    return path


@cache
def _sum(path: Path, _size: int, _modified: int) -> str:
    """Compute the SHA-256 of a file, again only if its size or modification time changed."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
