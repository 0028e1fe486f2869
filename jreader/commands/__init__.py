"""The commands `jreader show`, `check`, `peek`, `bench`, `prepare`, `lock` and `where`.

`named_pipelines.py` finds a pipeline by `module:name`, as uvicorn and gunicorn find an application,
and reports problems in one line; each command has a module (`check` is next to `peek`). jax is
imported only if the user's module does. `index` scans files.
"""

from jreader.commands.bench import bench
from jreader.commands.index import INDEXED, index
from jreader.commands.lock import agreement, write_lock
from jreader.commands.named_pipelines import CommandFailed, in_one_line, pipeline_named, tokenizer
from jreader.commands.peek import check, peek
from jreader.commands.prepare import prepare
from jreader.commands.show import show
from jreader.commands.where import steps_holding

__all__ = [
    "INDEXED",
    "CommandFailed",
    "agreement",
    "bench",
    "check",
    "in_one_line",
    "index",
    "peek",
    "pipeline_named",
    "prepare",
    "show",
    "steps_holding",
    "tokenizer",
    "write_lock",
]
