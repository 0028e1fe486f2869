"""Sources: readers of arrays, files of arrays, text and tokens, and objects that have indices.

The samples of a `Table` are the rows of its `columns`, which lie in memory or are mapped into it;
its length is known, and a pass can be resumed at any row at once. A pass over text files is resumed
at a byte offset. Creating a source reads nothing. A file that does not exist is an error when the
source is created, a damaged file (`DamagedData`) when it is read.
"""

from jreader.sources.array_files import idx, mnist_json, npy, npz
from jreader.sources.array_record_files import arrayrecord
from jreader.sources.columns import Table, arrays, ragged
from jreader.sources.files import Store
from jreader.sources.image_folders import image_folder
from jreader.sources.json_lines import jsonl
from jreader.sources.random_access import source
from jreader.sources.tables import arrow, csv, huggingface, parquet
from jreader.sources.tar_files import tar
from jreader.sources.text_files import text
from jreader.sources.tfrecord_files import tfrecord
from jreader.sources.token_files import tokens

__all__ = [
    "Store",
    "Table",
    "arrayrecord",
    "arrays",
    "arrow",
    "csv",
    "huggingface",
    "idx",
    "image_folder",
    "jsonl",
    "mnist_json",
    "npy",
    "npz",
    "parquet",
    "ragged",
    "source",
    "tar",
    "text",
    "tfrecord",
    "tokens",
]
