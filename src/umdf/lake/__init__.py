"""The Spark lakehouse: captures into Delta tables, exactly once.

Spark drives, Arrow carries: a Spark task writes its Parquet files itself and returns what it wrote; the driver commits
the files of all tables together. Importing this package loads neither pyspark nor deltalake.

In reading order: `layout` and `schemas` (what is stored), `ingest` (from captures to a commit), then its steps `plan`,
`tasks`, `books`, `parquet` and `commit`; `runtime` runs the tasks, `stream` follows a growing recording, `admin`
maintains a lake. Lakes are read by `query`, `export` and `report`; `source` reads captures without a lake.
"""
