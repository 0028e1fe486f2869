"""A terminal at which somebody looks who does not wait for a second."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from jreader import progress


class Terminal(io.StringIO):
    """What is written to a terminal."""

    def isatty(self) -> bool:
        return True


def looked_at(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """The terminal of this process for one test, in which bars are shown at once."""
    shown = Terminal()
    # not `sys.stderr` itself, which pytest sets anew where a test begins
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=shown, modules=sys.modules))
    monkeypatch.setattr(progress, "_DELAY", 0.0)
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    return shown
