"""Sources: readers of arrays, files of arrays, text and tokens, and objects that have indices.

The samples of a `Table` are the rows of its `columns`, which lie in memory or are mapped into it;
its length is known, and a pass can be resumed at any row at once. A pass over text files is resumed
at a byte offset. Creating a source reads nothing. A file that does not exist is an error when the
source is created, a damaged file (`DamagedData`) when it is read.

A format is one class, in a file of its own (those of `array_files.py` share one). `FileTable`
(`columns.py`) looks at its files before and after they are opened; `FileReader`
(`files/file_readers.py`) takes the paths that a user types; `RecordFiles` (`files/records.py`) and
`TableReader` (`tables/table_files.py`) share what formats of records and of tables have in common.
Ranges of bytes are read through `files/`, remote ones through `remote.py`. What is written
is there as a whole or not at all (`transactions.py`); a cache that grows is whole up to its last
commit (`stored_columns.py`).
"""
