"""`pipeline.lock(path)`: a file, for others, of all that the samples of a plan depend on.

With the lock, and the data and packages that it names, anyone gets the same samples for the same
seed. It has the plan as in cursors, `stream_version`, the versions of the packages that are called,
and the files or arrays of each source: their sizes and SHA-256, or the servers' versions of remote
files. Files are named from their common folder on, so that another machine may keep them elsewhere.
A loader compares what is known without reading the data; `check_lock` compares all.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from hashlib import sha256
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import jreader
from jreader.cores import usable_cores
from jreader.errors import check_flag
from jreader.orders import STREAM_VERSION
from jreader.progress import Bar
from jreader.readers import Node, Reader, described, fingerprint, start
from jreader.readers.columns import Column
from jreader.readers.credentials import lasting, masked
from jreader.readers.excerpts import spread
from jreader.readers.fingerprints import FOUND
from jreader.readers.hashing import modules_in, name_in_cursors, script_as_imported, text_hash
from jreader.readers.nodes import readers_below, sources_first
from jreader.readers.trees import named_leaves
from jreader.sources.columns import Table
from jreader.sources.file_checks import States, not_found_error, path_text
from jreader.sources.files.set_indices import shared_folder
from jreader.sources.files.stored_files import open_file
from jreader.sources.remote import RemoteState, is_remote, system_of
from jreader.sources.transactions import new_file
from jreader.transforms import skip
from jreader.workers import map_samples

DEFAULT = "jreader.lock"
"""The name of a lock, if the user gives none."""

_FORMAT = 1
_ALL = "all bytes"
_RANGES, _RANGE = 64, 1 << 14
_SAMPLED = f"{_RANGES} ranges of {_RANGE} bytes, evenly spaced from the first byte to the last"
_HASH = ", sha256 "
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_PART = 1 << 22  # bytes in memory at a time
_SHOWN = 3  # changes that an error shows
_BEGINS = 64  # bytes of a lock that identify it
_TOP = re.compile(r"^([^/.,\s]+)[/.]", re.MULTILINE)  # the first name of a path
_BEHIND = {  # the packages that modules of jreader call
    "jreader.images": ("PIL", "cv2", "simplejpeg"),
    "jreader.datasets.digits": ("sklearn",),
    "jreader.sources.tables": ("pyarrow",),
    "jreader.sources.array_record_files": ("array_record",),
}


def lock(
    reader: Reader[Any], path: str | os.PathLike[str] = DEFAULT, *, sampled: bool = False
) -> str:
    """Write down what the samples depend on: the plan, its data, functions and packages.

    Files are hashed on threads. If you stop it, the lock that was there before stays.

    >>> from tempfile import TemporaryDirectory
    >>> from jreader import Pipeline, text
    >>> with TemporaryDirectory() as folder:
    ...     words = Path(folder, "words.txt")
    ...     _ = words.write_text("one")
    ...     name = Pipeline(text(words)).lock(f"{folder}/jreader.lock")
    ...     before = Pipeline(text(words)).check_lock(f"{folder}/jreader.lock")
    ...     _ = words.write_text("two")
    ...     after = Pipeline(text(words)).check_lock(f"{folder}/jreader.lock")
    >>> len(name), before, after[-1].partition(":")[0]
    (16, [], 'data text 1 words.txt')

    Args:
        reader: A plan.
        path: The file to write.
        sampled: Whether to hash only 1 MiB of each larger file, in ranges that the lock names.

    Returns:
        The name of the lock, a hash of its contents, which cursors have, too.

    Raises:
        FileNotFoundError: A file of the plan is not there.
        DamagedData: A file was replaced, or cut off, while it was read.
        FileExistsError: The file is not a lock.
        OSError: A file cannot be read, or the lock cannot be written.
    """
    some, where = check_flag("sampled of lock(reader, path)", sampled), Path(_name_of(path))
    _check_replaceable(where)
    contents = _contents(reader, _SAMPLED if some else _ALL)
    name = text_hash(contents)
    with new_file(where) as aside:
        text = json.dumps({"lock": name, **contents}, indent=1, ensure_ascii=False)
        aside.write_text(f"{text}\n", "utf-8", "surrogateescape")
    return name


def _check_replaceable(path: Path) -> None:
    """Raise if the file is not a lock: it may be data."""
    if path.is_file():
        with path.open("rb") as file:
            begin = file.read(_BEGINS)
        if begin and b'"lock"' not in begin:
            raise FileExistsError(
                f"{str(path)!r} is no lock, and would be lost: delete it, or give another path."
            )


def check_lock(reader: Reader[Any], path: str | os.PathLike[str] = DEFAULT) -> list[str]:
    """Compare the plan, its data and packages with a lock; return a line for each change.

    It hashes the same bytes as the lock.

    >>> from tempfile import TemporaryDirectory
    >>> from jreader import Pipeline, arrays
    >>> with TemporaryDirectory() as folder:
    ...     _ = Pipeline(arrays([1, 2])).shuffle(seed=0).lock(f"{folder}/jreader.lock")
    ...     Pipeline(arrays([1, 2])).shuffle(seed=3).check_lock(f"{folder}/jreader.lock")
    ['plan ops 2: shuffle(buf_size=None, seed=3), and it was shuffle(buf_size=None, seed=0)']

    Args:
        reader: A plan.
        path: The lock, as `lock` wrote it.

    Raises:
        FileNotFoundError: There is no lock, or a file of the plan is not there.
        ValueError: The file is not a lock, or was edited.
        OSError: A file cannot be read.
    """
    _, kept = _lock_at(path)
    return [*_changes(kept, _contents(reader, kept["hashed"]))]


def unseen(path: str | os.PathLike[str]) -> str:
    """Return which data a lock misses, as a part of a sentence; "" if it covers all bytes."""
    hashed = _lock_at(path)[1]["hashed"]
    return (
        ""
        if hashed == _ALL
        else (
            f"; but of files over 1 MiB it has only {hashed}, so changes between them are not seen"
        )
    )


def held(reader: Reader[Any], path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the lines by which a cursor names the lock of its loader.

    Raises:
        FileNotFoundError: There is no lock, or a file of the plan is not there.
        ValueError: The lock is of another plan, or of other packages or files, as far as that is
            known without reading them.
    """
    (name, kept), where = _lock_at(path), _name_of(path)
    if changes := [*_changes(kept, _contents(reader, ""))]:
        more = f"; and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
        raise ValueError(
            f"this pipeline is not as the lock {where!r} has it: {'; '.join(changes[:_SHOWN])}"
            f"{more}. Make it as it was; or lock it as it is, with pipeline.lock({where!r})."
        )
    packages = [" ".join(each) for each in kept["packages"].items()]
    parts = [f"{part} {text_hash(kept[part])}" for part in ("plan", "data")]
    return (*packages, *parts, f"lock {name}")


def _name_of(path: Any) -> str:
    """Return the path of a lock as a text."""
    name = path_text(path)
    if not name:
        raise TypeError(f"lock needs the path of a lock, not {path!r}: give 'jreader.lock', say.")
    return name


def _lock_at(path: str | os.PathLike[str]) -> tuple[str, dict[str, Any]]:
    """Return the name of a lock, and its contents."""
    where = _name_of(path)
    again = f"type pipeline.lock({where!r}), or jreader lock module:pipeline --to {where}"
    kept: Any = None
    try:
        kept = json.loads(Path(where).read_text("utf-8", "surrogateescape"))
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no lock {where!r} in {Path.cwd()}: {again}.") from None
    except (ValueError, RecursionError):
        pass
    name: Any = kept.pop("lock", None) if isinstance(kept, dict) else None
    if name != text_hash(kept) or kept.get("format") != _FORMAT:
        raise ValueError(
            f"{where!r} is not a lock, or was edited, or another release wrote it: {again}."
        )
    return name, kept


def _changes(kept: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each fact that differs; hashes count only if the present ones are known."""
    before, after = dict(_facts("", kept)), dict(_facts("", now))
    for name in {**before, **after}:
        was, here = before.get(name, "nothing"), after.get(name, "nothing")
        if not now["hashed"] and name.startswith("data "):
            was = was.partition(_HASH)[0]
        if was != here and name != "hashed":
            yield f"{name}: {here}, and it was {was}"


def _facts(name: str, part: Any) -> Iterator[tuple[str, str]]:
    """Yield the facts in a part of a lock, each with the path of names to it."""
    if isinstance(part, dict):
        for key, inner in part.items():
            yield from _facts(f"{name} {key}".lstrip(), inner)
    elif isinstance(part, list):
        yield from _facts(name, dict(enumerate(part, 1)))
    else:
        yield name, str(part)


def _contents(reader: Reader[Any], hashed: str) -> dict[str, Any]:
    """Return the contents of a plan's lock; `hashed` names the bytes to hash, or "" for none."""
    with script_as_imported():
        plan: Any = fingerprint(skip(reader, 0))  # so that it has the sizes of batches, too
    plan["ops"] = [line for line in plan["ops"] if not line.startswith((FOUND, "skip(n=0)"))]
    readers: list[Any] = [*sources_first(reader, readers_below)]
    sources: list[Any] = [*filter(_has_data, readers)]
    named = {f"{name_in_cursors(type(op))} {number}": op for number, op in enumerate(sources, 1)}
    far = filter(is_remote, chain.from_iterable(op.file_paths()[:1] for op in sources))
    return {
        "format": _FORMAT,
        "stream_version": STREAM_VERSION,
        "hashed": hashed,
        "packages": _versions(modules_in([*readers, *(type(system_of(path)[0]) for path in far)])),
        "plan": plan,
        "data": {name: _texts_of(op, hashed) for name, op in named.items()},
    }


def _has_data(reader: Any) -> bool:
    return isinstance(reader, Table) or (isinstance(reader, Node) and bool(reader.file_paths()))


def _versions(modules: set[str]) -> dict[str, str]:
    """Return the versions of the packages of modules, and of the packages that these call."""
    behind = (_BEHIND[name] for name in _BEHIND if any(each.startswith(name) for each in modules))
    tops = {each.partition(".")[0] for each in (*modules, *chain(*behind), "jax", "numpy")}
    found = (each for each in metadata.distributions() if not tops.isdisjoint(_modules_of(each)))
    names = {each.name for each in found} - {"jreader"}
    versions = {name: metadata.version(name) for name in sorted(names)}
    return {"python": _PYTHON, "jreader": jreader.__version__, **versions}


def _modules_of(package: metadata.Distribution) -> list[str]:
    """Return the top-level modules that a package installs.

    `metadata.packages_distributions` takes ten times as long: it makes a path for each file.
    """
    listed_names = package.read_text("top_level.txt")
    return listed_names.split() if listed_names else _TOP.findall(package.read_text("RECORD") or "")


class _Piece(NamedTuple):
    """A file or an array: its known facts, its size, and a function that reads its bytes."""

    known: str
    size: int = 0
    parts: Callable[[], Iterable[Any]] | None = None


def _texts_of(source: Any, hashed: str) -> dict[str, str]:
    """Return the entries in a lock for the files or arrays of a source."""
    pieces = dict(_pieces_of(source, hashed))
    if not hashed:
        return {name: piece.known for name, piece in pieces.items()}
    with Bar("hashing", sum(piece.size for piece in pieces.values()), "B") as bar:
        made = map_samples(partial(_text_of, bar), pieces.values, threads=usable_cores())
        with closing(start(made)) as up:
            return dict(zip(pieces, up.items, strict=True))


def _text_of(bar: Bar, piece: _Piece) -> str:
    if piece.parts is None:
        return piece.known
    digest = sha256()
    for part in piece.parts():
        digest.update(part)
        bar.add(len(part))
    return f"{piece.known}{_HASH}{digest.hexdigest()}"


def _pieces_of(source: Any, hashed: str) -> Iterator[tuple[str, _Piece]]:
    """Yield the files of a source, or its arrays if it has no files, by name."""
    if revision := source.revision():
        yield "revision", _Piece(revision)
    paths = source.file_paths()
    for path, name, state in zip(paths, _short_names(paths), States(paths), strict=True):
        if state is None:
            raise not_found_error("lock(reader, path)", masked(path), "a file")
        yield name, _piece_of(path, state, hashed)
    for name, column in () if paths else named_leaves(source.columns):
        yield name or "rows", _piece_in_memory(column)


def _short_names(paths: Sequence[str]) -> list[str]:
    """Return the names of files from their common folder on, without credentials."""
    names = [masked(lasting(path)) for path in paths]
    return [name[len(shared_folder(names)) :] for name in names]


def _piece_of(path: str, state: Any, hashed: str) -> _Piece:
    """Return a file; for a remote one its version, if the server gives one."""
    size, known = state.st_size, f"{state.st_size} bytes"
    if isinstance(state, RemoteState) and state.known:
        version = state.etag.strip('"') or state.stamp
        return _Piece(f"{known}, version {version}")
    ranges = [(at, min(_PART, size - at)) for at in range(0, size, _PART)]
    if hashed == _SAMPLED and size > _RANGES * _RANGE:
        ranges = [(at, _RANGE) for at in spread(size - _RANGE + 1, _RANGES)]
    total = sum(many for _, many in ranges)
    return _Piece(known, total, lambda: open_file(path, None, state).read_many(ranges))


def _piece_in_memory(column: Any) -> _Piece:
    """Return the arrays of a column; for objects, no bytes."""
    arrays = [*column.arrays, *column.tables] if isinstance(column, Column) else [column]
    if not arrays or any(array.dtype.hasobject for array in arrays):
        return _Piece(described(column))
    size = sum(array.nbytes for array in arrays)
    return _Piece(described(column), size, partial(map, _bytes_of, arrays))


def _bytes_of(array: Any) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
