"""The fluent spelling: a reader with every op as a method.

pipeline: `Pipeline`, a reader with every op as a method; `methods` makes these.
parts: `pipeline[index]`, `.split` and `.folds`; specs: `.element_spec`; preparing: `.prepare`.
of_files: `files`, a pipeline that begins with the names of files.
"""

from jreader.pipelines.pipeline import Pipeline

__all__ = ["Pipeline"]
