"""Parquet files of the tables: written, read and named."""
