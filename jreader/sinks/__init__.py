"""Sinks: the samples of any reader as files, which the readers of `jreader.sources` read again.

- `writing.py` is `write`: what it is asked, which folders it takes, and the threads that write.
- `shard_writers.py` cuts samples into shards, and writes their files.
- `sample_fields.py` holds what the samples of a format have in common, and says which differs.
- `parquet_shards.py`, `npy_shards.py`, `tar_shards.py` and `record_shards.py` each know one format.
"""

from jreader.sinks.writing import FormatName, write

__all__ = ["FormatName", "write"]
