"""jreader feeds JAX: a reader is any function that you can call and iterate.

Everything else is a function from readers to readers (`shuffle`, `batch`, ...), a `Pipeline` that
spells them out from left to right, and a `DataLoader` that puts batches on devices.

    >>> import jreader
    >>> reader = jreader.batch(jreader.shuffle(lambda: range(6), buf_size=6, seed=0), 3)
    >>> sorted(sum(reader(), []))
    [0, 1, 2, 3, 4, 5]

Importing it imports little: modules are imported when one of their names is first used. So a worker
process starts as fast as numpy, and does not import jax, which only loaders need. Type checkers and
editors, which run nothing, read the same names in `__init__.pyi`.
"""

from importlib import import_module as _import_module
from typing import Any as _Any

__version__ = "0.2.0"

_ROOMS = {
    "batches": (
        "batch bucket group_by map_batches padded_batch rebatch sliding_window stack unbatch"
    ),
    "chats": "chat marked_text",
    "datasets": "Dataset IterableDataset datasets",
    "errors": (
        "BatchNotDivisible ComposeNotAligned DamagedData EOFException FeedMismatch LintWarning "
        "MissingSample NotResumable ReaderError ShortEpoch WorkerDied"
    ),
    "feeds": "data",
    "images": "images",
    "linting": "lint",
    "loaders": "DataLoader as_function export graceful_stop",
    "measuring": "Report observe report",
    "orders": "permutation",
    "paddle": "PyReader train",
    "pipelines": "Pipeline",
    "pipelines.of_files": "files",
    "pipelines.specs": "ArraySpec",
    "readers": "Columns Cursor Node Pass Reader at_epoch epochs start",
    "sinks": "write",
    "sounds": "sounds",
    "sources.array_files": "idx mnist_json npy npz",
    "sources.array_record_files": "arrayrecord",
    "sources.columns": "arrays ragged",
    "sources.files.block_store": "Store",
    "sources.image_folders": "image_folder",
    "sources.json_lines": "jsonl",
    "sources.mds_files": "mds",
    "sources.random_access": "source",
    "sources.recordings.audio_files": "audio",
    "sources.recordings.video_files": "video",
    "sources.replaying": "replay",
    "sources.tables.arrow_files": "arrow",
    "sources.tables.csv_files": "csv",
    "sources.tables.huggingface_data": "huggingface",
    "sources.tables.parquet_files": "parquet",
    "sources.tar_files": "tar",
    "sources.text_files": "text",
    "sources.tfrecord_files": "tfrecord",
    "sources.token_files": "tokens",
    "transforms": (
        "cache chain compose filter firstn flat_map interleave map_readers mix pack read shard "
        "shuffle skip windows"
    ),
    "workers": "Processes buffered get_worker_info map_samples multiprocess_reader xmap_readers",
}  # the public names: each is imported when one of its names is first used
_LATER = dict(
    sorted((name, f"jreader.{room}") for room, names in _ROOMS.items() for name in names.split())
)

_WORDS_OF_OTHERS = ("load", "map", "repeat", "take", "zip")

__all__ = list(_LATER)


def __getattr__(name: str) -> _Any:
    """Import the module of a public name when the name is first used (PEP 562)."""
    if name not in _LATER:
        if newer := _import_module("jreader.errors").newer_name("jreader", name):
            return __getattr__(newer)
        says = f"module 'jreader' has no attribute {name!r}"
        if not name.isalpha() or not name.islower() or name in _WORDS_OF_OTHERS:  # and so no folder
            says = _import_module("jreader.hints").missing_name(name) or says
        raise AttributeError(says)
    module = _import_module(_LATER[name])
    value = module if name in ("datasets", "images", "sounds") else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, including those that are imported later."""
    return [*__all__, "__version__"]
