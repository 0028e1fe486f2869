"""Tables of named columns in Arrow's layout: Parquet, Arrow files, CSV, Hugging Face data sets.

Only `arrow_columns` decides what an Arrow column becomes. Each format finds its columns, whole or
in blocks, and passes them to it.
"""
