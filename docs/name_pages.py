"""A page for every public name, from its docstring; Sphinx's configuration has them written."""

from __future__ import annotations

from pathlib import Path


def write(folder: Path) -> None:
    """Writes the pages into a folder, and removes those of names that have gone."""
    folder.mkdir(exist_ok=True)


def renew(path: Path, text: str) -> None:
    """Writes a file if that changes it: Sphinx builds pages again whose files are newer."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def copy(notebooks: Path, folder: Path) -> None:
    """Copies the notebooks, which lie beside the pages, into them."""
    folder.mkdir(exist_ok=True)
    for path in notebooks.glob("*.ipynb"):
        renew(folder / path.name, path.read_text())
    for path in folder.glob("*.ipynb"):
        if not (notebooks / path.name).exists():
            path.unlink()
