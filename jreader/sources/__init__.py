"""Sources: readers of arrays, files of arrays, text and tokens, and objects that have indices.

The samples of a `Table` are the rows of its `columns`, which lie in memory or are mapped into it;
its length is known, and a pass can be resumed at any row at once. A pass over text files is resumed
at a byte offset. Creating a source reads nothing. A file that does not exist is an error when the
source is created, a damaged file (`DamagedData`) when it is read.
"""
