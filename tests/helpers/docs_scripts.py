"""The scripts in `docs`, which are no package."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def script(name):
    spec = spec_from_file_location(name, DOCS / f"{name}.py")
    loaded = module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
