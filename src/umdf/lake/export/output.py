"""The output directory of an export: it appears when it is complete, and never replaces anything else.

Invariant: `--force` replaces only an earlier export (with `_export.json`); no other files are deleted.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from umdf.errors import UmdfError

METADATA_FILE = "_export.json"  # readers of Parquet directories skip names that start with an underscore


@contextmanager
def atomic_directory(out: Path, force: bool) -> Iterator[Path]:
    """A new directory to write into, which is renamed to `out` on success, and deleted on failure."""
    out = out.absolute()
    check_replaceable(out, force)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.{uuid.uuid4().hex[:8]}")
    temporary.mkdir()
    try:
        yield temporary
        check_replaceable(out, force)  # it may have been created meanwhile
        old = _move_aside(out)
        os.rename(temporary, out)
        if old is not None:
            shutil.rmtree(old)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_replaceable(out: Path, force: bool) -> None:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / METADATA_FILE).is_file():
        raise UmdfError(f"{out} exists and is not a umdf export", "use a new or empty directory")
    if not force:
        raise UmdfError(f"{out} already exists", "replace it with --force, or use a new directory")


def _move_aside(out: Path) -> Path | None:
    if not out.exists():
        return None
    aside = out.with_name(f".{out.name}.{uuid.uuid4().hex[:8]}.old")
    os.rename(out, aside)
    return aside


def write_metadata(directory: Path, content: dict[str, Any]) -> None:
    (directory / METADATA_FILE).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
