"""Read files by byte range, and cache indices of their contents.

All formats that read byte ranges use `open_file`, so the same holds for each: few files are open at
a time, threads share them, and a changed file raises an error that names it. Formats that map local
files (arrays, tokens, Arrow) or stream lines open the files themselves; rows of remote arrays and
tokens are `FileRows`.
"""

from jreader.sources.files.block_store import Store
from jreader.sources.files.byte_ranges import ByteFile
from jreader.sources.files.index_cache import kept
from jreader.sources.files.stored_files import open_file, read_many

__all__ = ["ByteFile", "Store", "kept", "open_file", "read_many"]
