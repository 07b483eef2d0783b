"""The Spark lakehouse: captures into Delta tables, exactly once.

Spark drives, Arrow carries: a Spark task writes its Parquet files itself and returns what it wrote; the driver commits
the files of all tables together. Importing this package loads neither pyspark nor deltalake.
"""
