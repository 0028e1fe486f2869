"""Gathers of many bytes give what small ones give, also those of two threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from jreader import Pipeline, arrays
from jreader.cores import usable_cores
from jreader.readers.mapped_memory import _MIN_CHECKED, _MIN_SPLIT

WIDTH = 1 << 17


def numbered(rows):
    values = np.zeros((rows, WIDTH), np.uint8)
    values[:] = np.arange(rows)[:, None] % 251
    values[:, -1] += 1
    return values


@pytest.mark.parametrize(
    "size", [1, 2, _MIN_CHECKED // WIDTH, _MIN_SPLIT // WIDTH - 1, _MIN_SPLIT // WIDTH + 1]
)
def test_large_batches_hold_the_rows_of_their_numbers(size):
    values = numbered(2 * _MIN_SPLIT // WIDTH)
    for labels, batch in zip(
        np.split(np.arange(len(values)), range(size, len(values), size)),
        Pipeline(arrays(values, np.arange(len(values)))).batch(size),
        strict=True,
    ):
        images, numbers = batch.columns
        assert np.array_equal(numbers, labels)
        assert np.array_equal(images, values[labels])


@pytest.mark.skipif(usable_cores() < 2, reason="no second thread")
def test_a_second_thread_takes_half_of_a_large_batch():
    values = numbered(2 * _MIN_SPLIT // WIDTH)
    Pipeline(arrays(values)).shuffle(seed=0).batch(_MIN_SPLIT // WIDTH).peek()
    assert any("jreader gather" in thread.name for thread in threading.enumerate())


FORKED = """
import os
import sys
import threading
import numpy as np
from jreader import Pipeline, arrays

values = np.arange(1 << 21).reshape(64, -1)
batches = Pipeline(arrays(values)).shuffle(seed=0).batch(32)
before = batches.peek().columns
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
same = np.array_equal(batches.peek().columns, before)
os._exit(not (same and len(threading.enumerate()) == 2))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork") or usable_cores() < 2, reason="no second thread")
def test_a_forked_process_gathers_with_a_thread_of_its_own():
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=60)
