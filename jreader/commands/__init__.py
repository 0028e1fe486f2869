"""What `jreader show`, `check`, `peek` and `bench` do with the pipeline of a user's module.

`named_pipelines.py` finds it by `module:name`, as uvicorn and gunicorn find an application, and
says what is wrong in one line; `show`, `peek` (with `check`) and `bench` do the rest. jax is
imported only if the module does.
"""

from jreader.commands.bench import bench
from jreader.commands.named_pipelines import CommandFailed, in_one_line, pipeline_named, tokenizer
from jreader.commands.peek import check, peek
from jreader.commands.show import show

__all__ = [
    "CommandFailed",
    "bench",
    "check",
    "in_one_line",
    "peek",
    "pipeline_named",
    "show",
    "tokenizer",
]
