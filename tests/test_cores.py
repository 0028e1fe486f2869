"""How many cores a program may use."""

from __future__ import annotations

import os

import pytest

COUNTED = """
    import os

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from jreader.cores import usable_cores

    print(usable_cores())
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_a_program_that_may_use_one_core_counts_one(python):
    assert python(COUNTED).stdout == "1\n"
