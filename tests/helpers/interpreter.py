"""Facts about the Python that runs the tests."""

import sys

GIL = getattr(sys, "_is_gil_enabled", lambda: True)()
