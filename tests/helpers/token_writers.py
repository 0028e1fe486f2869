"""Files of token ids, written byte by byte as those who use each layout write them."""

from __future__ import annotations

import struct

import numpy as np

DOCUMENTS = [[5, 6, 0], [7, 0], [0], [8, 9, 300]]
FLAT = [token for document in DOCUMENTS for token in document]


def flat(path, values=FLAT):
    """As nanoGPT writes tokens: two bytes each, the low one first, and nothing else."""
    path.write_bytes(b"".join(struct.pack("<H", value) for value in values))
    return path


def llmc(path, values=FLAT, count=None, version=1, magic=20240520, code="H"):
    """As llm.c: 256 int32, then the tokens."""
    head = [magic, version, len(values) if count is None else count] + [0] * 253
    body = b"".join(struct.pack(f"<{code}", value) for value in values)
    path.write_bytes(struct.pack("<256i", *head) + body)
    return path


def megatron(path, documents=DOCUMENTS, code=(8, "H"), modes=False, marked=True):
    """As Megatron: a `.bin` of nothing but tokens, and where each sequence lies in an `.idx`."""
    number, letter = code
    each = struct.calcsize(letter)
    body = [b"".join(struct.pack(f"<{letter}", value) for value in one) for one in documents]
    path.with_suffix(".bin").write_bytes(b"".join(body))
    begins = np.cumsum([0, *map(len, body)])[:-1].tolist()
    idx = b"MMIDIDX\0\0" + struct.pack("<QBQ", 1, number, len(documents))
    idx += struct.pack("<Q", len(documents) + 1) if marked else b""
    idx += struct.pack(f"<{len(documents)}i", *(len(one) // each for one in body))
    idx += struct.pack(f"<{len(documents)}q", *begins)
    idx += struct.pack(f"<{len(documents) + 1}q", *range(len(documents) + 1)) if marked else b""
    idx += bytes(len(documents)) if modes else b""
    path.with_suffix(".idx").write_bytes(idx)
    return path.with_suffix(".bin")


def npy(path, values=FLAT, dtype="<u2"):
    """As `np.save`: magic, version, the length of the header, the header, the values."""
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({len(values)},), }}"
    head += " " * (-(10 + len(head) + 1) % 64) + "\n"
    body = np.array(values, dtype).tobytes()
    path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + body)
    return path


def listed(reader):
    return [document.tolist() for document in reader()]
