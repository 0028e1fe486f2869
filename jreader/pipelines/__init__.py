"""The fluent spelling: a reader with every op as a method."""

from jreader.pipelines.of_files import files
from jreader.pipelines.pipeline import Pipeline
from jreader.pipelines.specs import ArraySpec

__all__ = ["ArraySpec", "Pipeline", "files"]
