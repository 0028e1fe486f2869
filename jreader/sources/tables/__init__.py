"""Tables of named columns, as Arrow lays them out: Parquet, Arrow's files, CSV, data sets.

`arrow_columns` is the one place that says what a column of Arrow becomes. Each format finds its
columns, as a whole or in blocks, and gives them to it.
"""
