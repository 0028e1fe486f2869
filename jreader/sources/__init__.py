"""Sources: readers of arrays, files of arrays, text and tokens, and objects that have indices.

The samples of a `Table` are the rows of its `columns`, which lie in memory or are mapped into it.
Its length is known, and a pass resumes at any row immediately. A pass over text files resumes at a
byte offset. Creating a source reads nothing. A missing file is an error when you create the source,
a damaged one (`DamagedData`) when you read it.

A format is one class, in a file of its own (those of `array_files.py` share one). `FileTable`
(`columns.py`) checks its files before and after opening them; `FileReader`
(`files/file_readers.py`) takes the paths that a user types; `RecordFiles` (`files/records.py`) and
`TableReader` (`tables/table_files.py`) hold what record formats and table formats share. `files/`
reads byte ranges, `remote.py` those of remote files. Writing a file is all or nothing
(`transactions.py`); a growing cache is complete up to its last commit (`stored_columns.py`).
"""
