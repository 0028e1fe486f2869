"""The fluent spelling: a reader with every op as a method.

pipeline: `Pipeline`, over `wrapped`, a reader to look at; `methods` makes methods of ops.
indexing: `pipeline[index]`; splits: `.split` and `.folds`; specs: `.element_spec`.
of_files: `files`, a pipeline that begins with the names of files.
"""

from jreader.pipelines.pipeline import Pipeline

__all__ = ["Pipeline"]
