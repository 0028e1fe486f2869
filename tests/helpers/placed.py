"""Readers of the files of a test, wherever these lie: here, in memory, on a web server."""

from __future__ import annotations

import os
from pathlib import Path


class Placed:
    """Puts the files of a folder where `put` does, and gives readers their names there.

    Attributes:
        folder: The folder.
        place: What the names of its files begin with there; None for files that stay here.
        put: Takes the name of a file in the folder, and its bytes; None for one that is gone.
        options: What readers of files elsewhere are given besides.
    """

    def __init__(self, folder, place=None, put=None, **options):
        self.folder, self.place, self.put, self.options = str(folder), place, put, options
        self.names = set()

    def reader(self, make):
        """A function like `make`, whose files are put in their place when it is called."""

        def made(*given, **named):
            if self.place is None:
                return make(*given, **named)
            self.update()
            return make(*map(self.path, given), **named, **self.options)

        return made

    def update(self):
        """Puts the files there as they are here now."""
        if self.place is None:
            return
        paths = [path for path in Path(self.folder).rglob("*") if path.is_file()]
        names = {str(path.relative_to(self.folder)): path for path in paths}
        for name in self.names - {*names}:
            self.put(name, None)
        for name, path in names.items():
            self.put(name, path.read_bytes())
        self.names = {*names}

    def path(self, given):
        """What is named so there; anything but a path of the folder, as it is."""
        if isinstance(given, (list, tuple)):
            return type(given)(map(self.path, given))
        if isinstance(given, (str, os.PathLike)) and os.fspath(given).startswith(self.folder):
            return self.place + os.fspath(given)[len(self.folder) :]
        return given
