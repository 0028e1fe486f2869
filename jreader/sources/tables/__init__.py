"""Tables of named columns, as Arrow lays them out: Parquet, Arrow's files, CSV, data sets.

`arrow_columns` is the one place that says what a column of Arrow becomes. Each format finds its
columns, as a whole or in blocks, and gives them to it.
"""

from jreader.sources.tables.arrow_files import arrow
from jreader.sources.tables.csv_files import csv
from jreader.sources.tables.huggingface_data import huggingface
from jreader.sources.tables.parquet_files import parquet

__all__ = ["arrow", "csv", "huggingface", "parquet"]
