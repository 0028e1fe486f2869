"""Eight emulated devices; NPROC before jax, or un-awaited sharded steps deadlock inside XLA.

Programs of XLA run for microseconds here and are compiled for tenths of a second: not optimized
ones take half, and half of that where fusions are not emitted through MLIR. Tests start hundreds of
processes, which would compile jreader's source each, and start threads of OpenBLAS as they import
numpy, a third of what that costs.
"""

import os
import sys
from importlib.metadata import version

os.environ.setdefault("NPROC", "32")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
flags = ["--xla_force_host_platform_device_count=8"]
if version("jaxlib").startswith("0.10."):  # 0.12 ends a program that has the flag
    flags.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(flags))
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # images of containers set it
sys.dont_write_bytecode = False

import gc
import re
import signal
import subprocess
import textwrap
from importlib.util import find_spec
from pathlib import Path

import cloudpickle
import hypothesis
import pytest
from programs import PATIENCE

HERE = Path(__file__).parent
IMPORT = re.compile(r"(from|import) ")
collect_ignore = [
    "typed",  # is for type checkers: what it says need not run
    # what follows imports libraries that need not be installed
    "benchmarks/chats.py",
    "benchmarks/gauntlet/contestants",
    "benchmarks/packing.py",
]

for name, examples in {"quick": 25, "ci": 175}.items():
    hypothesis.settings.register_profile(
        name, max_examples=examples, deadline=None, derandomize=True, print_blob=True
    )
hypothesis.settings.register_profile("once", max_examples=5000, deadline=None)

# a shell that runs the tests in the background has them, and what they start, ignore it
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    """Laws are as wide as there is time: a tenth where the slow tests are left out."""
    width = "quick" if config.option.markexpr == "not slow" else "ci"
    hypothesis.settings.load_profile(os.environ.get("JREADER_LAWS", width))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is collected stays to the end: a million objects that gc need not look through."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """What a file of tests leaves behind stays, too: tests that call gc are quick in long runs."""
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:
            gc.collect()
            gc.freeze()


def pytest_collection_modifyitems(items):
    """An example that imports an extra is skipped where that is not installed.

    Of plans that are drawn at random, some filters leave nothing, and some windows leave out ends.
    """
    for item in items:
        if hasattr(getattr(item, "obj", None), "hypothesis"):
            for text in (".* left none of the samples", ".*leaves out .* tokens of"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{text}"))
        if isinstance(item, pytest.DoctestItem):
            lines = [example.source for example in item.dtest.examples]
            used = [line.split()[1].partition(".")[0] for line in lines if IMPORT.match(line)]
            if gone := [name for name in used if find_spec(name) is None]:
                item.add_marker(pytest.mark.skip(reason=f"{gone[0]} is not installed"))


@pytest.fixture(scope="module")
def by_value(request):
    """Workers are sent what a file defines; they would import it, and jax, for a second each."""
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture
def python():
    """Runs a script in a process of its own, with a clock."""

    def run(script, cwd=None, check=True, **env):
        paths = os.pathsep.join(map(str, [HERE, HERE / "helpers", HERE.parent]))
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            cwd=cwd,
            timeout=PATIENCE,
            check=check,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": paths, **env},
        )

    return run
