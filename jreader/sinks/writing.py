"""`write`: write the samples of any reader to files, in shards, on several threads."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, TypeAlias

from jreader import errors
from jreader.batches import gives_batches
from jreader.cores import usable_cores
from jreader.counters import working
from jreader.errors import place_of_caller
from jreader.progress import Bar
from jreader.readers import Node, Pass, Plane, Reader, described, epochs, length, start
from jreader.readers.credentials import masked
from jreader.readers.joined_columns import ENDLESS
from jreader.readers.nodes import plane_of
from jreader.readers.seeds import Draws, lacks_seed, resolved
from jreader.sinks.npy_shards import npy_shards
from jreader.sinks.record_shards import record_shards
from jreader.sinks.shard_writers import (
    Cuts,
    Format,
    ShardPiece,
    ShardWriters,
    cuts_for,
    first_samples,
    indexed_pieces,
    streamed_pieces,
)
from jreader.sinks.table_shards import table_shards
from jreader.sinks.tar_shards import tar_shards
from jreader.sinks.token_shards import token_shards
from jreader.sources.array_record_files import array_record
from jreader.sources.file_checks import path_text
from jreader.sources.remote import is_remote
from jreader.sources.tables.arrow_columns import pyarrow
from jreader.sources.transactions import entries, new_folder
from jreader.transforms import firstn, map_readers
from jreader.workers.ahead import made_ahead
from jreader.workers.limits import Limits
from jreader.workers.threads import Drawer, runs_users_code
from jreader.workers.threads.thread_map import ThreadCrew

FormatName: TypeAlias = Literal[
    "arrayrecord", "arrow", "llmc", "megatron", "nanogpt", "npy", "parquet", "tar"
]

_TABLES, _TOKENS = ("arrow", "parquet"), ("llmc", "megatron", "nanogpt")
_FORMATS: dict[str, Callable[..., Format]] = {
    "arrayrecord": record_shards,
    "npy": npy_shards,
    "tar": tar_shards,
    **{form: partial(table_shards, form) for form in _TABLES},
    **{form: partial(token_shards, form) for form in _TOKENS},
}
_EXTRAS: dict[str, Any] = {"arrayrecord": array_record, "arrow": pyarrow, "parquet": pyarrow}
_LOOKED_AT = 128  # first samples, which determine the fields and the size of shards
_PATIENCE = 5.0  # seconds that threads have to end after an error
_CALL = "write(reader, path, format)"
_SHARD = re.compile(r".*-\d{5,}-of-\d{5,}\.\w+")


def write(
    reader: Reader[Any],
    path: str | os.PathLike[str],
    format: FormatName,  # noqa: A002  # the field's word
    *,
    shards: int | None = None,
    samples_per_shard: int | None = None,
    ragged: Sequence[str] = (),
    field: str | int | None = None,
    dtype: Any = None,
    eos: int | None = None,
    encode: Callable[[Any], Any] | None = None,
    overwrite: bool = False,
    threads: int | None = None,
    progress: bool = True,
) -> list[str]:
    """Write the samples of a reader as shards of a data set, in order; returns their paths.

    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from jreader import arrays, npy
    >>> with TemporaryDirectory() as folder:
    ...     paths = write(arrays(np.arange(5)), f"{folder}/five", "npy", shards=2, progress=False)
    ...     [os.path.basename(path) for path in paths], [int(row) for row in npy(paths)()]
    (['five-00000-of-00002.npy', 'five-00001-of-00002.npy'], [0, 1, 2, 3, 4])

    The folder appears complete or not at all: shards are written to a hidden folder beside it,
    which is renamed once all samples are on disk. The next run that writes to this folder removes
    the leftovers of a killed run.

    All threads read an indexed reader, each for its own shard. One thread at a time reads a stream
    (always the same one if it runs your code), while the others encode; each holds 64 MB of it, or
    one sample. The files are the same.

    - "parquet" (extra `arrow`) holds dicts, also in dicts, of numbers, texts, bytes and arrays of
      one shape, or of several in the first axis. `parquet(paths)` gives them back, numbers as
      those of NumPy.
    - "arrow" (extra `arrow`) holds the same, in files of Arrow's file format (IPC), which are not
      compressed: `arrow(paths)` maps them into memory. A record batch has some 8 MB.
    - "npy" holds numbers and arrays of one shape, or dicts and tuples of them: a file for each
      field. `npy("folder/image-*.npy", "folder/label-*.npy")` gives tuples.
    - "tar" holds dicts of extensions, as WebDataset does, and keys by `__key__`, or by number.
      Bytes are written as they are, texts in UTF-8, numbers in digits, what ends in `npy` as an
      array, what ends in `json` as JSON. `tar(paths)` gives the bytes.
    - "arrayrecord" (extra `arrayrecord`) holds bytes; others need `encode`, as in
      `encode=pickle.dumps`. `arrayrecord(paths)` gives the bytes.
    - "nanogpt", "llmc" and "megatron" hold documents: arrays, or lists, of token ids. They write
      the `.bin` files that these trainers read, "megatron" each with its `.idx`.
      `tokens(paths, dtype, eos)` gives the documents back; of "nanogpt" and "llmc", only where each
      was written with the same `eos`, and has it nowhere else.

    Args:
        reader: Any reader of samples, not of batches.
        path: A folder that is new or empty. Files are named after it, as `NAME-00000-of-00012.tar`;
            those of "npy" after the fields, if there are any.
        format: "arrayrecord", "arrow", "llmc", "megatron", "nanogpt", "npy", "parquet" or "tar".
        shards: The number of shards, whose sizes differ by at most one sample; needs a reader of
            known length.
        samples_per_shard: Samples per shard, fewer in the last one, instead of `shards`. None for
            64 MB per shard, estimated from the first 128 samples.
        ragged: For "arrow" and "parquet", the names of fields whose arrays differ in their first
            axis. Needed only if the first 128 samples do not show it.
        field: The only field to write: a key of dicts, or an index of tuples.
        dtype: The dtype of token ids: "uint16" (the default), or, for larger ones, "int32" with
            "megatron" and "uint32" with "nanogpt" and "llmc" (its Llama 3 files).
        eos: The token that ends each document ("llmc": begins it), added where a document lacks it;
            None to write documents unchanged.
        encode: A function of a sample, or of its `field`, called on the threads; its result is
            written.
        overwrite: Whether to replace the shards in the folder once all are written. A folder with
            other files is refused.
        threads: The number of threads that write; None for one per core, at most 8.
        progress: Whether to show a progress bar.

    Raises:
        ModuleNotFoundError: The extra of the format is not installed.
        FileExistsError: The folder has files in it.
        FeedMismatch: The format cannot hold a sample, or a sample differs from earlier ones.
            Nothing is written.
        ValueError: There are no samples, or the reader is endless: type `.firstn(n)`.
        OSError: The disk is full, or the file system fails. Nothing is left behind.
        ReaderError: Another process is writing to the folder.
    """
    errors.check_reader(_CALL, reader)
    if format not in _FORMATS:
        raise ValueError(f"format of {_CALL} is one of {', '.join(_FORMATS)}, not {format!r}.")
    options = _checked_options(format, ragged, dtype, eos)
    folder = checked_folder(path, (f".{format}", ".array_record", ".bin"))
    shards, samples_per_shard = _checked_sizes(shards, samples_per_shard)
    overwrite = errors.check_flag(f"overwrite of {_CALL}", overwrite)
    progress = errors.check_flag(f"progress of {_CALL}", progress)
    many = _checked_threads(threads)
    check_free(folder, overwrite=overwrite)
    reader = _writable(reader, field)

    place = place_of_caller()
    if lacks_seed(reader):
        reader = resolved(reader, Draws.new())  # one order for all threads
    plane = plane_of(reader)
    total = length(reader) if plane is None else plane.length
    _check_shards(reader, shards, total)
    encoded = _naming_errors(encode, place)
    drawer = Drawer("write", apart=plane is None and runs_users_code(reader))
    peeked: list[Any] = []
    up = drawer.begun(partial(_with_peeked, reader, peeked))
    try:
        if not peeked:
            raise ValueError(
                f"{described(reader)} has no samples: nothing was written to {str(folder)!r}."
            )
        first = peeked if encoded is None else list(map(encoded, peeked))
        shards_of = _FORMATS[format](first, folder.name, **options)
        cuts = cuts_for(peeked, shards, samples_per_shard, total)
        pieces = _pieces(cuts, plane, peeked, up)
        del peeked, first
        with new_folder(folder, partial(check_free, folder, overwrite=overwrite)) as hidden:
            with Bar(f"writing {folder.name}", total, show=progress) as bar:
                writers = ShardWriters(
                    hidden, shards_of, f".{format}", cuts.block, plane, encoded, bar.add
                )
                written = _on_threads(writers, pieces, many, place, drawer)
            names = writers.renamed(written)
    finally:
        with suppress(ValueError):  # a hanging thread is still inside
            drawer.close(wait=False)
        for thread in drawer.threads:
            thread.join(_PATIENCE)
    return [str(folder / name) for name in names]


def _with_peeked(reader: Reader[Any], peeked: list[Any]) -> Pass[Any]:
    """Start a pass and draw its first samples into `peeked`."""
    up = start(reader)
    try:
        peeked += first_samples(up.items, _LOOKED_AT)
    except BaseException:
        up.close()
        raise
    return up


def _pieces(
    cuts: Cuts, plane: Plane | None, peeked: list[Any], up: Pass[Any]
) -> Iterator[ShardPiece]:
    """Yield pieces of all samples: streamed, unless samples are found by index."""
    if plane is None:
        return streamed_pieces(cuts, _all_samples(peeked, up.items))
    up.close()
    return indexed_pieces(cuts, plane.length)


def _all_samples(peeked: list[Any], left: Iterator[Any]) -> Iterator[Any]:
    """Yield all samples, the peeked ones first; hold none longer than necessary."""
    peeked.reverse()
    while peeked:
        yield peeked.pop()
    yield from left


def _writable(reader: Reader[Any], field: str | int | None) -> Reader[Any]:
    """Return the reader of what to write.

    Raises:
        TypeError: It yields batches.
        ValueError: It is endless.
    """
    if gives_batches(reader):
        raise TypeError(
            f"{_CALL} writes samples, and {described(reader)} gives batches: leave .batch(n) out, "
            f"or type .unbatch()."
        )
    plane = plane_of(reader)
    if _is_endless(reader) if plane is None else plane.length >= ENDLESS:
        raise ValueError(
            f"{described(reader)} has no end, so writing it would never end: type .firstn(n), or "
            ".epochs(n)."
        )
    return reader if field is None else map_readers(itemgetter(field), reader)


def _is_endless(reader: Reader[Any]) -> bool:
    """Return whether a stream repeats epochs forever."""
    while isinstance(reader, Node) and not isinstance(reader, firstn):
        if isinstance(reader, epochs) and reader.n is None:
            return True
        below = reader.input_readers
        if len(below) != 1:
            return False
        reader = below[0]
    return False


def _checked_sizes(shards: Any, each: Any) -> tuple[int | None, int | None]:
    if shards is not None and each is not None:
        raise TypeError(f"{_CALL} takes shards= or samples_per_shard=, not both.")
    if shards is not None:
        shards = errors.check_number(f"shards of {_CALL}", shards, 1)
    if each is not None:
        each = errors.check_number(f"samples_per_shard of {_CALL}", each, 1)
    return shards, each


def _checked_threads(threads: Any) -> int:
    if threads is None:
        return min(usable_cores(), 8)
    many = errors.check_number(f"threads of {_CALL}", threads, 1)
    errors.warn_of_many(many, "threads", each=64)
    return many


def _check_shards(reader: Reader[Any], shards: int | None, total: int | None) -> None:
    if shards is not None and (total is None or shards > total > 0):
        seen = "does not know its length" if total is None else f"has {total:,} samples"
        raise ValueError(
            f"shards={shards} of {_CALL} cannot be made, since {described(reader)} {seen}: type "
            f"samples_per_shard=n instead."
        )


def _checked_options(form: str, ragged: Any, dtype: Any, eos: Any) -> dict[str, Any]:
    """Check the options of a format, and import its package."""
    if isinstance(ragged, str) or not all(isinstance(field, str) for field in ragged):
        raise TypeError(f"ragged of {_CALL} is a list of names of fields, not {ragged!r}.")
    options = {"ragged": ragged or None, "dtype": dtype, "eos": eos}
    given = {name: option for name, option in options.items() if option is not None}
    for name in given:
        if form not in (forms := {"ragged": _TABLES}.get(name, _TOKENS)):
            raise TypeError(f"{name}= of {_CALL} is for {', '.join(forms)}: leave it out.")
    _EXTRAS.get(form, tuple)()  # raises if the extra is not installed
    return given


def _naming_errors(encode: Any, place: str) -> Callable[[Any], Any] | None:
    """Wrap a user's function of a sample, so that errors say where it was called."""
    if encode is None:
        return None
    errors.check_function(f"encode of {_CALL}", encode)

    def encoded(sample: Any) -> Any:
        try:
            return encode(sample)
        except Exception as error:
            note = f"raised by {described(encode)}({described(sample)}) in write, called at {place}"
            errors.noted(error, note)
            raise

    return encoded


def _on_threads(
    writers: ShardWriters, pieces: Iterator[ShardPiece], threads: int, place: str, drawer: Drawer
) -> int:
    """Write all pieces; return the number of shards."""
    apart = drawer if drawer.apart else None
    close = partial(drawer.close, wait=False) if apart else lambda: None
    up: Pass[ShardPiece] = Pass(pieces, lambda: None, close)
    work = working("write", "", place, "threads", threads)
    crew = ThreadCrew("write", place, up, Limits(threads, threads), work, writers, apart)
    here = made_ahead(crew)
    try:
        return max(here.items, default=-1) + 1
    except BaseException:
        writers.stop()
        raise
    finally:
        here.close()
        late = time.monotonic() + _PATIENCE
        for thread in crew.threads:
            thread.join(max(late - time.monotonic(), 0))
        writers.close()


def checked_folder(path: Any, suffixes: tuple[str, ...]) -> Path:
    """Return the folder of a path, absolute and without links.

    Raises:
        TypeError: It is not a path.
        ValueError: It is remote, or named like a file.
    """
    name = path_text(path)
    if not name:
        raise TypeError(f"path of {_CALL} needs the name of a folder, not {path!r}.")
    if is_remote(name):
        raise ValueError(
            f"{_CALL} writes to this machine, and {masked(name)!r} is elsewhere: write to a "
            f"folder here, and copy that."
        )
    folder = Path(os.path.realpath(name))
    if folder.suffix in suffixes:
        raise ValueError(
            f"path of {_CALL} needs a folder, for several files, and {name!r} is named like one "
            f"file: type {str(Path(name).with_suffix(''))!r}, with shards=1 for a single file."
        )
    if not folder.name:
        raise ValueError(f"path of {_CALL} needs a folder with a name, not {name!r}.")
    return folder


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Raise FileExistsError if writing to the folder would lose files.

    With `overwrite`, existing shards may be replaced, but not other files.
    """
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"path of {_CALL} needs a folder, and {str(folder)!r} is a file.")
    names = entries(folder)
    others = [name for name in names if not _SHARD.fullmatch(name)]
    if overwrite and others:
        raise FileExistsError(
            f"{str(folder)!r} has other files than shards in it, such as {min(others)!r}, which "
            f"overwrite=True would delete: give a folder of its own."
        )
    if names and not overwrite:
        raise FileExistsError(
            f"{str(folder)!r} has files in it already, such as {min(names)!r}: give another "
            f"folder, or overwrite=True to replace them once all samples are written."
        )
