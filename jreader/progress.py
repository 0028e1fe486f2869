"""`Bar`: the progress of a long operation, shown in a terminal or a notebook.

jreader makes all its bars here. A bar is shown only after a second, in a terminal or a notebook,
and by no worker process; elsewhere it writes nothing, so that logs stay clean. tqdm is imported
when the first bar is shown: a bar has a thread, and a lock that processes share.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Any, Final
from weakref import WeakSet

VARIABLE: Final = "JREADER_PROGRESS"
"""The environment variable that turns off all bars, if it is 0, no, off or false."""

_DELAY = 1.0  # seconds before anything is shown
_OFF = frozenset({"0", "no", "off", "false"})


class Bar(AbstractContextManager["Bar"]):
    """A progress bar, which threads may move at the same time.

    >>> import io
    >>> class Terminal(io.StringIO):
    ...     def isatty(self):
    ...         return True
    >>> for file in Terminal(), io.StringIO():
    ...     with Bar("reading", 4, delay=0, file=file) as bar:
    ...         bar.add(3)
    ...     "reading:  75%" in file.getvalue()
    True
    False

    Args:
        text: A description of the operation.
        total: The number of `unit`, if known.
        unit: The unit to count; "B" for bytes.
        show: Whether to show anything at all.
        stay: Whether the bar stays in the terminal when it has ended.
        delay: Seconds before anything is shown; None for one.
        file: Where to show it, if that is a terminal; None for the standard error.

    Attributes:
        off: Whether it is never shown, so that counting is unnecessary.
    """

    def __init__(
        self,
        text: str,
        total: int | None = None,
        unit: str = " samples",
        *,
        show: bool = True,
        stay: bool = False,
        delay: float | None = None,
        file: Any = None,
    ) -> None:
        self.off = not (show and is_seen(file))
        self._shown: Any = None
        if not self.off:
            shown = sys.stderr if file is None else file
            self._made: dict[str, Any] = {"desc": text, "total": total, "unit": unit}
            self._made |= {"unit_scale": unit == "B", "leave": stay, "file": shown}
            self._lock, self._done, self._suffix = threading.RLock(), 0, ""
            self._due = time.monotonic() + (_DELAY if delay is None else delay)
            _LIVE.add(self)

    def __exit__(self, *_error: object) -> None:
        self.close()

    def add(self, many: int = 1) -> None:
        """Move the bar by so many; the first call after the delay shows it."""
        if self.off:
            return
        with self._lock:
            self._done += many
            if self._shown is not None:
                self._shown.update(many)
            elif time.monotonic() >= self._due:
                self._shown = _tqdm()(**self._made, initial=self._done)
                self._shown.set_postfix_str(self._suffix)

    def say(self, text: str) -> None:
        """Set the text behind the bar for its next update."""
        if self.off:
            return
        with self._lock:
            self._suffix = text
            if self._shown is not None:
                self._shown.set_postfix_str(text, refresh=False)

    def close(self) -> None:
        """End the bar; a second call does nothing."""
        if self.off:
            return
        with self._lock:
            self.off = True
            if self._shown is not None:
                self._shown.close()


def is_seen(file: Any = None) -> bool:
    """Return whether bars are shown here: in a terminal or a notebook, unless turned off.

    Args:
        file: Where to show them; None for the standard error.
    """
    if os.environ.get(VARIABLE, "").strip().lower() in _OFF:
        return False
    if file is None and _in_notebook():
        return True
    shown = sys.stderr if file is None else file
    try:
        return bool(shown is not None and shown.isatty())
    except (AttributeError, ValueError):  # no file, or a closed one
        return False


def _in_notebook() -> bool:
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if hasattr(python, "get_ipython") else None  # type: ignore[union-attr]  # just checked
    return type(shell).__name__ == "ZMQInteractiveShell"


def _tqdm() -> Any:
    if _in_notebook() and find_spec("ipywidgets"):
        from tqdm.notebook import tqdm as widgets  # noqa: PLC0415  # a tenth of a worker's start

        return widgets
    from tqdm import tqdm  # noqa: PLC0415  # a tenth of a worker's start

    return tqdm


_LIVE: WeakSet[Bar] = WeakSet()


def _forget_bars() -> None:
    """Reset the bars in a fork: they belong to the parent, and so do their locks."""
    for bar in _LIVE:
        bar.off = True
    _LIVE.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_bars)
