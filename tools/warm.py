"""Compiles all kernels into the cache under .venv and archives Spark's classes there; the Makefile runs it before tests
fork."""

from __future__ import annotations

import importlib.util
import time

from umdf.warmup import is_warm, warm_all

if not is_warm():
    print("compiling the kernels …", flush=True)
    started_s = time.monotonic()
    warm_all()
    print(f"compiled in {time.monotonic() - started_s:.0f} s")

if importlib.util.find_spec("pyspark"):
    from umdf.lake.runtime import class_archive

    started_s = time.monotonic()
    kept = class_archive.create()
    if kept and time.monotonic() - started_s > 1:
        print(f"kept Spark's classes ({kept.stat().st_size >> 20} MB) in {time.monotonic() - started_s:.0f} s")
