"""Compiles all kernels once, so that nothing waits for them later and no two processes compile the same one.

Invariant: a `warm()` that compiles something is named in WARMERS.
"""

from __future__ import annotations

import hashlib
import importlib
import platform
from collections.abc import Sequence
from pathlib import Path

WARMERS: tuple[str, ...] = ("umdf.warmup:warm", "umdf.wire.fast.decode.decoder:warm")


def warm() -> None:
    """Compile every kernel of the package. (Generated code is warmed by its own package.)"""
    from umdf.kernels import PACKAGE, compile_kernels

    for path in sorted(PACKAGE.rglob("*_kernel.py")):
        importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    compile_kernels()


def warm_all(warmers: Sequence[str] = WARMERS) -> None:
    """Compile what is not in the cache yet, and write a marker that everything is."""
    for name in warmers:
        module, function = name.split(":")
        getattr(importlib.import_module(module), function)()
    try:
        path = _stamp_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_stamp(warmers))
    except OSError:  # no cache directory is writable: kernels compile in memory, and `umdf doctor` reports it
        pass


def is_warm(warmers: Sequence[str] = WARMERS) -> bool:
    """Whether `warm_all` has run for these sources and this Python, numba and CPU."""
    try:
        return _stamp_path().read_text() == _stamp(warmers)
    except OSError:
        return False


def _stamp_path() -> Path:
    from umdf.kernels import cache_dir

    return cache_dir() / "warm"


def _stamp(warmers: Sequence[str]) -> str:
    import numba
    from llvmlite import binding

    from umdf.kernels import package_stamp

    processor = binding.get_host_cpu_name() + binding.get_host_cpu_features().flatten()
    parts = (package_stamp(), platform.python_version(), numba.__version__, processor, *warmers)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
