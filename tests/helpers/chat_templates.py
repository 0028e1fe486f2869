"""Chat templates in the formats that models publish, and tokenizers of a few lines."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "chats" / "templates"


def template(name):
    """The text of a template."""
    return (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")


CHATML = template("chatml")

_MARKER = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")
_MARKERS = sorted({each for path in FOLDER.iterdir() for each in _MARKER.findall(path.read_text())})
_PIECES = re.compile("|".join([*map(re.escape, _MARKERS), "."]), re.DOTALL)
_FIRST = 1 << 21  # past all characters


def encode(text):
    """A token for each marker, such as <s> or [INST], and for each character elsewhere."""
    found = [(piece[0], piece.span()) for piece in _PIECES.finditer(text)]
    tokens = [ord(p) if len(p) == 1 else _FIRST + _MARKERS.index(p) for p, _ in found]
    return tokens, [span for _, span in found]


def decode(tokens):
    return "".join(chr(each) if each < _FIRST else _MARKERS[each - _FIRST] for each in tokens)


TOKENIZER = encode, decode


def encode_characters(text):
    return [ord(letter) for letter in text], [(n, n + 1) for n in range(len(text))]


def decode_characters(tokens):
    return "".join(map(chr, tokens))


CHARACTERS = encode_characters, decode_characters
