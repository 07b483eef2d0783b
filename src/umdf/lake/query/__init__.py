"""Reading a lake: ranges of its tables, books at a moment, joins, SQL. The public API is `umdf.Lake`.

Importing this package loads neither pyspark nor deltalake nor pandas.
"""
