"""Shards of token ids as nanoGPT, llm.c and Megatron read them: concatenated documents.

A nanoGPT file holds only tokens. An llm.c file has 256 int32 before them, and `eos` before each
document instead of after it. A Megatron file has an `.idx` beside it, which lists where documents
begin. `tokens` reads these layouts (`token_files.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jreader.errors import check_number
from jreader.readers import described
from jreader.readers.columns import Array, offsets_of
from jreader.sinks.sample_fields import cannot_write
from jreader.sinks.shard_writers import Append, Format
from jreader.sources.token_files import IDX_DTYPES, IDX_MAGIC, LLMC, LLMC_HEAD

_WIDE = {"llmc": "uint32", "megatron": "int32", "nanogpt": "uint32"}  # the alternative is uint16
_MOST = np.iinfo(np.int32).max  # tokens in an llm.c file, or in a Megatron document


def token_shards(form: str, _: Any, name: str, dtype: Any = "uint16", eos: Any = None) -> Format:
    """Return the format that writes documents to token files; they are checked when written.

    Args:
        form: "llmc", "megatron" or "nanogpt".
        name: The file name.
        dtype: The dtype of the tokens in the file.
        eos: The token that ends documents, or begins them in llm.c; None for none.

    Raises:
        TypeError: `eos` is not a whole number.
        ValueError: The format cannot hold such tokens.
    """
    kind = next((kind for kind in map(np.dtype, ("uint16", _WIDE[form])) if kind == dtype), None)
    if kind is None or (eos is not None and check_number("eos", eos) > np.iinfo(kind).max):
        needed = f"dtype='uint16' or {_WIDE[form]!r}, and an eos= that fits it"
        raise ValueError(f"write as {form!r} takes {needed}, not dtype={dtype!r} with eos={eos}.")
    suffixes = (".bin", ".idx") if form == "megatron" else (".bin",)
    return Format((name,) * len(suffixes), partial(_token_shard, form, kind, eos), suffixes)


@contextmanager
def _token_shard(form: str, kind: Any, eos: int | None, paths: Sequence[Path]) -> Iterator[Append]:
    """Open a file of tokens; write its header or `.idx` at the end."""
    counts: list[Array] = []
    leads, fits = form == "llmc", np.iinfo(kind)
    with paths[0].open("xb") as file:

        def append(batch: Sequence[Any], first: int) -> None:
            rows = [_token_ids(form, *each) for each in enumerate(batch, first)]
            found, offsets = np.concatenate(rows), offsets_of([*map(len, rows)])
            wrong = np.flatnonzero((found < fits.min) | (found > fits.max))
            if wrong.size:
                number = first + int(offsets[1:].searchsorted(wrong[0], "right"))
                token, wide = int(found[wrong[0]]), np.iinfo(_WIDE[form])
                how = f"type dtype='{wide.dtype}'" if wide.min <= token <= wide.max else "mend it"
                said = f"it has the token {token}, which does not fit {kind}"
                raise cannot_write(form, number, f"{said}: {how}.")
            values = found.astype(kind, copy=False)
            counts.append(np.diff(offsets))
            if eos is not None:
                edges = offsets[:-1] if leads else offsets[1:]
                lacks = values[edges - (not leads)] != eos
                values, counts[-1] = np.insert(values, edges[lacks], eos), counts[-1] + lacks
            file.write(values.data)
            counted = (file.tell() - LLMC_HEAD) // kind.itemsize if leads else counts[-1].max()
            if counted > _MOST and form != "nanogpt":
                raise cannot_write(form, first, f"over {_MOST:,} tokens: lower samples_per_shard.")

        file.write(bytes(LLMC_HEAD * leads))
        yield append
        lengths = np.concatenate(counts)
        if leads:
            heads = {name: (magic, version) for magic, (version, name) in LLMC.items()}
            file.seek(0)
            file.write(struct.pack("<3i", *heads[kind.name], lengths.sum()))
    for path in paths[1:]:
        code = {name: number for number, name in IDX_DTYPES.items()}[kind.name]
        begins, marks = offsets_of(lengths) * kind.itemsize, np.arange(len(lengths) + 1)
        head = IDX_MAGIC + struct.pack("<QBQQ", 1, code, len(lengths), len(marks))
        columns = (lengths.astype("<i4"), begins[:-1], marks)
        path.write_bytes(b"".join([head, *(column.tobytes() for column in columns)]))


def _token_ids(form: str, number: int, sample: Any) -> Array:
    try:
        row = np.asarray(sample)
    except ValueError:  # lists of several lengths
        row = np.empty(())
    if row.ndim != 1 or not row.size or row.dtype.kind not in "iu":
        said = f"it is {described(sample)}, and needs to be an array of whole numbers, not empty"
        how = "tokenize it in a .map(fn) before, name its field=, or leave it out with .filter(len)"
        raise cannot_write(form, number, f"{said}, with one axis: {how}.")
    return row
