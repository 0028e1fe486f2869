"""The number of cores that this program may use."""

import os


def usable_cores() -> int:
    """Return the number of cores that this process may use.

    Jobs of a scheduler, and many containers, may use fewer than the machine has, and
    `os.cpu_count()` counts those of the machine.

    >>> 1 <= usable_cores() <= (os.cpu_count() or 1)
    True
    """
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
