"""Exports of the lake: Databento-style Parquet, LOBSTER CSV, a NautilusTrader catalog.

    export(lake, "databento", "out", ["mbo", "trades"], ExportRequest(["PETR4"], start="2026-11-13"))

Each format is a module with `write(job)`; umdf.lake.export.job lists them, docs/export.md describes the columns.
"""
