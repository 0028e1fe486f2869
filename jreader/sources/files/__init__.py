"""Files that are read by ranges of bytes, and what was once found in them.

Formats that read ranges of bytes do so through `open_file`, so that what holds of one holds of all:
few files are open at a time, threads share them, and a file that has changed is an error that names
it. Formats that map the files of this machine (arrays, tokens, Arrow), and lines that are read as a
stream, open these themselves; rows of arrays and tokens elsewhere are `FileRows`.
"""

from jreader.sources.files.block_store import Store
from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.files.index_cache import kept
from jreader.sources.files.stored_files import open_file, read_many

__all__ = ["ByteFile", "Store", "kept", "open_file", "read_many"]
