"""Staging files that are overwritten instead of deleted and created again.

Every micro-batch stages about as much as the one before. The pages of a deleted file go back to the operating system,
and getting new ones takes several times as long as writing to existing ones; ten times on a virtual machine that
returns free memory to its host. So a stream keeps such files for its next tasks.

Invariant: only a file that its task has closed, and that no task will read again, is released; it has one owner at a
time, because acquiring it renames it.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

MAX_POOL_BYTES = 1 << 30  # the largest files are kept


class StagingFilePool:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def acquire(self, kind: str, target: Path) -> bool:
        """Rename the largest file of a kind to `target`, whatever its content; False if there is none."""
        for path in sorted(self.directory.glob(f"{kind}-*"), reverse=True):
            try:
                path.rename(target)
                return True
            except FileNotFoundError:  # another task was faster
                continue
        return False

    def release(self, files: Iterable[tuple[str, Path]]) -> None:
        """Take back files of a kind that are no longer needed."""
        with suppress(OSError):  # files that cannot be kept are deleted with their directory
            self.directory.mkdir(parents=True, exist_ok=True)
            for kind, path in files:
                path.rename(self.directory / f"{kind}-{path.stat().st_size:015d}-{uuid.uuid4().hex}")
            self._trim()

    def _trim(self) -> None:
        total_bytes = 0
        for path in sorted(self.directory.iterdir(), key=_size_in_name, reverse=True):
            total_bytes += _size_in_name(path)
            if total_bytes > MAX_POOL_BYTES:
                path.unlink()

    def clear(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


def _size_in_name(path: Path) -> int:
    return int(path.name.split("-")[1])
