"""Generated code in real files, so that numba can cache the compiled code (see `umdf.kernels`).

A file is named after the digest of everything it depends on: its own source (which follows from the template and the
generator) and every kernel that it is compiled with. Processes that write the same file at the same time write the
same thing. A process loads a file once, however many decoders use it: compiled code keeps no state of its own, and
loading it takes milliseconds and megabytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from umdf.kernels import ENTRY_POINTS, cache_dir, source_stamp
from umdf.wire.fast.decode import tables_kernel
from umdf.wire.fast.decode.codegen import HEADER, Generator
from umdf.wire.fast.layout import Layout, Node

GeneratedDecode = Callable[[int], int]

MOST_LOADED = 64  # templates: a process reads a few sets of them, of which a few templates have generated code
_LOADED: dict[Path, ModuleType] = {}  # the most recently used one last


def load_generated(layout: Layout, root: Node) -> GeneratedDecode | None:
    """The compiled code of a template (compiled at its first call, unless cached); None if no file can be
    written: the interpreter is used instead."""
    source = Generator(layout, root).source()
    kernels = source_stamp(Path(tables_kernel.__file__))
    digest = hashlib.sha256((HEADER + source + kernels).encode()).hexdigest()
    path = cache_dir() / "generated" / f"fast_{root.template.id}_{digest[:24]}.py"
    try:
        if not path.exists():
            _write_atomically(path, HEADER.format(name=root.template.name, digest=digest) + "\n\n" + source)
        module = _LOADED.pop(path, None) or _load(path)
    except OSError:
        return None
    _LOADED[path] = module
    if len(_LOADED) > MOST_LOADED:
        _forget(_LOADED.pop(next(iter(_LOADED))))
    return module.decode


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"umdf_generated_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # numba finds a cached function's globals by the name of its module
    spec.loader.exec_module(module)
    return module


def _forget(module: ModuleType) -> None:
    """Release a module; decoders that have its code keep it."""
    sys.modules.pop(module.__name__, None)
    ENTRY_POINTS.pop(module.decode, None)


def _write_atomically(path: Path, content: str) -> None:
    """Write a file atomically, also with concurrent writers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
