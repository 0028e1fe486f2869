"""Files that are read by ranges of bytes, and what was once found in them.

Every format that finds its samples by number reads files through `open_file`, so that what holds of
one holds of all: few files are open at a time, threads share them, and a file that has changed is
an error that names it.
"""

from jreader.sources.files.block_store import Store
from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.files.kept_indices import kept
from jreader.sources.files.stored_files import open_file, read_many

__all__ = ["ByteFile", "Store", "kept", "open_file", "read_many"]
