"""What is called in Python, counted."""

from __future__ import annotations

import gc
import sys


def functions_called(call):
    names = []

    def note(frame, event, _):
        if event == "call":
            names.append(frame.f_code.co_qualname)

    collects = gc.isenabled()
    gc.disable()  # others have functions called whenever it collects
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()
    return names
