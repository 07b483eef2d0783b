"""The lake in other people's formats: Databento-shaped Parquet, LOBSTER's CSV, a Nautilus catalog.

    export(lake, "databento", "out", ["mbo", "trades"], ExportRequest(["PETR4"], start="2026-11-13"))

Each format is a module with `write(job)`; umdf.lake.export.job has the list, docs/export.md what each column becomes.
"""
