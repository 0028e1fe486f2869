"""Eight emulated devices; NPROC before jax, or un-awaited sharded steps deadlock inside XLA."""

import os

os.environ.setdefault("NPROC", "32")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import hypothesis

hypothesis.settings.register_profile(
    "ci", max_examples=500, deadline=None, derandomize=True, print_blob=True
)
hypothesis.settings.register_profile("once", max_examples=5000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("JREADER_LAWS", "ci"))

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# a shell that runs the tests in the background has them, and what they start, ignore it
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def python():
    """Runs a script in a process of its own, with a clock."""

    def run(script, cwd=None, timeout=60, check=True, **env):
        paths = os.pathsep.join(map(str, [HERE, HERE / "helpers", HERE.parent]))
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            cwd=cwd,
            timeout=timeout,
            check=check,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": paths, **env},
        )

    return run
