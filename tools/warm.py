"""Compiles every kernel into the cache under .venv; the Makefile runs it before tests fork."""

from __future__ import annotations

import time

from umdf.warmup import is_warm, warm_all

if not is_warm():
    print("compiling the kernels …", flush=True)
    started_s = time.monotonic()
    warm_all()
    print(f"compiled in {time.monotonic() - started_s:.0f} s")
