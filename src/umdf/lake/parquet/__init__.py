"""Parquet files of the tables: names, writers and readers."""
