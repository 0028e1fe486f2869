"""Sinks: write the samples of any reader to files that the readers of `jreader.sources` read.

- `writing.py` is `write`: it checks arguments and folders, and runs the threads that write.
- `shard_writers.py` cuts samples into shards, and writes their files.
- `sample_fields.py` holds what the samples of a format share, and finds samples that differ.
- `parquet_shards.py`, `npy_shards.py`, `tar_shards.py` and `record_shards.py` each know one format.
"""

from jreader.sinks.writing import FormatName, write

__all__ = ["FormatName", "write"]
