"""What is compiled before a client receives anything."""

from __future__ import annotations

from pathlib import Path

import numba
import numba.core.config
import pytest

from umdf import kernels
from umdf.feed.compilation import compile_all, uncompiled_kernels


def _add_one(x):
    return x + 1


def test_kernels_that_are_not_in_the_cache_are_counted_and_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(vars(numba.core.config), "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(_add_one, "__module__", "umdf.book.some_kernel")
    kernels_before = dict(kernels.ENTRY_POINTS)
    kernels.ENTRY_POINTS.clear()
    try:
        kernels.kernel(_add_one)
        assert uncompiled_kernels() == 1
        compile_all([])
        assert uncompiled_kernels() == 0
        kernels.ENTRY_POINTS.clear()
        kernels.kernel(_add_one)  # as another process would find it
        assert uncompiled_kernels() == 0
        kernels.ENTRY_POINTS.clear()
        monkeypatch.setattr(_add_one, "__module__", "umdf.exchange.some_kernel")
        kernels.kernel(_add_one)
        monkeypatch.setitem(vars(numba.core.config), "CACHE_DIR", str(tmp_path / "empty"))
        assert uncompiled_kernels() == 0, "an exchange in the same process is not waited for"
    finally:
        kernels.ENTRY_POINTS.clear()
        kernels.ENTRY_POINTS.update(kernels_before)
