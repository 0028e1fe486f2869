"""Download a file, and keep it only if it is complete and has the expected SHA-256."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from jreader.errors import DamagedData
from jreader.progress import Bar
from jreader.sources.transactions import new_file

_CHUNK = 1 << 16
_PATIENCE = 30  # seconds without data until a download fails


def download(url: str, folders: list[Path], expected: str) -> Path:
    """Download a file into the last of the folders, with a progress bar; return its path.

    The file gets its name only once it has been verified, so no other process sees a part of it.

    Args:
        url: The address; its last part is the name of the file.
        folders: The folders that were searched, for the error message; the last one is created if
            it does not exist.
        expected: The SHA-256 of the file, in hexadecimal.

    Raises:
        FileNotFoundError: The file could not be downloaded.
        DamagedData: The downloaded file has another SHA-256.
    """
    name = url.rpartition("/")[2]
    path, digest = folders[-1] / name, sha256()
    with new_file(path) as aside:
        with aside.open("xb") as file:
            for chunk in _chunks(url, name, folders):
                file.write(chunk)
                digest.update(chunk)
        if (seen := digest.hexdigest()) != expected:
            raise DamagedData(
                f"{url} is truncated, or not the original: {aside.stat().st_size} bytes came, "
                f"with the SHA-256 {seen}, not {expected}. They were removed: run again, or put "
                f"the original at {path}."
            )
    return path


def _chunks(url: str, name: str, folders: list[Path]) -> Iterator[bytes]:
    """Yield the bytes of a file; raise a helpful FileNotFoundError for any failure."""
    try:
        with urlopen(url, timeout=_PATIENCE) as answer:  # noqa: S310  # a mirror may be file:
            size = int(answer.headers.get("Content-Length") or 0) or None
            with Bar(name, size, "B") as bar:
                while chunk := answer.read(_CHUNK):
                    yield chunk
                    bar.add(len(chunk))
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, HTTPError):
            error.close()  # it holds the connection
        looked = " nor in ".join(map(str, folders))
        raise FileNotFoundError(
            f"{name} is not in {looked}, and {url} could not be fetched: {error!r}. Connect to the "
            f"network, set JREADER_MNIST_MIRROR to the address of a mirror, or put the file into "
            f"{folders[0]}."
        ) from error
